/*
 * Which convolutions the kernels for thin layers serve, and how they cut them up.
 *
 * Both follow from shapes alone, by what was measured on an H200 (docs/BENCHMARKS.md): results must not depend
 * on timing.
 */
#include "backend/cuda/cuda.h"

enum {
    UNIT = 16,            /* channels of a step of a product */
    THIN = 32,            /* channels up to here are ours */
    WIDE = 64,            /* cuDNN's tiles */
    FEW_PIXELS = 1 << 14, /* of a batch */
    SHARED = 113 << 10,   /* bytes: two blocks to a multiprocessor */
};

/* ---- which ---------------------------------------------------------------------------------------------- */

static bool is_known(const struct cuda_conv_shape *s)
{
    const bool is_kernel =
        (s->r == 3 && s->s == 3 && s->pad == 1) || (s->r == 1 && s->s == 1 && s->pad == 0);
    const bool is_counted = s->n * s->h * s->w <= INT32_MAX / 2; /* pixels, in an int */
    return s->type == CUDA_BF16 && is_kernel && is_counted && (s->stride == 1 || s->stride == 2) &&
           s->c % UNIT == 0 && s->k % UNIT == 0;
}

static bool is_whole(int64_t channels)
{
    return channels == THIN || channels % WIDE == 0;
}

bool cuda_thin_serves(const struct cuda_conv_shape *s, enum dnn_pass pass)
{
    const bool is_thin = s->c <= THIN && s->k <= THIN;
    const bool is_small = s->c <= WIDE && s->k <= WIDE;
    if (!is_known(s))
        return false;
    if (pass == DNN_FORWARD)
        return is_thin || (is_small && s->r == 1) || !is_whole(s->c) || !is_whole(s->k);
    return is_small && (s->c < WIDE || s->r == 1 || s->n * s->h * s->w <= FEW_PIXELS);
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

/* Large boxes, as long as there are blocks for half of the GPU at least; several run side by side. */
static void choose_box(struct cuda_thin_tile *tile, int64_t places, int64_t n_columns,
                       int most_rows)
{
    static const struct {
        int rows, warps;
    } boxes[] = {{4, 8}, {2, 8}, {1, 8}, {1, 4}};
    enum { N = sizeof boxes / sizeof *boxes, ENOUGH = 64 };
    for (int i = 0; i < N; i++) {
        tile->rows = boxes[i].rows;
        tile->warps = boxes[i].warps;
        if (tile->rows <= most_rows &&
            divided(places, tile->rows * tile->warps * UNIT) * n_columns >= ENOUGH)
            return;
    }
}

/* All channels at a time where there is room, else in as few chunks as two fit of. */
static void choose_chunk(struct cuda_thin_tile *tile, const struct cuda_conv_shape *s,
                         bool backwards, size_t shared)
{
    const int64_t steps = (backwards ? s->k : s->c) / UNIT;
    for (int64_t n = 1; n <= steps; n++) {
        tile->chunk = UNIT * (int)divided(steps, n);
        tile->stages = n > 1 ? 2 : 1;
        if (cuda_thin_shared(s, backwards, !backwards, tile) <= shared)
            return;
    }
}

struct cuda_thin_tile cuda_thin_tile_of(const struct cuda_conv_shape *s, bool backwards,
                                        size_t shared)
{
    enum { SMALL = 1 << 12 }; /* places: channels have to make the blocks */
    const bool is_spread = backwards && s->stride > 1;
    const int64_t to = backwards ? s->c : s->k;
    const int64_t places = s->n * s->out_h * s->out_w;
    struct cuda_thin_tile tile = {0};
    tile.columns = columns_of(to, places <= SMALL || is_spread ? 2 * UNIT : 5 * UNIT);
    choose_box(&tile, places, divided(to, tile.columns),
               is_spread || tile.columns > 2 * UNIT ? 2 : 4);
    shared = shared < SHARED ? shared : SHARED;
    choose_chunk(&tile, s, backwards, shared);
    while (cuda_thin_shared(s, backwards, !backwards, &tile) > shared && tile.warps > 1) {
        if (tile.rows > 1)
            tile.rows /= 2;
        else
            tile.warps /= 2;
        choose_chunk(&tile, s, backwards, shared);
    }
    return tile;
}

/* ---- weights ---------------------------------------------------------------------------------------------- */

struct cuda_thin_grad_tile cuda_thin_grad_tile_of(const struct cuda_conv_shape *s, size_t shared)
{
    enum { BLOCKS = 132 };
    const bool is_double = s->c % (2 * UNIT) == 0 && s->k <= 2 * UNIT;
    struct cuda_thin_grad_tile tile = {.pixels = 256, .chunk = is_double ? 2 * UNIT : UNIT};
    const int64_t n_chunks = s->c / tile.chunk;
    const int64_t places = s->n * s->out_h * s->out_w;
    tile.blocks = (int)divided(BLOCKS, n_chunks);
    if (divided(places, tile.pixels) * n_chunks < BLOCKS - 4)
        tile.pixels = 128;
    while (cuda_thin_grad_shared(s, &tile) > shared && tile.pixels > UNIT)
        tile.pixels /= 2;
    return tile;
}
