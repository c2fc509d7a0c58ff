/*
 * The folder of a run: config.json with every setting used, metrics.jsonl with one object a line, and a
 * lock while it is worked on. docs/FORMATS.md describes both files.
 */
#ifndef EXPERIMENT_RUN_FOLDER_H
#define EXPERIMENT_RUN_FOLDER_H

#include "json/json.h"

struct run_folder;

/* Makes the folder and writes config.json; `config` stays the caller's. A folder that holds a run
 * already is refused. */
NODISCARD enum der_status run_folder_create(struct der_ctx *ctx, const char *path,
                                            const cJSON *config, struct run_folder **out);

/* Appends one object to metrics.jsonl; `object` is freed, also after a failure. NULL means that there was no
 * memory to make it. A folder of NULL takes everything and keeps nothing. */
NODISCARD enum der_status run_folder_record(struct run_folder *folder, struct der_ctx *ctx,
                                            cJSON *object);

/* Everything recorded so far has reached the disk. */
NODISCARD enum der_status run_folder_sync(struct run_folder *folder);

void run_folder_close(struct run_folder *folder);

#endif
