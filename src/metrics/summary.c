#include "metrics/summary.h"

#include "core/decimal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct summary summary_of(const double *values, int64_t n)
{
    struct summary result = {.n = n, .mean = NAN, .std = NAN};
    if (n < 1)
        return result;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += values[i];
    result.mean = sum / (double)n;
    if (n < 2)
        return result;
    /* Deviations from the mean, not a difference of squares, which would cancel. */
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        squares += (values[i] - result.mean) * (values[i] - result.mean);
    result.std = sqrt(squares / (double)(n - 1));
    return result;
}

static void two_places(double value, char text[DECIMAL_TEXT_MAX])
{
    (void)snprintf(text, DECIMAL_TEXT_MAX, "%.2f", value);
    decimal_point(text);
}

void summary_format(double mean, double std, char *text, size_t size)
{
    char middle[DECIMAL_TEXT_MAX];
    char spread[DECIMAL_TEXT_MAX];
    two_places(mean, middle);
    two_places(std, spread);
    if (isnan(mean))
        (void)snprintf(text, size, "-");
    else if (isnan(std))
        (void)snprintf(text, size, "%s", middle);
    else
        (void)snprintf(text, size, "%s +- %s", middle, spread);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

void summary_sort(double *values, int64_t n)
{
    if (n > 1)
        qsort(values, (size_t)n, sizeof *values, compare);
}

double summary_percentile(const double *sorted, int64_t n, double percent)
{
    assert(percent >= 0.0 && percent <= 100.0);
    if (n < 1)
        return NAN;
    double position = (double)(n - 1) * percent / 100.0;
    int64_t below = (int64_t)position;
    if (below >= n - 1)
        return sorted[n - 1];
    return sorted[below] + (position - (double)below) * (sorted[below + 1] - sorted[below]);
}

double summary_median(const double *sorted, int64_t n)
{
    return summary_percentile(sorted, n, 50.0);
}
