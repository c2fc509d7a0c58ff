/*
 * Element by element: ReLU, sums, scaling by one factor or one per channel; and copies from one
 * layout to another.
 *
 * Where nothing depends on the channel an image is a flat array. Padding is part of it: all of
 * these functions map 0 to 0.
 */
#include "backend/cpu/cpu_kernels.h"

#include "backend/cpu/cpu_tile.h"

#include <string.h>

/* ---- flat arrays ------------------------------------------------------------------------------ */

CPU_CLONES static void relu_range(float *dst, const float *src, struct cpu_range range)
{
    CPU_SIMD
    for (int64_t i = range.begin; i < range.end; i++)
        dst[i] = src[i] < 0 ? 0 : src[i];
}

void cpu_relu(float *dst, const float *src, int64_t count, int threads)
{
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        relu_range(dst, src, cpu_part(count, t, threads));
}

CPU_CLONES static void relu_grad_range(float *d_src, const float *d_dst, const float *dst,
                                       struct cpu_range range)
{
    CPU_SIMD
    for (int64_t i = range.begin; i < range.end; i++)
        d_src[i] = cpu_keep_if(d_dst[i], !(dst[i] <= 0));
}

void cpu_relu_grad(float *d_src, const float *d_dst, const float *dst, int64_t count, int threads)
{
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        relu_grad_range(d_src, d_dst, dst, cpu_part(count, t, threads));
}

CPU_CLONES static void add_pair(float *dst, const float *a, const float *b, struct cpu_range range)
{
    CPU_SIMD
    for (int64_t i = range.begin; i < range.end; i++)
        dst[i] = a[i] + b[i];
}

enum { ADD_CHUNK = 1024 };

/* A chunk at a time, beside dst: dst may be one of the operands that are still to come. */
CPU_CLONES static void add_many(float *dst, float *const *src, int n, struct cpu_range range)
{
    float sum[ADD_CHUNK];
    for (int64_t begin = range.begin; begin < range.end; begin += ADD_CHUNK) {
        const int64_t count = cpu_min(ADD_CHUNK, range.end - begin);
        memcpy(sum, src[0] + begin, (size_t)count * sizeof *sum);
        for (int k = 1; k < n; k++) {
            const float *term = src[k] + begin;
            CPU_SIMD
            for (int64_t i = 0; i < count; i++)
                sum[i] += term[i];
        }
        memcpy(dst + begin, sum, (size_t)count * sizeof *sum);
    }
}

void cpu_add(float *dst, float *const *src, int n, int64_t count, int threads)
{
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++) {
        const struct cpu_range range = cpu_part(count, t, threads);
        if (n == 2)
            add_pair(dst, src[0], src[1], range);
        else
            add_many(dst, src, n, range);
    }
}

CPU_CLONES static void scale_range(float *dst, const float *src, float factor,
                                   struct cpu_range range)
{
    CPU_SIMD
    for (int64_t i = range.begin; i < range.end; i++)
        dst[i] = src[i] * factor;
}

void cpu_scale(float *dst, const float *src, const float *factor, int64_t count, int threads)
{
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        scale_range(dst, src, *factor, cpu_part(count, t, threads));
}

/* sum a b over a range, in sixteen sums that are added up in the end. */
CPU_CLONES static double dot_range(const float *a, const float *b, struct cpu_range range)
{
    double sum[CPU_LANES] = {0};
    int64_t i = range.begin;
    for (; i + CPU_LANES <= range.end; i += CPU_LANES) {
        CPU_SIMD
        for (int k = 0; k < CPU_LANES; k++)
            sum[k] += (double)a[i + k] * (double)b[i + k];
    }
    double total = 0;
    for (; i < range.end; i++)
        total += (double)a[i] * (double)b[i];
    for (int k = 0; k < CPU_LANES; k++)
        total += sum[k];
    return total;
}

/* d_factor = sum d_dst src, d_src = factor d_dst. d_src comes last: it may lie on src. */
void cpu_scale_grad(const struct cpu_scale_grad *args, int threads)
{
    enum { PARTS = CPU_FLAT_SCRATCH_FLOATS / 2 }; /* doubles */
    if (args->d_factor) {
        double *partial = (void *)args->scratch;
        CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
        for (int part = 0; part < PARTS; part++)
            partial[part] = dot_range(args->d_dst, args->src, cpu_part(args->count, part, PARTS));
        double sum = 0;
        for (int part = 0; part < PARTS; part++)
            sum += partial[part];
        *args->d_factor = (float)sum;
    }
    if (args->d_src)
        cpu_scale(args->d_src, args->d_dst, args->factor, args->count, threads);
}

/* ---- one factor per channel --------------------------------------------------------------------- */

CPU_INLINE void scale_rows(float *dst, const float *src, const float *m, int64_t rows,
                           int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        CPU_SIMD
        for (int64_t i = 0; i < width; i++)
            dst[at + i] = src[at + i] * m[i];
    }
}

/* Channels past c have no m, and zeros that stay; only widths 8 and 16 have any. */
CPU_INLINE void scale_tile(float *dst, const float *src, const float *m, int64_t n_channels,
                           struct cpu_tile tile)
{
    if (tile.width != CPU_LANES && tile.width != CPU_LANES / 2) {
        scale_rows(dst, src, m + tile.channel, tile.rows, tile.width);
        return;
    }
    float lanes[CPU_LANES];
    for (int i = 0; i < CPU_LANES; i++) {
        const int64_t c = tile.channel + (tile.planar ? 0 : i);
        lanes[i] = c < n_channels ? m[c] : 0;
    }
    if (tile.width == CPU_LANES)
        scale_rows(dst, src, lanes, tile.rows, CPU_LANES);
    else
        scale_rows(dst, src, lanes, tile.rows, CPU_LANES / 2);
    if (tile.tail > 0) {
        const int64_t at = tile.rows * CPU_LANES;
        scale_rows(dst + at, src + at, lanes, 1, tile.tail);
    }
}

CPU_CLONES static void scale_channel_range(const struct cpu_scale_channel *args,
                                           struct cpu_image image, struct cpu_range range)
{
    for (int64_t index = range.begin; index < range.end; index++) {
        const struct cpu_tile tile = cpu_tile_at(image, index);
        scale_tile(args->dst + tile.offset, args->src + tile.offset, args->m, image.c, tile);
    }
}

void cpu_scale_channel(const struct cpu_scale_channel *args, int threads)
{
    const struct cpu_image image = cpu_image_normal(args->image);
    const int64_t count = image.n * cpu_image_tiles(image);
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        scale_channel_range(args, image, cpu_part(count, t, threads));
}

CPU_INLINE void dot_rows(double *sum, const float *a, const float *b, int64_t rows, int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        CPU_SIMD
        for (int64_t i = 0; i < width; i++)
            sum[i] += (double)a[at + i] * (double)b[at + i];
    }
}

CPU_INLINE void dot_tile(double *sums, const float *a, const float *b, struct cpu_tile tile)
{
    sums += tile.channel;
    if (!tile.planar && tile.width != CPU_LANES) {
        dot_rows(sums, a, b, tile.rows, tile.width);
        return;
    }
    double sum[CPU_LANES] = {0};
    dot_rows(sum, a, b, tile.rows, CPU_LANES);
    if (tile.tail > 0) {
        const int64_t at = tile.rows * CPU_LANES;
        dot_rows(sum, a + at, b + at, 1, tile.tail);
    }
    for (int i = 0; i < CPU_LANES; i++)
        sums[tile.planar ? 0 : i] += sum[i];
}

CPU_CLONES static void dot_part(const struct cpu_scale_channel_grad *args, struct cpu_image image,
                                int64_t part)
{
    const struct cpu_parts parts = cpu_image_parts(image);
    const struct cpu_range images = cpu_part(image.n, part / parts.tiles, parts.images);
    const int64_t per_image = cpu_image_tiles(image);
    const struct cpu_range tiles = cpu_part(per_image, part % parts.tiles, parts.tiles);
    double *sums = (void *)args->scratch;
    sums += part / parts.tiles * cpu_image_channels(image);

    for (int64_t n = images.begin; n < images.end; n++) {
        for (int64_t t = tiles.begin; t < tiles.end; t++) {
            const struct cpu_tile tile = cpu_tile_at(image, n * per_image + t);
            dot_tile(sums, args->d_dst + tile.offset, args->src + tile.offset, tile);
        }
    }
}

/* d_m = sum d_dst src, d_src = m d_dst. d_src comes last: it may lie on src. */
void cpu_scale_channel_grad(const struct cpu_scale_channel_grad *args, int threads)
{
    const struct cpu_image image = cpu_image_normal(args->image);
    if (args->d_m) {
        const int64_t channels = cpu_image_channels(image);
        const struct cpu_parts parts = cpu_image_parts(image);
        double *sums = (void *)args->scratch;
        memset(sums, 0, (size_t)(parts.images * channels) * sizeof *sums);
        CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
        for (int64_t part = 0; part < parts.images * parts.tiles; part++)
            dot_part(args, image, part);
        cpu_parts_add(sums, parts.images, channels);
        for (int64_t c = 0; c < image.c; c++)
            args->d_m[c] = (float)sums[c];
    }
    if (args->d_src) {
        const struct cpu_scale_channel scale = {image, args->d_dst, args->m, args->d_src};
        cpu_scale_channel(&scale, threads);
    }
}

/* ---- layouts ---------------------------------------------------------------------------------- */

enum { REORDER_ROWS = 16 }; /* so many positions at a time keep both sides in the cache */

/* One picture's block of dst, [spatial][dst_block], out of an image of any layout. */
static void reorder_block(float *dst, int64_t dst_block, const float *src, struct cpu_image image,
                          int64_t first_channel)
{
    for (int64_t begin = 0; begin < image.spatial; begin += REORDER_ROWS) {
        const int64_t end = cpu_min(begin + REORDER_ROWS, image.spatial);
        for (int64_t i = 0; i < dst_block; i++) {
            const int64_t c = first_channel + i;
            if (c >= image.c) {
                for (int64_t s = begin; s < end; s++)
                    dst[s * dst_block + i] = 0;
                continue;
            }
            const float *from = src + cpu_channel_offset(image, c);
            for (int64_t s = begin; s < end; s++)
                dst[s * dst_block + i] = from[s * image.block];
        }
    }
}

void cpu_reorder(float *dst, int64_t dst_block, const float *src, struct cpu_image image,
                 int threads)
{
    const int64_t src_picture = cpu_image_channels(image) * image.spatial;
    const int64_t blocks = cpu_ceil_div(image.c, dst_block);
    (void)threads; /* without OpenMP */
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int64_t index = 0; index < image.n * blocks; index++)
        reorder_block(dst + index * dst_block * image.spatial, dst_block,
                      src + index / blocks * src_picture, image, index % blocks * dst_block);
}
