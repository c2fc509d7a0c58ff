/*
 * Networks as the benchmarks need them: a training iteration or folded inference over one extractor
 * and a bias-free head, with all memory of its own.
 */
#include "bench.h"

#include "core/rng.h"

#include <math.h>
#include <string.h>
#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double bench_clock(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double bench_cpu_clock(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

/* Normal pictures and even labels, drawn once. */
static enum der_status fill_inputs(struct bench_data *data, struct backend *be, int batch)
{
    struct mem *mem = &be->ctx->mem;
    int64_t n = (int64_t)batch * 3 * BENCH_IMAGE_SIZE * BENCH_IMAGE_SIZE;
    float *image = mem_alloc(mem, (size_t)n, sizeof *image);
    int32_t *labels = mem_alloc(mem, (size_t)batch, sizeof *labels);
    enum der_status status = image && labels ? DER_OK : ctx_nomem(be->ctx);
    if (status == DER_OK) {
        rng_normal(image, n, 1.0, be->ctx->seed, RNG_TEST, 0);
        for (int i = 0; i < batch; i++)
            labels[i] = i * 7 % BENCH_N_CLASSES;
        status = buffer_write(data->image, 0, image, (size_t)n * sizeof *image);
    }
    if (status == DER_OK)
        status = buffer_write(data->labels, 0, labels, (size_t)batch * sizeof *labels);
    mem_free(mem, image);
    mem_free(mem, labels);
    return status;
}

enum der_status bench_data_init(struct bench_data *data, struct backend *be, int batch)
{
    const float one = 1.0f;
    const float lr = 0.01f;
    size_t n = (size_t)batch;
    size_t pixels = (size_t)3 * BENCH_IMAGE_SIZE * BENCH_IMAGE_SIZE;
    *data = (struct bench_data){0};
    TRY(buffer_new(be, n * pixels * sizeof(float), &data->image));
    TRY(buffer_new(be, n * sizeof(int32_t), &data->labels));
    TRY(buffer_new(be, sizeof one, &data->one));
    TRY(buffer_new(be, sizeof lr, &data->lr));
    TRY(buffer_new(be, sizeof(float), &data->loss));
    TRY(buffer_new(be, n * BENCH_N_CLASSES * sizeof(float), &data->logits));
    TRY(buffer_write(data->one, 0, &one, sizeof one));
    TRY(buffer_write(data->lr, 0, &lr, sizeof lr));
    return fill_inputs(data, be, batch);
}

void bench_data_fini(struct bench_data *data)
{
    buffer_free(data->image);
    buffer_free(data->labels);
    buffer_free(data->one);
    buffer_free(data->lr);
    buffer_free(data->loss);
    buffer_free(data->logits);
    *data = (struct bench_data){0};
}

static enum der_status make_ready(struct param_set *set, struct backend *be, bool training,
                                  uint32_t stream)
{
    TRY(param_set_allocate(set, be));
    TRY(param_set_init(set, be->ctx->seed, stream));
    return training ? param_set_thaw(set) : DER_OK;
}

enum der_status bench_extractor(struct backend *be, const struct resnet_spec *spec, bool training,
                                struct param_set **out)
{
    TRY(param_set_new(be->ctx, out));
    enum der_status status = resnet_declare(spec, *out);
    if (status == DER_OK)
        status = make_ready(*out, be, training, 0);
    if (status != DER_OK) {
        param_set_free(*out);
        *out = NULL;
    }
    return status;
}

enum der_status bench_head(struct backend *be, int dim, bool training, struct param_set **out)
{
    int index;
    TRY(param_set_new(be->ctx, out));
    enum der_status status = param_set_add(*out, "head", shape_2d(BENCH_N_CLASSES, dim),
                                           PARAM_LEARNT, INIT_LINEAR_NORMAL, &index);
    if (status == DER_OK)
        status = make_ready(*out, be, training, 1);
    if (status != DER_OK) {
        param_set_free(*out);
        *out = NULL;
    }
    return status;
}

/* Value ids of one graph. */
struct ids {
    struct param_use extractor, head;
    int image, labels, weight, lr, loss, logits;
};

static enum der_status add_training(struct graph *g, struct ids *ids, int batch)
{
    const struct sgd_attr attr = {
        .momentum = 0.9f, .decay = 5e-4f, .gain = 1.0f, .low = -INFINITY, .high = INFINITY};
    struct param_use *const uses[] = {&ids->extractor, &ids->head};
    TRY(graph_input(g, "labels", DTYPE_I32, shape_1d(batch), &ids->labels));
    TRY(graph_input(g, "weight", DTYPE_F32, shape_1d(1), &ids->weight));
    TRY(graph_input(g, "lr", DTYPE_F32, shape_1d(1), &ids->lr));
    TRY(graph_softmax_xent(g, ids->logits, ids->labels, ids->weight, NULL, &ids->loss));
    TRY(graph_fuse(g));
    TRY(graph_backward(g));
    g->hides_gradients = true;
    params_note_grads(&ids->extractor, g);
    params_note_grads(&ids->head, g);
    return params_sgd(uses, 2, g, ids->lr, &attr);
}

static enum der_status describe(struct graph *g, const struct resnet_spec *spec,
                                struct param_set *extractor, struct param_set *head, int batch,
                                bool training, struct ids *ids)
{
    struct shape image = shape_4d(batch, spec->in_channels, spec->height, spec->width);
    TRY(graph_input(g, "image", DTYPE_F32, image, &ids->image));
    TRY(params_attach(extractor, g, training, &ids->extractor));
    TRY(params_attach(head, g, training, &ids->head));
    struct resnet_io io = {.image = ids->image, .training = training};
    int feature;
    TRY(resnet_build(spec, g, &ids->extractor, &io, &feature));
    TRY(graph_linear(g, feature, ids->head.value[0], NO_VALUE, &ids->logits));
    if (training)
        return add_training(g, ids, batch);
    TRY(graph_expose(g, ids->logits));
    return graph_fuse(g);
}

static enum der_status bind(struct program *program, const struct ids *ids,
                            const struct bench_data *data, bool training)
{
    TRY(params_bind(&ids->extractor, program));
    TRY(params_bind(&ids->head, program));
    TRY(program_bind(program, ids->image, (struct span){.buffer = data->image}));
    if (!training)
        return program_bind(program, ids->logits, (struct span){.buffer = data->logits});
    TRY(program_bind(program, ids->labels, (struct span){.buffer = data->labels}));
    TRY(program_bind(program, ids->weight, (struct span){.buffer = data->one}));
    TRY(program_bind(program, ids->lr, (struct span){.buffer = data->lr}));
    return program_bind(program, ids->loss, (struct span){.buffer = data->loss});
}

enum der_status bench_compile(struct backend *be, const struct resnet_spec *spec,
                              struct param_set *extractor, struct param_set *head,
                              const struct bench_data *data, int batch, enum bench_use use,
                              struct program **out)
{
    const bool training = use == BENCH_TRAINING;
    struct graph *g;
    struct ids ids;
    memset(&ids, 0, sizeof ids);
    *out = NULL;
    TRY(graph_new(be->ctx, &g));
    g->is_precise = use == BENCH_ANSWERS;
    enum der_status status = describe(g, spec, extractor, head, batch, training, &ids);
    if (status == DER_OK)
        status = program_compile(be, g, out);
    if (status == DER_OK)
        status = bind(*out, &ids, data, training);
    param_use_fini(&ids.extractor);
    param_use_fini(&ids.head);
    graph_free(g);
    return status;
}
