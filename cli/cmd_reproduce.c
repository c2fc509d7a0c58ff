/*
 * `der reproduce`: a table or figure of the paper, run again.
 */
#include "cli.h"
#include "options.h"
#include "progress.h"
#include "running.h"

#include <der/reproduce.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ORDERS = 8, SEED_TEXT = 32, ORDER_TEXT = 32, LABEL_TEXT = 128 };

/* What the command line fills in. */
struct request {
    struct der_reproduce_options options;
    struct option_texts rows;
    struct option_texts settings; /* "key=value" */
    const char *orders, *precision, *bad_images;
    int order[MAX_ORDERS];
    char seed_text[SEED_TEXT];
    const char *assignments[OPTION_TEXTS_MAX + 1];
    int threads, seed;
    bool dry_run, quiet;
    bool has_header; /* of the table of steps of the current run */
    struct progress progress;
};

enum { N_OPTIONS = 17 };

static void list_options(struct request *r, struct option options[N_OPTIONS])
{
    struct der_train_options *train = &r->options.train;
    const struct option table[N_OPTIONS] = {
        {"TABLE", OPTION_WORD, "", "T1 ... T8 or fig1", &r->options.table},
        {"data", OPTION_TEXT, "DIR",
         "the data set, as 'der train' takes it; not needed when all is done", &train->data},
        {"out", OPTION_TEXT, "DIR", "folder for the runs, TABLE.md and TABLE.csv", &r->options.out},
        {"row", OPTION_TEXTS, "ROW", "run this row only; may be given several times (all)",
         &r->rows},
        {"orders", OPTION_TEXT, "N,N", "class orders of the paper (1,2,3)", &r->orders},
        {"dry-run", OPTION_FLAG, "", "only list the runs, their states and folders", &r->dry_run},
        {"set", OPTION_TEXTS, "KEY=VALUE",
         "change a setting of every run; it is then no longer the paper's", &r->settings},
        {"tensorboard", OPTION_TEXT, "DIR", "write event files for TensorBoard to DIR/RUN",
         &train->tensorboard},
        {"seed", OPTION_INT, "N", "seed of everything random (the preset's)", &r->seed},
        {"class-list", OPTION_TEXT, "FILE",
         "image folders: use the classes named in FILE, one a line", &train->class_list},
        {"bad-images", OPTION_TEXT, "skip|stop", "what to do with images that do not decode (stop)",
         &r->bad_images},
        {"device", OPTION_TEXT, "NAME", "back end, as 'der --version' lists them (the fastest)",
         &train->backend},
        {"precision", OPTION_TEXT, "f32|tf32|bf16", "of convolutions; the CPU has f32 only (f32)",
         &r->precision},
        {"deterministic", OPTION_FLAG, "", "only algorithms that give the same bytes twice",
         &train->deterministic},
        {"threads", OPTION_INT, "N", "compute threads; results depend on it (2)", &r->threads},
        {"loaders", OPTION_INT, "N", "threads that prepare batches (1)", &train->loader_threads},
        {"quiet", OPTION_FLAG, "", "no progress, only the table at the end", &r->quiet},
    };
    memcpy(options, table, sizeof table);
}

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

static enum exit_code run(struct request *r)
{
    struct der_ctx_options ctx_options = {.threads = r->threads};
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
    static const char *const bad_images[] = {"stop", "skip"};
    struct der_reproduce_options *o = &r->options;
    int bad = running_choose("reproduce", "bad-images", r->bad_images, bad_images, 2);
    if (bad < 0 || !running_precision("reproduce", r->precision, &o->train.precision))
        return EXIT_USAGE;
    o->train.bad_images = bad ? DER_BAD_IMAGES_SKIP : DER_BAD_IMAGES_STOP;
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

static enum exit_code check_request(const struct request *r)
{
    if (!r->options.table)
        return fail(EXIT_USAGE, "no table given; see 'der reproduce --help'");
    if (!r->options.out)
        return fail(EXIT_USAGE, "--out is missing; see 'der reproduce --help'");
    if (r->threads < 1 || r->options.train.loader_threads < 0)
        return fail(EXIT_USAGE, "--threads wants 1 or more, --loaders 0 or more");
    return EXIT_OK;
}

enum exit_code cmd_reproduce(int argc, char **argv)
{
    struct request r = {.precision = "f32", .bad_images = "stop", .threads = 2, .seed = -1};
    struct option options[N_OPTIONS];
    list_options(&r, options);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: der reproduce TABLE --data DIR --out DIR [OPTIONS]\n\n");
        options_print(options, N_OPTIONS);
        return EXIT_OK;
    }
    enum exit_code code = options_parse(options, N_OPTIONS, argc, argv);
    if (code == EXIT_OK)
        code = read_words(&r);
    if (code == EXIT_OK)
        code = check_request(&r);
    if (code != EXIT_OK)
        return code;
    r.options.begin = show_begin;
    r.options.train.progress = show_progress;
    r.options.train.step = show_step;
    r.options.train.cancelled = running_is_interrupted;
    r.options.train.user = &r;
    running_catch_interrupts();
    return run(&r);
}
