/*
 * What FEED does to one pixel, for the host and for kernels alike: nothing here calls anything that a GPU
 * has not, and every rounding is spelled out, so that both get the same bits.
 */
#ifndef GRAPH_FEED_MATH_H
#define GRAPH_FEED_MATH_H

#include "core/rng.h"

#include <stdbool.h>
#include <stdint.h>

enum { FEED_LEVELS = 256, FEED_ITEM_WORDS = 2 }; /* values of a byte; sample and label */

/* Words of a clock: where a run of iterations stands. */
enum {
    CLOCK_ROW,       /* items of the order that were used */
    CLOCK_ITERATION, /* iterations done */
    CLOCK_EPOCH,     /* stream of the draws */
    CLOCK_SEED_LOW,
    CLOCK_SEED_HIGH,
    CLOCK_WORDS = 8
};

struct feed_attr {
    int batch;                   /* rows */
    int channels, height, width; /* of a held image */
    int out_height, out_width;   /* of the result */
    int pad;                     /* zeros on every side before the crop */
    bool flip;                   /* left and right swapped for half of the draws */
    double low, high;            /* factor of the brightness; both 1: none */
};

/* What chance decides for a row. */
struct feed_draw {
    int y, x; /* where the crop begins, negative within the padding */
    bool flip;
    float factor;
};

/* Uniform in [0, n). */
HOST_DEVICE static inline int feed_below(uint32_t word, int n)
{
    return (int)(((uint64_t)word * (uint64_t)n) >> 32);
}

/* low + range * unit with both results rounded: a GPU would fuse them. */
HOST_DEVICE static inline double feed_between(double low, double range, double unit)
{
#ifdef __CUDA_ARCH__
    return __dadd_rn(low, __dmul_rn(range, unit));
#else
    const double product = range * unit;
    return low + product;
#endif
}

HOST_DEVICE static inline uint64_t feed_seed(const int32_t *clock)
{
    return (uint64_t)(uint32_t)clock[CLOCK_SEED_HIGH] << 32 | (uint32_t)clock[CLOCK_SEED_LOW];
}

HOST_DEVICE static inline struct feed_draw feed_draw(const struct feed_attr *feed, uint64_t seed,
                                                     uint32_t epoch, int64_t sample)
{
    const struct rng_block block =
        philox(seed, RNG_AUGMENT, epoch, (uint64_t)sample * RNG_AUGMENT_BLOCKS);
    struct feed_draw draw;
    draw.y = feed_below(block.word[0], feed->height + 2 * feed->pad - feed->out_height + 1);
    draw.x = feed_below(block.word[1], feed->width + 2 * feed->pad - feed->out_width + 1);
    draw.y -= feed->pad;
    draw.x -= feed->pad;
    draw.flip = feed->flip && block.word[2] >> 31;
    draw.factor = (float)feed_between(feed->low, feed->high - feed->low,
                                      (double)block.word[3] * (1.0 / 4294967296.0));
    return draw;
}

/* Pixel (c, i, j) of the result; image: [channels, height, width], levels: [channels, FEED_LEVELS]. */
HOST_DEVICE static inline float feed_pixel(const struct feed_attr *feed,
                                           const struct feed_draw *draw, const uint8_t *image,
                                           const float *levels, int c, int i, int j)
{
    const int y = draw->y + i;
    const int x = draw->x + (draw->flip ? feed->out_width - 1 - j : j);
    int level = 0;
    if (y >= 0 && y < feed->height && x >= 0 && x < feed->width) {
        const float value =
            draw->factor * (float)image[((int64_t)c * feed->height + y) * feed->width + x];
        level = value >= 255.0f ? 255 : value > 0.0f ? (int)value : 0;
    }
    return levels[c * FEED_LEVELS + level];
}

/* The word of its table where TALLY puts a src of so many words. */
HOST_DEVICE static inline int64_t tally_place(bool by_row, int rows, int64_t src_words,
                                              const int32_t *clock)
{
    const int64_t width = by_row ? src_words / rows : src_words;
    return width * (by_row ? clock[CLOCK_ROW] : clock[CLOCK_ITERATION]);
}

#endif
