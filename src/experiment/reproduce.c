#include "experiment/reproduce.h"

#include "config/override.h"
#include "experiment/fingerprint.h"
#include "experiment/records.h"
#include "experiment/reproduce_plan.h"
#include "experiment/reproduce_table.h"
#include "experiment/run_folder.h"
#include "io/durable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- reading what is there ----------------------------------------------------------------------- */

/* The first differences in words: "epochs is 170, not 2; ..." */
struct differences {
    char text[256];
    size_t used;
};

static void note_difference(void *user, const char *key, const char *met, const char *wanted)
{
    struct differences *d = user;
    int n = snprintf(d->text + d->used, sizeof d->text - d->used, "%s%s is %.40s, not %.40s",
                     d->used > 0 ? "; " : "", key, met, wanted);
    if (n > 0 && (size_t)n < sizeof d->text - d->used)
        d->used += (size_t)n;
    else
        d->text[d->used] = '\0'; /* no room: the first ones will do */
}

/* Is what lies there the run that is wanted? */
static enum der_status check_item(const struct reproduction *r, const struct reproduce_item *item)
{
    const struct run_outcome *outcome = &item->outcome;
    struct differences differences = {.used = 0};
    const char *precision = precision_name(r->options.run.backend_options.precision);
    if (config_differences(&outcome->config, &item->config, note_difference, &differences) > 0)
        return ctx_fail(r->ctx, DER_STATE,
                        "%s holds a run with other settings (%s); choose another "
                        "folder for the results",
                        item->path, differences.text);
    if (strcmp(outcome->precision, precision) != 0)
        return ctx_fail(r->ctx, DER_STATE,
                        "%s holds a run with precision %s, not %s; choose another "
                        "folder for the results",
                        item->path, outcome->precision, precision);
    if (outcome->has_init)
        return ctx_fail(r->ctx, DER_STATE,
                        "%s holds a run that began with weights of others; choose another folder "
                        "for the results",
                        item->path);
    const bool lacks_transfer = item->measure & MEASURE_TRANSFER && isnan(outcome->fwt);
    const bool lacks_bound = item->measure & MEASURE_REPRESENTATION && isnan(outcome->bound);
    if (outcome->state == RUN_DONE && (lacks_transfer || lacks_bound))
        return ctx_fail(r->ctx, DER_STATE,
                        "%s holds a run whose %s was not measured; choose "
                        "another folder for the results",
                        item->path, lacks_transfer ? "transfer" : "representation");
    return DER_OK;
}

/* A finished run with more measured saves doing it again: measuring changes no result. */
static void try_twin(const struct reproduction *r, struct reproduce_item *item, const char *path)
{
    struct reproduce_item twin = *item;
    twin.path = path;
    if (run_read(r->ctx, twin.path, &twin.outcome) == DER_OK && twin.outcome.state == RUN_DONE &&
        check_item(r, &twin) == DER_OK)
        *item = twin;
}

/* A run that was killed between its last line and its last file goes on, for what is left to do. */
static enum der_status read_item(const struct reproduction *r, struct reproduce_item *item)
{
    bool is_whole = true;
    TRY(run_read(r->ctx, item->path, &item->outcome));
    for (int i = 0; i < REPRODUCE_TWINS && item->twins[i]; i++)
        if (item->outcome.state == RUN_ABSENT)
            try_twin(r, item, item->twins[i]);
    if (item->outcome.state == RUN_DONE)
        TRY(run_folder_is_whole(r->ctx, item->path, &is_whole));
    if (!is_whole)
        item->outcome.state = RUN_PARTIAL;
    return item->outcome.state == RUN_ABSENT ? DER_OK : check_item(r, item);
}

/* What tells one data set from another. */
struct images {
    const char *source; /* who has them, for the message */
    const char *kind;
    int64_t train, test;
    const char *checksum;
};

static enum der_status refuse_images(const struct reproduction *r, const struct images *images,
                                     const struct reproduce_item *other)
{
    const struct run_outcome *outcome = &other->outcome;
    if (strcmp(outcome->data_kind, images->kind) == 0 && outcome->train_images == images->train &&
        outcome->test_images == images->test)
        return ctx_fail(r->ctx, DER_STATE,
                        "%s has as many images as %s was trained and tested on, but others (their "
                        "checksum is %s, not %s); choose another folder for the results",
                        images->source, other->path, images->checksum, outcome->data_checksum);
    return ctx_fail(r->ctx, DER_STATE,
                    "%s has %lld + %lld images of kind %s, but %s was trained and tested on %lld + "
                    "%lld of kind %s; choose another folder for the results",
                    images->source, (long long)images->train, (long long)images->test, images->kind,
                    other->path, (long long)outcome->train_images, (long long)outcome->test_images,
                    outcome->data_kind);
}

/* Rows stand beside each other only if they saw the same images. The checksum is of all else as well, but the
 * numbers tell a user more. */
static enum der_status check_images(const struct reproduction *r, const struct reproduce_item *item,
                                    const struct images *images)
{
    for (int i = 0; i < r->n_items; i++) {
        const struct reproduce_item *other = &r->items[i];
        const struct run_outcome *outcome = &other->outcome;
        if (outcome->state != RUN_DONE || strcmp(other->row->preset, item->row->preset) != 0)
            continue;
        if (strcmp(outcome->data_checksum, images->checksum) != 0)
            return refuse_images(r, images, other);
    }
    return DER_OK;
}

/* Reads a run that is to stand beside those read so far. */
static enum der_status read_beside(const struct reproduction *r, struct reproduce_item *item)
{
    TRY(read_item(r, item));
    const struct run_outcome *outcome = &item->outcome;
    const struct images images = {.source = item->path,
                                  .kind = outcome->data_kind,
                                  .train = outcome->train_images,
                                  .test = outcome->test_images,
                                  .checksum = outcome->data_checksum};
    return outcome->state == RUN_ABSENT ? DER_OK : check_images(r, item, &images);
}

static enum der_status read_all(struct reproduction *r)
{
    for (int i = 0; i < r->n_items; i++)
        TRY(read_beside(r, &r->items[i]));
    return DER_OK;
}

enum der_status reproduction_new(struct der_ctx *ctx, const struct reproduce_options *options,
                                 struct reproduction **out)
{
    *out = NULL;
    struct reproduction *r = mem_zalloc(&ctx->mem, 1, sizeof *r);
    if (!r)
        return ctx_nomem(ctx);
    r->ctx = ctx;
    r->options = *options;
    arena_init(&r->arena, &ctx->mem);
    enum der_status status = reproduce_plan(r);
    if (status == DER_OK)
        status = read_all(r);
    if (status != DER_OK) {
        reproduction_free(r);
        return status;
    }
    *out = r;
    return DER_OK;
}

void reproduction_free(struct reproduction *r)
{
    if (!r)
        return;
    struct mem *mem = &r->ctx->mem;
    arena_fini(&r->arena);
    mem_free(mem, r);
}

/* ---- running what is missing --------------------------------------------------------------------- */

static bool is_missing(const struct reproduce_item *item)
{
    return item->is_wanted && item->outcome.state != RUN_DONE;
}

int reproduction_missing(const struct reproduction *r)
{
    int n = 0;
    for (int i = 0; i < r->n_items; i++)
        n += is_missing(&r->items[i]);
    return n;
}

/* Before hours of training, not after. */
static enum der_status check_data(const struct reproduction *r, const struct reproduce_item *item)
{
    struct dataset_options which = {.class_list = r->options.run.class_list,
                                    .first_classes = item->config.first_classes};
    struct dataset *set;
    TRY(dataset_open_with(r->ctx, r->options.run.data, &which, &set));
    char checksum[CHECKSUM_TEXT];
    const struct images images = {.source = r->options.run.data,
                                  .kind = set->kind,
                                  .train = set->part[DATA_TRAIN].n,
                                  .test = set->part[DATA_TEST].n,
                                  .checksum = record_checksum(fingerprint_dataset(set), checksum)};
    enum der_status status = check_images(r, item, &images);
    dataset_free(set);
    return status;
}

static enum der_status run_item(const struct reproduction *r, struct reproduce_item *item)
{
    struct experiment_options options = r->options.run;
    struct experiment_summary summary;
    options.config = item->config;
    options.out = item->path;
    options.measure |= item->measure;
    options.resume = true; /* a run that was broken off goes on, any other begins */
    TRY(check_data(r, item));
    TRY(experiment_run(r->ctx, &options, &summary));
    TRY(read_beside(r, item)); /* the table shows what is on the disk */
    if (item->outcome.state != RUN_DONE)
        return ctx_fail(r->ctx, DER_STATE, "%s: the run has ended, but its end was not recorded",
                        item->path);
    return DER_OK;
}

enum der_status reproduction_run(struct reproduction *r)
{
    int total = r->options.table_only ? 0 : reproduction_missing(r);
    int number = 0;
    if (total > 0 && !r->options.run.data)
        return ctx_fail(r->ctx, DER_ARG, "%d runs are to be done, but no data set is given", total);
    TRY(durable_mkdir(r->ctx, NULL, r->options.out));
    TRY(reproduce_table_write(r));
    for (int i = 0; i < r->n_items && total > 0; i++) {
        struct reproduce_item *item = &r->items[i];
        if (!is_missing(item))
            continue;
        /* Another process, or a row before it, may have done it meanwhile. */
        TRY(read_beside(r, item));
        number++;
        if (!is_missing(item))
            continue;
        if (r->options.hooks.begin)
            r->options.hooks.begin(r->options.hooks.user, item, number, total);
        TRY(run_item(r, item));
        TRY(reproduce_table_write(r));
    }
    return DER_OK;
}
