/*
 * What the public settings hold, for the other functions of the interface that take them.
 */
#ifndef API_API_SETTINGS_H
#define API_API_SETTINGS_H

#include <der/settings.h>

#include "config/setting.h"

struct der_settings {
    struct der_ctx *ctx;
    struct config config;
    char value[SETTING_TEXT_MAX]; /* the latest answer of der_settings_value */
    char *json;                   /* the answer of der_settings_json; NULL before */
    char *plan;                   /* the latest answer of der_settings_plan_json; likewise */
};

#endif
