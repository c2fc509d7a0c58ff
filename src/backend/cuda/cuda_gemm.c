/*
 * Matrix products by cuBLASLt, of f32 matrices; in TF32 where convolutions are not f32 either.
 *
 * cuBLASLt thinks in columns: a row-major matrix is its transpose to it, with the pitch as leading
 * dimension. Pitches are known when the program is bound, so that is when algorithms are chosen.
 */
#include "backend/cuda/cuda.h"

enum { WORKSPACE_BYTES = 4 << 20, BEST_ALIGNMENT = 16 };

/* d [m, n] = a [m, k] b [k, n], by columns. */
struct product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    struct cuda_rows a, b, d;
    float *a_data; /* where a begins, if not with its first column */
    float beta;    /* 1: adds to what is there */
};

struct cuda_gemm {
    struct product product;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
};

static enum der_status check(struct cuda_program *p, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return DER_OK;
    return ctx_fail(p->base.be->ctx, DER_DEVICE, "cuBLASLt: %s failed with status %d", what,
                    (int)status);
}

static struct product describe(const struct cuda_program *p, const struct cuda_step *step)
{
    const struct cuda_rows first = value_rows(p, step_in(p, step, 0));
    const struct cuda_rows second = value_rows(p, step_in(p, step, 1));
    const struct cuda_rows dst = value_rows(p, step_out(p, step, 0));
    const int64_t column = step->node.attr.columns.first;
    switch (step->node.op) {
    case OP_LINEAR: /* src, weights */
        return (struct product){.m = second.rows,
                                .n = first.rows,
                                .k = first.cols,
                                .transpose_a = true,
                                .a = second,
                                .a_data = second.data,
                                .b = first,
                                .d = dst,
                                .beta = step_in(p, step, 2) ? 1.0f : 0.0f};
    case OP_LINEAR_D_SRC: /* d_dst, weights */
        return (struct product){.m = dst.cols,
                                .n = first.rows,
                                .k = first.cols,
                                .a = second,
                                .a_data = (float *)second.data + column,
                                .b = first,
                                .d = dst};
    default: /* LINEAR_D_WEIGHTS: src, d_dst */
        return (struct product){.m = first.cols,
                                .n = second.cols,
                                .k = first.rows,
                                .transpose_b = true,
                                .a = first,
                                .a_data = first.data,
                                .b = second,
                                .d = dst};
    }
}

/* What a pointer is aligned to, at most BEST_ALIGNMENT. */
static uint32_t alignment_of(const void *pointer)
{
    uint32_t alignment = BEST_ALIGNMENT;
    while ((uintptr_t)pointer % alignment != 0)
        alignment /= 2;
    return alignment;
}

static enum der_status layout(struct cuda_program *p, cublasLtMatrixLayoutOpaque_t *out,
                              const struct cuda_rows *rows, int64_t height, int64_t width)
{
    return check(p,
                 cuda_of(p)->libs.cublasLtMatrixLayoutInit_internal(
                     out, sizeof *out, CUDA_R_32F, (uint64_t)height, (uint64_t)width, rows->pitch),
                 "describing a matrix");
}

static enum der_status choose(struct cuda_program *p, struct cuda_gemm *gemm)
{
    const struct cuda_libs *libs = &cuda_of(p)->libs;
    const struct product *product = &gemm->product;
    const uint64_t workspace = WORKSPACE_BYTES;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t bytes;
    } alignments[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product->a_data)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product->b.data)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product->d.data)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product->d.data)},
    };
    cublasLtMatmulPreferenceOpaque_t preference;
    TRY(check(p, libs->cublasLtMatmulPreferenceInit_internal(&preference, sizeof preference),
              "choosing an algorithm"));
    TRY(check(p,
              libs->cublasLtMatmulPreferenceSetAttribute(&preference,
                                                         CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &workspace, sizeof workspace),
              "choosing an algorithm"));
    for (int i = 0; i < 4; i++)
        TRY(check(p,
                  libs->cublasLtMatmulPreferenceSetAttribute(&preference, alignments[i].name,
                                                             &alignments[i].bytes,
                                                             sizeof alignments[i].bytes),
                  "choosing an algorithm"));
    cublasLtMatmulHeuristicResult_t result;
    int n = 0;
    TRY(check(p,
              libs->cublasLtMatmulAlgoGetHeuristic(cuda_of(p)->gemm, &gemm->operation, &gemm->a,
                                                   &gemm->b, &gemm->d, &gemm->d, &preference, 1,
                                                   &result, &n),
              "choosing an algorithm"));
    if (n == 0)
        return ctx_fail(p->base.be->ctx, DER_DEVICE, "cuBLASLt has no algorithm for a product");
    gemm->algorithm = result.algo;
    return DER_OK;
}

enum der_status cuda_gemm_resolve(struct cuda_program *p, struct cuda_step *step)
{
    const struct cuda_libs *libs = &cuda_of(p)->libs;
    struct cuda_gemm *gemm = step->gemm;
    struct product *product = &gemm->product;
    *product = describe(p, step);
    if (!product->d.data)
        return DER_OK;
    const cublasComputeType_t compute =
        p->precision == PRECISION_F32 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_FAST_TF32;
    const cublasOperation_t transpose_a = product->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t transpose_b = product->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY(check(p,
              libs->cublasLtMatmulDescInit_internal(&gemm->operation, sizeof gemm->operation,
                                                    compute, CUDA_R_32F),
              "describing a product"));
    TRY(check(p,
              libs->cublasLtMatmulDescSetAttribute(&gemm->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                   &transpose_a, sizeof transpose_a),
              "describing a product"));
    TRY(check(p,
              libs->cublasLtMatmulDescSetAttribute(&gemm->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                                   &transpose_b, sizeof transpose_b),
              "describing a product"));
    TRY(layout(p, &gemm->a, &product->a, product->transpose_a ? product->k : product->m,
               product->transpose_a ? product->m : product->k));
    TRY(layout(p, &gemm->b, &product->b, product->transpose_b ? product->n : product->k,
               product->transpose_b ? product->k : product->n));
    TRY(layout(p, &gemm->d, &product->d, product->m, product->n));
    return choose(p, gemm);
}

static enum der_status multiply(struct cuda_program *p, const struct cuda_step *step,
                                cudaStream_t stream)
{
    const struct cuda_gemm *gemm = step->gemm;
    const struct product *product = &gemm->product;
    const float one = 1.0f;
    cublasLtMatmulDescOpaque_t operation = gemm->operation;
    cublasLtMatrixLayoutOpaque_t a = gemm->a;
    cublasLtMatrixLayoutOpaque_t b = gemm->b;
    cublasLtMatrixLayoutOpaque_t d = gemm->d;
    return check(p,
                 cuda_of(p)->libs.cublasLtMatmul(
                     cuda_of(p)->gemm, &operation, &one, product->a_data, &a, product->b.data, &b,
                     &product->beta, product->d.data, &d, product->d.data, &d, &gemm->algorithm,
                     step_scratch(p, step), WORKSPACE_BYTES, stream),
                 "a product");
}

static enum der_status run_product(struct cuda_program *p, const struct cuda_step *step,
                                   cudaStream_t stream)
{
    struct der_ctx *ctx = p->base.be->ctx;
    const struct cuda_value *bias = step->node.op == OP_LINEAR ? step_in(p, step, 2) : NULL;
    const struct cuda_value *d_bias =
        step->node.op == OP_LINEAR_D_WEIGHTS ? step_out(p, step, 1) : NULL;
    if (bias)
        TRY(cuda_check(
            ctx, cuda_bias_rows(step->gemm->product.d, (const float *)(void *)bias->data, stream),
            "adding a bias"));
    if (step->gemm->product.d.data)
        TRY(multiply(p, step, stream));
    if (d_bias)
        TRY(cuda_check(ctx,
                       cuda_bias_grad((float *)(void *)d_bias->data,
                                      value_rows(p, step_in(p, step, 1)), stream),
                       "the gradient of a bias"));
    return DER_OK;
}

enum der_status cuda_gemm_init(struct cuda_program *p, struct cuda_step *step)
{
    step->gemm = arena_zalloc(&p->arena, 1, sizeof *step->gemm);
    if (!step->gemm)
        return ctx_nomem(p->base.be->ctx);
    step->run = run_product;
    step->scratch_bytes = WORKSPACE_BYTES;
    return DER_OK;
}
