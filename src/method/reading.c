/*
 * Reading the super-feature: programs that run all extractors folded and one head on top of them.
 */
#include "method/learner_internal.h"

void reading_fini(struct reading *reading)
{
    assembly_cache_fini(&reading->assemblies);
}

static enum der_status describe(void *self, struct graph *g, struct assembly_io *io)
{
    struct reading *reading = self;
    struct param_use *head;
    int logits;
    TRY(assembly_attach(g, io, reading->head, false, &head));
    TRY(params_linear(head, g, io->matrix, &logits));
    if (reading->keeps_guesses) {
        TRY(graph_expose(g, logits));
        io->logits = logits;
    }
    return graph_rank(g, logits, io->labels, reading->first, reading->count, &io->rank);
}

static enum der_status get_assembly(struct reading *reading, int batch, struct assembly **out)
{
    struct learner *learner = reading->learner;
    struct assembly_plan plan = {.be = learner->be,
                                 .frozen = learner->extractors,
                                 .n_frozen = learner->n_extractors,
                                 .desks = &learner->desks,
                                 .self = reading,
                                 .describe = describe};
    return assembly_get(&reading->assemblies, &plan, batch, out);
}

static enum der_status program(void *self, int batch, struct stage_program *out)
{
    struct assembly *assembly;
    TRY(get_assembly(self, batch, &assembly));
    *out = assembly_program(assembly);
    return DER_OK;
}

enum der_status reading_test(struct reading *reading, int first, int last,
                             const struct train_hooks *hooks, struct evaluation *out)
{
    static const struct stage_ops testing = {.program = program};
    struct learner *learner = reading->learner;
    struct der_ctx *ctx = learner->be->ctx;
    struct data_view *view;
    *out = (struct evaluation){0};
    TRY(view_range(ctx, learner->options.test, first, last, &view));
    struct loader_options data = learner_test_batches(learner, view, learner->options.test_split);
    const struct evaluation_options options = {
        .be = learner->be,
        .resident = &learner->resident,
        .ops = &testing,
        .self = reading,
        .data = &data,
        .temperature = reading->keeps_guesses ? learner->temperature : 0.0};
    enum der_status status = evaluate(&options, learner->n_classes, hooks, out);
    view_free(view);
    return status;
}

/* Which images the rows of the features belong to; returns how many there are. */
static int64_t row_items(const struct feeder *feeder, int64_t n_batches, int batch,
                         struct view_item *items)
{
    const int32_t *labels = feeder_labels(feeder);
    int64_t n = 0;
    for (int64_t row = 0; row < n_batches * batch; row++)
        if (labels[row] >= 0)
            items[n++] = (struct view_item){feeder_samples(feeder)[row], labels[row]};
    return n;
}

enum der_status reading_features(struct reading *reading, const struct data_view *view,
                                 float *features, struct view_item *items, int64_t *n)
{
    struct learner *learner = reading->learner;
    struct der_ctx *ctx = learner->be->ctx;
    struct loader_options data = learner_test_batches(learner, view, DATA_TRAIN);
    struct stage_program testing;
    struct feeder *feeder;
    int64_t n_batches;
    TRY(program(reading, data.batch, &testing));
    const struct feeder_options feeding = {.be = learner->be,
                                           .resident = &learner->resident,
                                           .data = &data,
                                           .n_columns = learner_feature_dim(learner)};
    TRY(feeder_new(ctx, &feeding, &feeder));
    enum der_status status = evaluate_batches(feeder, &testing, NULL, ctx, &n_batches);
    if (status == DER_OK)
        status = feeder_features(feeder, features);
    if (status == DER_OK)
        *n = row_items(feeder, n_batches, data.batch, items);
    feeder_free(feeder);
    return status;
}
