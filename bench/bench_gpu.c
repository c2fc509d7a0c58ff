/*
 * What bench/cuda_torch.py times: one iteration of DER at step t on data that is on the device, t - 1 frozen
 * extractors, one that is trained, main and auxiliary loss, with --masks also channel masks and their
 * sparsity loss.
 *
 * Prints one line of JSON when it is ready, then answers lines on standard input:
 *     run K     K iterations; answers {"ms": milliseconds per iteration, "loss": main loss}
 *     quit
 */
#include "bench.h"

#include "model/extractor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FROZEN = 64, CLASSES_PER_STEP = 10, MAX_LAYERS = 128, LINE_CHARS = 64 };
enum { SCALAR_LR, SCALAR_MASK_LR, SCALAR_ONE, SCALAR_LAMBDA, SCALAR_S, N_SCALARS };
enum { LOSS_MAIN, LOSS_AUXILIARY, LOSS_SPARSITY, N_LOSSES };

struct gpu_step {
    struct backend *be;
    const struct bench_options *options;
    struct extractor *frozen[MAX_FROZEN];
    int n_frozen;
    struct extractor *trained;
    struct param_set *heads, *masks; /* masks: NULL without */
    struct bench_data data;
    struct buffer *features, *scalars, *losses;
    struct program *program;
    struct sequence *sequence;
    int64_t feature_dim;
    int n_classes;
};

/* Value ids of the trained graph. */
struct ids {
    int image, labels, matrix, scalar[N_SCALARS], loss[N_LOSSES];
    struct param_use net, heads, masks;
};

static struct span span_at(struct buffer *buffer, int64_t element)
{
    return (struct span){.buffer = buffer, .offset = (size_t)element * sizeof(float)};
}

static enum der_status add_extractor(struct gpu_step *s, double width, uint32_t stream,
                                     struct extractor **out)
{
    struct resnet_spec spec;
    TRY(resnet_spec_init(s->be->ctx, &spec, s->options->model, 3, BENCH_IMAGE_SIZE,
                         BENCH_IMAGE_SIZE, width));
    TRY(extractor_new(s->be, &spec, out));
    s->feature_dim += resnet_feature_dim(&spec);
    return param_set_init((*out)->params, s->be->ctx->seed, stream);
}

static enum der_status add_set(struct gpu_step *s, struct param_set *set, uint32_t stream)
{
    TRY(param_set_allocate(set, s->be));
    TRY(param_set_init(set, s->be->ctx->seed, stream));
    return param_set_thaw(set);
}

static enum der_status add_heads(struct gpu_step *s)
{
    int index;
    int64_t dim = resnet_feature_dim(&s->trained->spec);
    TRY(param_set_new(s->be->ctx, &s->heads));
    TRY(param_set_add(s->heads, "classifier.weight", shape_2d(s->n_classes, s->feature_dim),
                      PARAM_LEARNT, INIT_LINEAR_UNIFORM, &index));
    if (s->n_frozen > 0)
        TRY(param_set_add(s->heads, "auxiliary.weight", shape_2d(CLASSES_PER_STEP + 1, dim),
                          PARAM_LEARNT, INIT_LINEAR_UNIFORM, &index));
    TRY(add_set(s, s->heads, 100));
    if (!s->options->masks)
        return DER_OK;
    TRY(param_set_new(s->be->ctx, &s->masks));
    for (int i = 0; i < resnet_mask_count(&s->trained->spec); i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "mask.%d", i);
        TRY(param_set_add(s->masks, name, shape_1d(resnet_mask_channels(&s->trained->spec, i)),
                          PARAM_LEARNT, INIT_STANDARD_NORMAL, &index));
    }
    return add_set(s, s->masks, 101);
}

static enum der_status describe_masks(struct gpu_step *s, struct graph *g, struct ids *ids, int *m)
{
    const struct resnet_spec *spec = &s->trained->spec;
    int n = resnet_mask_count(spec);
    struct sparsity_layer layers[MAX_LAYERS];
    int n_layers = resnet_sparsity_layers(spec, layers, MAX_LAYERS);
    TRY(params_attach(s->masks, g, true, &ids->masks));
    TRY(graph_mask_gate(g, ids->scalar[SCALAR_S], ids->masks.value, n, MASK_GRADIENT_EXACT, 400.0f,
                        m));
    return graph_mask_sparsity(g, ids->scalar[SCALAR_LAMBDA], m, n, layers, n_layers,
                               &ids->loss[LOSS_SPARSITY]);
}

static enum der_status describe_losses(struct gpu_step *s, struct graph *g, struct ids *ids,
                                       int feature)
{
    int one = ids->scalar[SCALAR_ONE];
    int joined;
    int logits;
    int64_t dim = resnet_feature_dim(&s->trained->spec);
    TRY(graph_join(g, feature, ids->matrix, s->feature_dim - dim, &joined));
    TRY(graph_linear(g, joined, ids->heads.value[0], NO_VALUE, &logits));
    TRY(graph_softmax_xent(g, logits, ids->labels, one, NULL, &ids->loss[LOSS_MAIN]));
    if (s->n_frozen == 0)
        return DER_OK;
    struct xent_options auxiliary = {.label_shift = s->n_classes - CLASSES_PER_STEP - 1,
                                     .clamp_low = true};
    TRY(graph_linear(g, feature, ids->heads.value[1], NO_VALUE, &logits));
    return graph_softmax_xent(g, logits, ids->labels, one, &auxiliary, &ids->loss[LOSS_AUXILIARY]);
}

static enum der_status describe_updates(struct gpu_step *s, struct graph *g, struct ids *ids)
{
    const struct sgd_attr sgd = {
        .momentum = 0.9f, .decay = 5e-4f, .gain = 1.0f, .low = -INFINITY, .high = INFINITY};
    const struct sgd_attr mask_sgd = {.momentum = 0.9f, .gain = 5.0f, .low = -6.0f, .high = 6.0f};
    TRY(graph_backward(g));
    params_note_grads(&ids->net, g);
    params_note_grads(&ids->heads, g);
    TRY(params_sgd((struct param_use *[]){&ids->net, &ids->heads}, 2, g, ids->scalar[SCALAR_LR],
                   &sgd));
    if (!s->masks)
        return DER_OK;
    params_note_grads(&ids->masks, g);
    return params_sgd((struct param_use *[]){&ids->masks}, 1, g, ids->scalar[SCALAR_MASK_LR],
                      &mask_sgd);
}

static enum der_status describe(struct gpu_step *s, struct graph *g, struct ids *ids)
{
    static const char *const names[N_SCALARS] = {"lr", "mask_lr", "one", "lambda_s", "s"};
    int batch = s->options->batch;
    TRY(graph_input(g, "image", DTYPE_F32, shape_4d(batch, 3, BENCH_IMAGE_SIZE, BENCH_IMAGE_SIZE),
                    &ids->image));
    TRY(graph_input(g, "labels", DTYPE_I32, shape_1d(batch), &ids->labels));
    TRY(graph_input(g, "features", DTYPE_F32, shape_2d(batch, s->feature_dim), &ids->matrix));
    for (int i = 0; i < N_SCALARS; i++)
        if (s->masks || i == SCALAR_LR || i == SCALAR_ONE)
            TRY(graph_input(g, names[i], DTYPE_F32, shape_1d(1), &ids->scalar[i]));
    int m[RESNET_MAX_MASKS];
    if (s->masks)
        TRY(describe_masks(s, g, ids, m));
    TRY(params_attach(s->trained->params, g, true, &ids->net));
    TRY(params_attach(s->heads, g, true, &ids->heads));
    struct resnet_io io = {.image = ids->image, .masks = s->masks ? m : NULL, .training = true};
    int feature;
    TRY(resnet_build(&s->trained->spec, g, &ids->net, &io, &feature));
    TRY(describe_losses(s, g, ids, feature));
    TRY(graph_fuse(g));
    return describe_updates(s, g, ids);
}

static enum der_status bind_all(struct gpu_step *s, const struct ids *ids)
{
    struct program *p = s->program;
    TRY(params_bind(&ids->net, p));
    TRY(params_bind(&ids->heads, p));
    if (s->masks)
        TRY(params_bind(&ids->masks, p));
    TRY(program_bind(p, ids->image, span_at(s->data.image, 0)));
    TRY(program_bind(p, ids->labels, span_at(s->data.labels, 0)));
    TRY(program_bind(p, ids->matrix, span_at(s->features, 0)));
    for (int i = 0; i < N_SCALARS; i++)
        if (ids->scalar[i] != NO_VALUE)
            TRY(program_bind(p, ids->scalar[i], span_at(s->scalars, i)));
    for (int i = 0; i < N_LOSSES; i++)
        if (ids->loss[i] != NO_VALUE)
            TRY(program_bind(p, ids->loss[i], span_at(s->losses, i)));
    return DER_OK;
}

static enum der_status compile(struct gpu_step *s)
{
    struct ids ids = {.image = NO_VALUE};
    for (int i = 0; i < N_SCALARS; i++)
        ids.scalar[i] = NO_VALUE;
    for (int i = 0; i < N_LOSSES; i++)
        ids.loss[i] = NO_VALUE;
    struct graph *g;
    TRY(graph_new(s->be->ctx, &g));
    enum der_status status = describe(s, g, &ids);
    if (status == DER_OK)
        status = program_compile(s->be, g, &s->program);
    if (status == DER_OK)
        status = bind_all(s, &ids);
    param_use_fini(&ids.net);
    param_use_fini(&ids.heads);
    param_use_fini(&ids.masks);
    graph_free(g);
    return status;
}

static enum der_status make_sequence(struct gpu_step *s)
{
    struct sequence_item items[MAX_FROZEN + 1];
    int64_t col = 0;
    for (int i = 0; i < s->n_frozen; i++) {
        const struct folded *folded;
        TRY(extractor_folded(s->frozen[i], s->options->batch, &folded));
        struct span feature = span_at(s->features, col);
        feature.pitch = s->feature_dim;
        TRY(folded_bind(folded, span_at(s->data.image, 0), feature));
        items[i] = (struct sequence_item){folded->program, 0};
        col += resnet_feature_dim(&s->frozen[i]->spec);
    }
    items[s->n_frozen] = (struct sequence_item){s->program, 1};
    return sequence_new(s->be, items, s->n_frozen + 1, &s->sequence);
}

static enum der_status step_init(struct gpu_step *s, struct der_ctx *ctx,
                                 const struct bench_options *o)
{
    const struct backend_options options = {.precision = o->precision};
    const float scalars[N_SCALARS] = {[SCALAR_LR] = 0.01f,
                                      [SCALAR_MASK_LR] = 0.01f,
                                      [SCALAR_ONE] = 1.0f,
                                      [SCALAR_LAMBDA] = 0.75f,
                                      [SCALAR_S] = 5.0f};
    s->options = o;
    TRY(backend_open(ctx, o->backend, &options, &s->be));
    for (int i = 0; i + 1 < o->n_extractors; i++) {
        TRY(add_extractor(s, o->frozen_width, (uint32_t)i, &s->frozen[i]));
        s->n_frozen = i + 1;
    }
    TRY(add_extractor(s, o->width, 99, &s->trained));
    TRY(param_set_thaw(s->trained->params));
    s->n_classes = CLASSES_PER_STEP * o->n_extractors;
    TRY(add_heads(s));
    TRY(bench_data_init(&s->data, s->be, o->batch));
    size_t features = (size_t)o->batch * (size_t)s->feature_dim;
    TRY(buffer_new(s->be, features * sizeof(float), &s->features));
    TRY(buffer_new(s->be, sizeof scalars, &s->scalars));
    TRY(buffer_new(s->be, N_LOSSES * sizeof(float), &s->losses));
    TRY(buffer_write(s->scalars, 0, scalars, sizeof scalars));
    TRY(compile(s));
    return make_sequence(s);
}

static void step_fini(struct gpu_step *s)
{
    sequence_free(s->sequence);
    program_free(s->program);
    for (int i = 0; i < MAX_FROZEN; i++)
        extractor_free(s->frozen[i]);
    extractor_free(s->trained);
    param_set_free(s->heads);
    param_set_free(s->masks);
    bench_data_fini(&s->data);
    buffer_free(s->features);
    buffer_free(s->scalars);
    buffer_free(s->losses);
    backend_close(s->be);
}

/* Reading the loss waits for the last iteration; the one before the clock starts, for what is left of
 * earlier ones. */
static enum der_status run(struct gpu_step *s, long count)
{
    float losses[N_LOSSES];
    TRY(buffer_read(s->losses, 0, losses, sizeof losses));
    double since = bench_clock();
    for (long i = 0; i < count; i++)
        TRY(sequence_run(s->sequence));
    TRY(buffer_read(s->losses, 0, losses, sizeof losses));
    printf("{\"ms\": %.4f, \"loss\": %g}\n", 1e3 * (bench_clock() - since) / (double)count,
           (double)losses[LOSS_MAIN]);
    return DER_OK;
}

enum der_status bench_gpu(struct der_ctx *ctx, const struct bench_options *options)
{
    if (options->n_extractors < 1 || options->n_extractors > MAX_FROZEN + 1)
        return ctx_fail(ctx, DER_ARG, "%d extractors, want 1 to %d", options->n_extractors,
                        MAX_FROZEN + 1);
    struct gpu_step *s = mem_zalloc(&ctx->mem, 1, sizeof *s);
    if (!s)
        return ctx_nomem(ctx);
    double since = bench_clock();
    enum der_status status = step_init(s, ctx, options);
    if (status == DER_OK) {
        char line[LINE_CHARS];
        printf("{\"setup_s\": %.3f, \"temp_mib\": %.1f}\n", bench_clock() - since,
               (double)s->program->stats.temp_bytes / 1048576.0);
        (void)fflush(stdout);
        while (status == DER_OK && fgets(line, sizeof line, stdin) &&
               strncmp(line, "run ", 4) == 0) {
            status = run(s, strtol(line + 4, NULL, 10));
            (void)fflush(stdout);
        }
    }
    step_fini(s);
    mem_free(&ctx->mem, s);
    return status;
}
