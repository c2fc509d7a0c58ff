/*
 * Time that only moves forward, and the calendar's.
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

/* Seconds since some fixed moment. */
double clock_seconds(void);

/* Seconds since 1970 by the calendar, which may be set back: for who records when something was. */
double clock_calendar_seconds(void);

#endif
