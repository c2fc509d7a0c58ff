/*
 * Bounded queue of pointers between threads: the only thing loader threads share with the trainer.
 *
 * One mutex and two condition variables. Closing wakes everybody: pushes fail from then on, pops
 * still drain what is queued and fail once it is empty, so nobody can be left waiting.
 */
#ifndef CORE_RING_H
#define CORE_RING_H

#include "core/ctx.h"

#include <pthread.h>
#include <stdbool.h>

struct ring {
    struct mem *mem;          /* where `slots` came from */
    pthread_mutex_t lock;     /* guards everything below */
    pthread_cond_t not_empty; /* signalled by push and close */
    pthread_cond_t not_full;  /* signalled by pop and close */
    void **slots;             /* [capacity], NULL before ring_init and after ring_fini */
    int capacity;
    int first; /* slot of the oldest item */
    int n;     /* items queued */
    bool closed;
};

/* An empty, open ring. On failure nothing is left to be freed. */
NODISCARD enum der_status ring_init(struct der_ctx *ctx, int capacity, struct ring *ring);

/* No thread may be inside a call any more. A zeroed ring that was never initialised is allowed. */
void ring_fini(struct ring *ring);

/* Waits while the ring is full; false when it is closed, and the item stays the caller's. */
NODISCARD bool ring_push(struct ring *ring, void *item);

/* Waits while the ring is empty; false when it is empty and closed. */
NODISCARD bool ring_pop(struct ring *ring, void **item);

/* Ends the traffic for good; may be called by any thread, more than once. */
void ring_close(struct ring *ring);

#endif
