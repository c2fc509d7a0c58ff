#include "api/api_json.h"

#include "core/utf8.h"

#include <string.h>

bool api_json_add(cJSON *object, const char *key, cJSON *item)
{
    if (object && item && cJSON_AddItemToObject(object, key, item))
        return true;
    cJSON_Delete(item);
    return false;
}

bool api_json_append(cJSON *array, cJSON *item)
{
    if (array && item && cJSON_AddItemToArray(array, item))
        return true;
    cJSON_Delete(item);
    return false;
}

bool api_json_number(cJSON *object, const char *key, double value)
{
    return api_json_add(object, key, cJSON_CreateNumber(value));
}

bool api_json_bool(cJSON *object, const char *key, bool value)
{
    return api_json_add(object, key, cJSON_CreateBool(value));
}

/* cJSON owns its texts and takes their memory from malloc, as everything of its own. */
static char *repair(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t length = strlen(text);
    char *out = cJSON_malloc(3 * length + 1);
    char *to = out;
    for (size_t at = 0; out && at < length;) {
        size_t n = utf8_character(text + at, length - at);
        const char *from = n > 0 ? text + at : replacement;
        size_t bytes = n > 0 ? n : sizeof replacement - 1;
        memcpy(to, from, bytes);
        to += bytes;
        at += n > 0 ? n : 1;
    }
    if (out)
        *to = '\0';
    return out;
}

bool api_json_text(cJSON *object, const char *key, const char *text)
{
    if (utf8_is_valid(text, strlen(text)))
        return api_json_add(object, key, cJSON_CreateString(text));
    char *repaired = repair(text);
    bool complete = repaired && api_json_add(object, key, cJSON_CreateString(repaired));
    cJSON_free(repaired);
    return complete;
}

enum der_status api_json_print(struct der_ctx *ctx, cJSON *object, bool complete, bool pretty,
                               char **text)
{
    char *printed = NULL;
    enum der_status status = complete ? json_print(ctx, object, pretty, &printed) : ctx_nomem(ctx);
    json_free(object);
    TRY(status);
    mem_free(&ctx->mem, *text);
    *text = printed;
    return DER_OK;
}
