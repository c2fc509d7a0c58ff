/*
 * Winograd F(4x4, 3x3) (Lavin and Gray 2016) for layers of few channels.
 *
 * oneDNN transforms a whole batch before it multiplies, and for 16 to 64 channels waits for memory
 * more than it computes. Here eight tiles at a time are transformed, multiplied and transformed
 * back without leaving the caches:
 *
 *     Y = A^T [ (G g G^T) . (B^T d B) ] A      summed over input channels, 36 positions each
 *
 * The interpolation points are 0, +-5/8, +-3/2 and infinity rather than the usual 0, +-1, +-2: the
 * factors stay closer to 1 and the error is several times smaller.
 *
 * A vector is one pixel of a block of 16 channels. The result depends on nothing but its input:
 * tiles are independent of each other, and each sums its channels in ascending order.
 */
#include "backend/cpu/cpu_winograd.h"

#include "backend/cpu/cpu_tile.h"

#include <string.h>

enum {
    BLOCK = 16,         /* channels in a vector */
    OUT = 4,            /* a tile's outputs per side */
    IN = 6,             /* and inputs */
    POSITIONS = 36,     /* IN * IN */
    GROUP = 8,          /* tiles at a time: enough sums in flight to hide the latency of one */
    AHEAD = 32 * BLOCK, /* floats: the processor's own prefetching stops at every page */
};

#if defined(__x86_64__) && defined(__GNUC__)
#define WINOGRAD_TARGET __attribute__((target("avx512f")))
#else
#define WINOGRAD_TARGET
#endif
#define WINOGRAD_INLINE static inline __attribute__((always_inline)) WINOGRAD_TARGET

/* The points, and their squares; all exact. */
#define A 0.625f
#define B 1.5f
#define A2 (A * A)
#define B2 (B * B)

/* The types of one register; no typedef, so that their nature stays visible. */
#define VEC float __attribute__((vector_size(64), may_alias))
#define MASK int32_t __attribute__((vector_size(64)))

bool cpu_winograd_available(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    return __builtin_cpu_supports("avx512f") != 0;
#else
    return false;
#endif
}

size_t cpu_winograd_weights_bytes(int64_t c_in, int64_t c_out)
{
    return (size_t)(POSITIONS * c_in * c_out) * sizeof(float);
}

/* Transformed tiles of all input channels, whole blocks of them. */
static int64_t tile_floats(int64_t c_in)
{
    return POSITIONS * GROUP * cpu_ceil_div(c_in, BLOCK) * BLOCK;
}

/* And products of one block of output channels. */
static size_t scratch_floats(int64_t c_in)
{
    return (size_t)(tile_floats(c_in) + POSITIONS * GROUP * BLOCK);
}

size_t cpu_winograd_scratch_bytes(int64_t c_in, int threads)
{
    return scratch_floats(c_in) * (size_t)threads * sizeof(float);
}

/* ---- weights: U = G g G^T ------------------------------------------------------------------------ */

/* G on three vectors: (1, x, x^2) / N(x) for each point x, N the product of its distances from
 * the other finite points. */
WINOGRAD_INLINE void transform_weights(VEC *out, int64_t out_step, const VEC *g)
{
    const float near = 1.0f / (2.0f * A2 * (A2 - B2));
    const float far = 1.0f / (2.0f * B2 * (B2 - A2));
    VEC near_even = (g[0] + A2 * g[2]) * near;
    VEC near_odd = g[1] * (A * near);
    VEC far_even = (g[0] + B2 * g[2]) * far;
    VEC far_odd = g[1] * (B * far);
    out[0] = g[0] * (1.0f / (A2 * B2));
    out[out_step] = near_even + near_odd;
    out[2 * out_step] = near_even - near_odd;
    out[3 * out_step] = far_even + far_odd;
    out[4 * out_step] = far_even - far_odd;
    out[5 * out_step] = g[2];
}

/* What cpu_winograd_weights reads: element e of the kernel from input `in` to output `out` is
 * weights[out * out_step + in * in_step + (turned ? 8 - e : e)]. */
struct kernels {
    const float *weights;
    int64_t in_step, out_step;
    bool turned;
};

/* dst [36], `step` floats apart: the kernels of 16 outputs, from `in`. */
static WINOGRAD_TARGET __attribute__((noinline)) void run_kernels(float *dst, int64_t step,
                                                                  const struct kernels *kernels,
                                                                  int64_t in, int64_t out)
{
    float lane[9][BLOCK] __attribute__((aligned(64)));
    VEC g[9];
    VEC half[IN * 3];
    VEC u[IN];
    for (int o = 0; o < BLOCK; o++) {
        const float *from =
            kernels->weights + (out + o) * kernels->out_step + in * kernels->in_step;
        for (int e = 0; e < 9; e++)
            lane[e][o] = from[kernels->turned ? 8 - e : e];
    }
    /* Transposed on the way, so that both passes read three vectors side by side. */
    for (int r = 0; r < 3; r++)
        for (int e = 0; e < 3; e++)
            g[e * 3 + r] = *(const VEC *)lane[r * 3 + e];
    for (int e = 0; e < 3; e++)
        transform_weights(half + e, 3, g + e * 3);
    for (int i = 0; i < IN; i++) {
        transform_weights(u, 1, half + i * 3);
        for (int j = 0; j < IN; j++)
            *(VEC *)(dst + (i * IN + j) * step) = u[j];
    }
}

/* dst [c_out / 16][36][c_in][16] */
void cpu_winograd_weights(float *dst, const float *weights, int64_t k, int64_t c, bool backward,
                          int threads)
{
    (void)threads; /* for builds without OpenMP */
    int64_t c_in = backward ? k : c;
    int64_t c_out = backward ? c : k;
    struct kernels kernels = {.weights = weights,
                              .in_step = backward ? 9 * c : 9,
                              .out_step = backward ? 9 : 9 * c,
                              .turned = backward};
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int64_t row = 0; row < c_out / BLOCK * c_in; row++) {
        int64_t block = row / c_in;
        int64_t in = row % c_in;
        run_kernels(dst + (block * POSITIONS * c_in + in) * BLOCK, c_in * BLOCK, &kernels, in,
                    block * BLOCK);
    }
}

/* ---- tiles ---------------------------------------------------------------------------------------- */

/* Top left corner of the outputs of a tile. */
struct place {
    int64_t image, y, x;
};

static struct place place_of(const struct cpu_winograd *args, int64_t tile)
{
    int64_t columns = (args->w + OUT - 1) / OUT;
    int64_t rows = (args->h + OUT - 1) / OUT;
    return (struct place){.image = tile / (rows * columns),
                          .y = tile / columns % rows * OUT,
                          .x = tile % columns * OUT};
}

/* B^T on six vectors: the coefficients of the product over all points but one. */
WINOGRAD_INLINE void transform_in(VEC *out, int64_t out_step, const VEC *d)
{
    VEC near_even = d[4] - B2 * d[2];
    VEC near_odd = A * (d[3] - B2 * d[1]);
    VEC far_even = d[4] - A2 * d[2];
    VEC far_odd = B * (d[3] - A2 * d[1]);
    out[0] = A2 * B2 * d[0] - (A2 + B2) * d[2] + d[4];
    out[out_step] = near_even + near_odd;
    out[2 * out_step] = near_even - near_odd;
    out[3 * out_step] = far_even + far_odd;
    out[4 * out_step] = far_even - far_odd;
    out[5 * out_step] = A2 * B2 * d[1] - (A2 + B2) * d[3] + d[5];
}

/* A^T on six vectors: powers 0 to 3 of each point. */
WINOGRAD_INLINE void transform_out(VEC *out, int64_t out_step, const VEC *m)
{
    VEC near_even = m[1] + m[2];
    VEC near_odd = m[1] - m[2];
    VEC far_even = m[3] + m[4];
    VEC far_odd = m[3] - m[4];
    out[0] = m[0] + near_even + far_even;
    out[out_step] = A * near_odd + B * far_odd;
    out[2 * out_step] = A2 * near_even + B2 * far_even;
    out[3 * out_step] = A * A2 * near_odd + B * B2 * far_odd + m[5];
}

/* v [36], `step` vectors apart = B^T d B of one block of channels. plane: [h][w][16]. */
WINOGRAD_INLINE void load_tile(VEC *v, int64_t step, const struct cpu_winograd *args,
                               const float *plane, struct place at)
{
    VEC half[POSITIONS];
    for (int j = 0; j < IN; j++) {
        VEC column[IN];
        int64_t x = at.x - 1 + j;
        for (int i = 0; i < IN; i++) {
            int64_t y = at.y - 1 + i;
            if (x >= 0 && x < args->w && y >= 0 && y < args->h)
                column[i] = *(const VEC *)(plane + (y * args->w + x) * BLOCK);
            else
                column[i] = (VEC){0};
        }
        transform_in(half + j, IN, column);
    }
    for (int i = 0; i < IN; i++)
        transform_in(v + i * IN * step, step, half + i * IN);
}

WINOGRAD_INLINE void store_tile(const struct cpu_winograd *args, float *plane, struct place at,
                                const VEC *m, const float *bias)
{
    VEC half[OUT * IN];
    VEC result[OUT * OUT];
    for (int j = 0; j < IN; j++) {
        VEC column[IN];
        for (int i = 0; i < IN; i++)
            column[i] = m[(i * IN + j) * GROUP];
        transform_out(half + j, IN, column);
    }
    for (int i = 0; i < OUT; i++)
        transform_out(result + i * OUT, 1, half + i * IN);
    VEC shift = {0};
    if (bias)
        shift = *(const VEC *)bias;
    for (int i = 0; i < OUT && at.y + i < args->h; i++)
        for (int j = 0; j < OUT && at.x + j < args->w; j++) {
            VEC *to = (VEC *)(plane + ((at.y + i) * args->w + at.x + j) * BLOCK);
            VEC z = result[i * OUT + j] + shift;
            if (args->sum)
                z += *to;
            if (args->relu)
                z = (VEC)((MASK)z & (MASK)(z > 0.0f));
            *to = z;
        }
}

/* sum [GROUP] += v [GROUP][16 scalars] times u [channels]; cold: u has yet to come from memory. */
WINOGRAD_INLINE void multiply_block(VEC *sum, const float *v, const float *u, int64_t channels,
                                    bool cold)
{
    for (int64_t c = 0; c < channels; c++) {
        VEC weight = *(const VEC *)(u + c * BLOCK);
        if (cold)
            __builtin_prefetch(u + c * BLOCK + AHEAD);
        for (int t = 0; t < GROUP; t++)
            sum[t] += weight * v[t * BLOCK + c];
    }
}

/* m [36][GROUP] = v [36][c_in / 16][GROUP][16 scalars] times u [36][c_in] */
WINOGRAD_INLINE void multiply(VEC *m, const float *v, const float *u, int64_t c_in, bool cold)
{
    const int64_t rest = c_in % BLOCK;
    for (int p = 0; p < POSITIONS; p++) {
        VEC sum[GROUP] = {{0}};
        for (int64_t block = 0; block < c_in / BLOCK; block++) {
            multiply_block(sum, v, u, BLOCK, cold);
            u += BLOCK * BLOCK;
            v += GROUP * BLOCK;
        }
        if (rest > 0) {
            multiply_block(sum, v, u, rest, cold);
            u += rest * BLOCK;
            v += GROUP * BLOCK;
        }
        for (int t = 0; t < GROUP; t++)
            m[p * GROUP + t] = sum[t];
    }
}

static WINOGRAD_TARGET __attribute__((noinline)) void run_group(const struct cpu_winograd *args,
                                                                int64_t first, int64_t n_tiles,
                                                                bool cold, float *scratch)
{
    int64_t blocks_in = cpu_ceil_div(args->c_in, BLOCK);
    int64_t blocks_out = args->c_out / BLOCK;
    int64_t plane = args->h * args->w * BLOCK;
    float *v = scratch;
    VEC *m = (VEC *)(scratch + tile_floats(args->c_in));
    if (n_tiles < GROUP)
        memset(v, 0, (size_t)tile_floats(args->c_in) * sizeof *v);
    for (int64_t block = 0; block < blocks_in; block++)
        for (int64_t t = 0; t < n_tiles; t++) {
            struct place at = place_of(args, first + t);
            load_tile((VEC *)(v + (block * GROUP + t) * BLOCK), blocks_in * GROUP, args,
                      args->src + (at.image * blocks_in + block) * plane, at);
        }
    for (int64_t block = 0; block < blocks_out; block++) {
        const float *u = args->weights + block * POSITIONS * args->c_in * BLOCK;
        if (cold)
            multiply(m, v, u, args->c_in, true);
        else
            multiply(m, v, u, args->c_in, false);
        const float *bias = args->bias ? args->bias + block * BLOCK : NULL;
        for (int64_t t = 0; t < n_tiles; t++) {
            struct place at = place_of(args, first + t);
            store_tile(args, args->dst + (at.image * blocks_out + block) * plane, at, m + t, bias);
        }
    }
}

void cpu_winograd(const struct cpu_winograd *args, int threads)
{
    int64_t tiles = args->n * ((args->h + OUT - 1) / OUT) * ((args->w + OUT - 1) / OUT);
    int64_t groups = (tiles + GROUP - 1) / GROUP;
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static, 1))
    for (int part = 0; part < threads; part++) {
        float *scratch = args->scratch + scratch_floats(args->c_in) * (size_t)part;
        int64_t begin = groups * part / threads;
        for (int64_t g = begin; g < groups * (part + 1) / threads; g++)
            run_group(args, g * GROUP, cpu_min(GROUP, tiles - g * GROUP), g == begin, scratch);
    }
}
