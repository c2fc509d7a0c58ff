#include "core/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *next; /* older chunk */
    size_t used;              /* bytes handed out of data */
    size_t size;              /* bytes in data */
    _Alignas(16) char data[]; /* the memory itself */
};

enum { CHUNK_BYTES = 32 * 1024, ARENA_ALIGNMENT = 16 };

void arena_init(struct arena *arena, struct mem *mem)
{
    *arena = (struct arena){.mem = mem};
}

void arena_fini(struct arena *arena)
{
    struct arena_chunk *chunk = arena->chunks;
    while (chunk) {
        struct arena_chunk *next = chunk->next;
        mem_free(arena->mem, chunk);
        chunk = next;
    }
    arena->chunks = NULL;
}

void *arena_zalloc(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!size_mul(count, size, &bytes) || !size_add(bytes, ARENA_ALIGNMENT - 1, &bytes))
        return NULL;
    bytes -= bytes % ARENA_ALIGNMENT;

    struct arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < bytes) {
        size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        size_t total;
        if (!size_add(room, sizeof *chunk, &total))
            return NULL;
        chunk = mem_alloc(arena->mem, total, 1);
        if (!chunk)
            return NULL;
        chunk->next = arena->chunks;
        chunk->used = 0;
        chunk->size = room;
        arena->chunks = chunk;
    }
    void *block = chunk->data + chunk->used;
    chunk->used += bytes;
    memset(block, 0, bytes);
    return block;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = arena_zalloc(arena, bytes, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        return NULL;
    char *text = arena_zalloc(arena, (size_t)length + 1, 1);
    if (!text)
        return NULL;
    va_start(args, format);
    (void)vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}
