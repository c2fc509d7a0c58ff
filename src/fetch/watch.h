/*
 * How a download is watched and stopped from outside.
 */
#ifndef FETCH_WATCH_H
#define FETCH_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum fetch_stage { FETCH_DOWNLOADING, FETCH_CHECKING, FETCH_UNPACKING };

struct fetch_progress {
    enum fetch_stage stage;
    const char *file;        /* name of what is worked on */
    int64_t done, total;     /* bytes; total 0: not known */
    double bytes_per_second; /* downloading: since the connection began; 0: not known yet */
};

/* Both functions may be NULL. */
struct fetch_watch {
    void (*progress)(void *user, const struct fetch_progress *progress);
    bool (*cancelled)(void *user); /* true: stop as soon as possible */
    void *user;
};

/* Tells how far things are; true: stop. */
static inline bool watch_tick(const struct fetch_watch *watch,
                              const struct fetch_progress *progress)
{
    if (watch->progress)
        watch->progress(watch->user, progress);
    return watch->cancelled && watch->cancelled(watch->user);
}

#endif
