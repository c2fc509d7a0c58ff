#include "progress.h"

#include "style.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static const double PLAIN_SECONDS = 30.0; /* between two lines of a log */
static const double REDRAW_SECONDS = 0.1; /* between two states of a line on a terminal */

double progress_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *progress_duration(double seconds, char text[32])
{
    long s = seconds > 0.0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600)
        (void)snprintf(text, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        (void)snprintf(text, 32, "%ld:%02ld", s / 60, s % 60);
    return text;
}

void progress_end(struct progress *progress)
{
    if (progress->line_open)
        fputc('\n', stderr);
    progress->line_open = false;
}

void progress_show(struct progress *progress, const struct der_progress *p)
{
    bool terminal = style_is_terminal(stderr);
    if (!terminal && (!p->epoch_done || progress_clock() - progress->last_line < PLAIN_SECONDS))
        return;
    progress->last_line = progress_clock();
    char left[32];
    char accuracy[32] = "";
    if (p->accuracy >= 0.0)
        (void)snprintf(accuracy, sizeof accuracy, "  accuracy %5.2f %%", p->accuracy);
    /* \033[K clears what a longer line before has left. */
    fprintf(stderr, "%s%s: epoch %d/%d", terminal ? "\r" : "", p->stage, p->epoch + 1, p->epochs);
    if (terminal)
        fprintf(stderr, "  batch %" PRId64 "/%" PRId64, p->iteration, p->n_iterations);
    fprintf(stderr, "  lr %.4g  loss %.4f%s  %.0f images/s  %s left%s", p->lr, p->loss, accuracy,
            p->images_per_second, progress_duration(p->seconds_left, left),
            terminal ? "\033[K" : "\n");
    progress->line_open = terminal;
    if (p->epoch_done && p->epoch + 1 == p->epochs)
        progress_end(progress);
    fflush(stderr);
}

void progress_show_images(struct progress *progress, int64_t done, int64_t total)
{
    double now = progress_clock();
    if (!style_is_terminal(stderr) || now - progress->last_line < REDRAW_SECONDS)
        return;
    double seconds = now - progress->started;
    char left[32];
    (void)fprintf(stderr, "\r%" PRId64 " of %" PRId64 " images  %.0f images/s  %s left\033[K", done,
                  total, (double)done / seconds,
                  progress_duration(seconds * (double)(total - done) / (double)done, left));
    (void)fflush(stderr);
    progress->last_line = now;
    progress->line_open = true;
}
