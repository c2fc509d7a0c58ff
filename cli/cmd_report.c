/*
 * `der report`: one page about runs, or their numbers as CSV.
 */
#include "options.h"
#include "outputs.h"
#include "running.h"

#include <der/report.h>

#include <stdio.h>
#include <time.h>

enum { NAP_NS = 200 * 1000 * 1000, NAPS_PER_SECOND = 5, DAY = 86400 };

/* What the command line fills in. */
struct request {
    struct option_words runs;
    struct der_report_options options;
    int follow; /* seconds; 0: once */
    bool quiet;
};

static const struct option options[] = {
    {.name = "RUN",
     .type = OPTION_WORDS,
     .kind = KIND_FOLDER,
     .help = "folders of runs, as `der train --out` makes them",
     .required = true,
     .at = AT(runs)},
    {.name = "out",
     .letter = 'o',
     .kind = KIND_FILE,
     .argument = "FILE",
     .help = "the page to write",
     .at = AT(options.page)},
    {.name = "csv",
     .kind = KIND_FILE,
     .argument = "FILE",
     .help = "write the numbers of every step of every run, as CSV",
     .more = "With or without the page.",
     .at = AT(options.csv)},
    {.name = "title",
     .argument = "TEXT",
     .help = "title of the page (the name of the run, or their number)",
     .at = AT(options.title)},
    {.name = "data",
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "where the data set is now, for its images (where the runs had it)",
     .at = AT(options.data)},
    {.name = "follow",
     .type = OPTION_INT,
     .argument = "SECONDS",
     .help = "write the page anew every so often while runs go on; it reloads itself",
     .at = AT(follow)},
    QUIET_ROW(quiet, "do not say what was written"),
};

/* Until the page is due again, or an interrupt. */
static void wait_for_more(int seconds)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    for (int i = 0; i < seconds * NAPS_PER_SECOND && !running_is_interrupted(NULL); i++)
        (void)nanosleep(&nap, NULL);
}

static void say(const struct request *r, const struct der_report_result *result)
{
    if (r->quiet)
        return;
    if (r->options.page)
        printf("%s: %d run%s, %lld kB\n", r->options.page, r->options.n_runs,
               r->options.n_runs == 1 ? "" : "s", (long long)(result->bytes + 999) / 1000);
    if (r->options.csv)
        printf("%s\n", r->options.csv);
    (void)fflush(stdout);
}

static enum der_status write_until_done(struct der_ctx *ctx, const struct request *r)
{
    struct der_report_result result;
    bool is_first = true;
    do {
        if (!is_first)
            wait_for_more(r->follow);
        if (!is_first && running_is_interrupted(NULL))
            break;
        enum der_status status = der_report(ctx, &r->options, &result);
        if (status != DER_OK)
            return status;
        if (is_first)
            say(r, &result);
        is_first = false;
    } while (r->follow > 0 && result.n_unfinished > 0);
    return DER_OK;
}

static enum exit_code check_request(const struct request *r)
{
    if (!r->options.page && !r->options.csv)
        return fail(EXIT_USAGE,
                    "a file is needed: -o FILE for the page, --csv FILE for the numbers");
    if (r->follow > DAY)
        return fail(EXIT_USAGE, "--follow wants 1 to %d seconds, not %d", DAY, r->follow);
    for (int i = 0; i < r->runs.n; i++) {
        enum exit_code code = outputs_spare("out", r->options.page, r->runs.word[i]);
        if (code == EXIT_OK)
            code = outputs_spare("csv", r->options.csv, r->runs.word[i]);
        if (code != EXIT_OK)
            return code;
    }
    return EXIT_OK;
}

static enum exit_code run(void *user)
{
    struct request *r = user;
    enum exit_code code = check_request(r);
    if (code != EXIT_OK)
        return code;
    r->options.runs = (const char *const *)r->runs.word;
    r->options.n_runs = r->runs.n;
    r->options.refresh = r->follow;
    if (r->follow)
        running_catch_interrupts();

    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = write_until_done(ctx, r);
    code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

const struct command command_report = {
    .name = "report",
    .usage = "RUN... -o FILE [OPTIONS]\nRUN... --csv FILE [OPTIONS]",
    .summary = "show what runs came to: one page, or a table",
    .about = "Shows what runs came to: one page of HTML for one run or many side by side, which "
             "needs nothing besides "
             "itself. It has the accuracy after every step with the paper's beside it, accuracy "
             "against parameters, "
             "accuracy of each group of classes, who is taken for whom, the channels that every "
             "extractor keeps, "
             "losses, learning rate and sparsity, exemplars, the test images that the model is "
             "surest about and "
             "wrong, and tables. Values are read with the mouse or with the arrow keys; runs and "
             "series can be "
             "switched on and off.\n"
             "A run that goes on is shown as far as it is. Images come from the data set where the "
             "run recorded it; "
             "where it is not there any more they are left out.",
    TAKES(options),
    .run = run,
};
