/*
 * What a folder holds, sorted bytewise: its sub-folders, its image files, or all but these. Hidden
 * entries, whose names begin with a dot, do not count.
 */
#ifndef DATA_LISTING_H
#define DATA_LISTING_H

#include "core/arena.h"
#include "core/ctx.h"

enum listing_kind {
    LISTING_FOLDERS, /* folders, and links to folders */
    LISTING_IMAGES,  /* names that end in .jpg, .jpeg or .png, in any case */
    LISTING_NOT_FOLDERS,
    LISTING_NOT_IMAGES,
};

struct listing {
    struct arena arena; /* the names */
    char **names;       /* [n] without the folder */
    size_t n, capacity;
};

/* *out, also after a failure, is given back with listing_free. */
NODISCARD enum der_status listing_read(struct der_ctx *ctx, const char *folder,
                                       enum listing_kind kind, struct listing *out);
void listing_free(struct listing *listing);

/* Place of a name of `length` characters; -1 when it is not there. */
int64_t listing_find(const struct listing *listing, const char *name, size_t length);

#endif
