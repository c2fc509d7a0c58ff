/*
 * FEED and TALLY in host memory, for back ends that compute there; the builders are in graph.h.
 */
#ifndef GRAPH_FEED_H
#define GRAPH_FEED_H

#include "graph/graph.h"

struct feed_operands {
    const uint8_t *pixels;
    const float *levels;
    const int32_t *order; /* [n_items][FEED_ITEM_WORDS] */
    int64_t n_items;
    const float *table; /* [n_lines][width], or NULL */
    int64_t n_lines, width;
    const int32_t *clock;
    float *image;
    int32_t *labels;
    float *now; /* [width], or NULL */
};
void feed_run(const struct feed_attr *attr, const struct feed_operands *operands);

/* One src with its table; both hold words of 32 bits. */
struct tally_pair {
    const void *src;
    void *table;
    int64_t src_words, table_words;
};
void tally_keep(const struct tally_attr *attr, int k, const struct tally_pair *pair,
                const int32_t *clock);
void tally_advance(const struct tally_attr *attr, int32_t *clock);

#endif
