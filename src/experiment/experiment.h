/*
 * An experiment: one method through one protocol on one data set, from the first class to the last,
 * measured after every step and written down in a run folder.
 */
#ifndef EXPERIMENT_EXPERIMENT_H
#define EXPERIMENT_EXPERIMENT_H

#include "config/config.h"
#include "json/json.h"
#include "method/learner.h"
#include "metrics/incremental.h"

/* What is measured on request; each needs training or timing that a plain run does not. */
enum measure {
    MEASURE_REPRESENTATION = 1, /* A^t_{Y_k}, BWT and the bound of the classifier */
    MEASURE_TRANSFER = 2,       /* FWT; comes with the representation */
    MEASURE_LATENCY = 4
};

/* One finished step, as hooks hear of it. */
struct step_report {
    int step, n_steps; /* from 1; in all */
    int n_classes;     /* learnt so far */
    double top1, top5; /* per cent over all of them */
    double avg_top1, avg_top5;
    double forgetting;
    int64_t params, params_total; /* of the extractors; with the classifier */
    double avg_params;
    double seconds; /* of the step, its tests included, what is measured on request not */
};

struct experiment_hooks {
    void (*progress)(void *user, const struct train_progress *progress); /* may be NULL */
    void (*step)(void *user, const struct step_report *report);          /* may be NULL */
    bool (*cancelled)(void *user);                                       /* may be NULL */
    void *user;
};

/* How a run begins, for who looks on. */
struct run_beginning {
    const char *out; /* its folder; may be NULL */
    int64_t
        n_records; /* of metrics.jsonl that stay; those after them come now, perhaps once more */
};

/* Who looks on while a run goes. It hears of every record of metrics.jsonl, and may look at the learner for what
 * is not in it. Once a run has begun, a listener cannot fail it. */
struct experiment_listener {
    NODISCARD enum der_status (*begin)(void *user, const struct run_beginning *run);
    void (*record)(void *user, const cJSON *object, const struct learner *learner);
    void (*end)(void *user); /* after each begin that succeeded, however the run ended */
    void *user;
};

struct experiment_options {
    struct config config;
    const char *data; /* folder of a data set, or "synth:..."; resume: NULL is the run's own */
    const char *class_list; /* image folders: a file with the classes to use; may be NULL */
    const char *
        init; /* file of weights to begin with (struct learner_options); may be NULL; resume: NULL is
                       * the run's own, and the file is needed only where a network is yet to begin */
    const char *out;      /* run folder to make; NULL: nothing is written */
    bool resume;          /* go on with the run in `out`; where there is none yet, begin it */
    bool stored_settings; /* resume: a run that is there has its own; `config` is for a new one */
    int save_every;       /* epochs from save to save within a step; 0: only after steps */
    double save_pause;    /* seconds from save to save at least, where epochs are short */
    const char *backend;  /* resume: NULL is the run's own */
    struct backend_options backend_options;
    enum bad_images bad_images;
    int loader_threads;
    int max_steps;    /* stop after so many steps; 0: all */
    unsigned measure; /* bits of enum measure */
    struct experiment_hooks hooks;
    const struct experiment_listener *listener; /* borrowed; may be NULL */
};

/* Numbers over all steps; NAN where they were not measured. */
struct experiment_summary {
    int steps, n_classes;
    int64_t n_train, n_test; /* images */
    bool on_validation;      /* tests were on held-out training images */
    bool was_finished; /* there was nothing left to do; of the rest only `last` is filled in */
    struct step_report last;
    double bwt, fwt;
    double bound; /* average over the steps of the classifier's upper bound */
    double seconds;
};

/* Runs what is left to do. A run that is resumed must have the same settings, data, precision, number of threads
 * and measurements: anything else is DER_ARG and told by name. Another back end may be asked for, and with it
 * another precision and number of threads; that and other versions of the libraries are told to the log. */
NODISCARD enum der_status experiment_run(struct der_ctx *ctx,
                                         const struct experiment_options *options,
                                         struct experiment_summary *out);

#endif
