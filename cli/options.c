#include "options.h"

#include <der/settings.h>
#include <der/suggest.h>

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SHOWN_MAX = 63, NAMES_MAX = 64, CHOICES_MAX = 16 };

const char *const PRECISIONS[] = {"f32", "tf32", "bf16", NULL};
const char *const BAD_IMAGE_WORDS[] = {"stop", "skip", NULL};

/* ---- asking the table -------------------------------------------------------------------------------- */

bool options_is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

bool option_is_word(const struct option *option)
{
    return option->type == OPTION_WORD || option->type == OPTION_WORDS;
}

bool option_is_repeatable(const struct option *option)
{
    return option->type == OPTION_TEXTS || option->type == OPTION_CHOICES;
}

static bool is_named(const struct option *option, const char *word)
{
    if (option_is_word(option) || word[0] != '-')
        return false;
    if (word[1] != '-')
        return option->letter && word[1] == option->letter && word[2] == '\0';
    size_t length = strcspn(word + 2, "=");
    return strlen(option->name) == length && strncmp(option->name, word + 2, length) == 0;
}

const struct option *option_named(const struct command *command, const char *word)
{
    for (int i = 0; i < command->n_options; i++)
        if (is_named(&command->options[i], word))
            return &command->options[i];
    return NULL;
}

const struct option *option_of_word(const struct command *command, int number)
{
    for (int i = 0; i < command->n_options; i++) {
        const struct option *option = &command->options[i];
        if (option->type == OPTION_WORDS || (option->type == OPTION_WORD && number-- == 0))
            return option;
    }
    return NULL;
}

static int count(const char *const *choices)
{
    int n = 0;
    while (choices[n])
        n++;
    return n;
}

/* "a|b|c", or "a, b or c": `last` stands before the last one. */
static const char *join(const char *const *choices, const char *between, const char *last,
                        char text[OPTION_TEXT_MAX])
{
    int n = count(choices);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < n && used < OPTION_TEXT_MAX; i++) {
        const char *before = i == 0 ? "" : i == n - 1 ? last : between;
        used += (size_t)snprintf(text + used, OPTION_TEXT_MAX - used, "%s%s", before, choices[i]);
    }
    return text;
}

const char *option_argument(const struct option *option, char text[OPTION_TEXT_MAX])
{
    if (option_is_word(option) || option->type == OPTION_FLAG)
        return "";
    if (option->argument)
        return option->argument;
    if (!option->setting)
        return join(option->choices, "|", "|", text);
    const char *words[CHOICES_MAX + 1] = {NULL};
    for (int i = 0; i < CHOICES_MAX && der_setting_choice(option->setting, i); i++)
        words[i] = der_setting_choice(option->setting, i);
    return join(words, "|", "|", text);
}

/* ---- mistakes ---------------------------------------------------------------------------------------- */

static enum exit_code fail_unknown(const struct command *command, const char *word)
{
    const char *names[NAMES_MAX] = {"help"};
    int n = 1;
    for (int i = 0; i < command->n_options && n < NAMES_MAX; i++)
        if (!option_is_word(&command->options[i]))
            names[n++] = command->options[i].name;
    char shown[NAME_SHOWN_MAX + 1];
    (void)snprintf(shown, sizeof shown, "%.*s", (int)strcspn(word, "="), word);
    const char *close = der_suggest(shown + strspn(shown, "-"), names, n, sizeof *names);
    if (close)
        return fail(EXIT_USAGE, "unknown option '%s'; did you mean '--%s'?", shown, close);
    return fail(EXIT_USAGE, "unknown option '%s'; see 'der help %s'", shown, command->name);
}

int option_choose(const char *name, const char *const *choices, const char *word)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(word, choices[i]) == 0)
            return i;
    char text[OPTION_TEXT_MAX];
    const char *close = der_suggest(word, choices, count(choices), sizeof *choices);
    if (close)
        (void)fail(EXIT_USAGE, "%s does not take '%s'; did you mean '%s'?", name, word, close);
    else
        (void)fail(EXIT_USAGE, "%s does not take '%s', but %s", name, word,
                   join(choices, ", ", " or ", text));
    return -1;
}

/* ---- values ------------------------------------------------------------------------------------------ */

static enum exit_code store_int(const struct option *option, const char *text, void *target)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < INT_MIN || value > INT_MAX)
        return fail(EXIT_USAGE, "--%s wants a whole number, not '%s'", option->name, text);
    if (value < option->at_least)
        return fail(EXIT_USAGE, "--%s wants %d or more, not %ld", option->name, option->at_least,
                    value);
    *(int *)target = (int)value;
    return EXIT_OK;
}

static enum exit_code store_number(const struct option *option, const char *text, void *target)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return fail(EXIT_USAGE, "--%s wants a number, not '%s'", option->name, text);
    if (value < option->at_least)
        return fail(EXIT_USAGE, "--%s wants %d or more, not %g", option->name, option->at_least,
                    value);
    if (option->is_positive && value == 0.0)
        return fail(EXIT_USAGE, "--%s wants more than 0", option->name);
    *(double *)target = value;
    return EXIT_OK;
}

/* Enums are written through int. */
_Static_assert(sizeof(enum exit_code) == sizeof(int), "enum");

static enum exit_code store_choice(const struct option *option, const char *text, void *target)
{
    char name[NAME_SHOWN_MAX];
    (void)snprintf(name, sizeof name, "--%s", option->name);
    int which = option_choose(name, option->choices, text);
    if (which < 0)
        return EXIT_USAGE;
    if (option->type == OPTION_CHOICES)
        *(unsigned *)target |= 1u << which;
    else
        memcpy(target, &which, sizeof which);
    return EXIT_OK;
}

static enum exit_code store_texts(const struct option *option, const char *text, void *target)
{
    struct option_texts *texts = target;
    if (texts->n == OPTION_TEXTS_MAX)
        return fail(EXIT_USAGE, "--%s is given more than %d times", option->name, OPTION_TEXTS_MAX);
    texts->text[texts->n++] = text;
    return EXIT_OK;
}

static enum exit_code store(const struct option *option, const char *text, void *target)
{
    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_WORD:
        *(const char **)target = text;
        return EXIT_OK;
    case OPTION_INT:
        return store_int(option, text, target);
    case OPTION_NUMBER:
        return store_number(option, text, target);
    case OPTION_CHOICE:
    case OPTION_CHOICES:
        return store_choice(option, text, target);
    case OPTION_TEXTS:
        return store_texts(option, text, target);
    case OPTION_FLAG:
        *(bool *)target = true;
        return EXIT_OK;
    case OPTION_WORDS:
        break; /* take_word stores them */
    }
    return EXIT_USAGE;
}

/* ---- the command line -------------------------------------------------------------------------------- */

/* How far it has been read. */
struct reading {
    const struct command *command;
    int argc;
    char **argv;
    char *request;
    int at;
    int n_words;
};

/* argv[at] joins the words before it, which lie further left. */
static enum exit_code take_word(struct reading *r)
{
    char *word = r->argv[r->at];
    const struct option *option = option_of_word(r->command, r->n_words++);
    if (!option)
        return fail(EXIT_USAGE, "unexpected argument '%s'; see 'der help %s'", word,
                    r->command->name);
    if (option->type == OPTION_WORD)
        return store(option, word, r->request + option->at);
    struct option_words *words = (struct option_words *)(void *)(r->request + option->at);
    words->word = r->argv + 1;
    words->word[words->n++] = word;
    return EXIT_OK;
}

/* argv[at] is a flag; `at` moves on to its value when that is the next argument. */
static enum exit_code take_flag(struct reading *r)
{
    const char *word = r->argv[r->at];
    const struct option *option = option_named(r->command, word);
    if (!option)
        return fail_unknown(r->command, word);
    const char *equals = strchr(word, '=');
    void *target = r->request + option->at;
    if (option->type == OPTION_FLAG)
        return equals ? fail(EXIT_USAGE, "--%s takes no value", option->name)
                      : store(option, "", target);
    const char *value = equals ? equals + 1 : NULL;
    if (!value && ++r->at < r->argc)
        value = r->argv[r->at];
    char text[OPTION_TEXT_MAX];
    if (!value)
        return fail(EXIT_USAGE, "--%s wants a value: %s", option->name,
                    option_argument(option, text));
    return store(option, value, target);
}

static bool is_missing(const struct option *option, const char *request)
{
    const void *target = request + option->at;
    if (!option->required)
        return false;
    if (option->type == OPTION_WORDS)
        return ((const struct option_words *)target)->n == 0;
    return !*(const char *const *)target;
}

static enum exit_code check_required(const struct command *command, const char *request)
{
    for (int i = 0; i < command->n_options; i++) {
        const struct option *option = &command->options[i];
        if (is_missing(option, request))
            return fail(EXIT_USAGE, "%s%s is missing; see 'der help %s'",
                        option_is_word(option) ? "" : "--", option->name, command->name);
    }
    return EXIT_OK;
}

enum exit_code options_parse(const struct command *command, int argc, char **argv, void *request,
                             bool *wants_help)
{
    struct reading r = {.command = command, .argc = argc, .argv = argv, .request = request};
    bool only_words = false;
    *wants_help = false;
    for (r.at = 1; r.at < argc; r.at++) {
        const char *word = argv[r.at];
        bool is_word = only_words || word[0] != '-' || word[1] == '\0';
        enum exit_code code = EXIT_OK;
        if (is_word) {
            code = take_word(&r);
        } else if (strcmp(word, "--") == 0) {
            only_words = true;
        } else if (options_is_help(word)) {
            *wants_help = true;
            return EXIT_OK;
        } else {
            code = take_flag(&r);
        }
        if (code != EXIT_OK)
            return code;
    }
    return check_required(command, request);
}
