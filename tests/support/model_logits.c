#include "support/model_logits.h"

#include "support/test_ctx.h"
#include "train/assembly.h"

static enum der_status describe(void *self, struct graph *g, struct assembly_io *io)
{
    struct model *model = self;
    struct param_use *head;
    TRY(assembly_attach(g, io, model->classifier, false, &head));
    TRY(params_linear(head, g, io->matrix, &io->logits));
    return graph_expose(g, io->logits);
}

void model_logits(struct backend *be, struct model *model, const float *images, int n, int batch,
                  float *logits)
{
    const struct resnet_spec *spec = &model->extractors[0]->spec;
    size_t floats = (size_t)spec->in_channels * (size_t)spec->height * (size_t)spec->width;
    size_t classes = (size_t)model->info.n_classes;
    struct desks desks;
    struct assembly_cache cache = {0};
    struct assembly *assembly;
    struct assembly_plan plan = {.be = be,
                                 .frozen = model->extractors,
                                 .n_frozen = model->n_extractors,
                                 .desks = &desks,
                                 .self = model,
                                 .describe = describe};
    assert_int_equal(n % batch, 0);
    desks_init(&desks, be, spec, model_feature_dim(model));
    assert_ok(be->ctx, assembly_get(&cache, &plan, batch, &assembly));
    for (int i = 0; i < n; i += batch) {
        assert_ok(be->ctx, buffer_write(assembly->desk.image, 0, images + (size_t)i * floats,
                                        (size_t)batch * floats * sizeof *images));
        assert_ok(be->ctx, sequence_run(assembly->sequence));
        assert_ok(be->ctx, buffer_read(assembly->logits, 0, logits + (size_t)i * classes,
                                       (size_t)batch * classes * sizeof *logits));
    }
    assembly_cache_fini(&cache);
    desks_fini(&desks);
}
