/*
 * Putting JSON objects together for the functions that hand out JSON.
 *
 * All return false when memory is short, so that they can be chained with &&.
 */
#ifndef API_API_JSON_H
#define API_API_JSON_H

#include "json/json.h"

/* Adds `item`, which may be NULL for want of memory and is freed when it cannot be added. */
bool api_json_add(cJSON *object, const char *key, cJSON *item);
bool api_json_append(cJSON *array, cJSON *item);

bool api_json_number(cJSON *object, const char *key, double value); /* NAN becomes null */
bool api_json_bool(cJSON *object, const char *key, bool value);
/* Bytes that are not UTF-8 become U+FFFD. */
bool api_json_text(cJSON *object, const char *key, const char *text);

/* The text of an object that a chain has made: *text is replaced, the object freed. `complete` is what the chain
 * returned. */
NODISCARD enum der_status api_json_print(struct der_ctx *ctx, cJSON *object, bool complete,
                                         bool pretty, char **text);

#endif
