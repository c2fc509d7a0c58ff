#include "options.h"

#include <der/suggest.h>

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SHOWN_MAX = 63, FLAG_COLUMN = 24 };

static enum exit_code store_int(const struct option *option, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < INT_MIN || value > INT_MAX)
        return fail(EXIT_USAGE, "--%s wants a whole number, not '%s'", option->name, text);
    *(int *)option->target = (int)value;
    return EXIT_OK;
}

static enum exit_code store_number(const struct option *option, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return fail(EXIT_USAGE, "--%s wants a number, not '%s'", option->name, text);
    *(double *)option->target = value;
    return EXIT_OK;
}

static enum exit_code store_texts(const struct option *option, const char *text)
{
    struct option_texts *texts = option->target;
    if (texts->n == OPTION_TEXTS_MAX)
        return fail(EXIT_USAGE, "--%s is given more than %d times", option->name, OPTION_TEXTS_MAX);
    texts->text[texts->n++] = text;
    return EXIT_OK;
}

static enum exit_code store(const struct option *option, const char *text)
{
    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_WORD:
        *(const char **)option->target = text;
        return EXIT_OK;
    case OPTION_INT:
        return store_int(option, text);
    case OPTION_NUMBER:
        return store_number(option, text);
    case OPTION_TEXTS:
        return store_texts(option, text);
    case OPTION_FLAG:
        *(bool *)option->target = true;
        return EXIT_OK;
    case OPTION_WORDS:
        break; /* take_word stores them */
    }
    return EXIT_USAGE;
}

static enum exit_code fail_unknown(const struct option *options, int n, const char *word,
                                   size_t length)
{
    char name[NAME_SHOWN_MAX + 1];
    (void)snprintf(name, sizeof name, "%.*s",
                   (int)(length < NAME_SHOWN_MAX ? length : NAME_SHOWN_MAX), word);
    const char *close = der_suggest(name, &options[0].name, n, sizeof options[0]);
    if (close)
        return fail(EXIT_USAGE, "unknown option '--%s'; did you mean '--%s'?", name, close);
    return fail(EXIT_USAGE, "unknown option '--%s'", name);
}

static bool is_word(const struct option *option)
{
    return option->type == OPTION_WORD || option->type == OPTION_WORDS;
}

/* argv[at] joins the words before it, which lie further left. */
static enum exit_code store_word(struct option_words *words, char **argv, int at)
{
    words->word = argv + 1;
    words->word[words->n++] = argv[at];
    return EXIT_OK;
}

/* The row of the word argv[at]: the first whose target is still empty, or which takes all. */
static enum exit_code take_word(const struct option *options, int n, char **argv, int at)
{
    for (int i = 0; i < n; i++) {
        if (options[i].type == OPTION_WORD && !*(const char **)options[i].target)
            return store(&options[i], argv[at]);
        if (options[i].type == OPTION_WORDS)
            return store_word(options[i].target, argv, at);
    }
    return fail_unexpected_argument(argv[0], argv[at]);
}

/* The value of a flag: behind its equals sign, or the next argument, to which *at moves on. */
static enum exit_code take_value(const struct option *option, const char *equals, int argc,
                                 char **argv, int *at)
{
    if (option->type == OPTION_FLAG) {
        if (equals)
            return fail(EXIT_USAGE, "--%s takes no value", option->name);
        return store(option, "");
    }
    const char *value = equals ? equals + 1 : NULL;
    if (!value && ++*at < argc)
        value = argv[*at];
    if (!value)
        return fail(EXIT_USAGE, "--%s wants a value: %s", option->name, option->argument);
    return store(option, value);
}

/* argv[*at] is a flag; *at moves on to its value when that is the next argument. */
static enum exit_code take_flag(const struct option *options, int n, int argc, char **argv, int *at)
{
    const char *word = argv[*at] + 2;
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    int which = 0;
    while (which < n && (is_word(&options[which]) || strlen(options[which].name) != length ||
                         strncmp(options[which].name, word, length) != 0))
        which++;
    if (which == n)
        return fail_unknown(options, n, word, length);
    return take_value(&options[which], equals, argc, argv, at);
}

/* The option "out" when a word is its short form and there is such an option; NULL otherwise. */
static const struct option *find_short(const struct option *options, int n, const char *word)
{
    for (int i = 0; i < n && strcmp(word, "-o") == 0; i++)
        if (strcmp(options[i].name, "out") == 0)
            return &options[i];
    return NULL;
}

enum exit_code options_parse(const struct option *options, int n, int argc, char **argv)
{
    enum exit_code code = EXIT_OK;
    bool only_words = false;
    for (int i = 1; i < argc && code == EXIT_OK; i++) {
        const struct option *by_letter = only_words ? NULL : find_short(options, n, argv[i]);
        if (by_letter)
            code = take_value(by_letter, NULL, argc, argv, &i);
        else if (only_words || strncmp(argv[i], "--", 2) != 0)
            code = take_word(options, n, argv, i);
        else if (argv[i][2] == '\0')
            only_words = true;
        else
            code = take_flag(options, n, argc, argv, &i);
    }
    return code;
}

void options_print(const struct option *options, int n)
{
    for (int i = 0; i < n; i++) {
        char flag[NAME_SHOWN_MAX + 1];
        (void)snprintf(flag, sizeof flag, "%s%s%s%s", is_word(&options[i]) ? "" : "--",
                       options[i].name, options[i].argument[0] ? " " : "", options[i].argument);
        printf("  %-*s %s\n", FLAG_COLUMN, flag, options[i].help);
    }
}
