/*
 * The two fields of an HTTP response that decide whether a download goes on where it stopped
 * (RFC 9110, sections 8.8.3 and 14.4). Servers write them, so they may say anything.
 */
#ifndef FETCH_RANGE_HEADER_H
#define FETCH_RANGE_HEADER_H

#include <stdbool.h>
#include <stdint.h>

enum { ETAG_MAX = 256 };

/* Content-Range: the part that a response holds. */
struct content_range {
    int64_t first, last; /* bytes, both included */
    int64_t size;        /* of the whole file; -1: not told */
};

/* Reads "bytes FIRST-LAST/SIZE", where SIZE may be "*"; false when it is anything else, or when
 * FIRST <= LAST < SIZE does not hold. */
bool content_range_parse(const char *text, struct content_range *out);

/* Copies a strong entity tag, quotes included. False for weak ones (W/"..."), which do not promise the same
 * bytes, and for what is none or longer than fits. */
bool etag_copy(const char *text, char out[ETAG_MAX]);

#endif
