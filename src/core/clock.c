#include "core/clock.h"

#include <time.h>

double clock_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double clock_calendar_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
