/*
 * Messages byte for byte, by the examples of the format's own description and by hand.
 */
#include "exchange/proto.h"

#include "support/test_ctx.h"

#include <string.h>

struct fixture {
    struct der_ctx *ctx;
    struct proto p;
};

static int set_up(void **state)
{
    static struct fixture f;
    f.ctx = test_ctx_new(1);
    proto_init(&f.p, &f.ctx->mem);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    proto_fini(&f->p);
    test_ctx_free(f->ctx);
    return 0;
}

#define ASSERT_BYTES(f, ...)                                                                       \
    do {                                                                                           \
        const uint8_t expected_[] = {__VA_ARGS__};                                                 \
        assert_ok((f)->ctx, proto_check(&(f)->p, (f)->ctx));                                       \
        assert_int_equal((f)->p.size, sizeof expected_);                                           \
        assert_memory_equal((f)->p.data, expected_, sizeof expected_);                             \
        proto_clear(&(f)->p);                                                                      \
    } while (0)

static void test_fields_are_what_the_format_says(void **state)
{
    struct fixture *f = *state;
    proto_int(&f->p, 1, 150);
    ASSERT_BYTES(f, 0x08, 0x96, 0x01);
    proto_int(&f->p, 20, 0);
    ASSERT_BYTES(f, 0xa0, 0x01, 0x00);
    proto_int(&f->p, 1, -1);
    ASSERT_BYTES(f, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01);
    proto_text(&f->p, 2, "testing");
    ASSERT_BYTES(f, 0x12, 0x07, 't', 'e', 's', 't', 'i', 'n', 'g');
    proto_text(&f->p, 2, "");
    ASSERT_BYTES(f, 0x12, 0x00);
    proto_float(&f->p, 2, 1.0F);
    ASSERT_BYTES(f, 0x15, 0x00, 0x00, 0x80, 0x3f);
    proto_double(&f->p, 1, -2.0);
    ASSERT_BYTES(f, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0);
    proto_doubles(&f->p, 6, (const double[]){1.0}, 1);
    ASSERT_BYTES(f, 0x32, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x3f);
}

static void test_messages_lie_within_messages(void **state)
{
    struct fixture *f = *state;
    size_t outer = proto_open(&f->p, 3);
    proto_int(&f->p, 1, 150);
    size_t inner = proto_open(&f->p, 4);
    proto_close(&f->p, inner);
    proto_close(&f->p, outer);
    proto_int(&f->p, 1, 7);
    ASSERT_BYTES(f, 0x1a, 0x05, 0x08, 0x96, 0x01, 0x22, 0x00, 0x08, 0x07);
}

static void test_a_long_message_has_a_long_length(void **state)
{
    struct fixture *f = *state;
    uint8_t content[300];
    memset(content, 'x', sizeof content);
    size_t place = proto_open(&f->p, 1);
    proto_bytes(&f->p, 2, content, sizeof content);
    proto_close(&f->p, place);
    assert_ok(f->ctx, proto_check(&f->p, f->ctx));
    static const uint8_t head[] = {0x0a, 0xaf, 0x02, 0x12, 0xac, 0x02}; /* 303, 300 */
    assert_int_equal(f->p.size, sizeof head + sizeof content);
    assert_memory_equal(f->p.data, head, sizeof head);
    assert_memory_equal(f->p.data + sizeof head, content, sizeof content);
}

static void test_announced_bytes_and_other_messages_are_appended(void **state)
{
    struct fixture *f = *state;
    struct proto other;
    proto_init(&other, &f->ctx->mem);
    proto_int(&other, 1, 1);
    proto_announce(&f->p, 5, 1000);
    proto_append(&f->p, &other);
    proto_fini(&other);
    ASSERT_BYTES(f, 0x2a, 0xe8, 0x07, 0x08, 0x01);
}

static void test_lack_of_memory_is_told_once_and_for_all(void **state)
{
    struct fixture *f = *state;
    uint8_t content[300] = {0};
    for (unsigned n = 1; n <= 2; n++) {
        struct proto p;
        proto_init(&p, &f->ctx->mem);
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        size_t place = proto_open(&p, 1);
        proto_bytes(&p, 1, content, sizeof content);
        atomic_store(&f->ctx->mem.fail_at, 0);
        proto_int(&p, 1, 1);
        proto_close(&p, place);
        assert_int_equal(proto_check(&p, f->ctx), DER_NOMEM);
        proto_append(&f->p, &p);
        assert_int_equal(proto_check(&f->p, f->ctx), DER_NOMEM);
        proto_clear(&f->p);
        proto_clear(&p);
        assert_ok(f->ctx, proto_check(&p, f->ctx));
        proto_fini(&p);
        proto_fini(&p);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_fields_are_what_the_format_says),
        TEST(test_messages_lie_within_messages),
        TEST(test_a_long_message_has_a_long_length),
        TEST(test_announced_bytes_and_other_messages_are_appended),
        TEST(test_lack_of_memory_is_told_once_and_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
