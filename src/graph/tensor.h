/*
 * Logical tensors: dimensions and element type, nothing about where or how they are stored.
 *
 * Images are [n, c, h, w], matrices [n, d], vectors [c]; layouts are private to the back ends,
 * everything that enters or leaves one is dense and row-major in this order.
 */
#ifndef GRAPH_TENSOR_H
#define GRAPH_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHAPE_MAX_RANK = 4, SHAPE_TEXT_MAX = 64 };

enum dtype { DTYPE_F32, DTYPE_I32 };

struct shape {
    int rank;                    /* 1 to SHAPE_MAX_RANK */
    int64_t dim[SHAPE_MAX_RANK]; /* each at least 1; unused ones are 0 */
};

struct shape shape_1d(int64_t a);
struct shape shape_2d(int64_t a, int64_t b);
struct shape shape_4d(int64_t a, int64_t b, int64_t c, int64_t d);

bool shape_equal(struct shape a, struct shape b);

/* True when rank and dimensions are positive and the element count stays far from overflow. */
bool shape_is_valid(struct shape shape);

/* Number of elements. */
int64_t shape_count(struct shape shape);

/* Elements per channel and sample: h * w for images, 1 for matrices. */
int64_t shape_spatial(struct shape shape);

/* "[128, 64, 32, 32]" into `text`; returns it. */
const char *shape_text(struct shape shape, char text[SHAPE_TEXT_MAX]);

/* Bytes of one element. */
size_t dtype_bytes(enum dtype dtype);

#endif
