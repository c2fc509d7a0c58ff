#include "core/mem.h"

#include <stdlib.h>
#include <string.h>

/* In front of every block, so that mem_free knows what it gives back. One alignment unit wide. */
struct block_head {
    size_t bytes; /* asked for by the caller */
};

enum { HEAD_BYTES = MEM_ALIGNMENT };

_Static_assert(sizeof(struct block_head) <= HEAD_BYTES, "the head must fit in front of a block");

static struct block_head *head_of(void *block)
{
    return (struct block_head *)((char *)block - HEAD_BYTES);
}

static void count_in(struct mem *mem, size_t bytes)
{
    atomic_fetch_add(&mem->n_live, 1);
    size_t live = atomic_fetch_add(&mem->live_bytes, bytes) + bytes;
    size_t peak = atomic_load(&mem->peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&mem->peak_bytes, &peak, live)) {
    }
}

/* Counts the request and says whether it is the one chosen to fail. */
static bool chosen_to_fail(struct mem *mem)
{
    uint_fast64_t number = atomic_fetch_add(&mem->n_allocs, 1) + 1;
    return number == atomic_load(&mem->fail_at);
}

void mem_init(struct mem *mem)
{
    atomic_init(&mem->n_allocs, 0);
    atomic_init(&mem->n_live, 0);
    atomic_init(&mem->live_bytes, 0);
    atomic_init(&mem->peak_bytes, 0);
    atomic_init(&mem->fail_at, 0);
}

bool size_mul(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

bool size_add(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

void *mem_alloc(struct mem *mem, size_t count, size_t size)
{
    size_t bytes;
    size_t total;
    if (chosen_to_fail(mem) || !size_mul(count, size, &bytes) ||
        !size_add(bytes, HEAD_BYTES + MEM_ALIGNMENT - 1, &total))
        return NULL;
    total -= total % MEM_ALIGNMENT;
    char *raw = aligned_alloc(MEM_ALIGNMENT, total);
    if (!raw)
        return NULL;
    ((struct block_head *)raw)->bytes = bytes;
    count_in(mem, bytes);
    return raw + HEAD_BYTES;
}

void *mem_zalloc(struct mem *mem, size_t count, size_t size)
{
    void *block = mem_alloc(mem, count, size);
    if (block)
        memset(block, 0, count * size);
    return block;
}

void *mem_realloc(struct mem *mem, void *old, size_t count, size_t size)
{
    void *block = mem_alloc(mem, count, size);
    if (!block || !old)
        return block;
    size_t kept = head_of(old)->bytes;
    if (kept > count * size)
        kept = count * size;
    memcpy(block, old, kept);
    mem_free(mem, old);
    return block;
}

void mem_free(struct mem *mem, void *block)
{
    if (!block)
        return;
    struct block_head *head = head_of(block);
    atomic_fetch_sub(&mem->n_live, 1);
    atomic_fetch_sub(&mem->live_bytes, head->bytes);
    free(head);
}

char *mem_strdup(struct mem *mem, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = mem_alloc(mem, bytes, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}
