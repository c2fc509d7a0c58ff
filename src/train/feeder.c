#include "train/feeder.h"

#include "data/sampler.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { MAX_COURSES = 4 }; /* a full batch, a tail, and some room */

/* What one batch size runs: the stage's programs between FEED and TALLY. */
struct course {
    const struct sequence *inner; /* the stage's */
    struct program *feed;         /* NULL: batches are written by the host */
    struct program *tally;
    struct sequence *sequence;
};

struct feeder {
    struct der_ctx *ctx;
    struct backend *be;
    struct feeder_options options;
    struct loader_options data; /* a copy */
    struct loader *loader;      /* streamed batches, or NULL */
    struct sampler sampler;     /* order of batches that the back end makes */
    struct feed_attr attr;
    const struct batch *batch; /* streamed, ready to be run */
    int64_t n_batches;
    int64_t next; /* iteration */
    int rows;     /* of the batch that is ready */
    const float *scalars;
    int32_t *labels;  /* [n_batches * batch] */
    int64_t *samples; /* [n_batches * batch] */
    int32_t *order;   /* [view->n][FEED_ITEM_WORDS] on its way to the back end */
    struct buffer *pixels, *levels, *order_there, *table, *clock;
    struct buffer *losses, *ranks, *features; /* what is kept */
    struct course courses[MAX_COURSES];
    int n_courses;
};

/* ---- what the back end can do itself --------------------------------------------------------------- */

/* Images in memory that are cut out, flipped and brightened; everything else is the loader's. */
static bool serves(const struct loader_options *data)
{
    const struct augment_spec *spec = data->augment;
    const struct dataset *set = data->set;
    return (spec->geometry == AUGMENT_PLAIN || spec->geometry == AUGMENT_PAD_CROP) &&
           spec->channels == set->channels && augment_fits(spec, set->height, set->width);
}

static struct feed_attr attr_of(const struct loader_options *data)
{
    const struct augment_spec *spec = data->augment;
    return (struct feed_attr){.channels = spec->channels,
                              .height = data->set->height,
                              .width = data->set->width,
                              .out_height = spec->height,
                              .out_width = spec->width,
                              .pad = spec->geometry == AUGMENT_PAD_CROP ? spec->pad : 0,
                              .flip = spec->flip,
                              .low = fmax(0.0, 1.0 - spec->brightness),
                              .high = 1.0 + spec->brightness};
}

static enum der_status upload_levels(struct feeder *feeder)
{
    struct augment augment;
    size_t bytes = (size_t)feeder->data.augment->channels * sizeof augment.table[0];
    TRY(augment_init(feeder->ctx, feeder->data.augment, &augment));
    TRY(buffer_new(feeder->be, bytes, &feeder->levels));
    return buffer_write(feeder->levels, 0, augment.table, bytes);
}

static enum der_status open_resident(struct feeder *feeder)
{
    struct mem *mem = &feeder->ctx->mem;
    size_t n = (size_t)feeder->data.view->n;
    feeder->attr = attr_of(&feeder->data);
    TRY(sampler_init(feeder->ctx, feeder->data.view->n, feeder->data.batch,
                     feeder->data.mode == LOADER_TRAIN, &feeder->sampler));
    feeder->n_batches = sampler_batches(&feeder->sampler);
    feeder->order = mem_alloc(mem, n, FEED_ITEM_WORDS * sizeof *feeder->order);
    if (!feeder->order)
        return ctx_nomem(feeder->ctx);
    TRY(upload_levels(feeder));
    return buffer_new(feeder->be, n * FEED_ITEM_WORDS * sizeof *feeder->order,
                      &feeder->order_there);
}

static enum der_status open_source(struct feeder *feeder)
{
    struct resident *resident = feeder->options.resident;
    if (resident && serves(&feeder->data) && feeder->data.view->n > 0)
        TRY(resident_pixels(resident, feeder->data.split, &feeder->pixels));
    if (feeder->pixels)
        return open_resident(feeder);
    TRY(loader_new(feeder->ctx, &feeder->data, &feeder->loader));
    feeder->n_batches = loader_batches(feeder->loader);
    return DER_OK;
}

static enum der_status open_tables(struct feeder *feeder)
{
    const struct feeder_options *o = &feeder->options;
    size_t n = (size_t)(feeder->n_batches > 0 ? feeder->n_batches : 1);
    size_t rows = n * (size_t)feeder->data.batch;
    feeder->labels = mem_alloc(&feeder->ctx->mem, rows, sizeof *feeder->labels);
    feeder->samples = mem_alloc(&feeder->ctx->mem, rows, sizeof *feeder->samples);
    if (!feeder->labels || !feeder->samples)
        return ctx_nomem(feeder->ctx);
    TRY(buffer_new(feeder->be, CLOCK_WORDS * sizeof(int32_t), &feeder->clock));
    TRY(buffer_new(feeder->be, n * STAGE_MAX_SCALARS * sizeof(float), &feeder->table));
    if (o->n_losses > 0)
        TRY(buffer_new(feeder->be, n * (size_t)o->n_losses * sizeof(float), &feeder->losses));
    if (o->ranks)
        TRY(buffer_new(feeder->be, rows * sizeof(int32_t), &feeder->ranks));
    if (o->n_columns > 0)
        TRY(buffer_new(feeder->be, rows * (size_t)o->n_columns * sizeof(float), &feeder->features));
    return DER_OK;
}

enum der_status feeder_new(struct der_ctx *ctx, const struct feeder_options *options,
                           struct feeder **out)
{
    *out = NULL;
    struct feeder *feeder = mem_zalloc(&ctx->mem, 1, sizeof *feeder);
    if (!feeder)
        return ctx_nomem(ctx);
    feeder->ctx = ctx;
    feeder->be = options->be;
    feeder->options = *options;
    feeder->data = *options->data;
    feeder->sampler.mem = &ctx->mem;
    enum der_status status = open_source(feeder);
    if (status == DER_OK)
        status = open_tables(feeder);
    if (status != DER_OK) {
        feeder_free(feeder);
        return status;
    }
    feeder->next = feeder->n_batches; /* no epoch has begun */
    *out = feeder;
    return DER_OK;
}

void feeder_forget(struct feeder *feeder)
{
    for (int i = 0; i < feeder->n_courses; i++) {
        sequence_free(feeder->courses[i].sequence);
        program_free(feeder->courses[i].feed);
        program_free(feeder->courses[i].tally);
    }
    feeder->n_courses = 0;
}

void feeder_free(struct feeder *feeder)
{
    if (!feeder)
        return;
    struct mem *mem = &feeder->ctx->mem;
    feeder_forget(feeder);
    struct buffer *buffers[] = {feeder->levels, feeder->order_there, feeder->table,   feeder->clock,
                                feeder->losses, feeder->ranks,       feeder->features};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_free(buffers[i]);
    loader_free(feeder->loader);
    sampler_fini(&feeder->sampler);
    mem_free(mem, feeder->order);
    mem_free(mem, feeder->labels);
    mem_free(mem, feeder->samples);
    mem_free(mem, feeder);
}

/* ---- programs --------------------------------------------------------------------------------------- */

static struct shape words_of(const struct buffer *buffer)
{
    return shape_1d((int64_t)(buffer->bytes / sizeof(int32_t)));
}

static enum der_status bind(struct program *program, int value, struct buffer *buffer)
{
    return value == NO_VALUE ? DER_OK
                             : program_bind(program, value, (struct span){.buffer = buffer});
}

static enum der_status describe_feed(const struct feeder *feeder, const struct feed_attr *attr,
                                     bool scalars, struct graph *g, struct feed_inputs *in,
                                     struct feed_outputs *out)
{
    *in = (struct feed_inputs){.table = NO_VALUE, .table_width = STAGE_MAX_SCALARS};
    TRY(graph_input(g, "pixels", DTYPE_I32, words_of(feeder->pixels), &in->pixels));
    TRY(graph_input(g, "levels", DTYPE_F32, words_of(feeder->levels), &in->levels));
    TRY(graph_input(g, "order", DTYPE_I32, words_of(feeder->order_there), &in->order));
    TRY(graph_input(g, "clock", DTYPE_I32, words_of(feeder->clock), &in->clock));
    if (scalars)
        TRY(graph_input(g, "table", DTYPE_F32, words_of(feeder->table), &in->table));
    return graph_feed(g, in, attr, out);
}

static enum der_status make_feed(struct feeder *feeder, const struct stage_program *program,
                                 int rows, struct program **made)
{
    struct feed_inputs in;
    struct feed_outputs out;
    struct graph *g;
    struct feed_attr attr = feeder->attr;
    attr.batch = rows;
    TRY(graph_new(feeder->ctx, &g));
    enum der_status status = describe_feed(feeder, &attr, program->scalars != NULL, g, &in, &out);
    if (status == DER_OK)
        status = program_compile(feeder->be, g, made);
    graph_free(g);
    TRY(status);
    TRY(bind(*made, in.pixels, feeder->pixels));
    TRY(bind(*made, in.levels, feeder->levels));
    TRY(bind(*made, in.order, feeder->order_there));
    TRY(bind(*made, in.clock, feeder->clock));
    TRY(bind(*made, in.table, feeder->table));
    TRY(bind(*made, out.image, program->image));
    TRY(bind(*made, out.labels, program->labels));
    return bind(*made, out.now, program->scalars);
}

/* What is kept of an iteration, and where. */
struct kept_value {
    struct buffer *src, *table;
    int64_t words; /* of src */
    enum dtype dtype;
    bool by_row;
};

static int list_kept(const struct feeder *feeder, const struct stage_program *program, int rows,
                     struct kept_value kept[TALLY_MAX])
{
    const struct feeder_options *o = &feeder->options;
    int n = 0;
    if (feeder->losses)
        kept[n++] =
            (struct kept_value){program->losses, feeder->losses, o->n_losses, DTYPE_F32, false};
    if (feeder->ranks && program->rank)
        kept[n++] = (struct kept_value){program->rank, feeder->ranks, rows, DTYPE_I32, true};
    if (feeder->features)
        kept[n++] = (struct kept_value){program->matrix, feeder->features, rows * o->n_columns,
                                        DTYPE_F32, true};
    return n;
}

static enum der_status make_tally(struct feeder *feeder, const struct stage_program *program,
                                  int rows, struct program **made)
{
    struct kept_value kept[TALLY_MAX];
    struct tally_item items[TALLY_MAX];
    struct graph *g;
    int clock;
    int n = list_kept(feeder, program, rows, kept);
    TRY(graph_new(feeder->ctx, &g));
    enum der_status status = graph_input(g, "clock", DTYPE_I32, words_of(feeder->clock), &clock);
    for (int k = 0; k < n && status == DER_OK; k++) {
        items[k].by_row = kept[k].by_row;
        status = graph_input(g, "kept", kept[k].dtype, shape_1d(kept[k].words), &items[k].src);
        if (status == DER_OK)
            status =
                graph_input(g, "table", kept[k].dtype, words_of(kept[k].table), &items[k].table);
    }
    if (status == DER_OK)
        status = graph_tally(g, clock, items, n, rows);
    if (status == DER_OK)
        status = program_compile(feeder->be, g, made);
    graph_free(g);
    TRY(status);
    TRY(bind(*made, clock, feeder->clock));
    for (int k = 0; k < n; k++) {
        TRY(bind(*made, items[k].src, kept[k].src));
        TRY(bind(*made, items[k].table, kept[k].table));
    }
    return DER_OK;
}

/* The feed comes before everything, the tally behind it. */
static enum der_status make_sequence(struct feeder *feeder, struct course *course)
{
    struct sequence_item items[SEQUENCE_MAX];
    const struct sequence *inner = course->inner;
    int n = 0;
    if (inner->n_items > SEQUENCE_MAX - 2)
        return ctx_fail(feeder->ctx, DER_ARG, "at most %d programs can run in an iteration",
                        SEQUENCE_MAX - 2);
    if (course->feed)
        items[n++] = (struct sequence_item){course->feed, inner->items[0].group - 1};
    memcpy(items + n, inner->items, (size_t)inner->n_items * sizeof *items);
    n += inner->n_items;
    items[n] = (struct sequence_item){course->tally, items[n - 1].group + 1};
    return sequence_new(feeder->be, items, n + 1, &course->sequence);
}

static enum der_status get_course(struct feeder *feeder, const struct stage_program *program,
                                  struct sequence **out)
{
    int rows = feeder->data.mode == LOADER_EVAL ? feeder->data.batch : feeder->rows;
    for (int i = 0; i < feeder->n_courses; i++)
        if (feeder->courses[i].inner == program->sequence) {
            *out = feeder->courses[i].sequence;
            return DER_OK;
        }
    if (feeder->n_courses == MAX_COURSES)
        return ctx_fail(feeder->ctx, DER_STATE, "more than %d batch sizes in one stage",
                        MAX_COURSES);
    /* Counted before it is complete, so that feeder_free releases whatever there is. */
    struct course *course = &feeder->courses[feeder->n_courses++];
    *course = (struct course){.inner = program->sequence};
    if (feeder->pixels)
        TRY(make_feed(feeder, program, rows, &course->feed));
    TRY(make_tally(feeder, program, rows, &course->tally));
    TRY(make_sequence(feeder, course));
    *out = course->sequence;
    return DER_OK;
}

/* ---- an epoch --------------------------------------------------------------------------------------- */

int64_t feeder_batches(const struct feeder *feeder)
{
    return feeder->n_batches;
}

int64_t feeder_images(const struct feeder *feeder)
{
    return feeder->data.view->n;
}

static enum der_status write_order(struct feeder *feeder, uint32_t epoch)
{
    const struct data_view *view = feeder->data.view;
    sampler_epoch(&feeder->sampler, feeder->data.seed, epoch);
    for (int64_t i = 0; i < view->n; i++) {
        struct view_item item = view->items[feeder->sampler.order[i]];
        feeder->order[i * FEED_ITEM_WORDS] = (int32_t)item.sample;
        feeder->order[i * FEED_ITEM_WORDS + 1] = item.label;
    }
    return buffer_write(feeder->order_there, 0, feeder->order, feeder->order_there->bytes);
}

enum der_status feeder_start(struct feeder *feeder, uint32_t epoch, const float *scalars)
{
    uint64_t seed = feeder->data.seed;
    const int32_t clock[CLOCK_WORDS] = {[CLOCK_EPOCH] = (int32_t)epoch,
                                        [CLOCK_SEED_LOW] = (int32_t)(uint32_t)seed,
                                        [CLOCK_SEED_HIGH] = (int32_t)(uint32_t)(seed >> 32)};
    int64_t rows = feeder->n_batches * feeder->data.batch;
    feeder->next = 0;
    feeder->rows = 0;
    feeder->scalars = scalars;
    for (int64_t i = 0; i < rows; i++)
        feeder->labels[i] = -1;
    TRY(buffer_write(feeder->clock, 0, clock, sizeof clock));
    if (!feeder->pixels)
        return loader_start(feeder->loader, epoch, 0);
    if (scalars)
        TRY(buffer_write(feeder->table, 0, scalars, feeder->table->bytes));
    return write_order(feeder, epoch);
}

enum der_status feeder_next(struct feeder *feeder, int *rows)
{
    int64_t first = feeder->next * feeder->data.batch;
    *rows = feeder->rows = 0;
    if (feeder->pixels) {
        if (feeder->next == feeder->n_batches)
            return DER_OK;
        (void)sampler_batch(&feeder->sampler, feeder->next, &feeder->rows);
        const int32_t *item = feeder->order + first * FEED_ITEM_WORDS;
        for (int64_t i = first; i < first + feeder->rows; i++, item += FEED_ITEM_WORDS) {
            feeder->samples[i] = item[0];
            feeder->labels[i] = item[1];
        }
    } else {
        TRY(loader_next(feeder->loader, &feeder->batch));
        if (!feeder->batch)
            return DER_OK;
        size_t n = (size_t)feeder->batch->n;
        feeder->rows = feeder->batch->n;
        memcpy(feeder->labels + first, feeder->batch->labels, n * sizeof *feeder->labels);
        memcpy(feeder->samples + first, feeder->batch->samples, n * sizeof *feeder->samples);
    }
    *rows = feeder->rows;
    return DER_OK;
}

static enum der_status write_batch(struct feeder *feeder, const struct stage_program *program)
{
    const struct batch *batch = feeder->batch;
    const struct augment_spec *spec = feeder->data.augment;
    size_t n = (size_t)batch->n;
    size_t image = (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width;
    TRY(buffer_write(program->image, 0, batch->images, n * image * sizeof(float)));
    TRY(buffer_write(program->labels, 0, batch->labels, n * sizeof *batch->labels));
    if (!program->scalars)
        return DER_OK;
    return buffer_write(program->scalars, 0, feeder->scalars + feeder->next * STAGE_MAX_SCALARS,
                        STAGE_MAX_SCALARS * sizeof *feeder->scalars);
}

enum der_status feeder_run(struct feeder *feeder, const struct stage_program *program)
{
    struct sequence *sequence = NULL;
    assert(feeder->rows > 0 && (feeder->scalars || !program->scalars));
    TRY(get_course(feeder, program, &sequence));
    if (!feeder->pixels)
        TRY(write_batch(feeder, program));
    TRY(sequence_run(sequence));
    feeder->next++;
    return DER_OK;
}

/* ---- what came of it ---------------------------------------------------------------------------------- */

enum der_status feeder_losses(const struct feeder *feeder, int64_t first, int64_t end,
                              float *losses)
{
    size_t line = (size_t)feeder->options.n_losses * sizeof *losses;
    return buffer_read(feeder->losses, (size_t)first * line, losses, (size_t)(end - first) * line);
}

enum der_status feeder_ranks(const struct feeder *feeder, int64_t first, int64_t end,
                             int32_t *ranks)
{
    size_t line = (size_t)feeder->data.batch * sizeof *ranks;
    return buffer_read(feeder->ranks, (size_t)first * line, ranks, (size_t)(end - first) * line);
}

/* Rows of a batch that there were. */
static int64_t rows_of(const struct feeder *feeder, int64_t batch)
{
    int64_t n = 0;
    while (n < feeder->data.batch && feeder->labels[batch * feeder->data.batch + n] >= 0)
        n++;
    return n;
}

/* Full batches lie one behind the other: a batch that is not ends a piece. */
enum der_status feeder_features(const struct feeder *feeder, float *features)
{
    int64_t line = feeder->options.n_columns;
    int64_t first = 0; /* row where the piece begins */
    for (int64_t b = 0; b < feeder->next; b++) {
        int64_t n = rows_of(feeder, b);
        if (n == feeder->data.batch && b + 1 < feeder->next)
            continue;
        int64_t count = (b * feeder->data.batch + n - first) * line;
        TRY(buffer_read(feeder->features, (size_t)(first * line) * sizeof *features, features,
                        (size_t)count * sizeof *features));
        features += count;
        first = (b + 1) * feeder->data.batch;
    }
    return DER_OK;
}

const int32_t *feeder_labels(const struct feeder *feeder)
{
    return feeder->labels;
}

const int64_t *feeder_samples(const struct feeder *feeder)
{
    return feeder->samples;
}
