#include "model/extractor.h"

enum der_status extractor_new(struct backend *be, const struct resnet_spec *spec,
                              struct extractor **out)
{
    *out = NULL;
    struct extractor *extractor = mem_zalloc(&be->ctx->mem, 1, sizeof *extractor);
    if (!extractor)
        return ctx_nomem(be->ctx);
    extractor->be = be;
    extractor->spec = *spec;
    enum der_status status = param_set_new(be->ctx, &extractor->params);
    if (status == DER_OK)
        status = resnet_declare(spec, extractor->params);
    if (status == DER_OK)
        status = param_set_allocate(extractor->params, be);
    if (status != DER_OK) {
        extractor_free(extractor);
        return status;
    }
    *out = extractor;
    return DER_OK;
}

void extractor_free(struct extractor *extractor)
{
    if (!extractor)
        return;
    for (int i = 0; i < extractor->n_folded; i++)
        program_free(extractor->folded[i].program);
    param_set_free(extractor->params);
    mem_free(&extractor->be->ctx->mem, extractor);
}

enum der_status extractor_copy(const struct extractor *extractor, struct extractor **out)
{
    TRY(extractor_new(extractor->be, &extractor->spec, out));
    enum der_status status = param_set_copy((*out)->params, extractor->params);
    if (status != DER_OK) {
        extractor_free(*out);
        *out = NULL;
    }
    return status;
}

enum der_status extractor_describe(const struct extractor *extractor, struct graph *g,
                                   struct param_use *use, struct folded *folded)
{
    const struct resnet_spec *spec = &extractor->spec;
    struct shape image = shape_4d(folded->batch, spec->in_channels, spec->height, spec->width);
    TRY(graph_input(g, "image", DTYPE_F32, image, &folded->image));
    TRY(params_attach(extractor->params, g, false, use));
    struct resnet_io io = {.image = folded->image};
    TRY(resnet_build(spec, g, use, &io, &folded->feature));
    TRY(graph_expose(g, folded->feature));
    return graph_fuse(g);
}

/* Describes, compiles and binds the parameters; the caller owns graph and use in either case. */
static enum der_status compile_folded(struct extractor *extractor, struct graph *g,
                                      struct param_use *use, struct folded *folded)
{
    TRY(extractor_describe(extractor, g, use, folded));
    TRY(program_compile(extractor->be, g, &folded->program));
    return params_bind(use, folded->program);
}

enum der_status extractor_folded_for(struct extractor *extractor, const struct folded_use *wanted,
                                     const struct folded **out)
{
    struct folded folded = {.batch = wanted->batch,
                            .is_precise = !(wanted->in_training && extractor->be->is_coarse)};
    *out = NULL;
    for (int i = 0; i < extractor->n_folded; i++) {
        const struct folded *known = &extractor->folded[i];
        if (known->batch == folded.batch && known->is_precise == folded.is_precise) {
            *out = known;
            return DER_OK;
        }
    }
    struct der_ctx *ctx = extractor->be->ctx;
    if (extractor->n_folded == EXTRACTOR_MAX_FOLDED)
        return ctx_fail(ctx, DER_STATE, "an extractor has at most %d folded programs",
                        EXTRACTOR_MAX_FOLDED);
    struct param_use use = {0};
    struct graph *g;
    TRY(graph_new(ctx, &g));
    g->runs_seldom = wanted->is_seldom;
    g->is_precise = folded.is_precise;
    enum der_status status = compile_folded(extractor, g, &use, &folded);
    param_use_fini(&use);
    graph_free(g);
    if (status != DER_OK) {
        program_free(folded.program);
        return status;
    }
    extractor->folded[extractor->n_folded] = folded;
    *out = &extractor->folded[extractor->n_folded++];
    return DER_OK;
}

enum der_status extractor_folded(struct extractor *extractor, int batch, const struct folded **out)
{
    return extractor_folded_for(extractor, &(struct folded_use){.batch = batch}, out);
}

static bool is_among(int value, const int *values, int n)
{
    for (int i = 0; i < n; i++)
        if (values[i] == value)
            return true;
    return false;
}

void extractor_trim(struct extractor *extractor, const int *batches, int n)
{
    int n_kept = 0;
    for (int i = 0; i < extractor->n_folded; i++) {
        if (is_among(extractor->folded[i].batch, batches, n))
            extractor->folded[n_kept++] = extractor->folded[i];
        else
            program_free(extractor->folded[i].program);
    }
    extractor->n_folded = n_kept;
}

enum der_status folded_bind(const struct folded *folded, struct span image, struct span feature)
{
    TRY(program_bind(folded->program, folded->image, image));
    return program_bind(folded->program, folded->feature, feature);
}
