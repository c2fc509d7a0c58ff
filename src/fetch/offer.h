/*
 * The data sets that can be had by name: where their publishers keep them, how large the files are, and the
 * checksums that tell whether they came whole.
 *
 * Needs no library, so that a build that cannot download still tells where to look.
 */
#ifndef FETCH_OFFER_H
#define FETCH_OFFER_H

#include <stdint.h>

enum { OFFER_FILES_MAX = 4 };

/* One file that is downloaded. */
struct offer_file {
    const char *name;   /* below the offer's address, and in the user's folder */
    int64_t size;       /* bytes */
    const char *sha256; /* 64 hexadecimal digits */
};

struct offer {
    const char *name;    /* on the command line */
    const char *title;   /* what it is, in a few words */
    const char *address; /* of the files, with the slash at its end */
    const char *source;  /* page of the publishers */
    const char *licence; /* what they say about using it */
    const char
        *folder; /* that the one file, an archive, unpacks to; NULL: files are used as they are */
    int64_t unpacked; /* bytes of its images and labels on the disk */
    /* What a reader finds in the whole set. */
    const char *kind;
    int n_classes;
    int64_t n_train, n_test;
    struct offer_file files[OFFER_FILES_MAX];
    int n_files;
};

int offer_count(void);
const struct offer *offer_get(int index);

/* NULL when there is none of that name. */
const struct offer *offer_find(const char *name);

/* The name closest to a mistyped one; NULL when none is close. */
const char *offer_suggest(const char *name);

/* Bytes of all its files. */
int64_t offer_download_size(const struct offer *offer);

#endif
