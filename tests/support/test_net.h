/*
 * A small network with everything in it, and a way to run graphs whole.
 *
 * Stem with max pooling, a block with projection, a block without, channel masks, features joined
 * into a matrix, a main and an auxiliary head, several losses. Small enough for finite differences,
 * odd enough (3, 5, 7 channels) to trip over layouts.
 */
#ifndef SUPPORT_TEST_NET_H
#define SUPPORT_TEST_NET_H

#include "graph/backend.h"

enum { NET_MAX_VALUES = 64 };

struct test_net_options {
    bool frozen; /* the extractor is not trained: evaluation mode, no masks */
    bool masks;
    bool fuse;
    bool backward;
    bool sgd;
};

/* Ids of values; the same for equal options but `fuse`. */
struct test_net {
    struct graph *g;
    int params[NET_MAX_VALUES]; /* trainable */
    int n_params;
    int states[NET_MAX_VALUES]; /* running statistics, features, losses: written by a run */
    int n_states;
    int losses[NET_MAX_VALUES]; /* with their weights, for the sum that is differentiated */
    int loss_weights[NET_MAX_VALUES];
    int n_losses;
    int velocity[NET_MAX_VALUES]; /* [n_params] with sgd */
};

void test_net_init(struct test_net *net, struct der_ctx *ctx,
                   const struct test_net_options *options);
void test_net_fini(struct test_net *net);

/* ---- running a whole graph ----------------------------------------------------------------- */

struct graph_runner {
    const struct graph *g; /* borrowed */
    struct program *program;
    struct sequence *sequence;
    struct buffer **buffers; /* [g->n_values], NULL where not external */
};

/* Compiles, gives every external value a buffer and fills it by its name. */
void graph_runner_init(struct graph_runner *runner, struct backend *be, const struct graph *g);
void graph_runner_fini(struct graph_runner *runner);

/* Runs once. */
void graph_runner_run(struct graph_runner *runner);

/* Dense content of an external value; caller frees. */
float *graph_runner_read(const struct graph_runner *runner, int value);
void graph_runner_write(struct graph_runner *runner, int value, const float *data);

#endif
