/*
 * Bump allocator for things that live and die together: a graph, a plan, a parsed file.
 */
#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include "core/mem.h"

struct arena_chunk;

struct arena {
    struct mem *mem;            /* where chunks come from */
    struct arena_chunk *chunks; /* newest first */
};

/* Takes no memory yet, so it cannot fail. */
void arena_init(struct arena *arena, struct mem *mem);

/* Frees everything that was taken from the arena. */
void arena_fini(struct arena *arena);

/* count * size zeroed bytes, aligned for any type; NULL when memory is short. */
void *arena_zalloc(struct arena *arena, size_t count, size_t size);

/* Copies a string into the arena; NULL when memory is short. */
char *arena_strdup(struct arena *arena, const char *text);

/* printf into the arena; NULL when memory is short. */
char *arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
