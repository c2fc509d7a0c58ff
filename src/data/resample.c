#include "data/resample.h"

#include <assert.h>
#include <math.h>

enum {
    WEIGHT_BITS = 22,                   /* 32 - 8 bits of a pixel - 2 to spare, as in Pillow */
    HALF_UNIT = 1 << (WEIGHT_BITS - 1), /* what rounding starts from */
    RGB = 3
};

/* Makes sure that *block has `bytes` bytes; its content is not kept. */
static bool reserve(struct mem *mem, void **block, size_t *held, size_t bytes)
{
    if (*held >= bytes)
        return true;
    mem_free(mem, *block);
    *block = mem_alloc(mem, bytes, 1);
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

static bool reserve_bytes(struct mem *mem, uint8_t **block, size_t *held, int channels, int height,
                          int width)
{
    void *raw = *block;
    size_t bytes;
    bool done = size_mul((size_t)channels, (size_t)height, &bytes) &&
                size_mul(bytes, (size_t)width, &bytes) && reserve(mem, &raw, held, bytes);
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
        w->n[i] = weigh(centre, stretch, in_size, &w->from[i],
                        w->weight + (size_t)i * (size_t)w->taps);
    }
    return true;
}

/* Weights are not negative and their sum is 1 up to rounding, so only the top needs a limit. */
static uint8_t to_byte(int32_t sum)
{
    int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value > UINT8_MAX ? UINT8_MAX : value);
}

/* One row of one channel. */
static void row_across(uint8_t *dst, const uint8_t *src, ptrdiff_t stride,
                       const struct resample_weights *w, int count)
{
    for (int i = 0; i < count; i++) {
        const int32_t *weight = w->weight + (size_t)i * (size_t)w->taps;
        const uint8_t *pixel = src + w->from[i] * stride;
        int32_t sum = HALF_UNIT;
        for (int k = 0; k < w->n[i]; k++)
            sum += pixel[k * stride] * weight[k];
        dst[i] = to_byte(sum);
    }
}

/* One row of three interleaved channels, which is what JPEG files decode to; `plane` is the
 * distance between the channels of the result. */
static void row_across_rgb(uint8_t *dst, size_t plane, const uint8_t *src,
                           const struct resample_weights *w, int count)
{
    for (int i = 0; i < count; i++) {
        const int32_t *weight = w->weight + (size_t)i * (size_t)w->taps;
        const uint8_t *pixel = src + (ptrdiff_t)w->from[i] * RGB;
        int32_t red = HALF_UNIT;
        int32_t green = HALF_UNIT;
        int32_t blue = HALF_UNIT;
        for (int k = 0; k < w->n[i]; k++, pixel += RGB) {
            red += pixel[0] * weight[k];
            green += pixel[1] * weight[k];
            blue += pixel[2] * weight[k];
        }
        dst[i] = to_byte(red);
        dst[plane + (size_t)i] = to_byte(green);
        dst[2 * plane + (size_t)i] = to_byte(blue);
    }
}

/* Rows [first, first + rows) of the source, resized along x, into work->middle. */
static void pass_across(struct resample *work, const struct image_view *src, int first, int rows,
                        int width)
{
    size_t plane = (size_t)rows * (size_t)width;
    bool is_rgb = src->channels == RGB && src->channel_stride == 1 && src->pixel_stride == RGB;
    for (int y = 0; y < rows; y++) {
        const uint8_t *row = src->data + (first + y) * src->row_stride;
        uint8_t *dst = work->middle + (size_t)y * (size_t)width;
        if (is_rgb) {
            row_across_rgb(dst, plane, row, &work->across, width);
            continue;
        }
        for (int c = 0; c < src->channels; c++)
            row_across(dst + (size_t)c * plane, row + c * src->channel_stride, src->pixel_stride,
                       &work->across, width);
    }
}

/* One row of the result: a weighted sum of rows of the middle. */
static void row_down(uint8_t *restrict dst, int32_t *restrict sums, const uint8_t *restrict src,
                     const int32_t *weight, int n, int width)
{
    for (int x = 0; x < width; x++)
        sums[x] = HALF_UNIT;
    for (int k = 0; k < n; k++) {
        const uint8_t *row = src + (size_t)k * (size_t)width;
        int32_t factor = weight[k];
        for (int x = 0; x < width; x++)
            sums[x] += row[x] * factor;
    }
    for (int x = 0; x < width; x++)
        dst[x] = to_byte(sums[x]);
}

static void pass_down(struct resample *work, int channels, int first, int rows, int height,
                      int width)
{
    for (int c = 0; c < channels; c++) {
        const uint8_t *plane = work->middle + (size_t)c * (size_t)rows * (size_t)width;
        uint8_t *dst = work->result + (size_t)c * (size_t)height * (size_t)width;
        for (int y = 0; y < height; y++)
            row_down(dst + (size_t)y * (size_t)width, work->sums,
                     plane + (size_t)(work->down.from[y] - first) * (size_t)width,
                     work->down.weight + (size_t)y * (size_t)work->down.taps, work->down.n[y],
                     width);
    }
}

enum der_status resample_apply(struct resample *work, const struct image_view *src,
                               const struct resample_axis *across,
                               const struct resample_axis *down, struct image_view *out)
{
    if (!plan_axis(work->mem, &work->across, across, src->width) ||
        !plan_axis(work->mem, &work->down, down, src->height))
        return DER_NOMEM;
    int width = across->count;
    int height = down->count;
    int first = work->down.from[0];
    int rows = work->down.from[height - 1] + work->down.n[height - 1] - first;
    if (!reserve_bytes(work->mem, &work->middle, &work->middle_bytes, src->channels, rows, width) ||
        !reserve_bytes(work->mem, &work->result, &work->result_bytes, src->channels, height,
                       width) ||
        !reserve_ints(work->mem, &work->sums, &work->sums_bytes, (size_t)width))
        return DER_NOMEM;
    pass_across(work, src, first, rows, width);
    pass_down(work, src->channels, first, rows, height, width);
    *out = (struct image_view){.data = work->result,
                               .channels = src->channels,
                               .height = height,
                               .width = width,
                               .channel_stride = (ptrdiff_t)height * width,
                               .row_stride = width,
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
    mem_free(work->mem, work->middle);
    mem_free(work->mem, work->result);
    mem_free(work->mem, work->sums);
    *work = (struct resample){.mem = work->mem};
}
