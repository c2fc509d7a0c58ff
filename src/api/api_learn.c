/*
 * der_learn and der_model_learn: the public face of lessons.
 */
#include <der/learn.h>

#include "api/api_data.h"
#include "api/api_model.h"
#include "api/api_train.h"
#include "core/clock.h"
#include "learn/pupil_files.h"

#include <string.h>

static void pass_progress(void *user, const struct train_progress *p)
{
    const struct der_learn_options *options = user;
    struct der_progress progress = api_progress(p);
    if (options->progress)
        options->progress(options->user, &progress);
}

static bool ask_cancelled(void *user)
{
    const struct der_learn_options *options = user;
    return options->cancelled && options->cancelled(options->user);
}

static struct lesson_options lesson_of(struct der_learn_options *o)
{
    return (struct lesson_options){
        .network = o->network,
        .width = o->width,
        .image_size = o->image_size,
        .init = o->init,
        .epochs = o->epochs,
        .classifier_epochs = o->classifier_epochs,
        .batch = o->batch,
        .lr = o->lr,
        .memory = o->memory,
        .validation = o->validation,
        .target_params = o->target_params,
        .seed = o->seed,
        .bad_images = api_bad_images(o->bad_images),
        .loader_threads = o->loader_threads > 0 ? o->loader_threads : 1,
        .hooks = {.progress = pass_progress, .cancelled = ask_cancelled, .user = o}};
}

static enum der_status check_options(struct der_ctx *ctx, const struct der_learn_options *o)
{
    if (o->width < 0.0 || o->image_size < 0 || o->epochs < 0 || o->classifier_epochs < 0 ||
        o->batch < 0 || o->lr < 0.0 || o->memory < 0 || o->target_params < 0 ||
        o->loader_threads < 0)
        return ctx_fail(
            ctx, DER_ARG,
            "width, image size, epochs, batch, learning rate, memory, target_params and "
            "loader_threads of a lesson are not negative");
    if (!(o->validation < 1.0))
        return ctx_fail(ctx, DER_ARG, "validation share is %g, want less than 1", o->validation);
    return DER_OK;
}

static enum der_status teach(const struct pupil *pupil, const struct der_data *data,
                             const struct der_learn_options *options,
                             struct der_learn_report *report, struct pupil *taught)
{
    struct der_learn_options o = options ? *options : (struct der_learn_options){0};
    struct lesson_options lesson = lesson_of(&o);
    struct lesson_report r;
    double start = clock_seconds();
    TRY(check_options(pupil->be->ctx, &o));
    TRY(pupil_teach(pupil, data->set, &lesson, &r, taught));
    *report = (struct der_learn_report){.new_classes = r.n_new,
                                        .joined_classes = r.n_joined,
                                        .n_classes = taught->model->info.n_classes,
                                        .n_pictures = r.n_taken,
                                        .known_pictures = r.n_known,
                                        .bad_pictures = r.n_bad,
                                        .held_out_old = r.n_held_old,
                                        .held_out_new = r.n_held_new,
                                        .old_before = r.old_before,
                                        .old_after = r.old_after,
                                        .new_after = r.new_after,
                                        .all_after = r.all_after,
                                        .params = r.params,
                                        .params_total = r.params_total,
                                        .seconds = clock_seconds() - start};
    return DER_OK;
}

/* ---- a model in memory --------------------------------------------------------------------------- */

enum der_status der_model_new(struct der_ctx *ctx, const struct der_model_options *options,
                              struct der_model **out)
{
    return api_model_new(ctx, options, out);
}

static bool is_same(const struct model_info *a, const struct model_info *b)
{
    bool same = a->n_classes == b->n_classes && a->n_steps == b->n_steps;
    for (int k = 0; same && k < a->n_classes; k++)
        same = strcmp(a->classes[k], b->classes[k]) == 0;
    return same;
}

/* A model that was loaded gets what lies beside its file when that is first needed. */
enum der_status api_model_pupil(struct der_model *model)
{
    struct pupil pupil;
    model->pupil.be = model->be;
    if (!model->predictor || model->pupil.model)
        return DER_OK;
    TRY(pupil_load(model->be, NULL, model->path, &pupil));
    if (!is_same(&pupil.model->info, &api_model(model)->info)) {
        pupil_fini(&pupil);
        return ctx_fail(model->ctx, DER_STATE, "%s has changed since it was loaded", model->path);
    }
    model->pupil = pupil;
    return DER_OK;
}

enum der_status der_model_learn(struct der_model *model, struct der_data *data,
                                const struct der_learn_options *options,
                                struct der_learn_report *report)
{
    struct pupil taught;
    struct model *copy;
    struct predictor *predictor;
    *report = (struct der_learn_report){0};
    TRY(api_model_pupil(model));
    TRY(teach(&model->pupil, data, options, report, &taught));
    enum der_status status = model_copy(taught.model, &copy);
    if (status == DER_OK)
        status = predictor_new(model->be, copy, &predictor);
    if (status != DER_OK) {
        pupil_fini(&taught);
        return status;
    }
    predictor_free(model->predictor);
    pupil_fini(&model->pupil);
    model->predictor = predictor;
    model->pupil = taught;
    return DER_OK;
}

enum der_status api_model_save(struct der_model *model, const char *path)
{
    struct lock *lock;
    TRY(pupil_lock(model->ctx, path, &lock));
    enum der_status status = pupil_save(&model->pupil, NULL, path);
    lock_release(lock);
    return status;
}

/* ---- a model in a file --------------------------------------------------------------------------- */

static enum der_status learn_locked(struct backend *be, const char *path,
                                    const struct der_data *data,
                                    const struct der_learn_options *options,
                                    struct der_learn_report *report)
{
    struct pupil pupil = {.be = be};
    struct pupil taught;
    if (pupil_exists(path))
        TRY(pupil_load(be, NULL, path, &pupil));
    else
        TRY(pupil_check_room(be->ctx, path));
    enum der_status status = teach(&pupil, data, options, report, &taught);
    pupil_fini(&pupil);
    TRY(status);
    status = pupil_save(&taught, NULL, path);
    pupil_fini(&taught);
    return status;
}

enum der_status der_learn(struct der_ctx *ctx, const char *path, struct der_data *data,
                          const struct der_model_options *model_options,
                          const struct der_learn_options *options, struct der_learn_report *report)
{
    struct der_model *model;
    struct lock *lock;
    *report = (struct der_learn_report){0};
    if (path[0] == '\0')
        return ctx_fail(ctx, DER_ARG, "a model needs the name of a file");
    TRY(api_model_new(ctx, model_options, &model));
    enum der_status status = pupil_lock(ctx, path, &lock);
    if (status == DER_OK)
        status = learn_locked(model->be, path, data, options, report);
    lock_release(lock);
    der_model_free(model);
    return status;
}
