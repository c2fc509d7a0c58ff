/*
 * What the program says when something is wrong: one line on stderr that starts with "der: ".
 */
#include "cli.h"
#include "style.h"
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

/* Messages quote names of files and classes, which may hold anything. */
static void show(enum style style, const char *kind, const char *text)
{
    style_begin(stderr, style);
    fprintf(stderr, "der:%s", kind);
    style_end(stderr);
    fputc(' ', stderr);
    text_print(stderr, text);
    fputc('\n', stderr);
}

enum exit_code fail(enum exit_code code, const char *format, ...)
{
    enum { LONGEST = 4096 };
    char text[LONGEST];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    show(STYLE_ERROR, "", text);
    return code;
}

void show_warning(void *user, enum der_log_level level, const char *text)
{
    (void)user;
    if (level <= DER_LOG_WARNING)
        show(STYLE_WARNING, " warning:", text);
}

enum exit_code fail_status(const struct der_ctx *ctx, enum der_status status)
{
    enum exit_code code = EXIT_RUN;
    if (status == DER_IO || status == DER_FORMAT)
        code = EXIT_DATA;
    else if (status == DER_DEVICE || status == DER_UNSUPPORTED)
        code = EXIT_DEVICE;
    else if (status == DER_ARG)
        code = EXIT_USAGE;
    const char *sentence = ctx ? der_ctx_error(ctx) : "";
    return fail(code, "%s", sentence[0] ? sentence : der_status_text(status));
}
