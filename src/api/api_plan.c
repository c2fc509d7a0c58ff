/*
 * der_settings_plan: what settings amount to before anything is trained.
 */
#include <der/inspect.h>

#include "api/api_json.h"
#include "api/api_settings.h"
#include "config/preset.h"
#include "data/augment.h"
#include "model/resnet.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof((struct der_layer_info){0}.name) >= RESNET_LAYER_NAME, "names fit");

/* The network of full width for the images that the settings name. Where the data set decides on them, those of
 * CIFAR are an example, but Fashion-MNIST is what it is. */
static enum der_status full_network(const struct der_settings *settings, struct resnet_spec *spec,
                                    bool *is_assumed)
{
    const struct config *config = &settings->config;
    const struct preset *preset;
    const char *transform = config_augment(config, true);
    struct augment_spec image = *augment_preset(transform ? transform : "cifar100-train");
    *is_assumed = false;
    TRY(preset_find(settings->ctx, config->preset, &preset));
    if (!transform && preset->family == PRESET_FASHION_MNIST) {
        image.channels = 1;
        image.height = image.width = 28;
    } else if (!transform) {
        *is_assumed = true;
    }
    return resnet_spec_init(settings->ctx, spec, config->network, image.channels, image.height,
                            image.width, config->width);
}

enum der_status der_settings_plan(const struct der_settings *settings, struct der_plan_info *out)
{
    const struct config *config = &settings->config;
    struct resnet_spec spec;
    struct resnet_layer layers[RESNET_MAX_LAYERS];
    bool is_assumed;
    *out = (struct der_plan_info){0};
    TRY(full_network(settings, &spec, &is_assumed));
    *out = (struct der_plan_info){
        .network = config->network,
        .width_factor = config->width,
        .channels = spec.in_channels,
        .height = spec.height,
        .width = spec.width,
        .image_is_assumed = is_assumed,
        .n_classes = config->classes,
        .n_steps = config->classes > 0 ? config_steps(config, config->classes) : 0,
        .memory = config->memory,
        .memory_is_per_class = config->memory_mode == MEMORY_PER_CLASS,
        .features = resnet_feature_dim(&spec),
        .n_layers = resnet_layers(&spec, layers),
        .params = resnet_count_params(&spec),
        .multiply_adds = resnet_count_multiply_adds(&spec)};
    return DER_OK;
}

enum der_status der_settings_layer(const struct der_settings *settings, int index,
                                   struct der_layer_info *out)
{
    struct resnet_spec spec;
    struct resnet_layer layers[RESNET_MAX_LAYERS];
    bool is_assumed;
    *out = (struct der_layer_info){0};
    TRY(full_network(settings, &spec, &is_assumed));
    int n = resnet_layers(&spec, layers);
    if (index < 0 || index >= n)
        return ctx_fail(settings->ctx, DER_ARG, "there is no layer %d; there are %d", index, n);
    const struct resnet_layer *layer = &layers[index];
    *out = (struct der_layer_info){.in_channels = layer->in_channels,
                                   .out_channels = layer->out_channels,
                                   .kernel = layer->kernel,
                                   .stride = layer->stride,
                                   .height = layer->height,
                                   .width = layer->width,
                                   .params = layer->params,
                                   .multiply_adds = layer->multiply_adds};
    (void)snprintf(out->name, sizeof out->name, "%s", layer->name);
    return DER_OK;
}

int der_settings_step_classes(const struct der_settings *settings, int step)
{
    const struct config *config = &settings->config;
    if (step < 0 || config->classes == 0)
        return 0;
    return config_step_classes(config, config->classes, step);
}

/* ---- as JSON ------------------------------------------------------------------------------------- */

static cJSON *layers_json(const struct resnet_layer *layers, int n)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; array && i < n; i++) {
        const struct resnet_layer *layer = &layers[i];
        cJSON *object = cJSON_CreateObject();
        bool complete = api_json_text(object, "name", layer->name) &&
                        api_json_number(object, "in_channels", layer->in_channels) &&
                        api_json_number(object, "out_channels", layer->out_channels) &&
                        api_json_number(object, "kernel", layer->kernel) &&
                        api_json_number(object, "stride", layer->stride) &&
                        api_json_number(object, "height", layer->height) &&
                        api_json_number(object, "width", layer->width) &&
                        api_json_number(object, "parameters", (double)layer->params) &&
                        api_json_number(object, "multiply_adds", (double)layer->multiply_adds);
        if (!api_json_append(array, object) || !complete) {
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

static cJSON *network_json(const struct der_plan_info *plan, const struct resnet_spec *spec)
{
    struct resnet_layer layers[RESNET_MAX_LAYERS];
    int n = resnet_layers(spec, layers);
    cJSON *object = cJSON_CreateObject();
    if (api_json_text(object, "name", plan->network) &&
        api_json_number(object, "width", plan->width_factor) &&
        api_json_number(object, "features", plan->features) &&
        api_json_number(object, "parameters", (double)plan->params) &&
        api_json_number(object, "multiply_adds", (double)plan->multiply_adds) &&
        api_json_add(object, "layers", layers_json(layers, n)))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static cJSON *image_json(const struct der_plan_info *plan)
{
    cJSON *object = cJSON_CreateObject();
    if (api_json_number(object, "channels", plan->channels) &&
        api_json_number(object, "height", plan->height) &&
        api_json_number(object, "width", plan->width) &&
        api_json_bool(object, "assumed", plan->image_is_assumed))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static cJSON *steps_json(const struct der_settings *settings, const struct der_plan_info *plan)
{
    cJSON *array = cJSON_CreateArray();
    for (int t = 0; array && t < plan->n_steps; t++)
        if (!api_json_append(array, cJSON_CreateNumber(der_settings_step_classes(settings, t)))) {
            cJSON_Delete(array);
            return NULL;
        }
    return array;
}

enum der_status der_settings_plan_json(struct der_settings *settings, const char **text)
{
    struct der_plan_info plan;
    struct resnet_spec spec;
    bool is_assumed;
    *text = NULL;
    TRY(der_settings_plan(settings, &plan));
    TRY(full_network(settings, &spec, &is_assumed));
    cJSON *object = cJSON_CreateObject();
    bool complete =
        api_json_text(object, "preset", settings->config.preset) &&
        api_json_number(object, "classes", plan.n_classes) &&
        api_json_add(object, "steps", steps_json(settings, &plan)) &&
        api_json_number(object, "memory", plan.memory) &&
        api_json_text(object, "memory_mode", plan.memory_is_per_class ? "per-class" : "total") &&
        api_json_add(object, "image", image_json(&plan)) &&
        api_json_add(object, "network", network_json(&plan, &spec));
    TRY(api_json_print(settings->ctx, object, complete, true, &settings->plan));
    *text = settings->plan;
    return DER_OK;
}
