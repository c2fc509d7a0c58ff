/*
 * The exemplars of the newest classes as one picture: a row for each class, best rank first, as the network sees
 * them.
 */
#ifndef EXCHANGE_EXEMPLAR_SHEET_H
#define EXCHANGE_EXEMPLAR_SHEET_H

#include "method/learner.h"

enum { SHEET_CLASSES = 16, SHEET_IMAGES = 8, SHEET_SIDE = 64 }; /* at most; pixels of an image */

/* Interleaved bytes. */
struct exemplar_sheet {
    struct der_ctx *ctx;
    struct image_view image; /* no width: the learner keeps nothing */
    uint8_t *pixels;
};

/* Draws the sheet of the learner's latest step. Free with exemplar_sheet_fini, also after a failure. */
NODISCARD enum der_status exemplar_sheet_draw(const struct learner *learner,
                                              struct exemplar_sheet *out);
void exemplar_sheet_fini(struct exemplar_sheet *sheet);

#endif
