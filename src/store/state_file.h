/*
 * State files: what training needs to go on and prediction does not.
 *
 * A run's state is all that cannot be computed again from its settings, its data and its model and exemplar
 * files: where it stands, what was measured so far, and the parameters that are being trained, with their
 * velocities. Random draws are functions of seed and position, so there is no generator to save. Times are
 * no part of it: a run that was interrupted ends with the same bytes as one that was not.
 */
#ifndef STORE_STATE_FILE_H
#define STORE_STATE_FILE_H

#include "io/io_calls.h"
#include "metrics/incremental.h"
#include "model/resnet.h"

#include <assert.h>

enum { STATE_MAX_MODULES = 6, STATE_MAX_STEPS = 128 };

enum run_phase {
    PHASE_BETWEEN,        /* steps are finished, the next one has not begun to train */
    PHASE_REPRESENTATION, /* within the first stage of a step */
    PHASE_CLASSIFIER,     /* within the second */
    PHASE_FINISHED        /* all steps are */
};

/* Parameters in a state file: a set under its name, which ends in a dot. */
struct state_module {
    const char *name;
    struct param_set *set;
    bool moving; /* it is being trained: velocities too */
};

/* Where training stands within a step. */
struct stage_point {
    enum run_phase phase;
    int epoch;                 /* epochs done of the stage, at least 1; 0 outside of stages */
    double lambda_s;           /* PHASE_REPRESENTATION: weight of the sparsity loss */
    double size_error;         /* PHASE_REPRESENTATION: what its steering saw last */
    int64_t start_params;      /* PHASE_REPRESENTATION: size that its steering began with */
    struct resnet_spec newest; /* PHASE_CLASSIFIER: the pruned network that no model file has yet */
    struct state_module modules[STATE_MAX_MODULES]; /* [n_modules]; for writing alone */
    int n_modules;
};

/* Adds a module; without a set there is none to add. */
static inline void stage_point_add(struct stage_point *point, struct state_module module)
{
    if (!module.set)
        return;
    assert(point->n_modules < STATE_MAX_MODULES);
    point->modules[point->n_modules++] = module;
}

struct run_state {
    struct stage_point point;
    int step, n_steps;     /* steps of the protocol: finished, in all */
    int64_t metrics_lines; /* of metrics.jsonl; not bytes, which depend on how times are printed */
    uint64_t run;          /* fingerprint of config.json: states of other runs are refused */
    const struct incremental *metrics; /* tests of the finished steps */
    const double *representation;      /* [n_steps, n_steps] A^i_j; 0 where not measured */
    const double *reference;           /* [n_steps] Abar^i; likewise */
    double bound_sum, reference_own;
};

/* Writes a state as durable.h does. `io` may be NULL. */
NODISCARD enum der_status state_write(struct der_ctx *ctx, const struct io_calls *io,
                                      const char *path, const struct run_state *state);

/* A state that is being read: its numbers are there and checked, modules are fetched by name. */
struct state_file {
    struct der_ctx *ctx;
    struct run_state state;
    struct incremental *metrics; /* owner of state.metrics */
    double *measured;            /* owner of representation and reference */
    char *path;
    struct safetensors_file *tensors;
    int n_read; /* tensors fetched so far */
};

/* Whatever is wrong with the file is DER_FORMAT. `io` may be NULL and must outlive the file. */
NODISCARD enum der_status state_open(struct der_ctx *ctx, const struct io_calls *io,
                                     const char *path, struct state_file **out);
void state_close(struct state_file *file);

/* Fills an allocated set from the module of that name. */
NODISCARD enum der_status state_restore(struct state_file *file, const char *name,
                                        struct param_set *set, bool moving);

/* After the last module: was everything in the file asked for? */
NODISCARD enum der_status state_check_done(const struct state_file *file);

#endif
