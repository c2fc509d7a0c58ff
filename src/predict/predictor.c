#include "predict/predictor.h"

#include "data/row.h"
#include "train/assembly.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    N_SIZES = 3,
    SMALL_BATCH = 8,
    FULL_BATCH = 64,       /* of small images */
    FULL_BATCH_LARGE = 16, /* of larger ones: ten extractors keep their activations at once */
    SMALL_SIDE = 64        /* images up to so many pixels squared are small */
};

struct predictor {
    struct der_ctx *ctx;
    struct backend *be;
    struct model *model; /* owned */
    struct desks desks;
    struct assembly_cache assemblies;
    struct augment augment; /* of the model, for pictures of any size */
    struct augment_draw draw;
    struct row_tools tools;
    size_t image_floats;
    int sizes[N_SIZES]; /* batches of prediction, ascending */
    int capacity;       /* rows of the next two */
    float *images;      /* [capacity][channels][height][width] on their way in */
    float *rows;        /* [capacity][n_classes] on their way out */
};

/* ---- programs ------------------------------------------------------------------------------------ */

static enum der_status describe(void *self, struct graph *g, struct assembly_io *io)
{
    struct predictor *p = self;
    struct param_use *head;
    TRY(assembly_attach(g, io, p->model->classifier, false, &head));
    TRY(params_linear(head, g, io->matrix, &io->logits));
    TRY(graph_expose(g, io->logits));
    return graph_rank(g, io->logits, io->labels, 0, 0, &io->rank);
}

static void drop_programs(struct predictor *p)
{
    assembly_cache_fini(&p->assemblies);
    for (int i = 0; i < p->model->n_extractors; i++)
        extractor_trim(p->model->extractors[i], NULL, 0);
    desks_fini(&p->desks);
}

/* Who evaluates with ever other batch sizes makes all programs start over now and then; so does a failure, since
 * it leaves programs that are bound in part. */
static enum der_status get_assembly(struct predictor *p, int batch, struct assembly **out)
{
    struct assembly_plan plan = {.be = p->be,
                                 .frozen = p->model->extractors,
                                 .n_frozen = p->model->n_extractors,
                                 .desks = &p->desks,
                                 .self = p,
                                 .describe = describe};
    bool is_known = false;
    for (int i = 0; i < p->assemblies.n; i++)
        is_known = is_known || p->assemblies.item[i]->desk.batch == batch;
    if (!is_known && p->desks.n == DESKS_MAX)
        drop_programs(p);
    enum der_status status = assembly_get(&p->assemblies, &plan, batch, out);
    if (status != DER_OK)
        drop_programs(p);
    return status;
}

enum der_status predictor_program(struct predictor *p, int batch, struct stage_program *out)
{
    struct assembly *assembly;
    TRY(get_assembly(p, batch, &assembly));
    *out = assembly_program(assembly);
    return DER_OK;
}

/* ---- making and ending --------------------------------------------------------------------------- */

static enum der_status set_up(struct predictor *p)
{
    struct augment_spec spec = p->model->info.input;
    if (spec.channels != 1 && spec.channels != 3)
        return ctx_fail(p->ctx, DER_UNSUPPORTED,
                        "the model is for images of %d channels; pictures have 1 or 3",
                        spec.channels);
    bool is_small = (int64_t)spec.height * spec.width <= (int64_t)SMALL_SIDE * SMALL_SIDE;
    spec.adapts = true;
    p->sizes[0] = 1;
    p->sizes[1] = SMALL_BATCH;
    p->sizes[2] = is_small ? FULL_BATCH : FULL_BATCH_LARGE;
    p->image_floats = (size_t)spec.channels * (size_t)spec.height * (size_t)spec.width;
    p->draw = augment_draw(&spec, 0, 0, 0);
    desks_init(&p->desks, p->be, &p->model->extractors[0]->spec, model_feature_dim(p->model));
    return augment_init(p->ctx, &spec, &p->augment);
}

enum der_status predictor_new(struct backend *be, struct model *model, struct predictor **out)
{
    struct der_ctx *ctx = be->ctx;
    assert(model->n_extractors > 0 && model->info.n_classes > 0);
    *out = NULL;
    struct predictor *p = mem_zalloc(&ctx->mem, 1, sizeof *p);
    if (!p) {
        model_free(model);
        return ctx_nomem(ctx);
    }
    p->ctx = ctx;
    p->be = be;
    p->model = model;
    row_tools_init(&p->tools, &ctx->mem, NULL);
    enum der_status status = set_up(p);
    if (status != DER_OK) {
        predictor_free(p);
        return status;
    }
    *out = p;
    return DER_OK;
}

struct model *predictor_release(struct predictor *p)
{
    struct mem *mem = &p->ctx->mem;
    struct model *model = p->model;
    drop_programs(p);
    row_tools_fini(&p->tools);
    mem_free(mem, p->images);
    mem_free(mem, p->rows);
    mem_free(mem, p);
    return model;
}

void predictor_free(struct predictor *p)
{
    if (p)
        model_free(predictor_release(p));
}

const struct model *predictor_model(const struct predictor *p)
{
    return p->model;
}

const struct augment_spec *predictor_input(const struct predictor *p)
{
    return &p->augment.spec;
}

int predictor_batch(const struct predictor *p)
{
    return p->sizes[N_SIZES - 1];
}

/* ---- pictures ------------------------------------------------------------------------------------ */

enum { NUMBERED_TEXT = 32 };

static const char *name_of(const struct picture *picture, char numbered[NUMBERED_TEXT])
{
    if (picture->name)
        return picture->name;
    (void)snprintf(numbered, NUMBERED_TEXT, "picture %d", picture->number);
    return numbered;
}

static enum der_status make_row(struct predictor *p, const struct picture *picture, float *dst)
{
    char numbered[NUMBERED_TEXT];
    const char *name = name_of(picture, numbered);
    enum der_status status = DER_OK;
    switch (picture->kind) {
    case PICTURE_IMAGE:
        status = row_from_image(&p->augment, &p->draw, &p->tools, name, &picture->image, dst);
        break;
    case PICTURE_FILE:
        status = row_from_file(&p->augment, &p->draw, &p->tools, name, dst);
        break;
    case PICTURE_BYTES:
        status = row_from_bytes(&p->augment, &p->draw, &p->tools, name, &picture->bytes, dst);
        break;
    }
    if (status == DER_NOMEM)
        return ctx_nomem(p->ctx);
    return status == DER_OK ? DER_OK : ctx_fail(p->ctx, status, "%s", p->tools.decoder.fault.text);
}

static enum der_status reserve(struct predictor *p, int rows)
{
    struct mem *mem = &p->ctx->mem;
    if (rows <= p->capacity)
        return DER_OK;
    size_t classes = (size_t)p->model->info.n_classes;
    p->capacity = 0;
    mem_free(mem, p->images);
    mem_free(mem, p->rows);
    p->images = mem_alloc(mem, (size_t)rows, p->image_floats * sizeof *p->images);
    p->rows = mem_alloc(mem, (size_t)rows, classes * sizeof *p->rows);
    if (!p->images || !p->rows)
        return ctx_nomem(p->ctx);
    p->capacity = rows;
    return DER_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

/* The largest program that would be more than half used, or that for single pictures. */
static int pick_batch(const struct predictor *p, int left)
{
    int i = N_SIZES - 1;
    while (i > 0 && left <= p->sizes[i] / 2)
        i--;
    return p->sizes[i];
}

static enum der_status check_rows(struct predictor *p, const struct picture *pictures, int n)
{
    int classes = p->model->info.n_classes;
    char numbered[NUMBERED_TEXT];
    for (int i = 0; i < n * classes; i++)
        if (!isfinite(p->rows[i]))
            return ctx_fail(p->ctx, DER_NUMERIC, "%s: the model's logits are not finite",
                            name_of(&pictures[i / classes], numbered));
    return DER_OK;
}

/* n pictures with the program for `batch`. */
static enum der_status run_batch(struct predictor *p, const struct picture *pictures, int n,
                                 int batch)
{
    struct assembly *assembly;
    TRY(reserve(p, batch));
    for (int i = 0; i < n; i++)
        TRY(make_row(p, &pictures[i], p->images + (size_t)i * p->image_floats));
    TRY(get_assembly(p, batch, &assembly));
    size_t rows = (size_t)n;
    size_t classes = (size_t)p->model->info.n_classes;
    TRY(buffer_write(assembly->desk.image, 0, p->images,
                     rows * p->image_floats * sizeof *p->images));
    TRY(sequence_run(assembly->sequence));
    TRY(buffer_read(assembly->logits, 0, p->rows, rows * classes * sizeof *p->rows));
    return check_rows(p, pictures, n);
}

/* Where the rows of a call go: to logits as they are, or to guesses. */
struct results {
    float *logits;
    struct der_guess *guesses;
    int top;
};

static void keep_guesses(const struct predictor *p, const float *row, int top,
                         struct der_guess *guesses)
{
    const struct model_info *info = &p->model->info;
    guess_top(row, info->n_classes, info->temperature, top, guesses);
    for (int i = 0; i < top && guesses[i].label >= 0; i++)
        guesses[i].name = info->classes[guesses[i].label];
}

/* Rows of the pictures from number `first` on. */
static void keep(const struct predictor *p, const struct results *results, int first, int n)
{
    size_t classes = (size_t)p->model->info.n_classes;
    for (int i = 0; i < n; i++) {
        const float *row = p->rows + (size_t)i * classes;
        size_t at = (size_t)first + (size_t)i;
        if (results->guesses)
            keep_guesses(p, row, results->top, results->guesses + at * (size_t)results->top);
        if (results->logits)
            memcpy(results->logits + at * classes, row, classes * sizeof *row);
    }
}

static enum der_status run(struct predictor *p, const struct picture *pictures, int n,
                           const struct results *results)
{
    for (int first = 0; first < n;) {
        int left = n - first;
        int batch = pick_batch(p, left);
        int rows = left < batch ? left : batch;
        TRY(run_batch(p, pictures + first, rows, batch));
        keep(p, results, first, rows);
        first += rows;
    }
    return DER_OK;
}

enum der_status predictor_logits(struct predictor *p, const struct picture *pictures, int n,
                                 float *logits)
{
    return run(p, pictures, n, &(struct results){.logits = logits});
}

enum der_status predictor_guess(struct predictor *p, const struct picture *pictures, int n, int top,
                                struct der_guess *guesses)
{
    return run(p, pictures, n, &(struct results){.guesses = guesses, .top = top});
}
