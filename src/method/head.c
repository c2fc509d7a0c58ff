#include "method/head.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { WEIGHT, BIAS }; /* a head in training has the first alone */

static enum der_status fill(struct param_set *head, struct backend *be, const char *name,
                            struct shape shape, enum param_init init)
{
    int index;
    TRY(param_set_add(head, name, shape, PARAM_LEARNT, init, &index));
    return param_set_allocate(head, be);
}

enum der_status head_new(struct backend *be, const char *name, int64_t rows, int64_t cols,
                         enum param_init init, uint64_t seed, uint32_t stream,
                         struct param_set **out)
{
    struct param_set *head;
    *out = NULL;
    TRY(param_set_new(be->ctx, &head));
    enum der_status status = fill(head, be, name, shape_2d(rows, cols), init);
    if (status == DER_OK)
        status = param_set_init(head, seed, stream);
    if (status == DER_OK)
        status = param_set_thaw(head);
    if (status != DER_OK) {
        param_set_free(head);
        return status;
    }
    *out = head;
    return DER_OK;
}

enum der_status head_reset(struct param_set *head, uint64_t seed, uint32_t stream)
{
    head->items[WEIGHT].init = INIT_LINEAR_UNIFORM;
    return param_set_init(head, seed, stream);
}

/* The matrix on the host; caller frees with mem_free. */
static enum der_status read_weights(const struct param_set *head, float **out)
{
    struct mem *mem = &head->ctx->mem;
    *out = mem_alloc(mem, (size_t)shape_count(head->items[WEIGHT].shape), sizeof **out);
    if (!*out)
        return ctx_nomem(head->ctx);
    return param_read(head, WEIGHT, *out);
}

enum der_status head_inherit(struct param_set *head, const struct param_set *from)
{
    struct mem *mem = &head->ctx->mem;
    struct shape to_shape = head->items[WEIGHT].shape;
    struct shape from_shape = from->items[WEIGHT].shape;
    int64_t cols = to_shape.dim[1] < from_shape.dim[1] ? to_shape.dim[1] : from_shape.dim[1];
    float *src = NULL;
    float *dst = NULL;
    enum der_status status = read_weights(from, &src);
    if (status == DER_OK)
        status = read_weights(head, &dst);
    if (status == DER_OK) {
        for (int64_t row = 0; row < to_shape.dim[0] && row < from_shape.dim[0]; row++)
            memcpy(dst + row * to_shape.dim[1], src + row * from_shape.dim[1],
                   (size_t)cols * sizeof *dst);
        status = param_write(head, WEIGHT, dst);
    }
    mem_free(mem, src);
    mem_free(mem, dst);
    return status;
}

/* Mean Euclidean length of `count` rows. */
static double mean_length(const float *rows, int64_t count, int64_t cols)
{
    double sum = 0.0;
    for (int64_t row = 0; row < count; row++) {
        double squares = 0.0;
        for (int64_t c = 0; c < cols; c++)
            squares += (double)rows[row * cols + c] * (double)rows[row * cols + c];
        sum += sqrt(squares);
    }
    return sum / (double)count;
}

enum der_status head_align(struct param_set *head, int64_t n_old)
{
    struct mem *mem = &head->ctx->mem;
    const int64_t cols = head->items[WEIGHT].shape.dim[1];
    const int64_t n_new = head->items[WEIGHT].shape.dim[0] - n_old;
    float *rows = NULL;
    assert(n_old > 0 && n_new > 0);
    enum der_status status = read_weights(head, &rows);
    if (status == DER_OK) {
        const double old_length = mean_length(rows, n_old, cols);
        const double new_length = mean_length(rows + n_old * cols, n_new, cols);
        const bool can_align = old_length > 0.0 && new_length > 0.0;
        const float gamma = can_align ? (float)(old_length / new_length) : 1.0f;
        for (int64_t i = n_old * cols; i < (n_old + n_new) * cols; i++)
            rows[i] *= gamma;
        status = param_write(head, WEIGHT, rows);
    }
    mem_free(mem, rows);
    return status;
}

static enum der_status declare_corrected(struct param_set *to, const struct param_set *head)
{
    const struct param *rows = &head->items[WEIGHT];
    int index;
    TRY(param_set_add(to, rows->name, rows->shape, PARAM_LEARNT, INIT_ZERO, &index));
    TRY(param_set_add(to, "classifier.bias", shape_1d(rows->shape.dim[0]), PARAM_LEARNT, INIT_ZERO,
                      &index));
    return param_set_allocate(to, head->be);
}

static enum der_status write_corrected(struct param_set *to, const struct param_set *head,
                                       int64_t n_old, double scale, double offset)
{
    struct mem *mem = &head->ctx->mem;
    const int64_t n = head->items[WEIGHT].shape.dim[0];
    const int64_t cols = head->items[WEIGHT].shape.dim[1];
    float *rows = NULL;
    float *bias = mem_zalloc(mem, (size_t)n, sizeof *bias);
    enum der_status status = bias ? read_weights(head, &rows) : ctx_nomem(head->ctx);
    if (status == DER_OK) {
        for (int64_t i = n_old * cols; i < n * cols; i++)
            rows[i] = (float)(scale * (double)rows[i]);
        for (int64_t row = n_old; row < n; row++)
            bias[row] = (float)offset;
        status = param_write(to, WEIGHT, rows);
    }
    if (status == DER_OK)
        status = param_write(to, BIAS, bias);
    mem_free(mem, rows);
    mem_free(mem, bias);
    return status;
}

enum der_status head_correct(const struct param_set *head, int64_t n_old, double scale,
                             double offset, struct param_set **out)
{
    struct param_set *to;
    *out = NULL;
    TRY(param_set_new(head->ctx, &to));
    enum der_status status = declare_corrected(to, head);
    if (status == DER_OK)
        status = write_corrected(to, head, n_old, scale, offset);
    if (status != DER_OK) {
        param_set_free(to);
        return status;
    }
    *out = to;
    return DER_OK;
}

static void select_columns(float *dst, const float *src, struct shape full, const int32_t *cols,
                           int64_t n_cols)
{
    for (int64_t row = 0; row < full.dim[0]; row++)
        for (int64_t c = 0; c < n_cols; c++)
            dst[row * n_cols + c] = src[row * full.dim[1] + cols[c]];
}

static enum der_status copy_columns(const struct param_set *head, const int32_t *cols,
                                    struct param_set *to)
{
    struct mem *mem = &head->ctx->mem;
    struct shape full = head->items[WEIGHT].shape;
    int64_t n_cols = to->items[WEIGHT].shape.dim[1];
    float *src = NULL;
    float *dst = mem_alloc(mem, (size_t)(full.dim[0] * n_cols), sizeof *dst);
    enum der_status status = dst ? read_weights(head, &src) : ctx_nomem(head->ctx);
    if (status == DER_OK) {
        select_columns(dst, src, full, cols, n_cols);
        status = param_write(to, WEIGHT, dst);
    }
    if (status == DER_OK && head->velocity)
        status = param_read_velocity(head, WEIGHT, src);
    if (status == DER_OK && head->velocity) {
        select_columns(dst, src, full, cols, n_cols);
        status = param_write_velocity(to, WEIGHT, dst);
    }
    mem_free(mem, src);
    mem_free(mem, dst);
    return status;
}

enum der_status head_select(const struct param_set *head, const int32_t *cols, int64_t n_cols,
                            struct param_set **out)
{
    struct param_set *selected;
    *out = NULL;
    TRY(head_new(head->be, head->items[WEIGHT].name, head->items[WEIGHT].shape.dim[0], n_cols,
                 INIT_ZERO, 0, 0, &selected));
    enum der_status status = copy_columns(head, cols, selected);
    if (status != DER_OK) {
        param_set_free(selected);
        return status;
    }
    *out = selected;
    return DER_OK;
}
