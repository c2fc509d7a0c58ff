/*
 * How batch norm walks an image, forward and backward: two sums over the rows of every channel, then
 * each row once more with what follows from them.
 *
 * A block works on a slice of at most 64 channels: a thread owns V neighbouring ones and goes down the
 * rows. The blocks that share a slice leave their sums as partial ones, and every block of the second
 * launch adds up all of its slice itself, in the same order: none waits for a last one. On sm_90 the
 * second launch begins before the first has ended, and waits for it where it needs the sums.
 *
 * Images that fit into the registers of a few blocks are read once, on sm_90: the blocks of a slice are a cluster, which
 * the GPU runs all at once, and read each other's sums.
 *
 * What is computed is a type OP (norm.cu, norm_grad.cu):
 *
 *   OP::args, OP::number, OP::V       struct of kernels.h, type of images, channels of a thread
 *   OP::DEPTH, OP::RESIDENT           rows that a thread has under way, blocks of a multiprocessor
 *   OP::row                           V channels of a row as memory has them
 *   OP::fetch(args, row, c)           reads them for the sums
 *   OP::sum(args, row, c, r, sums)    adds to [2 V] sums
 *   OP::is_early(args)                whether refetch() reads nothing that sum() wrote
 *   OP::refetch(args, row, c)         reads them for the second pass
 *   OP::COEFS, OP::finish(args, c, first, second, is_writer, coefs)   sums of a channel to coefficients
 *   OP::apply(args, row, c, r, coefs)
 *   OP::settle(args, row, c, r, sums)  as sum(); r becomes what the next one wants
 *   OP::apply_settled(args, row, c, r, coefs)
 */
#ifndef CUDA_NORM_CUH
#define CUDA_NORM_CUH

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/lanes.cuh"
#include "backend/cuda/kernels/slices.cuh"

enum {
    VECTOR = 8,
    NORM_THREADS = 512,
    NORM_WARPS = NORM_THREADS / 32,
    SUMS_BLOCKS = 128, /* nearly one for each multiprocessor of an H200; all that each leaves is read by all */
    APPLY_BLOCKS = 256,
    COLUMNS_MAX = 2 * SLICE_MAX,
    ROWS_MAX = 1 << 29
};

struct walk {
    int rows; /* at most ROWS_MAX, so that those ahead can be numbered too */
    int64_t stored;
    int slices;
    int parts;  /* blocks that share a slice in this launch */
    int summed; /* partial sums of a slice; 0: there are none */
};

/* Numbers of f32 images lose digits when their mean is folded into another coefficient; those of bf16
 * images have none to lose. */
template <typename T> struct means {
    enum { APART = sizeof(T) == 4 };
};

static inline bool vectors_fit(const struct cuda_rows *m)
{
    return !m->data ||
           ((uintptr_t)m->data % 16 == 0 && m->pitch % VECTOR == 0 && m->stored % VECTOR == 0);
}

/* ---- two launches that overlap (sm_90) ------------------------------------------------------------ */

/* In the first: the second may begin, as far as there is room. */
__device__ inline void let_second_begin(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* In the second: until the first has ended and what it wrote can be seen. */
__device__ inline void wait_for_first(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- sums ---------------------------------------------------------------------------------------- */

/* A block's slice is CX threads of V channels wide; two sums per channel make its columns. */
template <int V, int CX> struct slice_of {
    enum { WIDTH = V * CX, COLUMNS = 2 * WIDTH, ROWS = NORM_THREADS / CX };
    /* Lanes of a warp that hold the same channels share their 2 V columns: each ends with so many. */
    enum { REST = COLUMNS / 32 };
};

/* Where a thread of a block stands. */
template <int V, int CX> struct stand {
    int64_t c;
    int row, step;

    __device__ stand(const struct walk &w)
        : c((int64_t)blockIdx.x * (V * CX) + threadIdx.x % CX * V),
          row((int)(blockIdx.y * (NORM_THREADS / CX) + threadIdx.x / CX)),
          step(w.parts * (NORM_THREADS / CX))
    {
        if (c >= w.stored)
            row = w.rows; /* there are no such channels */
    }
};

struct norm_room {
    double warps[NORM_WARPS][COLUMNS_MAX];
    double mine[COLUMNS_MAX];   /* sums of this block */
    double totals[COLUMNS_MAX]; /* of all */
    float coefs[4][SLICE_MAX];
};

/* Sums of GROUPS rows of room.warps, column by column. */
template <int COLUMNS, int GROUPS>
__device__ void add_groups(struct norm_room &room, double (&sums)[COLUMNS_MAX])
{
    __syncthreads();
    if (threadIdx.x < COLUMNS) {
        double part[4] = {0.0, 0.0, 0.0, 0.0};
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
            part[group % 4] += room.warps[group][threadIdx.x];
        sums[threadIdx.x] = (part[0] + part[1]) + (part[2] + part[3]);
    }
    __syncthreads();
}

/* room.mine = the sums of all threads of the block; sums: [0, V) the first, [V, 2 V) the second. */
template <typename A, int V, int CX>
__device__ void block_columns(const A (&sums)[2 * V], struct norm_room &room)
{
    typedef slice_of<V, CX> slice;
    A mine[slice::REST];
    int first = 0;
    scatter<A, 2 * V, slice::REST, 16>::sum(sums, mine, first);
#pragma unroll
    for (int i = 0; i < slice::REST; i++) {
        const int channel = threadIdx.x % CX * V + (first + i) % V;
        room.warps[threadIdx.x / 32][(first + i) / V * slice::WIDTH + channel] = (double)mine[i];
    }
    add_groups<slice::COLUMNS, NORM_WARPS>(room, room.mine);
}

/* Partial sums: [slice][part][COLUMNS]; as exact as what a thread adds up, since all of them are read by all blocks. */
template <typename A, int COLUMNS>
__device__ void leave_partial(A *partial, const struct walk &w, const struct norm_room &room)
{
    const int64_t part = (int64_t)blockIdx.x * w.summed + blockIdx.y;
    if (threadIdx.x < COLUMNS)
        partial[part * COLUMNS + threadIdx.x] = (A)room.mine[threadIdx.x];
}

/* Neighbouring numbers that are read at once, from where other blocks have written them. */
template <int BYTES> struct word;
template <> struct word<4> {
    typedef unsigned type;
};
template <> struct word<8> {
    typedef uint2 type;
};
template <> struct word<16> {
    typedef uint4 type;
};
template <typename A, int N> union pack {
    typename word<N * sizeof(A)>::type raw;
    A x[N];
};

template <typename A, int COLUMNS>
__device__ void add_partial(const A *partial, const struct walk &w, struct norm_room &room)
{
    enum { MOST = 16 / (int)sizeof(A), PER_WARP = COLUMNS / 32 };
    enum { N = (int)MOST < (int)PER_WARP ? (int)MOST : (int)PER_WARP }; /* no more groups than room.warps has */
    enum { PACKS = COLUMNS / N, GROUPS = NORM_THREADS / PACKS };
    enum { AT_ONCE = 4 }; /* the second level of the cache takes its time */
    typedef pack<A, N> numbers;
    const numbers *mine = (const numbers *)partial + (int64_t)blockIdx.x * w.summed * PACKS;
    const int at = threadIdx.x % PACKS;
    const int group = threadIdx.x / PACKS;
    A sums[N] = {};
    for (int part = group; part < w.summed; part += AT_ONCE * GROUPS) {
        numbers more[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (part + k * GROUPS < w.summed)
                more[k].raw = __ldcg(&mine[(part + k * GROUPS) * PACKS + at].raw);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
            for (int i = 0; i < N; i++)
                sums[i] += part + k * GROUPS < w.summed ? more[k].x[i] : (A)0;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        room.warps[group][at * N + i] = (double)sums[i];
    add_groups<COLUMNS, GROUPS>(room, room.totals);
}

/* ---- kernels ------------------------------------------------------------------------------------- */

/* Coefficients of this thread's channels, from room.totals. */
template <typename OP, int CX> struct coefs {
    float x[OP::COEFS][OP::V];

    __device__ void make(const typename OP::args &args, struct norm_room &room, int64_t stored)
    {
        enum { WIDTH = OP::V * CX };
        const int i = threadIdx.x;
        const int64_t channel = (int64_t)blockIdx.x * WIDTH + i;
        if (i < WIDTH && channel < stored) {
            float mine[OP::COEFS] = {};
            if (channel < args.src.cols)
                OP::finish(args, channel, room.totals[i], room.totals[WIDTH + i], blockIdx.y == 0,
                           mine);
#pragma unroll
            for (int k = 0; k < OP::COEFS; k++)
                room.coefs[k][i] = mine[k];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < OP::COEFS; k++)
#pragma unroll
            for (int v = 0; v < OP::V; v++)
                x[k][v] = room.coefs[k][threadIdx.x % CX * OP::V + v];
    }
};

template <typename OP, int CX>
__global__ void __launch_bounds__(NORM_THREADS, OP::RESIDENT)
    norm_sums_kernel(const typename OP::args args, const struct walk w)
{
    typedef typename accumulator<typename OP::number>::type A;
    enum { V = OP::V, DEPTH = OP::DEPTH };
    __shared__ struct norm_room room;
    const stand<V, CX> at(w);
    A sums[2 * V] = {};
    for (int row = at.row; row < w.rows; row += DEPTH * at.step) {
        typename OP::row r[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            if (row + k * at.step < w.rows)
                r[k] = OP::fetch(args, row + k * at.step, at.c);
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            if (row + k * at.step < w.rows)
                OP::sum(args, row + k * at.step, at.c, r[k], sums);
    }
    let_second_begin(); /* earlier, it would take room from other streams only to wait */
    block_columns<A, V, CX>(sums, room);
    leave_partial<A, slice_of<V, CX>::COLUMNS>((A *)args.scratch, w, room);
}

/* Row number i of the second pass. It goes back up, since the cache has the rows that came last. */
__device__ inline int row_back(const struct walk &w, int i)
{
    return w.rows - 1 - i;
}

template <typename OP, int DEPTH>
__device__ void refetch_rows(const typename OP::args &args, const struct walk &w, int i, int step,
                             int64_t c, typename OP::row (&r)[DEPTH])
{
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (i + k * step < w.rows)
            r[k] = OP::refetch(args, row_back(w, i + k * step), c);
}

template <typename OP, int CX>
__global__ void __launch_bounds__(NORM_THREADS, OP::RESIDENT)
    norm_apply_kernel(const typename OP::args args, const struct walk w)
{
    typedef typename accumulator<typename OP::number>::type A;
    enum { V = OP::V, DEPTH = OP::DEPTH };
    __shared__ struct norm_room room;
    const stand<V, CX> at(w);
    typename OP::row r[DEPTH];
    coefs<OP, CX> k_of;
    int i = at.row;
    const bool is_early = w.summed > 0 && OP::is_early(args);
    if (is_early)
        refetch_rows<OP, DEPTH>(args, w, i, at.step, at.c, r);
    wait_for_first();
    if (!is_early)
        refetch_rows<OP, DEPTH>(args, w, i, at.step, at.c, r);
    if (w.summed > 0)
        add_partial<A, slice_of<V, CX>::COLUMNS>((const A *)args.scratch, w, room);
    k_of.make(args, room, w.stored);
    while (i < w.rows) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            if (i + k * at.step < w.rows)
                OP::apply(args, row_back(w, i + k * at.step), at.c, r[k], k_of.x);
        i += DEPTH * at.step;
        refetch_rows<OP, DEPTH>(args, w, i, at.step, at.c, r);
    }
}

/* ---- images that stay in registers (sm_90) ----------------------------------------------------------- */

enum {
    CLUSTER = 8,    /* blocks of a slice, at most what every GPU has room for */
    WHOLE_ROWS = 4, /* of a thread */
    MOST_WHOLE = WHOLE_ROWS * CLUSTER * NORM_THREADS / (SLICE_MAX / VECTOR) /* rows of an image */
};

/* All threads of a cluster meet; what they wrote before is seen behind. */
__device__ inline void cluster_meets(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* What lies in another block's shared memory where `mine` lies in this one's. */
__device__ inline double of_block(const double *mine, unsigned rank)
{
    double x = 0.0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const unsigned here = (unsigned)__cvta_generic_to_shared(mine);
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(x) : "r"(there) : "memory");
#endif
    return x;
}

/* room.totals = the sums of all blocks of a cluster. */
template <int COLUMNS> __device__ void add_cluster(struct norm_room &room)
{
    cluster_meets();
    if (threadIdx.x < COLUMNS) {
        double parts[CLUSTER];
#pragma unroll
        for (unsigned rank = 0; rank < CLUSTER; rank++)
            parts[rank] = of_block(&room.mine[threadIdx.x], rank);
        double sum = 0.0;
#pragma unroll
        for (int rank = 0; rank < CLUSTER; rank++)
            sum += parts[rank];
        room.totals[threadIdx.x] = sum;
    }
    cluster_meets(); /* no block ends, or goes on to write, while others read */
}

template <typename OP, int CX>
__global__ void __launch_bounds__(NORM_THREADS, 1)
    norm_whole_kernel(const typename OP::args args, const struct walk w)
{
    typedef typename accumulator<typename OP::number>::type A;
    enum { V = OP::V, ROWS = WHOLE_ROWS };
    __shared__ struct norm_room room;
    const stand<V, CX> at(w);
    typename OP::row r[ROWS];
    A sums[2 * V] = {};
    coefs<OP, CX> k_of;
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        if (at.row + k * at.step < w.rows)
            r[k] = OP::fetch(args, at.row + k * at.step, at.c);
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        if (at.row + k * at.step < w.rows)
            OP::settle(args, at.row + k * at.step, at.c, r[k], sums);
    block_columns<A, V, CX>(sums, room);
    add_cluster<slice_of<V, CX>::COLUMNS>(room);
    k_of.make(args, room, w.stored);
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        if (at.row + k * at.step < w.rows)
            OP::apply_settled(args, at.row + k * at.step, at.c, r[k], k_of.x);
}

/* ---- launches ------------------------------------------------------------------------------------ */

/* Whether a kernel can begin before the one that it depends on has ended, and blocks of a cluster read what others
 * have. That is up to the code that was loaded: a newer GPU also runs what was made for an older one, which has neither. */
static inline cudaError_t is_hopper(const void *kernel, bool *out)
{
    enum { HOPPER = 90 };
    struct cudaFuncAttributes own = {};
    const cudaError_t error = cudaFuncGetAttributes(&own, kernel);
    *out = own.ptxVersion >= HOPPER;
    return error;
}

enum norm_manner { NORM_ALONE, NORM_OVERLAPS /* the launch before it */, NORM_IN_CLUSTERS };

template <typename ARGS>
static cudaError_t norm_start(void (*kernel)(ARGS, struct walk), const ARGS *args, struct walk w,
                              enum norm_manner manner, cudaStream_t stream)
{
    cudaLaunchAttribute attribute = {};
    if (manner == NORM_IN_CLUSTERS) {
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = 1;
        attribute.val.clusterDim.y = CLUSTER;
        attribute.val.clusterDim.z = 1;
    } else {
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)w.slices, (unsigned)w.parts);
    config.blockDim = dim3(NORM_THREADS);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = manner == NORM_ALONE ? 0 : 1;
    return cudaLaunchKernelEx(&config, kernel, *args, w);
}

static inline int64_t divide_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Blocks for each slice, so that about `blocks` have rows to work on. */
static inline int parts_for(const struct walk *w, int rows, int blocks)
{
    const int64_t useful = divide_up(w->rows, rows);
    const int64_t fair = w->slices < blocks ? blocks / w->slices : 1;
    return (int)(useful < fair ? useful : fair);
}

/* What there is to do. */
struct norm_work {
    bool sums;      /* anything is to be summed */
    int summed;     /* partial sums that are there already, so that the first launch is not needed; 0: none */
    bool with_rows; /* the second pass has rows to write */
};

/* The second pass may have an OP of its own. */
template <typename OP, typename SECOND, int CX>
static cudaError_t norm_passes(const typename OP::args *args, const struct norm_work &work,
                               cudaStream_t stream)
{
    typedef slice_of<OP::V, CX> slice;
    bool overlaps = false;
    cudaError_t error = is_hopper((const void *)norm_apply_kernel<SECOND, CX>, &overlaps);
    if (error != cudaSuccess)
        return error;
    struct walk w = {};
    w.rows = (int)args->src.rows;
    w.stored = args->src.stored;
    w.slices = (int)divide_up(w.stored, slice::WIDTH);
    w.summed = work.summed;
    const bool is_first = work.sums && work.summed == 0;
    if (is_first) {
        w.parts = w.summed = parts_for(&w, slice::ROWS, SUMS_BLOCKS);
        error = norm_start(norm_sums_kernel<OP, CX>, args, w, NORM_ALONE, stream);
        if (error != cudaSuccess)
            return error;
    }
    w.parts = work.with_rows ? parts_for(&w, slice::ROWS, APPLY_BLOCKS) : 1;
    w.rows = work.with_rows ? w.rows : 0;
    return norm_start(norm_apply_kernel<SECOND, CX>, args, w,
                      is_first && overlaps ? NORM_OVERLAPS : NORM_ALONE, stream);
}

/* Larger images, in narrower slices, took longer than two launches do. */
static inline bool is_small(const struct cuda_rows *src)
{
    return src->rows <= MOST_WHOLE && src->stored % SLICE_MAX == 0;
}

template <typename OP>
static cudaError_t norm_whole(const typename OP::args *args, cudaStream_t stream)
{
    enum { CX = SLICE_MAX / VECTOR };
    struct walk w = {};
    w.rows = (int)args->src.rows;
    w.stored = args->src.stored;
    w.slices = (int)(w.stored / SLICE_MAX);
    w.parts = CLUSTER;
    return norm_start(norm_whole_kernel<OP, CX>, args, w, NORM_IN_CLUSTERS, stream);
}

/* Partial sums that are there already have slices of this width. */
template <typename OP, typename SECOND = OP>
static cudaError_t norm_run(const typename OP::args *args, const struct norm_work &work,
                            cudaStream_t stream)
{
    if (args->src.rows > ROWS_MAX)
        return cudaErrorInvalidValue;
    if constexpr ((int)OP::V == (int)VECTOR && sizeof(typename OP::number) == 2) {
        const bool is_whole = work.sums && work.summed == 0 && work.with_rows &&
                              is_small(&args->src) && !args->in_passes;
        bool has_clusters = false;
        const cudaError_t error =
            is_hopper((const void *)norm_whole_kernel<OP, SLICE_MAX / VECTOR>, &has_clusters);
        if (error != cudaSuccess)
            return error;
        if (is_whole && has_clusters)
            return norm_whole<OP>(args, stream);
    }
    if constexpr ((int)OP::V == (int)VECTOR) {
        switch (slice_width(args->src.stored)) {
        case SLICE_MAX:
            return norm_passes<OP, SECOND, SLICE_MAX / VECTOR>(args, work, stream);
        case SLICE_MIN:
            return norm_passes<OP, SECOND, SLICE_MIN / VECTOR>(args, work, stream);
        default:
            return norm_passes<OP, SECOND, SLICE_MAX / 2 / VECTOR>(args, work, stream);
        }
    } else {
        return work.summed > 0 ? cudaErrorInvalidValue
                               : norm_passes<OP, SECOND, SLICE_MIN>(args, work, stream);
    }
}

#endif
