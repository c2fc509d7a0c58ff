/*
 * The folder of a run: config.json with everything it was started with, metrics.jsonl with one object a line,
 * the model, the exemplars, the predictions and the state after the latest save, and a lock while it is worked on.
 * docs/FORMATS.md describes the files.
 *
 * No file is ever ahead of the state. After a step model, exemplars and predictions are written beside their places
 * (NAME.next), then the state, which says how many steps are learnt, and only then they take their places. A
 * run that is opened again finishes that last part or throws away what the state does not know of; a kill
 * between any two calls thus leaves one state, and files that belong to it.
 */
#ifndef EXPERIMENT_RUN_FOLDER_H
#define EXPERIMENT_RUN_FOLDER_H

#include "io/io_calls.h"
#include "json/json.h"
#include "store/exemplar_file.h"
#include "store/model_file.h"
#include "store/prediction_file.h"
#include "store/state_file.h"

struct run_folder;

/* Makes the folder and writes config.json; `config` stays the caller's. A folder that holds a run
 * already is refused. `io`, here and below, is how files are written; NULL: the system's own calls. */
NODISCARD enum der_status run_folder_create(struct der_ctx *ctx, const struct io_calls *io,
                                            const char *path, const cJSON *config,
                                            struct run_folder **out);

/* The message for a folder that was to be new. */
enum der_status run_folder_refuse(struct der_ctx *ctx, const char *path);

/* Is there a run in the folder? */
NODISCARD enum der_status run_folder_has_run(struct der_ctx *ctx, const char *path, bool *has_run);

/* The state of the run in a folder; NULL: none was saved yet. Only reads, so that a finished run is left
 * alone. Caller frees with state_close. */
NODISCARD enum der_status run_folder_peek(struct der_ctx *ctx, const char *path,
                                          struct state_file **state);

/* Whether everything in the folder has its place. False for a run that was killed while it put its last files in
 * place, or wrote its last line and not yet its last state: run_folder_reopen brings them into line. A folder
 * without a state is what somebody kept of a run, and whole. */
NODISCARD enum der_status run_folder_is_whole(struct der_ctx *ctx, const char *path,
                                              bool *is_whole);

/* Opens the folder of a run that goes on: takes the lock, brings the files into line with the state, and cuts
 * metrics.jsonl to the lines that the state knows. *state is NULL when none was saved yet: the run begins
 * anew. Caller frees both, the state with state_close. */
NODISCARD enum der_status run_folder_reopen(struct der_ctx *ctx, const struct io_calls *io,
                                            const char *path, struct run_folder **out,
                                            struct state_file **state);
void run_folder_close(struct run_folder *folder);

/* Takes away the files of a run that was created by this folder and has nothing to show, neither a record nor a
 * state, so that another can begin there; any other run stays. The lock stays too, and NULL is allowed. */
void run_folder_withdraw(struct run_folder *folder);

/* Appends one object to metrics.jsonl; `object` is freed, also after a failure. NULL means that there was no
 * memory to make it. A folder of NULL takes everything and keeps nothing. */
NODISCARD enum der_status run_folder_record(struct run_folder *folder, struct der_ctx *ctx,
                                            cJSON *object);

/* Records in metrics.jsonl; 0 for a folder of NULL. */
int64_t run_folder_records(const struct run_folder *folder);

/* Saves a state within a step, all lines of metrics.jsonl before it; `run` and `metrics_lines` are filled in
 * here. */
NODISCARD enum der_status run_folder_save(struct run_folder *folder, struct run_state *state);

/* Saves what a finished step left: model, exemplars, predictions and state, all or none. */
NODISCARD enum der_status run_folder_save_step(struct run_folder *folder, const struct model *model,
                                               const struct exemplars *memory,
                                               const struct prediction_file *predictions,
                                               struct run_state *state);

/* The model and the exemplars that belong to the state of a reopened run. Caller frees both. */
NODISCARD enum der_status run_folder_load_model(struct run_folder *folder, struct backend *be,
                                                struct model **out);
NODISCARD enum der_status run_folder_load_exemplars(struct run_folder *folder, int capacity,
                                                    int64_t n_samples, struct exemplar_file **out);

#endif
