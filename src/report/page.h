/*
 * The page: a template with its style and scripts, which the build puts into the library, and the data.
 */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include "io/io_calls.h"
#include "json/json.h"

/* A file of src/report/page, as the build put it in. One zero byte follows it. */
struct page_file {
    const char *name;
    const unsigned char *data;
    size_t size;
};
extern const struct page_file PAGE_FILES[]; /* ends with a NULL name */

/* Writes the page as durable.h does. `io` may be NULL. */
NODISCARD enum der_status page_write(struct der_ctx *ctx, const struct io_calls *io,
                                     const char *path, const cJSON *document, int64_t *bytes);

#endif
