/*
 * Comparing tensors: the normalised mean squared error decides, the message shows the worst place.
 */
#ifndef SUPPORT_TENSOR_CHECK_H
#define SUPPORT_TENSOR_CHECK_H

#include <stdint.h>

/* sum (actual - expected)^2 / sum expected^2; when all of `expected` is 0, 0 if `actual` is too and
 * infinity if not. NaN when either holds a NaN. */
double tensor_nmse(const float *actual, const float *expected, int64_t n);

/* Fails the test unless the NMSE is at most `tolerance`; NaN never passes. */
void assert_tensor_close(const float *actual, const float *expected, int64_t n, double tolerance,
                         const char *what);

/* Fails the test at the first integer that differs. */
void assert_ints_equal(const int32_t *actual, const int32_t *expected, int64_t n, const char *what);

#endif
