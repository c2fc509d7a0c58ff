/*
 * Which convolutions the kernels for thin layers serve, and how they cut them up.
 *
 * Both follow from shapes alone, by what was measured (docs/BENCHMARKS.md): results must not depend on
 * timing.
 */
#include "backend/cuda/cuda.h"

enum {
    UNIT = 16,              /* channels of a step of a product */
    WIDE = 64,              /* cuDNN's tiles */
    MOST_SHARED = 99 << 10, /* bytes that every GPU since compute capability 8.0 gives a block */
};

static bool is_known(const struct cuda_conv_shape *s)
{
    const bool is_kernel =
        (s->r == 3 && s->s == 3 && s->pad == 1) || (s->r == 1 && s->s == 1 && s->pad == 0);
    const bool is_counted = s->n * s->h * s->w <= INT32_MAX / 2; /* pixels in an int */
    return s->type == CUDA_BF16 && is_kernel && is_counted && (s->stride == 1 || s->stride == 2) &&
           s->c % UNIT == 0 && s->k % UNIT == 0;
}

bool cuda_thin_serves(const struct cuda_conv_shape *s, enum dnn_pass pass)
{
    const bool is_thin = s->c <= WIDE && s->k <= WIDE;
    if (!is_known(s))
        return false;
    if (pass == DNN_FORWARD)
        return is_thin || s->c % WIDE != 0 || s->k % WIDE != 0;
    return is_thin;
}

/* ---- forwards and backwards --------------------------------------------------------------------------- */

static int64_t divided(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

/* As few columns as possible are computed in vain; wide tiles read the source less often. */
static int columns_of(int64_t channels, int most)
{
    int best = UNIT;
    for (int columns = UNIT; columns <= most; columns += UNIT)
        if (divided(channels, columns) * columns <= divided(channels, best) * best)
            best = columns;
    return best;
}

struct cuda_thin_tile cuda_thin_tile_of(const struct cuda_conv_shape *s, bool backwards)
{
    const bool is_spread = backwards && s->stride > 1;
    const int64_t from = backwards ? s->k : s->c;
    const int64_t places = s->n * s->out_h * s->out_w;
    struct cuda_thin_tile tile = {.rows = is_spread ? 1 : 2,
                                  .warps = 4,
                                  .columns =
                                      columns_of(backwards ? s->c : s->k, is_spread ? 32 : 64),
                                  .chunk = from <= 48 ? (int)from : 2 * UNIT,
                                  .stages = 2};
    const int64_t columns = divided(backwards ? s->c : s->k, tile.columns);
    if (divided(places, tile.rows * tile.warps * 16) * columns < 132)
        tile.rows = 1;
    while (tile.chunk > UNIT && cuda_thin_shared(s, backwards, !backwards, &tile) > MOST_SHARED)
        tile.chunk -= UNIT;
    return tile;
}

struct cuda_thin_grad_tile cuda_thin_grad_tile_of(const struct cuda_conv_shape *s)
{
    (void)s;
    return (struct cuda_thin_grad_tile){.pixels = 128, .chunk = UNIT, .blocks = 132};
}
