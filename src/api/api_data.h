/*
 * What public data hold, for the other functions of the interface that take them.
 */
#ifndef API_API_DATA_H
#define API_API_DATA_H

#include <der/data.h>

#include "data/dataset.h"

struct der_data {
    struct der_ctx *ctx;
    struct dataset *set;
    bool is_growing;               /* made by der_data_new */
    int64_t capacity[DATA_SPLITS]; /* images that there is room for */
    int class_capacity;            /* names that there is room for */
    char **names;                  /* of a growing set: owner of set->class_names */
    int latest;                    /* class of the latest picture that was added */
    struct der_source source;      /* of der_data_from_source */
};

enum data_split api_split(enum der_split split);

/* Checks a picture of the caller's: DER_ARG when no such picture can be; `what` names it. */
NODISCARD enum der_status api_image(struct der_ctx *ctx, const char *what,
                                    const struct der_image *image, struct image_view *out);

#endif
