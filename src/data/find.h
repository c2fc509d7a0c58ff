/*
 * All image files below a folder.
 */
#ifndef DATA_FIND_H
#define DATA_FIND_H

#include "core/ctx.h"

enum { FIND_MAX_DEPTH = 64 };

/* Calls `found` with every path: the images of a folder first, then the folders below it, each in bytewise order.
 * Hidden entries are left out. Links to folders are followed, as data sets do, but for those that lead back to a
 * folder on the way to them; more than FIND_MAX_DEPTH folders within each other are refused. `found` returns false to end the search. */
NODISCARD enum der_status find_images(struct der_ctx *ctx, const char *folder,
                                      bool (*found)(void *user, const char *path), void *user);

#endif
