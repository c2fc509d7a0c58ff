/*
 * Convolutions of thin layers in bf16 on tensor cores: 3x3 and 1x1, stride 1 or 2, channels in sixteens.
 *
 * A block computes NT * 8 result channels of a box of pixels (thin.cuh), a warp MT * 16 of the pixels. Channels of
 * the source come in chunks, each with the weights that belong to it, a few chunks ahead of the one that is
 * multiplied. The gradient of the data is the same sum over weights that are read transposed, with the taps the other
 * way round; behind a stride of 2 it is four sums, one for each corner of 2 x 2 pixels. Bias, residual and ReLU follow
 * in f32 before the result is rounded.
 *
 * Where batch norm follows, the sums that it begins with are added up while results are written. A block then takes
 * one box after the other, so that the parts of these sums are few however many boxes there are. Backwards what follows is
 * the gradient of batch norm; its sums are those of what reaches it (slope.cuh), which is then the result.
 */
#include "backend/cuda/kernels/lanes.cuh"
#include "backend/cuda/kernels/slices.cuh"
#include "backend/cuda/kernels/slope.cuh"
#include "backend/cuda/kernels/thin.cuh"

enum { MAX_THREADS = 256, MAX_STAGES = 4 };

/* SPREAD: backwards through a stride of 2. */
enum thin_way { FORWARDS, BACKWARDS, SPREAD };

__host__ __device__ constexpr int corners_of(thin_way way)
{
    return way == SPREAD ? 4 : 1;
}

/* The corner of 2 x 2 pixels that a tap belongs to: even rows of the result see the middle of the kernel alone. */
__host__ __device__ constexpr int corner_of(thin_way way, int taps, int tap)
{
    return way != SPREAD || taps == 1 ? 0 : (tap / 3 % 2 == 0) * 2 + (tap % 3 % 2 == 0);
}

struct thin_args {
    struct thin_box box;
    int k;                   /* channels of the result */
    int n_chunks, n_stages;  /* n_stages: chunks that are in shared memory at a time, and at most one fewer to come */
    int weights_at;          /* bytes from a stage's source pixels to its weights */
    int stage_bytes, out_at; /* out_at: where results are gathered */
    int lines_at;            /* backwards: a and b of the channels of a block (slope.cuh) */
    int weights_pitch;       /* bytes */
    bf16 *dst;
    const bf16 *src, *weights, *residual;
    const float *bias;
    bool relu;
    float *sums; /* for batch norm, one part for each block of a channel; or NULL */
};

/* ---- into shared memory ------------------------------------------------------------------------- */

/* Rows of weights, a few words each, every thread the same word of every `turn`th row. Rows from n_exist on are zeros. */
__device__ static void fetch_rows(const struct thin_args &a, unsigned to, const bf16 *from,
                                  int pitch, int row, int turn, int n_rows, int n_exist)
{
    to += row * a.weights_pitch;
    from += row * pitch;
    for (; row < n_rows; row += turn) {
        copy_16<true>(to, row < n_exist ? from : a.weights, row < n_exist);
        to += turn * a.weights_pitch;
        from += turn * pitch;
    }
}

/* Weights of a chunk as [result channel, tap, source channel], or as [source channel, tap, result channel] backwards: rows
 * lie as they do outside, an odd number of words apart. */
template <int NT, int TAPS, thin_way WAY>
__device__ static void fetch_weights(const struct thin_args &a, unsigned to, int first_k,
                                     int first, int width)
{
    if (WAY != FORWARDS) {
        const int row = threadIdx.x / NT;
        const int word = threadIdx.x % NT;
        const int turn = (int)blockDim.x / NT;
        const bool exists = first_k + word * WORD_CHANNELS < a.k;
        if (row < turn)
            fetch_rows(a, to + word * WORD,
                       a.weights + (int64_t)first * TAPS * a.k + first_k + word * WORD_CHANNELS,
                       a.k, row, turn, width * TAPS, exists ? width * TAPS : 0);
        return;
    }
    const int row = divide(threadIdx.x, a.box.per_pixel);
    const int word = (int)threadIdx.x - row * (int)a.box.per_pixel.by;
    if (row < a.box.turn && word * WORD_CHANNELS < width)
        fetch_rows(a, to + word * WORD,
                   a.weights + (int64_t)first_k * TAPS * a.box.c + first + word * WORD_CHANNELS,
                   a.box.c, row, a.box.turn, NT * 8 * TAPS, (a.k - first_k) * TAPS);
}

/* What a block knows of itself. */
struct thin_block {
    struct box_place at;
    int first_k;
    unsigned room; /* shared memory */
};

template <int NT, int TAPS, thin_way WAY>
__device__ static void fetch_chunk(const struct thin_args &a, const struct thin_block &block,
                                   int chunk, unsigned stage)
{
    if (chunk < a.n_chunks) {
        const int first = chunk * a.box.chunk;
        const int width = a.box.c - first < a.box.chunk ? a.box.c - first : a.box.chunk;
        fetch_box(a.box, block.at, stage, a.src, first, width);
        fetch_weights<NT, TAPS, WAY>(a, stage + a.weights_at, block.first_k, first, width);
    }
    copies_commit();
}

/* What a lane writes of its warp's results: the same word of every TURN-th pixel. */
template <int NT> struct lane_share {
    enum { TURN = 32 / NT, OUT_PITCH = NT * WORD + WORD };
    int row, word, k;
    bool counts;
    __device__ lane_share(const struct thin_args &a, const struct thin_block &block)
    {
        const int lane = threadIdx.x % 32;
        row = lane / NT;
        word = lane % NT;
        k = block.first_k + word * WORD_CHANNELS;
        counts = row < TURN && k < a.k;
    }
};

/* The residual goes where the results are gathered, and waits for them there. */
template <int MT, int NT>
__device__ static void fetch_residual(const struct thin_args &a, const struct thin_block &block)
{
    const lane_share<NT> share(a, block);
    const int first_row = threadIdx.x / 32 * MT * 16;
    for (int i = share.row; share.counts && i < MT * 16; i += share.TURN) {
        const int pixel = result_pixel(a.box, block.at, first_row + i);
        copy_16<false>(block.room + a.out_at + (first_row + i) * share.OUT_PITCH +
                           share.word * WORD,
                       a.residual + (int64_t)(pixel < 0 ? 0 : pixel) * a.k + share.k, pixel >= 0);
    }
}

/* Waits until at most n_stages - 2 chunks are on their way, and so the one that is next has come. */
__device__ static void wait_for_chunk(int n_stages)
{
    if (n_stages <= 2)
        copies_wait<0>();
    else if (n_stages == 3)
        copies_wait<1>();
    else
        copies_wait<2>();
    __syncthreads();
}

/* ---- products ------------------------------------------------------------------------------------ */

template <int MT, int NT, int TAPS, thin_way WAY>
__device__ static void multiply_chunk(float (&sums)[corners_of(WAY)][MT][NT][4],
                                      const struct thin_args &a, const unsigned (&pixels)[MT],
                                      unsigned weights, int width)
{
    constexpr bool transposed = WAY != FORWARDS;
    const int pair_pitch = transposed ? STEP * 2 : STEP * TAPS * a.weights_pitch;
    const int step_pitch = transposed ? STEP * TAPS * a.weights_pitch : STEP * 2;
#pragma unroll(TAPS == 1 ? 2 : 1)
    for (int step = 0; step < width / STEP; step++) {
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            unsigned x[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++)
                load_matrices<false>(x[m], pixels[m] + a.box.tap_at[tap] + step * STEP * 2);
            float(&to)[MT][NT][4] = sums[corner_of(WAY, TAPS, tap)];
#pragma unroll
            for (int pair = 0; pair < NT / 2; pair++) {
                unsigned y[4];
                load_matrices<transposed>(y, weights + tap * a.weights_pitch + pair * pair_pitch +
                                                 step * step_pitch);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    multiply(to[m][2 * pair], x[m], y[0], y[1]);
                    multiply(to[m][2 * pair + 1], x[m], y[2], y[3]);
                }
            }
        }
    }
}

/* Of the channels of a lane's word, over the pixels that it has written: sums of them, then of their products with
 * others. */
struct word_sums {
    float x[2 * WORD_CHANNELS];

    __device__ void add(const uint4 &word, const uint4 &times)
    {
        float u[WORD_CHANNELS];
        float v[WORD_CHANNELS];
        vec<bf16, WORD_CHANNELS>::expand(u, word);
        vec<bf16, WORD_CHANNELS>::expand(v, times);
#pragma unroll
        for (int i = 0; i < WORD_CHANNELS; i++) {
            x[i] += u[i];
            x[WORD_CHANNELS + i] += u[i] * v[i];
        }
    }
};

/* Results of a warp by way of shared memory, so that they are written 16 bytes at a time. */
template <int MT, int NT>
__device__ static void gather_results(const float (&sums)[MT][NT][4], const struct thin_args &a,
                                      const struct thin_block &block, char *mine)
{
    constexpr int pitch = lane_share<NT>::OUT_PITCH;
    const int lane = threadIdx.x % 32;
    const float least = a.relu ? 0.0f : -INFINITY;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int k = block.first_k + n * 8 + lane % 4 * 2;
        float2 bias = make_float2(0.0f, 0.0f);
        if (a.bias && k < a.k)
            bias = *reinterpret_cast<const float2 *>(a.bias + k);
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            unsigned *to = reinterpret_cast<unsigned *>(mine + (i * 8 + lane / 4) * pitch +
                                                        n * WORD + lane % 4 * 4);
            float u = sums[i / 2][n][i % 2 * 2] + bias.x;
            float v = sums[i / 2][n][i % 2 * 2 + 1] + bias.y;
            if (a.residual) {
                u += low_of(*to);
                v += high_of(*to);
            }
            *to = packed(larger_or_nan(u, least), larger_or_nan(v, least));
        }
    }
    __syncwarp();
}

/* Sums are those of numbers as they are written: that is what batch norm reads. */
template <int MT, int NT, bool SUMMED>
__device__ static void write_results(const struct thin_args &a, const struct thin_block &block,
                                     const char *mine, int corner, struct word_sums &seen)
{
    const lane_share<NT> share(a, block);
    const int first_row = threadIdx.x / 32 * MT * 16;
    for (int i = share.row; share.counts && i < MT * 16; i += share.TURN) {
        const int pixel = result_pixel(a.box, block.at, first_row + i, corner);
        if (pixel < 0)
            continue;
        const uint4 word =
            *reinterpret_cast<const uint4 *>(mine + i * share.OUT_PITCH + share.word * WORD);
        *reinterpret_cast<uint4 *>(a.dst + (int64_t)pixel * a.k + share.k) = word;
        if (SUMMED)
            seen.add(word, word);
    }
}

/* ---- what reaches batch norm -------------------------------------------------------------------------- */

/* What lies beside the words that a lane writes, a few of them at a time. */
template <int MT, int NT> struct slope_words {
    static constexpr int WORDS = MT * NT / 2; /* in all */
    static constexpr int AT_ONCE = WORDS < 4 ? WORDS : 4;
    static constexpr bool IS_EARLY = WORDS == AT_ONCE; /* on its way while products are computed */
    int at[AT_ONCE]; /* pixel; -1: there is none */
    uint4 src[AT_ONCE], other[AT_ONCE], dst[AT_ONCE];

    __device__ void read_image(uint4 (&to)[AT_ONCE], const bf16 *image, int64_t pitch, int k)
    {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            to[i] = at[i] < 0 ? make_uint4(0, 0, 0, 0)
                              : *reinterpret_cast<const uint4 *>(image + at[i] * pitch + k);
    }

    /* From word `first` on. */
    __device__ void read(const struct thin_args &a, const struct norm_slope &slope,
                         const struct thin_block &block, int first)
    {
        const lane_share<NT> share(a, block);
        const int row = threadIdx.x / 32 * MT * 16 + share.row + first * share.TURN;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            at[i] = share.counts ? result_pixel(a.box, block.at, row + i * share.TURN) : -1;
        read_image(src, slope.src, a.k, share.k);
        if (slope.other)
            read_image(other, slope.other, a.k, share.k);
        if (slope.dst)
            read_image(dst, slope.dst, a.k, share.k);
    }
};

/* lines: [a, b][NT * 8]. */
template <int NT>
__device__ static void prepare_lines(const struct norm_slope &slope, int first_k, float *lines)
{
    for (int i = threadIdx.x; i < NT * 8; i += blockDim.x)
        slope_line(slope, first_k + i, lines[i], lines[NT * 8 + i]);
}

template <int NT>
__device__ static slope_lines<WORD_CHANNELS> lines_of_word(const float *lines, int word)
{
    slope_lines<WORD_CHANNELS> mine;
#pragma unroll
    for (int i = 0; i < WORD_CHANNELS; i++) {
        mine.a[i] = lines[word * WORD_CHANNELS + i];
        mine.b[i] = lines[NT * 8 + word * WORD_CHANNELS + i];
    }
    return mine;
}

__device__ inline uint4 added(const uint4 &u, const uint4 &v)
{
    return make_uint4(added(u.x, v.x), added(u.y, v.y), added(u.z, v.z), added(u.w, v.w));
}

__device__ inline uint4 opened_by(const uint4 &u, const uint4 &v)
{
    return make_uint4(opened_by(u.x, v.x), opened_by(u.y, v.y), opened_by(u.z, v.z),
                      opened_by(u.w, v.w));
}

__device__ inline uint4 opened_by(const slope_lines<WORD_CHANNELS> &lines, const uint4 &u,
                                  const uint4 &src)
{
    return make_uint4(lines.open(0, u.x, src.x), lines.open(2, u.y, src.y),
                      lines.open(4, u.z, src.z), lines.open(6, u.w, src.w));
}

template <int MT, int NT>
__device__ static void write_slope(const struct thin_args &a, const struct norm_slope &slope,
                                   const struct thin_block &block, const char *mine,
                                   const float *lines, const slope_words<MT, NT> &beside,
                                   int first, struct word_sums &seen)
{
    const lane_share<NT> share(a, block);
    const slope_lines<WORD_CHANNELS> norm = lines_of_word<NT>(lines, share.word);
    mine += (share.row + first * share.TURN) * share.OUT_PITCH + share.word * WORD;
#pragma unroll
    for (int i = 0; i < beside.AT_ONCE; i++) {
        uint4 word = *reinterpret_cast<const uint4 *>(mine + i * share.TURN * share.OUT_PITCH);
        if (slope.other)
            word = added(word, beside.other[i]);
        if (slope.dst)
            word = opened_by(word, beside.dst[i]);
        else if (slope.relu)
            word = opened_by(norm, word, beside.src[i]);
        if (beside.at[i] < 0)
            continue;
        *reinterpret_cast<uint4 *>(a.dst + (int64_t)beside.at[i] * a.k + share.k) = word;
        seen.add(word, beside.src[i]);
    }
}

/* ---- sums for batch norm ---------------------------------------------------------------------------- */

/* Lanes have words in turn: NT has to be a power of two. room: [warps][first, second][NT * 8]. */
template <int NT> __device__ static void share_sums(const struct word_sums &seen, float *room)
{
    constexpr int rest = NT / 2; /* sums of a lane, in the end */
    float *mine = room + threadIdx.x / 32 * 2 * NT * 8 + threadIdx.x % NT * WORD_CHANNELS;
    float sums[rest];
    int first = 0;
    scatter<float, 2 * WORD_CHANNELS, rest, 16>::sum(seen.x, sums, first);
#pragma unroll
    for (int i = 0; i < rest; i++) {
        const int at = first + i;
        mine[at / WORD_CHANNELS * NT * 8 + at % WORD_CHANNELS] = sums[i];
    }
}

/* One part of what slices.cuh describes, of the channels that the block has. */
template <int NT>
__device__ static void leave_sums(const struct thin_args &a, int first_k, const float *room)
{
    const int width = slice_width(a.k);
    for (int i = threadIdx.x; i < 2 * NT * 8; i += blockDim.x) {
        const int channel = first_k + i % (NT * 8);
        float sum = 0.0f;
        for (int warp = 0; warp < (int)blockDim.x / 32; warp++)
            sum += room[warp * 2 * NT * 8 + i];
        if (channel < a.k)
            slice_part(a.sums, width, channel / width, (int)gridDim.x,
                       (int)blockIdx.x)[i / (NT * 8) * width + channel % width] = sum;
    }
}

template <int NT>
__device__ static void add_up(const struct thin_args &a, const struct word_sums &seen, int first_k,
                              float *room)
{
    share_sums<NT>(seen, room);
    __syncthreads();
    leave_sums<NT>(a, first_k, room);
}

/* ---- boxes ------------------------------------------------------------------------------------------ */

/* All products of a box. Nobody reads its source any more. */
template <int MT, int NT, int TAPS, thin_way WAY>
__device__ static void multiply_box(float (&sums)[corners_of(WAY)][MT][NT][4],
                                    const struct thin_args &a, const struct thin_block &block)
{
    const int lane = threadIdx.x % 32;
    int pixels[MT]; /* bytes into a stage: the pixel and the half of its channels that a lane names */
#pragma unroll
    for (int m = 0; m < MT; m++)
        pixels[m] =
            source_at(a.box, (threadIdx.x / 32 * MT + m) * 16 + lane % 16) + lane / 16 * WORD;
    const int row = WAY != FORWARDS ? lane % 16 : lane / 16 * 8 + lane % 8;
    const int half = WAY != FORWARDS ? lane / 16 : lane / 8 % 2;
    const int weights = a.weights_at + row * TAPS * a.weights_pitch + half * WORD;

    if (a.residual)
        fetch_residual<MT, NT>(a, block);
    const int ahead = a.n_stages > 1 ? a.n_stages - 1 : 1;
    const unsigned end = block.room + a.n_stages * a.stage_bytes;
    unsigned next = block.room; /* where the next chunk goes */
    for (int chunk = 0; chunk < ahead; chunk++, next += a.stage_bytes)
        fetch_chunk<NT, TAPS, WAY>(a, block, chunk, next);
    unsigned stage = block.room;
    for (int chunk = 0; chunk < a.n_chunks; chunk++) {
        next = next < end ? next : block.room;
        wait_for_chunk(a.n_stages);
        fetch_chunk<NT, TAPS, WAY>(a, block, chunk + ahead, next);
        const int left = a.box.c - chunk * a.box.chunk;
        unsigned from[MT];
#pragma unroll
        for (int m = 0; m < MT; m++)
            from[m] = stage + pixels[m];
        multiply_chunk<MT, NT, TAPS, WAY>(sums, a, from, stage + weights,
                                          left < a.box.chunk ? left : a.box.chunk);
        next += a.stage_bytes;
        stage = stage + a.stage_bytes < end ? stage + a.stage_bytes : block.room;
    }
    __syncthreads(); /* results may be gathered where the last chunk was */
}

template <int MT, int NT, int TAPS, thin_way WAY, bool SUMMED>
__device__ static void compute_box(const struct thin_args &a, const struct thin_block &block,
                                   char *room, struct word_sums &seen)
{
    char *mine = room + a.out_at + threadIdx.x / 32 * MT * 16 * lane_share<NT>::OUT_PITCH;
    float sums[corners_of(WAY)][MT][NT][4] = {};
    multiply_box<MT, NT, TAPS, WAY>(sums, a, block);
#pragma unroll
    for (int corner = 0; corner < corners_of(WAY); corner++) {
        gather_results<MT, NT>(sums[corner], a, block, mine);
        write_results<MT, NT, SUMMED>(a, block, mine, corner, seen);
        __syncwarp();
    }
}

/* Backwards, with sums for the gradient of batch norm. */
template <int MT, int NT, int TAPS>
__device__ static void compute_slope(const struct thin_args &a, const struct norm_slope &slope,
                                     const struct thin_block &block, char *room,
                                     struct word_sums &seen)
{
    char *mine = room + a.out_at + threadIdx.x / 32 * MT * 16 * lane_share<NT>::OUT_PITCH;
    const float *lines = reinterpret_cast<const float *>(room + a.lines_at);
    float sums[1][MT][NT][4] = {};
    slope_words<MT, NT> beside;
    if (beside.IS_EARLY)
        beside.read(a, slope, block, 0);
    multiply_box<MT, NT, TAPS, BACKWARDS>(sums, a, block);
    gather_results<MT, NT>(sums[0], a, block, mine);
#pragma unroll 1
    for (int word = 0; word < beside.WORDS; word += beside.AT_ONCE) {
        if (!beside.IS_EARLY)
            beside.read(a, slope, block, word);
        write_slope<MT, NT>(a, slope, block, mine, lines, beside, word, seen);
    }
}

/* Blocks of the most threads that a multiprocessor has to have registers for; 0: the compiler may choose. What lies beside
 * the results takes so many that it would choose one. */
__host__ __device__ constexpr int resident(thin_way way, bool summed)
{
    return way == BACKWARDS && summed ? 2 : 0;
}

/* SUMMED: with sums for batch norm, and box after box. */
template <int MT, int NT, int TAPS, thin_way WAY, bool SUMMED>
__global__ void __launch_bounds__(MAX_THREADS, resident(WAY, SUMMED))
    thin_kernel(const struct thin_args a, const struct norm_slope slope)
{
    extern __shared__ uint4 words[];
    char *room = reinterpret_cast<char *>(words);
    const int first_k = (int)blockIdx.y * NT * 8;
    struct word_sums seen = {};
    int box = blockIdx.x;
    if constexpr (SUMMED && WAY == BACKWARDS)
        prepare_lines<NT>(slope, first_k, reinterpret_cast<float *>(room + a.lines_at));
    do {
        const struct thin_block block = {place_of(a.box, box), first_k, shared_address(room)};
        if constexpr (SUMMED && WAY == BACKWARDS)
            compute_slope<MT, NT, TAPS>(a, slope, block, room, seen);
        else
            compute_box<MT, NT, TAPS, WAY, SUMMED>(a, block, room, seen);
        box += gridDim.x;
        if (SUMMED)
            __syncthreads(); /* no results are gathered any more where others will be */
    } while (SUMMED && box < a.box.boxes);
    if constexpr (SUMMED)
        add_up<NT>(a, seen, first_k, reinterpret_cast<float *>(room));
}

/* ---- launching ------------------------------------------------------------------------------------ */

typedef void (*thin_function)(const struct thin_args, const struct norm_slope);

/* NULL where sums do not fit into registers: backwards through a stride there are four to a place. Sums for batch norm
 * are left by blocks of 16, 32 and 64 channels; backwards, of 3x3 without a stride. */
template <int MT, int NT, int TAPS, thin_way WAY, bool SUMMED> static thin_function made()
{
    constexpr bool fits = WAY != SPREAD || (MT <= 2 && MT * NT <= 8);
    constexpr bool is_simple = WAY == FORWARDS || (WAY == BACKWARDS && TAPS == 9);
    constexpr bool adds_up = is_simple && (NT & (NT - 1)) == 0;
    if constexpr (!fits || (SUMMED && !adds_up))
        return NULL;
    else
        return thin_kernel<MT, NT, TAPS, WAY, SUMMED>;
}

template <int TAPS, thin_way WAY, bool SUMMED> static thin_function function_of(int rows, int columns)
{
    switch (rows * 100 + columns) {
    case 116:
        return made<1, 2, TAPS, WAY, SUMMED>();
    case 132:
        return made<1, 4, TAPS, WAY, SUMMED>();
    case 148:
        return made<1, 6, TAPS, WAY, SUMMED>();
    case 164:
        return made<1, 8, TAPS, WAY, SUMMED>();
    case 180:
        return made<1, 10, TAPS, WAY, SUMMED>();
    case 216:
        return made<2, 2, TAPS, WAY, SUMMED>();
    case 232:
        return made<2, 4, TAPS, WAY, SUMMED>();
    case 248:
        return made<2, 6, TAPS, WAY, SUMMED>();
    case 264:
        return made<2, 8, TAPS, WAY, SUMMED>();
    case 280:
        return made<2, 10, TAPS, WAY, SUMMED>();
    case 416:
        return made<4, 2, TAPS, WAY, SUMMED>();
    case 432:
        return made<4, 4, TAPS, WAY, SUMMED>();
    default:
        return NULL;
    }
}

template <bool SUMMED>
static thin_function function_for(const struct cuda_conv_shape *shape, bool backwards,
                                  const struct cuda_thin_tile *tile)
{
    const int rows = tile->rows;
    const int columns = tile->columns;
    if (!backwards)
        return shape->r == 1 ? function_of<1, FORWARDS, SUMMED>(rows, columns)
                             : function_of<9, FORWARDS, SUMMED>(rows, columns);
    if (shape->stride == 1)
        return shape->r == 1 ? function_of<1, BACKWARDS, SUMMED>(rows, columns)
                             : function_of<9, BACKWARDS, SUMMED>(rows, columns);
    return shape->r == 1 ? function_of<1, SPREAD, SUMMED>(rows, columns)
                         : function_of<9, SPREAD, SUMMED>(rows, columns);
}

/* Fills in all but the pointers; returns the bytes of shared memory. */
static size_t arrange(const struct cuda_conv_shape *shape, bool backwards, bool residual,
                      const struct cuda_thin_tile *tile, struct thin_args *a)
{
    const int places = tile->rows * 16 * tile->warps;
    const int taps = (int)(shape->r * shape->s);
    const int64_t c = backwards ? shape->k : shape->c;
    const int chunk = tile->chunk < c ? tile->chunk : (int)c;
    a->box = thin_box_of(shape, backwards, log2_above(places, MAX_LOG_PLACES), chunk,
                         tile->warps * 32);
    a->k = (int)(backwards ? shape->c : shape->k);
    a->n_chunks = (a->box.c + chunk - 1) / chunk;
    a->n_stages = tile->stages < a->n_chunks ? tile->stages : a->n_chunks;
    a->weights_pitch = (backwards ? tile->columns : chunk) * 2 + WORD;
    a->weights_at = (int)thin_box_bytes(&a->box);
    a->stage_bytes = a->weights_at + taps * (backwards ? chunk : tile->columns) * a->weights_pitch;
    const int stages = a->n_stages * a->stage_bytes;
    const int gathered = places * (tile->columns * 2 + WORD);
    a->out_at = residual ? stages : 0;
    a->lines_at = a->out_at + gathered > stages ? a->out_at + gathered : stages;
    return (size_t)a->lines_at + (backwards ? 2 * tile->columns * sizeof(float) : 0);
}

static bool is_possible(const struct cuda_conv_shape *shape, bool backwards,
                        const struct cuda_thin_tile *tile)
{
    const int places = tile->rows * 16 * tile->warps;
    const bool is_whole = tile->chunk >= (backwards ? shape->k : shape->c);
    return function_for<false>(shape, backwards, tile) && places <= 1 << MAX_LOG_PLACES &&
           (places & (places - 1)) == 0 && tile->warps * 32 <= MAX_THREADS && tile->chunk > 0 &&
           tile->chunk % STEP == 0 && tile->stages >= (is_whole ? 1 : 2) &&
           tile->stages <= MAX_STAGES;
}

size_t cuda_thin_shared(const struct cuda_conv_shape *shape, bool backwards, bool residual,
                        const struct cuda_thin_tile *tile)
{
    struct thin_args a = {};
    return is_possible(shape, backwards, tile) ? arrange(shape, backwards, residual, tile, &a) : 0;
}

int cuda_thin_boxes(const struct cuda_conv_shape *shape, bool backwards,
                    const struct cuda_thin_tile *tile)
{
    struct thin_args a = {};
    if (!is_possible(shape, backwards, tile) || !function_for<true>(shape, backwards, tile))
        return 0;
    (void)arrange(shape, backwards, false, tile, &a);
    return a.box.boxes;
}

/* parts: of sums for batch norm; 0: there are none, and a block for each box. */
static cudaError_t launch(const struct cuda_conv_shape *shape, const struct cuda_thin_tile *tile,
                          bool backwards, int parts, const struct norm_slope &slope,
                          struct thin_args *a, cudaStream_t stream)
{
    if (!is_possible(shape, backwards, tile))
        return cudaErrorInvalidValue;
    const thin_function function = parts > 0 ? function_for<true>(shape, backwards, tile)
                                             : function_for<false>(shape, backwards, tile);
    const size_t bytes = arrange(shape, backwards, a->residual != NULL, tile, a);
    if (!function || parts > a->box.boxes)
        return cudaErrorInvalidValue;
    const cudaError_t error = allow_shared((const void *)function);
    if (error != cudaSuccess)
        return error;
    const dim3 grid((unsigned)(parts > 0 ? parts : a->box.boxes),
                    (unsigned)((a->k + tile->columns - 1) / tile->columns));
    function<<<grid, (unsigned)tile->warps * 32, bytes, stream>>>(*a, slope);
    return cudaGetLastError();
}

cudaError_t cuda_thin(const struct cuda_conv_shape *shape, const struct cuda_thin_tile *tile,
                      const struct cuda_thin *thin, cudaStream_t stream)
{
    struct thin_args a = {};
    a.dst = (bf16 *)thin->dst;
    a.src = (const bf16 *)thin->src;
    a.weights = (const bf16 *)thin->weights;
    a.bias = thin->bias;
    a.residual = (const bf16 *)thin->residual;
    a.relu = thin->relu;
    return launch(shape, tile, false, 0, {}, &a, stream);
}

cudaError_t cuda_thin_summed(const struct cuda_conv_shape *shape, const struct cuda_thin_tile *tile,
                             const struct cuda_thin *thin, int parts, void *sums,
                             cudaStream_t stream)
{
    struct thin_args a = {};
    if (!sums || parts < 1 || thin->bias || thin->residual || thin->relu)
        return cudaErrorInvalidValue;
    a.dst = (bf16 *)thin->dst;
    a.src = (const bf16 *)thin->src;
    a.weights = (const bf16 *)thin->weights;
    a.sums = (float *)sums;
    return launch(shape, tile, false, parts, {}, &a, stream);
}

cudaError_t cuda_thin_d_src(const struct cuda_conv_shape *shape, const struct cuda_thin_tile *tile,
                            void *d_src, const void *d_dst, const void *weights,
                            cudaStream_t stream)
{
    struct thin_args a = {};
    a.dst = (bf16 *)d_src;
    a.src = (const bf16 *)d_dst;
    a.weights = (const bf16 *)weights;
    return launch(shape, tile, true, 0, {}, &a, stream);
}

cudaError_t cuda_thin_d_src_summed(const struct cuda_conv_shape *shape,
                                   const struct cuda_thin_tile *tile, const void *d_dst,
                                   const void *weights, const struct cuda_bn_grad *bn,
                                   cudaStream_t stream)
{
    struct thin_args a = {};
    struct norm_slope slope;
    if (bn->summed < 1 || !slope_of(shape, bn, &slope))
        return cudaErrorInvalidValue;
    a.dst = (bf16 *)bn->d_dst.data;
    a.src = (const bf16 *)d_dst;
    a.weights = (const bf16 *)weights;
    a.sums = (float *)bn->scratch;
    return launch(shape, tile, true, bn->summed, slope, &a, stream);
}
