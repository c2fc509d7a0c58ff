#include "model/prune.h"

#include <string.h>

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

/* Weights of all convolutions. */
static int64_t count_weights(const struct resnet_spec *spec)
{
    struct sparsity_layer layers[RESNET_MAX_LAYERS];
    int n = resnet_sparsity_layers(spec, layers, RESNET_MAX_LAYERS);
    int64_t count = 0;
    for (int i = 0; i < n; i++) {
        int64_t in = layers[i].in_mask < 0 ? layers[i].in_channels
                                           : resnet_mask_channels(spec, layers[i].in_mask);
        count += layers[i].kernel_area * in * resnet_mask_channels(spec, layers[i].out_mask);
    }
    return count;
}

double pruned_share(const struct resnet_spec *spec, const struct resnet_spec *pruned)
{
    return (double)count_weights(pruned) / (double)count_weights(spec);
}

/* ---- parameters, there and back ------------------------------------------------------------------ */

/* Which rows and columns of a tensor [.., c_in, area] stay. */
struct selection {
    const int32_t *out, *in; /* channels; in is NULL where all inputs stay */
    int n_out, n_in;
    int64_t c_in, area;
};

/* A passage between the parameters of a network and those of what pruning leaves of it. */
struct passage {
    const struct kept *kept;
    struct sparsity_layer layers[RESNET_MAX_LAYERS];
    const struct param_set *from;
    struct param_set *to;
    bool widens;          /* from the pruned network into the whole one */
    float *whole, *small; /* one tensor of each, on the host */
};

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

/* small [n_out, n_in, area]: taken out of the whole tensor, or put back into it */
static void move_channels(const struct passage *p, const struct selection *s)
{
    float *small = p->small;
    size_t bytes = (size_t)s->area * sizeof *small;
    for (int k = 0; k < s->n_out; k++)
        for (int c = 0; c < s->n_in; c++, small += s->area) {
            int64_t block = (int64_t)s->out[k] * s->c_in + (s->in ? s->in[c] : c);
            float *whole = p->whole + block * s->area;
            memcpy(p->widens ? whole : small, p->widens ? small : whole, bytes);
        }
}

static enum der_status read_tensor(const struct param_set *set, int index, bool is_velocity,
                                   float *host)
{
    return is_velocity ? param_read_velocity(set, index, host) : param_read(set, index, host);
}

static enum der_status move_tensor(const struct passage *p, int index, bool is_velocity)
{
    const struct param_set *whole = p->widens ? p->to : p->from;
    struct selection selection =
        select_from(&p->layers[index / PARAMS_PER_LAYER], index % PARAMS_PER_LAYER, p->kept,
                    whole->items[index].shape);
    float *result = p->widens ? p->whole : p->small;
    TRY(read_tensor(whole, index, is_velocity, p->whole));
    if (p->widens)
        TRY(read_tensor(p->from, index, is_velocity, p->small));
    move_channels(p, &selection);
    return is_velocity ? param_write_velocity(p->to, index, result)
                       : param_write(p->to, index, result);
}

static enum der_status move_all(struct passage *p, const struct resnet_spec *spec)
{
    struct der_ctx *ctx = p->from->ctx;
    const struct param_set *whole = p->widens ? p->to : p->from;
    bool is_moving = p->from->velocity && p->to->velocity;
    int n_layers = resnet_sparsity_layers(spec, p->layers, RESNET_MAX_LAYERS);
    if (p->from->n != n_layers * PARAMS_PER_LAYER || p->to->n != p->from->n)
        return ctx_fail(ctx, DER_SHAPE, "these are not the parameters of the network to prune");
    size_t largest = 0;
    for (int i = 0; i < whole->n; i++) {
        size_t count = (size_t)shape_count(whole->items[i].shape);
        largest = count > largest ? count : largest;
    }
    p->whole = mem_alloc(&ctx->mem, largest, 2 * sizeof *p->whole);
    if (!p->whole)
        return ctx_nomem(ctx);
    p->small = p->whole + largest;
    enum der_status status = DER_OK;
    for (int i = 0; i < whole->n && status == DER_OK; i++) {
        status = move_tensor(p, i, false);
        if (status == DER_OK && is_moving && whole->items[i].role == PARAM_LEARNT)
            status = move_tensor(p, i, true);
    }
    mem_free(&ctx->mem, p->whole);
    return status;
}

enum der_status prune_params(const struct resnet_spec *spec, const struct kept *kept,
                             const struct param_set *from, struct param_set *to)
{
    struct passage passage = {.kept = kept, .from = from, .to = to};
    return move_all(&passage, spec);
}

enum der_status unprune_params(const struct resnet_spec *spec, const struct kept *kept,
                               const struct param_set *from, struct param_set *to)
{
    struct passage passage = {.kept = kept, .from = from, .to = to, .widens = true};
    return move_all(&passage, spec);
}
