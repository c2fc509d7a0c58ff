#include "support/cuda/hand_program.h"

#include "support/test_ctx.h"

void hand_program_init(struct hand_program *hand, const struct hand_parts *parts,
                       const struct conv_layer *layer, bool strips)
{
    const int64_t c = layer->c;
    *hand = (struct hand_program){.ctx = test_ctx_new(1)};
    for (int v = 0; v < parts->n_values; v++) {
        struct cuda_value *value = &parts->values[v];
        value->slot.shape = v == parts->weights ? shape_4d(c, c, layer->kernel, layer->kernel)
                                                : shape_4d(layer->n, c, layer->h, layer->w);
        value->stored = c;
        value->owner = v;
        value->kind = v == parts->weights ? VALUE_EXTERNAL : VALUE_TEMP;
    }
    hand->cuda.base.ctx = hand->ctx;
    hand->cuda.strips = strips;
    hand->cuda.shared = 227 << 10;
    hand->p = (struct cuda_program){.base = {.be = &hand->cuda.base},
                                    .values = parts->values,
                                    .n_values = parts->n_values,
                                    .steps = parts->steps,
                                    .n_steps = parts->n_steps,
                                    .derived = parts->derived,
                                    .precision = PRECISION_BF16,
                                    .type = CUDA_BF16};
    arena_init(&hand->p.arena, &hand->ctx->mem);
}

void hand_program_fini(struct hand_program *hand)
{
    arena_fini(&hand->p.arena);
    test_ctx_free(hand->ctx);
}
