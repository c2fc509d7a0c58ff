#include "support/tensor_check.h"

#include "support/test_ctx.h"

#include <inttypes.h>
#include <math.h>

double tensor_nmse(const float *actual, const float *expected, int64_t n)
{
    double error = 0.0;
    double energy = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = (double)actual[i] - (double)expected[i];
        error += difference * difference;
        energy += (double)expected[i] * (double)expected[i];
    }
    if (error == 0.0 && energy == 0.0)
        return 0.0;
    return error / energy;
}

/* Index of the largest difference; a NaN is the worst of all. */
static int64_t worst_index(const float *actual, const float *expected, int64_t n)
{
    int64_t worst = 0;
    double largest = -1.0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs((double)actual[i] - (double)expected[i]);
        if (isnan(difference))
            return i;
        if (difference > largest) {
            largest = difference;
            worst = i;
        }
    }
    return worst;
}

void assert_tensor_close(const float *actual, const float *expected, int64_t n, double tolerance,
                         const char *what)
{
    const double nmse = tensor_nmse(actual, expected, n);
    if (nmse <= tolerance)
        return;
    const int64_t at = worst_index(actual, expected, n);
    print_error("%s: worst at %" PRId64 " of %" PRId64 ": %.9g, expected %.9g; NMSE %.3g > %.3g, "
                "max-abs %.3g\n",
                what, at, n, (double)actual[at], (double)expected[at], nmse, tolerance,
                fabs((double)actual[at] - (double)expected[at]));
    fail();
}

void assert_ints_equal(const int32_t *actual, const int32_t *expected, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (actual[i] != expected[i]) {
            print_error("%s: at %" PRId64 " of %" PRId64 ": %" PRId32 ", expected %" PRId32 "\n",
                        what, i, n, actual[i], expected[i]);
            fail();
        }
}
