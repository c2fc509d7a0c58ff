/*
 * Pooling: the maximum over windows, the mean over whole planes.
 *
 * Windows are walked in the order of memory with all lanes of a block side by side. The gradient
 * of the maximum is gathered, not scattered: every source position asks the few windows that
 * cover it whether they chose it, so lanes stay together and each value is written once.
 */
#include "backend/cpu/cpu_kernels.h"

#include "backend/cpu/cpu_tile.h"

#include <string.h>

/* ---- maximum ---------------------------------------------------------------------------------- */

/* Source positions that window `o` covers along one axis. */
static inline struct cpu_range window_sources(int64_t o, struct pool_attr attr, int64_t size)
{
    const int64_t first = o * attr.stride - attr.pad;
    return (struct cpu_range){first < 0 ? 0 : first, cpu_min(first + attr.kernel, size)};
}

/* Windows that cover source position `i` along one axis. */
static inline struct cpu_range source_windows(int64_t i, struct pool_attr attr, int64_t size)
{
    const int64_t low = i + attr.pad - attr.kernel;
    return (struct cpu_range){low < 0 ? 0 : low / attr.stride + 1,
                              cpu_min((i + attr.pad) / attr.stride + 1, size)};
}

/* One window in some neighbouring lanes, whose positions are `pitch` floats apart. The first of
 * equals wins, as only what is larger replaces it. */
CPU_INLINE void max_window(float best[CPU_LANES], int32_t chosen[CPU_LANES], const float *src,
                           const struct cpu_range window[2], int64_t w, int64_t pitch,
                           int64_t lanes)
{
    const int64_t first = window[0].begin * w + window[1].begin;
    for (int64_t i = 0; i < lanes; i++) {
        best[i] = src[first * pitch + i];
        chosen[i] = (int32_t)first;
    }
    for (int64_t h = window[0].begin; h < window[0].end; h++) {
        for (int64_t at = h * w + window[1].begin; at < h * w + window[1].end; at++) {
            const float *x = src + at * pitch;
            CPU_SIMD
            for (int64_t i = 0; i < lanes; i++) {
                const bool larger = x[i] > best[i];
                best[i] = larger ? x[i] : best[i];
                chosen[i] = larger ? (int32_t)at : chosen[i];
            }
        }
    }
}

CPU_INLINE void max_position(const struct cpu_maxpool *args, const float *src, int64_t out,
                             const struct cpu_range window[2], int64_t pitch, int64_t lanes)
{
    float best[CPU_LANES];
    int32_t chosen[CPU_LANES];
    max_window(best, chosen, src, window, args->shape.w, pitch, lanes);
    memcpy(args->dst + out, best, (size_t)lanes * sizeof *best);
    if (args->index)
        memcpy(args->index + out, chosen, (size_t)lanes * sizeof *chosen);
}

/* One [h][w][width] plane; wide ones in slices of 16 lanes. */
CPU_INLINE void max_plane(const struct cpu_maxpool *args, int64_t plane, int64_t width)
{
    const struct cpu_pool_shape *shape = &args->shape;
    const float *src = args->src + plane * shape->h * shape->w * width;
    int64_t out = plane * shape->out_h * shape->out_w * width;
    for (int64_t h = 0; h < shape->out_h; h++) {
        struct cpu_range window[2] = {window_sources(h, shape->attr, shape->h)};
        for (int64_t w = 0; w < shape->out_w; w++, out += width) {
            window[1] = window_sources(w, shape->attr, shape->w);
            int64_t lane = 0;
            for (; lane + CPU_LANES <= width; lane += CPU_LANES)
                max_position(args, src + lane, out + lane, window, width, CPU_LANES);
            if (lane < width)
                max_position(args, src + lane, out + lane, window, width, width - lane);
        }
    }
}

CPU_CLONES static void max_range(const struct cpu_maxpool *args, struct cpu_range planes)
{
    for (int64_t plane = planes.begin; plane < planes.end; plane++) {
        if (args->shape.block == CPU_LANES)
            max_plane(args, plane, CPU_LANES);
        else if (args->shape.block == CPU_LANES / 2)
            max_plane(args, plane, CPU_LANES / 2);
        else if (args->shape.block == 1)
            max_plane(args, plane, 1);
        else
            max_plane(args, plane, args->shape.block);
    }
}

void cpu_maxpool(const struct cpu_maxpool *args, int threads)
{
    const int64_t planes = args->shape.n * cpu_ceil_div(args->shape.c, args->shape.block);
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        max_range(args, cpu_part(planes, t, threads));
}

/* d_src at one position = sum of d_dst over the windows whose index is this position. */
CPU_INLINE void gather_position(float *d_src, const float *d_dst, const int32_t *index,
                                int32_t position, int64_t width)
{
    CPU_SIMD
    for (int64_t i = 0; i < width; i++)
        d_src[i] += cpu_keep_if(d_dst[i], index[i] == position);
}

CPU_INLINE void max_grad_plane(const struct cpu_maxpool_grad *args, int64_t plane, int64_t width)
{
    const struct cpu_pool_shape *shape = &args->shape;
    const int64_t out = plane * shape->out_h * shape->out_w * width;
    float *d_src = args->d_src + plane * shape->h * shape->w * width;
    for (int64_t h = 0; h < shape->h; h++) {
        const struct cpu_range rows = source_windows(h, shape->attr, shape->out_h);
        for (int64_t w = 0; w < shape->w; w++) {
            const struct cpu_range cols = source_windows(w, shape->attr, shape->out_w);
            const int64_t position = h * shape->w + w;
            float *sum = d_src + position * width;
            memset(sum, 0, (size_t)width * sizeof *sum);
            for (int64_t oh = rows.begin; oh < rows.end; oh++) {
                for (int64_t ow = cols.begin; ow < cols.end; ow++) {
                    const int64_t at = out + (oh * shape->out_w + ow) * width;
                    gather_position(sum, args->d_dst + at, args->index + at, (int32_t)position,
                                    width);
                }
            }
        }
    }
}

CPU_CLONES static void max_grad_range(const struct cpu_maxpool_grad *args, struct cpu_range planes)
{
    for (int64_t plane = planes.begin; plane < planes.end; plane++) {
        if (args->shape.block == CPU_LANES)
            max_grad_plane(args, plane, CPU_LANES);
        else if (args->shape.block == CPU_LANES / 2)
            max_grad_plane(args, plane, CPU_LANES / 2);
        else if (args->shape.block == 1)
            max_grad_plane(args, plane, 1);
        else
            max_grad_plane(args, plane, args->shape.block);
    }
}

void cpu_maxpool_grad(const struct cpu_maxpool_grad *args, int threads)
{
    const int64_t planes = args->shape.n * cpu_ceil_div(args->shape.c, args->shape.block);
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        max_grad_range(args, cpu_part(planes, t, threads));
}

/* ---- mean over a plane -------------------------------------------------------------------------- */

CPU_INLINE void sum_lanes(double sum[CPU_LANES], const float *src, int64_t rows, int64_t pitch,
                          int64_t lanes)
{
    for (int64_t row = 0; row < rows; row++) {
        const float *x = src + row * pitch;
        CPU_SIMD
        for (int64_t i = 0; i < lanes; i++)
            sum[i] += (double)x[i];
    }
}

/* The means of up to 16 channels of a tile, from lane `first` on. */
CPU_INLINE void mean_lanes(float *dst, const float *src, struct cpu_tile tile, int64_t first,
                           int64_t n_channels)
{
    double sum[CPU_LANES] = {0};
    const int64_t lanes = cpu_min(CPU_LANES, tile.width - first);
    if (lanes == CPU_LANES)
        sum_lanes(sum, src + first, tile.rows, tile.width, CPU_LANES);
    else
        sum_lanes(sum, src + first, tile.rows, tile.width, lanes);
    if (!tile.planar) {
        const int64_t used = cpu_min(lanes, n_channels - tile.channel - first);
        for (int64_t i = 0; i < used; i++)
            dst[tile.channel + first + i] = (float)(sum[i] / (double)tile.rows);
        return;
    }
    double total = 0;
    sum_lanes(sum, src + tile.rows * CPU_LANES, 1, 0, tile.tail);
    for (int i = 0; i < CPU_LANES; i++)
        total += sum[i];
    dst[tile.channel] = (float)(total / (double)(tile.rows * CPU_LANES + tile.tail));
}

CPU_CLONES static void mean_range(struct cpu_matrix dst, const float *src, struct cpu_image image,
                                  struct cpu_range range)
{
    for (int64_t index = range.begin; index < range.end; index++) {
        const struct cpu_tile tile = cpu_tile_at(image, index);
        float *row = dst.data + index / cpu_image_tiles(image) * dst.pitch;
        for (int64_t first = 0; first < tile.width; first += CPU_LANES)
            mean_lanes(row, src + tile.offset, tile, first, image.c);
    }
}

void cpu_avgpool(struct cpu_matrix dst, const float *src, struct cpu_image image, int threads)
{
    const int64_t count = image.n * cpu_image_tiles(image);
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        mean_range(dst, src, image, cpu_part(count, t, threads));
}

/* d_src = d_dst / (h w) at every position; padding gets zeros. */
static void spread_block(float *d_src, const float *row, int64_t channel, struct cpu_image image)
{
    for (int64_t i = 0; i < image.block; i++) {
        const bool real = channel + i < image.c;
        d_src[i] = real ? (float)((double)row[channel + i] / (double)image.spatial) : 0;
    }
    if (image.block == 1) {
        const float value = d_src[0];
        for (int64_t s = 1; s < image.spatial; s++)
            d_src[s] = value;
        return;
    }
    for (int64_t s = 1; s < image.spatial; s++)
        memcpy(d_src + s * image.block, d_src, (size_t)image.block * sizeof *d_src);
}

void cpu_avgpool_grad(float *d_src, struct cpu_matrix d_dst, struct cpu_image image, int threads)
{
    const int64_t tiles = cpu_image_tiles(image);
    (void)threads; /* without OpenMP */
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int64_t index = 0; index < image.n * tiles; index++)
        spread_block(d_src + index * image.spatial * image.block,
                     d_dst.data + index / tiles * d_dst.pitch, index % tiles * image.block, image);
}
