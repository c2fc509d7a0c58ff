#include "exchange/proto.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie");

enum { FIRST_CAPACITY = 256, VARINT_MAX = 10 };

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

void proto_init(struct proto *proto, struct mem *mem)
{
    *proto = (struct proto){.mem = mem};
}

void proto_fini(struct proto *proto)
{
    if (proto->mem)
        mem_free(proto->mem, proto->data);
    *proto = (struct proto){0};
}

void proto_clear(struct proto *proto)
{
    proto->size = 0;
    proto->has_failed = false;
}

enum der_status proto_check(const struct proto *proto, struct der_ctx *ctx)
{
    return proto->has_failed ? ctx_nomem(ctx) : DER_OK;
}

/* Room for `size` more bytes. */
static bool reserve(struct proto *proto, size_t size)
{
    size_t wanted;
    size_t capacity = proto->capacity > 0 ? proto->capacity : FIRST_CAPACITY;
    if (proto->has_failed || !size_add(proto->size, size, &wanted))
        goto fail;
    if (wanted <= proto->capacity)
        return true;
    while (capacity < wanted)
        if (!size_mul(capacity, 2, &capacity))
            goto fail;
    uint8_t *data = mem_realloc(proto->mem, proto->data, capacity, 1);
    if (!data)
        goto fail;
    proto->data = data;
    proto->capacity = capacity;
    return true;
fail:
    proto->has_failed = true;
    return false;
}

static void append(struct proto *proto, const void *data, size_t size)
{
    if (size == 0 || !reserve(proto, size))
        return;
    memcpy(proto->data + proto->size, data, size);
    proto->size += size;
}

/* Seven bits a byte, the lowest first; all but the last have their top bit set. */
static size_t encode(uint64_t value, uint8_t bytes[VARINT_MAX])
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    return n;
}

static void append_varint(struct proto *proto, uint64_t value)
{
    uint8_t bytes[VARINT_MAX];
    append(proto, bytes, encode(value, bytes));
}

static void append_key(struct proto *proto, int field, enum wire_type type)
{
    assert(field > 0);
    append_varint(proto, (uint64_t)field << 3 | (uint64_t)type);
}

void proto_int(struct proto *proto, int field, int64_t value)
{
    append_key(proto, field, WIRE_VARINT);
    append_varint(proto, (uint64_t)value);
}

void proto_double(struct proto *proto, int field, double value)
{
    append_key(proto, field, WIRE_FIXED64);
    append(proto, &value, sizeof value);
}

void proto_float(struct proto *proto, int field, float value)
{
    append_key(proto, field, WIRE_FIXED32);
    append(proto, &value, sizeof value);
}

void proto_announce(struct proto *proto, int field, size_t size)
{
    append_key(proto, field, WIRE_BYTES);
    append_varint(proto, size);
}

void proto_bytes(struct proto *proto, int field, const void *data, size_t size)
{
    proto_announce(proto, field, size);
    append(proto, data, size);
}

void proto_text(struct proto *proto, int field, const char *text)
{
    proto_bytes(proto, field, text, strlen(text));
}

void proto_doubles(struct proto *proto, int field, const double *values, int n)
{
    proto_bytes(proto, field, values, (size_t)n * sizeof *values);
}

void proto_append(struct proto *proto, const struct proto *other)
{
    proto->has_failed |= other->has_failed;
    append(proto, other->data, other->size);
}

size_t proto_open(struct proto *proto, int field)
{
    append_key(proto, field, WIRE_BYTES);
    return proto->size;
}

/* The length has as many bytes as it needs, so the content moves up to make room for it. */
void proto_close(struct proto *proto, size_t place)
{
    uint8_t bytes[VARINT_MAX];
    if (proto->has_failed)
        return;
    size_t length = proto->size - place;
    size_t n = encode(length, bytes);
    if (!reserve(proto, n))
        return;
    memmove(proto->data + place + n, proto->data + place, length);
    memcpy(proto->data + place, bytes, n);
    proto->size += n;
}
