/*
 * The only door to the heap.
 *
 * Blocks are counted, so that tests can prove that a training step allocates nothing and that
 * every failed call gives back what it took, and the n-th request can be made to fail.
 */
#ifndef CORE_MEM_H
#define CORE_MEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MEM_ALIGNMENT = 64 }; /* of every block: one cache line, one AVX-512 register */

struct mem {
    atomic_uint_fast64_t n_allocs; /* requests so far, failed ones included */
    atomic_uint_fast64_t n_live;   /* blocks not yet freed */
    atomic_size_t live_bytes;      /* bytes not yet freed */
    atomic_size_t peak_bytes;      /* largest live_bytes seen */
    atomic_uint_fast64_t fail_at;  /* request number (from 1) that fails; 0: none does */
};

void mem_init(struct mem *mem);

/* count * size bytes, aligned to MEM_ALIGNMENT, uninitialised. NULL when memory is short, when
 * the product overflows, or when this request was chosen to fail. count * size may be 0. */
void *mem_alloc(struct mem *mem, size_t count, size_t size);

/* The same, filled with zeros. */
void *mem_zalloc(struct mem *mem, size_t count, size_t size);

/* Grows or shrinks a block; NULL leaves the old block as it was. `old` may be NULL. */
void *mem_realloc(struct mem *mem, void *old, size_t count, size_t size);

/* Gives a block back; NULL is allowed. */
void mem_free(struct mem *mem, void *block);

/* Copies a string. NULL when memory is short. */
char *mem_strdup(struct mem *mem, const char *text);

/* a * b and a + b with overflow detection; false on overflow. */
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);

#endif
