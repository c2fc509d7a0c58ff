#include "experiment/run_folder.h"

#include "core/file.h"
#include "core/fnv.h"
#include "experiment/run_files.h"
#include "io/appender.h"
#include "io/durable.h"
#include "io/lock.h"
#include "store/model_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { METRICS_MAX_BYTES = 1 << 30 };

enum run_file {
    FILE_CONFIG,
    FILE_METRICS,
    FILE_STATE,
    FILE_MODEL,
    FILE_EXEMPLARS,
    FILE_PREDICTIONS,
    FILE_MODEL_NEXT, /* written, but the state may not know of it yet */
    FILE_EXEMPLARS_NEXT,
    FILE_PREDICTIONS_NEXT,
    RUN_FILES
};

static const char *const NAMES[RUN_FILES] = {"config.json",
                                             "metrics.jsonl",
                                             "state.safetensors",
                                             "model.safetensors",
                                             "exemplars.safetensors",
                                             "predictions.safetensors",
                                             "model.safetensors.next",
                                             "exemplars.safetensors.next",
                                             "predictions.safetensors.next"};

struct run_folder {
    struct der_ctx *ctx;
    const struct io_calls *io; /* never NULL */
    char *path;
    char *file[RUN_FILES]; /* paths */
    uint64_t run;          /* fingerprint of config.json */
    bool is_new;           /* config.json was written by this folder */
    struct lock *lock;
    struct appender *metrics;
    int64_t n_lines; /* of metrics.jsonl */
};

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* ---- opening ------------------------------------------------------------------------------------- */

static enum der_status folder_new(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                  struct run_folder **out)
{
    struct run_folder *folder = mem_zalloc(&ctx->mem, 1, sizeof *folder);
    *out = folder;
    if (!folder)
        return ctx_nomem(ctx);
    folder->ctx = ctx;
    folder->io = io ? io : io_calls_plain();
    folder->path = mem_strdup(&ctx->mem, path);
    bool is_whole = folder->path != NULL;
    for (int i = 0; i < RUN_FILES && is_whole; i++) {
        folder->file[i] = run_files_join(ctx, path, NAMES[i]);
        is_whole = folder->file[i] != NULL;
    }
    return is_whole ? DER_OK : ctx_nomem(ctx);
}

void run_folder_close(struct run_folder *folder)
{
    if (!folder)
        return;
    struct mem *mem = &folder->ctx->mem;
    appender_close(folder->metrics);
    lock_release(folder->lock);
    for (int i = 0; i < RUN_FILES; i++)
        mem_free(mem, folder->file[i]);
    mem_free(mem, folder->path);
    mem_free(mem, folder);
}

enum der_status run_folder_refuse(struct der_ctx *ctx, const char *path)
{
    return ctx_fail(ctx, DER_ARG, "%s holds a run already; resume it, or choose another folder",
                    path);
}

static enum der_status write_config(struct run_folder *folder, const cJSON *config)
{
    struct der_ctx *ctx = folder->ctx;
    char *text;
    if (exists(folder->file[FILE_CONFIG]))
        return run_folder_refuse(ctx, folder->path);
    TRY(json_print(ctx, config, true, &text));
    size_t length = strlen(text);
    folder->run = fnv_bytes(FNV_START, text, length);
    enum der_status status =
        durable_write_file(ctx, folder->io, folder->file[FILE_CONFIG], text, length);
    mem_free(&ctx->mem, text);
    folder->is_new = status == DER_OK;
    return status;
}

/* Bytes of the first n_lines lines. */
static enum der_status length_of_lines(struct run_folder *folder, int64_t n_lines, int64_t *length)
{
    struct der_ctx *ctx = folder->ctx;
    const char *path = folder->file[FILE_METRICS];
    struct file_bytes bytes = {0};
    struct fault fault;
    int64_t n = 0;
    *length = 0;
    if (n_lines == 0)
        return DER_OK;
    enum der_status status = file_read(&ctx->mem, NULL, path, METRICS_MAX_BYTES, &bytes, &fault);
    if (status != DER_OK)
        return ctx_fail(ctx, status, "%s", fault.text);
    for (size_t i = 0; i < bytes.size && n < n_lines; i++)
        if (bytes.data[i] == '\n' && ++n == n_lines)
            *length = (int64_t)i + 1;
    file_bytes_free(&ctx->mem, &bytes);
    if (n < n_lines)
        return ctx_fail(ctx, DER_FORMAT,
                        "%s has %lld lines, fewer than the %lld that the state knows", path,
                        (long long)n, (long long)n_lines);
    return DER_OK;
}

static enum der_status open_metrics(struct run_folder *folder, int64_t n_lines)
{
    int64_t length;
    TRY(length_of_lines(folder, n_lines, &length));
    folder->n_lines = n_lines;
    return appender_open(folder->ctx, folder->io, folder->file[FILE_METRICS], length,
                         &folder->metrics);
}

static enum der_status create(struct run_folder *folder, const cJSON *config)
{
    TRY(durable_mkdir(folder->ctx, folder->io, folder->path));
    TRY(lock_take_folder(folder->ctx, folder->path, &folder->lock));
    TRY(durable_sweep(folder->ctx, folder->path));
    TRY(write_config(folder, config));
    return open_metrics(folder, 0);
}

/* config.json goes last: what a kill leaves before that is a run that has not begun. */
void run_folder_withdraw(struct run_folder *folder)
{
    if (!folder || !folder->is_new || folder->n_lines > 0 || exists(folder->file[FILE_STATE]))
        return;
    const struct io_calls *io = folder->io;
    (void)io->unlink(io->user, folder->file[FILE_METRICS]);
    (void)io->unlink(io->user, folder->file[FILE_CONFIG]);
    folder->is_new = false;
}

/* Hands a folder over, or gives it back. */
static enum der_status hand_over(struct run_folder *folder, enum der_status status,
                                 struct run_folder **out)
{
    *out = status == DER_OK ? folder : NULL;
    if (status != DER_OK)
        run_folder_close(folder);
    return status;
}

enum der_status run_folder_create(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                  const cJSON *config, struct run_folder **out)
{
    struct run_folder *folder;
    enum der_status status = folder_new(ctx, io, path, &folder);
    if (status == DER_OK)
        status = create(folder, config);
    if (status != DER_OK)
        run_folder_withdraw(folder);
    return hand_over(folder, status, out);
}

/* ---- opening again ------------------------------------------------------------------------------- */

static enum der_status file_exists(struct der_ctx *ctx, const char *path, enum run_file which,
                                   bool *is_there)
{
    char *name = run_files_join(ctx, path, NAMES[which]);
    if (!name)
        return ctx_nomem(ctx);
    *is_there = exists(name);
    mem_free(&ctx->mem, name);
    return DER_OK;
}

enum der_status run_folder_has_run(struct der_ctx *ctx, const char *path, bool *has_run)
{
    return file_exists(ctx, path, FILE_CONFIG, has_run);
}

enum der_status run_folder_peek(struct der_ctx *ctx, const char *path, struct state_file **state)
{
    char *name = run_files_join(ctx, path, NAMES[FILE_STATE]);
    *state = NULL;
    if (!name)
        return ctx_nomem(ctx);
    enum der_status status = exists(name) ? state_open(ctx, NULL, name, state) : DER_OK;
    mem_free(&ctx->mem, name);
    return status;
}

enum der_status run_folder_is_whole(struct der_ctx *ctx, const char *path, bool *is_whole)
{
    static const enum run_file waiting[] = {FILE_MODEL_NEXT, FILE_EXEMPLARS_NEXT,
                                            FILE_PREDICTIONS_NEXT};
    struct state_file *state;
    *is_whole = false;
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++) {
        bool waits = false;
        TRY(file_exists(ctx, path, waiting[i], &waits));
        if (waits)
            return DER_OK;
    }
    TRY(run_folder_peek(ctx, path, &state));
    *is_whole = !state || state->state.point.phase == PHASE_FINISHED;
    state_close(state);
    return DER_OK;
}

static enum der_status read_fingerprint(struct run_folder *folder)
{
    struct der_ctx *ctx = folder->ctx;
    struct file_bytes bytes = {0};
    struct fault fault;
    enum der_status status =
        file_read(&ctx->mem, NULL, folder->file[FILE_CONFIG], JSON_MAX_BYTES, &bytes, &fault);
    if (status != DER_OK)
        return ctx_fail(ctx, status, "%s", fault.text);
    folder->run = fnv_bytes(FNV_START, bytes.data, bytes.size);
    file_bytes_free(&ctx->mem, &bytes);
    return DER_OK;
}

static enum der_status open_state(struct run_folder *folder, struct state_file **out)
{
    if (!exists(folder->file[FILE_STATE]))
        return DER_OK;
    TRY(state_open(folder->ctx, NULL, folder->file[FILE_STATE], out));
    if ((*out)->state.run != folder->run)
        return ctx_fail(folder->ctx, DER_FORMAT,
                        "%s does not belong to %s: one of them was changed or comes from another "
                        "run",
                        folder->file[FILE_STATE], folder->file[FILE_CONFIG]);
    return DER_OK;
}

static enum der_status move(struct run_folder *folder, enum run_file from, enum run_file to)
{
    const struct io_calls *io = folder->io;
    if (io->rename(io->user, folder->file[from], folder->file[to]) != 0)
        return io_fail(folder->ctx, "cannot put in place", folder->file[to], errno);
    return DER_OK;
}

static enum der_status sync_names(struct run_folder *folder)
{
    return durable_sync_names(folder->ctx, folder->io, folder->file[FILE_STATE]);
}

/* A file that waits for its place gets it when it belongs to the state, and goes otherwise. */
static enum der_status settle_one(struct run_folder *folder, enum run_file next,
                                  enum run_file place, int n_learnt)
{
    struct der_ctx *ctx = folder->ctx;
    int step = 0;
    if (!exists(folder->file[next]))
        return DER_OK;
    if (next == FILE_MODEL_NEXT)
        TRY(model_peek_steps(ctx, NULL, folder->file[next], &step));
    else
        TRY(text_peek_step(ctx, NULL, folder->file[next], &step));
    if (step == n_learnt)
        return move(folder, next, place);
    if (folder->io->unlink(folder->io->user, folder->file[next]) != 0)
        return io_fail(ctx, "cannot remove", folder->file[next], errno);
    ctx_log(ctx, DER_LOG_INFO, "%s: removed, step %d was not finished", folder->file[next], step);
    return DER_OK;
}

static enum der_status reopen(struct run_folder *folder, struct state_file **state)
{
    TRY(lock_take_folder(folder->ctx, folder->path, &folder->lock));
    TRY(durable_sweep(folder->ctx, folder->path));
    TRY(read_fingerprint(folder));
    TRY(open_state(folder, state));
    int n_learnt = *state ? (*state)->state.metrics->n_steps : 0;
    TRY(settle_one(folder, FILE_MODEL_NEXT, FILE_MODEL, n_learnt));
    TRY(settle_one(folder, FILE_EXEMPLARS_NEXT, FILE_EXEMPLARS, n_learnt));
    TRY(settle_one(folder, FILE_PREDICTIONS_NEXT, FILE_PREDICTIONS, n_learnt));
    TRY(sync_names(folder));
    return open_metrics(folder, *state ? (*state)->state.metrics_lines : 0);
}

enum der_status run_folder_reopen(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                  struct run_folder **out, struct state_file **state)
{
    struct run_folder *folder;
    *state = NULL;
    enum der_status status = folder_new(ctx, io, path, &folder);
    if (status == DER_OK)
        status = reopen(folder, state);
    if (status != DER_OK) {
        state_close(*state);
        *state = NULL;
    }
    return hand_over(folder, status, out);
}

/* ---- writing --------------------------------------------------------------------------------------- */

enum der_status run_folder_record(struct run_folder *folder, struct der_ctx *ctx, cJSON *object)
{
    char *line = NULL;
    if (!object)
        return ctx_nomem(ctx);
    enum der_status status = folder ? json_print(ctx, object, false, &line) : DER_OK;
    json_free(object);
    if (folder && status == DER_OK)
        status = appender_line(folder->metrics, line);
    if (folder && status == DER_OK)
        folder->n_lines++;
    mem_free(&ctx->mem, line);
    return status;
}

int64_t run_folder_records(const struct run_folder *folder)
{
    return folder ? folder->n_lines : 0;
}

enum der_status run_folder_save(struct run_folder *folder, struct run_state *state)
{
    TRY(appender_sync(folder->metrics));
    state->metrics_lines = folder->n_lines;
    state->run = folder->run;
    return state_write(folder->ctx, folder->io, folder->file[FILE_STATE], state);
}

enum der_status run_folder_save_step(struct run_folder *folder, const struct model *model,
                                     const struct exemplars *memory,
                                     const struct prediction_file *predictions,
                                     struct run_state *state)
{
    TRY(model_write(model, folder->io, folder->file[FILE_MODEL_NEXT]));
    TRY(exemplar_file_write(memory, model->info.classes, model->info.n_steps, folder->io,
                            folder->file[FILE_EXEMPLARS_NEXT]));
    TRY(prediction_file_write(predictions, folder->io, folder->file[FILE_PREDICTIONS_NEXT]));
    TRY(run_folder_save(folder, state));
    TRY(move(folder, FILE_MODEL_NEXT, FILE_MODEL));
    TRY(move(folder, FILE_EXEMPLARS_NEXT, FILE_EXEMPLARS));
    TRY(move(folder, FILE_PREDICTIONS_NEXT, FILE_PREDICTIONS));
    return sync_names(folder);
}

/* ---- reading --------------------------------------------------------------------------------------- */

enum der_status run_folder_load_model(struct run_folder *folder, struct backend *be,
                                      struct model **out)
{
    return model_load(be, NULL, folder->file[FILE_MODEL], out);
}

enum der_status run_folder_load_exemplars(struct run_folder *folder, int capacity,
                                          int64_t n_samples, struct exemplar_file **out)
{
    return exemplar_file_read(folder->ctx, NULL, folder->file[FILE_EXEMPLARS], capacity, n_samples,
                              out);
}
