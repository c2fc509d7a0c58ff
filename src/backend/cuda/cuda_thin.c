/*
 * Which convolutions the kernels for thin layers serve, and how they cut them up.
 *
 * Both follow from shapes alone, by what was measured on an H200 (docs/KERNELS.md): results must not depend
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

/* What a launch computes, forwards or backwards: `from` channels into `to` channels of so many places (thin.cuh). */
struct work {
    const struct cuda_conv_shape *shape;
    bool backwards;
    bool is_spread; /* backwards through a stride: four sums to a place */
    int64_t from, to, places;
};

static struct work work_of(const struct cuda_conv_shape *s, bool backwards)
{
    return (struct work){.shape = s,
                         .backwards = backwards,
                         .is_spread = backwards && s->stride > 1,
                         .from = backwards ? s->k : s->c,
                         .to = backwards ? s->c : s->k,
                         .places = s->n * s->out_h * s->out_w};
}

/* Few columns are to be computed in vain, and the source is to be read seldom; where there are few places, channels
 * have to make the blocks. */
static int columns_of(const struct work *w)
{
    enum { FEW = 1 << 12, SOME = 1 << 13, ONCE_MORE = 8 /* columns that one reading is worth */ };
    const int most = w->is_spread || w->places <= FEW ? 2 * UNIT : 5 * UNIT;
    int best = UNIT;
    for (int columns = UNIT; columns <= most; columns += UNIT)
        if (divided(w->to, columns) * (columns + ONCE_MORE) <
            divided(w->to, best) * (best + ONCE_MORE))
            best = columns;
    return best == WIDE && w->places <= SOME ? WIDE / 2 : best;
}

/* The fewest chunks that fit into `shared` bytes, two at a time: all channels if they are up to `whole`, or no fewer
 * than `least` at a time. False: there are none. */
static bool choose_chunk(struct cuda_thin_tile *tile, const struct work *w, int64_t whole,
                         int least, size_t shared)
{
    const int64_t steps = w->from / UNIT;
    for (int64_t n = w->from <= whole ? 1 : 2; n <= steps; n++) {
        tile->chunk = UNIT * (int)divided(steps, n);
        tile->stages = n > 1 ? 2 : 1;
        if ((n == 1 || tile->chunk >= least) &&
            cuda_thin_shared(w->shape, w->backwards, !w->backwards, tile) <= shared)
            return true;
    }
    return false;
}

/* Small boxes may take all of a multiprocessor's shared memory, if that has all channels there at once. */
static bool choose_chunks(struct cuda_thin_tile *tile, const struct work *w, bool is_large,
                          size_t shared)
{
    enum { WHOLE = 5 * UNIT, PIECE = 2 * UNIT, NONE = INT32_MAX };
    const size_t half = shared < SHARED ? shared : SHARED;
    if (is_large)
        return choose_chunk(tile, w, WHOLE, PIECE, half);
    return choose_chunk(tile, w, WHOLE, NONE, shared) || choose_chunk(tile, w, 0, PIECE, half) ||
           choose_chunk(tile, w, WHOLE, UNIT, shared) ||
           choose_chunk(tile, w, INT64_MAX, UNIT, shared);
}

struct box {
    int rows, warps;
    int blocks; /* that there are to be at least */
    bool is_large;
};

/* Boxes to be tried, large ones first; the last one always does. */
static const struct box *boxes_of(const struct work *w)
{
    static const struct box points[] = {{2, 4, 128, false}, {1, 8, 32, false}, {1, 4, 0, false},
                                        {1, 2, 0, false},   {1, 1, 0, false},  {0}};
    static const struct box forwards[] = {{4, 8, 128, true},
                                          {2, 8, 128, true},
                                          {2, 4, 32, false},
                                          {1, 4, 0, false},
                                          {1, 2, 0, false},
                                          {1, 1, 0, false},
                                          {0}};
    static const struct box backwards[] = {{4, 8, 128, true},
                                           {2, 8, 128, true},
                                           {1, 8, 32, false},
                                           {1, 4, 0, false},
                                           {1, 2, 0, false},
                                           {1, 1, 0, false},
                                           {0}};
    return w->shape->r == 1 ? points : w->backwards ? backwards : forwards;
}

/* Four sums to a place are much for a warp, and their boxes large or small. */
static bool is_possible(const struct cuda_thin_tile *tile, const struct work *w)
{
    const int places = tile->rows * tile->warps * UNIT;
    const int most_rows = w->is_spread || tile->columns > 2 * UNIT ? 2 : 4;
    return tile->rows <= most_rows && !(w->is_spread && places == 8 * UNIT);
}

/* Large boxes, as long as there are blocks enough, and two of them fit where one is. */
struct cuda_thin_tile cuda_thin_tile_of(const struct cuda_conv_shape *s, bool backwards,
                                        size_t shared)
{
    const struct work w = work_of(s, backwards);
    struct cuda_thin_tile tile = {.columns = columns_of(&w)};
    const int64_t n_columns = divided(w.to, tile.columns);
    for (const struct box *box = boxes_of(&w); box->rows > 0; box++) {
        tile.rows = box->rows;
        tile.warps = box->warps;
        const int64_t blocks = divided(w.places, tile.rows * tile.warps * UNIT) * n_columns;
        if (is_possible(&tile, &w) && blocks >= box->blocks &&
            choose_chunks(&tile, &w, box->is_large, shared))
            break;
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
