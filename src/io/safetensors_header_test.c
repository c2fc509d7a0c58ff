/*
 * Malformed safetensors files: one for each check, each refused with its own sentence.
 */
#include "io/safetensors.h"

#include "support/file_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 4096 };

/* Writes a file whose header claims `length` bytes, with `data_size` zeros behind the header. */
static void write_file(struct file_fixture *f, uint64_t length, const char *header,
                       size_t header_size, size_t data_size)
{
    uint8_t bytes[FILE_MAX] = {0};
    assert_true(8 + header_size + data_size <= sizeof bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(length >> (8 * i));
    memcpy(bytes + 8, header, header_size);
    scratch_write(&f->scratch, "x", bytes, 8 + header_size + data_size);
}

static enum der_status open_it(struct file_fixture *f)
{
    struct safetensors_file *file;
    enum der_status status = safetensors_open(f->ctx, NULL, scratch_path(&f->scratch, "x"), &file);
    assert_true((status == DER_OK) == (file != NULL));
    safetensors_close(file);
    return status;
}

/* The file "x" is refused with exactly this sentence after its path. */
static void assert_refused(struct file_fixture *f, const char *sentence)
{
    char expected[2 * SCRATCH_PATH_MAX];
    assert_int_equal(open_it(f), DER_FORMAT);
    (void)snprintf(expected, sizeof expected, "%s: %s", scratch_path(&f->scratch, "x"), sentence);
    assert_string_equal(der_ctx_error(f->ctx), expected);
    assert_int_equal(der_ctx_memory(f->ctx).n_live, 0);
}

/* A tensor of two bytes that is in order, to stand beside one that is not. */
#define GOOD "\"g\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}"
#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define MEMBERS "tensor 't' must have the members dtype, shape and data_offsets alone"
#define DIMENSION "tensor 't' has a dimension that is no whole number from 0 to 2^53"
#define OFFSET "tensor 't' has a data offset that is no whole number from 0 to 2^53"
#define TOO_MANY "tensor 't' has more bytes than can be counted"

struct malformed {
    const char *header;
    size_t data_size;
    const char *sentence;
};

static void assert_all_refused(struct file_fixture *f, const struct malformed *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(cases[i].header);
        write_file(f, length, cases[i].header, length, cases[i].data_size);
        assert_refused(f, cases[i].sentence);
    }
}
#define ALL_REFUSED(f, cases) assert_all_refused(f, cases, sizeof(cases) / sizeof((cases)[0]))

static void test_the_good_neighbours_are_good(void **state)
{
    struct file_fixture *f = *state;
    static const char *const headers[] = {
        "{" GOOD "}",
        "{" GOOD "}   ",
        "{\"__metadata__\":{}," GOOD "}",
        "{\"__metadata__\":{\"a\":\"\",\"b\":\"x\"}," GOOD "}",
        "{ \"h\": {\"data_offsets\": [2, 2], \"shape\": [3, 0], \"dtype\": \"F32\"},\n" GOOD "}",
        TENSOR("\"U8\"", "[2,1,1,1,1,1,1,1]", "[0,2]"),
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        write_file(f, strlen(headers[i]), headers[i], strlen(headers[i]), 2);
        assert_ok(f->ctx, open_it(f));
    }
}

static void test_lengths_that_do_not_fit_are_refused(void **state)
{
    struct file_fixture *f = *state;
    scratch_write(&f->scratch, "x", "", 0);
    assert_refused(f, "0 bytes are no safetensors file");
    scratch_write(&f->scratch, "x", "\2\0\0\0\0\0\0", 7);
    assert_refused(f, "7 bytes are no safetensors file");
    write_file(f, 0, "", 0, 0);
    assert_refused(f, "its header does not begin with '{'");
    write_file(f, 3, "{}", 2, 0);
    assert_refused(f, "a header of 3 bytes does not fit into a file of 10");
    write_file(f, (uint64_t)1 << 63, "{}", 2, 0);
    assert_refused(f, "a header of 9223372036854775808 bytes does not fit into a file of 10");
    write_file(f, UINT64_MAX, "{}", 2, 0);
    assert_refused(f, "a header of 18446744073709551615 bytes does not fit into a file of 10");
}

static void test_a_header_beyond_the_limit_is_refused_unread(void **state)
{
    struct file_fixture *f = *state;
    write_file(f, SAFETENSORS_MAX_HEADER + 1, "{}", 2, 0);
    /* A hole of that size costs nothing. */
    assert_int_equal(truncate(scratch_path(&f->scratch, "x"), SAFETENSORS_MAX_HEADER + 100), 0);
    uint64_t before = der_ctx_memory(f->ctx).peak_bytes;
    assert_refused(f, "a header of 16777217 bytes, at most 16777216 are read");
    assert_true(der_ctx_memory(f->ctx).peak_bytes < before + 4096);
}

static void test_headers_that_are_no_json_object_are_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct malformed cases[] = {
        {" {}", 0, "its header does not begin with '{'"},
        {"[]", 0, "its header does not begin with '{'"},
        {"{" GOOD, 2, "line 1 is not JSON"},
        {"{\n\"a\": 1,}", 0, "line 2 is not JSON"},
        {"{} {}", 0, "line 1: something follows the end of the JSON value"},
        {"{\"caf\xe9\":1}", 0, "its header is not UTF-8 text"},
        {"{\"a\\u0000b\":1}", 0, "line 1 holds a zero character"},
    };
    ALL_REFUSED(f, cases);
    write_file(f, 4, "{}\0\0", 4, 0);
    assert_refused(f, "line 1 holds a zero character");
}

static void test_entries_that_are_no_tensors_are_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct malformed cases[] = {
        {"{\"t\":1}", 0, MEMBERS},
        {"{\"t\":[1,2,3]}", 0, MEMBERS},
        {"{\"t\":{}}", 0, MEMBERS},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"x\":0}}", 2, MEMBERS},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         MEMBERS},
        {"{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"data_offsets\":[0,2]}}", 2,
         "tensor 't' has no 'shape' that is an array"},
        {"{\"t\":{\"Dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         "tensor 't' has no 'dtype' that is a text"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         "the name of tensor 1 is empty or holds control characters"},
        {"{" GOOD ",\"a\\nb\":{}}", 2, "the name of tensor 2 is empty or holds control characters"},
    };
    ALL_REFUSED(f, cases);
}

static void test_types_that_are_not_known_are_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct malformed cases[] = {
        {TENSOR("\"U16\"", "[1]", "[0,2]"), 2,
         "tensor 't' has elements of type 'U16', which is not supported"},
        {TENSOR("\"f32\"", "[1]", "[0,4]"), 4,
         "tensor 't' has elements of type 'f32', which is not supported"},
        {TENSOR("\"\"", "[1]", "[0,4]"), 4,
         "tensor 't' has elements of type '', which is not supported"},
        {TENSOR("1", "[1]", "[0,4]"), 4, "tensor 't' has no 'dtype' that is a text"},
    };
    ALL_REFUSED(f, cases);
}

static void test_impossible_shapes_are_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct malformed cases[] = {
        {TENSOR("\"U8\"", "2", "[0,2]"), 2, "tensor 't' has no 'shape' that is an array"},
        {TENSOR("\"U8\"", "{\"a\":2}", "[0,2]"), 2, "tensor 't' has no 'shape' that is an array"},
        {TENSOR("\"U8\"", "[1,1,1,1,1,1,1,1,2]", "[0,2]"), 2,
         "tensor 't' has more than 8 dimensions"},
        {TENSOR("\"U8\"", "[-2]", "[0,2]"), 2, DIMENSION},
        {TENSOR("\"U8\"", "[-2,-1]", "[0,2]"), 2, DIMENSION},
        {TENSOR("\"U8\"", "[2.5]", "[0,2]"), 2, DIMENSION},
        {TENSOR("\"U8\"", "[\"2\"]", "[0,2]"), 2, DIMENSION},
        {TENSOR("\"U8\"", "[null]", "[0,2]"), 2, DIMENSION},
        {TENSOR("\"U8\"", "[1e300]", "[0,2]"), 2, DIMENSION},
        {TENSOR("\"U8\"", "[1e999]", "[0,2]"), 2, DIMENSION},
        {TENSOR("\"U8\"", "[9007199254740994]", "[0,2]"), 2, DIMENSION},
        /* 2^64 bytes, which would be none, in three ways */
        {TENSOR("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, TOO_MANY},
        {TENSOR("\"F64\"", "[4294967296,536870912]", "[0,0]"), 0, TOO_MANY},
        {TENSOR("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"), 0, TOO_MANY},
        {TENSOR("\"F32\"", "[1]", "[0,2]"), 2, "tensor 't' has 2 bytes, its shape asks for 4"},
        {TENSOR("\"F32\"", "[]", "[0,0]"), 0, "tensor 't' has 0 bytes, its shape asks for 4"},
        {TENSOR("\"U8\"", "[9007199254740992]", "[0,2]"), 2,
         "tensor 't' has 2 bytes, its shape asks for 9007199254740992"},
    };
    ALL_REFUSED(f, cases);
}

static void test_impossible_offsets_are_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct malformed cases[] = {
        {TENSOR("\"U8\"", "[2]", "2"), 2,
         "tensor 't' has no 'data_offsets' that is an array of two"},
        {TENSOR("\"U8\"", "[2]", "[0]"), 2,
         "tensor 't' has no 'data_offsets' that is an array of two"},
        {TENSOR("\"U8\"", "[2]", "[0,1,2]"), 2,
         "tensor 't' has no 'data_offsets' that is an array of two"},
        {TENSOR("\"U8\"", "[2]", "[]"), 2,
         "tensor 't' has no 'data_offsets' that is an array of two"},
        {TENSOR("\"U8\"", "[2]", "[-2,0]"), 2, OFFSET},
        {TENSOR("\"U8\"", "[2]", "[0,\"2\"]"), 2, OFFSET},
        {TENSOR("\"U8\"", "[2]", "[0,18446744073709551618]"), 2, OFFSET},
        {TENSOR("\"U8\"", "[2]", "[2,0]"), 2, "tensor 't' ends before it begins"},
        {TENSOR("\"U8\"", "[2]", "[0,3]"), 2, "tensor 't' ends at byte 3 of the data, which has 2"},
        {TENSOR("\"U8\"", "[2]", "[9007199254740990,9007199254740992]"), 2,
         "tensor 't' ends at byte 9007199254740992 of the data, which has 2"},
        {TENSOR("\"U8\"", "[2]", "[0,1]"), 2, "tensor 't' has 1 bytes, its shape asks for 2"},
    };
    ALL_REFUSED(f, cases);
}

#define U8(name, begin, end, n)                                                                    \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" n "],\"data_offsets\":[" begin "," end "]}"

static void test_data_that_is_not_tiled_is_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct malformed cases[] = {
        {"{" U8("a", "0", "2", "2") "," U8("b", "1", "3", "2") "}", 3,
         "tensor 'b' overlaps another one"},
        {"{" U8("a", "0", "2", "2") "," U8("b", "0", "2", "2") "}", 2,
         "tensor 'b' overlaps another one"},
        {"{" U8("b", "0", "4", "4") "," U8("a", "2", "2", "0") "}", 4,
         "tensor 'a' overlaps another one"},
        {"{" U8("a", "1", "3", "2") "}", 3, "1 bytes before tensor 'a' belong to none"},
        {"{" U8("b", "4", "6", "2") "," U8("a", "0", "2", "2") "}", 6,
         "2 bytes before tensor 'b' belong to none"},
        {"{" U8("a", "0", "2", "2") "}", 5, "the last 3 bytes belong to no tensor"},
        {"{}", 1, "the last 1 bytes belong to no tensor"},
    };
    ALL_REFUSED(f, cases);
}

static void test_names_that_occur_twice_are_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct malformed cases[] = {
        {"{" U8("a", "0", "2", "2") "," U8("b", "2", "3", "1") "," U8("a", "3", "5", "2") "}", 5,
         "tensor 'a' is there twice"},
        {"{" U8("a", "0", "0", "0") "," U8("\\u0061", "0", "0", "0") "}", 0,
         "tensor 'a' is there twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "its metadata is there twice"},
        {"{\"__metadata__\":{\"k\":\"1\",\"l\":\"\",\"k\":\"2\"}}", 0,
         "metadata 'k' is there twice"},
    };
    ALL_REFUSED(f, cases);
}

static void test_metadata_that_is_no_map_of_texts_is_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct malformed cases[] = {
        {"{\"__metadata__\":null}", 0, "its metadata is no object"},
        {"{\"__metadata__\":[\"a\"]}", 0, "its metadata is no object"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "metadata 'k' is no text"},
        {"{\"__metadata__\":{\"k\":{\"l\":\"\"}}}", 0, "metadata 'k' is no text"},
    };
    ALL_REFUSED(f, cases);
}

static void test_every_truncation_of_a_good_file_is_refused(void **state)
{
    struct file_fixture *f = *state;
    struct file_bytes bytes = fixture_read(f->ctx, "safetensors/types.safetensors");
    for (size_t n = 0; n < bytes.size; n++) {
        scratch_write(&f->scratch, "x", bytes.data, n);
        assert_int_equal(open_it(f), DER_FORMAT);
    }
    scratch_write(&f->scratch, "x", bytes.data, bytes.size);
    assert_ok(f->ctx, open_it(f));
    /* One byte more: the zero that file_read leaves behind the content. */
    scratch_write(&f->scratch, "x", bytes.data, bytes.size + 1);
    file_bytes_free(&f->ctx->mem, &bytes);
    assert_refused(f, "the last 1 bytes belong to no tensor");
}

static void test_what_is_no_regular_file_is_refused(void **state)
{
    struct file_fixture *f = *state;
    struct safetensors_file *file;
    assert_int_equal(open_it(f), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "/x: No such file"));
    assert_int_equal(safetensors_open(f->ctx, NULL, f->scratch.root, &file), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "is a folder, want a regular file"));
    assert_int_equal(mkfifo(scratch_path(&f->scratch, "x"), 0600), 0);
    assert_int_equal(open_it(f), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "is a special file, want a regular file"));
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_the_good_neighbours_are_good),
        CASE(test_lengths_that_do_not_fit_are_refused),
        CASE(test_a_header_beyond_the_limit_is_refused_unread),
        CASE(test_headers_that_are_no_json_object_are_refused),
        CASE(test_entries_that_are_no_tensors_are_refused),
        CASE(test_types_that_are_not_known_are_refused),
        CASE(test_impossible_shapes_are_refused),
        CASE(test_impossible_offsets_are_refused),
        CASE(test_data_that_is_not_tiled_is_refused),
        CASE(test_names_that_occur_twice_are_refused),
        CASE(test_metadata_that_is_no_map_of_texts_is_refused),
        CASE(test_every_truncation_of_a_good_file_is_refused),
        CASE(test_what_is_no_regular_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
