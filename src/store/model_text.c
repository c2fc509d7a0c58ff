#include "store/model_text.h"

#include "core/decimal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, MAX_SIZE = 65535, MAX_WIDTH = 65536 };

static const double LARGEST_SEED = 9007199254740992.0; /* 2^53 */

static const char *const GEOMETRIES[] = {[AUGMENT_PLAIN] = "plain",
                                         [AUGMENT_SQUASH] = "squash",
                                         [AUGMENT_SHORTER_SIDE] = "shorter-side"};
static const char *const STEMS[] = {[RESNET_STEM_3X3] = "3x3",
                                    [RESNET_STEM_7X7_POOL] = "7x7-pool",
                                    [RESNET_STEM_3X3_POOL] = "3x3-pool"};
enum {
    N_GEOMETRIES = sizeof GEOMETRIES / sizeof GEOMETRIES[0],
    N_STEMS = sizeof STEMS / sizeof STEMS[0]
};

const char *text_stem_name(enum resnet_stem stem)
{
    return STEMS[stem];
}

const char *text_geometry_name(enum augment_geometry geometry)
{
    return GEOMETRIES[geometry];
}

/* ---- any object ---------------------------------------------------------------------------------- */

enum der_status text_blame(struct der_ctx *ctx, const char *source, enum der_status status)
{
    char sentence[CTX_ERROR_MAX];
    if (status != DER_ARG)
        return status;
    memcpy(sentence, ctx->error, sizeof sentence);
    return ctx_fail(ctx, DER_FORMAT, "%.200s: %.300s", source, sentence);
}

static bool is_key(const char *const *keys, const char *name)
{
    for (; *keys; keys++)
        if (strcmp(*keys + (**keys == '?'), name) == 0)
            return true;
    return false;
}

enum der_status text_members(struct der_ctx *ctx, const char *source, const cJSON *object,
                             const char *const *keys)
{
    const cJSON *child;
    if (!cJSON_IsObject(object))
        return ctx_fail(ctx, DER_FORMAT, "%s: the description is not a JSON object", source);
    cJSON_ArrayForEach(child, object)
    {
        if (!is_key(keys, child->string))
            return ctx_fail(ctx, DER_FORMAT, "%s: '%.60s' is no member of format %d", source,
                            child->string, FORMAT);
        if (cJSON_GetObjectItemCaseSensitive(object, child->string) != child)
            return ctx_fail(ctx, DER_FORMAT, "%s: '%s' occurs twice", source, child->string);
    }
    for (; *keys; keys++)
        if (**keys != '?' && !cJSON_GetObjectItemCaseSensitive(object, *keys))
            return ctx_fail(ctx, DER_FORMAT, "%s: '%s' is missing", source, *keys);
    return DER_OK;
}

enum der_status text_description(struct der_ctx *ctx, const char *source,
                                 const struct safetensors_file *file, cJSON **out)
{
    const char *text = safetensors_metadata(file, STORE_METADATA_KEY);
    int64_t format = 0;
    *out = NULL;
    if (!text)
        return ctx_fail(ctx, DER_FORMAT, "%s: not a file of der: the metadata '%s' are missing",
                        source, STORE_METADATA_KEY);
    TRY(json_parse(ctx, source, text, strlen(text), out));
    enum der_status status =
        cJSON_IsObject(*out)
            ? json_get_int(ctx, source, *out, "format", 0, INT32_MAX, &format)
            : ctx_fail(ctx, DER_FORMAT, "%s: the description is not a JSON object", source);
    if (status == DER_OK && format != FORMAT)
        status = ctx_fail(ctx, DER_FORMAT, "%s has format %d; this version of der reads format %d",
                          source, (int)format, FORMAT);
    if (status != DER_OK) {
        json_free(*out);
        *out = NULL;
    }
    return status;
}

enum der_status text_describe(struct der_ctx *ctx, struct safetensors_writer *writer, cJSON *object)
{
    char *text = NULL;
    enum der_status status = object ? json_print(ctx, object, false, &text) : ctx_nomem(ctx);
    json_free(object);
    if (status == DER_OK)
        status = safetensors_describe(writer, STORE_METADATA_KEY, text);
    mem_free(&ctx->mem, text);
    return status;
}

cJSON *text_from_names(const char *const *classes, int n, int step)
{
    cJSON *object = cJSON_CreateObject();
    cJSON *names = cJSON_CreateStringArray(classes, n);
    if (object && names && cJSON_AddNumberToObject(object, "format", FORMAT) &&
        cJSON_AddNumberToObject(object, "step", step) &&
        cJSON_AddItemToObject(object, "classes", names))
        return object;
    cJSON_Delete(names);
    cJSON_Delete(object);
    return NULL;
}

enum der_status text_read_vector(struct der_ctx *ctx, const char *source,
                                 struct safetensors_file *file, const char *name,
                                 enum safetensors_dtype dtype, void **values, int64_t *n)
{
    const struct safetensors_tensor *tensor = safetensors_find(file, name);
    *values = NULL;
    *n = 0;
    if (!tensor || tensor->rank != 1 || tensor->dtype != dtype)
        return ctx_fail(ctx, DER_FORMAT, "%s: there is no vector '%s' of type %s", source, name,
                        safetensors_dtype_name(dtype));
    *values = mem_alloc(&ctx->mem, tensor->size, 1);
    if (!*values)
        return ctx_nomem(ctx);
    *n = tensor->dim[0];
    return safetensors_read(file, tensor, SAFETENSORS_FINITE, *values);
}

enum der_status text_peek_step(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                               int *step)
{
    struct safetensors_file *file;
    cJSON *object = NULL;
    int64_t number = 0;
    TRY(safetensors_open(ctx, io, path, &file));
    enum der_status status = text_description(ctx, path, file, &object);
    if (status == DER_OK)
        status = json_get_int(ctx, path, object, "step", 1, MODEL_MAX_STEPS, &number);
    *step = (int)number;
    json_free(object);
    safetensors_close(file);
    return status;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts a copy: a hostile list may be long. */
static enum der_status check_distinct(struct der_ctx *ctx, const char *source,
                                      const char *const *names, int n)
{
    const char **sorted = mem_alloc(&ctx->mem, (size_t)n, sizeof *sorted);
    enum der_status status = DER_OK;
    if (!sorted)
        return ctx_nomem(ctx);
    for (int i = 0; i < n; i++)
        sorted[i] = names[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare_texts);
    for (int i = 1; i < n && status == DER_OK; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            status = ctx_fail(ctx, DER_FORMAT, "%s: class '%.60s' occurs twice", source, sorted[i]);
    mem_free(&ctx->mem, sorted);
    return status;
}

enum der_status text_names(struct der_ctx *ctx, const char *source, const cJSON *array, int least,
                           struct arena *arena, const char *const **names, int *n)
{
    int count = cJSON_GetArraySize(array);
    const cJSON *item;
    if (count < least)
        return ctx_fail(ctx, DER_FORMAT, "%s: there are no classes", source);
    const char **list = arena_zalloc(arena, (size_t)count + 1, sizeof *list);
    if (!list)
        return ctx_nomem(ctx);
    *n = 0;
    cJSON_ArrayForEach(item, array)
    {
        if (!cJSON_IsString(item) || item->valuestring[0] == '\0')
            return ctx_fail(ctx, DER_FORMAT, "%s: name %d of 'classes' is not a text or is empty",
                            source, *n + 1);
        list[*n] = arena_strdup(arena, item->valuestring);
        if (!list[(*n)++])
            return ctx_nomem(ctx);
    }
    *names = list;
    return check_distinct(ctx, source, list, count);
}

/* The place of a member's text among `words`, where some may be NULL. */
static enum der_status get_word(struct der_ctx *ctx, const char *source, const cJSON *object,
                                const char *key, const char *const *words, int n, int *out)
{
    const char *text;
    TRY(json_get_text(ctx, source, object, key, &text));
    for (*out = 0; *out < n; ++*out)
        if (words[*out] && strcmp(words[*out], text) == 0)
            return DER_OK;
    return ctx_fail(ctx, DER_FORMAT, "%s: '%s' cannot be '%.60s'", source, key, text);
}

/* An array of 1 to `most` whole numbers from 1 to `largest`. */
static enum der_status get_counts(struct der_ctx *ctx, const char *source, const cJSON *array,
                                  const char *key, int most, int largest, int *values, int *n)
{
    const cJSON *item;
    int count = cJSON_GetArraySize(array);
    if (!cJSON_IsArray(array) || count < 1 || count > most)
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' must be an array of 1 to %d numbers", source,
                        key, most);
    *n = 0;
    cJSON_ArrayForEach(item, array)
    {
        double value = cJSON_IsNumber(item) ? item->valuedouble : 0.0;
        if (!(value >= 1.0 && value <= largest) || value != floor(value))
            return ctx_fail(ctx, DER_FORMAT,
                            "%s: number %d of '%s' is not a whole number from 1 to %d", source,
                            *n + 1, key, largest);
        values[(*n)++] = (int)value;
    }
    return DER_OK;
}

/* ---- networks ------------------------------------------------------------------------------------ */

/* cJSON's adders return NULL when memory is short; an item that nobody took over is given back. */
static bool add(cJSON *object, const char *key, cJSON *item)
{
    if (item && cJSON_AddItemToObject(object, key, item))
        return true;
    cJSON_Delete(item);
    return false;
}

static cJSON *inner_text(const struct resnet_spec *spec)
{
    cJSON *array = cJSON_CreateArray();
    for (int k = 0; array && k < spec->n_stages; k++) {
        cJSON *item = cJSON_CreateIntArray(spec->inner[k], spec->n_blocks[k]);
        if (!item || !cJSON_AddItemToArray(array, item)) {
            cJSON_Delete(item);
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

cJSON *text_from_spec(const struct resnet_spec *spec)
{
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddStringToObject(object, "stem", STEMS[spec->stem]) &&
        add(object, "streams", cJSON_CreateIntArray(spec->stream, spec->n_stages)) &&
        add(object, "inner", inner_text(spec)))
        return object;
    cJSON_Delete(object);
    return NULL;
}

enum der_status text_to_spec(struct der_ctx *ctx, const char *source, const cJSON *object,
                             struct resnet_spec *spec)
{
    static const char *const keys[] = {"stem", "streams", "inner", NULL};
    const cJSON *blocks;
    int stem;
    int k = 0;
    TRY(text_members(ctx, source, object, keys));
    TRY(get_word(ctx, source, object, "stem", STEMS, N_STEMS, &stem));
    spec->stem = (enum resnet_stem)stem;
    TRY(get_counts(ctx, source, cJSON_GetObjectItemCaseSensitive(object, "streams"), "streams",
                   RESNET_MAX_STAGES, MAX_WIDTH, spec->stream, &spec->n_stages));
    const cJSON *inner = cJSON_GetObjectItemCaseSensitive(object, "inner");
    if (!cJSON_IsArray(inner) || cJSON_GetArraySize(inner) != spec->n_stages)
        return ctx_fail(ctx, DER_FORMAT, "%s: 'inner' must be as many lists as 'streams' (%d)",
                        source, spec->n_stages);
    cJSON_ArrayForEach(blocks, inner)
    {
        TRY(get_counts(ctx, source, blocks, "inner", RESNET_MAX_BLOCKS, MAX_WIDTH, spec->inner[k],
                       &spec->n_blocks[k]));
        k++;
    }
    return DER_OK;
}

/* ---- models, outwards ---------------------------------------------------------------------------- */

static cJSON *image_text(const struct augment_spec *input)
{
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddNumberToObject(object, "channels", input->channels) &&
        cJSON_AddNumberToObject(object, "height", input->height) &&
        cJSON_AddNumberToObject(object, "width", input->width))
        return object;
    cJSON_Delete(object);
    return NULL;
}

/* The shortest decimals that give the same floats: 0.5071, not 0.50709998607635498. */
static cJSON *floats_text(const float *values, int n)
{
    double decimals[AUGMENT_CHANNELS_MAX];
    for (int i = 0; i < n; i++) {
        char text[DECIMAL_TEXT_MAX];
        const char *end;
        for (int digits = 6; digits <= 9; digits++) {
            decimal_write((double)values[i], digits, text);
            if (decimal_read(text, &decimals[i], &end) && (float)decimals[i] == values[i])
                break;
        }
    }
    return cJSON_CreateDoubleArray(decimals, n);
}

static cJSON *input_text(const struct augment_spec *input)
{
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddStringToObject(object, "geometry", GEOMETRIES[input->geometry]) &&
        cJSON_AddNumberToObject(object, "resize",
                                input->geometry == AUGMENT_PLAIN ? 0 : input->resize) &&
        add(object, "mean", floats_text(input->mean, input->channels)) &&
        add(object, "std", floats_text(input->std, input->channels)))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static cJSON *network_text(const struct model_info *info)
{
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddStringToObject(object, "name", info->network) &&
        cJSON_AddNumberToObject(object, "width", info->width))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static cJSON *extractors_text(const struct model *model)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; array && i < model->n_extractors; i++) {
        cJSON *item = text_from_spec(&model->extractors[i]->spec);
        if (!item || !cJSON_AddItemToArray(array, item)) {
            cJSON_Delete(item);
            cJSON_Delete(array);
            return NULL;
        }
    }
    return array;
}

static cJSON *provenance_text(const struct model_info *info)
{
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddStringToObject(object, "version", info->version) &&
        cJSON_AddStringToObject(object, "preset", info->preset) &&
        cJSON_AddNumberToObject(object, "seed", (double)info->seed) &&
        cJSON_AddNumberToObject(object, "step", info->n_steps))
        return object;
    cJSON_Delete(object);
    return NULL;
}

cJSON *text_from_model(const struct model *model)
{
    const struct model_info *info = &model->info;
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddNumberToObject(object, "format", FORMAT) &&
        add(object, "classes", cJSON_CreateStringArray(info->classes, info->n_classes)) &&
        add(object, "steps", cJSON_CreateIntArray(info->steps, info->n_steps)) &&
        add(object, "image", image_text(&info->input)) &&
        add(object, "input", input_text(&info->input)) &&
        add(object, "network", network_text(info)) &&
        add(object, "extractors", extractors_text(model)) &&
        cJSON_AddNumberToObject(object, "temperature", info->temperature) &&
        add(object, "provenance", provenance_text(info)))
        return object;
    cJSON_Delete(object);
    return NULL;
}

/* ---- models, inwards ----------------------------------------------------------------------------- */

static enum der_status get_image(struct der_ctx *ctx, const char *source, const cJSON *object,
                                 struct augment_spec *input)
{
    static const char *const keys[] = {"channels", "height", "width", NULL};
    int64_t channels;
    int64_t height;
    int64_t width;
    TRY(text_members(ctx, source, object, keys));
    TRY(json_get_int(ctx, source, object, "channels", 1, AUGMENT_CHANNELS_MAX, &channels));
    TRY(json_get_int(ctx, source, object, "height", 1, MAX_SIZE, &height));
    TRY(json_get_int(ctx, source, object, "width", 1, MAX_SIZE, &width));
    input->channels = (int)channels;
    input->height = (int)height;
    input->width = (int)width;
    return DER_OK;
}

static enum der_status get_channel_values(struct der_ctx *ctx, const char *source,
                                          const cJSON *object, const char *key, int channels,
                                          bool is_positive, float *values)
{
    const cJSON *array;
    const cJSON *item;
    int n = 0;
    TRY(json_get_array(ctx, source, object, key, &array));
    if (cJSON_GetArraySize(array) != channels)
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' must have one number for each of %d channels",
                        source, key, channels);
    cJSON_ArrayForEach(item, array)
    {
        float value = cJSON_IsNumber(item) ? (float)item->valuedouble : NAN;
        if (!isfinite(value) || (is_positive && !(value > 0.0f)))
            return ctx_fail(ctx, DER_FORMAT, "%s: number %d of '%s' is not usable", source, n + 1,
                            key);
        values[n++] = value;
    }
    return DER_OK;
}

static enum der_status get_input(struct der_ctx *ctx, const char *source, const cJSON *object,
                                 struct augment_spec *input)
{
    static const char *const keys[] = {"geometry", "resize", "mean", "std", NULL};
    int geometry;
    int64_t resize;
    TRY(text_members(ctx, source, object, keys));
    TRY(get_word(ctx, source, object, "geometry", GEOMETRIES, N_GEOMETRIES, &geometry));
    TRY(json_get_int(ctx, source, object, "resize", 0, MAX_SIZE, &resize));
    input->geometry = (enum augment_geometry)geometry;
    input->resize = (int)resize;
    bool is_plain = input->geometry == AUGMENT_PLAIN;
    if (is_plain ? resize != 0 : resize < input->height || resize < input->width)
        return ctx_fail(ctx, DER_FORMAT, "%s: geometry '%s' does not go with 'resize' %d", source,
                        GEOMETRIES[geometry], input->resize);
    TRY(get_channel_values(ctx, source, object, "mean", input->channels, false, input->mean));
    return get_channel_values(ctx, source, object, "std", input->channels, true, input->std);
}

/* A copy in the arena. */
static enum der_status get_copy(struct model *model, const char *source, const cJSON *object,
                                const char *key, const char **out)
{
    const char *text;
    TRY(json_get_text(model->ctx, source, object, key, &text));
    *out = arena_strdup(&model->texts, text);
    return *out ? DER_OK : ctx_nomem(model->ctx);
}

/* The name is known, and a network of that width can be made for these images. */
static enum der_status get_network(struct model *model, const char *source, const cJSON *object)
{
    static const char *const keys[] = {"name", "width", NULL};
    struct der_ctx *ctx = model->ctx;
    struct model_info *info = &model->info;
    struct resnet_spec full;
    TRY(text_members(ctx, source, object, keys));
    TRY(get_copy(model, source, object, "name", &info->network));
    TRY(json_get_number(ctx, source, object, "width", &info->width));
    return text_blame(ctx, source,
                      resnet_spec_init(ctx, &full, info->network, info->input.channels,
                                       info->input.height, info->input.width, info->width));
}

static enum der_status get_provenance(struct model *model, const char *source, const cJSON *object)
{
    static const char *const keys[] = {"version", "preset", "seed", "step", NULL};
    struct der_ctx *ctx = model->ctx;
    struct model_info *info = &model->info;
    int64_t seed;
    int64_t step;
    TRY(text_members(ctx, source, object, keys));
    TRY(get_copy(model, source, object, "version", &info->version));
    TRY(get_copy(model, source, object, "preset", &info->preset));
    TRY(json_get_int(ctx, source, object, "seed", 0, (int64_t)LARGEST_SEED, &seed));
    TRY(json_get_int(ctx, source, object, "step", info->n_steps, info->n_steps, &step));
    info->seed = (uint64_t)seed;
    return DER_OK;
}

/* Classes, and how they came step by step. */
static enum der_status get_classes(struct model *model, const char *source, const cJSON *object)
{
    struct der_ctx *ctx = model->ctx;
    struct model_info *info = &model->info;
    const cJSON *classes;
    int64_t sum = 0;
    TRY(json_get_array(ctx, source, object, "classes", &classes));
    TRY(text_names(ctx, source, classes, 1, &model->texts, &info->classes, &info->n_classes));
    TRY(get_counts(ctx, source, cJSON_GetObjectItemCaseSensitive(object, "steps"), "steps",
                   MODEL_MAX_STEPS, INT32_MAX, info->steps, &info->n_steps));
    for (int t = 0; t < info->n_steps; t++)
        sum += info->steps[t];
    if (sum != info->n_classes)
        return ctx_fail(ctx, DER_FORMAT, "%s: 'steps' add up to %lld, but there are %d classes",
                        source, (long long)sum, info->n_classes);
    return DER_OK;
}

static enum der_status get_extractors(struct model *model, const char *source, const cJSON *object,
                                      struct resnet_spec **specs, int *n_specs)
{
    struct der_ctx *ctx = model->ctx;
    const struct augment_spec *image = &model->info.input;
    const cJSON *array;
    const cJSON *item;
    TRY(json_get_array(ctx, source, object, "extractors", &array));
    int n = cJSON_GetArraySize(array);
    if (n < 1 || n > MODEL_MAX_STEPS)
        return ctx_fail(ctx, DER_FORMAT, "%s: %d extractors, want 1 to %d", source, n,
                        MODEL_MAX_STEPS);
    *specs = arena_zalloc(&model->texts, (size_t)n, sizeof **specs);
    if (!*specs)
        return ctx_nomem(ctx);
    *n_specs = 0;
    cJSON_ArrayForEach(item, array)
    {
        struct resnet_spec *spec = &(*specs)[(*n_specs)++];
        spec->in_channels = image->channels;
        spec->height = image->height;
        spec->width = image->width;
        TRY(text_to_spec(ctx, source, item, spec));
    }
    return DER_OK;
}

enum der_status text_to_model(struct der_ctx *ctx, const char *source, const cJSON *object,
                              struct model *model, struct resnet_spec **specs, int *n_specs)
{
    static const char *const keys[] = {"format",     "classes", "steps",      "image",
                                       "input",      "network", "extractors", "temperature",
                                       "provenance", NULL};
    const struct model_info *info = &model->info;
    TRY(text_members(ctx, source, object, keys));
    TRY(get_classes(model, source, object));
    TRY(get_image(ctx, source, cJSON_GetObjectItemCaseSensitive(object, "image"),
                  &model->info.input));
    TRY(get_input(ctx, source, cJSON_GetObjectItemCaseSensitive(object, "input"),
                  &model->info.input));
    TRY(get_network(model, source, cJSON_GetObjectItemCaseSensitive(object, "network")));
    TRY(get_extractors(model, source, object, specs, n_specs));
    TRY(json_get_number(ctx, source, object, "temperature", &model->info.temperature));
    if (!(info->temperature > 0.0))
        return ctx_fail(ctx, DER_FORMAT, "%s: 'temperature' must lie above 0, not %g", source,
                        info->temperature);
    return get_provenance(model, source, cJSON_GetObjectItemCaseSensitive(object, "provenance"));
}
