#include "method/pressure.h"

#include <math.h>

/* The path ends before the soft phase does, so that the masks settle at the size they keep. */
static const double PATH_SHARE = 0.8;
/* An error of 10 % in size changes the weight by about a third, at most by a factor two an epoch:
 * masks answer slowly, through the velocity of e. */
static const double ANSWER = 3.0;
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

/* plan(e) = start (target / start)^min(1, e / (PATH_SHARE E))
 * lambda_s <- lambda_s clamp((kept / plan)^ANSWER) */
void pressure_update(struct pressure *pressure, int64_t kept, int epoch, int soft_epochs)
{
    if (pressure->target == 0)
        return;
    if (pressure->start == 0)
        pressure->start = kept;
    double share = clamp((epoch + 1) / (PATH_SHARE * soft_epochs), 0.0, 1.0);
    double start = (double)pressure->start;
    double plan = start * pow((double)pressure->target / start, share);
    double change = pow((double)kept / plan, ANSWER);
    pressure->lambda_s *= clamp(change, 1.0 / LARGEST_CHANGE, LARGEST_CHANGE);
    pressure->lambda_s = clamp(pressure->lambda_s, pressure->initial / LARGEST_RATIO,
                               pressure->initial * LARGEST_RATIO);
}
