/*
 * One lesson, from pictures to a pupil that knows them.
 */
#include "learn/lesson_plan.h"

#include "core/utf8.h"
#include "data/collection.h"

#include <math.h>
#include <string.h>

enum { HOLDOUT_FEWEST = 5 }; /* a class with fewer pictures needs them all */

static const double HOLDOUT_SHARE = 0.2;

/* Everything a lesson opens, so that one function closes it. */
struct lesson {
    struct der_ctx *ctx;
    const struct pupil *old;
    const struct dataset *data;
    const struct lesson_options *options;
    struct lesson_report *report;
    struct lesson_plan plan;
    int n_old, n_classes;   /* classes known before, and after */
    const char **classes;   /* [n_classes] names in the order of learning */
    int32_t *label_of;      /* [data->n_classes] */
    struct dataset *taken;  /* the new pictures */
    bool has_tests;         /* some of the data are there to test with, known ones among them */
    struct data_view *kept; /* of `taken`, split DATA_TRAIN: to train on */
    struct data_view *held; /* of `taken`: to test with */
    enum data_split held_split;
    struct dataset *work; /* pictures of the album and new ones; borrows their bytes */
    struct data_view *train, *joining, *test; /* of `work` */
    struct exemplars *memory;
    struct learner *learner;
};

static void close_lesson(struct lesson *l)
{
    struct mem *mem = &l->ctx->mem;
    learner_free(l->learner);
    exemplars_free(l->memory);
    view_free(l->train);
    view_free(l->joining);
    view_free(l->test);
    view_free(l->kept);
    view_free(l->held);
    dataset_free(l->work);
    dataset_free(l->taken);
    mem_free(mem, l->label_of);
    mem_free(mem, l->classes);
}

/* ---- classes ------------------------------------------------------------------------------------- */

static int known_label(const struct lesson *l, const char *name)
{
    for (int k = 0; k < l->n_old; k++)
        if (strcmp(l->old->model->info.classes[k], name) == 0)
            return k;
    return -1;
}

static enum der_status check_counts(const struct lesson *l)
{
    struct der_ctx *ctx = l->ctx;
    if (l->n_classes < 2)
        return ctx_fail(ctx, DER_ARG,
                        "%s has one class, '%s'; a first lesson needs two, since with one there is "
                        "nothing to tell apart",
                        l->data->path, l->classes[0]);
    if (l->n_classes > l->n_old && l->old->model &&
        l->old->model->info.n_steps == LEARNER_MAX_STEPS)
        return ctx_fail(ctx, DER_ARG, "the model has learnt in %d steps, which is the most it can",
                        LEARNER_MAX_STEPS);
    return DER_OK;
}

/* Known classes keep their labels, new ones follow in the order of the data. */
static enum der_status match_classes(struct lesson *l)
{
    struct mem *mem = &l->ctx->mem;
    const struct dataset *data = l->data;
    l->n_old = l->old->model ? l->old->model->info.n_classes : 0;
    l->classes = mem_alloc(mem, (size_t)l->n_old + (size_t)data->n_classes, sizeof *l->classes);
    l->label_of = mem_alloc(mem, (size_t)data->n_classes, sizeof *l->label_of);
    if (!l->classes || !l->label_of)
        return ctx_nomem(l->ctx);
    for (int k = 0; k < l->n_old; k++)
        l->classes[k] = l->old->model->info.classes[k];
    l->n_classes = l->n_old;
    for (int c = 0; c < data->n_classes; c++) {
        const char *name = data->class_names[c];
        if (name[0] == '\0' || !utf8_is_valid(name, strlen(name)))
            return ctx_fail(l->ctx, DER_ARG,
                            "class '%s' of %s cannot be learnt: names are UTF-8 "
                            "and not empty",
                            name, data->path);
        int label = known_label(l, name);
        if (label < 0) {
            label = l->n_classes++;
            l->classes[label] = name;
        }
        l->label_of[c] = label;
    }
    return check_counts(l);
}

/* ---- pictures ------------------------------------------------------------------------------------ */

/* Leaves out what the model has already, so that a folder that has grown can be learnt again, and what was held out
 * is never trained on. */
static enum der_status leave_out_known(struct lesson *l)
{
    struct picture_set known;
    TRY(picture_set_of(l->ctx, l->old->album, &known));
    for (int split = 0; split < DATA_SPLITS; split++) {
        struct data_part *part = &l->taken->part[split];
        int64_t n = 0;
        for (int64_t i = 0; i < part->n; i++) {
            if (picture_set_has(&known, &part->items[i].image)) {
                l->report->n_known++;
                continue;
            }
            part->items[n] = part->items[i];
            part->labels[n++] = part->labels[i];
        }
        part->n = n;
    }
    picture_set_fini(&known);
    return DER_OK;
}

/* Every class that is to be learnt has something to learn from. */
static enum der_status check_pictures(const struct lesson *l)
{
    const struct data_part *part = &l->taken->part[DATA_TRAIN];
    int64_t *counts = mem_zalloc(&l->ctx->mem, (size_t)l->n_classes, sizeof *counts);
    enum der_status status = DER_OK;
    if (!counts)
        return ctx_nomem(l->ctx);
    for (int64_t i = 0; i < part->n; i++)
        counts[l->label_of[part->labels[i]]]++;
    for (int k = l->n_old; k < l->n_classes && status == DER_OK; k++)
        if (counts[k] == 0)
            status = ctx_fail(l->ctx, DER_FORMAT,
                              "class '%s' of %s has no picture that can be used to learn it",
                              l->classes[k], l->data->path);
    if (status == DER_OK && part->n == 0)
        status = ctx_fail(l->ctx, DER_FORMAT, "%s has nothing new: the model has all its pictures",
                          l->data->path);
    for (int k = 0; k < l->n_old; k++)
        l->report->n_joined += counts[k] > 0;
    mem_free(&l->ctx->mem, counts);
    return status;
}

static enum der_status take_pictures(struct lesson *l)
{
    const struct intake_options options = {
        .size = l->plan.size, .bad_images = l->options->bad_images, .hooks = &l->options->hooks};
    TRY(intake(l->data, &options, &l->taken, &l->report->n_bad));
    if (!l->old->model)
        TRY(lesson_plan_colours(l->taken, &l->plan));
    l->has_tests = l->taken->part[DATA_TEST].n > 0;
    TRY(leave_out_known(l));
    return check_pictures(l);
}

/* All pictures of a split of the new ones, under the labels of the model. */
static enum der_status view_taken(const struct lesson *l, enum data_split split,
                                  struct data_view **out)
{
    const struct data_part *part = &l->taken->part[split];
    TRY(view_new(l->ctx, part->n, out));
    for (int64_t i = 0; i < part->n; i++)
        (*out)->items[i] = (struct view_item){.sample = i, .label = l->label_of[part->labels[i]]};
    return DER_OK;
}

/* The new pictures that the model was trained on in an earlier lesson, or those that it was not. */
static enum der_status view_trained(const struct lesson *l, const struct data_view *all,
                                    bool is_trained, struct data_view **out)
{
    const struct data_item *items = l->taken->part[DATA_TRAIN].items;
    int64_t n = 0;
    TRY(view_new(l->ctx, all->n, out));
    for (int64_t i = 0; i < all->n; i++)
        if (picture_set_has(&l->old->basis.trained, &items[all->items[i].sample].image) ==
            is_trained)
            (*out)->items[n++] = all->items[i];
    (*out)->n = n;
    return DER_OK;
}

/* Holds out a share of what no lesson has trained on: accuracy on anything else would say nothing. */
static enum der_status hold_out_share(struct lesson *l, const struct data_view *all, double share)
{
    struct data_view *trained = NULL;
    struct data_view *fresh = NULL;
    struct data_view *rest = NULL;
    enum der_status status = view_trained(l, all, true, &trained);
    if (status == DER_OK)
        status = view_trained(l, all, false, &fresh);
    if (status == DER_OK)
        status = view_holdout_from(l->ctx, fresh, share, HOLDOUT_FEWEST, l->options->seed, &rest,
                                   &l->held);
    if (status == DER_OK)
        status = view_union(l->ctx, rest, trained, &l->kept);
    view_free(rest);
    view_free(fresh);
    view_free(trained);
    return status;
}

/* What is trained on and what is tested with: the data's own test pictures, or some that are held out. */
static enum der_status hold_out(struct lesson *l)
{
    double share = l->options->validation == 0.0 ? HOLDOUT_SHARE : l->options->validation;
    struct data_view *all;
    if (l->has_tests || share < 0.0) {
        l->held_split = DATA_TEST;
        TRY(view_taken(l, DATA_TEST, &l->held));
        return view_taken(l, DATA_TRAIN, &l->kept);
    }
    l->held_split = DATA_TRAIN;
    TRY(view_taken(l, DATA_TRAIN, &all));
    enum der_status status = hold_out_share(l, all, share);
    view_free(all);
    return status;
}

/* ---- everything in one set ----------------------------------------------------------------------- */

/* Appends pictures under their labels; the bytes stay where they are. */
static enum der_status append(struct lesson *l, enum data_split to, const struct dataset *from,
                              enum data_split split, const struct data_view *what)
{
    struct data_part *part = &l->work->part[to];
    int64_t first = part->n;
    TRY(collection_grow(l->work, to, what->n));
    for (int64_t i = 0; i < what->n; i++) {
        part->items[first + i] = from->part[split].items[what->items[i].sample];
        part->labels[first + i] = what->items[i].label;
    }
    return DER_OK;
}

static enum der_status append_album(struct lesson *l, enum data_split split)
{
    const struct dataset *album = l->old->album;
    const struct data_part *part = &album->part[split];
    struct data_view *all;
    TRY(view_new(l->ctx, part->n, &all));
    for (int64_t i = 0; i < part->n; i++)
        all->items[i] = (struct view_item){.sample = i, .label = part->labels[i]};
    enum der_status status = append(l, split, album, split, all);
    view_free(all);
    return status;
}

/* The samples from `first` on of a split of `work` with labels from `low` to `high` - 1. */
static enum der_status view_work(const struct lesson *l, enum data_split split, int64_t first,
                                 int low, int high, struct data_view **out)
{
    const struct data_part *part = &l->work->part[split];
    struct data_view *all;
    *out = NULL;
    TRY(view_new(l->ctx, part->n - first, &all));
    for (int64_t i = first; i < part->n; i++)
        all->items[i - first] = (struct view_item){.sample = i, .label = part->labels[i]};
    enum der_status status = view_range(l->ctx, all, low, high, out);
    view_free(all);
    return status;
}

/* The kept pictures of the album, class by class, as samples of `work`, where they come first. */
static enum der_status list_memory(struct lesson *l)
{
    const struct data_part *part = &l->work->part[DATA_TRAIN];
    int64_t n_kept = l->old->album ? l->old->album->part[DATA_TRAIN].n : 0;
    int64_t *samples = mem_alloc(&l->ctx->mem, (size_t)n_kept, sizeof *samples);
    enum der_status status =
        samples ? exemplars_new(l->ctx, l->n_classes, &l->memory) : ctx_nomem(l->ctx);
    int64_t at = 0;
    for (int k = 0; k < l->n_old && status == DER_OK; k++) {
        int n = 0;
        for (; at < n_kept && part->labels[at] == k; at++)
            samples[n++] = at;
        status = exemplars_add(l->memory, samples, n);
    }
    mem_free(&l->ctx->mem, samples);
    return status;
}

static enum der_status gather(struct lesson *l)
{
    TRY(collection_new(l->ctx, "lesson", l->data->path, l->plan.size.channels, &l->work));
    for (int k = 0; k < l->n_classes; k++) {
        int32_t label;
        TRY(collection_class(l->work, l->classes[k], &label));
    }
    for (int split = 0; l->old->album && split < DATA_SPLITS; split++)
        TRY(append_album(l, (enum data_split)split));
    int64_t n_kept = l->work->part[DATA_TRAIN].n;
    TRY(append(l, DATA_TRAIN, l->taken, DATA_TRAIN, l->kept));
    TRY(append(l, DATA_TEST, l->taken, l->held_split, l->held));
    TRY(view_work(l, DATA_TRAIN, n_kept, l->n_old, l->n_classes, &l->train));
    TRY(view_work(l, DATA_TRAIN, n_kept, 0, l->n_old, &l->joining));
    TRY(view_work(l, DATA_TEST, 0, 0, l->n_classes, &l->test));
    l->report->n_taken = l->kept->n;
    return list_memory(l);
}

/* ---- learning ------------------------------------------------------------------------------------ */

/* Of how many pictures of every class the second stage makes sure: as many as are kept, but not more than any class
 * has, since repeating all of them only takes longer. */
static enum der_status plan_balance(const struct lesson *l, int *least)
{
    const struct data_part *part = &l->work->part[DATA_TRAIN];
    int64_t *counts = mem_zalloc(&l->ctx->mem, (size_t)l->n_classes, sizeof *counts);
    int64_t most = LESSON_MEMORY;
    if (!counts)
        return ctx_nomem(l->ctx);
    for (int64_t i = 0; i < part->n; i++)
        if (++counts[part->labels[i]] > most)
            most = counts[part->labels[i]];
    mem_free(&l->ctx->mem, counts);
    *least = l->plan.config.memory < most ? l->plan.config.memory : (int)most;
    return DER_OK;
}

static enum der_status open_learner(struct lesson *l)
{
    int balance_least = 0;
    TRY(plan_balance(l, &balance_least));
    const struct pupil *old = l->old;
    struct learner_options options = {.config = l->plan.config,
                                      .spec = l->plan.spec,
                                      .train_augment = l->plan.train,
                                      .test_augment = l->plan.test,
                                      .set = l->work,
                                      .train = l->train,
                                      .joining = l->joining,
                                      .test = l->test,
                                      .test_split = DATA_TEST,
                                      .n_classes = l->n_classes,
                                      .balance_least = balance_least,
                                      .fills_memory = true,
                                      .bad_images = BAD_IMAGES_STOP,
                                      .loader_threads = l->options->loader_threads,
                                      .init = l->options->init};
    struct model *copy;
    TRY(learner_new(old->be, &options, &l->learner));
    if (!old->model)
        return DER_OK;
    TRY(extractor_copy(old->basis.last_full, &l->learner->last_full));
    TRY(model_copy(old->model, &copy));
    enum der_status status = learner_adopt(l->learner, copy, &l->memory);
    model_free(copy);
    return status;
}

/* Per cent over the classes [first, last); NAN without pictures. */
static double accuracy(const struct evaluation *e, int first, int last)
{
    int64_t n = 0;
    for (int k = first; k < last; k++)
        n += e->n[k];
    return n > 0 ? evaluation_top1(e, first, last) : NAN;
}

static enum der_status test_before(struct lesson *l)
{
    struct evaluation e;
    l->report->old_before = NAN;
    if (l->n_old == 0)
        return DER_OK;
    enum der_status status = learner_test(l->learner, &l->options->hooks, &e);
    if (status == DER_OK)
        l->report->old_before = accuracy(&e, 0, l->n_old);
    evaluation_fini(l->ctx, &e);
    return status;
}

static enum der_status test_after(struct lesson *l)
{
    struct lesson_report *report = l->report;
    struct evaluation e;
    enum der_status status = learner_test(l->learner, &l->options->hooks, &e);
    if (status == DER_OK) {
        report->old_after = accuracy(&e, 0, l->n_old);
        report->new_after = accuracy(&e, l->n_old, l->n_classes);
        report->all_after = accuracy(&e, 0, l->n_classes);
        for (int k = 0; k < l->n_classes; k++)
            *(k < l->n_old ? &report->n_held_old : &report->n_held_new) += e.n[k];
    }
    evaluation_fini(l->ctx, &e);
    report->params = learner_parameters(l->learner);
    report->params_total = report->params + param_set_count(l->learner->classifier);
    return status;
}

static enum der_status learn(struct lesson *l)
{
    TRY(test_before(l));
    l->report->n_new = l->n_classes - l->n_old;
    if (l->report->n_new > 0)
        TRY(learner_step(l->learner, l->report->n_new, &l->options->hooks));
    else
        TRY(learner_refresh(l->learner, &l->options->hooks));
    return test_after(l);
}

/* ---- what stays ---------------------------------------------------------------------------------- */

/* The held-out pictures of a class that stay: those that were there before, then new ones. */
static enum der_status keep_held(const struct lesson *l, struct dataset *album, int label)
{
    const struct data_part *part = &l->work->part[DATA_TEST];
    int n = 0;
    for (int64_t i = 0; i < part->n && n < l->plan.config.memory; i++) {
        if (part->labels[i] != label)
            continue;
        TRY(collection_add(album, DATA_TEST, label, &part->items[i].image));
        n++;
    }
    return DER_OK;
}

static enum der_status fill_album(const struct lesson *l, struct dataset *album)
{
    const struct exemplars *memory = l->learner->memory;
    for (int k = 0; k < l->n_classes; k++) {
        int32_t label;
        TRY(collection_class(album, l->classes[k], &label));
    }
    for (int k = 0; k < l->n_classes; k++) {
        for (int i = 0; i < memory->lists[k].n; i++) {
            struct image_view picture =
                dataset_view(l->work, DATA_TRAIN, memory->lists[k].samples[i]);
            TRY(collection_add(album, DATA_TRAIN, k, &picture));
        }
        TRY(keep_held(l, album, k));
    }
    return DER_OK;
}

static enum der_status graduate(struct lesson *l, struct pupil *taught)
{
    const struct config *config = &l->plan.config;
    taught->be = l->old->be;
    taught->basis.memory = config->memory;
    taught->basis.target_params =
        l->options->target_params > 0 ? l->options->target_params : l->old->basis.target_params;
    TRY(picture_set_with(l->ctx, &l->old->basis.trained, l->taken, DATA_TRAIN, l->kept,
                         &taught->basis.trained));
    TRY(collection_new(l->ctx, "album", l->data->path, l->plan.size.channels, &taught->album));
    TRY(fill_album(l, taught->album));
    return learner_hand_over(l->learner, l->classes, &taught->model, &taught->basis.last_full);
}

static enum der_status teach(struct lesson *l, struct pupil *taught)
{
    TRY(match_classes(l));
    TRY(lesson_plan_images(l->old, l->data, l->options, &l->plan));
    TRY(take_pictures(l));
    TRY(hold_out(l));
    TRY(gather(l));
    TRY(lesson_plan_training(l->old, l->work->part[DATA_TRAIN].n, l->options, &l->plan));
    TRY(open_learner(l));
    TRY(learn(l));
    return graduate(l, taught);
}

enum der_status pupil_teach(const struct pupil *old, const struct dataset *data,
                            const struct lesson_options *options, struct lesson_report *report,
                            struct pupil *taught)
{
    struct lesson lesson = {
        .ctx = old->be->ctx, .old = old, .data = data, .options = options, .report = report};
    *report = (struct lesson_report){0};
    *taught = (struct pupil){0};
    enum der_status status = teach(&lesson, taught);
    close_lesson(&lesson);
    if (status != DER_OK)
        pupil_fini(taught);
    return status;
}

void pupil_fini(struct pupil *pupil)
{
    model_free(pupil->model);
    dataset_free(pupil->album);
    basis_fini(&pupil->basis);
    *pupil = (struct pupil){.be = pupil->be};
}
