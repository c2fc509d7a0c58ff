/*
 * Histograms: every value is counted once, where it belongs, and the masks have names that say which they are.
 */
#include "exchange/mask_histogram.h"

#include "exchange/event_file.h"
#include "support/hand_model.h"
#include "support/proto_reader.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <string.h>

static double double_of(struct proto_reader message, int field)
{
    uint64_t bits = proto_value(message, field);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int doubles_of(struct proto_reader message, int field, double *values)
{
    struct proto_reader content = proto_content(message, field);
    memcpy(values, content.at, content.left);
    return (int)(content.left / sizeof *values);
}

static void test_every_value_is_counted_in_its_bucket(void **state)
{
    (void)state;
    static const float values[] = {-1.0F, 2.0F, 0.05F, 0.05F, 1.95F, -1.0F};
    struct der_ctx *ctx = test_ctx_new(1);
    struct proto p;
    double limits[64];
    double counts[64];
    proto_init(&p, &ctx->mem);
    histogram_add(&p, "tag", values, 6);
    struct proto_reader value = proto_content(proto_reader_of(p.data, p.size), SUMMARY_VALUE);
    struct proto_reader histogram = proto_content(value, SUMMARY_HISTOGRAM);
    assert_true(proto_is_text(proto_content(value, SUMMARY_TAG), "tag"));
    assert_float_equal(double_of(histogram, HISTOGRAM_MIN), -1.0, 0.0);
    assert_float_equal(double_of(histogram, HISTOGRAM_MAX), 2.0, 0.0);
    assert_float_equal(double_of(histogram, HISTOGRAM_NUM), 6.0, 0.0);
    assert_float_equal(double_of(histogram, HISTOGRAM_SUM), 2.05, 1e-6);
    assert_float_equal(double_of(histogram, HISTOGRAM_SUM_SQUARES), 9.8075, 1e-6);
    assert_int_equal(doubles_of(histogram, HISTOGRAM_LIMITS, limits), 30);
    assert_int_equal(doubles_of(histogram, HISTOGRAM_COUNTS, counts), 30);
    assert_float_equal(limits[29], 2.0, 0.0);
    double low = -1.0;
    for (int b = 0; b < 30; b++) {
        double expected = 0.0;
        for (int i = 0; i < 6; i++)
            expected += values[i] >= low && (values[i] < limits[b] || b == 29);
        assert_true(limits[b] > low);
        assert_float_equal(counts[b], expected, 0.0);
        low = limits[b];
    }
    proto_fini(&p);
    test_ctx_free(ctx);
}

static void test_equal_values_are_one_bucket(void **state)
{
    (void)state;
    static const float values[] = {1.0F, 1.0F, 1.0F};
    struct der_ctx *ctx = test_ctx_new(1);
    struct proto p;
    double numbers[64];
    proto_init(&p, &ctx->mem);
    histogram_add(&p, "tag", values, 3);
    struct proto_reader histogram = proto_content(
        proto_content(proto_reader_of(p.data, p.size), SUMMARY_VALUE), SUMMARY_HISTOGRAM);
    assert_int_equal(doubles_of(histogram, HISTOGRAM_COUNTS, numbers), 1);
    assert_float_equal(numbers[0], 3.0, 0.0);
    assert_int_equal(doubles_of(histogram, HISTOGRAM_LIMITS, numbers), 1);
    assert_float_equal(numbers[0], 1.0, 0.0);
    proto_fini(&p);
    test_ctx_free(ctx);
}

static void test_masks_are_named_after_what_they_mask(void **state)
{
    (void)state;
    static const char *const tags[] = {"masks/stream1", "masks/stream2", "masks/layer1.0",
                                       "masks/layer2.0", "masks/layer2.1"};
    struct der_ctx *ctx = test_ctx_new(1);
    struct resnet_spec spec = hand_model_spec(RESNET_STEM_3X3, 4);
    struct param_set *masks;
    struct backend *be;
    struct proto p;
    assert_ok(ctx, backend_open(ctx, test_backend(), NULL, &be));
    assert_ok(ctx, param_set_new(ctx, &masks));
    for (int i = 0; i < resnet_mask_count(&spec); i++) {
        int index;
        assert_ok(ctx, param_set_add(masks, tags[i], shape_1d(resnet_mask_channels(&spec, i)),
                                     PARAM_LEARNT, INIT_ZERO, &index));
    }
    assert_ok(ctx, param_set_allocate(masks, be));
    proto_init(&p, &ctx->mem);
    assert_ok(ctx, mask_histograms_add(&p, masks, &spec));
    assert_int_equal(proto_count(proto_reader_of(p.data, p.size), SUMMARY_VALUE), 5);
    for (int i = 0; i < 5; i++) {
        struct proto_field value;
        assert_true(proto_find(proto_reader_of(p.data, p.size), SUMMARY_VALUE, i, &value));
        assert_true(proto_is_text(proto_content(value.content, SUMMARY_TAG), tags[i]));
        assert_float_equal(
            double_of(proto_content(value.content, SUMMARY_HISTOGRAM), HISTOGRAM_NUM),
            (double)resnet_mask_channels(&spec, i), 0.0);
    }
    proto_fini(&p);
    param_set_free(masks);
    backend_close(be);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_value_is_counted_in_its_bucket),
        cmocka_unit_test(test_equal_values_are_one_bucket),
        cmocka_unit_test(test_masks_are_named_after_what_they_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
