#include <der/der.h>

#include "support/scratch.h"
#include "support/test_ctx.h"

#include <string.h>

struct rig {
    struct der_ctx *ctx;
    struct scratch scratch;
};

static int set_up(void **state)
{
    static struct rig rig;
    rig.ctx = test_ctx_new(2);
    scratch_init(&rig.scratch);
    *state = &rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    scratch_fini(&rig->scratch);
    test_ctx_free(rig->ctx);
    return 0;
}

static struct der_data_report *check(struct rig *rig, const char *path)
{
    const struct der_data_check_options options = {.path = path};
    struct der_data_report *report;
    assert_ok(rig->ctx, der_data_check(rig->ctx, &options, &report));
    return report;
}

static void test_offers_are_described(void **state)
{
    struct rig *rig = *state;
    struct der_data_offer offer;
    assert_true(der_data_offer_count() > 0);
    for (int i = 0; i < der_data_offer_count(); i++) {
        assert_ok(rig->ctx, der_data_offer_describe(rig->ctx, i, &offer));
        assert_true(offer.name && offer.title && offer.address && offer.source && offer.licence);
        assert_true(offer.download_bytes > 0 && offer.disk_bytes > 0);
    }
    assert_int_equal(der_data_offer_describe(rig->ctx, -1, &offer), DER_ARG);
    assert_int_equal(der_data_offer_describe(rig->ctx, der_data_offer_count(), &offer), DER_ARG);
}

static void test_wrong_requests_are_refused(void **state)
{
    struct rig *rig = *state;
    bool was_there;
    static const struct der_data_get_options requests[] = {
        {.name = NULL, .folder = "here"},
        {.name = "cifar10", .folder = NULL},
        {.name = "cifar10", .folder = ""},
        {.name = "cifar", .folder = "here"},
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
        assert_int_equal(der_data_get(rig->ctx, &requests[i], &was_there), DER_ARG);
    struct der_data_report *report;
    const struct der_data_check_options options = {0};
    assert_int_equal(der_data_check(rig->ctx, &options, &report), DER_ARG);
    assert_null(report);
    der_data_report_free(NULL);
}

/* A folder with another set is not touched, whatever its size. */
static void test_another_set_in_the_folder_is_told(void **state)
{
    struct rig *rig = *state;
    char folder[SCRATCH_PATH_MAX];
    bool was_there;
    fixture_path(folder, "cifar10_bin");
    struct der_data_get_options request = {.name = "fashion-mnist", .folder = folder};
    assert_int_equal(der_data_get(rig->ctx, &request, &was_there), DER_STATE);
    assert_non_null(strstr(der_ctx_error(rig->ctx), "holds another data set"));
    request.name = "cifar10"; /* the right kind, but too few images */
    assert_int_equal(der_data_get(rig->ctx, &request, &was_there), DER_STATE);
    request.checksum = "md5:d41d8cd98f00b204e9800998ecf8427e"; /* any number will do then */
    assert_ok(rig->ctx, der_data_get(rig->ctx, &request, &was_there));
    assert_true(was_there);
}

static void test_a_report_tells_what_there_is(void **state)
{
    struct rig *rig = *state;
    scratch_copy(&rig->scratch, "cat/1.jpg", "jpeg/420.jpg");
    scratch_text(&rig->scratch, "dog/1.jpg", "no image");
    struct der_data_report *report = check(rig, rig->scratch.root);
    struct der_data_summary summary = der_data_report_summary(report);
    assert_string_equal(summary.kind, "folder");
    assert_true(summary.n_classes == 2 && summary.channels == 3 && summary.n_train == 2 &&
                summary.n_test == 0);
    assert_true(summary.height_min == 29 && summary.width_max == 37);
    assert_int_equal(summary.n_errors, 1);
    struct der_data_class class;
    assert_ok(rig->ctx, der_data_report_class(report, 1, &class));
    assert_string_equal(class.name, "dog");
    assert_int_equal(class.n_train, 1);
    assert_int_equal(der_data_report_class(report, 2, &class), DER_ARG);
    assert_int_equal(der_data_report_class(report, -1, &class), DER_ARG);
    struct der_data_finding finding;
    assert_ok(rig->ctx, der_data_report_finding(report, 0, &finding));
    assert_string_equal(finding.kind, "bad-image");
    assert_true(finding.is_error);
    assert_non_null(strstr(finding.text, "dog/1.jpg"));
    assert_int_equal(der_data_report_finding(report, summary.n_findings, &finding), DER_ARG);
    const char *json;
    assert_ok(rig->ctx, der_data_report_json(report, &json));
    assert_non_null(strstr(json, "\"good\":\tfalse"));
    assert_non_null(strstr(json, "bad-image"));
    const char *again;
    assert_ok(rig->ctx, der_data_report_json(report, &again));
    assert_ptr_equal(json, again);
    der_data_report_free(report);
}

static void test_a_report_of_nothing_has_no_kind(void **state)
{
    struct rig *rig = *state;
    struct der_data_report *report = check(rig, scratch_path(&rig->scratch, "nowhere"));
    struct der_data_summary summary = der_data_report_summary(report);
    assert_null(summary.kind);
    assert_true(summary.n_findings == 1 && summary.n_errors == 1);
    const char *json;
    assert_ok(rig->ctx, der_data_report_json(report, &json));
    assert_null(strstr(json, "\"classes\""));
    der_data_report_free(report);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_offers_are_described),
        CASE(test_wrong_requests_are_refused),
        CASE(test_another_set_in_the_folder_is_told),
        CASE(test_a_report_tells_what_there_is),
        CASE(test_a_report_of_nothing_has_no_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
