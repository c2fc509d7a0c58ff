/*
 * `der report`: one page about runs, or their numbers as CSV.
 */
#include "cli.h"
#include "options.h"
#include "running.h"

#include <der/report.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NAP_NS = 200 * 1000 * 1000, NAPS_PER_SECOND = 5, DAY = 86400 };

/* What the command line fills in. */
struct request {
    struct option_words runs;
    struct der_report_options options;
    int follow; /* seconds; 0: once */
    bool quiet;
};

enum { N_OPTIONS = 7 };

static void list_options(struct request *r, struct option options[N_OPTIONS])
{
    struct der_report_options *o = &r->options;
    const struct option table[N_OPTIONS] = {
        {"RUN...", OPTION_WORDS, "", "folders of runs, as 'der train --out' makes them", &r->runs},
        {"out", OPTION_TEXT, "FILE", "the page to write; also -o FILE", &o->page},
        {"csv", OPTION_TEXT, "FILE", "write the numbers of every step of every run, as CSV",
         &o->csv},
        {"title", OPTION_TEXT, "TEXT", "title of the page (the names of the runs)", &o->title},
        {"data", OPTION_TEXT, "DIR", "where the data set is now, for its images (the runs' own)",
         &o->data},
        {"follow", OPTION_INT, "SECONDS",
         "write the page anew every so often while runs go on; it reloads itself", &r->follow},
        {"quiet", OPTION_FLAG, "", "do not say what was written", &r->quiet},
    };
    memcpy(options, table, sizeof table);
}

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
    if (r->runs.n == 0)
        return fail(EXIT_USAGE, "no run given; see 'der report --help'");
    if (!r->options.page && !r->options.csv)
        return fail(EXIT_USAGE,
                    "a file is needed: -o FILE for the page, --csv FILE for the numbers");
    if (r->follow < 0 || r->follow > DAY)
        return fail(EXIT_USAGE, "--follow wants 1 to %d seconds, not %d", DAY, r->follow);
    return EXIT_OK;
}

enum exit_code cmd_report(int argc, char **argv)
{
    struct request r = {.quiet = false};
    struct option options[N_OPTIONS];
    list_options(&r, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der report RUN... -o FILE [OPTIONS]\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code == EXIT_OK)
        code = check_request(&r);
    if (code != EXIT_OK)
        return code;
    r.options.runs = (const char *const *)r.runs.word;
    r.options.n_runs = r.runs.n;
    r.options.refresh = r.follow;
    if (r.follow)
        running_catch_interrupts();

    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = write_until_done(ctx, &r);
    code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}
