/*
 * The table of settings: what each is called, what it may be, where it lies in struct config.
 *
 * The command line, the record of a run, the listing of presets and the check of a configuration
 * all walk this one table. Every value has a text form, and setting_store is the only way a text
 * becomes a value, wherever the text comes from.
 */
#ifndef CONFIG_SETTING_H
#define CONFIG_SETTING_H

#include "config/config.h"

enum { SETTING_TEXT_MAX = CONFIG_PATH }; /* bytes of any value's text, its end included */

enum setting_type {
    SETTING_INT,
    SETTING_INT64,  /* also for uint64_t: values stay below 10^15 */
    SETTING_COUNT,  /* int64_t, also written "0.9M" or "900k" */
    SETTING_DOUBLE, /* of 15 significant digits */
    SETTING_BOOL,
    SETTING_CHOICE, /* an enum or a bool; `choices` in the order of its values */
    SETTING_TEXT,   /* an array of char; with `choices`, one of them */
    SETTING_EPOCHS  /* the drops of a schedule: "110,130" or "none" */
};

/* Who decides. */
enum setting_owner {
    OWNER_USER,     /* anybody, at any time */
    OWNER_PROTOCOL, /* the preset's protocol; free in the preset `custom` */
    OWNER_PRESET    /* it is the preset */
};

/* Overrides are applied by rank, so that their order does not matter: what sets many fields at once
 * comes before what sets one of them. */
enum setting_rank {
    RANK_METHOD = -2, /* sets the switches of the method */
    RANK_EPOCHS,      /* scales a schedule */
    RANK_COMMON,
    RANK_FIRST_EPOCHS, /* scales the schedule of step 1, which so far followed the other steps' */
    RANK_FIRST,
    RANK_END
};

struct setting {
    const char *key;
    const char *help; /* one line */
    enum setting_type type;
    enum setting_owner owner;
    enum setting_rank rank;
    struct {
        size_t offset, size;
    } at;                            /* the field of struct config */
    size_t schedule;                 /* offset of the schedule it belongs to; 0: none */
    bool scales;                     /* it is the length of that schedule */
    double min, max;                 /* of numbers */
    bool is_above_min, is_below_max; /* the bound itself is not allowed */
    const char *const *choices;      /* ends with NULL */
    bool is_of_masks;                /* without pruning nothing depends on it */
    /* What a record that is older than the setting was made with; NULL: every record has it. */
    const char *absent;
};

extern const struct setting setting_table[];
extern const int n_settings;

/* An unknown key is DER_ARG, and the message suggests a known one. */
NODISCARD enum der_status setting_find(struct der_ctx *ctx, const char *key,
                                       const struct setting **out);

/* What it may be, in words: "a number above 0, at most 16". */
void setting_allowed(const struct setting *setting, char *text, size_t size);

/* The i-th word (from 0) that it may be, where it takes one of a few; NULL: there is none. */
const char *setting_choice(const struct setting *setting, int i);

/* Reads a value. Out of range or malformed: DER_ARG, the message names key, value and what is
 * allowed, and the configuration is as before. Nothing but the one field changes. */
NODISCARD enum der_status setting_store(struct der_ctx *ctx, const struct setting *setting,
                                        const char *text, struct config *config);

/* The text that setting_store would read the same value from. */
void setting_format(const struct setting *setting, const struct config *config,
                    char text[SETTING_TEXT_MAX]);

/* The field itself, for those who know its type. */
const void *setting_at(const struct setting *setting, const struct config *config);

#endif
