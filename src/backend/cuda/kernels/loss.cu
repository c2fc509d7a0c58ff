/*
 * Losses, each with its gradient times `weight`, and the rank that accuracy is counted from.
 *
 * A block for every row, in double: the matrices are small. The last block adds up the rows.
 */
#include "backend/cuda/kernels/device.cuh"

#include <math.h>

/* Below this a vector has no direction; its length counts as this in COSINE_LOSS. */
static const double LENGTH_MIN = 1e-12;

__device__ static float *row_of(const struct cuda_rows &m, int64_t row)
{
    return (float *)m.data + row * m.pitch;
}

/* Stores the loss of this block's row; the last block adds all of them and scales the sum. */
__device__ static void finish_loss(const struct cuda_loss &loss, double mine, double scale)
{
    if (threadIdx.x == 0)
        loss.partial[blockIdx.x] = mine;
    if (!is_last_block(loss.counter, gridDim.x))
        return;
    double sum = 0.0;
    for (int64_t n = threadIdx.x; n < loss.logits.rows; n += blockDim.x)
        sum += loss.partial[n];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *loss.loss = (float)(sum * scale);
}

__device__ static double block_max(double x)
{
    __shared__ double parts[32];
    for (int step = 16; step > 0; step /= 2)
        x = fmax(x, __shfl_xor_sync(0xffffffffu, x, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = x;
    __syncthreads();
    double largest = parts[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++)
        largest = fmax(largest, parts[i]);
    return largest;
}

/* log(sum over j of exp(row[j] / temperature)), shifted by the maximum so that nothing overflows. */
__device__ static double log_sum_exp(const float *row, int64_t count, double temperature)
{
    double largest = -INFINITY;
    for (int64_t j = threadIdx.x; j < count; j += blockDim.x)
        largest = fmax(largest, (double)row[j]);
    largest = block_max(largest);
    double sum = 0.0;
    for (int64_t j = threadIdx.x; j < count; j += blockDim.x)
        sum += exp(((double)row[j] - largest) / temperature);
    return largest / temperature + log(block_sum(sum));
}

__device__ static void zero_outside(const struct cuda_rows &d, int64_t first, int64_t count)
{
    for (int64_t j = threadIdx.x; d.data && j < d.cols; j += blockDim.x)
        if (j < first || j >= first + count)
            row_of(d, blockIdx.x)[j] = 0.0f;
}

__device__ static int64_t xent_target(const struct cuda_loss &loss, int32_t label)
{
    int64_t target = (int64_t)label - loss.label_shift;
    if (target < 0 && loss.clamp_low)
        target = 0;
    return target >= 0 && target < loss.count ? target : -1;
}

__global__ void softmax_xent_kernel(const struct cuda_loss loss)
{
    const int64_t target = xent_target(loss, loss.labels[blockIdx.x]);
    const double temperature = (double)loss.temperature;
    const float *row = row_of(loss.logits, blockIdx.x) + loss.first;
    double rows = 0.0;
    for (int64_t n = threadIdx.x; n < loss.logits.rows; n += blockDim.x)
        rows += xent_target(loss, loss.labels[n]) >= 0;
    rows = block_sum(rows);

    double mine = 0.0;
    if (target < 0) {
        zero_outside(loss.d_logits, 0, 0);
    } else {
        const double norm = log_sum_exp(row, loss.count, temperature);
        const double factor = (double)*loss.weight / (rows * temperature);
        mine = norm - (double)row[target] / temperature;
        zero_outside(loss.d_logits, loss.first, loss.count);
        for (int64_t j = threadIdx.x; loss.d_logits.data && j < loss.count; j += blockDim.x) {
            const double q = exp((double)row[j] / temperature - norm);
            row_of(loss.d_logits, blockIdx.x)[loss.first + j] =
                (float)(factor * (q - (j == target ? 1.0 : 0.0)));
        }
    }
    finish_loss(loss, mine, rows > 0.0 ? 1.0 / rows : 0.0);
}

__global__ void distill_kernel(const struct cuda_loss loss)
{
    const double temperature = (double)loss.temperature;
    const double rows = (double)loss.logits.rows;
    const float *student = row_of(loss.logits, blockIdx.x) + loss.first;
    const float *teacher = row_of(loss.teacher, blockIdx.x) + loss.teacher_first;
    const double student_norm = log_sum_exp(student, loss.count, temperature);
    const double teacher_norm = log_sum_exp(teacher, loss.count, temperature);
    const double factor = (double)*loss.weight / (rows * temperature);
    double mine = 0.0;
    zero_outside(loss.d_logits, loss.first, loss.count);
    for (int64_t j = threadIdx.x; j < loss.count; j += blockDim.x) {
        const double p = exp((double)teacher[j] / temperature - teacher_norm);
        const double log_q = (double)student[j] / temperature - student_norm;
        mine -= p * log_q;
        if (loss.d_logits.data)
            row_of(loss.d_logits, blockIdx.x)[loss.first + j] = (float)(factor * (exp(log_q) - p));
    }
    finish_loss(loss, block_sum(mine), 1.0 / rows);
}

__device__ static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

__global__ void bce_kernel(const struct cuda_loss loss)
{
    const double entries = (double)(loss.logits.rows * loss.logits.cols);
    const double factor = (double)*loss.weight / entries;
    double mine = 0.0;
    for (int64_t j = threadIdx.x; j < loss.logits.cols; j += blockDim.x) {
        const double x = (double)row_of(loss.logits, blockIdx.x)[j];
        double t = j == loss.labels[blockIdx.x] ? 1.0 : 0.0;
        if (j < loss.n_old)
            t = sigmoid((double)row_of(loss.teacher, blockIdx.x)[j]);
        mine += fmax(x, 0.0) - t * x + log1p(exp(-fabs(x)));
        if (loss.d_logits.data)
            row_of(loss.d_logits, blockIdx.x)[j] = (float)(factor * (sigmoid(x) - t));
    }
    finish_loss(loss, block_sum(mine), 1.0 / entries);
}

__global__ void cosine_kernel(const struct cuda_loss loss)
{
    const float *u = row_of(loss.logits, blockIdx.x);
    const float *v = row_of(loss.teacher, blockIdx.x);
    const double rows = (double)loss.logits.rows;
    double uu = 0.0;
    double vv = 0.0;
    double uv = 0.0;
    for (int64_t j = threadIdx.x; j < loss.logits.cols; j += blockDim.x) {
        uu += (double)u[j] * (double)u[j];
        vv += (double)v[j] * (double)v[j];
        uv += (double)u[j] * (double)v[j];
    }
    const double length_u = fmax(sqrt(block_sum(uu)), LENGTH_MIN);
    const double length_v = fmax(sqrt(block_sum(vv)), LENGTH_MIN);
    const double cosine = block_sum(uv) / (length_u * length_v);
    for (int64_t j = threadIdx.x; loss.d_logits.data && j < loss.logits.cols; j += blockDim.x) {
        const double slope = ((double)v[j] / length_v - cosine * (double)u[j] / length_u) / length_u;
        row_of(loss.d_logits, blockIdx.x)[j] = (float)(-(double)*loss.weight * slope / rows);
    }
    finish_loss(loss, 1.0 - cosine, 1.0 / rows);
}

/* The best column of [first, count) after column `after` in the order: larger first, left first
 * among equals. after -1: the best of all. */
__device__ static int64_t next_best(const float *row, int64_t first, int64_t count, int64_t after)
{
    int64_t best = -1;
    for (int64_t j = first; j < count; j++) {
        const bool comes_after =
            after < 0 || row[j] < row[after] || (row[j] == row[after] && j > after);
        if (comes_after && (best < 0 || row[j] > row[best]))
            best = j;
    }
    return best;
}

/* The terms of a row are few and found one after the other: one thread does it. */
__device__ static double margin_row(const struct cuda_loss &loss, int64_t top_k, double terms)
{
    const float *row = row_of(loss.logits, blockIdx.x);
    const int32_t label = loss.labels[blockIdx.x];
    float *slope = loss.d_logits.data ? row_of(loss.d_logits, blockIdx.x) : NULL;
    double sum = 0.0;
    double open = 0.0;
    int64_t j = -1;
    for (int64_t k = 0; k < top_k; k++) {
        j = next_best(row, loss.n_old, loss.logits.cols, j);
        if (j < 0)
            break; /* only NaN is left */
        const double term = (double)loss.margin - (double)row[label] + (double)row[j];
        if (term <= 0.0)
            continue;
        sum += term;
        open += 1.0;
        if (slope)
            slope[j] = (float)((double)*loss.weight / terms);
    }
    if (slope)
        slope[label] = (float)(-(double)*loss.weight * open / terms);
    return sum;
}

__global__ void margin_kernel(const struct cuda_loss loss)
{
    const int64_t columns = loss.logits.cols - loss.n_old;
    const int64_t top_k = loss.top_k < columns ? loss.top_k : columns;
    double terms = 0.0;
    for (int64_t n = threadIdx.x; n < loss.logits.rows; n += blockDim.x)
        terms += loss.labels[n] >= 0 && loss.labels[n] < loss.n_old ? (double)top_k : 0.0;
    terms = block_sum(terms);
    zero_outside(loss.d_logits, 0, 0);
    __syncthreads();
    const int32_t label = loss.labels[blockIdx.x];
    double mine = 0.0;
    if (threadIdx.x == 0 && label >= 0 && label < loss.n_old)
        mine = margin_row(loss, top_k, terms);
    finish_loss(loss, mine, terms > 0.0 ? 1.0 / terms : 0.0);
}

__global__ void rank_kernel(int32_t *rank, const struct cuda_rows logits, const int32_t *labels,
                            int64_t first, int64_t count)
{
    const float *row = row_of(logits, blockIdx.x);
    const int64_t label = labels[blockIdx.x];
    if (label < 0 || label >= logits.cols || isnan(row[label])) {
        if (threadIdx.x == 0)
            rank[blockIdx.x] = (int32_t)count;
        return;
    }
    double before = 0.0;
    for (int64_t j = first + threadIdx.x; j < first + count; j += blockDim.x)
        before += row[j] > row[label] || (row[j] == row[label] && j < label);
    before = block_sum(before);
    if (threadIdx.x == 0)
        rank[blockIdx.x] = (int32_t)before;
}

enum { LOSS_THREADS = 128 };

#define LOSS_LAUNCHER(name, kernel)                                                                \
    cudaError_t name(const struct cuda_loss *loss, cudaStream_t stream)                            \
    {                                                                                              \
        kernel<<<(unsigned)loss->logits.rows, LOSS_THREADS, 0, stream>>>(*loss);                   \
        return cudaGetLastError();                                                                 \
    }

LOSS_LAUNCHER(cuda_softmax_xent, softmax_xent_kernel)
LOSS_LAUNCHER(cuda_distill, distill_kernel)
LOSS_LAUNCHER(cuda_bce, bce_kernel)
LOSS_LAUNCHER(cuda_cosine_loss, cosine_kernel)
LOSS_LAUNCHER(cuda_margin_loss, margin_kernel)

cudaError_t cuda_rank(int32_t *rank, struct cuda_rows logits, const int32_t *labels, int64_t first,
                      int64_t count, cudaStream_t stream)
{
    rank_kernel<<<(unsigned)logits.rows, LOSS_THREADS, 0, stream>>>(rank, logits, labels, first,
                                                                    count);
    return cudaGetLastError();
}
