/*
 * `der data check`: what a folder holds and what is wrong with it.
 */
#include "cmd_data.h"
#include "options.h"
#include "progress.h"
#include "running.h"

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

enum { N_OPTIONS = 5, SHOWN_MAX = 20 };

static void list_options(struct request *r, struct option options[N_OPTIONS])
{
    const struct option table[N_OPTIONS] = {
        {"DIR", OPTION_WORD, "", "the data set, as 'der train --data' takes it", &r->check.path},
        {"json", OPTION_FLAG, "", "as a JSON object", &r->json},
        {"class-list", OPTION_TEXT, "FILE",
         "image folders: use the classes named in FILE, one a line", &r->check.class_list},
        {"threads", OPTION_INT, "N", "threads that decode images (2)", &r->threads},
        {"quiet", OPTION_FLAG, "", "no progress", &r->quiet},
    };
    memcpy(options, table, sizeof table);
}

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
    printf("%9s %9s  %s\n", "training", "test", "class");
    for (int i = 0; i < n && status == DER_OK; i++) {
        status = der_data_report_class(report, i, &class);
        printf("%9" PRId64 " %9" PRId64 "  %s\n", class.n_train, class.n_test, class.name);
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
        if (finding.is_error || shown++ < SHOWN_MAX)
            printf("%s: %s\n", finding.is_error ? "error" : "warning", finding.text);
        else
            hidden++;
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

enum exit_code data_check(int argc, char **argv)
{
    struct request r = {.threads = 2};
    struct option options[N_OPTIONS];
    list_options(&r, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der data check DIR [OPTIONS]\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code != EXIT_OK)
        return code;
    if (!r.check.path)
        return fail(EXIT_USAGE, "'der data check' wants a DIR; see 'der data check --help'");
    if (r.threads < 1)
        return fail(EXIT_USAGE, "--threads wants 1 or more");
    struct der_ctx_options ctx_options = {.threads = r.threads};
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(&ctx_options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    r.progress.started = progress_clock();
    r.check.progress = show_progress;
    r.check.cancelled = running_is_interrupted;
    r.check.user = &r;
    running_catch_interrupts();
    code = check(ctx, &r);
    der_ctx_free(ctx);
    return code;
}
