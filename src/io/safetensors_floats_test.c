/*
 * Floats of any width read as F32, from a file of the format's own library
 * (tools/gen_safetensors_fixtures.py).
 */
#include "io/safetensors.h"

#include "support/file_fixture.h"

#include <math.h>
#include <string.h>

enum { N = 8 };

static const float NUMBERS[N] = {1.0F,  -2.5F,       65504.0F, 0x1p-24F,
                                 -0.0F, 1.0F / 3.0F, 0x1p-14F, -1000.0F};

/* What a number becomes with so many bits of fraction; all of them are within every range. */
static float rounded(float value, int bits)
{
    int exponent;
    double fraction = frexp((double)value, &exponent);
    double scaled = ldexp(fraction, bits + 1);
    return (float)ldexp(nearbyint(scaled), exponent - bits - 1);
}

static struct safetensors_file *open_fixture(struct file_fixture *f)
{
    char path[SCRATCH_PATH_MAX];
    struct safetensors_file *file;
    fixture_path(path, "safetensors/floats.safetensors");
    assert_ok(f->ctx, safetensors_open(f->ctx, NULL, path, &file));
    return file;
}

static void test_every_width_becomes_f32(void **state)
{
    struct file_fixture *f = *state;
    static const struct {
        const char *name;
        int bits; /* of the fraction */
    } widths[] = {{"f16", 10}, {"bf16", 7}, {"f32", 23}, {"f64", 23}};
    struct safetensors_file *file = open_fixture(f);
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        float found[N];
        struct safetensors_tensor wanted = {.name = widths[w].name, .rank = 1, .dim = {N}};
        assert_ok(f->ctx, safetensors_check_floats(file, &wanted));
        assert_ok(f->ctx, safetensors_read_floats(file, &wanted, found));
        for (int i = 0; i < N; i++) {
            float expected = rounded(NUMBERS[i], widths[w].bits);
            assert_memory_equal(&found[i], &expected, sizeof expected);
        }
    }
    safetensors_close(file);
}

static void test_what_is_no_finite_float_is_refused(void **state)
{
    struct file_fixture *f = *state;
    static const struct {
        const char *name;
        int64_t n;
        const char *message;
    } cases[] = {{"i32", 1, "tensor 'i32' is I32 [1], want F32 [1]"},
                 {"f16", 7, "tensor 'f16' is F16 [8], want F32 [7]"},
                 {"f8", 8, "there is no tensor 'f8'"},
                 {"inf", 1, "tensor 'inf' holds a value that is not finite"},
                 {"nan", 1, "tensor 'nan' holds a value that is not finite"},
                 {"large", 1, "tensor 'large' holds a value that is not finite"}};
    struct safetensors_file *file = open_fixture(f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float found[N];
        struct safetensors_tensor wanted = {
            .name = cases[i].name, .dtype = SAFETENSORS_F32, .rank = 1, .dim = {cases[i].n}};
        assert_int_equal(safetensors_read_floats(file, &wanted, found), DER_FORMAT);
        assert_non_null(strstr(der_ctx_error(f->ctx), cases[i].message));
    }
    safetensors_close(file);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_every_width_becomes_f32),
        CASE(test_what_is_no_finite_float_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
