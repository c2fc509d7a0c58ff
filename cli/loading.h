/*
 * What the commands that use a model share: its file, and what it runs on.
 */
#ifndef CLI_LOADING_H
#define CLI_LOADING_H

#include "table.h"

#include <der/model.h>

/* What the flags fill in. */
struct loading {
    const char *model;  /* a file or a run folder */
    const char *device; /* NULL: the default */
    enum der_precision precision;
    int threads;
};

#define MODEL_ROW(member)                                                                          \
    {                                                                                              \
        .name = "MODEL", .type = OPTION_WORD, .kind = KIND_FILE, .required = true,                 \
        .help = "a model file, or the folder of a run", .at = AT(member)                           \
    }

/* Makes a context and loads the model; warnings go to stderr. On failure a message has been shown, and both are
 * NULL; else the caller frees both. */
enum exit_code loading_open(const struct loading *loading, struct der_ctx **ctx,
                            struct der_model **model);

#endif
