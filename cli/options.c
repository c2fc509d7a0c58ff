#include "options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum exit_code store(const struct option *option, const char *text)
{
    char *end;
    errno = 0;
    switch (option->type) {
    case OPTION_TEXT:
        *(const char **)option->target = text;
        return EXIT_OK;
    case OPTION_INT: {
        long value = strtol(text, &end, 10);
        if (end == text || *end || errno || value < INT_MIN || value > INT_MAX)
            return fail(EXIT_USAGE, "--%s wants a whole number, not '%s'", option->name, text);
        *(int *)option->target = (int)value;
        return EXIT_OK;
    }
    case OPTION_NUMBER: {
        double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value))
            return fail(EXIT_USAGE, "--%s wants a number, not '%s'", option->name, text);
        *(double *)option->target = value;
        return EXIT_OK;
    }
    }
    return EXIT_USAGE;
}

static enum exit_code fail_unknown(const struct option *options, int n, const char *word,
                                   int length)
{
    char name[NAME_LENGTH_MAX + 1];
    const char *close = NULL;
    int best = SUGGEST_DISTANCE + 1;
    (void)snprintf(name, sizeof name, "%.*s", length, word);
    for (int i = 0; i < n; i++) {
        int distance = edit_distance(name, options[i].name);
        if (distance < best) {
            best = distance;
            close = options[i].name;
        }
    }
    if (close)
        return fail(EXIT_USAGE, "unknown option '--%s'; did you mean '--%s'?", name, close);
    return fail(EXIT_USAGE, "unknown option '--%s'", name);
}

enum exit_code options_parse(const struct option *options, int n, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            return fail_unexpected_argument(argv[0], argv[i]);
        const char *word = argv[i] + 2;
        const char *equals = strchr(word, '=');
        size_t length = equals ? (size_t)(equals - word) : strlen(word);
        int which = 0;
        while (which < n && (strlen(options[which].name) != length ||
                             strncmp(options[which].name, word, length) != 0))
            which++;
        if (which == n)
            return fail_unknown(options, n, word, (int)(length < 100 ? length : 100));
        const char *value = equals ? equals + 1 : NULL;
        if (!value && ++i < argc)
            value = argv[i];
        if (!value)
            return fail(EXIT_USAGE, "--%s wants a value: %s", options[which].name,
                        options[which].argument);
        enum exit_code code = store(&options[which], value);
        if (code != EXIT_OK)
            return code;
    }
    return EXIT_OK;
}

void options_print(const struct option *options, int n)
{
    for (int i = 0; i < n; i++) {
        char flag[64];
        (void)snprintf(flag, sizeof flag, "--%s %s", options[i].name, options[i].argument);
        printf("  %-24s %s\n", flag, options[i].help);
    }
}
