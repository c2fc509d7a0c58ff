/*
 * The wire format of protocol buffers, read: the least that tests of written messages need. What is malformed
 * fails the running cmocka test.
 */
#ifndef SUPPORT_PROTO_READER_H
#define SUPPORT_PROTO_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that are read from the front. */
struct proto_reader {
    const uint8_t *at;
    size_t left;
};

struct proto_field {
    int number;
    uint64_t value;              /* of a varint, or the bits of a fixed number */
    struct proto_reader content; /* of bytes */
};

struct proto_reader proto_reader_of(const void *data, size_t size);

/* The next field; false at the end. */
bool proto_next(struct proto_reader *reader, struct proto_field *field);

/* The n-th (from 0) field of that number; false when there are fewer. */
bool proto_find(struct proto_reader reader, int number, int n, struct proto_field *field);

/* How many fields of that number there are. */
int proto_count(struct proto_reader reader, int number);

/* The same for a field that must be there. */
struct proto_reader proto_content(struct proto_reader reader, int number);
uint64_t proto_value(struct proto_reader reader, int number);
bool proto_is_text(struct proto_reader content, const char *text);

#endif
