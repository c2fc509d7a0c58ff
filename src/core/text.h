/*
 * Text that grows. Whether memory was short is looked at once, in the end.
 */
#ifndef CORE_TEXT_H
#define CORE_TEXT_H

#include "core/ctx.h"

/* Zeroed but for `mem`, it is ready. */
struct text {
    struct mem *mem;
    char *data;
    size_t used, capacity;
    bool failed; /* memory was short; nothing more is put */
};

/* printf at the end. */
void text_put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes at the end. */
void text_add(struct text *text, const char *data, size_t n);

/* Quotes twice, as RFC 4180 has it; and the same between quotes. */
void text_put_escaped(struct text *text, const char *value);
void text_put_quoted(struct text *text, const char *value);

/* Hands the text over, which ends in a zero byte; the caller frees it with mem_free. */
NODISCARD enum der_status text_finish(struct der_ctx *ctx, struct text *text, char **out);

/* Gives it up. */
void text_fini(struct text *text);

#endif
