#include "fetch/offer.h"

#include "fetch/checksum.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

static void test_every_offer_is_complete(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    assert_int_equal(offer_count(), 3);
    for (int i = 0; i < offer_count(); i++) {
        const struct offer *offer = offer_get(i);
        assert_ptr_equal(offer_find(offer->name), offer);
        assert_true(offer->title && offer->source && offer->licence && offer->kind);
        assert_int_equal(strncmp(offer->address, "https://", 8), 0);
        assert_int_equal(offer->address[strlen(offer->address) - 1], '/');
        assert_true(offer->n_files >= 1 && offer->n_files <= OFFER_FILES_MAX);
        assert_true(!offer->folder || offer->n_files == 1);
        for (int k = 0; k < offer->n_files; k++) {
            char text[128];
            struct checksum sum;
            (void)snprintf(text, sizeof text, "sha256:%s", offer->files[k].sha256);
            assert_ok(ctx, checksum_parse(ctx, text, &sum));
            assert_true(offer->files[k].size > 0);
            assert_null(strchr(offer->files[k].name, '/'));
        }
    }
    test_ctx_free(ctx);
}

/* What is known of the formats must agree with the numbers of the table. */
static void test_sizes_follow_from_the_formats(void **state)
{
    (void)state;
    const struct offer *c100 = offer_find("cifar100");
    const struct offer *c10 = offer_find("cifar10");
    const struct offer *fashion = offer_find("fashion-mnist");
    assert_int_equal(c100->unpacked, (c100->n_train + c100->n_test) * (2 + 3 * 32 * 32));
    assert_int_equal(c10->unpacked, (c10->n_train + c10->n_test) * (1 + 3 * 32 * 32));
    assert_int_equal(fashion->unpacked, offer_download_size(fashion));
}

static void test_names_are_found_or_suggested(void **state)
{
    (void)state;
    assert_null(offer_find("cifar"));
    assert_string_equal(offer_suggest("fashion_mnist"), "fashion-mnist");
    assert_null(offer_suggest("imagenet"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_offer_is_complete),
        cmocka_unit_test(test_sizes_follow_from_the_formats),
        cmocka_unit_test(test_names_are_found_or_suggested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
