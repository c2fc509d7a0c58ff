/*
 * A model with its companions: whatever system call of a save fails, and whenever the process is killed, one model
 * loads with the companions that belong to it. Companions that are missing or of another model are named.
 */
/* labels: first */
#include "learn/pupil_files.h"

#include "data/collection.h"
#include "store/album_file.h"
#include "store/companion.h"
#include "support/save_trial.h"
#include "support/scratch.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 8, CLEARED = 3 };

static const char *const NAMES[] = {"cat", "dog", "owl"};

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct scratch scratch;
    struct io_calls quick; /* does not wait for the disk: for what is not under test */
    char path[SCRATCH_PATH_MAX];
};

static int no_fsync(void *user, int fd)
{
    (void)user;
    (void)fd;
    return 0;
}

static void use_folder(struct fixture *f)
{
    scratch_init(&f->scratch);
    (void)snprintf(f->path, sizeof f->path, "%s", scratch_path(&f->scratch, "cats.safetensors"));
}

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1), .quick = *io_calls_plain()};
    assert_ok(f.ctx, backend_open(f.ctx, "ref", NULL, &f.be));
    f.quick.fsync = no_fsync;
    use_folder(&f);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    scratch_fini(&f->scratch);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

/* ---- a pupil ------------------------------------------------------------------------------------- */

static void make_model(struct fixture *f, struct pupil *pupil, int step)
{
    struct resnet_spec spec;
    int index;
    assert_ok(f->ctx, resnet_spec_init(f->ctx, &spec, "resnet32", 3, SIDE, SIDE, 0.0625));
    struct model like = {.ctx = f->ctx,
                         .info = {.classes = NAMES,
                                  .n_classes = step + 1,
                                  .n_steps = step,
                                  .steps = {2, 1},
                                  .input = {.geometry = AUGMENT_SHORTER_SIDE,
                                            .channels = 3,
                                            .height = SIDE,
                                            .width = SIDE,
                                            .resize = SIDE,
                                            .std = {1, 1, 1}},
                                  .network = "resnet32",
                                  .width = 0.0625,
                                  .temperature = 1.0,
                                  .version = "0",
                                  .preset = ""}};
    assert_ok(f->ctx, model_new(&like, &pupil->model));
    struct model *model = pupil->model;
    assert_ok(f->ctx, extractor_new(f->be, &spec, &model->extractors[0]));
    model->n_extractors = 1;
    assert_ok(f->ctx, param_set_new(f->ctx, &model->classifier));
    assert_ok(f->ctx, param_set_add(model->classifier, "classifier.weight",
                                    shape_2d(step + 1, resnet_feature_dim(&spec)), PARAM_LEARNT,
                                    INIT_STANDARD_NORMAL, &index));
    assert_ok(f->ctx, param_set_allocate(model->classifier, f->be));
    assert_ok(f->ctx, param_set_init(model->classifier, (uint64_t)step, 1));
    assert_ok(f->ctx, extractor_new(f->be, &spec, &pupil->basis.last_full));
    assert_ok(f->ctx, param_set_init(pupil->basis.last_full->params, (uint64_t)step, 2));
}

/* Pictures of different sizes; the first byte of each is the step. */
static void make_album(struct fixture *f, struct pupil *pupil, int step)
{
    assert_ok(f->ctx, collection_new(f->ctx, "album", "test", 3, &pupil->album));
    for (int k = 0; k <= step; k++) {
        uint8_t bytes[3 * 5 * 9];
        int32_t label;
        memset(bytes, step, sizeof bytes);
        struct image_view picture = collection_view(bytes, 3, 5, 4 + k);
        assert_ok(f->ctx, collection_class(pupil->album, NAMES[k], &label));
        for (int i = 0; i < 3; i++)
            assert_ok(f->ctx, collection_add(pupil->album, DATA_TRAIN, label, &picture));
        if (k > 0)
            assert_ok(f->ctx, collection_add(pupil->album, DATA_TEST, label, &picture));
    }
}

/* What a pupil has after `step` steps; every number depends on the step. */
static struct pupil make_pupil(struct fixture *f, int step)
{
    struct pupil pupil = {.be = f->be, .basis = {.memory = 10 * step}};
    make_model(f, &pupil, step);
    make_album(f, &pupil, step);
    return pupil;
}

static enum der_status save(struct fixture *f, const struct io_calls *io, int step)
{
    struct pupil pupil = make_pupil(f, step);
    enum der_status status = pupil_save(&pupil, io, f->path);
    pupil_fini(&pupil);
    return status;
}

/* Loads all three, checks that they are of one step, and says of which. */
static int assert_coherent(struct fixture *f)
{
    struct pupil pupil;
    assert_ok(f->ctx, pupil_load(f->be, NULL, f->path, &pupil));
    int step = pupil.model->info.n_steps;
    struct pupil want = make_pupil(f, step);
    assert_int_equal(pupil.basis.memory, 10 * step);
    for (int split = 0; split < DATA_SPLITS; split++) {
        assert_int_equal(pupil.album->part[split].n, want.album->part[split].n);
        for (int64_t i = 0; i < want.album->part[split].n; i++) {
            struct image_view a = dataset_view(pupil.album, (enum data_split)split, i);
            struct image_view b = dataset_view(want.album, (enum data_split)split, i);
            assert_int_equal(a.height, b.height);
            assert_int_equal(a.width, b.width);
            assert_memory_equal(a.data, b.data, (size_t)a.height * (size_t)a.width * 3);
            assert_int_equal(pupil.album->part[split].labels[i], want.album->part[split].labels[i]);
        }
    }
    const struct param_set *full = want.basis.last_full->params;
    for (int i = 0; i < full->n; i++) {
        size_t n = (size_t)shape_count(full->items[i].shape);
        float a[4096];
        float b[4096];
        assert_true(n <= 4096);
        assert_ok(f->ctx, param_read(full, i, a));
        assert_ok(f->ctx, param_read(pupil.basis.last_full->params, i, b));
        assert_memory_equal(a, b, n * sizeof *a);
    }
    pupil_fini(&want);
    pupil_fini(&pupil);
    return step;
}

static int count_files(struct fixture *f)
{
    char command[SCRATCH_PATH_MAX + 32];
    int n = 0;
    (void)snprintf(command, sizeof command, "ls -A '%s' | wc -l", f->scratch.root);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d", &n), 1);
    (void)pclose(pipe);
    return n;
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void test_a_pupil_comes_back(void **state)
{
    struct fixture *f = *state;
    assert_false(pupil_exists(f->path));
    assert_ok(f->ctx, save(f, NULL, 1));
    assert_true(pupil_exists(f->path));
    assert_int_equal(assert_coherent(f), 1);
    assert_int_equal(access(scratch_path(&f->scratch, "cats.exemplars.safetensors"), F_OK), 0);
    assert_int_equal(access(scratch_path(&f->scratch, "cats.state.safetensors"), F_OK), 0);
    assert_ok(f->ctx, save(f, &f->quick, 2));
    assert_int_equal(assert_coherent(f), 2);
    assert_int_equal(count_files(f), 3);
}

static enum der_status try_step_2(void *self, struct faulty_calls *faults, int n)
{
    const struct io_calls io = faulty_calls(faults);
    faults->fail_at = n;
    return save(self, &io, 2);
}

static void start_again(void *self)
{
    struct fixture *f = self;
    scratch_fini(&f->scratch);
    use_folder(f);
    assert_ok(f->ctx, save(f, &f->quick, 1));
}

static int check(void *self)
{
    return assert_coherent(self);
}

/* The next save works as if nothing had been, and takes away what was left over. */
static void save_again(void *self, int n)
{
    struct fixture *f = self;
    if (n % CLEARED != 0)
        return;
    assert_ok(f->ctx, save(f, &f->quick, 2));
    assert_int_equal(count_files(f), 3);
}

static struct save_trial trial_of(struct fixture *f)
{
    return (struct save_trial){f, start_again, try_step_2, check, save_again};
}

static void test_whichever_call_of_a_save_fails_one_whole_pupil_loads(void **state)
{
    const struct save_trial trial = trial_of(*state);
    struct save_outcome outcome = save_trial_fail_each(&trial);
    assert_true(outcome.n_old > 25 && outcome.n_new > 3);
}

static void test_a_full_disk_leaves_the_old_pupil(void **state)
{
    struct fixture *f = *state;
    const struct save_trial trial = trial_of(f);
    save_trial_fill_disk(&trial);
    assert_non_null(strstr(f->ctx->error, "No space left on device"));
}

static void test_a_kill_before_any_call_of_a_save_leaves_one_whole_pupil(void **state)
{
    const struct save_trial trial = trial_of(*state);
    struct save_outcome outcome = save_trial_kill_each(&trial);
    assert_true(outcome.n_old > 25 && outcome.n_new > 3);
}

static void assert_refused(struct fixture *f, enum der_status status, const char *sentence)
{
    struct pupil pupil;
    assert_int_equal(pupil_load(f->be, NULL, f->path, &pupil), status);
    assert_null(pupil.model);
    if (!strstr(f->ctx->error, sentence))
        fail_msg("'%s' does not say '%s'", f->ctx->error, sentence);
}

static void test_a_missing_companion_is_named(void **state)
{
    struct fixture *f = *state;
    assert_ok(f->ctx, save(f, &f->quick, 1));
    assert_int_equal(unlink(scratch_path(&f->scratch, "cats.state.safetensors")), 0);
    assert_refused(f, DER_STATE, "cats.state.safetensors is missing");
    assert_refused(f, DER_STATE, "copy it along");
    assert_int_equal(unlink(scratch_path(&f->scratch, "cats.exemplars.safetensors")), 0);
    assert_refused(f, DER_STATE, "cats.exemplars.safetensors is missing");
}

static void test_companions_of_another_model_are_refused(void **state)
{
    struct fixture *f = *state;
    char other[SCRATCH_PATH_MAX];
    char album[SCRATCH_PATH_MAX];
    assert_ok(f->ctx, save(f, &f->quick, 1));
    (void)snprintf(other, sizeof other, "%s",
                   scratch_path(&f->scratch, "dogs.exemplars.safetensors"));
    (void)snprintf(album, sizeof album, "%s",
                   scratch_path(&f->scratch, "cats.exemplars.safetensors"));
    struct pupil dogs = make_pupil(f, 2);
    assert_ok(f->ctx, pupil_save(&dogs, &f->quick, scratch_path(&f->scratch, "dogs.safetensors")));
    pupil_fini(&dogs);
    assert_int_equal(rename(other, album), 0);
    assert_refused(f, DER_STATE, "cats.exemplars.safetensors does not belong to this version");
    scratch_text(&f->scratch, "cats.exemplars.safetensors", "rubbish!");
    assert_refused(f, DER_STATE, "does not belong");
}

/* An album that names the model, but shows other classes. */
static void test_an_album_of_other_classes_is_refused(void **state)
{
    struct fixture *f = *state;
    uint64_t model;
    assert_ok(f->ctx, save(f, &f->quick, 1));
    assert_ok(f->ctx, companion_fingerprint(f->ctx, NULL, f->path, &model));
    struct pupil pupil = make_pupil(f, 1);
    pupil.album->class_names[1][0] = 'f';
    assert_ok(f->ctx, album_write(pupil.album, model, NULL,
                                  scratch_path(&f->scratch, "cats.exemplars.safetensors")));
    pupil_fini(&pupil);
    assert_refused(f, DER_FORMAT, "other classes");
}

static void test_one_process_at_a_time_works_on_a_model(void **state)
{
    struct fixture *f = *state;
    struct lock *lock;
    struct lock *second;
    assert_ok(f->ctx, pupil_lock(f->ctx, f->path, &lock));
    assert_int_equal(pupil_lock(f->ctx, f->path, &second), DER_STATE);
    assert_null(second);
    assert_non_null(strstr(f->ctx->error, "cats.safetensors is in use by process"));
    lock_release(lock);
    assert_ok(f->ctx, pupil_lock(f->ctx, f->path, &lock));
    lock_release(lock);
}

/* ---- links --------------------------------------------------------------------------------------- */

static bool is_link(struct fixture *f, const char *name)
{
    struct stat info;
    return lstat(scratch_path(&f->scratch, name), &info) == 0 && S_ISLNK(info.st_mode);
}

static void link_to(struct fixture *f, const char *name, const char *target)
{
    assert_int_equal(symlink(target, scratch_path(&f->scratch, name)), 0);
}

/* A link is another name of the model, whose companions and lock are those of the file. */
static void test_a_model_behind_a_link_is_replaced_where_it_lies(void **state)
{
    struct fixture *f = *state;
    struct lock *lock;
    struct lock *second;
    scratch_mkdir(&f->scratch, "store");
    link_to(f, "now", "store/cats.safetensors");
    assert_int_equal(pupil_lock(f->ctx, scratch_path(&f->scratch, "now"), &lock), DER_IO);
    assert_non_null(strstr(f->ctx->error, "cannot follow the link")); /* it leads nowhere yet */
    (void)snprintf(f->path, sizeof f->path, "%s",
                   scratch_path(&f->scratch, "store/cats.safetensors"));
    assert_ok(f->ctx, save(f, &f->quick, 1));
    assert_ok(f->ctx, pupil_lock(f->ctx, f->path, &lock));
    (void)snprintf(f->path, sizeof f->path, "%s", scratch_path(&f->scratch, "now"));
    assert_int_equal(pupil_lock(f->ctx, f->path, &second), DER_STATE);
    lock_release(lock);
    assert_int_equal(assert_coherent(f), 1);
    assert_ok(f->ctx, save(f, &f->quick, 2));
    assert_true(is_link(f, "now"));
    assert_int_equal(count_files(f), 2); /* nothing beside the link */
    assert_int_equal(assert_coherent(f), 2);
    (void)snprintf(f->path, sizeof f->path, "%s",
                   scratch_path(&f->scratch, "store/cats.safetensors"));
    assert_int_equal(assert_coherent(f), 2);
}

/* The pictures of a model may lie on a larger disk. */
static void link_companion(struct fixture *f)
{
    char from[SCRATCH_PATH_MAX];
    (void)snprintf(from, sizeof from, "%s",
                   scratch_path(&f->scratch, "cats.exemplars.safetensors"));
    scratch_mkdir(&f->scratch, "large");
    assert_int_equal(rename(from, scratch_path(&f->scratch, "large/pictures")), 0);
    link_to(f, "cats.exemplars.safetensors", "large/pictures");
}

static void test_a_companion_behind_a_link_is_replaced_where_it_lies(void **state)
{
    struct fixture *f = *state;
    assert_ok(f->ctx, save(f, &f->quick, 1));
    link_companion(f);
    assert_int_equal(assert_coherent(f), 1);
    assert_ok(f->ctx, save(f, NULL, 2));
    assert_true(is_link(f, "cats.exemplars.safetensors"));
    assert_int_equal(assert_coherent(f), 2);
    assert_int_equal(count_files(f), 4);
}

static void start_again_with_a_link(void *self)
{
    start_again(self);
    link_companion(self);
}

static void test_a_kill_leaves_one_whole_pupil_behind_a_link_too(void **state)
{
    struct fixture *f = *state;
    const struct save_trial trial = {f, start_again_with_a_link, try_step_2, check, NULL};
    struct save_outcome outcome = save_trial_kill_each(&trial);
    assert_true(outcome.n_old > 25 && outcome.n_new > 3);
}

static void test_lack_of_memory_leaves_nothing_behind(void **state)
{
    struct fixture *f = *state;
    int n_failed = 0;
    assert_ok(f->ctx, save(f, &f->quick, 1));
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    for (uint64_t k = 1;; k += 1 + k / 16) { /* there are hundreds, much alike */
        struct pupil pupil;
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + k);
        enum der_status status = pupil_load(f->be, NULL, f->path, &pupil);
        atomic_store(&f->ctx->mem.fail_at, 0);
        pupil_fini(&pupil);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        if (status == DER_OK)
            break;
        assert_int_equal(status, DER_NOMEM);
        n_failed++;
    }
    assert_true(n_failed > 20);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_pupil_comes_back),
        TEST(test_whichever_call_of_a_save_fails_one_whole_pupil_loads),
        TEST(test_a_full_disk_leaves_the_old_pupil),
        TEST(test_a_kill_before_any_call_of_a_save_leaves_one_whole_pupil),
        TEST(test_a_missing_companion_is_named),
        TEST(test_companions_of_another_model_are_refused),
        TEST(test_an_album_of_other_classes_is_refused),
        TEST(test_one_process_at_a_time_works_on_a_model),
        TEST(test_a_model_behind_a_link_is_replaced_where_it_lies),
        TEST(test_a_companion_behind_a_link_is_replaced_where_it_lies),
        TEST(test_a_kill_leaves_one_whole_pupil_behind_a_link_too),
        TEST(test_lack_of_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
