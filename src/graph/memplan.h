/*
 * Memory planning: which temporaries of a program may share bytes.
 *
 * Values live from the node that writes them to the last node that reads them; two that are never
 * alive together may lie on top of each other. One block per program holds them all.
 */
#ifndef GRAPH_MEMPLAN_H
#define GRAPH_MEMPLAN_H

#include "graph/graph.h"

struct memplan_item {
    size_t bytes;  /* in: size; 0 asks for nothing */
    int first;     /* in: node that writes it */
    int last;      /* in: last node that touches it */
    size_t offset; /* out: from the start of the block, aligned to MEM_ALIGNMENT */
};

/* Assigns offsets, largest item first, each at the lowest place that is free over its whole life.
 * *total receives the size of the block. */
NODISCARD enum der_status memplan(struct der_ctx *ctx, struct memplan_item *items, int n,
                                  size_t *total);

/* first and last node that touch each value's memory ([n_values]; -1 where nothing does). An alias
 * keeps its owner alive; its own entries are -1. Caller's arrays. */
void graph_liveness(const struct graph *g, int *first, int *last);

/* The input position whose memory the node's output `out_position` may take over element by element,
 * or -1. The caller still has to see that the input dies there. */
int node_inplace_input(const struct node *node, int out_position);

#endif
