#include "data/sampler.h"

#include "core/rng.h"

#include <assert.h>

enum der_status sampler_init(struct der_ctx *ctx, int64_t n, int batch, bool training,
                             struct sampler *sampler)
{
    assert(n >= 0 && batch > 0);
    *sampler = (struct sampler){.mem = &ctx->mem, .n = n, .batch = batch, .training = training};
    sampler->order = mem_alloc(&ctx->mem, (size_t)n, sizeof *sampler->order);
    if (!sampler->order)
        return ctx_nomem(ctx);
    for (int64_t i = 0; i < n; i++)
        sampler->order[i] = i;
    return DER_OK;
}

void sampler_fini(struct sampler *sampler)
{
    mem_free(sampler->mem, sampler->order);
    sampler->order = NULL;
}

/* Fisher-Yates from the identity: for i = n-1 .. 1 swap i with r(i) mod (i + 1), where r(i) is the
 * (i mod 2)-th 64-bit half of the block with index i / 2. Taking a 64-bit number modulo i + 1
 * favours small values by less than n / 2^64, which nobody can see. */
void sampler_epoch(struct sampler *sampler, uint64_t seed, uint32_t epoch)
{
    if (!sampler->training)
        return;
    int64_t *order = sampler->order;
    for (int64_t i = 0; i < sampler->n; i++)
        order[i] = i;
    struct rng_block block = {{0}};
    for (int64_t i = sampler->n - 1; i > 0; i--) {
        if (i % 2 == 1 || i == sampler->n - 1)
            block = rng_at(seed, RNG_SHUFFLE, epoch, (uint64_t)i / 2);
        const uint32_t *half = block.word + 2 * (i % 2);
        uint64_t random = ((uint64_t)half[0] << 32) | half[1];
        int64_t j = (int64_t)(random % (uint64_t)(i + 1));
        int64_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

int64_t sampler_batches(const struct sampler *sampler)
{
    int64_t tail = sampler->n % sampler->batch;
    return sampler->n / sampler->batch + (tail > (sampler->training ? 1 : 0));
}

const int64_t *sampler_batch(const struct sampler *sampler, int64_t b, int *n_items)
{
    assert(b >= 0 && b < sampler_batches(sampler));
    int64_t first = b * sampler->batch;
    int64_t left = sampler->n - first;
    *n_items = left < sampler->batch ? (int)left : sampler->batch;
    return sampler->order + first;
}
