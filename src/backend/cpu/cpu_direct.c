/*
 * Direct convolution for images of few pixels, such as the late layers of a single picture.
 *
 * There a prediction waits for weights: each is used for a handful of pixels and then not again until the
 * next picture. Winograd's weights are four times as many, and oneDNN's kernels want rows of many pixels.
 * Here the sums of 16 pixels times 16 output channels stay in registers while the weights go by once, in
 * the order in which they lie; input channels that only fill up a block are left out.
 *
 * The source is copied into a frame of zeros first, so that no pixel is a special case. The result depends
 * on nothing but its input: every sum runs over blocks of channels, then places of the kernel, then channels.
 */
#include "backend/cpu/cpu_direct.h"

#include "backend/cpu/cpu_tile.h"

#include <string.h>

enum {
    BLOCK = CPU_DIRECT_BLOCK,
    PIXELS = 16,
    AHEAD = 32 * BLOCK, /* floats: the processor's own prefetching stops at every page */
};

#if defined(__x86_64__) && defined(__GNUC__)
#define DIRECT_TARGET __attribute__((target("avx512f")))
#else
#define DIRECT_TARGET
#endif
#define DIRECT_INLINE static inline __attribute__((always_inline)) DIRECT_TARGET

/* The types of one register; no typedef, so that their nature stays visible. */
#define VEC float __attribute__((vector_size(64), may_alias))
#define MASK int32_t __attribute__((vector_size(64)))

bool cpu_direct_available(int64_t stride)
{
#if defined(__x86_64__) && defined(__GNUC__)
    return (stride == 1 || stride == 2) && __builtin_cpu_supports("avx512f") != 0;
#else
    (void)stride;
    return false;
#endif
}

/* ---- weights: [k / 16][c / 16][places][16 or what is left of c][16] --------------------------------- */

size_t cpu_direct_weights_bytes(int64_t k, int64_t c, int64_t kernel)
{
    return (size_t)(k * c * kernel * kernel) * sizeof(float);
}

static void order_weights(float *dst, const float *weights, int64_t c, int64_t area)
{
    for (int64_t first = 0; first < c; first += BLOCK) {
        int64_t count = cpu_min(BLOCK, c - first);
        for (int64_t place = 0; place < area; place++)
            for (int64_t i = 0; i < count; i++, dst += BLOCK)
                for (int64_t lane = 0; lane < BLOCK; lane++)
                    dst[lane] = weights[(lane * c + first + i) * area + place];
    }
}

void cpu_direct_weights(float *dst, const float *weights, int64_t k, int64_t c, int64_t kernel,
                        int threads)
{
    (void)threads; /* for builds without OpenMP */
    int64_t area = kernel * kernel;
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int64_t block = 0; block < k / BLOCK; block++)
        order_weights(dst + block * BLOCK * c * area, weights + block * BLOCK * c * area, c, area);
}

/* ---- frames ----------------------------------------------------------------------------------------- */

/* How the pixels of the result are shared out to tiles of 16, and the source they need. */
struct plan {
    int64_t rows, cols;    /* of a tile */
    int64_t down, across;  /* tiles */
    int64_t height, width; /* of the source with all that tiles reach */
    int64_t blocks;        /* of source channels */
    bool framed;           /* the source is copied */
};

static int64_t reach(int64_t tiles, int64_t size, const struct cpu_direct *args, int64_t extent)
{
    int64_t last = (tiles * size - 1) * args->stride + args->kernel;
    int64_t whole = extent + 2 * args->pad;
    return last > whole ? last : whole;
}

static struct plan plan_of(const struct cpu_direct *args)
{
    struct plan plan = {.cols = args->out_w > 8 ? 16 : args->out_w > 4 ? 8 : 4};
    plan.rows = PIXELS / plan.cols;
    plan.down = cpu_ceil_div(args->out_h, plan.rows);
    plan.across = cpu_ceil_div(args->out_w, plan.cols);
    plan.height = reach(plan.down, plan.rows, args, args->h);
    plan.width = reach(plan.across, plan.cols, args, args->w);
    plan.blocks = cpu_ceil_div(args->c, BLOCK);
    plan.framed = args->src_block != BLOCK || plan.height != args->h || plan.width != args->w;
    return plan;
}

size_t cpu_direct_scratch_bytes(const struct cpu_direct *args)
{
    struct plan plan = plan_of(args);
    if (!plan.framed)
        return 0;
    return (size_t)(plan.blocks * plan.height * plan.width * BLOCK) * sizeof(float);
}

/* One row of a block of channels, `pad` pixels in. */
static void copy_row(const struct cpu_direct *args, float *to, const float *src, int64_t y)
{
    if (args->src_block == BLOCK) {
        memcpy(to, src + y * args->w * BLOCK, (size_t)(args->w * BLOCK) * sizeof *to);
        return;
    }
    for (int64_t c = 0; c < args->c; c++)
        for (int64_t x = 0; x < args->w; x++)
            to[x * BLOCK + c] = src[(c * args->h + y) * args->w + x];
}

static void frame_block(const struct cpu_direct *args, const struct plan *plan, const float *src,
                        float *frame)
{
    size_t pitch = (size_t)(plan->width * BLOCK);
    size_t left = (size_t)(args->pad * BLOCK);
    size_t used = (size_t)(args->w * BLOCK);
    for (int64_t y = 0; y < plan->height; y++, frame += pitch) {
        int64_t from = y - args->pad;
        if (from < 0 || from >= args->h) {
            memset(frame, 0, pitch * sizeof *frame);
            continue;
        }
        memset(frame, 0, left * sizeof *frame);
        copy_row(args, frame + left, src, from);
        memset(frame + left + used, 0, (pitch - left - used) * sizeof *frame);
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------ */

/* What one tile is; all but the pitch are constants where functions are inlined. */
struct tile {
    int64_t rows, cols, stride;
    int64_t pitch; /* floats from one row of the source to the next */
};

/* sum [rows][cols] += weights times the pixels that begin at src, for one block of input channels. cold: the
 * weights have yet to come from memory. Returns the weights behind those used. */
DIRECT_INLINE const float *accumulate(VEC *sum, const float *weights, const float *src,
                                      int64_t channels, int64_t kernel, struct tile tile, bool cold)
{
    for (int64_t y = 0; y < kernel; y++)
        for (int64_t x = 0; x < kernel; x++) {
            const float *from = src + y * tile.pitch + x * BLOCK;
            for (int64_t c = 0; c < channels; c++, weights += BLOCK) {
                VEC weight = *(const VEC *)weights;
                if (cold)
                    __builtin_prefetch(weights + AHEAD);
                for (int64_t i = 0; i < tile.rows; i++)
                    for (int64_t j = 0; j < tile.cols; j++)
                        sum[i * tile.cols + j] +=
                            weight * from[(i * tile.pitch + j * BLOCK) * tile.stride + c];
            }
        }
    return weights;
}

/* dst: one block of output channels; top and left: of the tile in it. */
DIRECT_INLINE void store(const struct cpu_direct *args, float *dst, const VEC *sum, int64_t top,
                         int64_t left, struct tile tile)
{
    for (int64_t i = 0; i < tile.rows && top + i < args->out_h; i++)
        for (int64_t j = 0; j < tile.cols && left + j < args->out_w; j++) {
            VEC *to = (VEC *)(dst + ((top + i) * args->out_w + left + j) * BLOCK);
            VEC z = sum[i * tile.cols + j];
            if (args->sum)
                z += *to;
            if (args->relu)
                z = (VEC)((MASK)z & (MASK)(z > 0.0f));
            *to = z;
        }
}

/* The tile at (top, left) of one block of output channels. */
DIRECT_INLINE void run_tile(const struct cpu_direct *args, const struct plan *plan,
                            const float *src, int64_t block, int64_t top, int64_t left,
                            struct tile tile)
{
    const float *from = src + (top * tile.pitch + left * BLOCK) * tile.stride;
    const float *weights = args->weights + block * BLOCK * args->c * args->kernel * args->kernel;
    bool cold = top == 0 && left == 0;
    VEC sum[PIXELS];
    for (int i = 0; i < PIXELS; i++)
        sum[i] = *(const VEC *)(args->bias + block * BLOCK);
    for (int64_t c = 0; c < args->c; c += BLOCK, from += plan->height * tile.pitch) {
        int64_t channels = cpu_min(BLOCK, args->c - c);
        if (cold)
            weights = accumulate(sum, weights, from, channels, args->kernel, tile, true);
        else
            weights = accumulate(sum, weights, from, channels, args->kernel, tile, false);
    }
    store(args, args->dst + block * args->out_h * args->out_w * BLOCK, sum, top, left, tile);
}

DIRECT_INLINE void run_tiles(const struct cpu_direct *args, const struct plan *plan,
                             const float *src, int64_t block, int64_t cols, int64_t stride)
{
    const struct tile tile = {PIXELS / cols, cols, stride, plan->width * BLOCK};
    for (int64_t i = 0; i < plan->down; i++)
        for (int64_t j = 0; j < plan->across; j++)
            run_tile(args, plan, src, block, i * tile.rows, j * tile.cols, tile);
}

static DIRECT_TARGET __attribute__((noinline)) void run_block(const struct cpu_direct *args,
                                                              const struct plan *plan,
                                                              const float *src, int64_t block)
{
    if (args->stride == 1 && plan->cols == 16)
        run_tiles(args, plan, src, block, 16, 1);
    else if (args->stride == 1 && plan->cols == 8)
        run_tiles(args, plan, src, block, 8, 1);
    else if (args->stride == 1)
        run_tiles(args, plan, src, block, 4, 1);
    else if (plan->cols == 16)
        run_tiles(args, plan, src, block, 16, 2);
    else if (plan->cols == 8)
        run_tiles(args, plan, src, block, 8, 2);
    else
        run_tiles(args, plan, src, block, 4, 2);
}

static void run_image(const struct cpu_direct *args, const struct plan *plan, int threads)
{
    const float *src = args->src;
    (void)threads; /* for builds without OpenMP */
    if (plan->framed) {
        int64_t from = args->h * args->w * args->src_block;
        int64_t to = plan->height * plan->width * BLOCK;
        CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
        for (int64_t block = 0; block < plan->blocks; block++)
            frame_block(args, plan, args->src + block * from, args->scratch + block * to);
        src = args->scratch;
    }
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int64_t block = 0; block < args->k / BLOCK; block++)
        run_block(args, plan, src, block);
}

void cpu_direct(const struct cpu_direct *args, int threads)
{
    struct plan plan = plan_of(args);
    struct cpu_direct image = *args;
    int64_t channels = args->src_block == BLOCK ? plan.blocks * BLOCK : args->c;
    for (int64_t n = 0; n < args->n; n++) {
        run_image(&image, &plan, threads);
        image.src += channels * args->h * args->w;
        image.dst += args->k * args->out_h * args->out_w;
    }
}
