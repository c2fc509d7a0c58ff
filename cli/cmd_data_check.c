/*
 * `der data check`: what a folder holds and what is wrong with it.
 */
#include "options.h"
#include "progress.h"
#include "running.h"
#include "style.h"
#include "text.h"

#include <der/data_tools.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What the command line fills in. */
struct request {
    struct der_data_check_options check;
    int threads;
    bool json, quiet;
    struct progress progress;
};

enum { SHOWN_MAX = 20 };

static const struct request defaults = {.threads = 2};

static const struct option options[] = {
    {.name = "DIR",
     .type = OPTION_WORD,
     .kind = KIND_FOLDER,
     .help = "the data set, as `der train --data` takes it",
     .required = true,
     .at = AT(check.path)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "as a JSON object",
     .more = "It has every finding; on the terminal warnings end with the 20th of a kind.",
     .at = AT(json)},
    CLASS_LIST_ROW(check.class_list),
    {.name = "threads",
     .type = OPTION_INT,
     .argument = "N",
     .help = "threads that decode images (2)",
     .at_least = 1,
     .at = AT(threads)},
    QUIET_ROW(quiet, "show no progress"),
};

static void show_progress(void *user, int64_t done, int64_t total)
{
    struct request *r = user;
    if (!r->quiet)
        progress_show_images(&r->progress, done, total);
}

/* "32 x 32", or "32 to 500 x 32 to 400". */
static void print_range(int low, int high)
{
    if (low == high)
        printf("%d", low);
    else
        printf("%d to %d", low, high);
}

static void print_summary(const struct request *r, const struct der_data_summary *s)
{
    printf("%s: %s, %d class%s, %" PRId64 " training and %" PRId64 " test images\n", r->check.path,
           s->kind, s->n_classes, s->n_classes == 1 ? "" : "es", s->n_train, s->n_test);
    if (s->height_max == 0)
        return;
    printf("images: %d channel%s, height ", s->channels, s->channels == 1 ? "" : "s");
    print_range(s->height_min, s->height_max);
    printf(", width ");
    print_range(s->width_min, s->width_max);
    printf("\n");
}

/* Names of folders and files may hold anything, and are what the findings are about. */
static void print_line(const char *text)
{
    text_print(stdout, text);
    printf("\n");
}

static enum der_status are_equal(const struct der_data_report *report, int n, bool *equal)
{
    struct der_data_class first;
    struct der_data_class other;
    enum der_status status = der_data_report_class(report, 0, &first);
    *equal = true;
    for (int i = 1; i < n && status == DER_OK; i++) {
        status = der_data_report_class(report, i, &other);
        if (other.n_train != first.n_train || other.n_test != first.n_test)
            *equal = false;
    }
    return status;
}

/* One line for all classes when they have the same numbers, otherwise one each. */
static enum der_status print_classes(const struct der_data_report *report, int n)
{
    bool equal;
    enum der_status status = are_equal(report, n, &equal);
    struct der_data_class class;
    if (status == DER_OK && equal) {
        status = der_data_report_class(report, 0, &class);
        printf("every class: %" PRId64 " training and %" PRId64 " test images\n", class.n_train,
               class.n_test);
        return status;
    }
    style_heading("%9s %9s  %s\n", "training", "test", "class");
    for (int i = 0; i < n; i++) {
        status = der_data_report_class(report, i, &class);
        if (status != DER_OK)
            return status;
        printf("%9" PRId64 " %9" PRId64 "  ", class.n_train, class.n_test);
        print_line(class.name);
    }
    return status;
}

/* Everything that would end training; of the rest the first of each kind. */
static enum der_status print_findings(const struct der_data_report *report, int64_t n)
{
    const char *kind = "";
    int64_t shown = 0;
    int64_t hidden = 0;
    for (int64_t i = 0; i <= n; i++) {
        struct der_data_finding finding = {.kind = "", .text = ""};
        enum der_status status = i < n ? der_data_report_finding(report, i, &finding) : DER_OK;
        if (status != DER_OK)
            return status;
        if (strcmp(finding.kind, kind) != 0) {
            if (hidden > 0)
                printf("warning: %" PRId64 " more of the kind %s; --json lists them all\n", hidden,
                       kind);
            kind = finding.kind;
            shown = 0;
            hidden = 0;
        }
        if (i == n)
            break;
        if (!finding.is_error && shown++ >= SHOWN_MAX) {
            hidden++;
            continue;
        }
        printf("%s: ", finding.is_error ? "error" : "warning");
        print_line(finding.text);
    }
    return DER_OK;
}

static enum der_status print_report(const struct request *r, struct der_data_report *report)
{
    if (r->json) {
        const char *text;
        enum der_status status = der_data_report_json(report, &text);
        if (status == DER_OK)
            (void)fputs(text, stdout);
        return status;
    }
    struct der_data_summary s = der_data_report_summary(report);
    enum der_status status = DER_OK;
    if (s.kind) {
        print_summary(r, &s);
        status = print_classes(report, s.n_classes);
    }
    if (status == DER_OK)
        status = print_findings(report, s.n_findings);
    if (status == DER_OK && s.n_findings == 0)
        printf("nothing is wrong with it\n");
    return status;
}

static enum exit_code check(struct der_ctx *ctx, struct request *r)
{
    struct der_data_report *report;
    enum der_status status = der_data_check(ctx, &r->check, &report);
    progress_end(&r->progress);
    if (status == DER_OK)
        status = print_report(r, report);
    if (status != DER_OK) {
        der_data_report_free(report);
        return fail_status(ctx, status);
    }
    int64_t n_errors = der_data_report_summary(report).n_errors;
    der_data_report_free(report);
    if (n_errors == 0)
        return EXIT_OK;
    return fail(EXIT_DATA, "%s: %" PRId64 " thing%s would end training", r->check.path, n_errors,
                n_errors == 1 ? "" : "s");
}

static enum exit_code run(void *user)
{
    struct request *r = user;
    struct der_ctx_options ctx_options = {.threads = r->threads};
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(&ctx_options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    r->progress.started = progress_clock();
    r->check.progress = show_progress;
    r->check.cancelled = running_is_interrupted;
    r->check.user = r;
    running_catch_interrupts();
    enum exit_code code = check(ctx, r);
    der_ctx_free(ctx);
    return code;
}

const struct command command_data_check = {
    .name = "data check",
    .usage = "DIR [OPTIONS]",
    .summary = "say what a data set holds and what is wrong with it",
    .about = "Says what a data set holds: kind, classes, images of each class, sizes; and what is "
             "wrong with it. "
             "Every image is decoded.\n"
             "Errors, each of which would end training: a set that cannot be read, classes without "
             "images or with a name that is no UTF-8, images "
             "that do not decode, all of them named. Warnings: test pictures that are also trained "
             "on, the same "
             "picture under two classes, classes with fewer than 10 images or of unequal size "
             "(more than twice as "
             "many), no test images, files and folders that nothing reads. The exit status is 3 "
             "when there is "
             "an error.",
    TAKES(options),
    .defaults = &defaults,
    .run = run,
};
