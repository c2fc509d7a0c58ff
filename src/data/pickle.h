/*
 * A reader for the pickles of the CIFAR distributions, and for nothing else.
 *
 * It knows dictionaries, lists, tuples, whole numbers, strings and numpy arrays of bytes, as
 * Python 2 and 3 write them with protocols 2 to 5. A pickle is a program; this one is followed on
 * plain data only: every name it asks for must be one of the few that make a numpy array, and
 * none of them is ever called. Anything else is refused with its name.
 */
#ifndef DATA_PICKLE_H
#define DATA_PICKLE_H

#include "core/ctx.h"

enum pickle_type {
    PICKLE_NONE,
    PICKLE_INT,    /* also True and False */
    PICKLE_STRING, /* str of Python 2, bytes, bytearray, or the UTF-8 of a str of Python 3 */
    PICKLE_LIST,
    PICKLE_TUPLE,
    PICKLE_DICT, /* items: key, value, key, value, ... */
    PICKLE_NAME, /* of a function or class: "module name" */
    PICKLE_DTYPE,
    PICKLE_ARRAY, /* of unsigned bytes, two-dimensional */
};

/* Values and items are numbers: places in the tables below. Item 0 is none. */
struct pickle_value {
    enum pickle_type type;
    bool fortran;         /* PICKLE_ARRAY: columns lie together, not rows */
    int64_t integer;      /* PICKLE_INT; PICKLE_NAME: which one */
    const uint8_t *text;  /* PICKLE_STRING, PICKLE_ARRAY: the bytes, not ended by a zero */
    size_t size;          /* of text, in bytes */
    int64_t shape[2];     /* PICKLE_ARRAY */
    uint32_t first, last; /* containers: items */
    uint32_t n_items;     /* containers */
};

struct pickle_item {
    uint32_t value; /* in values */
    uint32_t next;  /* in items, 0: the last one */
};

struct pickle {
    struct der_ctx *ctx;
    struct pickle_value *values;
    size_t n_values, values_capacity;
    struct pickle_item *items;
    size_t n_items, items_capacity;
    uint8_t *decoded; /* strings that are not in the input as they are */
    size_t decoded_size, decoded_capacity;
    uint32_t root; /* the value that the pickle stands for */
};

/* Follows the pickle in `data`, which is borrowed for as long as the result lives. `name` opens the
 * messages. *out, also after a failure, is given back with pickle_free. */
NODISCARD enum der_status pickle_read(struct der_ctx *ctx, const char *name, const uint8_t *data,
                                      size_t size, struct pickle *out);
void pickle_free(struct pickle *pickle);

/* The value under a key of a dictionary; NULL when there is none or `dict` is no dictionary. */
const struct pickle_value *pickle_get(const struct pickle *pickle, const struct pickle_value *dict,
                                      const char *key);

#endif
