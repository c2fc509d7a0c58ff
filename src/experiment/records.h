/*
 * The objects of a run's files. docs/FORMATS.md lists their keys.
 *
 * Each function returns an object that run_folder_record takes over, NULL when memory is short.
 */
#ifndef EXPERIMENT_RECORDS_H
#define EXPERIMENT_RECORDS_H

#include "experiment/experiment.h"
#include "experiment/latency.h"
#include "json/json.h"
#include "method/probe.h"

/* Everything about a finished step. */
struct step_record {
    const struct step_report *report;
    const struct incremental *metrics;
    const struct learner *learner;
    const int *first_class; /* of every step of the protocol, and the end of the last */
    double ms_per_iter;     /* of the representation stage */
    int64_t peak_bytes;     /* of the process so far */
    const int64_t
        *confusion; /* [step, step] images of the classes of step i taken for those of step j */
    const struct probe_reading *reading; /* may be NULL, as the next two */
    const struct probe_reference *reference;
    const struct latency_report *latency;
};

/* What a run is started with. */
struct record_start {
    const struct experiment_options *options;
    const cJSON *settings;
    const struct dataset *set;
    const struct class_order *order;
    uint64_t init_checksum; /* where the options have `init` */
    int threads;
};

/* A fingerprint as a record has it. */
enum { CHECKSUM_TEXT = 17 };
const char *record_checksum(uint64_t checksum, char text[CHECKSUM_TEXT]);

/* Can config.json name what a run is started with? Names of files need not be UTF-8, JSON must be, and a name that
 * was changed would not be found again. */
NODISCARD enum der_status record_check_names(struct der_ctx *ctx,
                                             const struct experiment_options *options);

/* config.json; run_record.h reads it. NULL without message when memory is short. */
cJSON *record_config(const struct record_start *start);

/* "f32"; "representation,transfer", "" for nothing. */
enum { MEASURES_TEXT = 64 };
const char *precision_name(enum precision precision);
/* The other way; false when it is the name of none. */
bool precision_from_name(const char *name, enum precision *out);
const char *measure_names(unsigned measure, char text[MEASURES_TEXT]);
bool measures_from_names(const char *names, unsigned *out);

/* How a run goes on that was started on another device. */
cJSON *record_moved(const struct experiment_options *options, int threads);
cJSON *record_epoch(int step, const struct train_progress *progress, const struct learner *learner);
cJSON *record_step(const struct step_record *step);
cJSON *record_end(const struct experiment_summary *summary);

#endif
