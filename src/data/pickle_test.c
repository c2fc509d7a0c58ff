#include "data/pickle.h"

#include "data/reader.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

static int set_up(void **state)
{
    *state = test_ctx_new(1);
    return 0;
}

static int tear_down(void **state)
{
    test_ctx_free(*state);
    return 0;
}

/* A set that the parsers may fill. */
static struct dataset *set_new(struct der_ctx *ctx)
{
    struct dataset *set = mem_zalloc(&ctx->mem, 1, sizeof *set);
    assert_non_null(set);
    *set = (struct dataset){.ctx = ctx, .n_classes = 100, .channels = 3, .height = 32, .width = 32};
    arena_init(&set->arena, &ctx->mem);
    return set;
}

/* The pickle holds what tests/data/fixtures/cifar100_bin/train.bin holds. */
static void check_same_as_binary(struct der_ctx *ctx, const char *name)
{
    struct file_bytes bytes = fixture_read(ctx, name);
    struct file_bytes binary = fixture_read(ctx, "cifar100_bin/train.bin");
    struct dataset *set = set_new(ctx);
    assert_ok(ctx, cifar_pickle_parse(set, DATA_TRAIN,
                                      (struct reader_input){name, bytes.data, bytes.size}));
    assert_int_equal(set->part[DATA_TRAIN].n, 2);
    for (size_t i = 0; i < 2; i++) {
        const uint8_t *record = binary.data + i * 3074;
        assert_int_equal(set->part[DATA_TRAIN].labels[i], record[1]);
        assert_memory_equal(set->part[DATA_TRAIN].pixels + i * 3072, record + 2, 3072);
    }
    dataset_free(set);
    file_bytes_free(&ctx->mem, &bytes);
    file_bytes_free(&ctx->mem, &binary);
}

static void test_pickle_of_python_2_is_read(void **state)
{
    check_same_as_binary(*state, "cifar100_py/train");
}

static void test_pickles_of_python_3_are_read(void **state)
{
    check_same_as_binary(*state, "pickle/py3_p2");
    check_same_as_binary(*state, "pickle/py3_p3");
    check_same_as_binary(*state, "pickle/py3_p4");
    check_same_as_binary(*state, "pickle/py3_p5");
}

static void test_pickles_of_numpy_2_are_read(void **state)
{
    check_same_as_binary(*state, "pickle/numpy2_p4");
}

static void test_columns_that_lie_together_become_rows(void **state)
{
    check_same_as_binary(*state, "pickle/py3_p2_fortran");
    check_same_as_binary(*state, "pickle/numpy2_p5_fortran");
}

static void test_every_cut_is_an_error(void **state)
{
    struct der_ctx *ctx = *state;
    static const char *const names[] = {"cifar100_py/train", "pickle/py3_p2", "pickle/py3_p5"};
    for (size_t i = 0; i < 3; i++) {
        struct file_bytes bytes = fixture_read(ctx, names[i]);
        for (size_t size = 0; size < bytes.size; size += size < 600 ? 1 : 97) {
            struct pickle pickle;
            assert_int_equal(pickle_read(ctx, names[i], bytes.data, size, &pickle), DER_FORMAT);
            assert_non_null(strstr(ctx->error, names[i]));
            pickle_free(&pickle);
        }
        file_bytes_free(&ctx->mem, &bytes);
    }
}

/* ---- pickles by hand; strings may hold zeros, hence sizes ------------------------------------- */

static enum der_status read_text(struct der_ctx *ctx, const char *text, size_t size,
                                 struct pickle *pickle)
{
    return pickle_read(ctx, "by hand", (const uint8_t *)text, size, pickle);
}

static void expect_refusal(struct der_ctx *ctx, const char *text, size_t size, const char *why)
{
    struct pickle pickle;
    assert_int_equal(read_text(ctx, text, size, &pickle), DER_FORMAT);
    pickle_free(&pickle);
    if (!strstr(ctx->error, why))
        fail_msg("\"%s\" does not say \"%s\"", ctx->error, why);
}

#define REFUSED(text, why) expect_refusal(*state, text, sizeof(text) - 1, why)

static void test_foreign_names_are_refused_by_name(void **state)
{
    REFUSED("\x80\x02"
            "cos\nsystem\n(U\x02"
            "lstR.",
            "asks for os.system");
    REFUSED("\x80\x04\x8c\x02os\x8c\x06system\x93.", "asks for os.system");
    REFUSED("\x80\x02"
            "cnumpy\nload\n.",
            "asks for numpy.load");
    REFUSED("\x80\x02"
            "cnumpy.core.multiarray\n_reconstruct2\n.",
            "_reconstruct2");
}

static void test_other_opcodes_are_refused(void **state)
{
    REFUSED("\x80\x02I12\n.", "opcode 0x49"); /* text numbers of protocol 0 */
    REFUSED("\x80\x02"
            "cnumpy\nndarray\n)\x81.",
            "opcode 0x81");                                   /* NEWOBJ */
    REFUSED("\x80\x02(i__builtin__\neval\n.", "opcode 0x69"); /* INST */
    REFUSED("\x80\x02\x82\x01.", "opcode 0x82");              /* extensions */
    REFUSED("\x80\x02PX\n.", "opcode 0x50");                  /* persistent ids */
    REFUSED("\x80\x05\x97.", "opcode 0x97");                  /* buffers from elsewhere */
}

static void test_protocols_0_1_and_6_are_refused(void **state)
{
    REFUSED("(dp0\n.", "protocol 2 to 5");
    REFUSED("\x80\x01}.", "protocol 2 to 5");
    REFUSED("\x80\x06}.", "protocol 2 to 5");
    REFUSED("", "protocol 2 to 5");
}

static void test_stack_is_guarded(void **state)
{
    REFUSED("\x80\x02.", "no value on the stack");
    REFUSED("\x80\x02K\x01(.", "no value on the stack");
    REFUSED("\x80\x02K\x01K\x02.", "loose values");
    REFUSED("\x80\x02t.", "never begun");
    REFUSED("\x80\x02K\x01\x86.", "too few values");
    REFUSED("\x80\x02K\x01(K\x02"
            "e.",
            "container it adds to");
    REFUSED("\x80\x02}(K\x01u.", "no value");
    REFUSED("\x80\x02h\x05.", "never given");
    REFUSED("\x80\x02Nj\xff\xff\xff\xff.", "never given");
    REFUSED("\x80\x02Nr\xff\xff\xff\xff.", "memo number");
    REFUSED("\x80\x02NNR.", "no function");
    REFUSED("\x80\x02NNb.", "way numpy writes it");
    REFUSED("\x80\x02\x8a\x09"
            "123456789.",
            "64 bits");
}

static void test_strings_beyond_the_end_are_refused(void **state)
{
    REFUSED("\x80\x02U\x05"
            "abc",
            "ends within a value");
    REFUSED("\x80\x02T\xff\xff\xff\x7f"
            "abc",
            "ends within a value");
    REFUSED("\x80\x02T\xff\xff\xff\xff"
            "abc",
            "ends within a value");
    REFUSED("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff"
            "abc",
            "ends within a value");
    REFUSED("\x80\x02"
            "cnumpy",
            "ends within a name");
}

static void test_depth_is_limited(void **state)
{
    char text[100] = "\x80\x02";
    memset(text + 2, '(', sizeof text - 2);
    expect_refusal(*state, text, sizeof text, "deeper than any CIFAR file");
}

static void test_repeated_text_takes_bounded_memory(void **state)
{
    /* The same 200 characters are turned to bytes again and again, two opcodes each time. */
    char text[2000] = "\x80\x02"
                      "c_codecs\nencode\nq\x00X\xc8\x00\x00\x00";
    size_t at = 2 + 16 + 2 + 5;
    memset(text + at, 'x', 200);
    at += 200;
    static const char rest[] = "X\x06\x00\x00\x00latin1\x86q\x01R";
    memcpy(text + at, rest, sizeof rest - 1);
    at += sizeof rest - 1;
    while (at + 6 < sizeof text) {
        memcpy(text + at, "h\x00h\x01R", 5);
        at += 5;
    }
    expect_refusal(*state, text, at, "again and again");
}

static void test_arrays_must_be_bytes_in_two_dimensions(void **state)
{
#define ARRAY(dtype, shape, data)                                                                  \
    "\x80\x02"                                                                                     \
    "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01"                        \
    "b\x87R"                                                                                       \
    "(K\x01" shape "cnumpy\ndtype\nU\x02" dtype "K\x00K\x01\x87R\x89" data "tb."
    struct der_ctx *ctx = *state;
    static const char good[] = ARRAY("u1", "K\x02K\x03\x86",
                                     "U\x06"
                                     "abcdef");
    struct pickle pickle;
    assert_ok(ctx, read_text(ctx, good, sizeof good - 1, &pickle));
    const struct pickle_value *array = &pickle.values[pickle.root];
    assert_int_equal(array->type, PICKLE_ARRAY);
    assert_int_equal(array->shape[0], 2);
    assert_int_equal(array->shape[1], 3);
    assert_memory_equal(array->text, "abcdef", 6);
    pickle_free(&pickle);
    REFUSED(ARRAY("f8", "K\x02K\x03\x86",
                  "U\x06"
                  "abcdef"),
            "unsigned bytes");
    REFUSED(ARRAY("u1", "K\x02K\x03\x86",
                  "U\x05"
                  "abcde"),
            "2 x 3 has 5 bytes");
    REFUSED(ARRAY("u1", "K\x06\x85",
                  "U\x06"
                  "abcdef"),
            "two-dimensional");
    REFUSED(ARRAY("u1", "K\x02J\xff\xff\xff\xff\x86",
                  "U\x06"
                  "abcdef"),
            "two-dimensional");
}

static void test_dictionary_takes_the_last_value_of_a_key(void **state)
{
    struct der_ctx *ctx = *state;
    static const char text[] = "\x80\x02}(U\x01"
                               "aK\x01U\x01"
                               "bK\x02U\x01"
                               "aK\x03u.";
    struct pickle pickle;
    assert_ok(ctx, read_text(ctx, text, sizeof text - 1, &pickle));
    const struct pickle_value *root = &pickle.values[pickle.root];
    assert_int_equal(pickle_get(&pickle, root, "a")->integer, 3);
    assert_int_equal(pickle_get(&pickle, root, "b")->integer, 2);
    assert_null(pickle_get(&pickle, root, "c"));
    assert_null(pickle_get(&pickle, pickle_get(&pickle, root, "a"), "a"));
    pickle_free(&pickle);
}

static void test_numbers_have_their_signs(void **state)
{
    struct der_ctx *ctx = *state;
    static const char text[] =
        "\x80\x02(K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\x00\x8a\x01\x80\x8a\x02\xff\x00\x88Nt.";
    static const int64_t want[] = {255, 65535, -2, 0, -128, 255, 1};
    struct pickle pickle;
    assert_ok(ctx, read_text(ctx, text, sizeof text - 1, &pickle));
    uint32_t item = pickle.values[pickle.root].first;
    for (size_t i = 0; i < 7; i++, item = pickle.items[item].next)
        assert_int_equal(pickle.values[pickle.items[item].value].integer, want[i]);
    assert_int_equal(pickle.values[pickle.items[item].value].type, PICKLE_NONE);
    pickle_free(&pickle);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_pickle_of_python_2_is_read),
        CASE(test_pickles_of_python_3_are_read),
        CASE(test_pickles_of_numpy_2_are_read),
        CASE(test_columns_that_lie_together_become_rows),
        CASE(test_every_cut_is_an_error),
        CASE(test_foreign_names_are_refused_by_name),
        CASE(test_other_opcodes_are_refused),
        CASE(test_protocols_0_1_and_6_are_refused),
        CASE(test_stack_is_guarded),
        CASE(test_strings_beyond_the_end_are_refused),
        CASE(test_depth_is_limited),
        CASE(test_repeated_text_takes_bounded_memory),
        CASE(test_arrays_must_be_bytes_in_two_dimensions),
        CASE(test_dictionary_takes_the_last_value_of_a_key),
        CASE(test_numbers_have_their_signs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
