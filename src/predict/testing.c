#include "predict/testing.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A class of the model, for finding its label by name. */
struct name_entry {
    const char *name;
    int32_t label;
};

enum { UNKNOWN = -1 };

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct name_entry *)a)->name, ((const struct name_entry *)b)->name);
}

/* labels[c]: what the model calls class c of the set, or UNKNOWN. */
static enum der_status match_classes(struct der_ctx *ctx, const struct model_info *model,
                                     const struct dataset *set, int32_t *labels)
{
    size_t n = (size_t)model->n_classes;
    struct name_entry *entries = mem_alloc(&ctx->mem, n, sizeof *entries);
    if (!entries)
        return ctx_nomem(ctx);
    for (size_t i = 0; i < n; i++)
        entries[i] = (struct name_entry){.name = model->classes[i], .label = (int32_t)i};
    qsort(entries, n, sizeof *entries, compare_entries);
    for (int c = 0; c < set->n_classes; c++) {
        struct name_entry wanted = {.name = set->class_names[c]};
        const struct name_entry *found =
            bsearch(&wanted, entries, n, sizeof *entries, compare_entries);
        labels[c] = found ? found->label : UNKNOWN;
    }
    mem_free(&ctx->mem, entries);
    return DER_OK;
}

static void count_unknown(const struct dataset *set, const struct data_part *part,
                          const int32_t *labels, struct testing *out)
{
    for (int c = set->n_classes - 1; c >= 0; c--) {
        if (labels[c] != UNKNOWN)
            continue;
        out->unknown_classes++;
        out->unknown_example = set->class_names[c];
    }
    for (int64_t i = 0; i < part->n; i++)
        out->unknown_images += labels[part->labels[i]] == UNKNOWN;
}

/* The images whose classes the model knows, under its labels. */
static enum der_status known_images(struct der_ctx *ctx, const struct data_part *part,
                                    const int32_t *labels, int64_t n, struct data_view **out)
{
    TRY(view_new(ctx, n, out));
    struct view_item *item = (*out)->items;
    for (int64_t i = 0; i < part->n; i++)
        if (labels[part->labels[i]] != UNKNOWN)
            *item++ = (struct view_item){.sample = i, .label = labels[part->labels[i]]};
    assert(item == (*out)->items + n);
    return DER_OK;
}

static enum der_status refuse(struct der_ctx *ctx, const struct dataset *set,
                              const struct testing_options *options, const struct model_info *model,
                              const struct testing *testing)
{
    const char *split = options->split == DATA_TEST ? "test" : "training";
    if (testing->unknown_classes == set->n_classes)
        return ctx_fail(ctx, DER_FORMAT,
                        "the model knows none of the %d classes of %s: they are called '%.60s' and "
                        "so on, its own '%.60s' and so on",
                        set->n_classes, set->path, set->class_names[0], model->classes[0]);
    return ctx_fail(ctx, DER_FORMAT, "%s has no %s images of classes that the model knows",
                    set->path, split);
}

static enum der_status get_program(void *self, int batch, struct stage_program *out)
{
    return predictor_program(self, batch, out);
}

static enum der_status test(struct predictor *predictor, const struct dataset *set,
                            const struct testing_options *options, const int32_t *labels,
                            struct testing *out)
{
    static const struct stage_ops ops = {.program = get_program};
    const struct model *model = predictor_model(predictor);
    const struct data_part *part = &set->part[options->split];
    struct der_ctx *ctx = model->ctx;
    struct data_view *view;
    count_unknown(set, part, labels, out);
    int64_t n = part->n - out->unknown_images;
    if (n == 0)
        return refuse(ctx, set, options, &model->info, out);
    TRY(known_images(ctx, part, labels, n, &view));
    struct loader_options data = {.set = set,
                                  .view = view,
                                  .augment = predictor_input(predictor),
                                  .split = options->split,
                                  .mode = LOADER_EVAL,
                                  .bad_images = options->bad_images,
                                  .batch = options->batch > 0 ? options->batch
                                                              : predictor_batch(predictor),
                                  .threads = options->loader_threads};
    const struct evaluation_options how = {
        .be = model->classifier->be,
        .ops = &ops,
        .self = predictor,
        .data = &data,
        .temperature = options->keeps_predictions ? model->info.temperature : 0};
    enum der_status status = evaluate(&how, model->info.n_classes, &options->hooks, &out->counts);
    view_free(view);
    TRY(status);
    out->bad_images = n;
    for (int c = 0; c < out->counts.n_classes; c++)
        out->bad_images -= out->counts.n[c];
    return DER_OK;
}

enum der_status testing_run(struct predictor *predictor, const struct dataset *set,
                            const struct testing_options *options, struct testing *out)
{
    const struct model *model = predictor_model(predictor);
    struct der_ctx *ctx = model->ctx;
    *out = (struct testing){0};
    int32_t *labels = mem_alloc(&ctx->mem, (size_t)set->n_classes, sizeof *labels);
    if (!labels)
        return ctx_nomem(ctx);
    enum der_status status = match_classes(ctx, &model->info, set, labels);
    if (status == DER_OK)
        status = test(predictor, set, options, labels, out);
    mem_free(&ctx->mem, labels);
    return status;
}

void testing_fini(struct der_ctx *ctx, struct testing *testing)
{
    evaluation_fini(ctx, &testing->counts);
}
