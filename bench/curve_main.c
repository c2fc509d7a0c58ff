/*
 * der_curve: trains the 32-layer network on ten classes of CIFAR-100 and shows the loss of every
 * single iteration. bench/curve_torch.py does the same in PyTorch; bench/curve.py compares.
 *
 *     der_curve DATA FOLDER [--epochs N] [--warmup N] [--warmup-lr X] [--lr X] [--seed N]
 *               [--threads N] [--jitter N] [--backend NAME] [--start FILE]
 *               [--iterations N]
 *
 * It is the training loop of the library that runs here, with the data, augmentation and network
 * that it is used with. FOLDER receives the parameters and running statistics before the first
 * iteration: init.bin, float32 one after the other, and init.txt, "name dimensions..." for each, headed
 * by the classes in their order; final.bin and final.txt are the same after the last one. One line per
 * iteration goes to standard output: epoch and iteration (from 0), images, learning rate, loss; the
 * last line is "test" and the top-1 accuracy in per cent.
 *
 * --jitter N (above 0) moves every initial parameter by about a unit in its last place, in another way
 * for every N: runs that differ in nothing else show what rounding does. --start FILE (such as a
 * final.bin) replaces the drawn parameters; with --epochs 0 they are only tested. --iterations N ends the training there.
 */
#include "core/rng.h"
#include "data/defaults.h"
#include "support/supervised.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CLASSES = 10, BATCH = 128, TEST_BATCH = 250, PATH_CHARS = 4096 };

static const char USAGE[] =
    "usage: der_curve DATA FOLDER [--epochs N] [--warmup N] [--warmup-lr X] [--lr X]\n"
    "                 [--seed N] [--threads N] [--jitter N] [--backend NAME] [--start FILE]\n"
    "                 [--iterations N]\n";

static const double JITTER = 6e-8; /* relative: half a unit in the last place of a float */

struct curve_options {
    const char *data, *folder;
    const char *backend;
    const char *start; /* file of parameters, or NULL */
    int epochs, warmup, threads;
    int jitter;       /* 0: none */
    int iterations;   /* to stop after; 0: all epochs */
    double warmup_lr; /* of the first `warmup` epochs */
    double lr;        /* of the others */
    uint64_t seed;
};

/* Everything the run opens, so that one function closes it. */
struct curve {
    struct der_ctx *ctx;
    const struct curve_options *options;
    struct dataset *set;
    struct class_order *order;
    struct data_view *view[DATA_SPLITS];
    struct augment_spec augment[DATA_SPLITS];
    struct schedule schedule;
    struct backend *be;
    struct supervised *model;
    /* where the run stands, for after_iteration */
    int epoch;
    int64_t done;           /* iterations of the epoch */
    int iterations;         /* in all */
    bool started;           /* the epoch has begun */
    enum der_status status; /* of reading losses */
};

static void curve_fini(struct curve *c)
{
    supervised_free(c->model);
    backend_close(c->be);
    for (int split = 0; split < DATA_SPLITS; split++)
        view_free(c->view[split]);
    order_free(c->order);
    dataset_free(c->set);
}

static enum der_status curve_init(struct curve *c)
{
    const struct curve_options *o = c->options;
    struct supervised_options model = {
        .n_classes = N_CLASSES, .momentum = 0.9f, .decay = 5e-4f, .seed = o->seed};
    /* One rate, then another: a "drop" upwards. */
    c->schedule = (struct schedule){.lr = o->warmup > 0 ? o->warmup_lr : o->lr,
                                    .epochs = o->epochs,
                                    .n_drops = o->warmup > 0,
                                    .drop = {o->warmup},
                                    .factor = o->warmup > 0 ? o->lr / o->warmup_lr : 1.0};
    TRY(dataset_open(c->ctx, o->data, &c->set));
    if (strcmp(c->set->kind, "cifar100") != 0)
        return ctx_fail(c->ctx, DER_ARG, "%s is of kind %s, want cifar100", o->data, c->set->kind);
    TRY(order_new(c->ctx, "1", c->set->n_classes, &c->order));
    for (int split = 0; split < DATA_SPLITS; split++) {
        TRY(view_classes(c->ctx, &c->set->part[split], c->order, 0, N_CLASSES, &c->view[split]));
        TRY(augment_defaults(c->set, split == DATA_TRAIN, &c->augment[split]));
    }
    TRY(resnet_spec_init(c->ctx, &model.spec, "resnet32", c->set->channels, c->set->height,
                         c->set->width, 1.0));
    TRY(backend_open(c->ctx, o->backend, NULL, &c->be));
    return supervised_new(c->be, &model, &c->model);
}

/* ---- parameters -------------------------------------------------------------------------------- */

/* What is done to one parameter, of which `host` holds the n values and receives new ones. */
struct visitor {
    enum der_status (*visit)(void *self, const struct param *param, float *host, size_t n);
    void *self;
    bool writes; /* the values go back */
};

static enum der_status visit_set(struct param_set *set, const struct visitor *visitor)
{
    struct mem *mem = &set->ctx->mem;
    for (int i = 0; i < set->n; i++) {
        size_t n = (size_t)shape_count(set->items[i].shape);
        float *host = mem_alloc(mem, n, sizeof *host);
        if (!host)
            return ctx_nomem(set->ctx);
        enum der_status status = param_read(set, i, host);
        if (status == DER_OK)
            status = visitor->visit(visitor->self, &set->items[i], host, n);
        if (status == DER_OK && visitor->writes)
            status = param_write(set, i, host);
        mem_free(mem, host);
        TRY(status);
    }
    return DER_OK;
}

static enum der_status visit(const struct curve *c, const struct visitor *visitor)
{
    TRY(visit_set(c->model->extractor->params, visitor));
    return visit_set(c->model->head, visitor);
}

struct jitter {
    struct der_ctx *ctx;
    uint64_t seed;
    uint32_t stream;
};

static enum der_status jitter_param(void *self, const struct param *param, float *host, size_t n)
{
    struct jitter *jitter = self;
    if (param->role != PARAM_LEARNT)
        return DER_OK;
    float *noise = mem_alloc(&jitter->ctx->mem, n, sizeof *noise);
    if (!noise)
        return ctx_nomem(jitter->ctx);
    rng_normal(noise, (int64_t)n, 1.0, jitter->seed, RNG_TEST, jitter->stream++);
    for (size_t i = 0; i < n; i++)
        host[i] = (float)((double)host[i] * (1.0 + JITTER * (double)noise[i]));
    mem_free(&jitter->ctx->mem, noise);
    return DER_OK;
}

struct files {
    const struct curve *curve;
    FILE *index, *values;
};

static enum der_status load_param(void *self, const struct param *param, float *host, size_t n)
{
    const struct files *files = self;
    if (fread(host, sizeof *host, n, files->values) != n)
        return ctx_fail(files->curve->ctx, DER_FORMAT, "%s: ends before %s",
                        files->curve->options->start, param->name);
    return DER_OK;
}

/* The parameters that training starts from. */
static enum der_status prepare(struct curve *c)
{
    const struct curve_options *o = c->options;
    if (o->start) {
        struct files files = {.curve = c, .values = fopen(o->start, "rb")};
        if (!files.values)
            return ctx_fail(c->ctx, DER_IO, "%s: cannot be read", o->start);
        enum der_status status =
            visit(c, &(struct visitor){.visit = load_param, .self = &files, .writes = true});
        (void)fclose(files.values);
        TRY(status);
    }
    if (o->jitter == 0)
        return DER_OK;
    struct jitter jitter = {.ctx = c->ctx, .seed = (uint64_t)o->jitter};
    return visit(c, &(struct visitor){.visit = jitter_param, .self = &jitter, .writes = true});
}

static enum der_status dump_param(void *self, const struct param *param, float *host, size_t n)
{
    const struct files *files = self;
    (void)fprintf(files->index, "%s", param->name);
    for (int d = 0; d < param->shape.rank; d++)
        (void)fprintf(files->index, " %" PRId64, param->shape.dim[d]);
    (void)fputc('\n', files->index);
    if (fwrite(host, sizeof *host, n, files->values) != n)
        return ctx_fail(files->curve->ctx, DER_IO, "%s: could not be written",
                        files->curve->options->folder);
    return DER_OK;
}

static FILE *create(const char *folder, const char *name, const char *suffix)
{
    char path[PATH_CHARS];
    int length = snprintf(path, sizeof path, "%s/%s.%s", folder, name, suffix);
    return length > 0 && length < PATH_CHARS ? fopen(path, "wb") : NULL;
}

/* Writes FOLDER/name.txt and .bin. */
static enum der_status dump(const struct curve *c, const char *name)
{
    const char *folder = c->options->folder;
    struct files files = {
        .curve = c, .index = create(folder, name, "txt"), .values = create(folder, name, "bin")};
    enum der_status status = DER_OK;
    if (!files.index || !files.values)
        status = ctx_fail(c->ctx, DER_IO, "%s: %s.txt and %s.bin cannot be created there", folder,
                          name, name);
    if (status == DER_OK) {
        (void)fputs("classes", files.index);
        for (int label = 0; label < N_CLASSES; label++)
            (void)fprintf(files.index, " %" PRId32, c->order->class_of[label]);
        (void)fputc('\n', files.index);
        status = visit(c, &(struct visitor){.visit = dump_param, .self = &files});
    }
    bool complete =
        (!files.index || fclose(files.index) == 0) & (!files.values || fclose(files.values) == 0);
    if (status == DER_OK && !complete)
        status = ctx_fail(c->ctx, DER_IO, "%s: could not be written", folder);
    return status;
}

/* ---- training ---------------------------------------------------------------------------------- */

static enum der_status print_loss(const struct curve *c, int n)
{
    const struct assembly_cache *cache = &c->model->training;
    for (int i = 0; i < cache->n; i++) {
        float loss;
        if (cache->item[i]->desk.batch != n)
            continue;
        TRY(buffer_read(cache->item[i]->losses, 0, &loss, sizeof loss));
        printf("%d %" PRId64 " %d %.9g %.9g\n", c->epoch, c->done, n,
               schedule_lr(&c->schedule, c->epoch), (double)loss);
        (void)fflush(stdout);
        return DER_OK;
    }
    return ctx_fail(c->ctx, DER_STATE, "nothing was compiled for a batch of %d", n);
}

/* The loop averages losses over an epoch. But it asks before every batch, and once more at the end of
 * an epoch, whether to go on, and then the loss of the batch before still lies in its buffer. */
static bool after_iteration(void *user)
{
    struct curve *c = user;
    int64_t n = c->view[DATA_TRAIN]->n;
    if (!c->started) {
        c->started = true;
        return false;
    }
    int64_t left = n - c->done * BATCH;
    c->status = print_loss(c, left < BATCH ? (int)left : BATCH);
    c->done++;
    c->iterations++;
    if (c->done * BATCH >= n) {
        c->epoch++;
        c->done = 0;
        c->started = false;
    }
    return c->status != DER_OK || c->iterations == c->options->iterations;
}

static enum der_status curve_run(struct curve *c)
{
    TRY(curve_init(c));
    TRY(prepare(c));
    TRY(dump(c, "init"));
    struct train_hooks hooks = {.cancelled = after_iteration, .user = c};
    struct loader_options data[DATA_SPLITS];
    for (int split = 0; split < DATA_SPLITS; split++)
        data[split] =
            (struct loader_options){.set = c->set,
                                    .view = c->view[split],
                                    .augment = &c->augment[split],
                                    .split = (enum data_split)split,
                                    .mode = split == DATA_TRAIN ? LOADER_TRAIN : LOADER_EVAL,
                                    .batch = split == DATA_TRAIN ? BATCH : TEST_BATCH,
                                    .threads = 1,
                                    .seed = c->options->seed};
    enum der_status status = DER_OK;
    if (c->options->epochs > 0)
        status = supervised_train(c->model, "curve", &c->schedule, &data[DATA_TRAIN], &hooks);
    TRY(c->status);
    if (status != DER_CANCELLED || c->iterations != c->options->iterations)
        TRY(status);
    TRY(dump(c, "final"));
    struct evaluation evaluation;
    status = supervised_test(c->model, &data[DATA_TEST], NULL, &evaluation);
    if (status == DER_OK)
        printf("test %.2f\n", evaluation_top1(&evaluation, 0, N_CLASSES));
    evaluation_fini(c->ctx, &evaluation);
    return status;
}

/* ---- the program ------------------------------------------------------------------------------- */

/* False when an argument is not understood. */
static bool parse(int argc, char **argv, struct curve_options *o)
{
    if (argc < 3 || argc % 2 == 0)
        return false;
    o->data = argv[1];
    o->folder = argv[2];
    for (int i = 3; i < argc; i += 2) {
        const char *value = argv[i + 1];
        int number = (int)strtol(value, NULL, 10);
        if (strcmp(argv[i], "--epochs") == 0)
            o->epochs = number;
        else if (strcmp(argv[i], "--warmup") == 0)
            o->warmup = number;
        else if (strcmp(argv[i], "--threads") == 0)
            o->threads = number;
        else if (strcmp(argv[i], "--jitter") == 0)
            o->jitter = number;
        else if (strcmp(argv[i], "--iterations") == 0)
            o->iterations = number;
        else if (strcmp(argv[i], "--backend") == 0)
            o->backend = value;
        else if (strcmp(argv[i], "--start") == 0)
            o->start = value;
        else if (strcmp(argv[i], "--seed") == 0)
            o->seed = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--warmup-lr") == 0)
            o->warmup_lr = strtod(value, NULL);
        else if (strcmp(argv[i], "--lr") == 0)
            o->lr = strtod(value, NULL);
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct curve_options options = {.backend = "cpu",
                                    .epochs = 5,
                                    .warmup = 2,
                                    .threads = 1,
                                    .warmup_lr = 3e-5,
                                    .lr = 0.01,
                                    .seed = 1};
    if (!parse(argc, argv, &options)) {
        (void)fputs(USAGE, stderr);
        return 2;
    }
    struct der_ctx *ctx;
    struct der_ctx_options ctx_options = {.threads = options.threads, .seed = options.seed};
    if (der_ctx_new(&ctx_options, &ctx) != DER_OK)
        return 1;
    struct curve curve = {.ctx = ctx, .options = &options};
    enum der_status status = curve_run(&curve);
    if (status != DER_OK)
        (void)fprintf(stderr, "der_curve: %s\n", der_ctx_error(ctx));
    curve_fini(&curve);
    der_ctx_free(ctx);
    return status == DER_OK ? 0 : 1;
}
