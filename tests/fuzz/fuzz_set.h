/*
 * What the fuzz targets of the data readers share: a context and an empty data set to fill, and the
 * proof at the end that nothing is left behind.
 */
#ifndef FUZZ_SET_H
#define FUZZ_SET_H

#include "data/reader.h"

#include <der/der.h>

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool holds)
{
    if (!holds)
        abort();
}

static inline struct der_ctx *fuzz_ctx(void)
{
    struct der_ctx *ctx = NULL;
    const struct der_ctx_options options = {.threads = 1};
    require(der_ctx_new(&options, &ctx) == DER_OK);
    return ctx;
}

static inline void fuzz_ctx_free(struct der_ctx *ctx)
{
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
}

static inline struct dataset *fuzz_set(struct der_ctx *ctx)
{
    struct dataset *set = mem_zalloc(&ctx->mem, 1, sizeof *set);
    require(set != NULL);
    set->ctx = ctx;
    arena_init(&set->arena, &ctx->mem);
    return set;
}

/* A failure has a sentence; after success every label is in range and every pixel is there. */
static inline void fuzz_check(const struct dataset *set, enum data_split split,
                              enum der_status status)
{
    if (status != DER_OK) {
        require(set->ctx->error[0] != 0);
        return;
    }
    const struct data_part *part = &set->part[split];
    int64_t image = (int64_t)set->channels * set->height * set->width;
    require(part->n > 0);
    for (int64_t i = 0; i < part->n; i++)
        require(part->labels[i] >= 0 && part->labels[i] < set->n_classes);
    volatile uint8_t last = part->pixels[part->n * image - 1];
    (void)last;
}

#endif
