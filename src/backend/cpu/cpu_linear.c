/*
 * Matrix products: oneDNN's sgemm, whose partition depends on shapes and thread count alone.
 */
#include "backend/cpu/cpu.h"

/* dst [n, k] = src [n, d] weights[k, d]^T + bias */
enum der_status cpu_linear(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_matrix src = value_matrix(step_in(p, step, 0));
    struct cpu_matrix weights = value_matrix(step_in(p, step, 1));
    const float *bias = value_data(step_in(p, step, 2));
    struct cpu_matrix dst = value_matrix(step_out(p, step, 0));
    struct shim_gemm gemm = {.transpose_b = true,
                             .m = src.rows,
                             .n = weights.rows,
                             .k = src.cols,
                             .a = src.data,
                             .b = weights.data,
                             .c = dst.data,
                             .pitch_a = src.pitch,
                             .pitch_b = weights.pitch,
                             .pitch_c = dst.pitch};
    TRY(shim_gemm(cpu_backend_of(p)->shim, &gemm));
    if (bias)
        cpu_bias_add(dst, bias);
    return DER_OK;
}

/* d_src [n, count] = d_dst [n, k] weights[k, first .. first + count) */
enum der_status cpu_linear_d_src(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_matrix d_dst = value_matrix(step_in(p, step, 0));
    struct cpu_matrix weights = value_matrix(step_in(p, step, 1));
    struct cpu_matrix d_src = value_matrix(step_out(p, step, 0));
    struct shim_gemm gemm = {.m = d_src.rows,
                             .n = d_src.cols,
                             .k = d_dst.cols,
                             .a = d_dst.data,
                             .b = weights.data + step->node.attr.columns.first,
                             .c = d_src.data,
                             .pitch_a = d_dst.pitch,
                             .pitch_b = weights.pitch,
                             .pitch_c = d_src.pitch};
    return shim_gemm(cpu_backend_of(p)->shim, &gemm);
}

/* d_weights [k, d] = d_dst[n, k]^T src [n, d] */
enum der_status cpu_linear_d_weights(struct cpu_program *p, const struct cpu_step *step)
{
    struct cpu_matrix src = value_matrix(step_in(p, step, 0));
    struct cpu_matrix d_dst = value_matrix(step_in(p, step, 1));
    struct cpu_matrix d_weights = value_matrix(step_out(p, step, 0));
    float *d_bias = value_data(step_out(p, step, 1));
    if (d_weights.data) {
        struct shim_gemm gemm = {.transpose_a = true,
                                 .m = d_dst.cols,
                                 .n = src.cols,
                                 .k = d_dst.rows,
                                 .a = d_dst.data,
                                 .b = src.data,
                                 .c = d_weights.data,
                                 .pitch_a = d_dst.pitch,
                                 .pitch_b = src.pitch,
                                 .pitch_c = d_weights.pitch};
        TRY(shim_gemm(cpu_backend_of(p)->shim, &gemm));
    }
    if (d_bias)
        cpu_bias_grad(d_bias, d_dst);
    return DER_OK;
}
