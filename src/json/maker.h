/*
 * Objects put together member by member. cJSON's adders fail when memory is short; once one has, the object is
 * of no use, so that is looked at once, in the end.
 *
 *     struct maker m = maker_new();
 *     add_text(&m, "name", name);
 *     add_number(&m, "size", size);
 *     return maker_done(&m);
 */
#ifndef JSON_MAKER_H
#define JSON_MAKER_H

#include "json/json.h"

struct maker {
    cJSON *object;
    bool failed;
};

struct maker maker_new(void);

/* The object, or NULL when memory was short. */
cJSON *maker_done(struct maker *m);

void add_text(struct maker *m, const char *key, const char *text);
void add_bool(struct maker *m, const char *key, bool value);

/* What was not measured is left out: JSON has no NAN. */
void add_number(struct maker *m, const char *key, double value);

/* Takes the item over; NULL means that there was no memory to make it. */
void add_item(struct maker *m, const char *key, cJSON *item);

/* Appends to an array, which may be NULL, and takes the item over likewise. False when memory is short. */
NODISCARD bool append_item(cJSON *array, cJSON *item);

/* A number, or null where there is none. */
cJSON *number_or_null(double value);

#endif
