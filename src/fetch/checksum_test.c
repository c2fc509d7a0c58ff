#include "fetch/checksum.h"

#include "support/faulty_calls.h"
#include "support/file_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static enum der_status sum_of(struct file_fixture *f, const struct io_calls *io, const char *name,
                              enum checksum_kind kind, struct checksum *sum)
{
    int fd = open(scratch_path(&f->scratch, name), O_RDONLY);
    assert_true(fd >= 0);
    enum der_status status = checksum_of_file(f->ctx, io, fd, name, kind, NULL, NULL, sum);
    (void)close(fd);
    return status;
}

static void expect_sum(struct file_fixture *f, enum checksum_kind kind, const char *content,
                       const char *want)
{
    struct checksum sum;
    char text[CHECKSUM_TEXT_MAX];
    scratch_text(&f->scratch, "file", content);
    assert_ok(f->ctx, sum_of(f, io_calls_plain(), "file", kind, &sum));
    checksum_text(&sum, text);
    assert_string_equal(text, want);
}

/* The test vectors of RFC 1321 and FIPS 180-2. */
static void test_known_sums(void **state)
{
    struct file_fixture *f = *state;
    expect_sum(f, CHECKSUM_MD5, "", "d41d8cd98f00b204e9800998ecf8427e");
    expect_sum(f, CHECKSUM_MD5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0");
    expect_sum(f, CHECKSUM_SHA256, "abc",
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_sum(f, CHECKSUM_SHA256, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void test_short_and_interrupted_reads_give_the_same_sum(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.interrupts = true, .most = 3};
    struct io_calls io = faulty_calls(&calls);
    struct checksum plain;
    struct checksum faulty;
    scratch_text(&f->scratch, "file", "a text of some length, in pieces of three");
    assert_ok(f->ctx, sum_of(f, io_calls_plain(), "file", CHECKSUM_SHA256, &plain));
    assert_ok(f->ctx, sum_of(f, &io, "file", CHECKSUM_SHA256, &faulty));
    assert_true(checksum_equal(&plain, &faulty));
}

static void test_a_file_that_cannot_be_read_is_named(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.fail_at = 1, .error = EIO};
    struct io_calls io = faulty_calls(&calls);
    struct checksum sum;
    scratch_text(&f->scratch, "file", "abc");
    assert_int_equal(sum_of(f, &io, "file", CHECKSUM_MD5, &sum), DER_IO);
    assert_non_null(strstr(f->ctx->error, "cannot read file"));
}

static bool give_up(void *user, int64_t done)
{
    *(int64_t *)user = done;
    return true;
}

static void test_checking_can_be_stopped(void **state)
{
    struct file_fixture *f = *state;
    struct checksum sum;
    int64_t done = 0;
    scratch_text(&f->scratch, "file", "abc");
    int fd = open(scratch_path(&f->scratch, "file"), O_RDONLY);
    assert_int_equal(
        checksum_of_file(f->ctx, io_calls_plain(), fd, "file", CHECKSUM_MD5, give_up, &done, &sum),
        DER_CANCELLED);
    assert_int_equal(done, 3);
    (void)close(fd);
}

static void test_sums_are_read_from_text(void **state)
{
    struct file_fixture *f = *state;
    struct checksum a;
    struct checksum b;
    assert_ok(f->ctx, checksum_parse(f->ctx, "md5:d41d8cd98f00b204e9800998ecf8427e", &a));
    assert_ok(f->ctx, checksum_parse(f->ctx, "md5:D41D8CD98F00B204E9800998ECF8427E", &b));
    assert_true(checksum_equal(&a, &b));
    assert_int_equal(a.kind, CHECKSUM_MD5);
    b.bytes[15] ^= 1;
    assert_false(checksum_equal(&a, &b));
    static const char *const bad[] = {"",
                                      "md5:",
                                      "md5",
                                      "d41d8cd98f00b204e9800998ecf8427e",
                                      "md5:d41d8cd98f00b204e9800998ecf8427",
                                      "md5:d41d8cd98f00b204e9800998ecf8427ee",
                                      "md5:g41d8cd98f00b204e9800998ecf8427e",
                                      "sha256:d41d8cd98f00b204e9800998ecf8427e",
                                      "sha1:d41d8cd98f00b204e9800998ecf8427e"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(checksum_parse(f->ctx, bad[i], &a), DER_ARG);
}

#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_known_sums),
        CASE(test_short_and_interrupted_reads_give_the_same_sum),
        CASE(test_a_file_that_cannot_be_read_is_named),
        CASE(test_checking_can_be_stopped),
        CASE(test_sums_are_read_from_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
