#include "json/maker.h"

#include <math.h>

struct maker maker_new(void)
{
    cJSON *object = cJSON_CreateObject();
    return (struct maker){.object = object, .failed = !object};
}

cJSON *maker_done(struct maker *m)
{
    if (!m->failed)
        return m->object;
    cJSON_Delete(m->object);
    return NULL;
}

void add_text(struct maker *m, const char *key, const char *text)
{
    m->failed |= !cJSON_AddStringToObject(m->object, key, text);
}

void add_bool(struct maker *m, const char *key, bool value)
{
    m->failed |= !cJSON_AddBoolToObject(m->object, key, value);
}

void add_number(struct maker *m, const char *key, double value)
{
    if (isfinite(value))
        m->failed |= !cJSON_AddNumberToObject(m->object, key, value);
}

void add_item(struct maker *m, const char *key, cJSON *item)
{
    if (item && m->object && cJSON_AddItemToObject(m->object, key, item))
        return;
    cJSON_Delete(item);
    m->failed = true;
}

bool append_item(cJSON *array, cJSON *item)
{
    if (item && array && cJSON_AddItemToArray(array, item))
        return true;
    cJSON_Delete(item);
    return false;
}

cJSON *number_or_null(double value)
{
    return isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull();
}
