/*
 * Time that only moves forward.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

/* Seconds since some fixed moment. */
double clock_seconds(void);

#endif
