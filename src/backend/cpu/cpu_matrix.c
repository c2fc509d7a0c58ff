/*
 * Rows of matrices: unit length and its gradient, biases.
 *
 * These matrices are small (a batch of features or logits), so one thread does.
 */
#include "backend/cpu/cpu_kernels.h"

#include <math.h>

static float *row_of(struct cpu_matrix matrix, int64_t row)
{
    return matrix.data + row * matrix.pitch;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

void cpu_l2norm(struct cpu_matrix dst, float *inv_norm, struct cpu_matrix src, float eps)
{
    for (int64_t n = 0; n < src.rows; n++) {
        const float *x = row_of(src, n);
        float *y = row_of(dst, n);
        const double norm = sqrt(dot(x, x, src.cols));
        const double inverse = 1 / (norm > (double)eps ? norm : (double)eps);
        for (int64_t i = 0; i < src.cols; i++)
            y[i] = (float)((double)x[i] * inverse);
        inv_norm[n] = (float)inverse;
    }
}

/* With y = x / |x|:  d_x = (d_y - y <y, d_y>) / |x|. Where eps stood in for |x|, the divisor is a
 * constant and d_x = d_y / eps. */
void cpu_l2norm_grad(struct cpu_matrix d_src, struct cpu_matrix d_dst, struct cpu_matrix dst,
                     const float *inv_norm, float eps)
{
    const float largest = (float)(1 / (double)eps);
    for (int64_t n = 0; n < dst.rows; n++) {
        const float *y = row_of(dst, n);
        const float *d_y = row_of(d_dst, n);
        float *d_x = row_of(d_src, n);
        const double along = inv_norm[n] >= largest ? 0 : dot(y, d_y, dst.cols);
        for (int64_t i = 0; i < dst.cols; i++)
            d_x[i] = (float)((double)inv_norm[n] * ((double)d_y[i] - (double)y[i] * along));
    }
}

void cpu_bias_add(struct cpu_matrix dst, const float *bias)
{
    for (int64_t n = 0; n < dst.rows; n++) {
        float *row = row_of(dst, n);
        for (int64_t i = 0; i < dst.cols; i++)
            row[i] += bias[i];
    }
}

enum { BIAS_COLUMNS = 64 }; /* sums kept side by side, so that rows are read along memory */

void cpu_bias_grad(float *d_bias, struct cpu_matrix d_dst)
{
    for (int64_t first = 0; first < d_dst.cols; first += BIAS_COLUMNS) {
        const int64_t rest = d_dst.cols - first;
        const int64_t count = rest < BIAS_COLUMNS ? rest : BIAS_COLUMNS;
        double sum[BIAS_COLUMNS] = {0};
        for (int64_t n = 0; n < d_dst.rows; n++) {
            for (int64_t i = 0; i < count; i++)
                sum[i] += (double)row_of(d_dst, n)[first + i];
        }
        for (int64_t i = 0; i < count; i++)
            d_bias[first + i] = (float)sum[i];
    }
}
