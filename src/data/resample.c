/*
 * Both passes are weighted sums of long contiguous stretches of bytes, which compilers turn into
 * vector code: the picture is transposed, so that a column is such a stretch and the pass along x
 * combines columns, and transposed back for the pass along y.
 */
#include "data/resample.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    WEIGHT_BITS = 22,                   /* 32 - 8 bits of a pixel - 2 to spare, as in Pillow */
    HALF_UNIT = 1 << (WEIGHT_BITS - 1), /* what rounding starts from */
    LANES = 32,                         /* bytes that are summed at once; stretches are multiples */
    TILE = 8                            /* side of the squares that are transposed */
};

/* Makes sure that *block has `bytes` bytes; its content is not kept. New blocks are zeroed, since the
 * unused ends of stretches take part in the arithmetic. */
static bool reserve(struct mem *mem, void **block, size_t *held, size_t bytes)
{
    if (*held >= bytes)
        return true;
    mem_free(mem, *block);
    *block = mem_zalloc(mem, bytes, 1);
    *held = *block ? bytes : 0;
    return *block != NULL;
}

/* The same for an array of int32_t. */
static bool reserve_ints(struct mem *mem, int32_t **block, size_t *held, size_t count)
{
    void *raw = *block;
    size_t bytes;
    bool done = size_mul(count, sizeof **block, &bytes) && reserve(mem, &raw, held, bytes);
    *block = raw;
    return done;
}

static bool reserve_bytes(struct mem *mem, uint8_t **block, size_t *held, size_t n_rows,
                          size_t row_bytes)
{
    void *raw = *block;
    size_t bytes;
    bool done = size_mul(n_rows, row_bytes, &bytes) && reserve(mem, &raw, held, bytes);
    *block = raw;
    return done;
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Weights of one result pixel whose centre lies at `centre`; returns how many there are.
 *   w(x) = triangle((x - centre + 0.5) / stretch), divided by their sum, rounded to 22 bits */
static int weigh(double centre, double stretch, int in_size, int32_t *from, int32_t *weight)
{
    double inverse = 1.0 / stretch;
    int low = (int)(centre - stretch + 0.5);
    if (low < 0)
        low = 0;
    int high = (int)(centre + stretch + 0.5);
    if (high > in_size)
        high = in_size;
    double sum = 0;
    for (int x = low; x < high; x++)
        sum += triangle((x - centre + 0.5) * inverse);
    for (int x = low; x < high; x++) {
        double share = triangle((x - centre + 0.5) * inverse);
        if (sum != 0.0)
            share /= sum;
        weight[x - low] = (int32_t)(0.5 + share * (1 << WEIGHT_BITS));
    }
    *from = low;
    return high - low;
}

static bool plan_axis(struct mem *mem, struct resample_weights *w, const struct resample_axis *axis,
                      int in_size)
{
    assert(axis->size > 0 && axis->first >= 0 && axis->count > 0);
    assert(axis->first + axis->count <= axis->size);
    double scale = (axis->end - axis->begin) / axis->size;
    double stretch = scale < 1.0 ? 1.0 : scale;
    w->taps = (int)ceil(stretch) * 2 + 1;
    size_t n_weights;
    if (!size_mul((size_t)axis->count, (size_t)w->taps, &n_weights) ||
        !reserve_ints(mem, &w->weight, &w->weight_bytes, n_weights) ||
        !reserve_ints(mem, &w->from, &w->from_bytes, (size_t)axis->count) ||
        !reserve_ints(mem, &w->n, &w->n_bytes, (size_t)axis->count))
        return false;
    for (int i = 0; i < axis->count; i++) {
        double centre = axis->begin + (axis->first + i + 0.5) * scale;
        w->n[i] =
            weigh(centre, stretch, in_size, &w->from[i], w->weight + (size_t)i * (size_t)w->taps);
    }
    return true;
}

/* ---- transposing ----------------------------------------------------------------------------- */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "transpose_tile reads bytes upwards");

/* Exchanges the blocks that lie `distance` off the diagonal; `low` masks the lower of each pair. */
static inline void swap_blocks(uint64_t tile[TILE], int distance, uint64_t low)
{
    for (int i = 0; i < TILE; i++) {
        if (i & distance)
            continue;
        uint64_t moved = ((tile[i] >> (8 * distance)) ^ tile[i + distance]) & low;
        tile[i + distance] ^= moved;
        tile[i] ^= moved << (8 * distance);
    }
}

/* 8 x 8 bytes: block matrices of 4, 2 and 1 bytes are transposed one after the other. */
static inline void transpose_tile(uint8_t *dst, size_t dst_stride, const uint8_t *const src[TILE])
{
    uint64_t tile[TILE];
    for (int i = 0; i < TILE; i++)
        memcpy(&tile[i], src[i], TILE);
    swap_blocks(tile, 4, UINT64_C(0x00000000ffffffff));
    swap_blocks(tile, 2, UINT64_C(0x0000ffff0000ffff));
    swap_blocks(tile, 1, UINT64_C(0x00ff00ff00ff00ff));
    for (int i = 0; i < TILE; i++)
        memcpy(dst + (size_t)i * dst_stride, &tile[i], TILE);
}

/* dst[j][i] = src[i][j] for i < n_rows, j < n_columns. Rows of dst have room for n_rows rounded up
 * to whole tiles; what is behind n_rows repeats the last row. */
static void transpose(uint8_t *dst, size_t dst_stride, const uint8_t *src, ptrdiff_t src_stride,
                      int n_rows, int n_columns)
{
    for (int i = 0; i < n_rows; i += TILE) {
        const uint8_t *rows[TILE];
        for (int k = 0; k < TILE; k++)
            rows[k] = src + (i + k < n_rows ? i + k : n_rows - 1) * src_stride;
        int j = 0;
        for (; j + TILE <= n_columns; j += TILE) {
            transpose_tile(dst + (size_t)j * dst_stride + i, dst_stride, rows);
            for (int k = 0; k < TILE; k++)
                rows[k] += TILE;
        }
        for (int k = 0; k < TILE; k++)
            for (int left = j; left < n_columns; left++)
                dst[(size_t)left * dst_stride + (size_t)(i + k)] = rows[k][left - j];
    }
}

/* ---- the two passes -------------------------------------------------------------------------- */

/* dst[i] = sum over k of weight[k] * src[k][i], rounded to a byte. Weights are not negative and
 * their sum is 1 up to rounding, so only the top needs a limit. n is a multiple of LANES. */
static inline void combine_rows(uint8_t *restrict dst, const uint8_t *restrict src, size_t stride,
                                size_t n, const int32_t *restrict weight, int n_weights)
{
    for (size_t at = 0; at < n; at += LANES) {
        int32_t sum[LANES];
        for (int i = 0; i < LANES; i++)
            sum[i] = HALF_UNIT;
        for (int k = 0; k < n_weights; k++) {
            const uint8_t *row = src + (size_t)k * stride + at;
            for (int i = 0; i < LANES; i++)
                sum[i] += row[i] * weight[k];
        }
        for (int i = 0; i < LANES; i++) {
            int32_t value = sum[i] >> WEIGHT_BITS;
            dst[at + (size_t)i] = (uint8_t)(value > UINT8_MAX ? UINT8_MAX : value);
        }
    }
}

/* Rows of a matrix combined to the rows of another, `count` of them; the first row of src is number
 * `first` of what the weights count. */
static inline void combine(uint8_t *dst, const uint8_t *src, size_t stride, int first, int count,
                           const struct resample_weights *w)
{
    for (int i = 0; i < count; i++)
        combine_rows(dst + (size_t)i * stride, src + (size_t)(w->from[i] - first) * stride, stride,
                     stride, w->weight + (size_t)i * (size_t)w->taps, w->n[i]);
}

static void combine_portable(uint8_t *dst, const uint8_t *src, size_t stride, int first, int count,
                             const struct resample_weights *w)
{
    combine(dst, src, stride, first, count, w);
}

#if defined(__x86_64__)
/* The same code with instructions that multiply eight 32-bit numbers at once: sums of whole numbers
 * come out the same, four times as fast. */
__attribute__((target("avx2"))) static void combine_avx2(uint8_t *dst, const uint8_t *src,
                                                         size_t stride, int first, int count,
                                                         const struct resample_weights *w)
{
    combine(dst, src, stride, first, count, w);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define combine_avx2 combine_portable
static bool has_avx2(void)
{
    return false;
}
#endif

static size_t round_up(int n)
{
    return ((size_t)n + LANES - 1) / LANES * LANES;
}

/* Where the source rows (or columns) that an axis needs begin and end. */
static void extent(const struct resample_weights *w, int count, int *first, int *n)
{
    *first = w->from[0];
    *n = w->from[count - 1] + w->n[count - 1] - *first;
}

/* Resizes `channels` interleaved channels (or one plane) that begin at src; see struct resample for
 * the layouts on the way. */
static void resize_strip(struct resample *work, const uint8_t *src, ptrdiff_t row_stride,
                         int channels, int width, int height, uint8_t *dst)
{
    int first_x;
    int n_columns;
    int first_y;
    int n_rows;
    extent(&work->across, width, &first_x, &n_columns);
    extent(&work->down, height, &first_y, &n_rows);
    size_t column = round_up(n_rows);
    size_t row = round_up(width);
    void (*run)(uint8_t *, const uint8_t *, size_t, int, int, const struct resample_weights *) =
        has_avx2() && !work->is_portable ? combine_avx2 : combine_portable;

    transpose(work->columns, column, src + first_y * row_stride + (ptrdiff_t)first_x * channels,
              row_stride, n_rows, n_columns * channels);
    run(work->narrowed, work->columns, column * (size_t)channels, first_x, width, &work->across);
    for (int c = 0; c < channels; c++) {
        transpose(work->rows, row, work->narrowed + (size_t)c * column,
                  (ptrdiff_t)column * channels, width, n_rows);
        run(dst + (size_t)c * (size_t)height * row, work->rows, row, first_y, height, &work->down);
    }
}

static bool reserve_all(struct resample *work, int channels, int width, int height)
{
    int first;
    int n_columns;
    int n_rows;
    extent(&work->across, width, &first, &n_columns);
    extent(&work->down, height, &first, &n_rows);
    size_t column = round_up(n_rows) * (size_t)channels;
    size_t row = round_up(width);
    return reserve_bytes(work->mem, &work->columns, &work->columns_bytes, (size_t)n_columns,
                         column) &&
           reserve_bytes(work->mem, &work->narrowed, &work->narrowed_bytes, (size_t)width,
                         column) &&
           reserve_bytes(work->mem, &work->rows, &work->rows_bytes, (size_t)n_rows, row) &&
           reserve_bytes(work->mem, &work->result, &work->result_bytes,
                         (size_t)channels * (size_t)height, row);
}

enum der_status resample_apply(struct resample *work, const struct image_view *src,
                               const struct resample_axis *across, const struct resample_axis *down,
                               struct image_view *out)
{
    bool is_interleaved = src->channel_stride == 1 && src->pixel_stride == src->channels;
    assert(is_interleaved || src->pixel_stride == 1);
    int width = across->count;
    int height = down->count;
    if (!plan_axis(work->mem, &work->across, across, src->width) ||
        !plan_axis(work->mem, &work->down, down, src->height) ||
        !reserve_all(work, src->channels, width, height))
        return DER_NOMEM;
    size_t row = round_up(width);
    if (is_interleaved)
        resize_strip(work, src->data, src->row_stride, src->channels, width, height, work->result);
    else
        for (int c = 0; c < src->channels; c++)
            resize_strip(work, src->data + c * src->channel_stride, src->row_stride, 1, width,
                         height, work->result + (size_t)c * (size_t)height * row);
    *out = (struct image_view){.data = work->result,
                               .channels = src->channels,
                               .height = height,
                               .width = width,
                               .channel_stride = (ptrdiff_t)row * height,
                               .row_stride = (ptrdiff_t)row,
                               .pixel_stride = 1};
    return DER_OK;
}

void resample_fini(struct resample *work)
{
    struct resample_weights *axes[] = {&work->across, &work->down};
    for (int i = 0; i < 2; i++) {
        mem_free(work->mem, axes[i]->weight);
        mem_free(work->mem, axes[i]->from);
        mem_free(work->mem, axes[i]->n);
    }
    mem_free(work->mem, work->columns);
    mem_free(work->mem, work->narrowed);
    mem_free(work->mem, work->rows);
    mem_free(work->mem, work->result);
    *work = (struct resample){.mem = work->mem, .is_portable = work->is_portable};
}
