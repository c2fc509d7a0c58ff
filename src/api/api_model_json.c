/*
 * Models, predictions and tests as JSON.
 */
#include "api/api_json.h"
#include "api/api_model.h"
#include "store/model_text.h"

#include <math.h>

/* ---- models -------------------------------------------------------------------------------------- */

static cJSON *parameters_json(const struct der_model_info *info)
{
    cJSON *object = cJSON_CreateObject();
    if (api_json_number(object, "extractors", (double)info->params) &&
        api_json_number(object, "classifier", (double)(info->params_total - info->params)) &&
        api_json_number(object, "total", (double)info->params_total))
        return object;
    cJSON_Delete(object);
    return NULL;
}

/* Beside the widths that the description has: what they come to. */
static bool add_sizes(cJSON *extractors, const struct model *model)
{
    int i = 0;
    cJSON *object;
    cJSON_ArrayForEach(object, extractors)
    {
        const struct resnet_spec *spec = &model->extractors[i++]->spec;
        if (!api_json_number(object, "features", resnet_feature_dim(spec)) ||
            !api_json_number(object, "parameters", (double)resnet_count_params(spec)) ||
            !api_json_number(object, "multiply_adds", (double)resnet_count_multiply_adds(spec)))
            return false;
    }
    return true;
}

enum der_status der_model_json(struct der_model *model, const char **text)
{
    const struct model *m = api_model(model);
    *text = NULL;
    if (!m)
        return ctx_fail(model->ctx, DER_STATE, "the model has learnt no class yet");
    struct der_model_info info = der_model_info(model);
    cJSON *object = text_from_model(m);
    bool complete = object &&
                    add_sizes(cJSON_GetObjectItemCaseSensitive(object, "extractors"), m) &&
                    api_json_number(object, "features", (double)info.features) &&
                    api_json_add(object, "parameters", parameters_json(&info)) &&
                    api_json_number(object, "multiply_adds", (double)info.multiply_adds);
    TRY(api_json_print(model->ctx, object, complete, true, &model->text));
    *text = model->text;
    return DER_OK;
}

/* ---- predictions --------------------------------------------------------------------------------- */

static cJSON *guesses_json(const struct der_guess *guesses, int top)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; array && i < top && guesses[i].label >= 0; i++) {
        cJSON *object = cJSON_CreateObject();
        bool complete = api_json_text(object, "class", guesses[i].name) &&
                        api_json_number(object, "label", guesses[i].label) &&
                        api_json_number(object, "probability", (double)guesses[i].probability);
        if (!api_json_append(array, object) || !complete) {
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

/* In the order of labels, of guesses at all n classes in the order of their logits. */
static cJSON *logits_json(struct der_ctx *ctx, const struct der_guess *guesses, int n)
{
    double *logits = mem_zalloc(&ctx->mem, (size_t)n, sizeof *logits);
    if (!logits)
        return NULL;
    for (int i = 0; i < n; i++)
        if (guesses[i].label >= 0 && guesses[i].label < n)
            logits[guesses[i].label] = (double)guesses[i].logit;
    cJSON *array = cJSON_CreateDoubleArray(logits, n);
    mem_free(&ctx->mem, logits);
    return array;
}

enum der_status der_model_prediction_json(struct der_model *model, const char *name,
                                          const struct der_guess *guesses, int top, bool logits,
                                          const char **text)
{
    const struct model *m = api_model(model);
    *text = NULL;
    if (!m)
        return ctx_fail(model->ctx, DER_STATE, "the model has learnt no class yet");
    cJSON *object = cJSON_CreateObject();
    bool complete = api_json_text(object, "path", name) &&
                    api_json_add(object, "guesses", guesses_json(guesses, top)) &&
                    (!logits || api_json_add(object, "logits",
                                             logits_json(model->ctx, guesses, m->info.n_classes)));
    TRY(api_json_print(model->ctx, object, complete, false, &model->text));
    *text = model->text;
    return DER_OK;
}

/* ---- tests --------------------------------------------------------------------------------------- */

/* Counts and shares of the classes [first, last); where there are no images the shares are null. */
static bool add_score(cJSON *object, const struct der_class_score *scores, int first, int last)
{
    struct der_class_score sum = {0};
    for (int c = first; c < last; c++) {
        sum.n += scores[c].n;
        sum.top1 += scores[c].top1;
        sum.top5 += scores[c].top5;
    }
    double n = sum.n > 0 ? (double)sum.n : NAN;
    return api_json_number(object, "images", (double)sum.n) &&
           api_json_number(object, "top1", 100.0 * (double)sum.top1 / n) &&
           api_json_number(object, "top5", 100.0 * (double)sum.top5 / n);
}

static cJSON *steps_json(const struct model_info *info, const struct der_class_score *scores)
{
    cJSON *array = cJSON_CreateArray();
    int first = 0;
    for (int t = 0; array && t < info->n_steps; first += info->steps[t++]) {
        cJSON *object = cJSON_CreateObject();
        bool complete = api_json_number(object, "step", t + 1) &&
                        api_json_number(object, "classes", info->steps[t]) &&
                        add_score(object, scores, first, first + info->steps[t]);
        if (!api_json_append(array, object) || !complete) {
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

static cJSON *classes_json(const struct model_info *info, const struct der_class_score *scores)
{
    cJSON *array = cJSON_CreateArray();
    for (int c = 0; array && c < info->n_classes; c++) {
        cJSON *object = cJSON_CreateObject();
        bool complete = api_json_text(object, "class", info->classes[c]) &&
                        api_json_number(object, "label", c) && add_score(object, scores, c, c + 1);
        if (!api_json_append(array, object) || !complete) {
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

enum der_status der_model_evaluation_json(struct der_model *model,
                                          const struct der_evaluation *evaluation,
                                          const struct der_class_score *scores, const char **text)
{
    const struct model *m = api_model(model);
    *text = NULL;
    if (!m)
        return ctx_fail(model->ctx, DER_STATE, "the model has learnt no class yet");
    cJSON *object = cJSON_CreateObject();
    bool complete =
        api_json_text(object, "split", evaluation->split == DER_SPLIT_TEST ? "test" : "train") &&
        api_json_number(object, "images", (double)evaluation->n) &&
        api_json_number(object, "top1", evaluation->top1) &&
        api_json_number(object, "top5", evaluation->top5) &&
        api_json_number(object, "classes_tested", evaluation->n_classes) &&
        api_json_number(object, "unknown_classes", evaluation->unknown_classes) &&
        api_json_number(object, "unknown_images", (double)evaluation->unknown_images) &&
        api_json_number(object, "bad_images", (double)evaluation->bad_images) &&
        (!scores || (api_json_add(object, "steps", steps_json(&m->info, scores)) &&
                     api_json_add(object, "classes", classes_json(&m->info, scores))));
    TRY(api_json_print(model->ctx, object, complete, true, &model->text));
    *text = model->text;
    return DER_OK;
}
