/*
 * config.json read back: what a run was started with, and whether it may go on with what is asked now.
 */
#ifndef EXPERIMENT_RUN_RECORD_H
#define EXPERIMENT_RUN_RECORD_H

#include "experiment/experiment.h"
#include "json/json.h"

struct run_record {
    cJSON *root;                   /* owner of the texts */
    struct config config;          /* the settings */
    const char *data, *class_list; /* class_list may be NULL */
    const char *data_checksum;
    const char *init, *init_checksum; /* NULL where the run began at random */
    const char *device, *precision, *bad_images, *measure;
    bool deterministic;
    int threads, max_steps;
    const char *version, *onednn, *cuda; /* of what ran it */
};

/* Reads RUN/config.json. Free with run_record_fini, also after a failure. */
NODISCARD enum der_status run_record_read(struct der_ctx *ctx, const char *folder,
                                          struct run_record *out);
void run_record_fini(struct run_record *record);

/* Was another device asked for than the run was started on? Precision, number of threads and `deterministic`
 * are then what the options say. */
bool run_record_is_moved(const struct run_record *record, const struct experiment_options *options);

/* Tells the log of it. */
void run_record_warn_moved(struct der_ctx *ctx, const struct run_record *record,
                           const struct experiment_options *options);

/* Are these the settings of the run in `folder`? Those that differ are DER_ARG and named. */
NODISCARD enum der_status run_record_check_settings(struct der_ctx *ctx,
                                                    const struct run_record *record,
                                                    const char *folder,
                                                    const struct config *config);

/* May the run go on with these options? A difference that would change results is DER_ARG and named, but for
 * what comes with another device. */
NODISCARD enum der_status run_record_check(struct der_ctx *ctx, const struct run_record *record,
                                           const struct experiment_options *options);

/* Is it the same data set, and does the order, which may come from a file, still say the same? */
NODISCARD enum der_status run_record_check_data(struct der_ctx *ctx,
                                                const struct run_record *record,
                                                const struct dataset *set,
                                                const struct class_order *order);

/* Is it the file of weights that the run was started with, wherever it lies now? */
NODISCARD enum der_status run_record_check_init(struct der_ctx *ctx,
                                                const struct run_record *record, const char *path,
                                                uint64_t checksum);

/* Tells the log of versions that differ: results may then differ in their last bits. */
void run_record_compare_versions(struct der_ctx *ctx, const struct run_record *record,
                                 const char *folder);

#endif
