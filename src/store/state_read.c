/*
 * States from the outside: numbers first, each within its range, modules on demand.
 */
#include "io/safetensors.h"
#include "store/state_text.h"
#include "store/tensor_list.h"

#include <string.h>

enum { MAX_EPOCHS = 1 << 20, RUN_DIGITS = 16 };

static const int64_t MAX_METRICS = (int64_t)1 << 40; /* lines: more than any run writes */
static const int64_t MAX_IMAGES = (int64_t)1 << 40;

/* ---- the description ------------------------------------------------------------------------------ */

static enum der_status get_run(struct state_file *file, const cJSON *object)
{
    const char *text;
    uint64_t run = 0;
    TRY(json_get_text(file->ctx, file->path, object, "run", &text));
    size_t n = strspn(text, "0123456789abcdef");
    if (n != RUN_DIGITS || text[n] != '\0')
        return ctx_fail(file->ctx, DER_FORMAT, "%s: 'run' must be %d hexadecimal digits",
                        file->path, RUN_DIGITS);
    for (size_t i = 0; i < n; i++)
        run = run << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    file->state.run = run;
    return DER_OK;
}

static enum der_status get_phase(struct state_file *file, const cJSON *object)
{
    const char *text;
    TRY(json_get_text(file->ctx, file->path, object, "phase", &text));
    for (int p = PHASE_BETWEEN; p <= PHASE_FINISHED; p++) {
        if (strcmp(text, state_phase_name((enum run_phase)p)) != 0)
            continue;
        file->state.point.phase = (enum run_phase)p;
        return DER_OK;
    }
    return ctx_fail(file->ctx, DER_FORMAT, "%s: 'phase' cannot be '%.60s'", file->path, text);
}

/* The phases tell how far the steps and epochs can be. */
static enum der_status get_position(struct state_file *file, const cJSON *object)
{
    struct run_state *state = &file->state;
    enum run_phase phase = state->point.phase;
    bool in_stage = phase == PHASE_REPRESENTATION || phase == PHASE_CLASSIFIER;
    int64_t n_steps;
    int64_t step;
    int64_t epoch;
    TRY(json_get_int(file->ctx, file->path, object, "steps", 1, STATE_MAX_STEPS, &n_steps));
    int64_t low = phase == PHASE_FINISHED ? n_steps : phase == PHASE_BETWEEN;
    int64_t high = phase == PHASE_FINISHED ? n_steps : n_steps - 1;
    TRY(json_get_int(file->ctx, file->path, object, "step", low, high, &step));
    TRY(json_get_int(file->ctx, file->path, object, "epoch", in_stage, in_stage ? MAX_EPOCHS : 0,
                     &epoch));
    state->n_steps = (int)n_steps;
    state->step = (int)step;
    state->point.epoch = (int)epoch;
    return DER_OK;
}

static enum der_status get_members(struct state_file *file, const cJSON *object)
{
    static const char *const keys[] = {"format", "run",   "phase",   "step",
                                       "steps",  "epoch", "?newest", NULL};
    struct der_ctx *ctx = file->ctx;
    TRY(text_members(ctx, file->path, object, keys));
    TRY(get_run(file, object));
    TRY(get_phase(file, object));
    TRY(get_position(file, object));
    const cJSON *newest = cJSON_GetObjectItemCaseSensitive(object, "newest");
    if ((newest != NULL) != (file->state.point.phase == PHASE_CLASSIFIER))
        return ctx_fail(ctx, DER_FORMAT, "%s: 'newest' belongs to the phase 'classifier'",
                        file->path);
    return newest ? text_to_spec(ctx, file->path, newest, &file->state.point.newest) : DER_OK;
}

static enum der_status get_description(struct state_file *file)
{
    cJSON *object;
    TRY(text_description(file->ctx, file->path, file->tensors, &object));
    enum der_status status = get_members(file, object);
    json_free(object);
    return status;
}

/* ---- numbers --------------------------------------------------------------------------------------- */

/* cols < 0: a vector. */
static enum der_status read_tensor(struct state_file *file, const char *name,
                                   enum safetensors_dtype dtype, int64_t rows, int64_t cols,
                                   void *dst)
{
    struct safetensors_tensor wanted = {
        .name = name, .dtype = dtype, .rank = cols < 0 ? 1 : 2, .dim = {rows, cols}};
    TRY(safetensors_read(file->tensors, &wanted, SAFETENSORS_FINITE, dst));
    file->n_read++;
    return DER_OK;
}

static enum der_status read_int(struct state_file *file, const char *name, int64_t most,
                                int64_t *value)
{
    TRY(read_tensor(file, name, SAFETENSORS_I64, 1, -1, value));
    if (*value < 0 || *value > most)
        return ctx_fail(file->ctx, DER_FORMAT, "%s: '%s' cannot be %lld", file->path, name,
                        (long long)*value);
    return DER_OK;
}

static enum der_status read_measured(struct state_file *file)
{
    struct run_state *state = &file->state;
    size_t n = (size_t)state->n_steps;
    file->measured = mem_alloc(&file->ctx->mem, n * n + n, sizeof *file->measured);
    if (!file->measured)
        return ctx_nomem(file->ctx);
    state->representation = file->measured;
    state->reference = file->measured + n * n;
    int64_t rows = state->n_steps;
    TRY(read_tensor(file, STATE_REPRESENTATION, SAFETENSORS_F64, rows, rows, file->measured));
    TRY(read_tensor(file, STATE_REFERENCE, SAFETENSORS_F64, rows, -1, file->measured + n * n));
    TRY(read_tensor(file, STATE_BOUND_SUM, SAFETENSORS_F64, 1, -1, &state->bound_sum));
    return read_tensor(file, STATE_REFERENCE_OWN, SAFETENSORS_F64, 1, -1, &state->reference_own);
}

/* Length of a vector of whole numbers; 0 when there is none, which read_tensor then says. */
static int64_t length_of(const struct state_file *file, const char *name)
{
    const struct safetensors_tensor *tensor = safetensors_find(file->tensors, name);
    return tensor && tensor->rank == 1 ? tensor->dim[0] : 0;
}

/* No split has more images than this: what is added up later cannot overflow. */
static enum der_status check_counts(const struct state_file *file, const int64_t *counts, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (counts[i] < 0 || counts[i] > MAX_IMAGES)
            return ctx_fail(file->ctx, DER_FORMAT, "%s: '%s' cannot have %lld images", file->path,
                            STATE_TEST_COUNTS, (long long)counts[i]);
    return DER_OK;
}

/* counts [n_counts]: for every step n, top-1 and top-5 of its classes. incremental_add checks them. */
static enum der_status add_tests(struct state_file *file, int n, const int64_t *classes,
                                 const int64_t *parameters, const int64_t *counts, int64_t n_counts)
{
    struct der_ctx *ctx = file->ctx;
    TRY(check_counts(file, counts, n_counts));
    for (int t = 0; t < n; t++) {
        int64_t k = classes[t];
        if (k < 1 || k > INT32_MAX || 3 * k > n_counts)
            return ctx_fail(ctx, DER_FORMAT, "%s: the tests of step %d cannot have %lld classes",
                            file->path, t + 1, (long long)k);
        struct incremental_step step = {.n_classes = (int)k,
                                        .n = counts,
                                        .top1 = counts + k,
                                        .top5 = counts + 2 * k,
                                        .parameters = parameters[0],
                                        .parameters_with_classifier = parameters[1]};
        TRY(text_blame(ctx, file->path, incremental_add(file->metrics, &step)));
        parameters += 2;
        counts += 3 * k;
        n_counts -= 3 * k;
    }
    if (n_counts != 0)
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' has %lld numbers too many", file->path,
                        STATE_TEST_COUNTS, (long long)n_counts);
    return DER_OK;
}

static enum der_status read_tests(struct state_file *file)
{
    struct der_ctx *ctx = file->ctx;
    int64_t n = length_of(file, STATE_TEST_CLASSES);
    int64_t n_counts = length_of(file, STATE_TEST_COUNTS);
    bool in_stage =
        file->state.point.epoch > 0; /* joint training may skip steps before its first */
    if (n > file->state.step || (n == 0 && !in_stage))
        return ctx_fail(ctx, DER_FORMAT, "%s: %lld tests after %d steps", file->path, (long long)n,
                        file->state.step);
    TRY(incremental_new(ctx, &file->metrics));
    file->state.metrics = file->metrics;
    size_t total =
        3 * (size_t)n + (size_t)n_counts; /* the header has been checked: all of it exists */
    int64_t *numbers = mem_alloc(&ctx->mem, total, sizeof *numbers);
    if (!numbers)
        return ctx_nomem(ctx);
    int64_t *parameters = numbers + n;
    int64_t *counts = parameters + 2 * n;
    enum der_status status = read_tensor(file, STATE_TEST_CLASSES, SAFETENSORS_I64, n, -1, numbers);
    if (status == DER_OK)
        status = read_tensor(file, STATE_TEST_PARAMETERS, SAFETENSORS_I64, n, 2, parameters);
    if (status == DER_OK)
        status = read_tensor(file, STATE_TEST_COUNTS, SAFETENSORS_I64, n_counts, -1, counts);
    if (status == DER_OK)
        status = add_tests(file, (int)n, numbers, parameters, counts, n_counts);
    mem_free(&ctx->mem, numbers);
    return status;
}

static enum der_status read_numbers(struct state_file *file)
{
    struct stage_point *point = &file->state.point;
    TRY(get_description(file));
    TRY(read_measured(file));
    TRY(read_int(file, STATE_METRICS_LINES, MAX_METRICS, &file->state.metrics_lines));
    TRY(read_tests(file));
    if (point->phase != PHASE_REPRESENTATION)
        return DER_OK;
    TRY(read_tensor(file, STATE_LAMBDA_S, SAFETENSORS_F64, 1, -1, &point->lambda_s));
    TRY(read_tensor(file, STATE_SIZE_ERROR, SAFETENSORS_F64, 1, -1, &point->size_error));
    return read_int(file, STATE_START_PARAMS, INT64_MAX, &point->start_params);
}

/* ---- the file -------------------------------------------------------------------------------------- */

enum der_status state_open(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                           struct state_file **out)
{
    *out = NULL;
    struct state_file *file = mem_zalloc(&ctx->mem, 1, sizeof *file);
    if (!file)
        return ctx_nomem(ctx);
    file->ctx = ctx;
    file->path = mem_strdup(&ctx->mem, path);
    enum der_status status =
        file->path ? safetensors_open(ctx, io, path, &file->tensors) : ctx_nomem(ctx);
    if (status == DER_OK)
        status = read_numbers(file);
    if (status != DER_OK) {
        state_close(file);
        return status;
    }
    *out = file;
    return DER_OK;
}

void state_close(struct state_file *file)
{
    if (!file)
        return;
    struct mem *mem = &file->ctx->mem;
    safetensors_close(file->tensors);
    incremental_free(file->metrics);
    mem_free(mem, file->measured);
    mem_free(mem, file->path);
    mem_free(mem, file);
}

enum der_status state_restore(struct state_file *file, const char *name, struct param_set *set,
                              bool moving)
{
    TRY(params_are_stored(file->tensors, name, set, moving, &file->n_read));
    return params_restore(file->tensors, name, set, moving);
}

enum der_status state_check_done(const struct state_file *file)
{
    int n = safetensors_count(file->tensors);
    if (n == file->n_read)
        return DER_OK;
    return ctx_fail(file->ctx, DER_FORMAT, "%s has %d tensors, but a state like this has %d",
                    file->path, n, file->n_read);
}
