#include "graph/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static const int64_t MAX_ELEMENTS = INT64_C(1) << 40;

struct shape shape_1d(int64_t a)
{
    return (struct shape){1, {a}};
}

struct shape shape_2d(int64_t a, int64_t b)
{
    return (struct shape){2, {a, b}};
}

struct shape shape_4d(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct shape){4, {a, b, c, d}};
}

bool shape_equal(struct shape a, struct shape b)
{
    if (a.rank != b.rank)
        return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i])
            return false;
    return true;
}

bool shape_is_valid(struct shape shape)
{
    if (shape.rank < 1 || shape.rank > SHAPE_MAX_RANK)
        return false;
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 1 || shape.dim[i] > MAX_ELEMENTS / count)
            return false;
        count *= shape.dim[i];
    }
    return true;
}

int64_t shape_count(struct shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    return count;
}

int64_t shape_spatial(struct shape shape)
{
    return shape.rank == 4 ? shape.dim[2] * shape.dim[3] : 1;
}

const char *shape_text(struct shape shape, char text[SHAPE_TEXT_MAX])
{
    int used = snprintf(text, SHAPE_TEXT_MAX, "[");
    for (int i = 0; i < shape.rank && used < SHAPE_TEXT_MAX; i++)
        used += snprintf(text + used, (size_t)(SHAPE_TEXT_MAX - used),
                         i ? ", %" PRId64 : "%" PRId64, shape.dim[i]);
    if (used < SHAPE_TEXT_MAX)
        (void)snprintf(text + used, (size_t)(SHAPE_TEXT_MAX - used), "]");
    return text;
}

size_t dtype_bytes(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_I32:
        return 4;
    }
    assert(!"unknown dtype");
    return 0;
}
