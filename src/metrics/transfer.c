#include "metrics/transfer.h"

#include <math.h>
#include <stddef.h>

static double at(const double *accuracy, int n_steps, int i, int j)
{
    return accuracy[(size_t)i * (size_t)n_steps + (size_t)j];
}

double transfer_backward(const double *accuracy, int n_steps)
{
    if (n_steps < 2)
        return NAN;
    double sum = 0.0;
    for (int i = 1; i < n_steps; i++) {
        double change = 0.0;
        for (int j = 0; j <= i; j++)
            change += at(accuracy, n_steps, i, j) - at(accuracy, n_steps, j, j);
        sum += change / (i + 1);
    }
    return sum / (n_steps - 1);
}

double transfer_forward(const double *accuracy, const double *reference, int n_steps)
{
    if (n_steps < 2)
        return NAN;
    double sum = 0.0;
    for (int i = 1; i < n_steps; i++)
        sum += at(accuracy, n_steps, i, i) - reference[i];
    return sum / (n_steps - 1);
}
