/*
 * Batch normalisation, forward, with mask, residual and ReLU in the same pass.
 *
 * Two passes over memory: one sums x - K and (x - K)^2 per channel, where K is the channel's
 * first value and keeps the difference of large numbers away; the other normalises. Sums are
 * doubles in a fixed order (cpu_tile.h), so no thread count changes a byte.
 */
#include "backend/cpu/cpu_kernels.h"

#include "backend/cpu/cpu_tile.h"

#include <math.h>
#include <string.h>

int64_t cpu_image_floats(struct cpu_image image)
{
    return image.n * cpu_image_channels(image) * image.spatial;
}

/* Per channel, padding included. */
struct bn_scratch {
    double *sums;  /* [parts][2][channels] */
    float *center; /* dst = (src - center) * scale + shift */
    float *scale;
    float *shift;
};

static struct bn_scratch carve(float *scratch, struct cpu_image image)
{
    const int64_t channels = cpu_image_channels(image);
    const int64_t sum_floats = cpu_image_parts(image).images * 2 * channels * 2;
    float *rest = scratch + sum_floats;
    return (struct bn_scratch){
        .sums = (void *)scratch,
        .center = rest,
        .scale = rest + channels,
        .shift = rest + 2 * channels,
    };
}

/* ---- statistics ------------------------------------------------------------------------------- */

CPU_INLINE void sum_rows(double *sum, double *square, const float *src, const float *pivot,
                         int64_t rows, int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        const float *x = src + row * width;
        CPU_SIMD
        for (int64_t i = 0; i < width; i++) {
            const double d = (double)x[i] - (double)pivot[i];
            sum[i] += d;
            square[i] += d * d;
        }
    }
}

/* Adds the sums of one tile to those of its part. */
CPU_INLINE void sum_tile(double *sums, double *squares, const float *src, const float *pivots,
                         struct cpu_tile tile)
{
    const bool whole = tile.width == CPU_LANES;
    const bool half = tile.width == CPU_LANES / 2;
    const float *x = src + tile.offset;
    sums += tile.channel;
    squares += tile.channel;
    if (!whole && !half) {
        sum_rows(sums, squares, x, pivots + tile.channel, tile.rows, tile.width);
        return;
    }

    double sum[CPU_LANES] = {0};
    double square[CPU_LANES] = {0};
    float pivot[CPU_LANES];
    cpu_tile_lanes(pivot, pivots, tile);
    if (whole)
        sum_rows(sum, square, x, pivot, tile.rows, CPU_LANES);
    else
        sum_rows(sum, square, x, pivot, tile.rows, CPU_LANES / 2);
    if (tile.tail > 0)
        sum_rows(sum, square, x + tile.rows * CPU_LANES, pivot, 1, tile.tail);
    for (int64_t i = 0; i < tile.width; i++) {
        sums[tile.planar ? 0 : i] += sum[i];
        squares[tile.planar ? 0 : i] += square[i];
    }
}

CPU_CLONES static void sum_part(const struct cpu_bn *bn, struct cpu_image image,
                                const struct bn_scratch *scratch, int64_t part)
{
    const int64_t channels = cpu_image_channels(image);
    const struct cpu_parts parts = cpu_image_parts(image);
    const struct cpu_range images = cpu_part(image.n, part / parts.tiles, parts.images);
    const int64_t per_image = cpu_image_tiles(image);
    const struct cpu_range tiles = cpu_part(per_image, part % parts.tiles, parts.tiles);
    double *sums = scratch->sums + part / parts.tiles * 2 * channels;

    for (int64_t n = images.begin; n < images.end; n++) {
        for (int64_t t = tiles.begin; t < tiles.end; t++)
            sum_tile(sums, sums + channels, bn->src, scratch->center,
                     cpu_tile_at(image, n * per_image + t));
    }
}

static void sum_all(const struct cpu_bn *bn, struct cpu_image image, struct bn_scratch scratch,
                    int threads)
{
    const int64_t channels = cpu_image_channels(image);
    const struct cpu_parts parts = cpu_image_parts(image);
    memset(scratch.sums, 0, (size_t)(parts.images * 2 * channels) * sizeof *scratch.sums);
    for (int64_t c = 0; c < channels; c++)
        scratch.center[c] = c < image.c ? bn->src[cpu_channel_offset(image, c)] : 0;

    (void)threads; /* without OpenMP */
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int64_t part = 0; part < parts.images * parts.tiles; part++)
        sum_part(bn, image, &scratch, part);
    cpu_parts_add(scratch.sums, parts.images, 2 * channels);
}

/* With S = sum(x - K) and Q = sum((x - K)^2) over m values:
 *   mean = K + S / m,  var = (Q - S^2 / m) / m,  running variance takes var m / (m - 1). */
static void batch_statistics(const struct cpu_bn *bn, struct cpu_image image,
                             struct bn_scratch scratch, int64_t c, double *mean, double *var)
{
    const double m = (double)(image.n * image.spatial);
    const double sum = scratch.sums[c];
    const double square = scratch.sums[cpu_image_channels(image) + c];
    *mean = (double)scratch.center[c] + sum / m;
    *var = (square - sum * sum / m) / m;
    if (*var < 0)
        *var = 0;

    const double momentum = (double)bn->momentum;
    const double unbiased = m > 1 ? *var * m / (m - 1) : *var;
    bn->running_mean[c] = (float)((1 - momentum) * (double)bn->running_mean[c] + momentum * *mean);
    bn->running_var[c] = (float)((1 - momentum) * (double)bn->running_var[c] + momentum * unbiased);
}

/* z = mask (gamma x^ + beta) = (src - center) scale + shift, where center is the mean as a float
 * and shift makes up for what it lost. Padding gets zeros throughout. */
static void prepare_affine(const struct cpu_bn *bn, struct cpu_image image,
                           struct bn_scratch scratch)
{
    const int64_t channels = cpu_image_channels(image);
    for (int64_t c = 0; c < image.c; c++) {
        double mean;
        double var;
        if (bn->training) {
            batch_statistics(bn, image, scratch, c, &mean, &var);
        } else {
            mean = (double)bn->running_mean[c];
            var = (double)bn->running_var[c];
        }
        const double inv_std = 1 / sqrt(var + (double)bn->eps);
        const double mask = bn->mask ? (double)bn->mask[c] : 1;
        const double scale = mask * (double)bn->gamma[c] * inv_std;
        bn->mean[c] = (float)mean;
        bn->inv_std[c] = (float)inv_std;
        scratch.center[c] = (float)mean;
        scratch.scale[c] = (float)scale;
        scratch.shift[c] =
            (float)(mask * (double)bn->beta[c] - (mean - (double)scratch.center[c]) * scale);
    }
    for (int64_t c = image.c; c < channels; c++) {
        scratch.center[c] = 0;
        scratch.scale[c] = 0;
        scratch.shift[c] = 0;
    }
}

/* ---- normalising ------------------------------------------------------------------------------ */

/* One value per lane. */
struct affine {
    const float *center, *scale, *shift;
};

CPU_INLINE void affine_rows(float *dst, const float *src, const float *residual,
                            struct affine lanes, int64_t rows, int64_t width, bool relu)
{
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        CPU_SIMD
        for (int64_t i = 0; i < width; i++) {
            float z = (src[at + i] - lanes.center[i]) * lanes.scale[i] + lanes.shift[i];
            if (residual)
                z += residual[at + i];
            dst[at + i] = relu && z < 0 ? 0 : z;
        }
    }
}

CPU_INLINE void affine_tile(float *dst, const float *src, const float *residual,
                            const struct bn_scratch *scratch, struct cpu_tile tile, bool relu)
{
    const bool whole = tile.width == CPU_LANES;
    const bool half = tile.width == CPU_LANES / 2;
    if (!whole && !half) {
        const struct affine lanes = {scratch->center + tile.channel, scratch->scale + tile.channel,
                                     scratch->shift + tile.channel};
        affine_rows(dst, src, residual, lanes, tile.rows, tile.width, relu);
        return;
    }

    float center[CPU_LANES];
    float scale[CPU_LANES];
    float shift[CPU_LANES];
    cpu_tile_lanes(center, scratch->center, tile);
    cpu_tile_lanes(scale, scratch->scale, tile);
    cpu_tile_lanes(shift, scratch->shift, tile);
    const struct affine lanes = {center, scale, shift};
    if (whole)
        affine_rows(dst, src, residual, lanes, tile.rows, CPU_LANES, relu);
    else
        affine_rows(dst, src, residual, lanes, tile.rows, CPU_LANES / 2, relu);
    if (tile.tail > 0) {
        const int64_t at = tile.rows * CPU_LANES;
        affine_rows(dst + at, src + at, residual ? residual + at : NULL, lanes, 1, tile.tail, relu);
    }
}

CPU_INLINE void affine_at(const struct cpu_bn *bn, const struct bn_scratch *scratch,
                          struct cpu_tile tile)
{
    float *dst = bn->dst + tile.offset;
    const float *src = bn->src + tile.offset;
    if (bn->residual && bn->relu)
        affine_tile(dst, src, bn->residual + tile.offset, scratch, tile, true);
    else if (bn->residual)
        affine_tile(dst, src, bn->residual + tile.offset, scratch, tile, false);
    else if (bn->relu)
        affine_tile(dst, src, NULL, scratch, tile, true);
    else
        affine_tile(dst, src, NULL, scratch, tile, false);
}

/* Backwards, because the end of what this thread has just summed is still in its cache. */
CPU_CLONES static void affine_range(const struct cpu_bn *bn, struct cpu_image image,
                                    const struct bn_scratch *scratch, struct cpu_range range)
{
    for (int64_t index = range.end - 1; index >= range.begin; index--)
        affine_at(bn, scratch, cpu_tile_at(image, index));
}

void cpu_bn(const struct cpu_bn *bn, int threads)
{
    const struct cpu_image image = cpu_image_normal(bn->image);
    const struct bn_scratch scratch = carve(bn->scratch, image);
    if (bn->training)
        sum_all(bn, image, scratch, threads);
    prepare_affine(bn, image, scratch);

    const int64_t count = image.n * cpu_image_tiles(image);
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        affine_range(bn, image, &scratch, cpu_part(count, t, threads));
}
