/*
 * What opening, running, saving and resuming an experiment share.
 */
#ifndef EXPERIMENT_EXPERIMENT_INTERNAL_H
#define EXPERIMENT_EXPERIMENT_INTERNAL_H

#include "experiment/experiment.h"
#include "experiment/run_folder.h"
#include "experiment/run_record.h"

/* Everything a run opens, so that one function closes it. */
struct experiment {
    struct der_ctx *ctx;
    struct experiment_options options; /* of a resumed run: completed by its record */
    struct run_record record;          /* of a resumed run; root is NULL otherwise */
    struct dataset *set;
    struct class_order *order;
    const char *
        *classes; /* [set->n_classes] names in learning order; owned, not what they point to */
    struct data_view *train, *test;
    enum data_split test_split;
    struct backend *be;
    struct learner *learner;
    struct run_folder *folder;
    struct state_file *from; /* where a resumed run stands; NULL: at the beginning */
    struct incremental *metrics;
    int n_steps;
    int first_class[LEARNER_MAX_STEPS +
                    1];       /* of every step of the protocol, and the end of the last */
    uint64_t init_checksum;   /* of the file of weights, where there is one and it is needed */
    struct evaluation tested; /* the latest test; zero before the first */
    double *representation;   /* [n_steps, n_steps] A^i_j, where measured */
    double *reference;        /* [n_steps] Abar^i, where measured */
    double reference_own;     /* of the present step */
    double bound_sum;         /* of the classifier's upper bounds */
    double ms_per_iter;       /* of the newest representation stage; NAN: it was not run here */
    int step;                 /* steps of the protocol that are finished */
    double start;             /* clock when it was opened */
    double saved;             /* clock of the latest save, or when it was opened */
    bool is_moved;            /* a resumed run was started on another device */
    bool is_heard;            /* the listener was told that the run begins */
};

/* The first step that is run, from 0: joint training at the end sees all classes of the steps before at once. */
static inline int experiment_first_step(const struct experiment *x)
{
    const struct config *config = &x->options.config;
    return config->method == METHOD_JOINT && config->joint_last ? x->n_steps - 1 : 0;
}

/* experiment_open.c */
NODISCARD enum der_status experiment_open(struct experiment *x);
/* Data set and order of the classes alone: of a resumed run, they must be what it was started with. */
NODISCARD enum der_status experiment_open_data(struct experiment *x);
void experiment_close(struct experiment *x);

/* experiment_save.c: to the run folder, and back from it. */
NODISCARD enum der_status experiment_save_point(void *user, const struct stage_point *point);
NODISCARD enum der_status experiment_save_step(struct experiment *x);
/* What the metrics, the numbers measured so far and the learner of a fresh run become. */
NODISCARD enum der_status experiment_restore(struct experiment *x);

/* The numbers of the latest test. */
void experiment_report(const struct incremental *metrics, struct step_report *report);

#endif
