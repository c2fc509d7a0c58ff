/*
 * Fingerprints of data sets: the same wherever a set lies, another one when it is another set.
 */
#include "experiment/fingerprint.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdio.h>

static uint64_t fingerprint_of(struct der_ctx *ctx, const char *path)
{
    struct dataset *set;
    assert_ok(ctx, dataset_open(ctx, path, &set));
    uint64_t fingerprint = fingerprint_dataset(set);
    dataset_free(set);
    return fingerprint;
}

static void test_sets_in_memory_differ_by_content(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    uint64_t first = fingerprint_of(ctx, "synth:classes=3,train=50,test=5,size=8,seed=1");
    assert_true(first == fingerprint_of(ctx, "synth:classes=3,train=50,test=5,size=8,seed=1"));
    static const char *const others[] = {
        "synth:classes=3,train=50,test=5,size=8,seed=2",
        "synth:classes=4,train=50,test=5,size=8,seed=1",
        "synth:classes=3,train=51,test=5,size=8,seed=1",
        "synth:classes=3,train=50,test=6,size=8,seed=1",
        "synth:classes=3,train=50,test=5,size=9,seed=1",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_true(first != fingerprint_of(ctx, others[i]));
    test_ctx_free(ctx);
}

static void make_folder(struct scratch *scratch, const char *root, const char *second)
{
    static const char *const classes[] = {"cat", "dog"};
    for (int c = 0; c < 2; c++) {
        char name[SCRATCH_PATH_MAX];
        (void)snprintf(name, sizeof name, "%s/%s/1.png", root, classes[c]);
        scratch_text(scratch, name, "one");
        (void)snprintf(name, sizeof name, "%s/%s/%s", root, classes[c], second);
        scratch_text(scratch, name, "two");
    }
}

static void test_image_folders_may_move_but_not_change(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct scratch scratch;
    scratch_init(&scratch);
    make_folder(&scratch, "here", "2.png");
    make_folder(&scratch, "elsewhere/below", "2.png");
    make_folder(&scratch, "renamed", "3.png");
    uint64_t first = fingerprint_of(ctx, scratch_path(&scratch, "here"));
    assert_true(first == fingerprint_of(ctx, scratch_path(&scratch, "elsewhere/below")));
    assert_true(first != fingerprint_of(ctx, scratch_path(&scratch, "renamed")));
    scratch_text(&scratch, "here/dog/2.png", "longer");
    assert_true(first != fingerprint_of(ctx, scratch_path(&scratch, "here")));
    scratch_fini(&scratch);
    test_ctx_free(ctx);
}

static void test_a_file_is_known_by_all_its_bytes(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct scratch scratch;
    uint64_t found = 0;
    scratch_init(&scratch);
    scratch_text(&scratch, "weights", "foobar");
    assert_ok(ctx, fingerprint_file(ctx, scratch_path(&scratch, "weights"), &found));
    assert_true(found == UINT64_C(0x85944171f73967e8)); /* of the authors of FNV */
    assert_int_equal(fingerprint_file(ctx, scratch_path(&scratch, "absent"), &found), DER_IO);
    scratch_fini(&scratch);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_in_memory_differ_by_content),
        cmocka_unit_test(test_image_folders_may_move_but_not_change),
        cmocka_unit_test(test_a_file_is_known_by_all_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
