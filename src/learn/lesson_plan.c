#include "learn/lesson_plan.h"

#include "config/preset.h"
#include "data/defaults.h"
#include "store/weights_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    THUMBNAIL_MOST = 64, /* largest side of pictures that are taken as they are */
    PAD_SHARE = 8,       /* of a thumbnail's side, as padding */
    SIDE_STEP = 16,      /* image sizes of photographs are multiples of it */
    SIDE_LEAST = 32,     /* even where pictures are smaller */
    SMALL_SET = 5000,    /* pictures: up to here photographs are looked at closely enough at ... */
    SMALL_SIDE = 48,     /* ... this size, */
    MIDDLE_SET = 50000,  /* up to here at ... */
    MIDDLE_SIDE = 128,   /* ... this, */
    LARGE_SIDE = 224,    /* and above at this */
    LARGE_THUMBNAILS = 20000, /* pictures from which thumbnails are worth the larger network */
    CLASSIFIER_EPOCHS = 30,
    BATCH_SHARE = 8, /* an epoch has at least so many batches, ... */
    BATCH_LEAST = 16,
    BATCH_MOST = 128, /* ... as far as batches between these allow */
    SMALL_BATCH = 32, /* for the learning rate */
    TEST_BATCH = 32,
    PASSES = 24000, /* pictures seen in a lesson: epochs times pictures, ... */
    EPOCHS_LEAST = 20,
    EPOCHS_MOST = 100, /* ... as far as epochs between these allow */
    SIZE_SHARE = 3,    /* a new extractor keeps one part in so many */
};

/* The test transform of photographs takes the middle 224 of 256, whatever the size. */
static const double RESIZE_RATIO = 256.0 / 224.0;

/* What trained weights are usually of, and der import looks for unless it is told otherwise. */
static const char *const WEIGHTS_NETWORK = "resnet18";

static const double LEAST_AREA = 0.3; /* of a photograph that a random region shows */

/* Far below the presets' 0.1, with which short lessons fall to chance now and then: docs/BENCHMARKS.md. */
static const double LR_SMALL =
    0.02; /* batches up to SMALL_BATCH; below BATCH_LEAST proportionally less */
static const double LR_LARGE = 0.05;

/* ---- images -------------------------------------------------------------------------------------- */

/* A model whose pictures are not resized beyond the size of its images was made for thumbnails. */
static bool is_for_thumbnails(const struct augment_spec *test)
{
    return test->geometry == AUGMENT_PLAIN || test->resize <= test->height;
}

/* The training transform that goes with a test transform, and the size that both need. */
static void choose_training(struct lesson_plan *plan)
{
    const struct augment_spec *test = &plan->test;
    plan->train = *test;
    plan->size = (struct intake_size){.channels = test->channels};
    if (is_for_thumbnails(test)) {
        plan->train.geometry = AUGMENT_PAD_CROP;
        plan->train.pad = test->height / PAD_SHARE;
        plan->size.side = test->height;
        plan->size.is_exact = true; /* a crop must fit in */
        return;
    }
    plan->train.geometry = AUGMENT_RESIZED_CROP;
    plan->train.min_area = LEAST_AREA;
    plan->train.max_area = 1.0;
    plan->train.min_ratio = 3.0 / 4.0;
    plan->train.max_ratio = 4.0 / 3.0;
    plan->train.flip = true;
    plan->size.side = test->resize;
}

static int photograph_side(const struct intake_survey *survey, int64_t n_images)
{
    int side = n_images <= SMALL_SET    ? SMALL_SIDE
               : n_images <= MIDDLE_SET ? MIDDLE_SIDE
                                        : LARGE_SIDE;
    int there = survey->shorter / SIDE_STEP * SIDE_STEP;
    if (there < SIDE_LEAST)
        there = SIDE_LEAST;
    return side < there ? side : there;
}

static void choose_test(const struct dataset *data, const struct intake_survey *survey,
                        const struct lesson_options *options, struct augment_spec *test)
{
    bool is_small = survey->is_uniform && survey->shorter <= THUMBNAIL_MOST;
    int side = options->image_size > 0 ? options->image_size
               : is_small              ? survey->shorter
                                       : photograph_side(survey, data->part[DATA_TRAIN].n);
    bool is_thumbnail = is_small && side == survey->shorter;
    *test = (struct augment_spec){.geometry = AUGMENT_SHORTER_SIDE,
                                  .channels = data->channels,
                                  .height = side,
                                  .width = side,
                                  .resize = is_thumbnail ? side : (int)lround(side * RESIZE_RATIO)};
}

static const char *default_network(const struct augment_spec *test, int64_t n_images)
{
    if (is_for_thumbnails(test))
        return n_images < LARGE_THUMBNAILS ? "resnet32" : "resnet18-cifar";
    return test->height <= THUMBNAIL_MOST ? "resnet32" : "resnet18";
}

/* A model says what its next extractor looks like; options may repeat it but not change it. */
static enum der_status keep_images(const struct model *model, const struct lesson_options *options,
                                   struct lesson_plan *plan)
{
    const struct model_info *info = &model->info;
    struct der_ctx *ctx = model->ctx;
    if (options->network && strcmp(options->network, info->network) != 0)
        return ctx_fail(ctx, DER_ARG,
                        "the model has network %s; %s can only be asked for when a "
                        "model is new",
                        info->network, options->network);
    if (options->width > 0.0 && options->width != info->width)
        return ctx_fail(ctx, DER_ARG,
                        "the model has networks of width %g; %g can only be asked for "
                        "when a model is new",
                        info->width, options->width);
    if (options->image_size > 0 && options->image_size != info->input.height)
        return ctx_fail(ctx, DER_ARG,
                        "the model sees images of %d x %d; a size of %d can only be "
                        "asked for when a model is new",
                        info->input.width, info->input.height, options->image_size);
    if (options->init)
        return ctx_fail(ctx, DER_ARG,
                        "the model has learnt already; to begin with the weights of %s can only be "
                        "asked for when a model is new",
                        options->init);
    plan->test = info->input;
    choose_training(plan);
    (void)snprintf(plan->config.network, sizeof plan->config.network, "%s", info->network);
    plan->config.width = info->width;
    return DER_OK;
}

static enum der_status new_images(struct der_ctx *ctx, const struct dataset *data,
                                  const struct lesson_options *options, struct lesson_plan *plan)
{
    struct intake_survey survey;
    TRY(intake_look(data, &survey));
    if (survey.n == 0)
        return ctx_fail(ctx, DER_FORMAT, "none of the pictures in %s that were tried can be read",
                        data->path);
    choose_test(data, &survey, options, &plan->test);
    choose_training(plan);
    const char *network = options->network ? options->network
                          : options->init  ? WEIGHTS_NETWORK
                                           : default_network(&plan->test, data->part[DATA_TRAIN].n);
    (void)snprintf(plan->config.network, sizeof plan->config.network, "%s", network);
    plan->config.width = options->width > 0.0 ? options->width : 1.0;
    return DER_OK;
}

enum der_status lesson_plan_images(const struct pupil *pupil, const struct dataset *data,
                                   const struct lesson_options *options, struct lesson_plan *plan)
{
    struct der_ctx *ctx = pupil->be->ctx;
    *plan = (struct lesson_plan){0};
    TRY(config_from_preset(ctx, "custom", METHOD_DER, &plan->config));
    plan->config.temperature_features = PAPER_FEATURES;
    if (pupil->model)
        TRY(keep_images(pupil->model, options, plan));
    else
        TRY(new_images(ctx, data, options, plan));
    const struct augment_spec *image = &plan->test;
    struct weights_options init = {.path = options->init};
    TRY(resnet_spec_init(ctx, &plan->spec, plan->config.network, image->channels, image->height,
                         image->width, plan->config.width));
    return init.path ? weights_check(ctx, &init, &plan->spec, NULL) : DER_OK;
}

enum der_status lesson_plan_colours(const struct dataset *pictures, struct lesson_plan *plan)
{
    struct augment_spec usual;
    TRY(augment_defaults(pictures, false, &usual));
    memcpy(plan->test.mean, usual.mean, sizeof usual.mean);
    memcpy(plan->test.std, usual.std, sizeof usual.std);
    choose_training(plan);
    return DER_OK;
}

/* ---- training ------------------------------------------------------------------------------------ */

static int within(int64_t value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

static int default_batch(int64_t n_images)
{
    int batch = BATCH_LEAST;
    while (batch < BATCH_MOST && 2 * (int64_t)batch * BATCH_SHARE <= n_images)
        batch *= 2;
    return batch;
}

static double default_lr(int batch)
{
    if (batch > SMALL_BATCH)
        return LR_LARGE;
    return LR_SMALL * fmin(1.0, (double)batch / (double)BATCH_LEAST);
}

enum der_status lesson_plan_training(const struct pupil *pupil, int64_t n_images,
                                     const struct lesson_options *options, struct lesson_plan *plan)
{
    struct config *config = &plan->config;
    const struct basis *basis = &pupil->basis;
    config->seed = options->seed;
    config->memory_mode = MEMORY_PER_CLASS;
    config->memory = options->memory > 0 ? options->memory
                     : basis->memory > 0 ? basis->memory
                                         : LESSON_MEMORY;
    config->batch = options->batch > 0 ? options->batch : default_batch(n_images);
    config->test_batch = TEST_BATCH;
    int epochs = options->epochs > 0
                     ? options->epochs
                     : within(PASSES / (n_images > 0 ? n_images : 1), EPOCHS_LEAST, EPOCHS_MOST);
    int tuning = options->classifier_epochs > 0 ? options->classifier_epochs
                 : epochs < CLASSIFIER_EPOCHS   ? epochs
                                                : CLASSIFIER_EPOCHS;
    double lr = options->lr > 0.0 ? options->lr : default_lr(config->batch);
    config->representation = schedule_scaled(&config->representation, epochs);
    config->representation.lr = lr;
    config->first = config->representation;
    config->classifier = schedule_scaled(&config->classifier, tuning);
    config->classifier.lr = lr;
    config->target_params = options->target_params > 0 ? options->target_params
                            : basis->target_params > 0
                                ? basis->target_params
                                : resnet_count_params(&plan->spec) / SIZE_SHARE;
    return config_check(pupil->be->ctx, config);
}
