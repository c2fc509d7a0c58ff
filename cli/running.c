#include "running.h"

#include "style.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The only thing a signal handler may touch. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* The first of each is a request; the next one ends the program at once, as it would any other. Nothing is lost by that
 * but time: what is on the disk is whole at every moment. */
void running_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool running_is_interrupted(void *user)
{
    (void)user;
    return interrupted != 0;
}

void running_show_step(bool *has_header, const struct der_step *step)
{
    if (!*has_header)
        style_heading("%7s %8s %8s %8s %8s %12s %9s\n", "step", "classes", "top-1 %", "top-5 %",
                      "avg-1 %", "parameters", "seconds");
    *has_header = true;
    printf("%3d/%-3d %8d %8.2f %8.2f %8.2f %12" PRId64 " %9.1f\n", step->step, step->n_steps,
           step->n_classes, step->top1, step->top5, step->avg_top1, step->params, step->seconds);
    (void)fflush(stdout);
}

bool running_count(const char *text, int64_t *out)
{
    static const struct {
        const char *ending;
        double factor;
    } units[] = {{"", 1.0}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}};
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0] && end != text; i++) {
        double count = value * units[i].factor;
        if (strcmp(end, units[i].ending) == 0 && count >= 1.0 && count < 1e15) {
            *out = (int64_t)(count + 0.5);
            return true;
        }
    }
    return false;
}
