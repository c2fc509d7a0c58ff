/*
 * How long a launch takes when a CUDA graph replays it, as a training iteration does.
 */
#ifndef BENCH_CUDA_REPLAY_H
#define BENCH_CUDA_REPLAY_H

#include <cuda_runtime_api.h>

#include <stdbool.h>

/* Says on stderr what failed. */
bool replay_fine(cudaError_t error, const char *what);

/* Enqueues launch number i of a graph; false: it cannot be done. */
typedef bool replay_fn(void *user, int i, cudaStream_t stream);

/* Microseconds of one launch, or a negative number. The best of a few rounds of a graph of n launches counts. */
double replay_measure(replay_fn *launch, void *user, int n, cudaStream_t stream);

#endif
