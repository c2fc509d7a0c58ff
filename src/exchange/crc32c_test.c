/*
 * The examples of RFC 3720 (B.4), and the check value of the polynomial.
 */
#include "exchange/crc32c.h"

#include "support/test_ctx.h"

#include <string.h>

static void test_known_answers(void **state)
{
    (void)state;
    uint8_t zeros[32] = {0};
    uint8_t ones[32];
    uint8_t rising[32];
    uint8_t falling[32];
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++) {
        rising[i] = (uint8_t)i;
        falling[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(crc32c(zeros, sizeof zeros), 0x8a9136aa);
    assert_int_equal(crc32c(ones, sizeof ones), 0x62a8ab43);
    assert_int_equal(crc32c(rising, sizeof rising), 0x46dd794e);
    assert_int_equal(crc32c(falling, sizeof falling), 0x113fdb5c);
    assert_int_equal(crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(crc32c("", 0), 0);
}

/* The head of a record of 24 bytes as TensorBoard's own writer makes it. */
static void test_the_mask_is_that_of_event_files(void **state)
{
    (void)state;
    static const uint8_t length[8] = {24};
    assert_int_equal(crc32c_masked(length, sizeof length), 0x224b7fa3);
    assert_int_equal(crc32c_masked("", 0), 0xa282ead8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_the_mask_is_that_of_event_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
