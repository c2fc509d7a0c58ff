/*
 * Batches from images that the device holds as bytes, and what is kept of an iteration.
 */
#include "backend/cuda/kernels/device.cuh"

/* A block for every row of the batch. */
__global__ void feed_kernel(const struct cuda_feed feed)
{
    const struct feed_attr &attr = feed.attr;
    int64_t at = (int64_t)feed.clock[CLOCK_ROW] + blockIdx.x;
    at = at < feed.n_items ? at : feed.n_items - 1;
    const int64_t sample = feed.order[at * FEED_ITEM_WORDS];
    const struct feed_draw draw =
        feed_draw(&attr, feed_seed(feed.clock), (uint32_t)feed.clock[CLOCK_EPOCH], sample);
    const uint8_t *image =
        feed.pixels + sample * ((int64_t)attr.channels * attr.height * attr.width);
    const int area = attr.out_height * attr.out_width;
    const int count = attr.channels * area;
    float *dst = feed.image + (int64_t)blockIdx.x * count;
    for (int k = threadIdx.x; k < count; k += blockDim.x) {
        const int pixel = k % area;
        dst[k] = feed_pixel(&attr, &draw, image, feed.levels, k / area, pixel / attr.out_width,
                            pixel % attr.out_width);
    }
    if (threadIdx.x == 0)
        feed.labels[blockIdx.x] = feed.order[at * FEED_ITEM_WORDS + 1];
    if (blockIdx.x != 0 || !feed.now)
        return;
    int64_t line = feed.clock[CLOCK_ITERATION];
    line = line < feed.n_lines ? line : feed.n_lines - 1;
    for (int64_t k = threadIdx.x; k < feed.width; k += blockDim.x)
        feed.now[k] = feed.table[line * feed.width + k];
}

cudaError_t cuda_feed(const struct cuda_feed *feed, cudaStream_t stream)
{
    feed_kernel<<<(unsigned)feed->attr.batch, BLOCK_THREADS, 0, stream>>>(*feed);
    return cudaGetLastError();
}

__device__ static void advance(const struct cuda_tally &tally)
{
    tally.clock[CLOCK_ROW] += tally.rows;
    tally.clock[CLOCK_ITERATION] += 1;
}

/* Every block reads the clock, so that only a single one may also move it. */
__global__ void tally_kernel(const struct cuda_tally tally)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int k = 0; k < tally.n; k++) {
        const struct cuda_tally_pair pair = tally.pair[k];
        const int64_t at =
            tally_place(tally.by_row >> k & 1u, tally.rows, pair.src_words, tally.clock);
        for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < pair.src_words;
             i += step)
            if (at + i < pair.table_words)
                pair.table[at + i] = pair.src[i];
    }
    __syncthreads();
    if (gridDim.x == 1 && threadIdx.x == 0)
        advance(tally);
}

__global__ void advance_kernel(const struct cuda_tally tally)
{
    advance(tally);
}

cudaError_t cuda_tally(const struct cuda_tally *tally, cudaStream_t stream)
{
    int64_t words = 0;
    for (int k = 0; k < tally->n; k++)
        words += tally->pair[k].src_words;
    const unsigned blocks = blocks_for(words, 16 * BLOCK_THREADS);
    tally_kernel<<<blocks, BLOCK_THREADS, 0, stream>>>(*tally);
    if (blocks > 1)
        advance_kernel<<<1, 1, 0, stream>>>(*tally);
    return cudaGetLastError();
}
