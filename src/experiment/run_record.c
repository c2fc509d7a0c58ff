#include "experiment/run_record.h"

#include "config/config_json.h"
#include "config/override.h"
#include "config/setting.h"
#include "experiment/fingerprint.h"
#include "experiment/records.h"

#include <der/version.h>

#include <stdio.h>
#include <string.h>

enum { PATH_MAX_CHARS = 4096, NUMBER_CHARS = 24 };

/* ---- reading ------------------------------------------------------------------------------------- */

static enum der_status get_int(struct der_ctx *ctx, const char *path, const cJSON *root,
                               const char *key, int *out)
{
    int64_t value = 0;
    TRY(json_get_int(ctx, path, root, key, 0, INT32_MAX, &value));
    *out = (int)value;
    return DER_OK;
}

static enum der_status get_texts(struct der_ctx *ctx, const char *path, const cJSON *root,
                                 struct run_record *record)
{
    const struct {
        const char *key;
        const char **text;
    } texts[] = {{"data", &record->data},
                 {"data_checksum", &record->data_checksum},
                 {"device", &record->device},
                 {"precision", &record->precision},
                 {"bad_images", &record->bad_images},
                 {"measure", &record->measure},
                 {"der", &record->version},
                 {"onednn", &record->onednn},
                 {"cuda_toolkit", &record->cuda}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        TRY(json_get_text(ctx, path, root, texts[i].key, texts[i].text));
    if (cJSON_HasObjectItem(root, "class_list"))
        TRY(json_get_text(ctx, path, root, "class_list", &record->class_list));
    if (!cJSON_HasObjectItem(root, "init"))
        return DER_OK;
    TRY(json_get_text(ctx, path, root, "init", &record->init));
    return json_get_text(ctx, path, root, "init_checksum", &record->init_checksum);
}

static enum der_status get_all(struct der_ctx *ctx, const char *path, struct run_record *record)
{
    const cJSON *root = record->root;
    const cJSON *settings;
    int format;
    if (!cJSON_IsObject(root))
        return ctx_fail(ctx, DER_FORMAT, "%s is not a JSON object", path);
    TRY(get_int(ctx, path, root, "format", &format));
    if (format != 1)
        return ctx_fail(ctx, DER_FORMAT, "%s has format %d; this version of der reads format 1",
                        path, format);
    TRY(json_get_object(ctx, path, root, "settings", &settings));
    TRY(config_from_json(ctx, path, settings, &record->config));
    TRY(get_texts(ctx, path, root, record));
    TRY(get_int(ctx, path, root, "threads", &record->threads));
    TRY(get_int(ctx, path, root, "max_steps", &record->max_steps));
    record->deterministic = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "deterministic"));
    return DER_OK;
}

enum der_status run_record_read(struct der_ctx *ctx, const char *folder, struct run_record *out)
{
    char path[PATH_MAX_CHARS];
    *out = (struct run_record){0};
    int length = snprintf(path, sizeof path, "%s/config.json", folder);
    if (length < 0 || (size_t)length >= sizeof path)
        return ctx_fail(ctx, DER_ARG, "the name of the run folder is too long");
    TRY(json_read_file(ctx, path, &out->root));
    return get_all(ctx, path, out);
}

void run_record_fini(struct run_record *record)
{
    json_free(record->root);
    record->root = NULL;
}

/* ---- comparing ----------------------------------------------------------------------------------- */

enum { DIFFERENCES_MAX = 256 }; /* bytes: beside them a folder's name has to fit into a sentence */

/* The settings that differ, as one sentence grows. */
struct differences {
    char text[DIFFERENCES_MAX];
    size_t length;
    bool is_full; /* the rest was left out */
};

/* Appends all of it, or nothing. */
static bool append(struct differences *d, const char *entry)
{
    size_t room = sizeof d->text - d->length;
    int n = snprintf(d->text + d->length, room, "%s%s", d->length > 0 ? "; " : "", entry);
    bool fits = n > 0 && (size_t)n < room;
    if (fits)
        d->length += (size_t)n;
    d->text[d->length] = '\0';
    return fits;
}

/* Those that come first are told. Of one whose values are too long to be told at all, its name will do. */
static void note_difference(void *user, const char *key, const char *a, const char *b)
{
    struct differences *d = user;
    char entry[2 * SETTING_TEXT_MAX + CONFIG_NAME];
    (void)snprintf(entry, sizeof entry, "%s=%s, not %s", key, a, b);
    if (d->is_full || append(d, entry))
        return;
    if (d->length == 0)
        (void)append(d, key);
    else
        d->is_full = true;
}

enum der_status run_record_check_settings(struct der_ctx *ctx, const struct run_record *record,
                                          const char *folder, const struct config *config)
{
    struct differences differences = {.length = 0};
    if (config_differences(&record->config, config, note_difference, &differences) == 0)
        return DER_OK;
    return ctx_fail(ctx, DER_ARG,
                    "%s was started with other settings: %s%s Give the same ones, or none: they "
                    "are known",
                    folder, differences.text, differences.is_full ? "; ..." : ".");
}

static enum der_status check_text(struct der_ctx *ctx, const char *folder, const char *what,
                                  const char *then, const char *now)
{
    if (strcmp(then, now) == 0)
        return DER_OK;
    return ctx_fail(ctx, DER_ARG, "%s was started with %s '%s' and cannot go on with '%s'", folder,
                    what, then, now);
}

static enum der_status check_int(struct der_ctx *ctx, const char *folder, const char *what,
                                 int then, int now)
{
    char a[NUMBER_CHARS];
    char b[NUMBER_CHARS];
    (void)snprintf(a, sizeof a, "%d", then);
    (void)snprintf(b, sizeof b, "%d", now);
    return check_text(ctx, folder, what, a, b);
}

bool run_record_is_moved(const struct run_record *record, const struct experiment_options *options)
{
    return options->backend && strcmp(record->device, options->backend) != 0;
}

/* On one device the rest of the run is what it was to be, to the bit, or it is refused. */
static enum der_status check_arithmetic(struct der_ctx *ctx, const struct run_record *record,
                                        const struct experiment_options *options)
{
    const char *out = options->out;
    TRY(check_text(ctx, out, "precision", record->precision,
                   precision_name(options->backend_options.precision)));
    TRY(check_text(ctx, out, "deterministic", record->deterministic ? "true" : "false",
                   options->backend_options.deterministic ? "true" : "false"));
    /* oneDNN's sums depend on it. */
    return check_int(ctx, out, "threads", record->threads, ctx->threads);
}

enum der_status run_record_check(struct der_ctx *ctx, const struct run_record *record,
                                 const struct experiment_options *options)
{
    const char *out = options->out;
    char measures[MEASURES_TEXT];
    if (!options->stored_settings)
        TRY(run_record_check_settings(ctx, record, out, &options->config));
    if (!run_record_is_moved(record, options))
        TRY(check_arithmetic(ctx, record, options));
    TRY(check_int(ctx, out, "max-steps", record->max_steps, options->max_steps));
    if (options->init && !record->init)
        return ctx_fail(ctx, DER_ARG, "%s was started without the weights of %s", out,
                        options->init);
    TRY(check_text(ctx, out, "bad-images", record->bad_images,
                   options->bad_images == BAD_IMAGES_SKIP ? "skip" : "stop"));
    return check_text(ctx, out, "measure", record->measure,
                      measure_names(options->measure, measures));
}

static bool is_same_order(const struct run_record *record, const struct class_order *order)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(record->root, "class_order");
    const cJSON *item;
    int k = 0;
    if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != order->n)
        return false;
    cJSON_ArrayForEach(item, array)
    {
        if (!cJSON_IsNumber(item) || item->valuedouble != (double)order->class_of[k++])
            return false;
    }
    return true;
}

enum der_status run_record_check_data(struct der_ctx *ctx, const struct run_record *record,
                                      const struct dataset *set, const struct class_order *order)
{
    char checksum[CHECKSUM_TEXT];
    (void)record_checksum(fingerprint_dataset(set), checksum);
    if (strcmp(checksum, record->data_checksum) != 0)
        return ctx_fail(ctx, DER_ARG,
                        "%s is not the data set that the run was started with (%s): its checksum "
                        "is %s, not %s",
                        set->path, record->data, checksum, record->data_checksum);
    if (!is_same_order(record, order))
        return ctx_fail(ctx, DER_ARG,
                        "order=%s gives another order of the classes than when the run was started",
                        record->config.order);
    return DER_OK;
}

enum der_status run_record_check_init(struct der_ctx *ctx, const struct run_record *record,
                                      const char *path, uint64_t checksum)
{
    char text[CHECKSUM_TEXT];
    if (strcmp(record_checksum(checksum, text), record->init_checksum) == 0)
        return DER_OK;
    return ctx_fail(ctx, DER_ARG,
                    "%s is not the file of weights that the run was started with (%s): its "
                    "checksum is %s, not %s",
                    path, record->init, text, record->init_checksum);
}

static void compare_version(struct der_ctx *ctx, const char *folder, const char *what,
                            const char *then, const char *now)
{
    if (strcmp(then, now) != 0)
        ctx_log(ctx, DER_LOG_WARNING,
                "%s was started with %s '%s' and goes on with '%s': results may differ in their "
                "last digits",
                folder, what, then, now);
}

void run_record_warn_moved(struct der_ctx *ctx, const struct run_record *record,
                           const struct experiment_options *options)
{
    if (run_record_is_moved(record, options))
        ctx_log(
            ctx, DER_LOG_WARNING,
            "%s was started on device '%s' in %s and goes on on '%s' in %s: it will not end with "
            "the bytes of a run that stays where it is",
            options->out, record->device, record->precision, options->backend,
            precision_name(options->backend_options.precision));
}

void run_record_compare_versions(struct der_ctx *ctx, const struct run_record *record,
                                 const char *folder)
{
    const struct der_build_info *build = der_build_info();
    compare_version(ctx, folder, "der", record->version, build->version);
    compare_version(ctx, folder, "oneDNN", record->onednn, build->dnnl);
    compare_version(ctx, folder, "CUDA", record->cuda, build->cuda);
}
