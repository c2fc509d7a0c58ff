#include "json/json.h"

#include "core/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Line of a position, from 1. */
static int line_of(const char *text, const char *end)
{
    int line = 1;
    for (; text < end; text++)
        line += *text == '\n';
    return line;
}

/* Where a text holds a zero, raw or as an escape; NULL: nowhere. */
static const char *find_zero(const char *text, const char *end)
{
    static const char escape[] = "\\u0000";
    const size_t length = sizeof escape - 1;
    for (; text < end; text++) {
        if (*text == '\0')
            return text;
        if (*text != '\\')
            continue;
        if ((size_t)(end - text) >= length && memcmp(text, escape, length) == 0)
            return text;
        text++; /* past what is escaped: it may be a backslash */
    }
    return NULL;
}

enum der_status json_parse(struct der_ctx *ctx, const char *source, const char *text, size_t length,
                           cJSON **out)
{
    const char *end = NULL;
    *out = NULL;
    /* cJSON's texts end at a zero: different ones, file names among them, would look alike. */
    const char *zero = find_zero(text, text + length);
    if (zero)
        return ctx_fail(ctx, DER_FORMAT, "%s: line %d holds a zero character", source,
                        line_of(text, zero));
    *out = cJSON_ParseWithLengthOpts(text, length, &end, false);
    if (!*out) {
        if (end < text || end > text + length)
            end = text;
        return ctx_fail(ctx, DER_FORMAT, "%s: line %d is not JSON", source, line_of(text, end));
    }
    for (; end < text + length; end++) {
        if (strchr(" \t\r\n", *end) && *end)
            continue;
        json_free(*out);
        *out = NULL;
        return ctx_fail(ctx, DER_FORMAT, "%s: line %d: something follows the end of the JSON value",
                        source, line_of(text, end));
    }
    return DER_OK;
}

enum der_status json_lines(struct der_ctx *ctx, const char *source, const char *text, size_t length,
                           json_line_fn *tell, void *user)
{
    enum { SOURCE_MAX = 300 };
    const char *end = text + length;
    int number = 0;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        if (!newline)
            break;
        char where[SOURCE_MAX];
        cJSON *object;
        (void)snprintf(where, sizeof where, "%.270s: line %d", source, ++number);
        if (json_parse(ctx, where, text, (size_t)(newline - text), &object) != DER_OK)
            return ctx_fail(ctx, DER_FORMAT, "%s is not JSON", where);
        enum der_status status = tell(user, where, object);
        json_free(object);
        TRY(status);
        text = newline + 1;
    }
    return DER_OK;
}

void json_free(cJSON *value)
{
    cJSON_Delete(value);
}

enum der_status json_read_file(struct der_ctx *ctx, const char *path, cJSON **out)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    *out = NULL;
    enum der_status status = file_read(&ctx->mem, NULL, path, JSON_MAX_BYTES, &bytes, &fault);
    if (status != DER_OK)
        return ctx_fail(ctx, status, "%s", fault.text);
    status = json_parse(ctx, path, (const char *)bytes.data, bytes.size, out);
    file_bytes_free(&ctx->mem, &bytes);
    return status;
}

static enum der_status get(struct der_ctx *ctx, const char *source, const cJSON *object,
                           const char *key, cJSON_bool (*is)(const cJSON *), const char *kind,
                           const cJSON **out)
{
    *out = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!*out)
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' is missing", source, key);
    if (!is(*out))
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' must be %s", source, key, kind);
    return DER_OK;
}

enum der_status json_get_object(struct der_ctx *ctx, const char *source, const cJSON *object,
                                const char *key, const cJSON **out)
{
    return get(ctx, source, object, key, cJSON_IsObject, "an object", out);
}

enum der_status json_get_array(struct der_ctx *ctx, const char *source, const cJSON *object,
                               const char *key, const cJSON **out)
{
    return get(ctx, source, object, key, cJSON_IsArray, "an array", out);
}

enum der_status json_get_text(struct der_ctx *ctx, const char *source, const cJSON *object,
                              const char *key, const char **out)
{
    const cJSON *item;
    TRY(get(ctx, source, object, key, cJSON_IsString, "a text", &item));
    *out = item->valuestring;
    return DER_OK;
}

enum der_status json_get_number(struct der_ctx *ctx, const char *source, const cJSON *object,
                                const char *key, double *out)
{
    const cJSON *item;
    TRY(get(ctx, source, object, key, cJSON_IsNumber, "a number", &item));
    if (!isfinite(item->valuedouble))
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' is not a finite number", source, key);
    *out = item->valuedouble;
    return DER_OK;
}

enum der_status json_get_int(struct der_ctx *ctx, const char *source, const cJSON *object,
                             const char *key, int64_t low, int64_t high, int64_t *out)
{
    double value = 0.0;
    TRY(json_get_number(ctx, source, object, key, &value));
    if (value != floor(value) || value < (double)low || value > (double)high)
        return ctx_fail(ctx, DER_FORMAT,
                        "%s: '%s' must be a whole number from %lld to %lld, not %.17g", source, key,
                        (long long)low, (long long)high, value);
    *out = (int64_t)value;
    return DER_OK;
}

enum der_status json_print(struct der_ctx *ctx, const cJSON *value, bool pretty, char **out)
{
    *out = NULL;
    char *text = pretty ? cJSON_Print(value) : cJSON_PrintUnformatted(value);
    if (!text)
        return ctx_nomem(ctx);
    size_t length = strlen(text);
    char *copy = mem_alloc(&ctx->mem, length + 2, 1);
    if (copy) {
        memcpy(copy, text, length);
        if (pretty)
            copy[length++] = '\n';
        copy[length] = '\0';
    }
    cJSON_free(text);
    *out = copy;
    return copy ? DER_OK : ctx_nomem(ctx);
}
