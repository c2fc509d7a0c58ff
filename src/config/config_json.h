/*
 * A configuration as a JSON object: one member a setting, in the order of the table.
 *
 * Numbers are numbers, switches are true or false, lists of epochs are arrays; so what is written
 * reads back as the very same configuration.
 */
#ifndef CONFIG_CONFIG_JSON_H
#define CONFIG_CONFIG_JSON_H

#include "config/config.h"
#include "json/json.h"

/* Caller frees with json_free. */
NODISCARD enum der_status config_to_json(struct der_ctx *ctx, const struct config *config,
                                         cJSON **out);

/* Reads an object that has every setting, once, and nothing else, each within its range and all of
 * them going together; what a protocol fixes must be as the preset has it. DER_FORMAT otherwise,
 * `source` opens the message and *config is as before. */
NODISCARD enum der_status config_from_json(struct der_ctx *ctx, const char *source,
                                           const cJSON *object, struct config *config);

#endif
