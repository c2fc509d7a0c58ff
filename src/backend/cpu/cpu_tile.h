/*
 * How the kernels walk over an image of any layout: as tiles.
 *
 * A tile is `rows` rows of `width` floats, one behind the other. In blocked layouts and NHWC the
 * lanes of a row are channels; in NCHW ("planar") a row is 16 positions of one and the same
 * channel, and what does not fill a row is a tail of its own. Either way the inner loop runs over
 * lanes, with a constant count of 16 or 8 where it matters, and compilers make one vector
 * instruction of it without being allowed to reorder sums.
 */
#ifndef CPU_TILE_H
#define CPU_TILE_H

#include "backend/cpu/cpu_kernels.h"

/* Functions with this mark exist several times in the binary, one for each generation of vector
 * instructions; the loader picks. A clone may contract a * b + c where another cannot, so bytes
 * can differ from machine to machine, but not from run to run. Sanitizers instrument functions
 * too early for the loader's choice, hence the plain version there. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) &&       \
    defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default"), noinline))
#else
#define CPU_CLONES __attribute__((noinline))
#endif

/* For the loops inside such functions: they have to be compiled along with each clone. */
#define CPU_INLINE static inline __attribute__((always_inline))

/* OpenMP, or nothing in builds without. */
#ifdef _OPENMP
#define CPU_PRAGMA(text) _Pragma(#text)
#else
#define CPU_PRAGMA(text)
#endif

/* Iterations are independent of each other, even where arrays are the same. */
#define CPU_SIMD CPU_PRAGMA(omp simd)

/* keep ? value : 0, by bits: compilers turn a plain choice into a jump when sums depend on it,
 * and then no longer see vectors. */
CPU_INLINE float cpu_keep_if(float value, bool keep)
{
    union {
        float value;
        uint32_t bits;
    } word = {value};
    word.bits &= 0U - (uint32_t)keep;
    return word.value;
}

enum { CPU_LANES = 16 };

struct cpu_tile {
    int64_t offset;  /* of its first float */
    int64_t rows;    /* full rows */
    int64_t width;   /* lanes of a row */
    int64_t tail;    /* planar: floats behind the last full row, less than CPU_LANES */
    int64_t channel; /* of lane 0 */
    bool planar;     /* all lanes belong to `channel` */
};

static inline int64_t cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t cpu_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The same memory, so described that rows are long: without spatial extent NCHW is NHWC. */
static inline struct cpu_image cpu_image_normal(struct cpu_image image)
{
    if (image.block == 1 && image.spatial == 1)
        image.block = image.c;
    return image;
}

/* Channels with padding. */
static inline int64_t cpu_image_channels(struct cpu_image image)
{
    return cpu_ceil_div(image.c, image.block) * image.block;
}

/* Position of a channel's first value. */
static inline int64_t cpu_channel_offset(struct cpu_image image, int64_t c)
{
    return c / image.block * image.spatial * image.block + c % image.block;
}

/* Tiles that one picture of the batch consists of. */
static inline int64_t cpu_image_tiles(struct cpu_image image)
{
    return cpu_ceil_div(image.c, image.block);
}

/* Tile `index` counted through the whole batch, in the order of memory. */
static inline struct cpu_tile cpu_tile_at(struct cpu_image image, int64_t index)
{
    struct cpu_tile tile = {
        .offset = index * image.spatial * image.block,
        .rows = image.spatial,
        .width = image.block,
        .channel = index % cpu_image_tiles(image) * image.block,
    };
    if (image.block == 1 && image.spatial > 1) {
        tile.planar = true;
        tile.rows = image.spatial / CPU_LANES;
        tile.width = CPU_LANES;
        tile.tail = image.spatial % CPU_LANES;
    }
    return tile;
}

/* The values of a tile's lanes, out of one value per channel with padding. Short rows get a copy
 * in `lanes`, which a compiler can keep in a register because nothing else points there. */
CPU_INLINE void cpu_tile_lanes(float lanes[CPU_LANES], const float *channels, struct cpu_tile tile)
{
    const float *first = channels + tile.channel;
    for (int i = 0; i < CPU_LANES; i++)
        lanes[i] = tile.planar ? first[0] : i < tile.width ? first[i] : 0;
}

/* ---- sums over images -------------------------------------------------------------------------- */

/* Sums over a batch are made of parts, one after the other in a fixed order whatever the number of
 * threads. A part is a range of pictures and a range of tiles of each. */
enum { CPU_SUM_PARTS = 32 };

struct cpu_parts {
    int64_t images; /* parts along n; each has a row of partial sums */
    int64_t tiles;  /* parts along the tiles of a picture, when the batch is small */
};

static inline struct cpu_parts cpu_image_parts(struct cpu_image image)
{
    const int64_t images = cpu_min(image.n, CPU_SUM_PARTS);
    return (struct cpu_parts){
        .images = images,
        .tiles = cpu_min(cpu_image_tiles(image), cpu_ceil_div(CPU_SUM_PARTS, images)),
    };
}

struct cpu_range {
    int64_t begin, end;
};

/* Part `index` of `parts` nearly equal parts of [0, count). */
static inline struct cpu_range cpu_part(int64_t count, int64_t index, int64_t parts)
{
    return (struct cpu_range){count * index / parts, count * (index + 1) / parts};
}

/* Adds rows 1, 2, ... of partial sums to row 0, in this order. */
static inline void cpu_parts_add(double *sums, int64_t rows, int64_t count)
{
    for (int64_t row = 1; row < rows; row++) {
        for (int64_t i = 0; i < count; i++)
            sums[i] += sums[row * count + i];
    }
}

#endif
