#include "model/prune.h"

/* Writes the channels that stay; returns how many. */
static int keep_channels(const float *e, int n, int32_t *channel)
{
    int count = 0;
    int largest = 0;
    for (int i = 0; i < n; i++) {
        if (e[i] > e[largest])
            largest = i;
        if (e[i] > 0.0f)
            channel[count++] = i;
    }
    if (count == 0)
        channel[count++] = largest;
    return count;
}

enum der_status kept_from_masks(struct der_ctx *ctx, const struct resnet_spec *spec,
                                const float *const *e, struct kept *out)
{
    *out = (struct kept){.n_masks = resnet_mask_count(spec)};
    size_t total = 0;
    for (int i = 0; i < out->n_masks; i++)
        total += (size_t)resnet_mask_channels(spec, i);
    out->storage = mem_alloc(&ctx->mem, total, sizeof *out->storage);
    if (!out->storage)
        return ctx_nomem(ctx);
    int32_t *next = out->storage;
    for (int i = 0; i < out->n_masks; i++) {
        int n = resnet_mask_channels(spec, i);
        out->channel[i] = next;
        out->count[i] = keep_channels(e[i], n, next);
        next += n;
    }
    return DER_OK;
}

void kept_fini(struct der_ctx *ctx, struct kept *kept)
{
    mem_free(&ctx->mem, kept->storage);
    *kept = (struct kept){0};
}

struct resnet_spec pruned_spec(const struct resnet_spec *spec, const struct kept *kept)
{
    struct resnet_spec pruned = *spec;
    int mask = spec->n_stages;
    for (int k = 0; k < spec->n_stages; k++) {
        pruned.stream[k] = kept->count[k];
        for (int b = 0; b < spec->n_blocks[k]; b++)
            pruned.inner[k][b] = kept->count[mask++];
    }
    return pruned;
}

/* Which rows and columns of a tensor [.., c_in, area] stay. */
struct selection {
    const int32_t *out, *in; /* channels; in is NULL where all inputs stay */
    int n_out, n_in;
    int64_t c_in, area;
};

/* dst [n_out, n_in, area] */
static void select_channels(float *dst, const float *src, const struct selection *s)
{
    for (int k = 0; k < s->n_out; k++)
        for (int c = 0; c < s->n_in; c++) {
            int64_t from = ((int64_t)s->out[k] * s->c_in + (s->in ? s->in[c] : c)) * s->area;
            for (int64_t i = 0; i < s->area; i++)
                *dst++ = src[from + i];
        }
}

static struct selection select_from(const struct sparsity_layer *layer, int which,
                                    const struct kept *kept, struct shape full)
{
    struct selection s = {.out = kept->channel[layer->out_mask],
                          .n_out = kept->count[layer->out_mask],
                          .n_in = 1,
                          .c_in = 1,
                          .area = 1};
    if (which != LAYER_WEIGHT)
        return s; /* batch norm: one number per output channel */
    s.c_in = full.dim[1];
    s.area = layer->kernel_area;
    s.n_in = layer->in_channels;
    if (layer->in_mask >= 0) {
        s.in = kept->channel[layer->in_mask];
        s.n_in = kept->count[layer->in_mask];
    }
    return s;
}

enum der_status prune_params(const struct resnet_spec *spec, const struct kept *kept,
                             const struct param_set *from, struct param_set *to)
{
    struct sparsity_layer layers[RESNET_MAX_LAYERS];
    int n_layers = resnet_sparsity_layers(spec, layers, RESNET_MAX_LAYERS);
    if (from->n != n_layers * PARAMS_PER_LAYER || to->n != from->n)
        return ctx_fail(from->ctx, DER_SHAPE,
                        "these are not the parameters of the network to prune");
    size_t largest = 0;
    for (int i = 0; i < from->n; i++) {
        size_t count = (size_t)shape_count(from->items[i].shape);
        largest = count > largest ? count : largest;
    }
    struct der_ctx *ctx = from->ctx;
    float *host = mem_alloc(&ctx->mem, largest, 2 * sizeof *host);
    if (!host)
        return ctx_nomem(ctx);
    enum der_status status = DER_OK;
    for (int i = 0; i < from->n && status == DER_OK; i++) {
        struct selection selection = select_from(&layers[i / PARAMS_PER_LAYER],
                                                 i % PARAMS_PER_LAYER, kept, from->items[i].shape);
        status = param_read(from, i, host);
        if (status != DER_OK)
            break;
        select_channels(host + largest, host, &selection);
        status = param_write(to, i, host + largest);
    }
    mem_free(&ctx->mem, host);
    return status;
}
