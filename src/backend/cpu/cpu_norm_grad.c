/*
 * Batch normalisation, backward.
 *
 * Two passes over memory: one sums g and g (x - mean) per channel, the other makes d_src of them.
 * g itself is what the residual branch receives; when that is wanted the first pass writes it
 * and the second reads it back, which is less than to put it together twice.
 */
#include "backend/cpu/cpu_kernels.h"

#include "backend/cpu/cpu_tile.h"

#include <string.h>

/* Per channel, padding included. */
struct grad_scratch {
    double *sums; /* [parts][2][channels] */
    float *mean;
    float *scale; /* d_src = scale (g - bias - slope (src - mean)) */
    float *bias;
    float *slope;
};

int64_t cpu_bn_scratch_floats(struct cpu_image image)
{
    image = cpu_image_normal(image);
    const int64_t channels = cpu_image_channels(image);
    return cpu_image_parts(image).images * 2 * channels * 2 + 4 * channels;
}

static struct grad_scratch carve(float *scratch, struct cpu_image image)
{
    const int64_t channels = cpu_image_channels(image);
    const int64_t sum_floats = cpu_image_parts(image).images * 2 * channels * 2;
    float *rest = scratch + sum_floats;
    return (struct grad_scratch){
        .sums = (void *)scratch,
        .mean = rest,
        .scale = rest + channels,
        .bias = rest + 2 * channels,
        .slope = rest + 3 * channels,
    };
}

/* Where g comes from: g = d + d2, 0 where y <= 0. The flags are constants wherever loops read them,
 * so that each combination of operands gets loops without branches. */
struct grad_stream {
    const float *d, *d2, *y; /* d2 and y may be NULL */
    bool has_d2, has_y;
};

static struct grad_stream stream_of(const struct cpu_bn_grad *bn)
{
    return (struct grad_stream){
        .d = bn->d_dst,
        .d2 = bn->d_dst2,
        .y = bn->dst,
        .has_d2 = bn->d_dst2 != NULL,
        .has_y = bn->relu,
    };
}

CPU_INLINE struct grad_stream stream_from(struct grad_stream g, int64_t offset)
{
    g.d += offset;
    if (g.has_d2)
        g.d2 += offset;
    if (g.has_y)
        g.y += offset;
    return g;
}

CPU_INLINE struct grad_stream stream_with(struct grad_stream g, bool has_d2, bool has_y)
{
    g.has_d2 = has_d2;
    g.has_y = has_y;
    return g;
}

CPU_INLINE float stream_at(struct grad_stream g, int64_t i)
{
    float value = g.d[i];
    if (g.has_d2)
        value += g.d2[i];
    return g.has_y ? cpu_keep_if(value, !(g.y[i] <= 0)) : value;
}

/* ---- first pass: sum g, sum g (x - mean), and g itself ----------------------------------------- */

struct sum_lanes {
    double *sum, *product;
    const float *mean;
};

CPU_INLINE void sum_rows(struct sum_lanes lanes, float *out, struct grad_stream g, const float *x,
                         int64_t rows, int64_t width, bool write)
{
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        CPU_SIMD
        for (int64_t i = 0; i < width; i++) {
            const float value = stream_at(g, at + i);
            if (write)
                out[at + i] = value;
            lanes.sum[i] += (double)value;
            lanes.product[i] += (double)value * (double)(x[at + i] - lanes.mean[i]);
        }
    }
}

CPU_INLINE void sum_tile(struct sum_lanes total, float *out, struct grad_stream g, const float *x,
                         struct cpu_tile tile, bool write)
{
    const bool whole = tile.width == CPU_LANES;
    const bool half = tile.width == CPU_LANES / 2;
    if (!whole && !half) {
        const struct sum_lanes lanes = {total.sum + tile.channel, total.product + tile.channel,
                                        total.mean + tile.channel};
        sum_rows(lanes, out, g, x, tile.rows, tile.width, write);
        return;
    }

    double sum[CPU_LANES] = {0};
    double product[CPU_LANES] = {0};
    float mean[CPU_LANES];
    cpu_tile_lanes(mean, total.mean, tile);
    const struct sum_lanes lanes = {sum, product, mean};
    if (whole)
        sum_rows(lanes, out, g, x, tile.rows, CPU_LANES, write);
    else
        sum_rows(lanes, out, g, x, tile.rows, CPU_LANES / 2, write);
    if (tile.tail > 0) {
        const int64_t at = tile.rows * CPU_LANES;
        sum_rows(lanes, write ? out + at : NULL, stream_from(g, at), x + at, 1, tile.tail, write);
    }
    for (int64_t i = 0; i < tile.width; i++) {
        total.sum[tile.channel + (tile.planar ? 0 : i)] += sum[i];
        total.product[tile.channel + (tile.planar ? 0 : i)] += product[i];
    }
}

CPU_INLINE void sum_tile_any(struct sum_lanes total, float *out, struct grad_stream g,
                             const float *x, struct cpu_tile tile)
{
    if (g.has_y && g.has_d2 && out)
        sum_tile(total, out, stream_with(g, true, true), x, tile, true);
    else if (g.has_y && g.has_d2)
        sum_tile(total, NULL, stream_with(g, true, true), x, tile, false);
    else if (g.has_y && out)
        sum_tile(total, out, stream_with(g, false, true), x, tile, true);
    else if (g.has_y)
        sum_tile(total, NULL, stream_with(g, false, true), x, tile, false);
    else if (g.has_d2 && out)
        sum_tile(total, out, stream_with(g, true, false), x, tile, true);
    else if (g.has_d2)
        sum_tile(total, NULL, stream_with(g, true, false), x, tile, false);
    else if (out)
        sum_tile(total, out, stream_with(g, false, false), x, tile, true);
    else
        sum_tile(total, NULL, stream_with(g, false, false), x, tile, false);
}

CPU_CLONES static void sum_part(const struct cpu_bn_grad *bn, struct cpu_image image,
                                const struct grad_scratch *scratch, int64_t part)
{
    const int64_t channels = cpu_image_channels(image);
    const struct cpu_parts parts = cpu_image_parts(image);
    const struct cpu_range images = cpu_part(image.n, part / parts.tiles, parts.images);
    const int64_t per_image = cpu_image_tiles(image);
    const struct cpu_range tiles = cpu_part(per_image, part % parts.tiles, parts.tiles);
    double *sums = scratch->sums + part / parts.tiles * 2 * channels;
    const struct sum_lanes total = {sums, sums + channels, scratch->mean};
    const struct grad_stream g = stream_of(bn);

    for (int64_t n = images.begin; n < images.end; n++) {
        for (int64_t t = tiles.begin; t < tiles.end; t++) {
            const struct cpu_tile tile = cpu_tile_at(image, n * per_image + t);
            float *out = bn->d_residual ? bn->d_residual + tile.offset : NULL;
            sum_tile_any(total, out, stream_from(g, tile.offset), bn->src + tile.offset, tile);
        }
    }
}

static void sum_all(const struct cpu_bn_grad *bn, struct cpu_image image,
                    struct grad_scratch scratch, int threads)
{
    const int64_t channels = cpu_image_channels(image);
    const struct cpu_parts parts = cpu_image_parts(image);
    memset(scratch.sums, 0, (size_t)(parts.images * 2 * channels) * sizeof *scratch.sums);
    for (int64_t c = 0; c < channels; c++)
        scratch.mean[c] = c < image.c ? bn->mean[c] : 0;

    (void)threads; /* without OpenMP */
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int64_t part = 0; part < parts.images * parts.tiles; part++)
        sum_part(bn, image, &scratch, part);
    cpu_parts_add(scratch.sums, parts.images, 2 * channels);
}

/* ---- between the passes ------------------------------------------------------------------------ */

/* d_beta' = sum g, d_gamma' = inv_std sum g (x - mean), and of m values in training
 *   d_src = gamma mask inv_std (g - d_beta' / m - x^ d_gamma' / m). Padding gets zeros. */
static void finish_sums(const struct cpu_bn_grad *bn, struct cpu_image image,
                        struct grad_scratch scratch)
{
    const int64_t channels = cpu_image_channels(image);
    const double m = (double)(image.n * image.spatial);
    for (int64_t c = 0; c < image.c; c++) {
        const double gamma = (double)bn->gamma[c];
        const double inv_std = (double)bn->inv_std[c];
        const double mask = bn->mask ? (double)bn->mask[c] : 1;
        const double d_beta = scratch.sums[c];
        const double d_gamma = scratch.sums[channels + c] * inv_std;
        scratch.scale[c] = (float)(gamma * mask * inv_std);
        scratch.bias[c] = bn->training ? (float)(d_beta / m) : 0;
        scratch.slope[c] = bn->training ? (float)(d_gamma * inv_std / m) : 0;
        if (bn->d_gamma)
            bn->d_gamma[c] = (float)(mask * d_gamma);
        if (bn->d_beta)
            bn->d_beta[c] = (float)(mask * d_beta);
        if (bn->d_mask)
            bn->d_mask[c] = (float)(gamma * d_gamma + (double)bn->beta[c] * d_beta);
    }
    for (int64_t c = image.c; c < channels; c++) {
        scratch.scale[c] = 0;
        scratch.bias[c] = 0;
        scratch.slope[c] = 0;
    }
}

/* ---- second pass: d_src ------------------------------------------------------------------------ */

struct src_lanes {
    const float *mean, *scale, *bias, *slope;
};

CPU_INLINE void src_rows(float *d_src, struct grad_stream g, const float *x, struct src_lanes lanes,
                         int64_t rows, int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        CPU_SIMD
        for (int64_t i = 0; i < width; i++) {
            const float centered = x[at + i] - lanes.mean[i];
            const float rest = stream_at(g, at + i) - lanes.bias[i] - centered * lanes.slope[i];
            d_src[at + i] = lanes.scale[i] * rest;
        }
    }
}

CPU_INLINE void src_tile(float *d_src, struct grad_stream g, const float *x,
                         const struct grad_scratch *scratch, struct cpu_tile tile)
{
    const bool whole = tile.width == CPU_LANES;
    const bool half = tile.width == CPU_LANES / 2;
    if (!whole && !half) {
        const struct src_lanes lanes = {scratch->mean + tile.channel, scratch->scale + tile.channel,
                                        scratch->bias + tile.channel,
                                        scratch->slope + tile.channel};
        src_rows(d_src, g, x, lanes, tile.rows, tile.width);
        return;
    }

    float mean[CPU_LANES];
    float scale[CPU_LANES];
    float bias[CPU_LANES];
    float slope[CPU_LANES];
    cpu_tile_lanes(mean, scratch->mean, tile);
    cpu_tile_lanes(scale, scratch->scale, tile);
    cpu_tile_lanes(bias, scratch->bias, tile);
    cpu_tile_lanes(slope, scratch->slope, tile);
    const struct src_lanes lanes = {mean, scale, bias, slope};
    if (whole)
        src_rows(d_src, g, x, lanes, tile.rows, CPU_LANES);
    else
        src_rows(d_src, g, x, lanes, tile.rows, CPU_LANES / 2);
    if (tile.tail > 0) {
        const int64_t at = tile.rows * CPU_LANES;
        src_rows(d_src + at, stream_from(g, at), x + at, lanes, 1, tile.tail);
    }
}

/* Backwards, because the end of what this thread has just summed is still in its cache. */
CPU_CLONES static void src_range(const struct cpu_bn_grad *bn, struct cpu_image image,
                                 const struct grad_scratch *scratch, struct cpu_range range)
{
    struct grad_stream whole = stream_of(bn);
    if (bn->d_residual)
        whole = (struct grad_stream){.d = bn->d_residual};

    for (int64_t index = range.end - 1; index >= range.begin; index--) {
        const struct cpu_tile tile = cpu_tile_at(image, index);
        float *d_src = bn->d_src + tile.offset;
        const float *x = bn->src + tile.offset;
        const struct grad_stream g = stream_from(whole, tile.offset);
        if (g.has_d2 && g.has_y)
            src_tile(d_src, stream_with(g, true, true), x, scratch, tile);
        else if (g.has_d2)
            src_tile(d_src, stream_with(g, true, false), x, scratch, tile);
        else if (g.has_y)
            src_tile(d_src, stream_with(g, false, true), x, scratch, tile);
        else
            src_tile(d_src, stream_with(g, false, false), x, scratch, tile);
    }
}

void cpu_bn_grad(const struct cpu_bn_grad *bn, int threads)
{
    const struct cpu_image image = cpu_image_normal(bn->image);
    const struct grad_scratch scratch = carve(bn->scratch, image);
    sum_all(bn, image, scratch, threads);
    finish_sums(bn, image, scratch);
    if (!bn->d_src)
        return;

    const int64_t count = image.n * cpu_image_tiles(image);
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++)
        src_range(bn, image, &scratch, cpu_part(count, t, threads));
}
