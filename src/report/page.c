/*
 * Data enters the page in one place, as JSON inside a script element of type application/json. There the browser
 * ends the element at the first "</script" and knows no escapes but JSON's own, so every character that means
 * something to HTML is written as \uXXXX. The script puts text into the page as text alone, never as HTML.
 */
#include "report/page.h"

#include "core/text.h"
#include "core/utf8.h"
#include "io/durable.h"

#include <string.h>

#define MARK_BEGIN "<!--put "
#define MARK_END "-->"

static const struct page_file *find_file(const char *name, size_t length)
{
    for (const struct page_file *file = PAGE_FILES; file->name; file++)
        if (strlen(file->name) == length && memcmp(file->name, name, length) == 0)
            return file;
    return NULL;
}

/* Names of folders need not be UTF-8, a page must be: bytes that are not are shown as U+FFFD. */
static size_t put_character(struct text *text, const char *at, size_t left)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t n = utf8_character(at, left);
    text_add(text, n > 0 ? at : replacement, n > 0 ? n : sizeof replacement - 1);
    return n > 0 ? n : 1;
}

/* U+2028 and U+2029 are line ends to JavaScript, though not to JSON. */
static bool is_line_separator(const char *at)
{
    return memcmp(at, "\xe2\x80\xa8", 3) == 0 || memcmp(at, "\xe2\x80\xa9", 3) == 0;
}

static void put_json(struct text *text, const char *json)
{
    const char *end = json + strlen(json);
    for (const char *at = json; at < end;) {
        if (*at == '<' || *at == '>' || *at == '&' || *at == '\'') {
            text_put(text, "\\u%04x", (unsigned)*at++);
        } else if (end - at >= 3 && is_line_separator(at)) {
            text_put(text, "\\u%s", at[2] == '\xa8' ? "2028" : "2029");
            at += 3;
        } else {
            at += put_character(text, at, (size_t)(end - at));
        }
    }
}

static void put_html(struct text *text, const char *value)
{
    const char *end = value + strlen(value);
    while (value < end) {
        if (strchr("<>&\"'", *value))
            text_put(text, "&#%d;", (int)*value++);
        else
            value += put_character(text, value, (size_t)(end - value));
    }
}

/* What stands behind a mark of the template: the title, the data, or a file. */
static enum der_status put_mark(struct der_ctx *ctx, const char *name, size_t length,
                                const cJSON *document, struct text *text)
{
    if (length == 5 && memcmp(name, "title", length) == 0) {
        put_html(text, cJSON_GetObjectItem(document, "title")->valuestring);
        return DER_OK;
    }
    if (length == 4 && memcmp(name, "data", length) == 0) {
        char *json;
        TRY(json_print(ctx, document, false, &json));
        put_json(text, json);
        mem_free(&ctx->mem, json);
        return DER_OK;
    }
    const struct page_file *file = find_file(name, length);
    if (!file)
        return ctx_fail(ctx, DER_STATE, "the page has no part '%.*s'", (int)length, name);
    text_add(text, (const char *)file->data, file->size);
    return DER_OK;
}

static enum der_status fill(struct der_ctx *ctx, const cJSON *document, struct text *text)
{
    const char *at = (const char *)find_file("page.html", strlen("page.html"))->data;
    const char *mark;
    while ((mark = strstr(at, MARK_BEGIN)) != NULL) {
        const char *name = mark + strlen(MARK_BEGIN);
        const char *end = strstr(name, MARK_END);
        text_add(text, at, (size_t)(mark - at));
        TRY(put_mark(ctx, name, (size_t)(end - name), document, text));
        at = end + strlen(MARK_END);
    }
    text_add(text, at, strlen(at));
    return DER_OK;
}

enum der_status page_write(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                           const cJSON *document, int64_t *bytes)
{
    struct text text = {.mem = &ctx->mem};
    char *page = NULL;
    enum der_status status = fill(ctx, document, &text);
    *bytes = (int64_t)text.used;
    if (status == DER_OK)
        status = text_finish(ctx, &text, &page);
    else
        text_fini(&text);
    if (status == DER_OK)
        status = durable_write_file(ctx, io, path, page, (size_t)*bytes);
    mem_free(&ctx->mem, page);
    return status;
}
