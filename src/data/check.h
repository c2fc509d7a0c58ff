/*
 * What is wrong with a data set: every image is decoded, and the same picture is looked for on both sides of
 * the line between training and test.
 *
 * Pictures are compared by their size and a 64-bit hash of their pixels: among a million pictures two
 * different ones are taken for the same with a chance of one in thirty million.
 */
#ifndef DATA_CHECK_H
#define DATA_CHECK_H

#include "data/dataset.h"

enum check_kind {
    CHECK_UNREADABLE,  /* the set cannot be opened, or a part of it */
    CHECK_BAD_NAME,    /* a class whose name no model can hold: not UTF-8, or empty */
    CHECK_BAD_IMAGE,   /* an image does not decode */
    CHECK_DUPLICATE,   /* a test picture is among the training pictures */
    CHECK_TWO_CLASSES, /* the same picture under two classes */
    CHECK_FEW,         /* a class with fewer than CHECK_FEW_IMAGES training images */
    CHECK_UNEQUAL,     /* the largest class has more than CHECK_UNEQUAL_RATIO times the smallest */
    CHECK_NO_TEST,     /* there are no test images */
    CHECK_IGNORED,     /* files and folders that nothing reads */
    CHECK_KINDS,
};

enum { CHECK_FEW_IMAGES = 10, CHECK_UNEQUAL_RATIO = 2 };

struct check_finding {
    enum check_kind kind;
    const char *text; /* a sentence without a full stop */
};

struct data_check {
    struct der_ctx *ctx;
    struct arena arena;                               /* sentences */
    struct dataset *set;                              /* NULL: it cannot be opened */
    int64_t *counts[DATA_SPLITS];                     /* [n_classes] images */
    int height_min, height_max, width_min, width_max; /* of images that decode; 0: there are none */
    struct check_finding *findings; /* [n] by kind, then in the order of the set */
    int64_t n, capacity;
    int64_t n_kind[CHECK_KINDS]; /* findings of each kind */
};

struct check_options {
    const char *class_list; /* as in struct dataset_options */
    void (*progress)(void *user, int64_t done, int64_t total);
    bool (*cancelled)(void *user); /* true ends with DER_CANCELLED */
    void *user;
};

/* Does a finding of this kind end training? */
bool check_is_error(enum check_kind kind);

/* "bad-image" ... */
const char *check_kind_name(enum check_kind kind);

/* Looks at the set with as many threads as the context has. What is wrong with the set is no failure of this
 * function. *out is freed with data_check_free. */
NODISCARD enum der_status data_check_run(struct der_ctx *ctx, const char *path,
                                         const struct check_options *options,
                                         struct data_check **out);
void data_check_free(struct data_check *check);

#endif
