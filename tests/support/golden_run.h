/*
 * A graph made ready to run in a test: compiled, with a buffer of its own behind every external
 * value that nothing else is bound to.
 *
 * For tests only: a call that fails, fails the running cmocka test with its message.
 */
#ifndef SUPPORT_GOLDEN_RUN_H
#define SUPPORT_GOLDEN_RUN_H

#include "graph/backend.h"

/* A context, and a back end opened in it. */
struct golden_rig {
    struct der_ctx *ctx;
    struct backend *be;
};

void golden_rig_init(struct golden_rig *rig, const struct backend_ops *ops);
/* Closes both and checks that no memory is left. */
void golden_rig_fini(struct golden_rig *rig);

struct golden_run {
    const struct graph *g; /* borrowed; must outlive the run */
    struct program *program;
    struct sequence *sequence;
    struct buffer **buffers; /* [g->n_values], NULL where a value is not external */
};

/* Compiles the graph and binds every external value to memory of its own. Bind anew what lives
 * elsewhere. */
void golden_run_init(struct golden_run *run, const struct golden_rig *rig, const struct graph *g);
void golden_run_fini(struct golden_run *run);

/* Whole values, from and to the host. */
void golden_run_write(struct golden_run *run, int value, const void *host);
void golden_run_scalar(struct golden_run *run, int value, float scalar);
/* Result to be given to free(). */
void *golden_run_read(const struct golden_run *run, int value);
float golden_run_read_scalar(const struct golden_run *run, int value);

void golden_run_once(struct golden_run *run);

#endif
