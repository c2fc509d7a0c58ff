#include "data/check.h"

#include "core/utf8.h"
#include "data/check_ignored.h"
#include "data/check_images.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY_START = 16 };

static const struct {
    const char *name;
    bool is_error;
} kinds[CHECK_KINDS] = {
    [CHECK_UNREADABLE] = {"unreadable", true},    [CHECK_BAD_NAME] = {"bad-name", true},
    [CHECK_BAD_IMAGE] = {"bad-image", true},      [CHECK_DUPLICATE] = {"duplicate", false},
    [CHECK_TWO_CLASSES] = {"two-classes", false}, [CHECK_FEW] = {"few-images", false},
    [CHECK_UNEQUAL] = {"unequal-classes", false}, [CHECK_NO_TEST] = {"no-test-images", false},
    [CHECK_IGNORED] = {"ignored", false},
};

bool check_is_error(enum check_kind kind)
{
    return kinds[kind].is_error;
}

const char *check_kind_name(enum check_kind kind)
{
    return kinds[kind].name;
}

enum der_status check_find(struct data_check *check, enum check_kind kind, const char *text)
{
    if (!text)
        return ctx_nomem(check->ctx);
    if (check->n == check->capacity) {
        int64_t capacity = check->capacity > 0 ? 2 * check->capacity : CAPACITY_START;
        struct check_finding *findings =
            mem_realloc(&check->ctx->mem, check->findings, (size_t)capacity, sizeof *findings);
        if (!findings)
            return ctx_nomem(check->ctx);
        check->findings = findings;
        check->capacity = capacity;
    }
    check->findings[check->n++] = (struct check_finding){kind, text};
    check->n_kind[kind]++;
    return DER_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

struct flaws {
    struct data_check *check;
    enum der_status status; /* of writing them down */
};

static void take_flaw(void *user, const char *sentence)
{
    struct flaws *flaws = user;
    if (flaws->status == DER_OK)
        flaws->status = check_find(flaws->check, CHECK_UNREADABLE,
                                   arena_strdup(&flaws->check->arena, sentence));
}

static enum der_status open_set(struct data_check *check, const char *path, const char *class_list)
{
    struct flaws flaws = {.check = check};
    struct dataset_options options = {
        .class_list = class_list, .flaw = take_flaw, .flaw_user = &flaws};
    enum der_status status = dataset_open_with(check->ctx, path, &options, &check->set);
    if (flaws.status != DER_OK || status == DER_NOMEM || status == DER_ARG)
        return status != DER_OK ? status : flaws.status;
    if (status == DER_OK)
        return DER_OK;
    return check_find(check, CHECK_UNREADABLE, arena_strdup(&check->arena, check->ctx->error));
}

/* ---- classes --------------------------------------------------------------------------------- */

static enum der_status count(struct data_check *check)
{
    const struct dataset *set = check->set;
    for (int split = 0; split < DATA_SPLITS; split++) {
        check->counts[split] =
            mem_zalloc(&check->ctx->mem, (size_t)set->n_classes, sizeof *check->counts[split]);
        if (!check->counts[split])
            return ctx_nomem(check->ctx);
        for (int64_t i = 0; i < set->part[split].n; i++)
            check->counts[split][set->part[split].labels[i]]++;
    }
    return DER_OK;
}

static enum der_status compare_classes(struct data_check *check, enum data_split split)
{
    const struct dataset *set = check->set;
    const int64_t *counts = check->counts[split];
    int least = 0;
    int most = 0;
    for (int c = 1; c < set->n_classes; c++) {
        least = counts[c] < counts[least] ? c : least;
        most = counts[c] > counts[most] ? c : most;
    }
    if (set->n_classes == 0 || counts[most] <= CHECK_UNEQUAL_RATIO * counts[least])
        return DER_OK;
    return check_find(check, CHECK_UNEQUAL,
                      arena_printf(&check->arena,
                                   "classes are of unequal size: '%s' has %" PRId64
                                   " %s images, '%s' %" PRId64,
                                   set->class_names[most], counts[most],
                                   split == DATA_TRAIN ? "training" : "test",
                                   set->class_names[least], counts[least]));
}

/* What no model file could hold. */
static enum der_status look_at_names(struct data_check *check)
{
    const struct dataset *set = check->set;
    for (int c = 0; c < set->n_classes; c++) {
        const char *name = set->class_names[c];
        if (name[0] == '\0' || !utf8_is_valid(name, strlen(name)))
            TRY(check_find(check, CHECK_BAD_NAME,
                           arena_printf(&check->arena,
                                        "class '%s' cannot be saved in a model: names are UTF-8 "
                                        "and not empty",
                                        name)));
    }
    return DER_OK;
}

static enum der_status look_at_classes(struct data_check *check)
{
    const struct dataset *set = check->set;
    TRY(look_at_names(check));
    for (int c = 0; c < set->n_classes; c++) {
        int64_t n = check->counts[DATA_TRAIN][c];
        if (n > 0 && n < CHECK_FEW_IMAGES)
            TRY(check_find(check, CHECK_FEW,
                           arena_printf(&check->arena,
                                        "class '%s' has only %" PRId64 " training image%s",
                                        set->class_names[c], n, n == 1 ? "" : "s")));
    }
    for (int split = 0; split < DATA_SPLITS; split++)
        TRY(compare_classes(check, (enum data_split)split));
    if (set->part[DATA_TEST].n > 0)
        return DER_OK;
    return check_find(check, CHECK_NO_TEST,
                      arena_strdup(&check->arena,
                                   "there are no test images; a part of the training images "
                                   "is held out for testing"));
}

/* ---- images ---------------------------------------------------------------------------------- */

/* An image by its place among all, the training images first. */
struct place {
    enum data_split split;
    int64_t index; /* in the split */
};

static struct place place_of(const struct dataset *set, int64_t i)
{
    int64_t n_train = set->part[DATA_TRAIN].n;
    return i < n_train ? (struct place){DATA_TRAIN, i} : (struct place){DATA_TEST, i - n_train};
}

static const char *class_of(const struct dataset *set, struct place place)
{
    return set->class_names[set->part[place.split].labels[place.index]];
}

/* "photos/cat/1.jpg", or "training image 7"; NULL when memory is short. */
static const char *name_of(struct data_check *check, struct place place)
{
    const struct data_part *part = &check->set->part[place.split];
    if (part->files)
        return part->files[place.index];
    return arena_printf(&check->arena, "%s image %" PRId64,
                        place.split == DATA_TRAIN ? "training" : "test", place.index);
}

static void measure(struct data_check *check, const struct image_seen *seen)
{
    bool is_first = check->height_min == 0;
    if (is_first || seen->height < check->height_min)
        check->height_min = seen->height;
    if (is_first || seen->width < check->width_min)
        check->width_min = seen->width;
    if (seen->height > check->height_max)
        check->height_max = seen->height;
    if (seen->width > check->width_max)
        check->width_max = seen->width;
}

/* What images are sorted by, to bring the same pictures together with the first one in front. */
struct key {
    uint64_t hash;
    int height, width;
    int64_t i;
};

static bool is_same_picture(const struct key *a, const struct key *b)
{
    return a->hash == b->hash && a->height == b->height && a->width == b->width;
}

static int compare_keys(const void *left, const void *right)
{
    const struct key *a = left;
    const struct key *b = right;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    if (a->height != b->height)
        return a->height < b->height ? -1 : 1;
    if (a->width != b->width)
        return a->width < b->width ? -1 : 1;
    return (a->i > b->i) - (a->i < b->i);
}

/* twin[i]: the first image with the same picture, itself when there is none before it. */
static void find_twins(const struct image_seen *seen, int64_t n, struct key *keys, int64_t *twin)
{
    int64_t n_keys = 0;
    for (int64_t i = 0; i < n; i++) {
        twin[i] = i;
        if (!seen[i].fault)
            keys[n_keys++] = (struct key){seen[i].hash, seen[i].height, seen[i].width, i};
    }
    if (n_keys > 1)
        qsort(keys, (size_t)n_keys, sizeof *keys, compare_keys);
    int64_t first = 0;
    for (int64_t k = 1; k < n_keys; k++) {
        if (is_same_picture(&keys[first], &keys[k]))
            twin[keys[k].i] = keys[first].i;
        else
            first = k;
    }
}

static enum der_status report_twin(struct data_check *check, int64_t i, int64_t first)
{
    const struct dataset *set = check->set;
    struct place here = place_of(set, i);
    struct place there = place_of(set, first);
    const char *name = name_of(check, here);
    const char *other = name_of(check, there);
    if (!name || !other)
        return ctx_nomem(check->ctx);
    const char *class_here = class_of(set, here);
    const char *class_there = class_of(set, there);
    if (class_here != class_there)
        return check_find(check, CHECK_TWO_CLASSES,
                          arena_printf(&check->arena,
                                       "%s of class '%s' is the same picture as %s of class '%s'",
                                       name, class_here, other, class_there));
    if (here.split == there.split)
        return DER_OK;
    return check_find(check, CHECK_DUPLICATE,
                      arena_printf(&check->arena,
                                   "%s is the same picture as %s, which is trained on", name,
                                   other));
}

static enum der_status report_images(struct data_check *check, const struct image_seen *seen,
                                     int64_t n, const int64_t *twin)
{
    for (int64_t i = 0; i < n; i++) {
        if (seen[i].fault)
            TRY(check_find(check, CHECK_BAD_IMAGE, arena_strdup(&check->arena, seen[i].fault)));
        else
            measure(check, &seen[i]);
        if (twin[i] != i)
            TRY(report_twin(check, i, twin[i]));
    }
    return DER_OK;
}

static enum der_status look_at_images(struct data_check *check, const struct check_options *options)
{
    struct mem *mem = &check->ctx->mem;
    int64_t n = check->set->part[DATA_TRAIN].n + check->set->part[DATA_TEST].n;
    struct image_seen *seen = mem_zalloc(mem, (size_t)n, sizeof *seen);
    struct key *keys = mem_alloc(mem, (size_t)n, sizeof *keys);
    int64_t *twin = mem_alloc(mem, (size_t)n, sizeof *twin);
    enum der_status status = seen && keys && twin ? DER_OK : ctx_nomem(check->ctx);
    if (status == DER_OK)
        status = check_images(check->set, options, seen, n);
    if (status == DER_OK) {
        find_twins(seen, n, keys, twin);
        status = report_images(check, seen, n, twin);
    }
    for (int64_t i = 0; seen && i < n; i++)
        mem_free(mem, seen[i].fault);
    mem_free(mem, seen);
    mem_free(mem, keys);
    mem_free(mem, twin);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* By kind; within a kind in the order in which they were found. */
static void sort_findings(const struct data_check *check, struct check_finding *sorted)
{
    int64_t n = 0;
    for (int kind = 0; kind < CHECK_KINDS; kind++)
        for (int64_t i = 0; i < check->n; i++)
            if (check->findings[i].kind == (enum check_kind)kind)
                sorted[n++] = check->findings[i];
}

static enum der_status order_findings(struct data_check *check)
{
    struct check_finding *sorted = mem_alloc(&check->ctx->mem, (size_t)check->n, sizeof *sorted);
    if (!sorted)
        return ctx_nomem(check->ctx);
    sort_findings(check, sorted);
    mem_free(&check->ctx->mem, check->findings);
    check->findings = sorted;
    check->capacity = check->n;
    return DER_OK;
}

static enum der_status run(struct data_check *check, const char *path,
                           const struct check_options *options)
{
    TRY(open_set(check, path, options->class_list));
    if (check->set) {
        TRY(count(check));
        TRY(look_at_classes(check));
        TRY(look_at_images(check, options));
        TRY(check_ignored(check));
    }
    return order_findings(check);
}

enum der_status data_check_run(struct der_ctx *ctx, const char *path,
                               const struct check_options *options, struct data_check **out)
{
    *out = NULL;
    struct data_check *check = mem_zalloc(&ctx->mem, 1, sizeof *check);
    if (!check)
        return ctx_nomem(ctx);
    check->ctx = ctx;
    arena_init(&check->arena, &ctx->mem);
    enum der_status status = run(check, path, options);
    if (status != DER_OK) {
        data_check_free(check);
        return status;
    }
    *out = check;
    return DER_OK;
}

void data_check_free(struct data_check *check)
{
    if (!check)
        return;
    struct mem *mem = &check->ctx->mem;
    for (int split = 0; split < DATA_SPLITS; split++)
        mem_free(mem, check->counts[split]);
    mem_free(mem, check->findings);
    arena_fini(&check->arena);
    dataset_free(check->set);
    mem_free(mem, check);
}
