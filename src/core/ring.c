#include "core/ring.h"

#include <assert.h>

enum der_status ring_init(struct der_ctx *ctx, int capacity, struct ring *ring)
{
    assert(capacity > 0);
    *ring = (struct ring){.mem = &ctx->mem, .capacity = capacity};
    ring->slots = mem_zalloc(&ctx->mem, (size_t)capacity, sizeof *ring->slots);
    if (!ring->slots)
        return ctx_nomem(ctx);
    if (pthread_mutex_init(&ring->lock, NULL) != 0)
        goto fail_slots;
    if (pthread_cond_init(&ring->not_empty, NULL) != 0)
        goto fail_lock;
    if (pthread_cond_init(&ring->not_full, NULL) != 0)
        goto fail_not_empty;
    return DER_OK;

fail_not_empty:
    pthread_cond_destroy(&ring->not_empty);
fail_lock:
    pthread_mutex_destroy(&ring->lock);
fail_slots:
    mem_free(ring->mem, ring->slots);
    ring->slots = NULL;
    return ctx_fail(ctx, DER_NOMEM, "the system has no room for another lock");
}

void ring_fini(struct ring *ring)
{
    if (!ring->slots)
        return;
    pthread_cond_destroy(&ring->not_full);
    pthread_cond_destroy(&ring->not_empty);
    pthread_mutex_destroy(&ring->lock);
    mem_free(ring->mem, ring->slots);
    ring->slots = NULL;
}

bool ring_push(struct ring *ring, void *item)
{
    pthread_mutex_lock(&ring->lock);
    while (ring->n == ring->capacity && !ring->closed)
        pthread_cond_wait(&ring->not_full, &ring->lock);
    bool accepted = !ring->closed;
    if (accepted) {
        ring->slots[(ring->first + ring->n) % ring->capacity] = item;
        ring->n++;
        pthread_cond_signal(&ring->not_empty);
    }
    pthread_mutex_unlock(&ring->lock);
    return accepted;
}

bool ring_pop(struct ring *ring, void **item)
{
    pthread_mutex_lock(&ring->lock);
    while (ring->n == 0 && !ring->closed)
        pthread_cond_wait(&ring->not_empty, &ring->lock);
    bool delivered = ring->n > 0;
    if (delivered) {
        *item = ring->slots[ring->first];
        ring->first = (ring->first + 1) % ring->capacity;
        ring->n--;
        pthread_cond_signal(&ring->not_full);
    }
    pthread_mutex_unlock(&ring->lock);
    return delivered;
}

void ring_close(struct ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    ring->closed = true;
    pthread_cond_broadcast(&ring->not_empty);
    pthread_cond_broadcast(&ring->not_full);
    pthread_mutex_unlock(&ring->lock);
}
