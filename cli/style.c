#include "style.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool style_is_terminal(FILE *file)
{
    const char *term = getenv("TERM");
    return term && strcmp(term, "dumb") != 0 && isatty(fileno(file));
}

/* https://no-color.org: set to anything but the empty text. */
static bool is_coloured(FILE *file)
{
    const char *refused = getenv("NO_COLOR");
    return !(refused && refused[0]) && style_is_terminal(file);
}

void style_begin(FILE *file, enum style style)
{
    static const char *const codes[] = {
        [STYLE_HEADING] = "\033[1m", [STYLE_ERROR] = "\033[1;31m", [STYLE_WARNING] = "\033[1;33m"};
    if (is_coloured(file))
        (void)fputs(codes[style], file);
}

void style_end(FILE *file)
{
    if (is_coloured(file))
        (void)fputs("\033[0m", file);
}

void style_heading(const char *format, ...)
{
    va_list args;
    style_begin(stdout, STYLE_HEADING);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    style_end(stdout);
}
