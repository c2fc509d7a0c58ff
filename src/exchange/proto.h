/*
 * The wire format of protocol buffers, written.
 *
 * A message is a sequence of fields, each a key (number << 3 | type) and a value: a varint, eight or four bytes,
 * or a length and that many bytes, which is what texts, packed lists and messages within messages are. That is
 * all of it that ONNX and event files need.
 *
 * When memory is short, a message is marked as failed and takes no more; whoever finishes it asks once.
 */
#ifndef EXCHANGE_PROTO_H
#define EXCHANGE_PROTO_H

#include "core/ctx.h"

struct proto {
    struct mem *mem;
    uint8_t *data; /* [size] */
    size_t size, capacity;
    bool has_failed;
};

void proto_init(struct proto *proto, struct mem *mem);
void proto_fini(struct proto *proto);

/* Empties a message and keeps its memory. */
void proto_clear(struct proto *proto);

/* DER_NOMEM, with a message, when anything since proto_init or proto_clear has failed. */
NODISCARD enum der_status proto_check(const struct proto *proto, struct der_ctx *ctx);

/* Fields. Negative numbers of 64 bits are written as their two's complement, as the format wants it. */
void proto_int(struct proto *proto, int field, int64_t value);
void proto_double(struct proto *proto, int field, double value);
void proto_float(struct proto *proto, int field, float value);
void proto_text(struct proto *proto, int field, const char *text);
void proto_bytes(struct proto *proto, int field, const void *data, size_t size);
void proto_doubles(struct proto *proto, int field, const double *values, int n); /* packed */

/* Announces a field of `size` bytes that the caller writes behind the message. */
void proto_announce(struct proto *proto, int field, size_t size);

/* A message within the message: fields between open and close belong to it. `place` is what open gave. */
size_t proto_open(struct proto *proto, int field);
void proto_close(struct proto *proto, size_t place);

/* Appends the fields of another message; that it has failed passes on. */
void proto_append(struct proto *proto, const struct proto *other);

#endif
