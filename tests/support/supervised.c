#include "support/supervised.h"

#include <math.h>

enum { SCALAR_LR, SCALAR_ONE };

static const char *const LOSS_NAMES[] = {"loss"};

enum { HEAD_WEIGHT }; /* the head's only parameter */

/* image -> extractor -> head -> cross-entropy and rank, backward, update. */
static enum der_status describe_training(void *self, struct graph *g, struct assembly_io *io)
{
    struct supervised *model = self;
    struct param_use *net;
    struct param_use *head;
    int feature;
    int logits;
    int lr;
    int one;
    TRY(assembly_scalar(g, io, SCALAR_LR, "lr", &lr));
    TRY(assembly_scalar(g, io, SCALAR_ONE, "one", &one));
    TRY(assembly_attach(g, io, model->extractor->params, true, &net));
    TRY(assembly_attach(g, io, model->head, true, &head));
    struct resnet_io net_io = {.image = io->image, .training = true};
    TRY(resnet_build(&model->options.spec, g, net, &net_io, &feature));
    TRY(graph_linear(g, feature, head->value[HEAD_WEIGHT], NO_VALUE, &logits));
    TRY(graph_softmax_xent(g, logits, io->labels, one, NULL, &io->loss[0]));
    TRY(graph_rank(g, logits, io->labels, 0, 0, &io->rank));
    io->n_losses = 1;
    TRY(graph_fuse(g));
    TRY(graph_backward(g));
    params_note_grads(net, g);
    params_note_grads(head, g);
    struct sgd_attr sgd = {.momentum = model->options.momentum,
                           .decay = model->options.decay,
                           .gain = 1.0f,
                           .low = -INFINITY,
                           .high = INFINITY};
    return params_sgd((struct param_use *[]){net, head}, 2, g, lr, &sgd);
}

/* features -> head -> rank; the extractor runs folded in front of it. */
static enum der_status describe_testing(void *self, struct graph *g, struct assembly_io *io)
{
    struct supervised *model = self;
    struct param_use *head;
    int logits;
    TRY(assembly_attach(g, io, model->head, false, &head));
    TRY(graph_linear(g, io->matrix, head->value[HEAD_WEIGHT], NO_VALUE, &logits));
    return graph_rank(g, logits, io->labels, 0, 0, &io->rank);
}

static enum der_status training_program(void *self, int batch, struct stage_program *out)
{
    struct supervised *model = self;
    struct assembly_plan plan = {.be = model->be,
                                 .desks = &model->desks,
                                 .scalars = model->scalars,
                                 .self = model,
                                 .describe = describe_training};
    struct assembly *assembly;
    TRY(assembly_get(&model->training, &plan, batch, &assembly));
    *out = assembly_program(assembly);
    return DER_OK;
}

static enum der_status testing_program(void *self, int batch, struct stage_program *out)
{
    struct supervised *model = self;
    struct assembly_plan plan = {.be = model->be,
                                 .frozen = &model->extractor,
                                 .n_frozen = 1,
                                 .desks = &model->desks,
                                 .scalars = model->scalars,
                                 .self = model,
                                 .describe = describe_testing};
    struct assembly *assembly;
    TRY(assembly_get(&model->testing, &plan, batch, &assembly));
    *out = assembly_program(assembly);
    return DER_OK;
}

static void fill_scalars(void *self, const struct moment *now, float *scalars)
{
    (void)self;
    scalars[SCALAR_LR] = (float)now->lr;
    scalars[SCALAR_ONE] = 1.0f;
}

static bool renews(const void *self, int epoch)
{
    const struct supervised *model = self;
    (void)epoch;
    return model->renews;
}

static enum der_status begin_epoch(void *self, int epoch)
{
    struct supervised *model = self;
    if (renews(self, epoch)) {
        assembly_cache_fini(&model->training);
        desks_fini(&model->desks);
    }
    return DER_OK;
}

static const struct stage_ops TRAINING = {
    .program = training_program, .renews = renews, .epoch = begin_epoch, .scalars = fill_scalars};
static const struct stage_ops TESTING = {.program = testing_program};

static enum der_status build(struct supervised *model)
{
    const struct supervised_options *o = &model->options;
    struct der_ctx *ctx = model->be->ctx;
    int64_t dim = resnet_feature_dim(&o->spec);
    int index;
    if (o->n_classes < 1)
        return ctx_fail(ctx, DER_ARG, "a classifier needs at least one class");
    TRY(extractor_new(model->be, &o->spec, &model->extractor));
    TRY(param_set_init(model->extractor->params, o->seed, 0));
    TRY(param_set_thaw(model->extractor->params));
    TRY(param_set_new(ctx, &model->head));
    TRY(param_set_add(model->head, "classifier.weight", shape_2d(o->n_classes, dim), PARAM_LEARNT,
                      INIT_LINEAR_UNIFORM, &index));
    TRY(param_set_allocate(model->head, model->be));
    TRY(param_set_init(model->head, o->seed, 1));
    TRY(param_set_thaw(model->head));
    desks_init(&model->desks, model->be, &o->spec, dim);
    return buffer_new(model->be, ASSEMBLY_MAX_SCALARS * sizeof(float), &model->scalars);
}

enum der_status supervised_new(struct backend *be, const struct supervised_options *options,
                               struct supervised **out)
{
    *out = NULL;
    struct supervised *model = mem_zalloc(&be->ctx->mem, 1, sizeof *model);
    if (!model)
        return ctx_nomem(be->ctx);
    model->be = be;
    model->options = *options;
    enum der_status status = build(model);
    if (status != DER_OK) {
        supervised_free(model);
        return status;
    }
    *out = model;
    return DER_OK;
}

void supervised_free(struct supervised *model)
{
    if (!model)
        return;
    assembly_cache_fini(&model->training);
    assembly_cache_fini(&model->testing);
    desks_fini(&model->desks);
    extractor_free(model->extractor);
    param_set_free(model->head);
    buffer_free(model->scalars);
    mem_free(&model->be->ctx->mem, model);
}

enum der_status supervised_train(struct supervised *model, const char *name,
                                 const struct schedule *schedule, const struct loader_options *data,
                                 const struct train_hooks *hooks)
{
    struct stage stage = {.name = name,
                          .ops = &TRAINING,
                          .self = model,
                          .loss_names = LOSS_NAMES,
                          .n_losses = 1,
                          .schedule = *schedule,
                          .data = *data,
                          .be = model->be,
                          .resident = model->resident};
    return train_stage(model->be->ctx, &stage, 0, hooks);
}

enum der_status supervised_test(struct supervised *model, const struct loader_options *data,
                                const struct train_hooks *hooks, struct evaluation *out)
{
    const struct evaluation_options options = {
        .be = model->be, .resident = model->resident, .ops = &TESTING, .self = model, .data = data};
    return evaluate(&options, model->options.n_classes, hooks, out);
}
