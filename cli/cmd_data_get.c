/*
 * `der data get`: a data set from its publishers.
 */
#include "options.h"
#include "progress.h"
#include "running.h"
#include "style.h"

#include <der/data_tools.h>

#include <stdio.h>

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

static const struct request defaults = {.get = {.stall_seconds = 30}, .retries = 5};

static const struct option options[] = {
    {.name = "NAME",
     .type = OPTION_WORD,
     .kind = KIND_DOWNLOAD,
     .help = "the data set, as `--list` shows them",
     .at = AT(get.name)},
    {.name = "DIR",
     .type = OPTION_WORD,
     .kind = KIND_FOLDER,
     .help = "folder to put it in; made if it is not there",
     .at = AT(get.folder)},
    {.name = "list",
     .type = OPTION_FLAG,
     .help = "show what can be had: sizes, sources, licences",
     .at = AT(list)},
    {.name = "url",
     .argument = "URL",
     .help = "another address of the same files: http, https or file",
     .more = "For a data set of several files, or with a slash at the end, the address of their "
             "folder.",
     .at = AT(get.url)},
    {.name = "checksum",
     .argument = "md5:HEX|sha256:HEX",
     .help = "checksum of another file than the published one, with `--url`",
     .more = "Such as an archive packed anew.",
     .at = AT(get.checksum)},
    {.name = "timeout",
     .type = OPTION_INT,
     .argument = "SECONDS",
     .help = "after so long without a byte a connection is tried anew (30)",
     .at_least = 1,
     .at = AT(get.stall_seconds)},
    {.name = "retries",
     .type = OPTION_INT,
     .argument = "N",
     .help = "connections in a row that may bring nothing (5)",
     .at = AT(retries)},
    QUIET_ROW(quiet, "show no progress and no word of success"),
};

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
        return fail(EXIT_USAGE, "'der data get' wants a NAME and a DIR; see 'der help data get'");
    if (r->get.checksum && !r->get.url)
        return fail(EXIT_USAGE, "--checksum wants --url, the file that it is of");
    return EXIT_OK;
}

static enum exit_code run(void *user)
{
    struct request *r = user;
    enum exit_code code = check_request(r);
    if (code != EXIT_OK)
        return code;
    r->is_terminal = style_is_terminal(stderr);
    r->get.retries = r->retries > 0 ? r->retries : -1;
    r->get.progress = show_progress;
    r->get.cancelled = running_is_interrupted;
    r->get.user = r;
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    running_catch_interrupts();
    code = r->list ? list_offers(ctx) : get(ctx, r);
    der_ctx_free(ctx);
    return code;
}

const struct command command_data_get = {
    .name = "data get",
    .usage = "NAME DIR [OPTIONS]\n--list",
    .summary = "download a data set, check it and unpack it",
    .about = "Downloads a data set (cifar100, cifar10 or fashion-mnist) from its publishers into "
             "DIR, checks it against its checksum "
             "and unpacks it. "
             "Nothing appears under its name before it is whole. A download that was broken off, "
             "by an error, a "
             "full disk or an interrupt (Ctrl-C), is continued by the same command; a data set "
             "that is there "
             "already is recognised. On a terminal, progress is shown. Proxies are taken from the "
             "environment "
             "(`https_proxy`, `http_proxy`, `no_proxy`).",
    TAKES(options),
    .defaults = &defaults,
    .run = run,
};
