#include "completion.h"

#include "options.h"
#include "words.h"

#include <der/settings.h>

#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 64 };

/* The word at the cursor, and what lies before the part of it that is looked for. */
struct asking {
    struct der_ctx *ctx;
    const struct command *command;
    char *const *words; /* behind the command's name, that at the cursor not counted */
    int n_words;
    const char *first;  /* of them that is neither a flag nor the value of one; "" */
    const char *typed;  /* the word at the cursor */
    size_t skip;        /* bytes of it that are settled: "--set=lr=" */
    const char *ending; /* of every candidate: "=" of keys */
};

/* For words_of_kind: prints a candidate if it goes on where the word stands. */
static void offer(void *user, const char *word, const char *about)
{
    const struct asking *a = user;
    const char *sought = a->typed + a->skip;
    if (strncmp(word, sought, strlen(sought)) != 0)
        return;
    printf("%.*s%s%s\t", (int)a->skip, a->typed, word, a->ending);
    for (const char *c = about; *c; c++)
        if (*c != '`')
            (void)putchar(*c);
    printf("\n");
}

static void offer_choices(struct asking *a, const char *setting)
{
    for (int i = 0; der_setting_choice(setting, i); i++)
        offer(a, der_setting_choice(setting, i), "");
}

/* KEY=VALUE: first the keys, behind the sign the values. */
static void offer_setting(struct asking *a)
{
    const char *sought = a->typed + a->skip;
    const char *equals = strchr(sought, '=');
    char key[KEY_MAX];
    if (!equals) {
        a->ending = "=";
        words_of_kind(a->ctx, KIND_SETTING, "", offer, a);
        return;
    }
    (void)snprintf(key, sizeof key, "%.*s", (int)(equals - sought), sought);
    a->skip = (size_t)(equals + 1 - a->typed);
    offer_choices(a, key);
}

static void offer_values(struct asking *a, const struct option *option)
{
    printf("%s\n", option->kind == KIND_FILE     ? "files"
                   : option->kind == KIND_FOLDER ? "folders"
                                                 : "words");
    for (int i = 0; option->choices && option->choices[i]; i++)
        offer(a, option->choices[i], "");
    if (option->setting)
        offer_choices(a, option->setting);
    if (option->kind == KIND_SETTING)
        offer_setting(a);
    else
        words_of_kind(a->ctx, option->kind, a->first, offer, a);
}

static bool was_given(const struct asking *a, const struct option *option)
{
    for (int i = 0; i < a->n_words; i++)
        if (option_named(a->command, a->words[i]) == option)
            return true;
    return false;
}

/* All options but those that were given and may be given once. */
static void offer_options(struct asking *a)
{
    printf("words\n");
    for (int i = 0; i < a->command->n_options; i++) {
        const struct option *option = &a->command->options[i];
        char name[OPTION_TEXT_MAX];
        if (option_is_word(option) || (!option_is_repeatable(option) && was_given(a, option)))
            continue;
        (void)snprintf(name, sizeof name, "--%s", option->name);
        offer(a, name, option->help);
    }
    offer(a, "--help", "what it takes");
}

static void offer_commands(struct asking *a, const struct command *const *list)
{
    printf("words\n");
    for (int i = 0; list[i]; i++)
        offer(a, command_word(list[i]), list[i]->summary);
    if (a->typed[0] == '-')
        offer(a, "--help", "list the commands");
    if (a->typed[0] == '-' && list == commands)
        offer(a, "--version", "show the version");
}

/* Where the cursor stands, told by the words before it. */
struct place {
    const struct option *pending; /* whose value is at the cursor; NULL: none */
    bool only_words;              /* behind "--" */
    int n_words;                  /* that are no flags */
};

static struct place find_place(struct asking *a)
{
    struct place place = {0};
    for (int i = 0; i < a->n_words; i++) {
        const char *word = a->words[i];
        if (place.pending) {
            place.pending = NULL;
        } else if (place.only_words || word[0] != '-' || word[1] == '\0') {
            if (place.n_words++ == 0)
                a->first = word;
        } else if (strcmp(word, "--") == 0) {
            place.only_words = true;
        } else {
            const struct option *option = option_named(a->command, word);
            if (option && option->type != OPTION_FLAG && !strchr(word, '='))
                place.pending = option;
        }
    }
    return place;
}

static void offer_arguments(struct asking *a)
{
    struct place place = find_place(a);
    const char *equals = strchr(a->typed, '=');
    const struct option *word = option_of_word(a->command, place.n_words);
    bool is_flag = !place.only_words && a->typed[0] == '-';
    const struct option *named = is_flag ? option_named(a->command, a->typed) : NULL;
    if (place.pending) {
        offer_values(a, place.pending);
    } else if (named && equals) {
        a->skip = (size_t)(equals + 1 - a->typed);
        offer_values(a, named);
    } else if (is_flag || !word) {
        offer_options(a);
    } else {
        offer_values(a, word);
    }
}

static void ask(struct asking *a, char *const *words, int n)
{
    const struct command *command = n > 2 ? command_find(words[1]) : NULL;
    int used = 2;
    if (n <= 2) {
        offer_commands(a, commands);
        return;
    }
    if (command && command->parts && n == 3) {
        offer_commands(a, command->parts);
        return;
    }
    if (command && command->parts)
        command = command_part(command, words[used++]);
    if (!command) {
        printf("words\n");
        return;
    }
    a->command = command;
    a->words = words + used;
    a->n_words = n - 1 - used;
    offer_arguments(a);
}

enum exit_code completion_print(char *const *words, int n)
{
    struct asking a = {.first = "", .typed = n > 1 ? words[n - 1] : "", .ending = ""};
    enum der_status status = der_ctx_new(NULL, &a.ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    ask(&a, words, n);
    der_ctx_free(a.ctx);
    return EXIT_OK;
}
