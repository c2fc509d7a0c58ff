/*
 * The gradient of a convolution's weights on Hopper's tensor cores, for small pictures: 3x3, and 1x1 with a stride of 2.
 *
 * d_weights [k, tap, c] = sum over pixels of d_dst [pixel, k] times what the tap sees of src [pixel, c]. A block of 3x3 has 64
 * channels k, 64 channels c and all taps, and walks over its portions of 128 pixels: three groups of four warps, one for
 * each row of the kernel, hold 64 x 192 sums each. Both operands of a product are read transposed, as the copy engine
 * has brought them: a portion of the source with a border, so that a tap is only another address to begin at, and the
 * three taps of a row are one operand whose columns are a pixel apart. A block of 1x1 has 128 channels k, 64 of either of
 * two groups.
 *
 * Where blocks share the pixels of the same channels, their sums are added in a launch of its own, in a fixed order.
 *
 * Compiled for sm_90a alone, as strip.cu is.
 */
#include "backend/cuda/kernels/box_map.cuh"

enum {
    CHANNELS = 64,      /* of an operand */
    ROW = CHANNELS * 2, /* bytes */
    PORTION = 128,      /* pixels */
    STEP = 16,          /* pixels of a product */
    STEPS = PORTION / STEP,
    MOST_SPLITS = 256,
    MOST_SHARED = 227 << 10
};

/* What a block computes, and how its groups of four warps share it. */
template <int SIDE_> struct grad_kernel {
    static constexpr int SIDE = SIDE_, TAPS = SIDE * SIDE;
    static constexpr int STRIDE = SIDE > 1 ? 1 : 2;
    static constexpr bool BY_ROW = SIDE > 1; /* groups have rows of the kernel, or 64 channels k */
    static constexpr int GROUPS = BY_ROW ? SIDE : 2;
    static constexpr int CHUNKS = BY_ROW ? 1 : GROUPS; /* of 64 channels k */
    static constexpr int ADDERS = GROUPS * 128;
    static constexpr int THREADS = ADDERS + 32;      /* the last warp begins the copies */
    static constexpr int SUMS = SIDE * CHANNELS / 2; /* of a thread */
    static constexpr int QUADS = SUMS / 4;           /* what of them is moved at once */
};

/* How a portion lies in shared memory: COLUMNS of so many rows of IMAGES pictures. Eight pixels that follow each other in a
 * product are neighbours in a row; where pictures are so small that rows have fewer, they are the same pixel of eight
 * pictures (MIXED). Without a border all pixels follow each other: those of 1x1, whose others the copy engine
 * leaves out. */
template <int SIDE, int COLUMNS_, int IMAGES_> struct grad_plan : grad_kernel<SIDE> {
    static constexpr int COLUMNS = COLUMNS_, IMAGES = IMAGES_;
    static constexpr bool MIXED = SIDE > 1 && COLUMNS < 8;
    static constexpr int ROWS = PORTION / IMAGES / COLUMNS;
    static constexpr int BORDER = SIDE / 2;             /* pixels */
    static constexpr int PITCH = COLUMNS + 2 * BORDER;  /* pixels */
    static constexpr int HEIGHT = ROWS + 2 * BORDER;    /* rows */
    static constexpr int PIXEL = MIXED ? 8 * ROW : ROW; /* bytes from one to the next */

    /* Bytes from the first pixel to the first of eight, without the border. */
    __host__ __device__ static constexpr int eight_at(int i)
    {
        constexpr int per_row = MIXED ? COLUMNS : (COLUMNS + 7) / 8;
        const int image = i / (per_row * ROWS);
        const int y = i / per_row % ROWS;
        const int x = i % per_row * (MIXED ? 1 : 8);
        return BORDER > 0 ? ((image * HEIGHT + y) * PITCH + x) * PIXEL : i * 8 * PIXEL;
    }

    static constexpr int BOX = IMAGES * PITCH * HEIGHT * ROW; /* bytes that come */
    static constexpr int GRADS_AT = (BOX + ATOM - 1) / ATOM * ATOM;
    static constexpr int GRADS = PORTION * ROW; /* of 64 channels */
    static constexpr int STAGE = GRADS_AT + grad_plan::CHUNKS * GRADS;
    static constexpr int STAGES = (MOST_SHARED - ATOM) / STAGE;
    static constexpr int BARRIERS_AT = STAGES * STAGE;
    static constexpr int SHARED = BARRIERS_AT + 2 * STAGES * 8;

    /* Where in a stage the operands of a group begin. */
    __device__ static int grads_at(int group)
    {
        return GRADS_AT + (grad_plan::BY_ROW ? 0 : group * GRADS);
    }

    __device__ static int pixels_at(int group)
    {
        return grad_plan::BY_ROW ? group * PITCH * PIXEL : 0;
    }

    /* Descriptors but for addresses. */
    static constexpr unsigned GRADS_LOW = 1u << 16;
    static constexpr unsigned GRADS_HIGH = descriptor_high(ROW, 8 * ROW);
    static constexpr unsigned PIXELS_LOW = (unsigned)PIXEL / WORD << 16;
    static constexpr unsigned PIXELS_HIGH = descriptor_high(ROW, eight_at(1) - eight_at(0));

    static_assert(IMAGES * ROWS * COLUMNS == PORTION && (!MIXED || IMAGES == 8), "whole portions");
    static_assert(STAGES >= 3 && SHARED <= MOST_SHARED, "shared memory");
};

struct grad_args {
    int c;
    int tiles, tiles_c;    /* channels of a block; those with the same k */
    int across, per_image; /* portions next to each other, and of pictures as a whole */
    unsigned portions;
    float4 *partial; /* [splits, tiles, quads, adders]; NULL: blocks have all pixels */
    bf16 *d_weights; /* [k, taps, c] */
};

/* What a block knows of itself. */
struct grad_block {
    const CUtensorMap *src, *d_dst;
    unsigned room; /* shared memory */
    int tile;
    int k, c;         /* its first channels */
    int first, count; /* portions */
};

template <class P> __device__ static unsigned full_barrier(unsigned room, int slot)
{
    return room + P::BARRIERS_AT + slot * 8;
}

template <class P> __device__ static unsigned empty_barrier(unsigned room, int slot)
{
    return room + P::BARRIERS_AT + (P::STAGES + slot) * 8;
}

template <class P> __device__ static void prepare_barriers(unsigned room)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::STAGES; i++) {
            barrier_init(full_barrier<P>(room, i), 1);
            barrier_init(empty_barrier<P>(room, i), P::GROUPS * 4);
        }
        barriers_publish();
    }
    __syncthreads();
}

/* ---- into shared memory --------------------------------------------------------------------------- */

/* What is outside of the picture, the copy engine makes zeros, and so it does with pictures behind the last. */
template <class P>
__device__ static void fetch_portion(const struct grad_args &a, const struct grad_block &block,
                                     int portion, int slot)
{
    const int image = portion / a.per_image * P::IMAGES;
    const int y = portion % a.per_image / a.across * P::ROWS;
    const int x = portion % a.across * P::COLUMNS;
    const unsigned to = block.room + slot * P::STAGE;
    const unsigned barrier = full_barrier<P>(block.room, slot);
    const int left = x - P::BORDER;
    const int top = y - P::BORDER;
    barrier_expect(barrier, P::BOX + P::CHUNKS * P::GRADS);
    if (P::MIXED)
        copy_box(to, block.src, {block.c, image, left, top}, barrier);
    else
        copy_box(to, block.src, {block.c, left, top, image}, barrier);
    for (int chunk = 0; chunk < P::CHUNKS; chunk++) {
        const unsigned grads = to + P::GRADS_AT + chunk * P::GRADS;
        const int k = block.k + chunk * CHANNELS;
        if (P::MIXED)
            copy_box(grads, block.d_dst, {k, image, x, y}, barrier);
        else
            copy_box(grads, block.d_dst, {k, x, y, image}, barrier);
    }
}

template <class P>
__device__ static void fetch_portions(const struct grad_args &a, const struct grad_block &block)
{
    for (int i = 0; i < block.count; i++) {
        const int slot = i % P::STAGES;
        if (i >= P::STAGES)
            barrier_wait(empty_barrier<P>(block.room, slot), (i / P::STAGES - 1) & 1);
        fetch_portion<P>(a, block, block.first + i, slot);
    }
}

/* ---- products ------------------------------------------------------------------------------------- */

/* Lower halves of descriptors of the portion's first pixels. Distances are added to them in words. */
template <class P>
__device__ static void multiply_portion(float (&sums)[P::SUMS], unsigned grads, unsigned pixels)
{
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        multiply_columns(sums, descriptor(grads + step * STEP * ROW / WORD, P::GRADS_HIGH),
                         descriptor(pixels + P::eight_at(2 * step) / WORD, P::PIXELS_HIGH));
}

template <class P>
__device__ static void multiply_portions(float (&sums)[P::SUMS], const struct grad_block &block,
                                         int group)
{
    int slot = 0;
    unsigned phase = 0;
    keep_in_place(sums);
#pragma unroll 1
    for (int i = 0; i < block.count; i++) {
        const unsigned at = block.room + slot * P::STAGE;
        const int before = slot > 0 ? slot - 1 : P::STAGES - 1;
        barrier_wait(full_barrier<P>(block.room, slot), phase);
        products_begin();
        multiply_portion<P>(sums, P::GRADS_LOW | (at + P::grads_at(group)) / WORD,
                            P::PIXELS_LOW | (at + P::pixels_at(group)) / WORD);
        products_commit();
        products_wait<1>();
        if (i > 0 && threadIdx.x % 32 == 0)
            barrier_arrive(empty_barrier<P>(block.room, before));
        __syncwarp();
        slot = slot + 1 < P::STAGES ? slot + 1 : 0;
        phase ^= slot == 0;
    }
    products_wait<0>();
    keep_in_place(sums);
}

/* ---- results -------------------------------------------------------------------------------------- */

/* Where the first quad of a thread belongs. */
template <class K>
__device__ static bf16 *weights_at(const struct grad_args &a, int tile, int thread)
{
    const int group = thread / 128;
    const int chunk = tile / a.tiles_c * K::CHUNKS + (K::BY_ROW ? 0 : group);
    const int k = chunk * CHANNELS + thread / 32 % 4 * 16 + thread % 32 / 4;
    const int c = tile % a.tiles_c * CHANNELS + thread % 4 * 2;
    const int tap = K::BY_ROW ? group * K::SIDE : 0;
    return a.d_weights + ((int64_t)k * K::TAPS + tap) * a.c + c;
}

/* Two neighbouring channels c of two channels k, eight apart. Quads are eight channels c apart, then a tap. */
template <class K>
__device__ static void write_quad(const struct grad_args &a, bf16 *first, int quad, float4 sums)
{
    bf16 *to = first + quad / 8 * a.c + quad % 8 * 8;
    *reinterpret_cast<__nv_bfloat162 *>(to) = __floats2bfloat162_rn(sums.x, sums.y);
    *reinterpret_cast<__nv_bfloat162 *>(to + 8 * K::TAPS * a.c) =
        __floats2bfloat162_rn(sums.z, sums.w);
}

__device__ inline void add_quad(float4 &sum, float4 x)
{
    sum.x += x.x;
    sum.y += x.y;
    sum.z += x.z;
    sum.w += x.w;
}

template <int SUMS> __device__ inline float4 quad_of(const float (&sums)[SUMS], int quad)
{
    return make_float4(sums[4 * quad], sums[4 * quad + 1], sums[4 * quad + 2], sums[4 * quad + 3]);
}

/* Partial sums lie as threads have them. */
template <class K>
__device__ static void write_sums(const struct grad_args &a, int tile, const float (&sums)[K::SUMS])
{
    const int64_t block = (int64_t)blockIdx.x * a.tiles + tile;
    if (a.partial) {
        float4 *to = a.partial + block * K::QUADS * K::ADDERS + threadIdx.x;
#pragma unroll
        for (int quad = 0; quad < K::QUADS; quad++)
            to[quad * K::ADDERS] = quad_of(sums, quad);
        return;
    }
    bf16 *first = weights_at<K>(a, tile, (int)threadIdx.x);
#pragma unroll
    for (int quad = 0; quad < K::QUADS; quad++)
        write_quad<K>(a, first, quad, quad_of(sums, quad));
}

/* ---- all ------------------------------------------------------------------------------------------ */

template <class K>
__device__ static struct grad_block block_of(const struct grad_args &a, const CUtensorMap *src,
                                             const CUtensorMap *d_dst, const char *room)
{
    const int tile = (int)blockIdx.y;
    const int first = (int)(a.portions * blockIdx.x / gridDim.x);
    const int last = (int)(a.portions * (blockIdx.x + 1) / gridDim.x);
    return {src,
            d_dst,
            shared_address(room),
            tile,
            tile / a.tiles_c * K::CHUNKS * CHANNELS,
            tile % a.tiles_c * CHANNELS,
            first,
            last - first};
}

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
    strip_weights_kernel(const struct grad_args a, const __grid_constant__ CUtensorMap src,
                         const __grid_constant__ CUtensorMap d_dst)
{
    extern __shared__ __align__(1024) char room[];
    const struct grad_block block = block_of<P>(a, &src, &d_dst, room);
    prepare_barriers<P>(block.room);
    if (threadIdx.x >= P::ADDERS) {
        if (threadIdx.x == P::ADDERS)
            fetch_portions<P>(a, block);
        return;
    }
    float sums[P::SUMS] = {};
    multiply_portions<P>(sums, block, (int)threadIdx.x / 128);
    write_sums<P>(a, block.tile, sums);
}

/* ---- sums of blocks --------------------------------------------------------------------------------- */

enum { ADD_QUADS = 32, ADD_SLICES = 8 };

/* Slices of a block add up every so manyth partial sum. */
template <class K> __global__ void strip_weights_add_kernel(const struct grad_args a, int n)
{
    __shared__ float4 sums[ADD_SLICES][ADD_QUADS];
    const int i = (int)(blockIdx.x * ADD_QUADS + threadIdx.x);
    const int64_t all = (int64_t)a.tiles * K::QUADS * K::ADDERS;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int at = (int)threadIdx.y; at < n; at += ADD_SLICES)
        add_quad(sum, a.partial[at * all + i]);
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0)
        return;
    for (int slice = 1; slice < (int)blockDim.y; slice++)
        add_quad(sum, sums[slice][threadIdx.x]);
    bf16 *first = weights_at<K>(a, i / (K::QUADS * K::ADDERS), i % K::ADDERS);
    write_quad<K>(a, first, i / K::ADDERS % K::QUADS, sum);
}

template <class K>
static cudaError_t add_splits(const struct grad_args &a, int n, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)(a.tiles * K::QUADS * K::ADDERS / ADD_QUADS);
    const unsigned slices = (unsigned)(n < ADD_SLICES ? n : ADD_SLICES);
    strip_weights_add_kernel<K><<<blocks, dim3(ADD_QUADS, slices), 0, stream>>>(a, n);
    return cudaGetLastError();
}

/* ---- shapes ----------------------------------------------------------------------------------------- */

typedef void (*grad_function)(const struct grad_args, const CUtensorMap, const CUtensorMap);
typedef cudaError_t (*grad_adder)(const struct grad_args &, int, cudaStream_t);

/* A kernel and what its launch has to know of the plan. */
struct grad_case {
    int side, stride, border;
    int k; /* channels of a block */
    int columns, rows, images;
    bool mixed;
    grad_function function;
    int threads, shared;
    grad_adder add;
};

template <class P> static constexpr struct grad_case case_of()
{
    return {P::SIDE,
            P::STRIDE,
            P::BORDER,
            P::CHUNKS * CHANNELS,
            P::COLUMNS,
            P::ROWS,
            P::IMAGES,
            P::MIXED,
            strip_weights_kernel<P>,
            P::THREADS,
            P::SHARED,
            add_splits<grad_kernel<P::SIDE>>};
}

/* The first that fits is the fastest. */
static const struct grad_case CASES[] = {
    case_of<grad_plan<3, 16, 1>>(), case_of<grad_plan<3, 8, 2>>(), case_of<grad_plan<3, 4, 8>>(),
    case_of<grad_plan<1, 4, 8>>()};

static bool fits(const struct grad_case &c, const struct cuda_conv_shape *s)
{
    if (s->out_h != (s->h - 1) / c.stride + 1 || s->out_w != (s->w - 1) / c.stride + 1)
        return false;
    return s->r == c.side && s->s == c.side && s->stride == c.stride && s->pad == c.border &&
           s->c % CHANNELS == 0 && s->k % c.k == 0 && s->out_w % c.columns == 0 &&
           s->out_h % c.rows == 0;
}

/* NULL: there is none. */
static const struct grad_case *case_for(const struct cuda_conv_shape *s)
{
    const bool is_counted = s->n * s->h * s->w <= INT32_MAX / 2 / 16; /* times splits, in an int */
    for (const struct grad_case &c : CASES)
        if (s->type == CUDA_BF16 && is_counted && fits(c, s))
            return &c;
    return NULL;
}

bool cuda_strip_grad_exists(const struct cuda_conv_shape *shape)
{
    return case_for(shape) != NULL;
}

static int tiles_of(const struct grad_case &c, const struct cuda_conv_shape *s)
{
    return (int)s->c / CHANNELS * ((int)s->k / c.k);
}

int cuda_strip_grad_tiles(const struct cuda_conv_shape *shape)
{
    const struct grad_case *c = case_for(shape);
    return c ? tiles_of(*c, shape) : 0;
}

size_t cuda_strip_grad_scratch(const struct cuda_conv_shape *s, int splits)
{
    return splits > 1 ? (size_t)(splits * s->k * s->r * s->s * s->c) * sizeof(float) : 0;
}

/* ---- launching -------------------------------------------------------------------------------------- */

/* What is multiplied of an image, as it lies in memory. */
struct grad_image {
    const void *data;
    int64_t channels, n, h, w;
    int64_t column, row, image; /* bytes from one to the next */
};

/* Of [n, h, w, channels] one pixel for each of the result. */
static struct grad_image image_of(const struct cuda_conv_shape *s, const void *data, int64_t h,
                                  int64_t w, int64_t channels, int64_t stride)
{
    const int64_t pixel = channels * 2;
    return {data,           channels,           s->n,         s->out_h, s->out_w,
            stride * pixel, stride * w * pixel, h * w * pixel};
}

/* A portion, with a border of so many pixels. */
static cudaError_t map_image(CUtensorMap *map, const struct grad_case &c,
                             const struct grad_image &i, int border)
{
    const cuuint64_t channels = (cuuint64_t)i.channels;
    const cuuint64_t n = (cuuint64_t)i.n;
    const cuuint64_t h = (cuuint64_t)i.h;
    const cuuint64_t w = (cuuint64_t)i.w;
    const cuuint64_t column = (cuuint64_t)i.column;
    const cuuint64_t row = (cuuint64_t)i.row;
    const cuuint64_t image = (cuuint64_t)i.image;
    const cuuint32_t columns = (cuuint32_t)(c.columns + 2 * border);
    const cuuint32_t rows = (cuuint32_t)(c.rows + 2 * border);
    const cuuint32_t images = (cuuint32_t)c.images;
    if (c.mixed)
        return make_map<4>(map, i.data, {channels, n, w, h}, {image, column, row},
                           {CHANNELS, images, columns, rows}, {1, 1, 1, 1});
    return make_map<4>(map, i.data, {channels, w, h, n}, {column, row, image},
                       {CHANNELS, columns, rows, images}, {1, 1, 1, 1});
}

static struct grad_args args_of(const struct grad_case &c, const struct cuda_conv_shape *s)
{
    struct grad_args a = {};
    a.c = (int)s->c;
    a.tiles_c = (int)s->c / CHANNELS;
    a.tiles = tiles_of(c, s);
    a.across = (int)s->out_w / c.columns;
    a.per_image = a.across * ((int)s->out_h / c.rows);
    a.portions = (unsigned)(((int)s->n + c.images - 1) / c.images * a.per_image);
    return a;
}

cudaError_t cuda_strip_d_weights(const struct cuda_conv_shape *shape, int splits, void *d_weights,
                                 const void *src, const void *d_dst, void *scratch,
                                 cudaStream_t stream)
{
    const struct grad_case *c = case_for(shape);
    if (!c || splits < 1 || splits > MOST_SPLITS)
        return cudaErrorInvalidValue;
    struct grad_args a = args_of(*c, shape);
    a.partial = splits > 1 ? (float4 *)scratch : NULL;
    a.d_weights = (bf16 *)d_weights;
    CUtensorMap src_map, d_dst_map;
    const struct grad_image source =
        image_of(shape, src, shape->h, shape->w, shape->c, shape->stride);
    const struct grad_image gradient =
        image_of(shape, d_dst, shape->out_h, shape->out_w, shape->k, 1);
    cudaError_t error = map_image(&src_map, *c, source, c->border);
    if (error == cudaSuccess)
        error = map_image(&d_dst_map, *c, gradient, 0);
    if (error == cudaSuccess)
        error = allow_shared((const void *)c->function);
    if (error != cudaSuccess)
        return error;
    const dim3 grid((unsigned)splits, (unsigned)a.tiles);
    c->function<<<grid, c->threads, (size_t)c->shared, stream>>>(a, src_map, d_dst_map);
    error = cudaGetLastError();
    return error == cudaSuccess && a.partial ? c->add(a, splits, stream) : error;
}
