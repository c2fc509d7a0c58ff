/*
 * Image files below a folder: which, and in which order.
 */
#include "data/find.h"

#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct fixture {
    struct der_ctx *ctx;
    struct scratch scratch;
    char text[2000]; /* what was found, relative to the root, one a line */
    int left;        /* answers "go on" so many times */
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1), .left = 1000};
    scratch_init(&f.scratch);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}

static bool note(void *user, const char *path)
{
    struct fixture *f = user;
    size_t used = strlen(f->text);
    (void)snprintf(f->text + used, sizeof f->text - used, "%s\n",
                   path + strlen(f->scratch.root) + 1);
    return --f->left > 0;
}

static void make_files(struct fixture *f)
{
    static const char *const names[] = {"b.png",       "a.JPG",   "c.txt",        ".hidden.png",
                                        "z/1.jpeg",    "z/0.png", "m/deep/x.png", ".git/y.png",
                                        "m/readme.md", "z.png"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        scratch_text(&f->scratch, names[i], "x");
}

static void test_images_come_folder_by_folder_in_order(void **state)
{
    struct fixture *f = *state;
    make_files(f);
    char loop[SCRATCH_PATH_MAX];
    (void)snprintf(loop, sizeof loop, "%s", scratch_path(&f->scratch, "m/loop"));
    assert_int_equal(symlink(f->scratch.root, loop), 0);
    assert_ok(f->ctx, find_images(f->ctx, f->scratch.root, note, f));
    assert_string_equal(f->text, "a.JPG\nb.png\nz.png\nm/deep/x.png\nz/0.png\nz/1.jpeg\n");
}

static void link_to(struct fixture *f, const char *name, const char *target)
{
    char path[SCRATCH_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", scratch_path(&f->scratch, name));
    assert_int_equal(symlink(target, path), 0);
}

/* As training reads classes that are links. */
static void test_folders_behind_links_are_searched_too(void **state)
{
    struct fixture *f = *state;
    struct scratch other;
    make_files(f);
    scratch_init(&other);
    scratch_text(&other, "far/1.png", "x");
    link_to(f, "away", other.root);
    link_to(f, "m/again", "../z");
    link_to(f, "m/nowhere", "gone");
    assert_ok(f->ctx, find_images(f->ctx, f->scratch.root, note, f));
    scratch_fini(&other);
    assert_string_equal(f->text, "a.JPG\nb.png\nz.png\naway/far/1.png\nm/again/0.png\n"
                                 "m/again/1.jpeg\nm/deep/x.png\nz/0.png\nz/1.jpeg\n");
}

/* Each of two folders has a link to the other, and one to where it lies. */
static void test_links_in_a_circle_come_to_an_end(void **state)
{
    struct fixture *f = *state;
    scratch_text(&f->scratch, "a/1.png", "x");
    scratch_text(&f->scratch, "b/2.png", "x");
    link_to(f, "a/b", "../b");
    link_to(f, "b/a", "../a");
    link_to(f, "a/here", ".");
    link_to(f, "a/above", "..");
    assert_ok(f->ctx, find_images(f->ctx, f->scratch.root, note, f));
    assert_string_equal(f->text, "a/1.png\na/b/2.png\nb/2.png\nb/a/1.png\n");
}

static void test_whoever_is_told_can_end_it(void **state)
{
    struct fixture *f = *state;
    make_files(f);
    f->left = 4;
    assert_ok(f->ctx, find_images(f->ctx, f->scratch.root, note, f));
    assert_string_equal(f->text, "a.JPG\nb.png\nz.png\nm/deep/x.png\n");
}

static void test_a_folder_that_is_none_is_told(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(find_images(f->ctx, "/nowhere/at/all", note, f), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "/nowhere/at/all"));
}

static void test_too_many_folders_within_each_other_are_refused(void **state)
{
    struct fixture *f = *state;
    char name[3 * FIND_MAX_DEPTH + 8] = "";
    for (int i = 0; i < FIND_MAX_DEPTH; i++)
        (void)snprintf(name + strlen(name), sizeof name - strlen(name), "d/");
    (void)snprintf(name + strlen(name), sizeof name - strlen(name), "x.png");
    scratch_text(&f->scratch, name, "x");
    assert_int_equal(find_images(f->ctx, f->scratch.root, note, f), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "more than 64 folders"));
    assert_string_equal(f->text, "");
}

static void test_running_out_of_memory_leaves_nothing_behind(void **state)
{
    struct fixture *f = *state;
    enum der_status status = DER_NOMEM;
    make_files(f);
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    for (uint64_t n = 1; status != DER_OK; n++) {
        f->text[0] = '\0';
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        status = find_images(f->ctx, f->scratch.root, note, f);
        assert_true(status == DER_OK || status == DER_NOMEM);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_true(n < 200);
    }
    atomic_store(&f->ctx->mem.fail_at, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_images_come_folder_by_folder_in_order),
        TEST(test_folders_behind_links_are_searched_too),
        TEST(test_links_in_a_circle_come_to_an_end),
        TEST(test_whoever_is_told_can_end_it),
        TEST(test_a_folder_that_is_none_is_told),
        TEST(test_too_many_folders_within_each_other_are_refused),
        TEST(test_running_out_of_memory_leaves_nothing_behind),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
