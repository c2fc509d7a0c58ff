#include "core/text.h"

#include <stdio.h>
#include <string.h>

static bool reserve(struct text *text, size_t more)
{
    size_t wanted = text->used + more + 1;
    if (text->failed || wanted <= text->capacity)
        return !text->failed;
    size_t capacity = 2 * wanted;
    char *data = mem_realloc(text->mem, text->data, capacity, 1);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void text_put(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(text, (size_t)n)) {
        text->failed = true;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text->data + text->used, (size_t)n + 1, format, args);
    va_end(args);
    text->used += (size_t)n;
}

void text_add(struct text *text, const char *data, size_t n)
{
    if (n == 0 || !reserve(text, n))
        return;
    memcpy(text->data + text->used, data, n);
    text->used += n;
    text->data[text->used] = '\0';
}

void text_put_escaped(struct text *text, const char *value)
{
    for (; *value; value++) {
        if (*value == '"')
            text_add(text, "\"", 1);
        text_add(text, value, 1);
    }
}

void text_put_quoted(struct text *text, const char *value)
{
    text_add(text, "\"", 1);
    text_put_escaped(text, value);
    text_add(text, "\"", 1);
}

enum der_status text_finish(struct der_ctx *ctx, struct text *text, char **out)
{
    *out = NULL;
    if (!reserve(text, 0)) {
        text_fini(text);
        return ctx_nomem(ctx);
    }
    text->data[text->used] = '\0';
    *out = text->data;
    *text = (struct text){.mem = text->mem};
    return DER_OK;
}

void text_fini(struct text *text)
{
    mem_free(text->mem, text->data);
    *text = (struct text){.mem = text->mem};
}
