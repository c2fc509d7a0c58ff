/*
 * Opening an experiment: data, views, back end, learner, run folder; and closing it.
 */
#include "experiment/experiment_internal.h"

#include "config/config_json.h"
#include "core/utf8.h"
#include "data/defaults.h"
#include "data/readable.h"
#include "experiment/fingerprint.h"
#include "experiment/records.h"
#include "store/weights_file.h"

#include <string.h>

static const double DEFAULT_HOLDOUT = 0.2; /* of a set without test images */

enum der_status experiment_open_data(struct experiment *x)
{
    const struct config *config = &x->options.config;
    struct dataset_options which = {.class_list = x->options.class_list,
                                    .first_classes = config->first_classes};
    TRY(dataset_open_with(x->ctx, x->options.data, &which, &x->set));
    if (config->classes > 0 && x->set->n_classes != config->classes)
        return ctx_fail(x->ctx, DER_ARG, "preset '%s' is for %d classes, but %s has %d",
                        config->preset, config->classes, x->options.data, x->set->n_classes);
    if (x->set->n_classes > INT32_MAX - 1)
        return ctx_fail(x->ctx, DER_ARG, "%s has too many classes", x->options.data);
    TRY(order_new(x->ctx, config->order, x->set->n_classes, &x->order));
    return x->record.root ? run_record_check_data(x->ctx, &x->record, x->set, x->order) : DER_OK;
}

/* A name that no model file could hold is better met now than after the first step. */
static enum der_status open_classes(struct experiment *x)
{
    int n = x->order->n;
    x->classes = mem_alloc(&x->ctx->mem, (size_t)n, sizeof *x->classes);
    if (!x->classes)
        return ctx_nomem(x->ctx);
    for (int k = 0; k < n; k++) {
        const char *name = x->set->class_names[x->order->class_of[k]];
        x->classes[k] = name;
        bool is_usable = name[0] != '\0' && utf8_is_valid(name, strlen(name));
        for (int other = 0; other < k && is_usable; other++)
            is_usable = strcmp(x->classes[other], name) != 0;
        if (!is_usable && x->options.out)
            return ctx_fail(
                x->ctx, DER_ARG,
                "class '%s' of %s cannot be saved: names are UTF-8, not empty, and differ", name,
                x->options.data);
    }
    return DER_OK;
}

/* What may be trained on, and what is tested on: test images, or held-out training images. */
static enum der_status open_views(struct experiment *x)
{
    const struct config *config = &x->options.config;
    int n = x->set->n_classes;
    double share = config->validation;
    struct data_view *all;
    if (share == 0.0 && x->set->part[DATA_TEST].n == 0)
        share = DEFAULT_HOLDOUT;
    TRY(view_classes(x->ctx, &x->set->part[DATA_TRAIN], x->order, 0, n, &all));
    if (share > 0.0) {
        enum der_status status =
            view_holdout(x->ctx, all, share, config->seed, &x->train, &x->test);
        view_free(all);
        x->test_split = DATA_TRAIN;
        TRY(status);
    } else {
        x->train = all;
        x->test_split = DATA_TEST;
        TRY(view_classes(x->ctx, &x->set->part[DATA_TEST], x->order, 0, n, &x->test));
    }
    return config->per_class > 0 ? view_limit(x->train, n, config->per_class) : DER_OK;
}

static enum der_status choose_augment(const struct experiment *x, bool training,
                                      struct augment_spec *out)
{
    const char *name = config_augment(&x->options.config, training);
    if (!name)
        return augment_defaults(x->set, training, out);
    *out = *augment_preset(name);
    out->channels = x->set->channels;
    return DER_OK;
}

static enum der_status open_learner(struct experiment *x)
{
    const struct experiment_options *o = &x->options;
    const struct config *config = &x->options.config;
    struct learner_options learner = {.config = *config,
                                      .set = x->set,
                                      .train = x->train,
                                      .test = x->test,
                                      .test_split = x->test_split,
                                      .n_classes = x->set->n_classes,
                                      .steps_before = experiment_first_step(x),
                                      .bad_images = o->bad_images,
                                      .loader_threads = o->loader_threads,
                                      .init = o->init};
    if (o->out)
        learner.saver = (struct learner_saver){
            .every = o->save_every, .save = experiment_save_point, .user = x};
    TRY(choose_augment(x, true, &learner.train_augment));
    TRY(choose_augment(x, false, &learner.test_augment));
    /* Images of a wrong size are better met now than by a run that has begun, or after its first step. */
    TRY(loader_check(x->ctx, x->set, DATA_TRAIN, &learner.train_augment));
    TRY(loader_check(x->ctx, x->set, x->test_split, &learner.test_augment));
    const struct augment_spec *image = &learner.train_augment;
    TRY(resnet_spec_init(x->ctx, &learner.spec, config->network, image->channels, image->height,
                         image->width, config->width));
    TRY(backend_open(x->ctx, o->backend, &o->backend_options, &x->be));
    return learner_new(x->be, &learner, &x->learner);
}

/* A class of which every image is skipped is better met now than never. */
static enum der_status check_images(const struct experiment *x)
{
    const struct loader_options data = {.set = x->set,
                                        .view = x->train,
                                        .augment = &x->learner->options.test_augment,
                                        .split = DATA_TRAIN};
    if (x->options.bad_images != BAD_IMAGES_SKIP)
        return DER_OK;
    return readable_check(x->ctx, &data, x->first_class[x->n_steps]);
}

static enum der_status create_folder(struct experiment *x)
{
    cJSON *settings;
    TRY(config_to_json(x->ctx, &x->options.config, &settings));
    struct record_start start = {.options = &x->options,
                                 .settings = settings,
                                 .set = x->set,
                                 .order = x->order,
                                 .init_checksum = x->init_checksum,
                                 .threads = x->ctx->threads};
    cJSON *config = record_config(&start);
    json_free(settings);
    if (!config)
        return ctx_nomem(x->ctx);
    enum der_status status = run_folder_create(x->ctx, NULL, x->options.out, config, &x->folder);
    json_free(config);
    return status;
}

/* Will a network begin from the file of weights, in this run or in what is left of it? */
static bool needs_init(const struct experiment *x)
{
    const struct experiment_options *o = &x->options;
    return o->init && (!x->from || o->config.method == METHOD_JOINT);
}

/* A file that does not fit, or is not what it was, is better met now than when it is loaded. */
static enum der_status check_init(struct experiment *x)
{
    struct weights_options init = {.path = x->options.init};
    if (!needs_init(x))
        return DER_OK;
    TRY(weights_check(x->ctx, &init, &x->learner->options.spec, NULL));
    TRY(fingerprint_file(x->ctx, init.path, &x->init_checksum));
    return x->record.root ? run_record_check_init(x->ctx, &x->record, init.path, x->init_checksum)
                          : DER_OK;
}

static enum der_status open_folder(struct experiment *x)
{
    if (!x->record.root) {
        TRY(check_init(x));
        return x->options.out ? create_folder(x) : DER_OK;
    }
    TRY(run_folder_reopen(x->ctx, NULL, x->options.out, &x->folder, &x->from));
    TRY(check_init(x));
    if (x->from)
        TRY(experiment_restore(x));
    if (!x->is_moved)
        return DER_OK;
    return run_folder_record(x->folder, x->ctx, record_moved(&x->options, x->ctx->threads));
}

static enum der_status begin_listening(struct experiment *x)
{
    const struct experiment_listener *listener = x->options.listener;
    struct run_beginning run = {.out = x->options.out, .n_records = run_folder_records(x->folder)};
    if (!listener)
        return DER_OK;
    TRY(listener->begin(listener->user, &run));
    x->is_heard = true;
    return DER_OK;
}

static enum der_status open_metrics(struct experiment *x)
{
    int n = config_steps(&x->options.config, x->set->n_classes);
    if (n > LEARNER_MAX_STEPS)
        return ctx_fail(x->ctx, DER_ARG,
                        "%d classes in steps of %d are %d steps; at most %d can be",
                        x->set->n_classes, x->options.config.step_classes, n, LEARNER_MAX_STEPS);
    x->n_steps = x->options.max_steps > 0 && x->options.max_steps < n ? x->options.max_steps : n;
    for (int t = 0; t < x->n_steps; t++)
        x->first_class[t + 1] =
            x->first_class[t] + config_step_classes(&x->options.config, x->set->n_classes, t);
    TRY(config_check_memory(x->ctx, &x->options.config, x->set->n_classes, x->n_steps));
    size_t cells = (size_t)n * (size_t)n;
    x->representation = mem_zalloc(&x->ctx->mem, cells, sizeof *x->representation);
    x->reference = mem_zalloc(&x->ctx->mem, (size_t)n, sizeof *x->reference);
    if (!x->representation || !x->reference)
        return ctx_nomem(x->ctx);
    return incremental_new(x->ctx, &x->metrics);
}

enum der_status experiment_open(struct experiment *x)
{
    if (!x->options.backend)
        x->options.backend = backend_default();
    TRY(config_check(x->ctx, &x->options.config));
    TRY(experiment_open_data(x));
    TRY(open_classes(x));
    TRY(open_views(x));
    TRY(open_metrics(x));
    TRY(open_learner(x));
    TRY(check_images(x));
    TRY(open_folder(x));
    return begin_listening(x);
}

void experiment_close(struct experiment *x)
{
    if (x->is_heard)
        x->options.listener->end(x->options.listener->user);
    state_close(x->from);
    run_folder_close(x->folder);
    evaluation_fini(x->ctx, &x->tested);
    incremental_free(x->metrics);
    mem_free(&x->ctx->mem, x->representation);
    mem_free(&x->ctx->mem, x->reference);
    mem_free(&x->ctx->mem, x->classes);
    learner_free(x->learner);
    backend_close(x->be);
    view_free(x->train);
    view_free(x->test);
    order_free(x->order);
    dataset_free(x->set);
    run_record_fini(&x->record);
}
