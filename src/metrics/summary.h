/*
 * Many measurements in few numbers: mean and deviation over runs, percentiles over latencies.
 *
 * What is undefined is NAN and is printed as if it had not been given, never as 0.
 */
#ifndef METRICS_SUMMARY_H
#define METRICS_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

enum { SUMMARY_TEXT_MAX = 64 }; /* enough for any text of summary_format */

struct summary {
    int64_t n;   /* values */
    double mean; /* NAN without values */
    double std;  /* sample standard deviation, divided by n - 1; NAN with fewer than two values */
};

struct summary summary_of(const double *values, int64_t n);

/* "74.64 +- 0.28", "74.64" without a deviation, "-" without a mean. Cut when `size` is too small;
 * always ends with a zero byte. */
void summary_format(double mean, double std, char *text, size_t size);

/* Ascending, in place; NANs are not allowed. */
void summary_sort(double *values, int64_t n);

/* Percentile of ascending values, 0 <= percent <= 100, interpolated linearly between the two
 * nearest ranks as numpy.percentile does: the value at position (n - 1) * percent / 100. NAN
 * without values. */
double summary_percentile(const double *sorted, int64_t n, double percent);

/* Percentile 50: the middle value, or the mean of the middle two. */
double summary_median(const double *sorted, int64_t n);

#endif
