/*
 * `der data get`: a data set from its publishers.
 */
#include "cmd_data.h"
#include "options.h"
#include "progress.h"
#include "running.h"

#include <der/data_tools.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double MEGABYTE = 1e6;
static const double REDRAW_SECONDS = 0.1;

/* What the command line fills in. */
struct request {
    struct der_data_get_options get;
    int retries;
    bool list, quiet;
    bool is_terminal;
    struct progress progress;
};

enum { N_OPTIONS = 8, STALL_SECONDS = 30, RETRIES = 5 };

static void list_options(struct request *r, struct option options[N_OPTIONS])
{
    const struct option table[N_OPTIONS] = {
        {"NAME", OPTION_WORD, "", "cifar100, cifar10 or fashion-mnist", &r->get.name},
        {"DIR", OPTION_WORD, "", "folder to put it in; made if it is not there", &r->get.folder},
        {"list", OPTION_FLAG, "", "show what can be had: sizes, sources, licences", &r->list},
        {"url", OPTION_TEXT, "URL", "another address of the same files: http, https or file",
         &r->get.url},
        {"checksum", OPTION_TEXT, "md5:HEX|sha256:HEX",
         "of another file than the published one, with --url", &r->get.checksum},
        {"timeout", OPTION_INT, "SECONDS", "without a byte, then a connection is tried anew (30)",
         &r->get.stall_seconds},
        {"retries", OPTION_INT, "N", "connections in a row that may fail (5)", &r->retries},
        {"quiet", OPTION_FLAG, "", "no progress and no word of success", &r->quiet},
    };
    memcpy(options, table, sizeof table);
}

static enum exit_code list_offers(struct der_ctx *ctx)
{
    for (int i = 0; i < der_data_offer_count(); i++) {
        struct der_data_offer offer;
        enum der_status status = der_data_offer_describe(ctx, i, &offer);
        if (status != DER_OK)
            return fail_status(ctx, status);
        printf("%-14s %s\n", offer.name, offer.title);
        printf("%-14s %.1f MB to download, %.1f MB on the disk\n", "",
               (double)offer.download_bytes / MEGABYTE, (double)offer.disk_bytes / MEGABYTE);
        printf("%-14s from %s\n%-14s %s; %s\n", "", offer.address, "", offer.licence, offer.source);
    }
    return EXIT_OK;
}

static void draw(const struct der_data_progress *p)
{
    static const char *const verbs[] = {
        [DER_DATA_DOWNLOADING] = "",
        [DER_DATA_CHECKING] = "checking ",
        [DER_DATA_UNPACKING] = "unpacking ",
    };
    /* \033[K clears what a longer line before has left. */
    (void)fprintf(stderr, "\r%s%s: %.1f", verbs[p->stage], p->file, (double)p->done / MEGABYTE);
    if (p->total > 0)
        (void)fprintf(stderr, " of %.1f", (double)p->total / MEGABYTE);
    (void)fprintf(stderr, " MB");
    if (p->bytes_per_second > 0.0)
        (void)fprintf(stderr, "  %.1f MB/s", p->bytes_per_second / MEGABYTE);
    char left[32];
    if (p->seconds_left >= 0.0)
        (void)fprintf(stderr, "  %s left", progress_duration(p->seconds_left, left));
    (void)fprintf(stderr, "\033[K");
    (void)fflush(stderr);
}

static void show_progress(void *user, const struct der_data_progress *p)
{
    struct request *r = user;
    double now = progress_clock();
    if (r->quiet || !r->is_terminal || now - r->progress.last_line < REDRAW_SECONDS)
        return;
    r->progress.last_line = now;
    r->progress.line_open = true;
    draw(p);
}

static enum exit_code get(struct der_ctx *ctx, struct request *r)
{
    bool was_there;
    enum der_status status = der_data_get(ctx, &r->get, &was_there);
    progress_end(&r->progress);
    if (status != DER_OK)
        return fail_status(ctx, status);
    if (!r->quiet)
        printf("%s: %s%s; train with --data %s\n", r->get.folder, r->get.name,
               was_there ? " was there already" : " is complete", r->get.folder);
    return EXIT_OK;
}

static enum exit_code check_request(const struct request *r)
{
    if (r->list)
        return r->get.name ? fail(EXIT_USAGE, "--list wants no name") : EXIT_OK;
    if (!r->get.name || !r->get.folder)
        return fail(EXIT_USAGE, "'der data get' wants a NAME and a DIR; see 'der data get --help'");
    if (r->get.checksum && !r->get.url)
        return fail(EXIT_USAGE, "--checksum wants --url, the file that it is of");
    if (r->get.stall_seconds < 1 || r->retries < 0)
        return fail(EXIT_USAGE, "--timeout wants 1 or more, --retries 0 or more");
    return EXIT_OK;
}

enum exit_code data_get(int argc, char **argv)
{
    struct request r = {.get = {.stall_seconds = STALL_SECONDS}, .retries = RETRIES};
    struct option options[N_OPTIONS];
    list_options(&r, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der data get NAME DIR [OPTIONS]\n       der data get --list\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code == EXIT_OK)
        code = check_request(&r);
    if (code != EXIT_OK)
        return code;
    r.is_terminal = isatty(STDERR_FILENO);
    r.get.retries = r.retries > 0 ? r.retries : -1;
    r.get.progress = show_progress;
    r.get.cancelled = running_is_interrupted;
    r.get.user = &r;
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    running_catch_interrupts();
    code = r.list ? list_offers(ctx) : get(ctx, &r);
    der_ctx_free(ctx);
    return code;
}
