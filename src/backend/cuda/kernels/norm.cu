/*
 * Batch norm with mask, residual and ReLU.
 *
 *   x^ = (src - mean) inv_std;  dst = relu?(mask (gamma x^ + beta) + residual)
 *
 * Of the sums of src and its squares follow numbers per channel, with which dst = (src - mean) a + b +
 * residual. Without training the running statistics serve and nothing is summed.
 */
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/norm_line.cuh"

/* Partial sums of at most SUMS_BLOCKS blocks, or of one for each slice where there are more slices. */
size_t cuda_bn_scratch(int64_t stored)
{
    const int64_t slices = divide_up(stored, SLICE_MIN);
    return (size_t)(slices < SUMS_BLOCKS ? (int64_t)SUMS_BLOCKS : slices) * COLUMNS_MAX * sizeof(double);
}

size_t cuda_bn_sums(int64_t stored, int64_t parts)
{
    const int64_t width = slice_width(stored);
    return (size_t)(divide_up(stored, width) * parts * 2 * width) * sizeof(float);
}

template <typename T, int WIDTH, bool RESIDUAL> struct forward {
    typedef struct cuda_bn args;
    typedef T number;
    typedef typename accumulator<T>::type A;
    enum { V = WIDTH, DEPTH = 4, RESIDENT = sizeof(T) == 2 ? 2 : 1 };
    enum { A_OF_C, B_OF_C, MEAN, COEFS = means<T>::APART ? 3 : 2 };

    struct row {
        typename vec<T, V>::raw src, residual;
    };

    __device__ static row fetch(const struct cuda_bn &bn, int at, int64_t c)
    {
        row r;
        r.src = vec<T, V>::fetch((const T *)bn.src.data + at * bn.src.pitch + c);
        if (RESIDUAL)
            r.residual = vec<T, V>::fetch((const T *)bn.residual.data + at * bn.residual.pitch + c);
        return r;
    }

    __device__ static row refetch(const struct cuda_bn &bn, int at, int64_t c)
    {
        return fetch(bn, at, c);
    }

    __device__ static bool is_early(const struct cuda_bn &)
    {
        return true;
    }

    __device__ static void sum(const struct cuda_bn &, int, int64_t, const row &r,
                               A (&sums)[2 * V])
    {
        float x[V];
        vec<T, V>::expand(x, r.src);
#pragma unroll
        for (int i = 0; i < V; i++) {
            sums[i] += (A)x[i];
            sums[V + i] += (A)x[i] * (A)x[i];
        }
    }

    __device__ static void settle(const struct cuda_bn &bn, int at, int64_t c, row &r,
                                  A (&sums)[2 * V])
    {
        sum(bn, at, c, r, sums);
    }

    /* Mean and variance of channel c; in training the running ones move on. */
    __device__ static void statistics(const struct cuda_bn &bn, int64_t c, double sum,
                                      double squares, bool is_writer, double &mean, double &var)
    {
        if (!bn.training) {
            mean = (double)bn.running_mean[c];
            var = (double)bn.running_var[c];
            return;
        }
        const double count = (double)bn.src.rows;
        mean = sum / count;
        var = fmax(squares / count - mean * mean, 0.0);
        if (!is_writer)
            return;
        const double unbias = count > 1.0 ? count / (count - 1.0) : 1.0;
        const double momentum = (double)bn.momentum;
        bn.running_mean[c] =
            (float)((1.0 - momentum) * (double)bn.running_mean[c] + momentum * mean);
        bn.running_var[c] =
            (float)((1.0 - momentum) * (double)bn.running_var[c] + momentum * var * unbias);
    }

    __device__ static void finish(const struct cuda_bn &bn, int64_t c, double sum, double squares,
                                  bool is_writer, float (&coef)[COEFS])
    {
        const double gamma = (double)bn.gamma[c];
        const double beta = (double)bn.beta[c];
        const double m = bn.mask ? (double)bn.mask[c] : 1.0;
        double mean;
        double var;
        statistics(bn, c, sum, squares, is_writer, mean, var);
        const double inv_std = 1.0 / sqrt(var + (double)bn.eps);
        if (is_writer && bn.mean)
            bn.mean[c] = (float)mean;
        if (is_writer && bn.inv_std)
            bn.inv_std[c] = (float)inv_std;
        if constexpr (means<T>::APART) {
            coef[A_OF_C] = (float)(m * gamma * inv_std);
            coef[MEAN] = (float)mean;
            coef[B_OF_C] = (float)(m * beta);
        } else {
            norm_line(bn.gamma[c], bn.beta[c], (float)m, (float)mean, (float)inv_std,
                      coef[A_OF_C], coef[B_OF_C]);
        }
    }

    __device__ static void apply(const struct cuda_bn &bn, int at, int64_t c, const row &r,
                                 const float (&coef)[COEFS][V])
    {
        float x[V];
        float added[V];
        vec<T, V>::expand(x, r.src);
        if (RESIDUAL)
            vec<T, V>::expand(added, r.residual);
#pragma unroll
        for (int i = 0; i < V; i++) {
            if constexpr (means<T>::APART)
                x[i] -= coef[MEAN][i];
            float z = fmaf(x[i], coef[A_OF_C][i], coef[B_OF_C][i]);
            if (RESIDUAL)
                z += added[i];
            x[i] = bn.relu && z < 0.0f ? 0.0f : z;
        }
        vec<T, V>::store((T *)bn.dst.data + at * bn.dst.pitch + c, x);
    }

    __device__ static void apply_settled(const struct cuda_bn &bn, int at, int64_t c, const row &r,
                                         const float (&coef)[COEFS][V])
    {
        apply(bn, at, c, r, coef);
    }
};

template <typename T, int V> static cudaError_t launch(const struct cuda_bn *bn, cudaStream_t stream)
{
    const struct norm_work work = {bn->training, bn->summed, true};
    return bn->residual.data ? norm_run<forward<T, V, true>>(bn, work, stream)
                             : norm_run<forward<T, V, false>>(bn, work, stream);
}

cudaError_t cuda_bn(const struct cuda_bn *bn, cudaStream_t stream)
{
    const bool wide =
        vectors_fit(&bn->src) && vectors_fit(&bn->residual) && vectors_fit(&bn->dst);
    if (bn->summed > 0 && !(bn->training && bn->src.type == CUDA_BF16))
        return cudaErrorInvalidValue;
    if (bn->src.type == CUDA_BF16)
        return wide ? launch<bf16, VECTOR>(bn, stream) : launch<bf16, 1>(bn, stream);
    return wide ? launch<float, VECTOR>(bn, stream) : launch<float, 1>(bn, stream);
}
