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
    TRY(graph_linear(g, io->matrix, head->value[0], NO_VALUE, &logits));
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
    struct evaluate_options options = {.ops = &testing,
                                       .self = reading,
                                       .data = &data,
                                       .n_classes = learner->n_classes,
                                       .temperature = learner_temperature(learner)};
    enum der_status status = evaluate(ctx, &options, hooks, out);
    view_free(view);
    return status;
}

enum der_status reading_features(struct reading *reading, const struct data_view *view,
                                 float *features)
{
    struct learner *learner = reading->learner;
    struct loader_options data = learner_test_batches(learner, view, DATA_TRAIN);
    size_t row = (size_t)learner_feature_dim(learner) * sizeof *features;
    const struct augment_spec *spec = data.augment;
    size_t image = (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width;
    struct assembly *assembly;
    struct loader *loader;
    TRY(get_assembly(reading, data.batch, &assembly));
    TRY(loader_new(learner->be->ctx, &data, &loader));
    enum der_status status = loader_start(loader, 0, 0);
    while (status == DER_OK) {
        const struct batch *batch;
        status = loader_next(loader, &batch);
        if (status != DER_OK || !batch)
            break;
        size_t n = (size_t)batch->n;
        status = buffer_write(assembly->desk.image, 0, batch->images, n * image * sizeof(float));
        if (status == DER_OK)
            status = sequence_run(assembly->sequence);
        if (status == DER_OK)
            status = buffer_read(assembly->desk.matrix, 0, features, n * row);
        features += n * row / sizeof *features;
    }
    loader_free(loader);
    return status;
}
