/*
 * States towards the outside; state_read.c is the way back.
 */
#include "store/state_text.h"
#include "store/tensor_list.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const PHASES[] = {[PHASE_BETWEEN] = "between",
                                     [PHASE_REPRESENTATION] = "representation",
                                     [PHASE_CLASSIFIER] = "classifier",
                                     [PHASE_FINISHED] = "finished"};

const char *state_phase_name(enum run_phase phase)
{
    return PHASES[phase];
}

static cJSON *make_text(const struct run_state *state)
{
    const struct stage_point *point = &state->point;
    char run[17];
    cJSON *object = cJSON_CreateObject();
    (void)snprintf(run, sizeof run, "%016" PRIx64, state->run);
    bool is_whole = object && cJSON_AddNumberToObject(object, "format", 1) &&
                    cJSON_AddStringToObject(object, "run", run) &&
                    cJSON_AddStringToObject(object, "phase", PHASES[point->phase]) &&
                    cJSON_AddNumberToObject(object, "step", state->step) &&
                    cJSON_AddNumberToObject(object, "steps", state->n_steps) &&
                    cJSON_AddNumberToObject(object, "epoch", point->epoch);
    if (is_whole && point->phase == PHASE_CLASSIFIER) {
        cJSON *newest = text_from_spec(&point->newest);
        is_whole = newest && cJSON_AddItemToObject(object, "newest", newest);
    }
    if (is_whole)
        return object;
    cJSON_Delete(object);
    return NULL;
}

/* The tests of all steps as flat arrays; caller frees numbers->all. */
struct test_numbers {
    int64_t *all; /* owner of the rest */
    int64_t *classes, *parameters, *counts;
    int64_t n_counts;
};

static enum der_status gather(struct der_ctx *ctx, const struct incremental *metrics,
                              struct test_numbers *numbers)
{
    size_t n = (size_t)metrics->n_steps;
    *numbers = (struct test_numbers){0};
    for (size_t t = 0; t < n; t++)
        numbers->n_counts += 3 * (int64_t)metrics->steps[t].n_classes;
    numbers->all = mem_alloc(&ctx->mem, 3 * n + (size_t)numbers->n_counts, sizeof(int64_t));
    if (!numbers->all)
        return ctx_nomem(ctx);
    numbers->classes = numbers->all;
    numbers->parameters = numbers->classes + n;
    numbers->counts = numbers->parameters + 2 * n;
    int64_t *next = numbers->counts;
    for (size_t t = 0; t < n; t++) {
        const struct incremental_step *step = &metrics->steps[t];
        const int64_t *parts[] = {step->n, step->top1, step->top5};
        numbers->classes[t] = step->n_classes;
        numbers->parameters[2 * t] = step->parameters;
        numbers->parameters[2 * t + 1] = step->parameters_with_classifier;
        for (int p = 0; p < 3; p++)
            for (int k = 0; k < step->n_classes; k++)
                *next++ = parts[p][k];
    }
    return DER_OK;
}

static enum der_status add_numbers(struct tensor_list *list, const struct run_state *state,
                                   const struct test_numbers *tests)
{
    const struct stage_point *point = &state->point;
    int n = state->n_steps;
    int tested = state->metrics->n_steps;
    TRY(tensor_list_add(list, STATE_REPRESENTATION, SAFETENSORS_F64, n, n, state->representation));
    TRY(tensor_list_add(list, STATE_REFERENCE, SAFETENSORS_F64, n, -1, state->reference));
    TRY(tensor_list_add(list, STATE_BOUND_SUM, SAFETENSORS_F64, 1, -1, &state->bound_sum));
    TRY(tensor_list_add(list, STATE_REFERENCE_OWN, SAFETENSORS_F64, 1, -1, &state->reference_own));
    TRY(tensor_list_add(list, STATE_METRICS_LINES, SAFETENSORS_I64, 1, -1, &state->metrics_lines));
    TRY(tensor_list_add(list, STATE_TEST_CLASSES, SAFETENSORS_I64, tested, -1, tests->classes));
    TRY(tensor_list_add(list, STATE_TEST_PARAMETERS, SAFETENSORS_I64, tested, 2,
                        tests->parameters));
    TRY(tensor_list_add(list, STATE_TEST_COUNTS, SAFETENSORS_I64, tests->n_counts, -1,
                        tests->counts));
    if (point->phase != PHASE_REPRESENTATION)
        return DER_OK;
    TRY(tensor_list_add(list, STATE_LAMBDA_S, SAFETENSORS_F64, 1, -1, &point->lambda_s));
    TRY(tensor_list_add(list, STATE_SIZE_ERROR, SAFETENSORS_F64, 1, -1, &point->size_error));
    return tensor_list_add(list, STATE_START_PARAMS, SAFETENSORS_I64, 1, -1, &point->start_params);
}

static enum der_status write_tensors(struct der_ctx *ctx, struct safetensors_writer *writer,
                                     const struct run_state *state)
{
    const struct stage_point *point = &state->point;
    struct test_numbers tests;
    struct tensor_list list;
    TRY(gather(ctx, state->metrics, &tests));
    tensor_list_init(&list, ctx);
    enum der_status status = add_numbers(&list, state, &tests);
    for (int i = 0; i < point->n_modules && status == DER_OK; i++)
        status = tensor_list_add_params(&list, point->modules[i].name, point->modules[i].set,
                                        point->modules[i].moving);
    if (status == DER_OK)
        status = tensor_list_write(&list, writer);
    tensor_list_fini(&list);
    mem_free(&ctx->mem, tests.all);
    return status;
}

enum der_status state_write(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                            const struct run_state *state)
{
    struct safetensors_writer *writer;
    TRY(safetensors_writer_new(ctx, io, path, &writer));
    enum der_status status = text_describe(ctx, writer, make_text(state));
    if (status == DER_OK)
        status = write_tensors(ctx, writer, state);
    if (status != DER_OK) {
        safetensors_abort(writer);
        return status;
    }
    return safetensors_commit(writer);
}
