/*
 * The gradient of batch norm with everything fused into it.
 *
 * The sums are those of g and of g src over the rows of every channel; d_residual = g is written with
 * them where it is wanted, and read back. d_gamma, d_beta, d_mask and numbers per channel follow, with
 * which d_src = k g - s (src - mean) + t.
 */
#include "backend/cuda/kernels/norm.cuh"

/* d_dst2: absent; as d_dst; without its zeros. */
enum second { SECOND_NONE, SECOND_WHOLE, SECOND_SPARSE };

template <typename T, int WIDTH, enum second SECOND> struct backward {
    typedef struct cuda_bn_grad args;
    typedef T number;
    typedef typename accumulator<T>::type A;
    typedef vec<T, WIDTH> channels;
    enum { V = WIDTH, DEPTH = 2, RESIDENT = sizeof(T) == 2 ? 2 : 1 };
    enum { K_OF_C, S_OF_C, T_OF_C, MEAN, COEFS = means<T>::APART ? 4 : 3 };

    struct row {
        typename channels::raw d_dst, d_dst2, dst, src;
        /* Of the second pass, where d_residual is written: d_dst is that, and only src is beside it. */
    };

    __device__ static typename channels::raw read(const struct cuda_rows &m, int at, int64_t c)
    {
        return channels::fetch((const T *)m.data + at * m.pitch + c);
    }

    __device__ static typename channels::raw read_second(const struct cuda_bn_grad &bn, int at,
                                                         int64_t c)
    {
        if (SECOND != SECOND_SPARSE)
            return read(bn.d_dst2, at, c);
        const int x = at & ((1 << bn.log_w) - 1);
        const int line = at >> bn.log_w; /* of all images */
        const typename channels::raw zeros = {};
        if ((x | line) & 1)
            return zeros;
        return read(bn.d_dst2, (line / 2 << (bn.log_w - 1)) + x / 2, c);
    }

    __device__ static row fetch(const struct cuda_bn_grad &bn, int at, int64_t c)
    {
        row r;
        r.d_dst = read(bn.d_dst, at, c);
        if (SECOND)
            r.d_dst2 = read_second(bn, at, c);
        if (bn.relu)
            r.dst = read(bn.dst, at, c);
        r.src = read(bn.src, at, c);
        return r;
    }

    /* g = d_dst + d_dst2, 0 where the ReLU was closed. */
    __device__ static void combine(const struct cuda_bn_grad &bn, const row &r, float (&g)[V])
    {
        float more[V];
        channels::expand(g, r.d_dst);
        if (SECOND) {
            channels::expand(more, r.d_dst2);
#pragma unroll
            for (int i = 0; i < V; i++)
                g[i] += more[i];
        }
        if (bn.relu) {
            channels::expand(more, r.dst);
#pragma unroll
            for (int i = 0; i < V; i++)
                g[i] = more[i] <= 0.0f ? 0.0f : g[i];
        }
    }

    __device__ static void sum(const struct cuda_bn_grad &bn, int at, int64_t c, const row &r,
                               A (&sums)[2 * V])
    {
        float g[V];
        combine(bn, r, g);
        sum_of(bn, at, c, r, g, sums);
    }

    /* d_dst becomes g, rounded as d_residual is. */
    __device__ static void settle(const struct cuda_bn_grad &bn, int at, int64_t c, row &r,
                                  A (&sums)[2 * V])
    {
        float g[V];
        combine(bn, r, g);
        sum_of(bn, at, c, r, g, sums);
        r.d_dst = channels::rounded(g);
    }

    __device__ static void sum_of(const struct cuda_bn_grad &bn, int at, int64_t c, const row &r,
                                  const float (&g)[V], A (&sums)[2 * V])
    {
        float x[V];
        channels::expand(x, r.src);
        if (bn.d_residual.data)
            channels::store((T *)bn.d_residual.data + at * bn.d_residual.pitch + c, g);
#pragma unroll
        for (int i = 0; i < V; i++) {
            sums[i] += (A)g[i];
            sums[V + i] += (A)g[i] * (A)x[i];
        }
    }

    __device__ static row refetch(const struct cuda_bn_grad &bn, int at, int64_t c)
    {
        if (!bn.d_residual.data)
            return fetch(bn, at, c);
        row r;
        r.d_dst = read(bn.d_residual, at, c);
        r.src = read(bn.src, at, c);
        return r;
    }

    __device__ static bool is_early(const struct cuda_bn_grad &bn)
    {
        return !bn.d_residual.data;
    }

    __device__ static void finish(const struct cuda_bn_grad &bn, int64_t c, double d_beta,
                                  double along, bool is_writer, float (&coef)[COEFS])
    {
        const double count = (double)bn.src.rows;
        const double gamma = (double)bn.gamma[c];
        const double inv_std = (double)bn.inv_std[c];
        const double m = bn.mask ? (double)bn.mask[c] : 1.0;
        const double d_gamma = inv_std * (along - (double)bn.mean[c] * d_beta);
        if (is_writer && bn.d_gamma)
            bn.d_gamma[c] = (float)(m * d_gamma);
        if (is_writer && bn.d_beta)
            bn.d_beta[c] = (float)(m * d_beta);
        if (is_writer && bn.d_mask)
            bn.d_mask[c] = (float)(gamma * d_gamma + (double)bn.beta[c] * d_beta);
        const double k = gamma * m * inv_std;
        const double slope = bn.training ? k * d_gamma * inv_std / count : 0.0;
        const double shift = bn.training ? -k * d_beta / count : 0.0;
        coef[K_OF_C] = (float)k;
        coef[S_OF_C] = (float)slope;
        if constexpr (means<T>::APART) {
            coef[MEAN] = bn.mean[c];
            coef[T_OF_C] = (float)shift;
        } else {
            coef[T_OF_C] = (float)(shift + slope * (double)bn.mean[c]);
        }
    }

    __device__ static void apply(const struct cuda_bn_grad &bn, int at, int64_t c, const row &r,
                                 const float (&coef)[COEFS][V])
    {
        float g[V];
        if (bn.d_residual.data)
            channels::expand(g, r.d_dst);
        else
            combine(bn, r, g);
        apply_to(bn, at, c, r, g, coef);
    }

    __device__ static void apply_settled(const struct cuda_bn_grad &bn, int at, int64_t c,
                                         const row &r, const float (&coef)[COEFS][V])
    {
        float g[V];
        channels::expand(g, r.d_dst);
        apply_to(bn, at, c, r, g, coef);
    }

    __device__ static void apply_to(const struct cuda_bn_grad &bn, int at, int64_t c, const row &r,
                                    float (&g)[V], const float (&coef)[COEFS][V])
    {
        float x[V];
        channels::expand(x, r.src);
#pragma unroll
        for (int i = 0; i < V; i++) {
            if constexpr (means<T>::APART)
                x[i] -= coef[MEAN][i];
            g[i] = coef[K_OF_C][i] * g[i] + (coef[T_OF_C][i] - coef[S_OF_C][i] * x[i]);
        }
        channels::store((T *)bn.d_src.data + at * bn.d_src.pitch + c, g);
    }
};

/* The second pass where d_dst is g: two images are read, and more rows can be under way. */
template <typename T, int WIDTH> struct settled : backward<T, WIDTH, SECOND_NONE> {
    typedef backward<T, WIDTH, SECOND_NONE> all;
    typedef typename all::row row;
    enum { DEPTH = 3 };

    __device__ static row refetch(const struct cuda_bn_grad &bn, int at, int64_t c)
    {
        row r;
        r.d_dst = all::read(bn.d_dst, at, c);
        r.src = all::read(bn.src, at, c);
        return r;
    }

    __device__ static bool is_early(const struct cuda_bn_grad &)
    {
        return true;
    }

    __device__ static void apply(const struct cuda_bn_grad &bn, int at, int64_t c, const row &r,
                                 const float (&coef)[all::COEFS][WIDTH])
    {
        all::apply_settled(bn, at, c, r, coef);
    }
};

template <typename T, int V>
static cudaError_t launch(const struct cuda_bn_grad *bn, cudaStream_t stream)
{
    typedef backward<T, V, SECOND_NONE> one;
    typedef backward<T, V, SECOND_WHOLE> two;
    typedef backward<T, V, SECOND_SPARSE> sparse;
    const struct norm_work work = {true, 0, bn->d_src.data != NULL};
    const bool has_sum = bn->d_residual.data != NULL; /* for the second pass */
    if (!bn->d_dst2.data)
        return norm_run<one>(bn, work, stream);
    if (bn->log_w > 0)
        return has_sum ? norm_run<sparse, one>(bn, work, stream)
                       : norm_run<sparse>(bn, work, stream);
    return has_sum ? norm_run<two, one>(bn, work, stream) : norm_run<two>(bn, work, stream);
}

/* With sums that are there, all that is left to do is to apply them to what reaches batch norm. */
static cudaError_t apply_sums(const struct cuda_bn_grad *bn, cudaStream_t stream)
{
    const bool is_same = !bn->d_residual.data || bn->d_residual.data == bn->d_dst.data;
    const bool wide = vectors_fit(&bn->d_dst) && vectors_fit(&bn->src) && vectors_fit(&bn->d_src);
    const struct norm_work work = {true, bn->summed, bn->d_src.data != NULL};
    if (!is_same || !wide || bn->src.type != CUDA_BF16 || !bn->training)
        return cudaErrorInvalidValue;
    return norm_run<backward<bf16, VECTOR, SECOND_NONE>, settled<bf16, VECTOR>>(bn, work, stream);
}

cudaError_t cuda_bn_grad(const struct cuda_bn_grad *bn, cudaStream_t stream)
{
    if (bn->summed > 0)
        return apply_sums(bn, stream);
    const bool wide = vectors_fit(&bn->d_dst) && vectors_fit(&bn->d_dst2) &&
                      vectors_fit(&bn->src) && vectors_fit(&bn->dst) && vectors_fit(&bn->d_src) &&
                      vectors_fit(&bn->d_residual);
    if (bn->src.type == CUDA_BF16)
        return wide ? launch<bf16, VECTOR>(bn, stream) : launch<bf16, 1>(bn, stream);
    return wide ? launch<float, VECTOR>(bn, stream) : launch<float, 1>(bn, stream);
}
