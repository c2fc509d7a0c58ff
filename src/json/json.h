/*
 * JSON over cJSON, with this library's errors: parsing names the source and the place, reading a
 * member names the key and what was expected.
 *
 * cJSON takes its memory from malloc, not from the context; it is given back before a call returns
 * or with json_free.
 */
#ifndef JSON_JSON_H
#define JSON_JSON_H

#include "core/ctx.h"

#include <cjson/cJSON.h>

enum { JSON_MAX_BYTES = 64 << 20 }; /* no file of ours comes near it */

/* Parses one value that fills the text (white space around it aside). `source` opens the message. */
NODISCARD enum der_status json_parse(struct der_ctx *ctx, const char *source, const char *text,
                                     size_t length, cJSON **out);
void json_free(cJSON *value);

/* The same from a file of at most JSON_MAX_BYTES. */
NODISCARD enum der_status json_read_file(struct der_ctx *ctx, const char *path, cJSON **out);

/* Told of each line of a text, with what opens messages about it: "SOURCE: line N". */
typedef enum der_status json_line_fn(void *user, const char *source, const cJSON *object);

/* Parses the lines of a text one by one. A last line without its newline is what a killed process leaves, or one
 * that is at it, and does not count. */
NODISCARD enum der_status json_lines(struct der_ctx *ctx, const char *source, const char *text,
                                     size_t length, json_line_fn *tell, void *user);

/* Members of an object. A missing member or one of another type is DER_FORMAT. Texts are borrowed. */
NODISCARD enum der_status json_get_object(struct der_ctx *ctx, const char *source,
                                          const cJSON *object, const char *key, const cJSON **out);
NODISCARD enum der_status json_get_array(struct der_ctx *ctx, const char *source,
                                         const cJSON *object, const char *key, const cJSON **out);
NODISCARD enum der_status json_get_text(struct der_ctx *ctx, const char *source,
                                        const cJSON *object, const char *key, const char **out);
NODISCARD enum der_status json_get_number(struct der_ctx *ctx, const char *source,
                                          const cJSON *object, const char *key, double *out);
/* A whole number within [low, high], which lie within +-2^53. */
NODISCARD enum der_status json_get_int(struct der_ctx *ctx, const char *source, const cJSON *object,
                                       const char *key, int64_t low, int64_t high, int64_t *out);

/* The text of a value, caller frees with mem_free. `pretty`: indented and ending in a newline;
 * otherwise one line without one. */
NODISCARD enum der_status json_print(struct der_ctx *ctx, const cJSON *value, bool pretty,
                                     char **out);

#endif
