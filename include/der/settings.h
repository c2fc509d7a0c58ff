/*
 * Settings of a run: presets, and what can be changed about them.
 *
 * A preset is a protocol with every setting filled in; assignments "key=value" change settings,
 * except those that the protocol fixes. What is handed out as text belongs to the settings, or is of
 * static storage.
 */
#ifndef DER_SETTINGS_H
#define DER_SETTINGS_H

#include <der/context.h>

#include <stdbool.h>

/* A preset. Strings are of static storage. */
struct der_preset_info {
    const char *name;
    const char *summary; /* one line */
};

/* One thing that can be set. Strings are of static storage, `allowed` aside. */
struct der_setting_info {
    const char *key;
    const char *help;     /* one line */
    char allowed[256];    /* what it takes: "a number above 0, at most 16" */
    bool fixed_by_preset; /* only the preset "custom" leaves it free */
};

DER_API int der_preset_count(void);
DER_API DER_NODISCARD enum der_status der_preset_describe(struct der_ctx *ctx, int index,
                                                          struct der_preset_info *out);

DER_API int der_setting_count(void);
DER_API DER_NODISCARD enum der_status der_setting_describe(struct der_ctx *ctx, int index,
                                                           struct der_setting_info *out);

/* The choice-th word (from 0) that a setting may be, "true" and "false" of a switch; NULL when there is none, as where
 * it takes numbers or free text, or no such setting. Static storage. */
DER_API const char *der_setting_choice(const char *key, int choice);

/* All settings of a run, resolved. */
struct der_settings;

/* The settings of a preset for a method ("der", "finetune", "joint", "icarl", "wa", "bic"; NULL: "der") with n assignments
 * "key=value", whose order does not matter; only of several for one key the last counts. Unknown names are refused
 * with a suggestion, values with what is allowed. Caller frees with der_settings_free. */
DER_API DER_NODISCARD enum der_status der_settings_new(struct der_ctx *ctx, const char *preset,
                                                       const char *method,
                                                       const char *const *assignments, int n,
                                                       struct der_settings **out);
DER_API void der_settings_free(struct der_settings *settings);

/* The value of setting `index` as text, as an assignment would give it; "" for an index out of range.
 * Borrowed until the next call with these settings. */
DER_API const char *der_settings_value(struct der_settings *settings, int index);

/* All of them as a JSON object, indented, with a newline at the end. Borrowed as long as the settings
 * live. */
DER_API DER_NODISCARD enum der_status der_settings_json(struct der_settings *settings,
                                                        const char **text);

#endif
