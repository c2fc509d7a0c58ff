#include "support/proto_reader.h"

#include "support/test_ctx.h"

#include <string.h>

struct proto_reader proto_reader_of(const void *data, size_t size)
{
    return (struct proto_reader){data, size};
}

static uint64_t take_varint(struct proto_reader *r)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(r->left > 0 && shift < 64);
        uint8_t byte = *r->at++;
        r->left--;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
}

static struct proto_reader take_bytes(struct proto_reader *r, uint64_t size)
{
    assert_true(size <= r->left);
    struct proto_reader content = {r->at, (size_t)size};
    r->at += size;
    r->left -= (size_t)size;
    return content;
}

bool proto_next(struct proto_reader *reader, struct proto_field *field)
{
    *field = (struct proto_field){0};
    if (reader->left == 0)
        return false;
    uint64_t key = take_varint(reader);
    uint64_t type = key & 7;
    field->number = (int)(key >> 3);
    if (type == 0) {
        field->value = take_varint(reader);
    } else if (type == 2) {
        uint64_t size = take_varint(reader);
        field->content = take_bytes(reader, size);
    } else {
        assert_true(type == 1 || type == 5);
        size_t size = type == 1 ? 8 : 4;
        struct proto_reader bits = take_bytes(reader, size);
        memcpy(&field->value, bits.at, size);
    }
    return true;
}

bool proto_find(struct proto_reader reader, int number, int n, struct proto_field *field)
{
    while (proto_next(&reader, field))
        if (field->number == number && n-- == 0)
            return true;
    return false;
}

int proto_count(struct proto_reader reader, int number)
{
    struct proto_field field;
    int n = 0;
    while (proto_next(&reader, &field))
        n += field.number == number;
    return n;
}

struct proto_reader proto_content(struct proto_reader reader, int number)
{
    struct proto_field field;
    assert_true(proto_find(reader, number, 0, &field));
    return field.content;
}

uint64_t proto_value(struct proto_reader reader, int number)
{
    struct proto_field field;
    assert_true(proto_find(reader, number, 0, &field));
    return field.value;
}

bool proto_is_text(struct proto_reader content, const char *text)
{
    return content.left == strlen(text) && memcmp(content.at, text, content.left) == 0;
}
