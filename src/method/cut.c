#include "method/cut.h"

#include "method/head.h"
#include "method/masks.h"

#include <assert.h>

/* In training, as the whole one is. */
static enum der_status new_small(const struct extractor *whole, const struct kept *kept,
                                 struct extractor **out)
{
    struct resnet_spec left = pruned_spec(&whole->spec, kept);
    TRY(extractor_new(whole->be, &left, out));
    enum der_status status = param_set_thaw((*out)->params);
    if (status == DER_OK)
        status = prune_params(&whole->spec, kept, whole->params, (*out)->params);
    if (status == DER_OK)
        return DER_OK;
    extractor_free(*out);
    *out = NULL;
    return status;
}

/* A head loses the columns of features that are gone; F_t's are its last ones. */
static enum der_status cut_head(struct param_set **head, const struct resnet_spec *spec,
                                const struct kept *kept)
{
    struct der_ctx *ctx = (*head)->ctx;
    int last = spec->n_stages - 1;
    int64_t before = (*head)->items[0].shape.dim[1] - resnet_feature_dim(spec);
    int64_t n_cols = before + kept->count[last];
    struct param_set *left;
    int32_t *cols = mem_alloc(&ctx->mem, (size_t)n_cols, sizeof *cols);
    if (!cols)
        return ctx_nomem(ctx);
    for (int64_t c = 0; c < before; c++)
        cols[c] = (int32_t)c;
    for (int c = 0; c < kept->count[last]; c++)
        cols[before + c] = (int32_t)before + kept->channel[last][c];
    enum der_status status = head_select(*head, cols, n_cols, &left);
    mem_free(&ctx->mem, cols);
    TRY(status);
    param_set_free(*head);
    *head = left;
    return DER_OK;
}

static enum der_status cut(struct objective *o, const struct kept *kept)
{
    const struct resnet_spec *spec = &o->extractor->spec;
    struct extractor *small;
    TRY(cut_head(&o->head, spec, kept));
    if (o->auxiliary)
        TRY(cut_head(&o->auxiliary, spec, kept));
    TRY(new_small(o->extractor, kept, &small));
    o->whole = o->extractor;
    o->extractor = small;
    param_set_freeze(o->whole->params);
    param_set_freeze(o->masks);
    return DER_OK;
}

enum der_status objective_cut(struct objective *objective)
{
    struct kept kept;
    assert(objective->masks && !objective->whole);
    enum der_status status = masks_kept(objective->masks, &objective->extractor->spec, &kept);
    if (status == DER_OK)
        status = cut(objective, &kept);
    kept_fini(objective->masks->ctx, &kept);
    return status;
}

enum der_status objective_mend(struct objective *objective)
{
    struct extractor *whole = objective->whole;
    struct kept kept;
    enum der_status status = masks_kept(objective->masks, &whole->spec, &kept);
    if (status == DER_OK)
        status = unprune_params(&whole->spec, &kept, objective->extractor->params, whole->params);
    kept_fini(objective->masks->ctx, &kept);
    return status;
}
