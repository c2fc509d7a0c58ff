#include "method/objective.h"

#include "model/prune.h"

#include <assert.h>
#include <math.h>

int objective_losses(const struct objective *objective, const char *names[STAGE_MAX_LOSSES])
{
    int n = 0;
    names[n++] = "main";
    if (objective->auxiliary)
        names[n++] = "auxiliary";
    if (objective->teacher)
        names[n++] = "distillation";
    if (objective->masks)
        names[n++] = "sparsity";
    return n;
}

static enum der_status add_masks(const struct objective *o, struct graph *g, struct assembly_io *io,
                                 struct param_use **use, int *m)
{
    const struct resnet_spec *spec = &o->extractor->spec;
    struct sparsity_layer layers[RESNET_MAX_LAYERS];
    int n_layers = resnet_sparsity_layers(spec, layers, RESNET_MAX_LAYERS);
    int lambda_s;
    int s;
    TRY(assembly_attach(g, io, o->masks, true, use));
    TRY(assembly_scalar(g, io, OBJECTIVE_LAMBDA_S, "lambda_s", &lambda_s));
    TRY(assembly_scalar(g, io, OBJECTIVE_S, "s", &s));
    TRY(graph_mask_gate(g, s, (*use)->value, o->masks->n, o->config->mask_gradient,
                        (float)o->config->s_max, m));
    return graph_mask_sparsity(g, lambda_s, m, o->masks->n, layers, n_layers,
                               o->has_least ? o->least : NULL, &io->loss[io->n_losses - 1]);
}

/* Masks that were cut out weigh what they weigh. */
static void note_sparsity(const struct objective *o, struct assembly_io *io)
{
    io->loss[io->n_losses - 1] = NO_VALUE;
    io->known_loss[io->n_losses - 1] = (float)pruned_share(&o->whole->spec, &o->extractor->spec);
}

/* Old classes are label 0 of H_a, new ones 1, 2, ... */
static enum der_status add_auxiliary(const struct objective *o, struct graph *g,
                                     struct assembly_io *io, int feature, struct param_use **use)
{
    int logits;
    int lambda_a;
    struct xent_options options = {.label_shift = o->n_old - 1, .clamp_low = true};
    TRY(assembly_attach(g, io, o->auxiliary, true, use));
    TRY(assembly_scalar(g, io, OBJECTIVE_LAMBDA_A, "lambda_a", &lambda_a));
    TRY(params_linear(*use, g, feature, &logits));
    return graph_softmax_xent(g, logits, io->labels, lambda_a, &options, &io->loss[1]);
}

/* The old classes, as the network before this step sees the images. */
static enum der_status add_distillation(const struct objective *o, struct graph *g,
                                        struct assembly_io *io, int logits)
{
    struct param_use *use;
    int known;
    int lambda_d;
    struct distill_options options = {.count = o->n_old,
                                      .temperature = (float)o->config->distill_temperature};
    assert(!o->auxiliary); /* its loss would have this place */
    TRY(assembly_attach(g, io, o->teacher, false, &use));
    TRY(assembly_scalar(g, io, OBJECTIVE_LAMBDA_D, "lambda_d", &lambda_d));
    TRY(params_linear(use, g, io->matrix, &known));
    return graph_distill(g, logits, known, lambda_d, &options, &io->loss[1]);
}

/* What learns. */
struct learning {
    struct param_use *net, *head;
    struct param_use *auxiliary, *masks; /* or NULL */
};

static enum der_status add_updates(const struct objective *o, struct graph *g,
                                   struct assembly_io *io, struct learning *learning)
{
    const struct config *config = o->config;
    const int lr = io->scalar[OBJECTIVE_LR];
    struct param_use *weights[ASSEMBLY_MAX_USES] = {learning->net};
    int n = 1;
    if (!config->classifier_positive)
        weights[n++] = learning->head;
    if (learning->auxiliary)
        weights[n++] = learning->auxiliary;
    for (int i = 0; i < io->n_uses; i++)
        params_note_grads(&io->use[i], g);
    struct sgd_attr sgd = {.momentum = (float)config->momentum,
                           .decay = (float)config->decay,
                           .gain = 1.0f,
                           .low = -INFINITY,
                           .high = INFINITY};
    TRY(params_sgd(weights, n, g, lr, &sgd));
    if (config->classifier_positive) {
        sgd.low = 0.0f;
        TRY(params_sgd(&learning->head, 1, g, lr, &sgd));
    }
    if (!learning->masks)
        return DER_OK;
    sgd.decay = 0.0f; /* it would pull e towards indecision */
    sgd.gain = (float)config->mask_gain;
    sgd.low = -(float)config->mask_clamp;
    sgd.high = (float)config->mask_clamp;
    return params_sgd(&learning->masks, 1, g, lr, &sgd);
}

/* u: a teacher has the frozen columns for itself. */
static enum der_status add_super_feature(const struct objective *o, struct graph *g,
                                         const struct assembly_io *io, int feature, int *u)
{
    const int64_t own = resnet_feature_dim(&o->extractor->spec);
    *u = feature;
    if (o->teacher)
        return DER_OK;
    return graph_join(g, feature, io->matrix, o->head->items[0].shape.dim[1] - own, u);
}

enum der_status objective_describe(void *self, struct graph *g, struct assembly_io *io)
{
    const struct objective *o = self;
    const struct resnet_spec *spec = &o->extractor->spec;
    const char *names[STAGE_MAX_LOSSES];
    struct learning learning = {0};
    int m[RESNET_MAX_MASKS];
    int lr;
    int weight;
    int feature;
    int u;
    int logits;
    io->n_losses = objective_losses(o, names);
    TRY(assembly_scalar(g, io, OBJECTIVE_LR, "lr", &lr));
    TRY(assembly_scalar(g, io, OBJECTIVE_MAIN, "w", &weight));
    if (o->whole)
        note_sparsity(o, io);
    else if (o->masks)
        TRY(add_masks(o, g, io, &learning.masks, m));
    TRY(assembly_attach(g, io, o->extractor->params, true, &learning.net));
    TRY(assembly_attach(g, io, o->head, true, &learning.head));
    struct resnet_io net_io = {
        .image = io->image, .masks = learning.masks ? m : NULL, .training = true};
    TRY(resnet_build(spec, g, learning.net, &net_io, &feature));
    TRY(add_super_feature(o, g, io, feature, &u));
    TRY(params_linear(learning.head, g, u, &logits));
    TRY(graph_softmax_xent(g, logits, io->labels, weight, NULL, &io->loss[0]));
    TRY(graph_rank(g, logits, io->labels, 0, 0, &io->rank));
    if (o->auxiliary)
        TRY(add_auxiliary(o, g, io, feature, &learning.auxiliary));
    if (o->teacher)
        TRY(add_distillation(o, g, io, logits));
    TRY(graph_fuse(g));
    TRY(graph_backward(g));
    return add_updates(o, g, io, &learning);
}
