/*
 * Data sets from their publishers: the fetch room brings files, the data room says whether they are the set.
 */
#include <der/data_tools.h>

#include "data/dataset.h"
#include "fetch/fetch.h"

#include "der_build.h"

#include <string.h>

enum { STALL_SECONDS = 30, RETRIES = 5 };

int der_data_offer_count(void)
{
    return offer_count();
}

enum der_status der_data_offer_describe(struct der_ctx *ctx, int index, struct der_data_offer *out)
{
    *out = (struct der_data_offer){0};
    if (index < 0 || index >= offer_count())
        return ctx_fail(ctx, DER_ARG, "data set %d was asked for, want 0..%d", index,
                        offer_count() - 1);
    const struct offer *offer = offer_get(index);
    *out = (struct der_data_offer){
        .name = offer->name,
        .title = offer->title,
        .address = offer->address,
        .source = offer->source,
        .licence = offer->licence,
        .download_bytes = offer_download_size(offer),
        .disk_bytes = offer->unpacked,
    };
    return DER_OK;
}

/* Is the set whole? A file of one's own, with a checksum of its own, may have any number of images. */
static bool is_whole(const struct dataset *set, const struct offer *offer,
                     const struct der_data_get_options *options)
{
    return strcmp(set->kind, offer->kind) == 0 && set->n_classes == offer->n_classes &&
           (options->checksum ||
            (set->part[DATA_TRAIN].n == offer->n_train && set->part[DATA_TEST].n == offer->n_test));
}

#if DER_HAVE_FETCH

static void tell_progress(void *user, const struct fetch_progress *p)
{
    static const enum der_data_stage stages[] = {
        [FETCH_DOWNLOADING] = DER_DATA_DOWNLOADING,
        [FETCH_CHECKING] = DER_DATA_CHECKING,
        [FETCH_UNPACKING] = DER_DATA_UNPACKING,
    };
    const struct der_data_get_options *options = user;
    struct der_data_progress progress = {
        .stage = stages[p->stage],
        .file = p->file,
        .done = p->done,
        .total = p->total,
        .bytes_per_second = p->bytes_per_second,
        .seconds_left = -1.0,
    };
    if (p->bytes_per_second > 0.0 && p->total >= p->done)
        progress.seconds_left = (double)(p->total - p->done) / p->bytes_per_second;
    if (options->progress)
        options->progress(options->user, &progress);
}

static bool tell_cancelled(void *user)
{
    const struct der_data_get_options *options = user;
    return options->cancelled && options->cancelled(options->user);
}

/* What an archive is to be. */
struct wanted {
    struct der_ctx *ctx;
    const struct offer *offer;
    const struct der_data_get_options *options;
};

static enum der_status check_content(void *user, const char *folder, const char *url)
{
    const struct wanted *wanted = user;
    struct der_ctx *ctx = wanted->ctx;
    struct dataset *set;
    enum der_status status = dataset_open(ctx, folder, &set);
    if (status == DER_IO || status == DER_FORMAT) { /* a file that is missing, or is no such file */
        char why[CTX_ERROR_MAX];
        memcpy(why, ctx->error, sizeof why);
        return ctx_fail(ctx, DER_FORMAT, "%s is not %s: %s", url, wanted->offer->name, why);
    }
    if (status != DER_OK)
        return status;
    if (!is_whole(set, wanted->offer, wanted->options))
        status = ctx_fail(ctx, DER_FORMAT,
                          "%s is not %s: it holds %s, %d classes, %lld training and %lld test "
                          "images",
                          url, wanted->offer->name, set->kind, set->n_classes,
                          (long long)set->part[DATA_TRAIN].n, (long long)set->part[DATA_TEST].n);
    dataset_free(set);
    return status;
}

static enum der_status fetch(struct der_ctx *ctx, const struct offer *offer,
                             const struct der_data_get_options *options)
{
    struct der_data_get_options copy = *options;
    struct wanted wanted = {ctx, offer, options};
    struct fetch_options fetch_options = {
        .url = options->url,
        .checksum = options->checksum,
        .stall_seconds = options->stall_seconds > 0 ? options->stall_seconds : STALL_SECONDS,
        .retries = options->retries == 0 ? RETRIES : options->retries,
        .pause_seconds = 1.0,
        .watch = {.progress = tell_progress, .cancelled = tell_cancelled, .user = &copy},
        .content = check_content,
        .content_user = &wanted,
    };
    return fetch_run(ctx, offer, options->folder, &fetch_options);
}

#else

static enum der_status fetch(struct der_ctx *ctx, const struct offer *offer,
                             const struct der_data_get_options *options)
{
    (void)options;
    return ctx_fail(ctx, DER_UNSUPPORTED,
                    "this build cannot download; install libcurl4-gnutls-dev, libarchive-dev and "
                    "nettle-dev and build again, or get the files from %s",
                    offer->source);
}

#endif

/* What the folder holds now. Nothing that can be read is no failure. */
static enum der_status look(struct der_ctx *ctx, const struct offer *offer,
                            const struct der_data_get_options *options, bool *is_there)
{
    struct dataset *set;
    *is_there = false;
    enum der_status status = dataset_open(ctx, options->folder, &set);
    if (status == DER_IO || status == DER_FORMAT)
        return DER_OK;
    if (status != DER_OK)
        return status;
    *is_there = is_whole(set, offer, options);
    if (!*is_there)
        status =
            ctx_fail(ctx, DER_STATE,
                     "%s holds another data set already (%s, %d classes, %lld training images); "
                     "want a folder of its own for %s",
                     options->folder, set->kind, set->n_classes, (long long)set->part[DATA_TRAIN].n,
                     offer->name);
    dataset_free(set);
    return status;
}

static enum der_status get(struct der_ctx *ctx, const struct offer *offer,
                           const struct der_data_get_options *options, bool *was_there)
{
    TRY(look(ctx, offer, options, was_there));
    if (*was_there)
        return DER_OK;
    TRY(fetch(ctx, offer, options));
    bool is_there;
    TRY(look(ctx, offer, options, &is_there));
    if (is_there)
        return DER_OK;
    char why[CTX_ERROR_MAX];
    memcpy(why, ctx->error, sizeof why);
    return ctx_fail(ctx, DER_FORMAT, "%s was downloaded to %s, but cannot be read: %s", offer->name,
                    options->folder, why);
}

enum der_status der_data_get(struct der_ctx *ctx, const struct der_data_get_options *options,
                             bool *was_there)
{
    *was_there = false;
    if (!options->name || !options->folder || !options->folder[0])
        return ctx_fail(ctx, DER_ARG, "a data set wants its name and a folder");
    const struct offer *offer = offer_find(options->name);
    if (offer)
        return get(ctx, offer, options, was_there);
    const char *close = offer_suggest(options->name);
    if (close)
        return ctx_fail(ctx, DER_ARG, "unknown data set '%s'; did you mean '%s'?", options->name,
                        close);
    return ctx_fail(ctx, DER_ARG, "unknown data set '%s'; 'der data get --list' lists them",
                    options->name);
}
