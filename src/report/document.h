/*
 * All that the page knows: the runs, what the paper has for them, and what follows from several runs together.
 */
#ifndef REPORT_DOCUMENT_H
#define REPORT_DOCUMENT_H

#include "report/run_view.h"

struct document_options {
    const char *title; /* NULL: made of the runs */
    const char *data;  /* NULL: where the runs had their images */
    int refresh;       /* seconds; 0: never */
};

/* Short names of the runs: the last part of their paths where these differ. `names` [n] receives them, borrowed
 * from the paths. */
void document_names(const char *const *paths, int n, const char **names);

/* As JSON; caller frees with json_free. */
NODISCARD enum der_status document_make(struct der_ctx *ctx, const struct run_view *runs, int n,
                                        const struct document_options *options, cJSON **out);

#endif
