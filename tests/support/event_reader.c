#include "support/event_reader.h"

#include "exchange/crc32c.h"
#include "exchange/event_file.h"
#include "support/test_ctx.h"

#include <string.h>

enum { HEAD = 12, TAIL = 4 };

static uint32_t number_at(const uint8_t *at)
{
    uint32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

void events_read(struct events *events, struct der_ctx *ctx, const char *path)
{
    struct fault fault;
    *events = (struct events){.ctx = ctx};
    if (file_read(&ctx->mem, NULL, path, 1 << 20, &events->bytes, &fault) != DER_OK)
        fail_msg("%s", fault.text);
    const uint8_t *at = events->bytes.data;
    size_t left = events->bytes.size;
    while (left > 0) {
        uint64_t length;
        assert_true(left > HEAD + TAIL && events->n < EVENTS_MAX);
        memcpy(&length, at, sizeof length);
        assert_true(length <= left - HEAD - TAIL);
        assert_int_equal(number_at(at + sizeof length), crc32c_masked(at, sizeof length));
        assert_int_equal(number_at(at + HEAD + length), crc32c_masked(at + HEAD, length));
        events->event[events->n++] = proto_reader_of(at + HEAD, length);
        at += HEAD + length + TAIL;
        left -= HEAD + length + TAIL;
    }
}

void events_fini(struct events *events)
{
    file_bytes_free(&events->ctx->mem, &events->bytes);
}

bool event_scalar(struct proto_reader event, const char *tag, float *value)
{
    struct proto_reader summary = proto_content(event, EVENT_SUMMARY);
    struct proto_field field;
    for (int i = 0; proto_find(summary, SUMMARY_VALUE, i, &field); i++) {
        if (!proto_is_text(proto_content(field.content, SUMMARY_TAG), tag))
            continue;
        uint32_t bits = (uint32_t)proto_value(field.content, SUMMARY_SIMPLE_VALUE);
        memcpy(value, &bits, sizeof bits);
        return true;
    }
    return false;
}
