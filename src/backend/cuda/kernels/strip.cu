/*
 * Launches of strip.cuh: the shapes that there are kernels for, and what tells the copy engine where arrays lie.
 *
 * Compiled for sm_90a alone, whatever the other kernels are compiled for.
 */
#include "backend/cuda/kernels/box_map.cuh"
#include "backend/cuda/kernels/strip.cuh"

/* ---- kernels --------------------------------------------------------------------------------------- */

typedef void (*strip_function)(const struct strip_args, const struct norm_slope, const CUtensorMap,
                               const CUtensorMap);

/* A kernel and what its launch has to know of the plan. */
struct strip_case {
    int from, to, size;
    bool backwards;
    strip_function function;
    strip_function summed; /* with sums for batch norm; NULL: there is none */
    int threads, shared;
    int rows, pixel;           /* rows of a strip; bytes of a pixel */
    int panel_rows, panel_row; /* panel_row: bytes */
};

/* TRAINED: batch norm may follow. */
template <class P, bool TRAINED> static constexpr struct strip_case case_of()
{
    strip_function summed = NULL;
    if constexpr (TRAINED)
        summed = strip_kernel<P, true>;
    return {P::FROM,    P::TO,     P::SIZE, P::BACKWARDS, strip_kernel<P, false>, summed,
            P::THREADS, P::SHARED, P::ROWS, P::PIXEL,     P::PANEL_ROWS,          P::PANEL_ROW};
}

/* Both passes of a convolution of c channels into k. */
#define BOTH(c, k, size)                                                                           \
    case_of<strip_plan<c, k, size, false>, true>(), case_of<strip_plan<k, c, size, true>, true>()

static const struct strip_case CASES[] = {BOTH(64, 64, 32),
                                          BOTH(32, 64, 32),
                                          BOTH(64, 32, 32),
                                          BOTH(32, 32, 32),
                                          BOTH(48, 64, 32),
                                          BOTH(48, 48, 32),
                                          BOTH(64, 64, 16),
                                          BOTH(64, 128, 16),
                                          BOTH(128, 64, 16),
                                          BOTH(128, 128, 16),
                                          case_of<strip_plan<64, 48, 32, false>, false>()};

/* NULL: there is none. */
static const struct strip_case *case_for(const struct cuda_conv_shape *s, bool backwards)
{
    const bool is_known = s->type == CUDA_BF16 && s->r == 3 && s->s == 3 && s->stride == 1 &&
                          s->pad == 1 && s->h == s->w;
    const int64_t from = backwards ? s->k : s->c;
    const int64_t to = backwards ? s->c : s->k;
    const bool is_counted = s->n >= 1 && s->n <= INT32_MAX / 2 / (32 * 32); /* pixels, in an int */
    for (const struct strip_case &c : CASES)
        if (is_known && is_counted && c.from == from && c.to == to && c.size == s->h &&
            c.backwards == backwards)
            return &c;
    return NULL;
}

bool cuda_strip_exists(const struct cuda_conv_shape *shape, bool backwards)
{
    return case_for(shape, backwards) != NULL;
}

bool cuda_strip_sums(const struct cuda_conv_shape *shape, bool backwards)
{
    const struct strip_case *c = case_for(shape, backwards);
    return c && c->summed;
}

/* ---- maps for the copy engine ------------------------------------------------------------------------ */

/* [n, size, size, from]: a strip with its border. */
static cudaError_t map_source(CUtensorMap *map, const struct strip_case &c, int64_t n,
                              const void *src)
{
    const cuuint64_t size = (cuuint64_t)c.size;
    const cuuint64_t pixel = (cuuint64_t)c.from * 2;
    const cuuint64_t sizes[] = {(cuuint64_t)c.from, size, size, (cuuint64_t)n};
    const cuuint64_t steps[] = {pixel, size * pixel, size * size * pixel};
    const cuuint32_t box[] = {(cuuint32_t)c.pixel / 2, (cuuint32_t)c.size + 2,
                              (cuuint32_t)c.rows + 2, 1};
    return make_map(map, src, sizes, steps, box, {1, 1, 1, 1});
}

/* [k, 9, c]: channels of one tap. Forwards, of sixteen rows even ones come before odd ones, so that neighbours are eight
 * rows apart, as the sums of a lane are. So steps do not grow from dimension to dimension; the copy engine does not
 * mind. */
static cudaError_t map_weights(CUtensorMap *map, const struct strip_case &c, const void *weights)
{
    const cuuint64_t channels = (cuuint64_t)(c.backwards ? c.to : c.from);
    const cuuint64_t rows = (cuuint64_t)(c.backwards ? c.from : c.to);
    const cuuint64_t tap = channels * 2;
    const cuuint64_t row = TAPS * tap;
    const cuuint64_t sizes[] = {channels, 8, 2, rows / 16, TAPS};
    const cuuint64_t steps[] = {c.backwards ? row : 2 * row, c.backwards ? 8 * row : row, 16 * row,
                                tap};
    const cuuint32_t box[] = {(cuuint32_t)c.panel_row / 2, 8, 2, (cuuint32_t)c.panel_rows / 16, 1};
    return make_map(map, weights, sizes, steps, box, {1, 1, 1, 1, 1});
}

/* ---- launching --------------------------------------------------------------------------------------- */

static cudaError_t launch(const struct cuda_conv_shape *shape, bool backwards,
                          const struct strip_args &a, const struct norm_slope &slope,
                          const void *src, const void *weights, cudaStream_t stream)
{
    const struct strip_case *c = case_for(shape, backwards);
    const strip_function function = !c ? NULL : a.sums ? c->summed : c->function;
    if (!function)
        return cudaErrorInvalidValue;
    CUtensorMap src_map, weights_map;
    cudaError_t error = map_source(&src_map, *c, shape->n, src);
    if (error == cudaSuccess)
        error = map_weights(&weights_map, *c, weights);
    if (error == cudaSuccess)
        error = allow_shared((const void *)function);
    if (error != cudaSuccess)
        return error;
    function<<<(unsigned)shape->n, (unsigned)c->threads, (size_t)c->shared, stream>>>(
        a, slope, src_map, weights_map);
    return cudaGetLastError();
}

cudaError_t cuda_strip(const struct cuda_conv_shape *shape, const struct cuda_thin *operands,
                       cudaStream_t stream)
{
    const struct strip_args a = {(bf16 *)operands->dst, operands->bias,
                                 (const bf16 *)operands->residual, operands->relu, NULL};
    return launch(shape, false, a, {}, operands->src, operands->weights, stream);
}

cudaError_t cuda_strip_summed(const struct cuda_conv_shape *shape, const struct cuda_thin *operands,
                              void *sums, cudaStream_t stream)
{
    const struct strip_args a = {(bf16 *)operands->dst, NULL, NULL, false, (float *)sums};
    if (!sums || operands->bias || operands->residual || operands->relu)
        return cudaErrorInvalidValue;
    return launch(shape, false, a, {}, operands->src, operands->weights, stream);
}

cudaError_t cuda_strip_d_src(const struct cuda_conv_shape *shape, void *d_src, const void *d_dst,
                             const void *weights, cudaStream_t stream)
{
    const struct strip_args a = {(bf16 *)d_src, NULL, NULL, false, NULL};
    return launch(shape, true, a, {}, d_dst, weights, stream);
}

cudaError_t cuda_strip_d_src_summed(const struct cuda_conv_shape *shape, const void *d_dst,
                                    const void *weights, const struct cuda_bn_grad *bn,
                                    cudaStream_t stream)
{
    const struct strip_args a = {(bf16 *)bn->d_dst.data, NULL, NULL, false, (float *)bn->scratch};
    struct norm_slope slope;
    if (!slope_of(shape, bn, &slope))
        return cudaErrorInvalidValue;
    return launch(shape, true, a, slope, d_dst, weights, stream);
}
