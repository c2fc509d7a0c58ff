/*
 * der_model_*: loading, looking into, predicting, testing, saving.
 */
#include "api/api_model.h"

#include "api/api_data.h"
#include "api/api_train.h"
#include "experiment/run_files.h"
#include "predict/testing.h"
#include "store/model_text.h"
#include "store/prediction_file.h"

#include <assert.h>
#include <stdio.h>
#include <sys/stat.h>

_Static_assert((int)DER_MAX_STAGES == (int)RESNET_MAX_STAGES &&
                   (int)DER_MAX_BLOCKS == (int)RESNET_MAX_BLOCKS,
               "the public limits are those of the networks");

/* ---- making and ending --------------------------------------------------------------------------- */

enum der_status api_model_new(struct der_ctx *ctx, const struct der_model_options *options,
                              struct der_model **out)
{
    static const struct der_model_options defaults = {0};
    if (!options)
        options = &defaults;
    *out = NULL;
    struct der_model *model = mem_zalloc(&ctx->mem, 1, sizeof *model);
    if (!model)
        return ctx_nomem(ctx);
    model->ctx = ctx;
    struct backend_options be = {.precision = api_precision(options->precision)};
    enum der_status status =
        backend_open(ctx, options->backend ? options->backend : backend_default(), &be, &model->be);
    if (status != DER_OK) {
        der_model_free(model);
        return status;
    }
    *out = model;
    return DER_OK;
}

static enum der_status load(struct der_model *model, const char *path)
{
    struct model *loaded;
    model->path = mem_strdup(&model->ctx->mem, path);
    if (!model->path)
        return ctx_nomem(model->ctx);
    TRY(model_load(model->be, NULL, path, &loaded));
    return predictor_new(model->be, loaded, &model->predictor);
}

/* A run folder stands for its model. */
static enum der_status load_from(struct der_model *model, const char *path)
{
    struct der_ctx *ctx = model->ctx;
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return load(model, path);
    char *file = run_files_join(ctx, path, "model.safetensors");
    if (!file)
        return ctx_nomem(ctx);
    enum der_status status = DER_OK;
    if (stat(file, &info) != 0)
        status = ctx_fail(ctx, DER_IO, "the folder %s holds no model: there is no %s in it", path,
                          "model.safetensors");
    else
        status = load(model, file);
    mem_free(&ctx->mem, file);
    return status;
}

enum der_status der_model_load(struct der_ctx *ctx, const char *path,
                               const struct der_model_options *options, struct der_model **out)
{
    struct der_model *model;
    *out = NULL;
    TRY(api_model_new(ctx, options, &model));
    enum der_status status = load_from(model, path);
    if (status != DER_OK) {
        der_model_free(model);
        return status;
    }
    *out = model;
    return DER_OK;
}

void der_model_free(struct der_model *model)
{
    if (!model)
        return;
    predictor_free(model->predictor);
    pupil_fini(&model->pupil);
    backend_close(model->be);
    mem_free(&model->ctx->mem, model->path);
    mem_free(&model->ctx->mem, model->text);
    mem_free(&model->ctx->mem, model);
}

const struct model *api_model(const struct der_model *model)
{
    return model->predictor ? predictor_model(model->predictor) : NULL;
}

static enum der_status require(const struct der_model *model)
{
    return model->predictor ? DER_OK
                            : ctx_fail(model->ctx, DER_STATE, "the model has learnt no class yet");
}

/* A model that cannot learn on, because the files beside it were left behind, is saved as what it is. */
enum der_status der_model_save(struct der_model *model, const char *path)
{
    TRY(require(model));
    enum der_status status = api_model_pupil(model);
    if (status == DER_STATE)
        return model_write(api_model(model), NULL, path);
    TRY(status);
    return api_model_save(model, path);
}

/* ---- what it is ---------------------------------------------------------------------------------- */

struct der_model_info der_model_info(const struct der_model *model)
{
    const struct model *m = api_model(model);
    if (!m)
        return (struct der_model_info){.transform = "", .network = "", .preset = "", .version = ""};
    const struct model_info *info = &m->info;
    struct der_model_info out = {.n_classes = info->n_classes,
                                 .n_steps = info->n_steps,
                                 .n_extractors = m->n_extractors,
                                 .channels = info->input.channels,
                                 .height = info->input.height,
                                 .width = info->input.width,
                                 .features = model_feature_dim(m),
                                 .temperature = info->temperature,
                                 .transform = text_geometry_name(info->input.geometry),
                                 .resize = info->input.resize,
                                 .mean = info->input.mean,
                                 .std = info->input.std,
                                 .network = info->network,
                                 .width_factor = info->width,
                                 .preset = info->preset,
                                 .version = info->version,
                                 .seed = info->seed};
    for (int i = 0; i < m->n_extractors; i++) {
        out.params += resnet_count_params(&m->extractors[i]->spec);
        out.multiply_adds += resnet_count_multiply_adds(&m->extractors[i]->spec);
    }
    out.params_total = out.params + param_set_count(m->classifier);
    return out;
}

const char *der_model_class(const struct der_model *model, int label)
{
    const struct model *m = api_model(model);
    return m && label >= 0 && label < m->info.n_classes ? m->info.classes[label] : NULL;
}

int der_model_step_classes(const struct der_model *model, int step)
{
    const struct model *m = api_model(model);
    return m && step >= 0 && step < m->info.n_steps ? m->info.steps[step] : 0;
}

enum der_status der_model_extractor(const struct der_model *model, int index,
                                    struct der_extractor_info *out)
{
    const struct model *m = api_model(model);
    int n = m ? m->n_extractors : 0;
    *out = (struct der_extractor_info){0};
    if (index < 0 || index >= n)
        return ctx_fail(model->ctx, DER_ARG, "there is no extractor %d; there are %d", index, n);
    const struct resnet_spec *spec = &m->extractors[index]->spec;
    out->stem = text_stem_name(spec->stem);
    out->n_stages = spec->n_stages;
    for (int k = 0; k < spec->n_stages; k++) {
        out->n_blocks[k] = spec->n_blocks[k];
        out->streams[k] = spec->stream[k];
        for (int b = 0; b < spec->n_blocks[k]; b++)
            out->inner[k][b] = spec->inner[k][b];
    }
    out->features = resnet_feature_dim(spec);
    out->params = resnet_count_params(spec);
    out->multiply_adds = resnet_count_multiply_adds(spec);
    return DER_OK;
}

/* ---- predicting ---------------------------------------------------------------------------------- */

/* Images of the caller become pictures in pieces, on the stack. */
enum { PIECE = 64 };

static enum der_status check_call(const struct der_model *model, int n, int top)
{
    TRY(require(model));
    if (n < 0 || top < 1)
        return ctx_fail(model->ctx, DER_ARG,
                        "the %d best classes of %d pictures were asked for; want 1 class or more",
                        top, n);
    return DER_OK;
}

/* Images from number `first` on. */
static enum der_status form_pictures(const struct der_model *model, const struct der_image *images,
                                     int first, int n, struct picture *pictures)
{
    for (int i = 0; i < n; i++) {
        char what[32];
        pictures[i] = (struct picture){.kind = PICTURE_IMAGE, .number = first + i + 1};
        (void)snprintf(what, sizeof what, "picture %d", first + i + 1);
        TRY(api_image(model->ctx, what, &images[first + i], &pictures[i].image));
    }
    return DER_OK;
}

static int piece_of(int left)
{
    return left < PIECE ? left : PIECE;
}

enum der_status der_model_predict(struct der_model *model, const struct der_image *images, int n,
                                  int top, struct der_guess *guesses)
{
    struct picture pictures[PIECE];
    TRY(check_call(model, n, top));
    for (int first = 0; first < n; first += PIECE) {
        int piece = piece_of(n - first);
        TRY(form_pictures(model, images, first, piece, pictures));
        TRY(predictor_guess(model->predictor, pictures, piece, top,
                            guesses + (size_t)first * (size_t)top));
    }
    return DER_OK;
}

enum der_status der_model_logits(struct der_model *model, const struct der_image *images, int n,
                                 float *logits)
{
    struct picture pictures[PIECE];
    TRY(check_call(model, n, 1));
    size_t classes = (size_t)api_model(model)->info.n_classes;
    for (int first = 0; first < n; first += PIECE) {
        int piece = piece_of(n - first);
        TRY(form_pictures(model, images, first, piece, pictures));
        TRY(predictor_logits(model->predictor, pictures, piece, logits + (size_t)first * classes));
    }
    return DER_OK;
}

enum der_status der_model_predict_file(struct der_model *model, const char *path, int top,
                                       struct der_guess *guesses)
{
    struct picture picture = {.kind = PICTURE_FILE, .name = path};
    TRY(check_call(model, 1, top));
    return predictor_guess(model->predictor, &picture, 1, top, guesses);
}

enum der_status der_model_predict_encoded(struct der_model *model, const void *bytes, size_t size,
                                          int top, struct der_guess *guesses)
{
    /* The decoder only reads them. */
    struct picture picture = {
        .kind = PICTURE_BYTES,
        .name = "the encoded picture",
        .bytes = {.data = (uint8_t *)(uintptr_t)bytes, .size = size, .capacity = size}};
    TRY(check_call(model, 1, top));
    return predictor_guess(model->predictor, &picture, 1, top, guesses);
}

/* ---- testing ------------------------------------------------------------------------------------- */

static void summarise(const struct testing *testing, struct der_evaluation *out)
{
    const struct evaluation *counts = &testing->counts;
    out->top1 = evaluation_top1(counts, 0, counts->n_classes);
    out->top5 = evaluation_top5(counts, 0, counts->n_classes);
    out->unknown_classes = testing->unknown_classes;
    out->unknown_images = testing->unknown_images;
    out->bad_images = testing->bad_images;
    for (int c = 0; c < counts->n_classes; c++) {
        out->n += counts->n[c];
        out->n_classes += counts->n[c] > 0;
    }
}

static void copy_scores(const struct evaluation *counts, struct der_class_score *scores)
{
    for (int c = 0; c < counts->n_classes; c++)
        scores[c] = (struct der_class_score){
            .n = counts->n[c], .top1 = counts->top1[c], .top5 = counts->top5[c]};
}

static void tell_unknown(struct der_ctx *ctx, const struct dataset *set,
                         const struct testing *testing)
{
    if (testing->unknown_classes > 0)
        ctx_log(ctx, DER_LOG_WARNING,
                "the model does not know %d of the %d classes of %s, '%s' for one; their %lld "
                "images are left out",
                testing->unknown_classes, set->n_classes, set->path, testing->unknown_example,
                (long long)testing->unknown_images);
}

static enum der_status write_predictions(struct der_model *model, enum data_split split,
                                         const struct evaluation *counts, const char *path)
{
    const struct model_info *info = &api_model(model)->info;
    const struct prediction_file file = {.ctx = model->ctx,
                                         .step = info->n_steps,
                                         .split = split,
                                         .classes = info->classes,
                                         .n_classes = info->n_classes,
                                         .predictions = counts->predictions,
                                         .n = counts->n_predictions};
    return prediction_file_write(&file, NULL, path);
}

enum der_status der_model_evaluate(struct der_model *model, struct der_data *data,
                                   enum der_split split, const struct der_evaluate_options *options,
                                   struct der_evaluation *out)
{
    static const struct der_evaluate_options defaults = {0};
    if (!options)
        options = &defaults;
    *out = (struct der_evaluation){.split = split};
    TRY(require(model));
    if (options->batch < 0 || options->loader_threads < 0)
        return ctx_fail(model->ctx, DER_ARG, "a test has neither %d images at once nor %d loaders",
                        options->batch, options->loader_threads);
    struct testing_options how = {
        .split = api_split(split),
        .batch = options->batch,
        .loader_threads = options->loader_threads > 0 ? options->loader_threads : 1,
        .bad_images = api_bad_images(options->bad_images),
        .keeps_predictions = options->predictions,
        .hooks = {
            .tested = options->progress, .cancelled = options->cancelled, .user = options->user}};
    struct testing testing;
    enum der_status status = testing_run(model->predictor, data->set, &how, &testing);
    if (status == DER_OK && options->predictions)
        status = write_predictions(model, how.split, &testing.counts, options->predictions);
    if (status == DER_OK) {
        tell_unknown(model->ctx, data->set, &testing);
        summarise(&testing, out);
        if (options->scores)
            copy_scores(&testing.counts, options->scores);
    }
    testing_fini(model->ctx, &testing);
    return status;
}
