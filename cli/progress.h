/*
 * Progress of long work on stderr: one line that rewrites itself on a terminal; elsewhere a plain line now
 * and then, so that a log stays short.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <der/train.h>

/* What has been shown. Zero-initialise. */
struct progress {
    bool line_open;   /* the terminal's cursor stands behind a progress line */
    double last_line; /* clock of the latest line */
    double started;   /* for progress_show_images: clock when the work began */
};

void progress_show(struct progress *progress, const struct der_progress *p);

/* Of work on images one by one, such as a test; shown on a terminal alone. */
void progress_show_images(struct progress *progress, int64_t done, int64_t total);

/* Seconds that only move forward. */
double progress_clock(void);

/* "1:05" or "2:03:07". */
const char *progress_duration(double seconds, char text[32]);

/* Leaves a line that is still open, before other output. */
void progress_end(struct progress *progress);

#endif
