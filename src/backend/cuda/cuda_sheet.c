/*
 * Which convolutions the kernels of sheet.cu serve, and how they cut them up.
 *
 * Both follow from shapes alone, by what was measured on an H200 (docs/KERNELS.md).
 */
#include "backend/cuda/cuda.h"

enum {
    UNIT = 16,       /* channels */
    WIDE = 64,       /* cuDNN's tiles */
    ALL = 227 << 10, /* bytes of shared memory: one block to a multiprocessor */
    HALF = 113 << 10 /* two */
};

/* ---- how ------------------------------------------------------------------------------------------------- */

/* Result channels of a block, where `parts` blocks share a picture. */
static int columns_of(int64_t to, int64_t parts)
{
    enum { LEAST = 32 };
    const int64_t columns = (to + parts * UNIT - 1) / (parts * UNIT) * UNIT;
    return columns < LEAST ? LEAST : (int)columns;
}

/* As many slots as there is room for; false: not even `least`. */
static bool fill_slots(struct cuda_sheet_tile *tile, const struct cuda_conv_shape *s, int least,
                       size_t room)
{
    const int taps = (int)(s->r * s->s);
    for (tile->slots = taps < least ? least : taps; tile->slots >= least; tile->slots--) {
        const size_t shared = cuda_sheet_shared(s, tile);
        if (shared > 0 && shared <= room)
            return true;
    }
    return false;
}

/* Blocks that share a picture. */
static int64_t parts_of(const struct cuda_conv_shape *s)
{
    enum { MOST = 128, SMALL_MOST = 112 };
    const int64_t most = s->out_h == 4 ? SMALL_MOST : MOST;
    const int64_t parts = (s->k + most - 1) / most;
    return s->out_h == 8 && parts < 2 ? 2 : parts;
}

/* Two blocks to a multiprocessor, if that leaves slots enough. */
static bool fill(struct cuda_sheet_tile *tile, const struct cuda_conv_shape *s)
{
    enum { FEW = 3, LEAST = 2 };
    tile->sheets = 2;
    if (fill_slots(tile, s, FEW, HALF))
        return true;
    tile->sheets = 1;
    return fill_slots(tile, s, FEW, HALF) || fill_slots(tile, s, LEAST, ALL);
}

/* Weights are read once for all pictures of a block. */
struct cuda_sheet_tile cuda_sheet_tile_of(const struct cuda_conv_shape *s)
{
    struct cuda_sheet_tile tile = {.pictures = s->out_h == 8 ? 4 : 1,
                                   .columns = columns_of(s->k, parts_of(s))};
    while (!fill(&tile, s) && tile.pictures > 1)
        tile.pictures /= 2;
    return tile;
}

/* ---- which ----------------------------------------------------------------------------------------------- */

/* Of 16x16 the few channels of thin networks, with which the modified ResNet-32 is 6 % faster. */
bool cuda_sheet_leaves_to_thin(const struct cuda_conv_shape *s)
{
    enum { THIN = 32 };
    const int64_t most = s->out_h == 8 ? CUDA_THIN_MOST : s->out_h == 16 ? THIN : 0;
    return s->r == 1 || (s->c <= most && s->k <= most);
}

/* Whole tiles of channels, and many of them where pictures are smaller than a sheet. */
static bool is_cudnn_better(const struct cuda_conv_shape *s)
{
    enum { MANY = 144 * 144 };
    return (s->c % WIDE == 0 && s->k % WIDE == 0) || (s->out_h == 4 && s->c * s->k > MANY);
}

bool cuda_sheet_serves(const struct cuda_conv_shape *s, enum dnn_pass pass)
{
    const struct cuda_sheet_tile tile = cuda_sheet_tile_of(s);
    return pass == DNN_FORWARD && s->n >= CUDA_FEW_IMAGES && !cuda_sheet_leaves_to_thin(s) &&
           !is_cudnn_better(s) && cuda_sheet_shared(s, &tile) > 0;
}
