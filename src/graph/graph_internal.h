/*
 * What the files of this room share and nobody else needs.
 */
#ifndef GRAPH_GRAPH_INTERNAL_H
#define GRAPH_GRAPH_INTERNAL_H

#include "graph/graph.h"

/* Marks every value whose gradient some trainable parameter asks for: trainable parameters and what
 * is computed from them. wants is [g->n_values]. */
void graph_mark_wanted(const struct graph *g, bool *wants);

/* True for ops whose second output is the gradient of a weighted loss. */
bool op_is_loss(enum op op);

#endif
