/*
 * Text files that say which image has which label, and which classes to use.
 *
 * A line is a file name and a label, separated by a tab, a comma or spaces; what follows is
 * ignored. This covers Tiny-ImageNet's val_annotations.txt, Caffe's val.txt and Kaggle's
 * LOC_val_solution.csv. A class list has one name a line.
 */
#ifndef DATA_IMAGE_LIST_H
#define DATA_IMAGE_LIST_H

#include "core/ctx.h"

struct image_list {
    const char *name; /* of the file, for messages */
    const char *at;   /* next line */
    const char *end;
    int line; /* number of the latest line, from 1 */
};

/* Parts of a line, borrowed from the text; not ended by a zero. */
struct image_list_entry {
    const char *file; /* without folders */
    size_t file_length;
    const char *label; /* NULL when the line has one word */
    size_t label_length;
};

void image_list_init(struct image_list *list, const char *name, const uint8_t *data, size_t size);

/* The next line that is not empty; *found is false at the end. Lines that are not text fail. */
NODISCARD enum der_status image_list_next(struct der_ctx *ctx, struct image_list *list,
                                          struct image_list_entry *entry, bool *found);

/* Reads a whole number; false when the text is something else or larger than `max`. */
bool image_list_number(const char *text, size_t length, int64_t max, int64_t *number);

#endif
