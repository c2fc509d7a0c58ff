/*
 * Convolutions of small images by wgmma (cuda_strip.cuh): what descriptors mean, whether results are right, how long
 * they take. Stands alone; the kernels need sm_90a:
 *
 *   nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -cudart static -o strip cuda_strip.cu
 *   ./strip probe         one product, known numbers, every reading of the descriptor
 *   ./strip cases [i]     all convolutions from case i on; the file `last` has the number of the last that began
 *   ./strip early [i]     some of them, each launch beginning before the one before has ended
 */
#include "cuda_strip.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vector>

enum { IMAGES = 128, SETS = 4, LAUNCHES = 48, ROUNDS = 4 };

static void fine(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf(" FAILED: %s: %s\n", what, cudaGetErrorString(error));
    fflush(stdout);
    _exit(3);
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__host__ __device__ static unsigned mixed(unsigned x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* ---- descriptors ---------------------------------------------------------------------------------- */

static strip_fields fields_of(int leading, int stride, int swizzle, bool is_swapped)
{
    const unsigned low = (unsigned)(is_swapped ? stride : leading) / WORD << 16;
    const unsigned high = (unsigned)(is_swapped ? leading : stride) / WORD;
    return {low, high | (unsigned)swizzle << 30};
}

/* 1: 128 bytes, 2: 64, 3: 32; 0: none, planes. */
static int pixel_bytes(int swizzle)
{
    return swizzle == 0 ? 128 : 256 >> swizzle;
}

struct probe_args {
    int swizzle, pitch, rows;
    int tap;  /* pixels from the first */
    int step; /* of 16 channels */
    int base_sign;
    strip_fields a, b;
    float *out; /* [64, 128] */
};

__host__ __device__ static int probe_pixel(int pixel, int channel)
{
    return (int)(mixed(pixel * 64 + channel) % 7) - 3;
}

__host__ __device__ static int probe_weight(int row, int channel)
{
    return (int)(mixed(100000 + row * 16 + channel) % 7) - 3;
}

/* Bits 4 to 6 of an address, or fewer, are those of the row of 128 bytes added without carry. */
__host__ __device__ static unsigned swizzled(unsigned address, int swizzle)
{
    const unsigned mask = swizzle == 0 ? 0 : 7u >> (swizzle - 1);
    return address ^ (address >> 7 & mask) << 4;
}

__global__ void probe_kernel(const probe_args p)
{
    extern __shared__ __align__(1024) char shared[];
    __nv_bfloat16 *weights = reinterpret_cast<__nv_bfloat16 *>(shared); /* [2, 64, 8] */
    char *image = shared + 2048;
    const unsigned image_at = shared_address(image);
    const int pixels = p.pitch * p.rows;
    const int channels = (p.swizzle == 0 ? 128 : 256 >> p.swizzle) / 2;
    const int plane = plane_words(pixels, 64) * WORD;
    for (int i = threadIdx.x; i < 64 * 16; i += blockDim.x)
        weights[i % 16 / 8 * 512 + i / 16 * 8 + i % 8] =
            __float2bfloat16((float)probe_weight(i / 16, i % 16));
    for (int i = threadIdx.x; i < pixels * channels; i += blockDim.x) {
        const int pixel = i / channels;
        const int c = i % channels;
        const unsigned at = p.swizzle == 0
                                ? image_at + c / 8 * plane + pixel * WORD + c % 8 * 2
                                : swizzled(image_at + pixel * channels * 2 + c * 2, p.swizzle);
        *reinterpret_cast<__nv_bfloat16 *>(image + (at - image_at)) =
            __float2bfloat16((float)probe_pixel(pixel, c));
    }
    fence_for_tensor_cores();
    __syncthreads();

    const unsigned at = image_at + (p.swizzle == 0 ? p.tap * WORD + p.step * 2 * plane
                                                   : p.tap * channels * 2 + p.step * 32);
    const unsigned base = (unsigned)(p.base_sign * (int)(at >> 7)) & 7;
    float sums[64];
    keep_in_place(sums);
    products_begin();
    product<128>::add(sums, descriptor(p.a.low | shared_address(weights) / WORD, p.a.high),
                      descriptor(p.b.low | at / WORD, p.b.high | base << 17), 0);
    products_commit();
    products_wait<0>();
    keep_in_place(sums);
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 64; i++) {
        const int row = threadIdx.x / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
        p.out[row * 128 + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
    }
}

/* True: the product is what it is to be, pixels in groups of 8, a row of the picture from group to group. */
static bool probe_one(probe_args p)
{
    enum { SHARED = MAX_SHARED }; /* offsets that are taken for one another lead far */
    std::vector<float> out(64 * 128);
    fine(cudaMemset(p.out, 0xff, out.size() * 4), "clearing");
    fine(cudaFuncSetAttribute(probe_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED),
         "attribute");
    probe_kernel<<<1, 128, SHARED>>>(p);
    fine(cudaGetLastError(), "probe");
    fine(cudaMemcpy(out.data(), p.out, out.size() * 4, cudaMemcpyDeviceToHost), "probe, reading");
    for (int m = 0; m < 64; m++)
        for (int n = 0; n < 128; n++) {
            int sum = 0;
            for (int k = 0; k < 16; k++)
                sum += probe_weight(m, k) *
                       probe_pixel(p.tap + n / 8 * p.pitch + n % 8, p.step * 16 + k);
            if (out[m * 128 + n] != (float)sum)
                return false;
        }
    return true;
}

/* How the hardware reads descriptors. */
struct reading {
    bool swap_a, swap_b;
    int base_sign;
};

/* Right for all taps and steps. Says for which taps, if asked. */
static bool probe_reading(float *out, int swizzle, int pitch, const reading &r, bool is_said)
{
    probe_args p = {};
    p.out = out;
    p.swizzle = swizzle;
    p.pitch = pitch;
    p.rows = 18;
    p.base_sign = r.base_sign;
    p.a = fields_of(1024, 128, 0, r.swap_a);
    p.b = swizzle == 0
              ? fields_of(plane_words(pitch * p.rows, 64) * WORD, pitch * WORD, 0, r.swap_b)
              : fields_of(WORD, pitch * pixel_bytes(swizzle), swizzle, r.swap_b);
    bool is_right = true;
    const int steps = r.swap_b ? 2 : pixel_bytes(swizzle) / 32; /* more would lead too far */
    for (int column = 0; column < 3; column++) {
        bool right = true;
        for (int row = 0; row < 3; row++)
            for (p.step = 0; p.step < steps; p.step++) {
                p.tap = row * pitch + column;
                right = probe_one(p) && right;
            }
        if (is_said)
            printf(" %s", right ? "right" : "wrong");
        is_right = is_right && right;
    }
    return is_right;
}

static const reading READINGS[] = {
    {false, false, 0}, {false, true, 0}, {true, false, 0},   {true, true, 0},
    {false, false, 1}, {true, false, 1}, {false, false, -1}, {true, false, -1},
};

static bool find_reading(float *out, int swizzle, int pitch, reading *found)
{
    for (const reading &r : READINGS) {
        *found = r;
        if ((swizzle == 0 ? r.base_sign == 0 : !r.swap_b) &&
            probe_reading(out, swizzle, pitch, r, false))
            return true;
    }
    *found = READINGS[0];
    return false;
}

static void probe_all(float *out)
{
    static const char *const names[] = {"planes", "swizzled 128", "swizzled 64", "swizzled 32"};
    bool is_known = false; /* how offsets are read */
    for (int swizzle = 0; swizzle < 4; swizzle++)
        for (const reading &r : READINGS) {
            if ((swizzle == 0 ? r.base_sign != 0 : r.swap_b) ||
                (is_known && (r.swap_a || r.swap_b)))
                continue;
            fflush(stdout);
            printf(
                "PROBE %-12s offsets of weights %s, of pixels %s, base offset %2d:", names[swizzle],
                r.swap_a ? "swapped" : "as read", r.swap_b ? "swapped" : "as read", r.base_sign);
            for (int pitch : {34, 18, 40}) {
                printf("  pitch %d, columns 0 1 2:", pitch);
                is_known |= probe_reading(out, swizzle, pitch, r, true);
            }
            printf("\n");
        }
}

/* ---- the copy engine ------------------------------------------------------------------------------- */

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Boxes of `channels` by columns by rows of pictures [n, size, size, c]. */
static bool make_map(CUtensorMap *map, void *data, int n, int size, int c, int box_c, int box_w,
                     int box_h)
{
    void *function = NULL;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found) != cudaSuccess ||
        !function)
        return false;
    const cuuint64_t sizes[] = {(cuuint64_t)c, (cuuint64_t)size, (cuuint64_t)size, (cuuint64_t)n};
    const cuuint64_t pitches[] = {(cuuint64_t)c * 2, (cuuint64_t)c * size * 2,
                                  (cuuint64_t)c * size * size * 2};
    const cuuint32_t box[] = {(cuuint32_t)box_c, (cuuint32_t)box_w, (cuuint32_t)box_h, 1};
    const cuuint32_t steps[] = {1, 1, 1, 1};
    return ((encode_fn)function)(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, sizes, pitches,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 box_c == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                             : CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

enum { BOX_SHARED = 96 << 10 };

__global__ void box_kernel(uint16_t *out, const __grid_constant__ CUtensorMap map, int bytes)
{
    extern __shared__ __align__(1024) char shared[];
    const unsigned at = shared_address(shared) + BOX_SHARED - 8;
    if (threadIdx.x == 0) {
        barrier_init(at, 1);
        barriers_publish();
        barrier_expect(at, bytes);
        copy_box(shared_address(shared), &map, 0, -1, 15, 1, at);
    }
    __syncthreads();
    barrier_wait(at, 0);
    for (int i = threadIdx.x; i < bytes / 2; i += blockDim.x)
        out[i] = reinterpret_cast<const uint16_t *>(shared)[i];
}

/* Does a box lie in shared memory as the products want it? The lower half of the second of two pictures. */
static void probe_box(int c)
{
    const int box_c = c == 32 ? 32 : 64;
    const int count = 2 * 32 * 32 * c;
    const int bytes = 18 * 34 * box_c * 2;
    std::vector<uint16_t> host(count), got(bytes / 2);
    for (int i = 0; i < count; i++)
        host[i] = (uint16_t)(mixed(i) | 1);
    uint16_t *data, *out;
    fine(cudaMalloc(&data, count * 2), "memory");
    fine(cudaMalloc(&out, bytes), "memory");
    fine(cudaMemcpy(data, host.data(), count * 2, cudaMemcpyHostToDevice), "writing");
    CUtensorMap map;
    if (!make_map(&map, data, 2, 32, c, box_c, 34, 18)) {
        printf("PROBE box of %d channels: no map\n", c);
        return;
    }
    fine(cudaFuncSetAttribute(box_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BOX_SHARED),
         "attribute");
    box_kernel<<<1, 128, BOX_SHARED>>>(out, map, bytes);
    fine(cudaGetLastError(), "box");
    fine(cudaMemcpy(got.data(), out, bytes, cudaMemcpyDeviceToHost), "box, reading");
    int wrong = 0;
    for (int i = 0; i < bytes / 2; i++) {
        const int x = i / box_c % 34 - 1;
        const int y = 15 + i / box_c / 34;
        const int channel = i % box_c;
        const bool exists = x >= 0 && x < 32 && y < 32 && channel < c;
        const uint16_t want = exists ? host[((32 + y) * 32 + x) * c + channel] : 0;
        wrong += got[swizzled((unsigned)i * 2, box_c == 32 ? 2 : 1) / 2] != want;
    }
    printf("PROBE box of %d channels: %d of %d numbers wrong\n", c, wrong, bytes / 2);
    cudaFree(data);
    cudaFree(out);
}

/* ---- comparing ------------------------------------------------------------------------------------- */

struct plain_args {
    const __nv_bfloat16 *src, *weights, *residual; /* weights [k, 3, 3, c] */
    const float *bias;
    int c, k, size, relu;
};

__device__ static float plain_sum(const plain_args &p, int n, int y, int x, int k)
{
    float sum = p.bias ? p.bias[k] : 0.0f;
    for (int tap = 0; tap < TAPS; tap++) {
        const int sy = y + tap / 3 - 1;
        const int sx = x + tap % 3 - 1;
        if ((unsigned)sy >= (unsigned)p.size || (unsigned)sx >= (unsigned)p.size)
            continue;
        const __nv_bfloat16 *from = p.src + (int64_t)((n * p.size + sy) * p.size + sx) * p.c;
        const __nv_bfloat16 *w = p.weights + (k * TAPS + tap) * p.c;
        for (int c = 0; c < p.c; c += 8) {
            const uint4 x = *reinterpret_cast<const uint4 *>(from + c);
            const uint4 y = *reinterpret_cast<const uint4 *>(w + c);
            sum += lower_half(x.x) * lower_half(y.x) + upper_half(x.x) * upper_half(y.x);
            sum += lower_half(x.y) * lower_half(y.y) + upper_half(x.y) * upper_half(y.y);
            sum += lower_half(x.z) * lower_half(y.z) + upper_half(x.z) * upper_half(y.z);
            sum += lower_half(x.w) * lower_half(y.w) + upper_half(x.w) * upper_half(y.w);
        }
    }
    return sum;
}

/* worst[0]: the largest difference, worst[1]: the largest result, as bits of floats that are not negative. */
__global__ void compare_kernel(const plain_args p, const __nv_bfloat16 *got, int count, int *worst)
{
    float apart = 0.0f;
    float largest = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int pixel = i / p.k;
        const int x = pixel % p.size;
        const int y = pixel / p.size % p.size;
        float want = plain_sum(p, pixel / p.size / p.size, y, x, i % p.k);
        if (p.residual)
            want += __bfloat162float(p.residual[i]);
        if (p.relu)
            want = fmaxf(want, 0.0f);
        const float difference = fabsf(__bfloat162float(got[i]) - want);
        apart = fmaxf(apart, difference == difference ? difference : 1e30f);
        largest = fmaxf(largest, fabsf(want));
    }
    atomicMax(worst, __float_as_int(apart));
    atomicMax(worst + 1, __float_as_int(largest));
}

/* ---- cases ------------------------------------------------------------------------------------------ */

struct strip_case {
    const char *name;
    const void *kernel;
    int c, k, size, tiles_m, parts, steps, stages, rows, strips, groups, n;
    int threads, shared, pitch, pixel, swizzle, plane, weight_rows;
    bool in_turn, paired, stays;
    strip_layout layout;
    strip_writing writing;
};

template <class P> static strip_case case_of(const char *name)
{
    strip_case s = {};
    s.name = name;
    s.kernel = (const void *)strip_kernel<P>;
    s.c = P::C, s.k = P::K, s.size = P::SIZE;
    s.tiles_m = P::TILES_M, s.parts = P::PARTS, s.steps = P::STEPS, s.stages = P::STAGES;
    s.rows = P::ROWS, s.strips = P::STRIPS, s.groups = P::GROUPS, s.n = P::N;
    s.threads = P::THREADS, s.shared = P::SHARED;
    s.pitch = P::PITCH, s.pixel = P::PIXEL, s.plane = P::PLANE;
    s.swizzle = P::LAYOUT == PLANES ? 0 : P::PIXEL == 64 ? 2 : 1;
    s.weight_rows = P::WEIGHT_ROWS;
    s.in_turn = P::IN_TURN, s.paired = P::PAIRED, s.stays = P::STAYS;
    s.layout = P::LAYOUT, s.writing = P::WRITING;
    return s;
}

/* Both layouts of a plan. */
#define BOTH(c, k, size, ...)                                                                      \
    case_of<plan<c, k, size, PLANES, __VA_ARGS__>>(#c " -> " #k ", " #size "x" #size),             \
        case_of<plan<c, k, size, SWIZZLED, __VA_ARGS__>>(#c " -> " #k ", " #size "x" #size)

static const strip_case CASES[] = {
    BOTH(64, 64, 32, 1, 16, 2, 4, 9, false, PAIRS, 1),
    BOTH(32, 64, 32, 1, 16, 2, 4, 9, false, PAIRS, 1),
    BOTH(64, 32, 32, 1, 32, 1, 4, 9, false, PAIRS, 1, true),
    BOTH(48, 64, 32, 1, 16, 2, 4, 9, false, PAIRS, 1),
    BOTH(64, 128, 16, 2, 16, 1, 4, 9, false, PAIRS, 1),
    BOTH(128, 64, 16, 1, 16, 1, 2, 9, false, PAIRS, 1),
    BOTH(128, 128, 16, 2, 16, 1, 4, 4, false, PAIRS, 1),
    /* 64 -> 64 */
    BOTH(64, 64, 32, 1, 16, 2, 4, 9, true, PAIRS, 1),
    BOTH(64, 64, 32, 1, 16, 2, 4, 9, false, QUADS, 1),
    BOTH(64, 64, 32, 1, 32, 1, 2, 9, false, PAIRS, 1),
    BOTH(64, 64, 32, 1, 32, 1, 2, 9, true, QUADS, 1),
    /* 32 -> 64 */
    BOTH(32, 64, 32, 1, 16, 2, 4, 9, true, PAIRS, 1),
    BOTH(32, 64, 32, 1, 16, 1, 2, 9, false, PAIRS, 2),
    BOTH(32, 64, 32, 1, 16, 1, 2, 9, true, QUADS, 2),
    BOTH(32, 64, 32, 1, 32, 1, 2, 9, false, PAIRS, 1),
    /* 64 -> 32; the last computes zeros besides */
    BOTH(64, 32, 32, 1, 32, 1, 4, 9, true, PAIRS, 1, true),
    BOTH(64, 32, 32, 1, 32, 1, 4, 9, false, QUADS, 1, true),
    BOTH(64, 32, 32, 1, 16, 2, 4, 9, false, PAIRS, 1),
    /* 48 -> 64 */
    BOTH(48, 64, 32, 1, 16, 2, 4, 9, true, PAIRS, 1),
    BOTH(48, 64, 32, 1, 32, 1, 2, 9, false, QUADS, 1),
    /* 16x16; the last has a block for either half of the result's channels */
    BOTH(64, 128, 16, 2, 16, 1, 4, 9, true, PAIRS, 1),
    BOTH(64, 128, 16, 2, 16, 1, 4, 9, false, QUADS, 1),
    BOTH(128, 64, 16, 1, 16, 1, 2, 9, true, QUADS, 1),
    BOTH(128, 128, 16, 2, 16, 1, 4, 4, false, QUADS, 1),
    BOTH(128, 128, 16, 1, 16, 1, 2, 9, false, PAIRS, 1),
    /* more of what pruned networks have */
    BOTH(32, 32, 32, 1, 32, 1, 4, 9, false, PAIRS, 1, true),
    BOTH(32, 32, 32, 1, 16, 1, 2, 9, false, PAIRS, 2, true),
    BOTH(48, 48, 32, 1, 16, 2, 4, 9, false, PAIRS, 1),
    BOTH(64, 64, 16, 1, 16, 1, 2, 9, false, PAIRS, 1),
};

enum { N_CASES = sizeof CASES / sizeof CASES[0], N_EARLY = 14 /* one of every shape */ };

/* The channel that row `row` of a product computes. */
static int strip_channel(int row, strip_writing writing)
{
    const int r = row % 8;
    const bool is_high = row % 16 >= 8;
    return row / 16 * 16 + (writing == PAIRS ? 2 * r + is_high : r / 2 * 4 + r % 2 + 2 * is_high);
}

/* What [k, 3, 3, c] is for the kernel: [part, stage, step, half of a step, row, 8 channels]. Rows of paired plans: five
 * times 32, which are nothing, the taps of the last, the middle, the first row of the kernel, nothing. */
static std::vector<uint16_t> arrange_weights(const strip_case &s, const std::vector<uint16_t> &w)
{
    std::vector<uint16_t> to((size_t)s.parts * s.stages * s.steps * 16 * s.weight_rows);
    size_t i = 0;
    for (int part = 0; part < s.parts; part++)
        for (int stage = 0; stage < s.stages; stage++)
            for (int half = 0; half < s.steps * 2; half++)
                for (int row = 0; row < s.weight_rows; row++)
                    for (int c = 0; c < 8; c++, i++) {
                        const int tap = s.paired ? (3 - row / 32) * 3 + stage : stage;
                        const int k = s.paired
                                          ? strip_channel(row % 32, s.writing)
                                          : part * s.weight_rows + strip_channel(row, s.writing);
                        if (tap >= 0 && tap < TAPS && k < s.k)
                            to[i] = w[((size_t)k * TAPS + tap) * s.c + half * 8 + c];
                    }
    return to;
}

/* Memory of all cases: sets for launches side by side, or in turn. */
struct memory {
    reading readings[3][2]; /* by the swizzle, and by the size of pictures */
    bool is_read[3][2];
    __nv_bfloat16 *src[SETS], *dst[SETS], *residual[SETS];
    __nv_bfloat16 *weights, *arranged;
    float *bias;
    int *worst;
    cudaStream_t stream[SETS];
    cudaEvent_t fork, join[SETS];
};

enum { MOST = IMAGES * 32 * 32 * 64, MOST_WEIGHTS = 160 * 9 * 128 };

__global__ void fill_kernel(__nv_bfloat16 *to, int count, unsigned seed, float scale)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = __float2bfloat16(scale * ((float)(mixed(i + seed) >> 8) / (1 << 23) - 1.0f));
}

static void prepare(memory *m, float *scratch)
{
    for (int swizzle = 0; swizzle < 3; swizzle++)
        for (int i = 0; i < 2; i++)
            m->is_read[swizzle][i] =
                find_reading(scratch, swizzle, i == 0 ? 34 : 18, &m->readings[swizzle][i]);
    for (int i = 0; i < SETS; i++) {
        fine(cudaMalloc(&m->src[i], MOST * 2), "memory");
        fine(cudaMalloc(&m->dst[i], MOST * 2), "memory");
        fine(cudaMalloc(&m->residual[i], MOST * 2), "memory");
        fill_kernel<<<512, 256>>>(m->src[i], MOST, 1000 * i, 1.0f);
        fill_kernel<<<512, 256>>>(m->residual[i], MOST, 7777 + 1000 * i, 1.0f);
        fine(cudaStreamCreateWithFlags(&m->stream[i], cudaStreamNonBlocking), "stream");
        fine(cudaEventCreateWithFlags(&m->join[i], cudaEventDisableTiming), "event");
    }
    fine(cudaMalloc(&m->weights, MOST_WEIGHTS * 2), "memory");
    fine(cudaMalloc(&m->arranged, MOST_WEIGHTS * 2), "memory");
    fine(cudaMalloc(&m->bias, 128 * 4), "memory");
    fine(cudaMalloc(&m->worst, 8), "memory");
    fine(cudaEventCreateWithFlags(&m->fork, cudaEventDisableTiming), "event");
    float bias[128];
    for (int i = 0; i < 128; i++)
        bias[i] = (float)(mixed(i) % 1000) / 500.0f - 1.0f;
    fine(cudaMemcpy(m->bias, bias, sizeof bias, cudaMemcpyHostToDevice), "bias");
    fine(cudaDeviceSynchronize(), "filling");
}

/* A case with all that its launches need. */
struct trial {
    const strip_case *s;
    memory *m;
    CUtensorMap maps[SETS];
    strip_args args;
    bool is_fused;
    int repeat;
    bool is_early; /* launches may begin before the one before has ended */
};

static void launch(const trial &t, int set, cudaStream_t stream)
{
    strip_args a = t.args;
    CUtensorMap map = t.maps[set];
    a.src = t.m->src[set];
    a.dst = t.m->dst[set];
    a.bias = t.is_fused ? t.m->bias : NULL;
    a.residual = t.is_fused ? t.m->residual[set] : NULL;
    a.relu = t.is_fused;
    a.repeat = t.repeat;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(IMAGES * (t.s->size / t.s->rows) / t.s->strips, t.s->parts);
    config.blockDim = dim3(t.s->threads);
    config.dynamicSmemBytes = t.s->shared;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = t.is_early ? 1 : 0;
    void *args[] = {&a, &map};
    fine(cudaLaunchKernelExC(&config, t.s->kernel, args), "launch");
}

/* Share of the largest result. */
static float difference(const trial &t)
{
    const strip_case &s = *t.s;
    const int count = IMAGES * s.size * s.size * s.k;
    fine(cudaMemset(t.m->dst[0], 0xff, (size_t)count * 2), "clearing");
    fine(cudaMemset(t.m->worst, 0, 8), "clearing");
    fine(cudaDeviceSynchronize(), "clearing");
    launch(t, 0, t.m->stream[0]);
    fine(cudaStreamSynchronize(t.m->stream[0]), "kernel");
    const plain_args p = {t.m->src[0],
                          t.m->weights,
                          t.is_fused ? t.m->residual[0] : NULL,
                          t.is_fused ? t.m->bias : NULL,
                          s.c,
                          s.k,
                          s.size,
                          t.is_fused};
    compare_kernel<<<1024, 256>>>(p, t.m->dst[0], count, t.m->worst);
    float worst[2];
    fine(cudaMemcpy(worst, t.m->worst, 8, cudaMemcpyDeviceToHost), "comparing");
    return worst[0] / worst[1];
}

enum way {
    SAME,
    ROTATED,
    BESIDE
}; /* one set of memory; all sets in turn; all sets, each with its stream */

static void enqueue(const trial &t, way w)
{
    cudaStream_t first = t.m->stream[0];
    if (w == BESIDE) {
        fine(cudaEventRecord(t.m->fork, first), "fork");
        for (int i = 1; i < SETS; i++)
            fine(cudaStreamWaitEvent(t.m->stream[i], t.m->fork, 0), "fork");
    }
    for (int i = 0; i < LAUNCHES; i++)
        launch(t, w == SAME ? 0 : i % SETS, w == BESIDE ? t.m->stream[i % SETS] : first);
    for (int i = 1; w == BESIDE && i < SETS; i++) {
        fine(cudaEventRecord(t.m->join[i], t.m->stream[i]), "join");
        fine(cudaStreamWaitEvent(first, t.m->join[i], 0), "join");
    }
}

/* Microseconds of a launch in a graph, the best round. */
static double measure(const trial &t, way w)
{
    cudaStream_t stream = t.m->stream[0];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    fine(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    enqueue(t, w);
    fine(cudaStreamEndCapture(stream, &graph), "capture");
    fine(cudaGraphInstantiate(&exec, graph, 0), "graph");
    fine(cudaEventCreate(&begin), "event");
    fine(cudaEventCreate(&end), "event");
    float best = 1e30f;
    for (int round = 0; round < ROUNDS + 1; round++) {
        float ms;
        fine(cudaEventRecord(begin, stream), "event");
        fine(cudaGraphLaunch(exec, stream), "replay");
        fine(cudaEventRecord(end, stream), "event");
        fine(cudaEventSynchronize(end), "replay");
        fine(cudaEventElapsedTime(&ms, begin, end), "event");
        best = round > 0 && ms < best ? ms : best;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return best * 1000.0 / LAUNCHES;
}

static void load_weights(const strip_case &s, memory *m)
{
    std::vector<uint16_t> w((size_t)s.k * TAPS * s.c);
    for (size_t i = 0; i < w.size(); i++)
        w[i] = to_bf16(((float)(mixed((unsigned)i + 99) >> 8) / (1 << 23) - 1.0f) * 0.1f);
    const std::vector<uint16_t> arranged = arrange_weights(s, w);
    if (arranged.size() > MOST_WEIGHTS)
        fine(cudaErrorInvalidValue, "weights");
    fine(cudaMemcpy(m->weights, w.data(), w.size() * 2, cudaMemcpyHostToDevice), "weights");
    fine(cudaMemcpy(m->arranged, arranged.data(), arranged.size() * 2, cudaMemcpyHostToDevice),
         "weights");
}

static void set_up(trial *t, const strip_case &s, memory *m)
{
    const reading &r = m->readings[s.swizzle][s.size == 16];
    t->s = &s;
    t->m = m;
    t->repeat = 1;
    t->args.weights = m->arranged;
    t->args.a = fields_of(s.weight_rows * WORD, 128, 0, r.swap_a);
    const int stride = (s.layout == PLANES ? WORD : s.pixel) * s.pitch * (s.paired ? 2 : 1);
    t->args.b = s.layout == PLANES ? fields_of(s.plane, stride, 0, r.swap_b)
                                   : fields_of(WORD, stride, s.swizzle, false);
    t->args.base_sign = r.base_sign;
    for (int i = 0; s.layout == SWIZZLED && i < SETS; i++)
        if (!make_map(&t->maps[i], m->src[i], IMAGES, s.size, s.c, s.pixel / 2, s.pitch,
                      s.rows + 2))
            fine(cudaErrorInvalidValue, "map");
    load_weights(s, m);
    fine(cudaFuncSetAttribute(s.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, s.shared),
         "attribute");
    fine(cudaFuncSetAttribute(s.kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared),
         "attribute");
}

static void describe(const strip_case &s)
{
    printf("%-17s %-8s %dx%2d rows, %d groups, n %3d, %s, %-5s%s, %3d KB", s.name,
           s.layout == PLANES ? "planes" : "swizzled", s.strips, s.rows, s.groups, s.n,
           s.in_turn ? "in turn" : "free   ", s.writing == PAIRS ? "pairs" : "quads",
           s.paired      ? ", paired"
           : s.parts > 1 ? ", parts "
           : s.stays     ? ""
                         : ", ring  ",
           (s.shared + 1023) / 1024);
    fflush(stdout);
}

static void run_case(const strip_case &s, memory *m)
{
    trial t = {};
    describe(s);
    set_up(&t, s, m);
    if (!m->is_read[s.swizzle][s.size == 16])
        printf(" (no reading of descriptors is right)");
    const float plain = difference(t);
    t.is_fused = true;
    const float fused = difference(t);
    printf(" | diff %.4f %.4f%s", plain, fused, plain < 0.005f && fused < 0.005f ? "" : " WRONG");
    fflush(stdout);
    double once = 0.0;
    for (int f = 0; f < 2; f++) {
        t.is_fused = f;
        const double same = measure(t, SAME);
        const double rotated = measure(t, ROTATED);
        const double beside = measure(t, BESIDE);
        printf(" | %s %5.1f same %5.1f rotated %5.1f beside", f ? "fused" : "plain", same, rotated,
               beside);
        fflush(stdout);
        once = f ? once : same;
    }
    t.is_fused = false;
    if (s.stays) { /* others have to go through their weights */
        t.repeat = 3;
        printf(" | products %4.1f", (measure(t, SAME) - once) / 2.0);
        t.repeat = 0;
        printf(", without them %4.1f", measure(t, SAME));
    }
    printf(" us\n");
    fflush(stdout);
}

static void run_early(const strip_case &s, memory *m)
{
    trial t = {};
    describe(s);
    set_up(&t, s, m);
    t.is_fused = true;
    const double late = measure(t, SAME);
    t.is_early = true;
    const double early = measure(t, SAME);
    const float apart = difference(t);
    printf(" | fused, same, each after the other %5.1f, early %5.1f us, diff %.4f\n", late, early,
           apart);
    fflush(stdout);
}

static void note_case(int i)
{
    FILE *file = fopen("last", "w");
    if (!file)
        return;
    fprintf(file, "%d\n", i);
    fclose(file);
}

int main(int argc, char **argv)
{
    enum { SECONDS = 4 };
    float *scratch;
    alarm(SECONDS + 4);
    fine(cudaMalloc(&scratch, 64 * 128 * 4), "memory");
    if (argc > 1 && strcmp(argv[1], "probe") == 0) {
        probe_all(scratch);
        for (int c : {64, 48, 32})
            probe_box(c);
        return 0;
    }
    memory m = {};
    prepare(&m, scratch);
    const bool is_early = argc > 1 && strcmp(argv[1], "early") == 0;
    for (int i = argc > 2 ? atoi(argv[2]) : 0; i < (is_early ? N_EARLY : N_CASES); i++) {
        alarm(SECONDS); /* a case that hangs ends the program; the next run begins behind it */
        note_case(i);
        printf("%2d ", i);
        if (is_early)
            run_early(CASES[i], &m);
        else
            run_case(CASES[i], &m);
    }
    return 0;
}
