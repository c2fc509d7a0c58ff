/*
 * der_curve: trains the 32-layer network on ten classes of CIFAR-100 and shows the loss of every
 * single iteration. bench/curve_torch.py does the same in PyTorch; bench/curve.py compares.
 *
 *     der_curve DATA FOLDER [--epochs N] [--warmup N] [--warmup-lr X] [--lr X] [--seed N]
 *               [--threads N]
 *
 * It is the training loop of the library that runs here, with the data, augmentation and network
 * that it is used with. FOLDER receives the parameters before the first iteration: init.bin, float32
 * one after the other, and init.txt, "name dimensions..." for each, headed by the classes in their
 * order. One line per iteration goes to standard output: epoch and iteration (from 0), images,
 * learning rate, loss; the last line is "test" and the top-1 accuracy in per cent.
 */
#include "data/defaults.h"
#include "train/supervised.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CLASSES = 10, BATCH = 128, TEST_BATCH = 250, PATH_CHARS = 4096 };

static const char USAGE[] =
    "usage: der_curve DATA FOLDER [--epochs N] [--warmup N] [--warmup-lr X] [--lr X]\n"
    "                 [--seed N] [--threads N]\n";

struct curve_options {
    const char *data, *folder;
    int epochs, warmup, threads;
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
    TRY(backend_open(c->ctx, "cpu", NULL, &c->be));
    return supervised_new(c->be, &model, &c->model);
}

/* ---- initial parameters ------------------------------------------------------------------------ */

static enum der_status dump_set(const struct param_set *set, FILE *index, FILE *values)
{
    struct mem *mem = &set->ctx->mem;
    for (int i = 0; i < set->n; i++) {
        const struct param *param = &set->items[i];
        size_t n = (size_t)shape_count(param->shape);
        (void)fprintf(index, "%s", param->name);
        for (int d = 0; d < param->shape.rank; d++)
            (void)fprintf(index, " %" PRId64, param->shape.dim[d]);
        (void)fputc('\n', index);
        float *host = mem_alloc(mem, n, sizeof *host);
        if (!host)
            return ctx_nomem(set->ctx);
        enum der_status status = param_read(set, i, host);
        if (status == DER_OK && fwrite(host, sizeof *host, n, values) != n)
            status = ctx_fail(set->ctx, DER_IO, "init.bin: could not be written");
        mem_free(mem, host);
        TRY(status);
    }
    return DER_OK;
}

static FILE *create(const char *folder, const char *name)
{
    char path[PATH_CHARS];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && length < PATH_CHARS ? fopen(path, "wb") : NULL;
}

static enum der_status dump(const struct curve *c)
{
    FILE *index = create(c->options->folder, "init.txt");
    FILE *values = create(c->options->folder, "init.bin");
    enum der_status status = DER_OK;
    if (!index || !values)
        status = ctx_fail(c->ctx, DER_IO, "%s: init.txt and init.bin cannot be created there",
                          c->options->folder);
    if (status == DER_OK) {
        (void)fputs("classes", index);
        for (int label = 0; label < N_CLASSES; label++)
            (void)fprintf(index, " %" PRId32, c->order->class_of[label]);
        (void)fputc('\n', index);
        status = dump_set(c->model->extractor->params, index, values);
    }
    if (status == DER_OK)
        status = dump_set(c->model->head, index, values);
    bool complete = (!index || fclose(index) == 0) & (!values || fclose(values) == 0);
    if (status == DER_OK && !complete)
        status = ctx_fail(c->ctx, DER_IO, "%s: could not be written", c->options->folder);
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
    if (c->done * BATCH >= n) {
        c->epoch++;
        c->done = 0;
        c->started = false;
    }
    return c->status != DER_OK;
}

static enum der_status curve_run(struct curve *c)
{
    TRY(curve_init(c));
    TRY(dump(c));
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
    enum der_status status =
        supervised_train(c->model, "curve", &c->schedule, &data[DATA_TRAIN], &hooks);
    TRY(c->status);
    TRY(status);
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
    struct curve_options options = {
        .epochs = 5, .warmup = 2, .threads = 1, .warmup_lr = 3e-5, .lr = 0.01, .seed = 1};
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
