#include "exchange/mask_histogram.h"

#include "exchange/event_file.h"

#include <stdio.h>

enum { BUCKETS = 30, TAG_CHARS = 64 };

/* Buckets of equal width from the least value to the largest; of equal values there is one. */
void histogram_add(struct proto *summary, const char *tag, const float *values, int64_t n)
{
    double limits[BUCKETS];
    double counts[BUCKETS] = {0};
    double low = (double)values[0];
    double high = low;
    double sum = 0.0;
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double value = (double)values[i];
        low = value < low ? value : low;
        high = value > high ? value : high;
        sum += value;
        squares += value * value;
    }
    int n_buckets = high > low ? BUCKETS : 1;
    double width = (high - low) / n_buckets;
    for (int b = 0; b < n_buckets; b++)
        limits[b] = b + 1 == n_buckets ? high : low + width * (b + 1);
    for (int64_t i = 0; i < n; i++) {
        int b = width > 0.0 ? (int)(((double)values[i] - low) / width) : 0;
        counts[b < n_buckets ? b : n_buckets - 1] += 1.0;
    }
    size_t entry = proto_open(summary, SUMMARY_VALUE);
    proto_text(summary, SUMMARY_TAG, tag);
    size_t histogram = proto_open(summary, SUMMARY_HISTOGRAM);
    proto_double(summary, HISTOGRAM_MIN, low);
    proto_double(summary, HISTOGRAM_MAX, high);
    proto_double(summary, HISTOGRAM_NUM, (double)n);
    proto_double(summary, HISTOGRAM_SUM, sum);
    proto_double(summary, HISTOGRAM_SUM_SQUARES, squares);
    proto_doubles(summary, HISTOGRAM_LIMITS, limits, n_buckets);
    proto_doubles(summary, HISTOGRAM_COUNTS, counts, n_buckets);
    proto_close(summary, histogram);
    proto_close(summary, entry);
}

/* Streams come first, then the blocks (model/resnet.h). */
static void tag_of(const struct resnet_spec *spec, int mask, char tag[TAG_CHARS])
{
    int block = mask - spec->n_stages;
    int stage = 0;
    if (block < 0) {
        (void)snprintf(tag, TAG_CHARS, "masks/stream%d", mask + 1);
        return;
    }
    for (; block >= spec->n_blocks[stage]; stage++)
        block -= spec->n_blocks[stage];
    (void)snprintf(tag, TAG_CHARS, "masks/layer%d.%d", stage + 1, block);
}

enum der_status mask_histograms_add(struct proto *summary, const struct param_set *masks,
                                    const struct resnet_spec *spec)
{
    struct mem *mem = &masks->ctx->mem;
    for (int i = 0; i < masks->n; i++) {
        char tag[TAG_CHARS];
        int64_t n = shape_count(masks->items[i].shape);
        float *values = mem_alloc(mem, (size_t)n, sizeof *values);
        enum der_status status = values ? param_read(masks, i, values) : ctx_nomem(masks->ctx);
        tag_of(spec, i, tag);
        if (status == DER_OK)
            histogram_add(summary, tag, values, n);
        mem_free(mem, values);
        TRY(status);
    }
    return DER_OK;
}
