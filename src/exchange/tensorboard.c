#include "exchange/tensorboard.h"

#include "data/image_encode.h"
#include "exchange/event_file.h"
#include "exchange/exemplar_sheet.h"
#include "exchange/mask_histogram.h"
#include "io/durable.h"

#include <stdio.h>
#include <string.h>

enum { TAG_CHARS = 160 };

struct tensorboard {
    struct der_ctx *ctx;
    struct tensorboard_options options;
    char *folder;
    struct experiment_listener listener;
    struct event_file *file; /* NULL: nothing is written */
    int64_t step;            /* number of the latest record */
    struct proto event;
};

/* ---- numbers --------------------------------------------------------------------------------------- */

static void add_scalar(struct proto *event, const char *tag, double value)
{
    size_t entry = proto_open(event, SUMMARY_VALUE);
    proto_text(event, SUMMARY_TAG, tag);
    proto_float(event, SUMMARY_SIMPLE_VALUE, (float)value);
    proto_close(event, entry);
}

/* Numbers that say where a record stands, and are no results. */
static bool is_place(const char *key)
{
    static const char *const places[] = {"step", "epoch", "epochs", "steps"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (strcmp(key, places[i]) == 0)
            return true;
    return false;
}

/* Lists with one number a step. That with one a class is left out: thousands of curves help nobody. */
static bool is_series(const char *key)
{
    return strcmp(key, "groups") == 0 || strcmp(key, "representation") == 0;
}

static void add_series(struct proto *event, const char *prefix, const cJSON *array)
{
    char tag[TAG_CHARS];
    const cJSON *item;
    int number = 0;
    cJSON_ArrayForEach(item, array)
    {
        (void)snprintf(tag, sizeof tag, "%s/%s/%03d", prefix, array->string, ++number);
        if (cJSON_IsNumber(item))
            add_scalar(event, tag, item->valuedouble);
    }
}

/* Every number of a record as PREFIX/KEY; those of an object within it as PREFIX/OBJECT/KEY. */
static void add_numbers(struct proto *event, const char *prefix, const cJSON *object)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        char tag[TAG_CHARS];
        const cJSON *inner;
        (void)snprintf(tag, sizeof tag, "%s/%s", prefix, item->string);
        if (cJSON_IsNumber(item) && !is_place(item->string))
            add_scalar(event, tag, item->valuedouble);
        else if (cJSON_IsArray(item) && is_series(item->string))
            add_series(event, prefix, item);
        else if (cJSON_IsObject(item))
            cJSON_ArrayForEach(inner, item)
            {
                (void)snprintf(tag, sizeof tag, "%s/%s/%s", prefix, item->string, inner->string);
                if (cJSON_IsNumber(inner))
                    add_scalar(event, tag, inner->valuedouble);
            }
    }
}

static const char *text_of(const cJSON *record, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(record, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

/* Where the numbers of a record belong: to a stage of training, to the tests, or to the run. */
static const char *group_of(const cJSON *record)
{
    const char *event = text_of(record, "event");
    if (strcmp(event, "epoch") == 0)
        return text_of(record, "stage");
    return strcmp(event, "step") == 0 ? "test" : "run";
}

/* ---- masks and exemplars --------------------------------------------------------------------------- */

static enum der_status add_masks(struct proto *event, const struct learner *learner)
{
    int64_t full = resnet_count_params(&learner->options.spec);
    add_scalar(event, "masks/sparsity", 1.0 - (double)learner->kept_params / (double)full);
    return mask_histograms_add(event, learner->masks, &learner->options.spec);
}

static enum der_status encode_sheet(struct proto *event, const struct exemplar_sheet *sheet)
{
    const struct image_view *image = &sheet->image;
    uint8_t *png;
    size_t size;
    enum der_status status = image_encode_png(sheet->ctx, image, &png, &size);
    if (status == DER_UNSUPPORTED)
        return DER_OK; /* a build without libpng does without pictures */
    TRY(status);
    size_t entry = proto_open(event, SUMMARY_VALUE);
    proto_text(event, SUMMARY_TAG, "exemplars");
    size_t picture = proto_open(event, SUMMARY_IMAGE);
    proto_int(event, IMAGE_HEIGHT, image->height);
    proto_int(event, IMAGE_WIDTH, image->width);
    proto_int(event, IMAGE_COLOURSPACE, image->channels);
    proto_bytes(event, IMAGE_ENCODED, png, size);
    proto_close(event, picture);
    proto_close(event, entry);
    mem_free(&sheet->ctx->mem, png);
    return DER_OK;
}

static enum der_status add_exemplars(struct proto *event, const struct learner *learner)
{
    struct exemplar_sheet sheet;
    enum der_status status = exemplar_sheet_draw(learner, &sheet);
    if (status == DER_OK && sheet.pixels)
        status = encode_sheet(event, &sheet);
    exemplar_sheet_fini(&sheet);
    return status;
}

/* ---- listening ------------------------------------------------------------------------------------- */

static enum der_status write_record(struct tensorboard *board, const cJSON *record,
                                    const struct learner *learner)
{
    struct proto *event = &board->event;
    event_start(event, board->step);
    size_t summary = proto_open(event, EVENT_SUMMARY);
    add_numbers(event, group_of(record), record);
    if (strcmp(text_of(record, "event"), "epoch") == 0 && learner->masks)
        TRY(add_masks(event, learner));
    if (strcmp(text_of(record, "event"), "step") == 0)
        TRY(add_exemplars(event, learner));
    proto_close(event, summary);
    return event_file_write(board->file, event);
}

static void on_record(void *user, const cJSON *record, const struct learner *learner)
{
    struct tensorboard *board = user;
    board->step++;
    if (!board->file || write_record(board, record, learner) == DER_OK)
        return;
    ctx_log(board->ctx, DER_LOG_WARNING, "%s: no more events are written, the run goes on: %s",
            event_file_path(board->file), board->ctx->error);
    event_file_close(board->file);
    board->file = NULL;
}

/* The folder of the events of one run; caller frees. */
static enum der_status make_folder(const struct tensorboard *board, const char *run, char **out)
{
    struct der_ctx *ctx = board->ctx;
    const char *slash = run ? strrchr(run, '/') : NULL;
    const char *name = slash ? slash + 1 : run;
    size_t size = strlen(board->folder) + (name ? strlen(name) : 0) + 2;
    *out = mem_alloc(&ctx->mem, size, 1);
    if (!*out)
        return ctx_nomem(ctx);
    if (board->options.by_run && name)
        (void)snprintf(*out, size, "%s/%s", board->folder, name);
    else
        (void)snprintf(*out, size, "%s", board->folder);
    return durable_mkdir(ctx, board->options.io, *out);
}

static enum der_status on_begin(void *user, const struct run_beginning *run)
{
    struct tensorboard *board = user;
    char *folder;
    enum der_status status = make_folder(board, run->out, &folder);
    board->step = run->n_records;
    if (status == DER_OK)
        status = event_file_create(board->ctx, board->options.io, folder, run->n_records + 1,
                                   &board->file);
    mem_free(&board->ctx->mem, folder);
    return status;
}

static void on_end(void *user)
{
    struct tensorboard *board = user;
    event_file_close(board->file);
    board->file = NULL;
}

/* ---- the board ------------------------------------------------------------------------------------- */

enum der_status tensorboard_open(struct der_ctx *ctx, const struct tensorboard_options *options,
                                 struct tensorboard **out)
{
    *out = NULL;
    TRY(durable_mkdir(ctx, options->io, options->folder)); /* told before the data are opened */
    struct tensorboard *board = mem_zalloc(&ctx->mem, 1, sizeof *board);
    if (!board)
        return ctx_nomem(ctx);
    board->ctx = ctx;
    board->options = *options;
    board->listener = (struct experiment_listener){
        .begin = on_begin, .record = on_record, .end = on_end, .user = board};
    proto_init(&board->event, &ctx->mem);
    board->folder = mem_strdup(&ctx->mem, options->folder);
    if (!board->folder) {
        tensorboard_close(board);
        return ctx_nomem(ctx);
    }
    *out = board;
    return DER_OK;
}

void tensorboard_close(struct tensorboard *board)
{
    if (!board)
        return;
    event_file_close(board->file);
    proto_fini(&board->event);
    mem_free(&board->ctx->mem, board->folder);
    mem_free(&board->ctx->mem, board);
}

const struct experiment_listener *tensorboard_listener(const struct tensorboard *board)
{
    return &board->listener;
}
