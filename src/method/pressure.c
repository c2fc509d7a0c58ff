#include "method/pressure.h"

#include <math.h>
#include <stdbool.h>

/* The path ends before the soft phase does, so that the masks settle at the size they keep. */
static const double PATH_SHARE = 0.8;
/* Masks answer late, through the velocity of e: an answer to the error alone overshoots, so the
 * change of the error weighs more. */
static const double ANSWER_TO_ERROR = 1.0;
static const double ANSWER_TO_CHANGE = 10.0;
static const double LARGEST_CHANGE = 2.0;
static const double LARGEST_RATIO = 100.0;

static double clamp(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

struct pressure pressure_new(double lambda_s, int64_t target)
{
    return (struct pressure){.lambda_s = lambda_s, .initial = lambda_s, .target = target};
}

void pressure_begin_low(struct pressure *pressure)
{
    if (pressure->target > 0)
        pressure->lambda_s = pressure->initial / LARGEST_RATIO;
}

/* plan(e) = start (target / start)^min(1, e / (PATH_SHARE E))
 * x_e = log(size / plan(e));  lambda_s <- lambda_s exp(a x_e + b (x_e - x_{e-1})), within limits */
void pressure_update(struct pressure *pressure, int64_t kept, int epoch, int soft_epochs)
{
    if (pressure->target == 0)
        return;
    bool first = pressure->start == 0;
    if (first)
        pressure->start = kept;
    double share = clamp(epoch / (PATH_SHARE * soft_epochs), 0.0, 1.0);
    double start = (double)pressure->start;
    double plan = start * pow((double)pressure->target / start, share);
    double error = log((double)kept / plan);
    double change = first ? 0.0 : error - pressure->error;
    double factor = exp(ANSWER_TO_ERROR * error + ANSWER_TO_CHANGE * change);
    pressure->error = error;
    pressure->lambda_s *= clamp(factor, 1.0 / LARGEST_CHANGE, LARGEST_CHANGE);
    pressure->lambda_s = clamp(pressure->lambda_s, pressure->initial / LARGEST_RATIO,
                               pressure->initial * LARGEST_RATIO);
}
