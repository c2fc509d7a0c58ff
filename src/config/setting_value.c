/*
 * Values of settings as text: reading with every check, and writing.
 */
#include "config/setting.h"

#include "core/decimal.h"
#include "core/suggest.h"
#include "core/utf8.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_SHOWN_MAX = 60, WORD_MAX = 24, CHOICES_MAX = 16 };

/* Enums are written through int. */
_Static_assert(sizeof(enum method) == sizeof(int), "enum");
_Static_assert(sizeof(enum memory_mode) == sizeof(int), "enum");
_Static_assert(sizeof(enum mask_init) == sizeof(int), "enum");
_Static_assert(sizeof(enum mask_gradient) == sizeof(int), "enum");
_Static_assert(sizeof(enum classifier_init) == sizeof(int), "enum");
_Static_assert(sizeof(enum distill) == sizeof(int), "enum");
_Static_assert(sizeof(enum readout) == sizeof(int), "enum");

static void append(char *text, size_t size, const char *word)
{
    size_t used = strlen(text);
    (void)snprintf(text + used, size - used, "%s", word);
}

static void list_choices(const struct setting *setting, char *text, size_t size)
{
    (void)snprintf(text, size, "one of");
    for (int i = 0; setting->choices[i]; i++) {
        append(text, size, i > 0 ? ", " : " ");
        append(text, size, setting->choices[i]);
    }
}

/* "a whole number from 1 to 100", "a number above 0, at most 16". */
static void range_text(const struct setting *setting, const char *kind, char *text, size_t size)
{
    char min[DECIMAL_TEXT_MAX];
    char max[DECIMAL_TEXT_MAX];
    decimal_write(setting->min, 16, min);
    decimal_write(setting->max, 16, max);
    if (!setting->is_above_min && !setting->is_below_max)
        (void)snprintf(text, size, "%s from %s to %s", kind, min, max);
    else
        (void)snprintf(text, size, "%s %s %s, %s %s", kind,
                       setting->is_above_min ? "above" : "at least", min,
                       setting->is_below_max ? "below" : "at most", max);
}

void setting_allowed(const struct setting *setting, char *text, size_t size)
{
    switch (setting->type) {
    case SETTING_INT:
    case SETTING_INT64:
        range_text(setting, "a whole number", text, size);
        return;
    case SETTING_COUNT:
        range_text(setting, "a whole number, also like 0.9M or 900k,", text, size);
        return;
    case SETTING_DOUBLE:
        range_text(setting, "a number", text, size);
        return;
    case SETTING_BOOL:
        (void)snprintf(text, size, "true or false");
        return;
    case SETTING_CHOICE:
        list_choices(setting, text, size);
        return;
    case SETTING_TEXT:
        if (setting->choices)
            list_choices(setting, text, size);
        else
            (void)snprintf(text, size, "a text of 1 to %d bytes, UTF-8 without control characters",
                           (int)setting->at.size - 1);
        return;
    case SETTING_EPOCHS:
        (void)snprintf(text, size, "up to %d epochs in ascending order, such as 110,130, or none",
                       SCHEDULE_MAX_DROPS);
        return;
    }
}

const char *setting_choice(const struct setting *setting, int i)
{
    static const char *const switches[] = {"true", "false", NULL};
    const char *const *words = setting->type == SETTING_BOOL ? switches : setting->choices;
    int n = 0;
    while (words && words[n])
        n++;
    return i >= 0 && i < n ? words[i] : NULL;
}

/* The choice that a mistyped one is closest to; NULL when none is close. */
static const char *suggest_choice(const struct setting *setting, const char *text)
{
    const char *words[CHOICES_MAX];
    int n = 0;
    while (n < CHOICES_MAX && setting_choice(setting, n)) {
        words[n] = setting_choice(setting, n);
        n++;
    }
    return suggest_word(text, words, n, sizeof *words);
}

static enum der_status refuse(struct der_ctx *ctx, const struct setting *setting, const char *text)
{
    char allowed[CTX_ERROR_MAX / 2];
    setting_allowed(setting, allowed, sizeof allowed);
    const char *close = suggest_choice(setting, text);
    if (close)
        return ctx_fail(ctx, DER_ARG, "%s=%.*s is refused; did you mean '%s'? %s takes %s",
                        setting->key, VALUE_SHOWN_MAX, text, close, setting->key, allowed);
    return ctx_fail(ctx, DER_ARG, "%s=%.*s is refused: %s takes %s", setting->key, VALUE_SHOWN_MAX,
                    text, setting->key, allowed);
}

static bool in_range(const struct setting *setting, double value)
{
    bool high = setting->is_above_min ? value > setting->min : value >= setting->min;
    bool low = setting->is_below_max ? value < setting->max : value <= setting->max;
    return high && low;
}

/* A whole number of at most 2^53, so that a double holds it. */
static bool read_whole(const char *text, double *value)
{
    size_t digits = strspn(text + (text[0] == '-'), "0123456789");
    const char *end;
    return digits > 0 && decimal_read(text, value, &end) && !*end && fabs(*value) <= 0x1p53 &&
           strpbrk(text, ".eE") == NULL;
}

/* "900000", "900k", "0.9M", "2G". */
static bool read_count(const char *text, double *value)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}};
    if (read_whole(text, value))
        return true;
    const char *end;
    if (!decimal_read(text, value, &end))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].suffix) == 0) {
            *value = round(*value * units[i].factor);
            return fabs(*value) <= 0x1p53;
        }
    }
    return false;
}

static bool read_epochs(const char *text, struct schedule *schedule)
{
    schedule->n_drops = 0;
    memset(schedule->drop, 0, sizeof schedule->drop);
    if (strcmp(text, "none") == 0)
        return true;
    for (int i = 0; i < SCHEDULE_MAX_DROPS; i++) {
        size_t length = strspn(text, "0123456789");
        if (length == 0 || length > 6)
            return false;
        schedule->drop[i] = (int)strtol(text, NULL, 10);
        schedule->n_drops = i + 1;
        if (i > 0 && schedule->drop[i] <= schedule->drop[i - 1])
            return false;
        text += length;
        if (!*text)
            return true;
        if (*text++ != ',')
            return false;
    }
    return false;
}

/* The position of a word in a list that ends with NULL; -1: not there. */
static int position(const char *const *words, const char *word)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

static bool is_plain_text(const struct setting *setting, const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length >= setting->at.size)
        return false;
    if (!utf8_is_valid(text, length))
        return false; /* it is stored as JSON */
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return !setting->choices || position(setting->choices, text) >= 0;
}

static void put(const struct setting *setting, struct config *config, const void *value,
                size_t size)
{
    assert(size <= setting->at.size);
    memcpy((char *)config + setting->at.offset, value, size);
}

/* A choice lies in an enum, or in a bool where there are two. */
static void put_choice(const struct setting *setting, struct config *config, int choice)
{
    bool flag = choice == 1;
    if (setting->at.size == sizeof flag)
        put(setting, config, &flag, sizeof flag);
    else
        put(setting, config, &choice, sizeof choice);
}

/* The nearest number of 15 digits. All of them read back as themselves, in text and in JSON, whose
 * writer does not promise that of a 16th or 17th digit. */
static double round_to_digits(double value)
{
    char text[DECIMAL_TEXT_MAX];
    const char *end;
    decimal_write(value, 15, text);
    (void)decimal_read(text, &value, &end);
    return value + 0.0; /* no negative zero */
}

static bool read_value(const struct setting *setting, const char *text, double *value)
{
    const char *end;
    if (setting->type == SETTING_COUNT)
        return read_count(text, value);
    if (setting->type != SETTING_DOUBLE)
        return read_whole(text, value);
    if (!decimal_read(text, value, &end) || *end)
        return false;
    *value = round_to_digits(*value);
    return true;
}

static bool store_number(const struct setting *setting, const char *text, struct config *config)
{
    double value;
    if (!read_value(setting, text, &value) || !in_range(setting, value))
        return false;
    int64_t whole = setting->type == SETTING_DOUBLE ? 0 : (int64_t)value;
    int small = setting->type == SETTING_INT ? (int)value : 0;
    if (setting->type == SETTING_DOUBLE)
        put(setting, config, &value, sizeof value);
    else if (setting->type == SETTING_INT)
        put(setting, config, &small, sizeof small);
    else
        put(setting, config, &whole, sizeof whole);
    return true;
}

static bool store_word(const struct setting *setting, const char *text, struct config *config)
{
    static const char *const FLAGS[] = {"false", "true", NULL};
    int choice = position(setting->type == SETTING_BOOL ? FLAGS : setting->choices, text);
    if (choice >= 0)
        put_choice(setting, config, choice);
    return choice >= 0;
}

static bool store_text(const struct setting *setting, const char *text, struct config *config)
{
    if (!is_plain_text(setting, text))
        return false;
    char *field = (char *)config + setting->at.offset;
    memset(field, 0, setting->at.size);
    memcpy(field, text, strlen(text));
    return true;
}

static bool store_epochs(const struct setting *setting, const char *text, struct config *config)
{
    struct schedule schedule;
    memcpy(&schedule, setting_at(setting, config), sizeof schedule);
    if (!read_epochs(text, &schedule))
        return false;
    put(setting, config, &schedule, sizeof schedule);
    return true;
}

enum der_status setting_store(struct der_ctx *ctx, const struct setting *setting, const char *text,
                              struct config *config)
{
    bool stored = false;
    switch (setting->type) {
    case SETTING_INT:
    case SETTING_INT64:
    case SETTING_COUNT:
    case SETTING_DOUBLE:
        stored = store_number(setting, text, config);
        break;
    case SETTING_BOOL:
    case SETTING_CHOICE:
        stored = store_word(setting, text, config);
        break;
    case SETTING_TEXT:
        stored = store_text(setting, text, config);
        break;
    case SETTING_EPOCHS:
        stored = store_epochs(setting, text, config);
        break;
    }
    return stored ? DER_OK : refuse(ctx, setting, text);
}

static void format_choice(const struct setting *setting, const void *field, char *text)
{
    int choice = 0;
    int n = 0;
    if (setting->at.size == sizeof(bool))
        choice = *(const bool *)field;
    else
        memcpy(&choice, field, sizeof choice);
    while (setting->choices[n])
        n++;
    bool known = choice >= 0 && choice < n;
    (void)snprintf(text, SETTING_TEXT_MAX, "%s", known ? setting->choices[choice] : "?");
}

static void format_epochs(const struct schedule *schedule, char *text)
{
    (void)snprintf(text, SETTING_TEXT_MAX, "%s", schedule->n_drops > 0 ? "" : "none");
    for (int i = 0; i < schedule->n_drops && i < SCHEDULE_MAX_DROPS; i++) {
        char word[WORD_MAX];
        (void)snprintf(word, sizeof word, "%s%d", i > 0 ? "," : "", schedule->drop[i]);
        append(text, SETTING_TEXT_MAX, word);
    }
}

void setting_format(const struct setting *setting, const struct config *config,
                    char text[SETTING_TEXT_MAX])
{
    const void *field = setting_at(setting, config);
    switch (setting->type) {
    case SETTING_INT:
        (void)snprintf(text, SETTING_TEXT_MAX, "%d", *(const int *)field);
        return;
    case SETTING_INT64:
    case SETTING_COUNT:
        (void)snprintf(text, SETTING_TEXT_MAX, "%lld", (long long)*(const int64_t *)field);
        return;
    case SETTING_DOUBLE:
        decimal_write(*(const double *)field, 15, text);
        return;
    case SETTING_BOOL:
        (void)snprintf(text, SETTING_TEXT_MAX, "%s", *(const bool *)field ? "true" : "false");
        return;
    case SETTING_CHOICE:
        format_choice(setting, field, text);
        return;
    case SETTING_TEXT:
        (void)snprintf(text, SETTING_TEXT_MAX, "%.*s", (int)setting->at.size - 1,
                       (const char *)field);
        return;
    case SETTING_EPOCHS:
        format_epochs(field, text);
        return;
    }
}

const void *setting_at(const struct setting *setting, const struct config *config)
{
    return (const char *)config + setting->at.offset;
}
