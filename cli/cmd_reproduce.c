/*
 * `der reproduce`: a table or figure of the paper, run again.
 */
#include "cache_dir.h"
#include "options.h"
#include "progress.h"
#include "running.h"

#include <der/reproduce.h>

#include <stdio.h>
#include <stdlib.h>

enum { MAX_ORDERS = 8, SEED_TEXT = 32, ORDER_TEXT = 32, LABEL_TEXT = 128 };

/* What the command line fills in. */
struct request {
    struct der_reproduce_options options;
    struct option_texts rows;
    struct option_texts settings; /* "key=value" */
    const char *orders;
    int order[MAX_ORDERS];
    char seed_text[SEED_TEXT];
    const char *assignments[OPTION_TEXTS_MAX + 1];
    int threads, seed;
    bool dry_run, quiet;
    bool has_header; /* of the table of steps of the current run */
    struct progress progress;
};

static const struct request defaults = {.threads = 2, .seed = -1};

static const struct option options[] = {
    {.name = "TABLE",
     .type = OPTION_WORD,
     .kind = KIND_TABLE,
     .help = "T1 ... T8, fig1 or bound",
     .required = true,
     .at = AT(options.table)},
    {.name = "data",
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "the data set, as `der train` takes it; not needed when all is done",
     .at = AT(options.train.data)},
    {.name = "out",
     .letter = 'o',
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "folder for the runs, TABLE.md and TABLE.csv",
     .more = "It is made if it is not there.",
     .required = true,
     .at = AT(options.out)},
    {.name = "row",
     .type = OPTION_TEXTS,
     .kind = KIND_ROW,
     .argument = "ROW",
     .help = "run this row only; may be given several times (all)",
     .more = "By its label or by the paper's name for it (joint, der, der-wop, ...), which may "
             "stand for several "
             "rows. Other rows are shown as far as they are done.",
     .at = AT(rows)},
    {.name = "orders",
     .argument = "N,N",
     .help = "class orders of the paper (1,2,3)",
     .more = "The presets for ImageNet have one order of their own.",
     .at = AT(orders)},
    {.name = "dry-run",
     .type = OPTION_FLAG,
     .help = "only list the runs, their states and folders",
     .at = AT(dry_run)},
    {.name = "table-only",
     .type = OPTION_FLAG,
     .help = "run nothing, only write and show the table of what is done",
     .at = AT(options.table_only)},
    {.name = "set",
     .type = OPTION_TEXTS,
     .kind = KIND_SETTING,
     .argument = "KEY=VALUE",
     .help = "change a setting of every run; it is then no longer the paper's",
     .more = "The title of the table says so. What a wanted row is about cannot be changed. May be "
             "given several times.",
     .at = AT(settings)},
    {.name = "tensorboard",
     .kind = KIND_FOLDER,
     .argument = "DIR",
     .help = "write event files for TensorBoard, those of each run to a folder in DIR",
     .at = AT(options.train.tensorboard)},
    {.name = "seed",
     .type = OPTION_INT,
     .argument = "N",
     .help = "seed of everything random (the preset's)",
     .at = AT(seed)},
    CLASS_LIST_ROW(options.train.class_list),
    BAD_IMAGES_ROW(options.train.bad_images, "stop", BAD_IMAGES_OF_TRAINING),
    DEVICE_ROW(options.train.backend),
    PRECISION_ROW(options.train.precision),
    DETERMINISTIC_ROW(options.train.deterministic),
    THREADS_ROW(threads),
    LOADERS_ROW(options.train.loader_threads),
    QUIET_ROW(quiet, "show no progress and no steps, only the table at the end"),
};

static void show_progress(void *user, const struct der_progress *progress)
{
    struct request *r = user;
    if (!r->quiet)
        progress_show(&r->progress, progress);
}

static void show_step(void *user, const struct der_step *step)
{
    struct request *r = user;
    if (!r->quiet)
        running_show_step(&r->has_header, step);
}

/* ", order 2" */
static const char *order_text(const struct der_reproduction_item *item, char text[ORDER_TEXT])
{
    text[0] = '\0';
    if (item->order > 0)
        (void)snprintf(text, ORDER_TEXT, ", order %d", item->order);
    return text;
}

static void show_begin(void *user, const struct der_reproduction_item *item, int number, int total)
{
    struct request *r = user;
    r->has_header = false;
    if (r->quiet)
        return;
    progress_end(&r->progress);
    char order[ORDER_TEXT];
    printf("run %d of %d: %s%s, in %s\n", number, total, item->row, order_text(item, order),
           item->folder);
    (void)fflush(stdout);
}

/* What a dry run prints: one line a run. */
static enum der_status list_runs(const struct der_reproduction *reproduction)
{
    static const char *const states[] = {
        [DER_RUN_ABSENT] = "to do", [DER_RUN_PARTIAL] = "partial", [DER_RUN_DONE] = "done"};
    for (int i = 0; i < der_reproduction_item_count(reproduction); i++) {
        struct der_reproduction_item item;
        enum der_status status = der_reproduction_item(reproduction, i, &item);
        if (status != DER_OK)
            return status;
        char label[LABEL_TEXT];
        char order[ORDER_TEXT];
        (void)snprintf(label, sizeof label, "%s%s", item.row, order_text(&item, order));
        printf("%-8s %-42s %s\n", states[item.state], label, item.folder);
    }
    return DER_OK;
}

static enum der_status show_table(struct der_reproduction *reproduction)
{
    const char *text;
    enum der_status status = der_reproduction_text(reproduction, &text);
    if (status == DER_OK)
        printf("%s", text);
    return status;
}

static enum der_status reproduce(struct der_ctx *ctx, struct request *r)
{
    struct der_reproduction *reproduction;
    enum der_status status = der_reproduction_new(ctx, &r->options, &reproduction);
    if (status == DER_OK && r->dry_run)
        status = list_runs(reproduction);
    else if (status == DER_OK)
        status = der_reproduction_run(reproduction);
    progress_end(&r->progress);
    if (status == DER_OK && !r->dry_run)
        status = show_table(reproduction);
    der_reproduction_free(reproduction);
    return status;
}

static enum exit_code start(struct request *r)
{
    char path[CACHE_DIR_MAX];
    struct der_ctx_options ctx_options = {.threads = r->threads, .cache_dir = cache_dir(path)};
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(&ctx_options, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    status = reproduce(ctx, r);
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}

/* "1,3" */
static enum exit_code read_orders(struct request *r)
{
    int n = 0;
    const char *text = r->orders;
    while (text) {
        char *end;
        long order = strtol(text, &end, 10);
        bool is_last = *end == '\0';
        if (end == text || (!is_last && *end != ',') || order < 1 || order > MAX_ORDERS ||
            n == MAX_ORDERS)
            return fail(EXIT_USAGE,
                        "--orders wants numbers from 1 to 3 with commas between, not '%s'",
                        r->orders);
        r->order[n++] = (int)order;
        text = is_last ? NULL : end + 1;
    }
    r->options.orders = r->order;
    r->options.n_orders = n;
    return EXIT_OK;
}

/* Everything that needs more than a place to be put. */
static enum exit_code read_words(struct request *r)
{
    struct der_reproduce_options *o = &r->options;
    o->rows = r->rows.text;
    o->n_rows = r->rows.n;
    for (int i = 0; i < r->settings.n; i++)
        r->assignments[o->n_assignments++] = r->settings.text[i];
    (void)snprintf(r->seed_text, sizeof r->seed_text, "seed=%d", r->seed);
    if (r->seed >= 0)
        r->assignments[o->n_assignments++] = r->seed_text;
    o->assignments = r->assignments;
    return read_orders(r);
}

static enum exit_code run(void *user)
{
    struct request *r = user;
    enum exit_code code = read_words(r);
    if (code != EXIT_OK)
        return code;
    r->options.begin = show_begin;
    r->options.train.progress = show_progress;
    r->options.train.step = show_step;
    r->options.train.cancelled = running_is_interrupted;
    r->options.train.user = r;
    running_catch_interrupts();
    return start(r);
}

const struct command command_reproduce = {
    .name = "reproduce",
    .usage = "TABLE --data DIR --out DIR [OPTIONS]",
    .summary = "run a table of the paper again, beside its numbers",
    .about =
        "Runs a table or figure of the paper again (T1 to T8, fig1, bound) and prints each row as "
        "mean and standard "
        "deviation over the class orders beside the published numbers.\n"
        "Every run has a folder of its own in the one given with `--out`, named after what is "
        "run, so that "
        "tables share runs. A finished run is used again, a missing one is done, one that was "
        "broken off is done "
        "as well; a run with other settings or on other images is refused. The table is also "
        "written to "
        "TABLE`.md` and TABLE`.csv` there, after every run. An interrupt (Ctrl-C) ends the "
        "current run; the same "
        "command goes on where the table stands.",
    TAKES(options),
    .defaults = &defaults,
    .run = run,
};
