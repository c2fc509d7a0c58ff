/*
 * The listener: which numbers become which tags, where a run that goes on begins, and that it never fails a run.
 * Masks and exemplars have tests of their own; TensorBoard's own reader is tests/e2e's.
 */
#include "exchange/tensorboard.h"

#include "exchange/event_file.h"
#include "support/event_reader.h"
#include "support/faulty_calls.h"
#include "support/file_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char EPOCH[] =
    "{\"event\":\"epoch\",\"step\":2,\"stage\":\"classifier\",\"epoch\":3,\"epochs\":30,"
    "\"lr\":0.1,\"loss\":{\"main\":1.5,\"sparsity\":0.25},\"train_top1\":62.5}";
static const char END[] = "{\"event\":\"end\",\"steps\":2,\"avg_top1\":70.5}";

static const struct learner NOBODY; /* neither masks nor exemplars */

static void tell(const struct experiment_listener *listener, struct der_ctx *ctx, const char *text)
{
    cJSON *record;
    assert_ok(ctx, json_parse(ctx, "record", text, strlen(text), &record));
    listener->record(listener->user, record, &NOBODY);
    json_free(record);
}

/* The only event file of a folder. */
static void find_file(const char *folder, char path[SCRATCH_PATH_MAX])
{
    const struct dirent *entry;
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, "events.", 7) != 0)
            continue;
        n++;
        (void)snprintf(path, SCRATCH_PATH_MAX, "%.500s/%.400s", folder, entry->d_name);
    }
    (void)closedir(dir);
    assert_int_equal(n, 1);
}

static void assert_scalar(struct proto_reader event, const char *tag, float expected)
{
    float value;
    assert_true(event_scalar(event, tag, &value));
    assert_float_equal(value, expected, 0.0F);
}

static void test_numbers_of_records_are_scalars(void **state)
{
    struct file_fixture *f = *state;
    struct tensorboard_options options = {.folder = scratch_path(&f->scratch, "board")};
    struct tensorboard *board;
    struct events events;
    char path[SCRATCH_PATH_MAX];
    float value;
    assert_ok(f->ctx, tensorboard_open(f->ctx, &options, &board));
    const struct experiment_listener *listener = tensorboard_listener(board);
    struct run_beginning run = {.out = "some/run", .n_records = 7};
    assert_ok(f->ctx, listener->begin(listener->user, &run));
    tell(listener, f->ctx, EPOCH);
    tell(listener, f->ctx, END);
    listener->end(listener->user);
    tensorboard_close(board);
    tensorboard_close(NULL);
    find_file(scratch_path(&f->scratch, "board"), path);
    events_read(&events, f->ctx, path);
    assert_int_equal(events.n, 4);
    for (int i = 1; i < 4; i++)
        assert_int_equal(proto_value(events.event[i], EVENT_STEP), i < 3 ? 8 : 9);
    assert_scalar(events.event[2], "classifier/lr", 0.1F);
    assert_scalar(events.event[2], "classifier/loss/main", 1.5F);
    assert_scalar(events.event[2], "classifier/loss/sparsity", 0.25F);
    assert_scalar(events.event[2], "classifier/train_top1", 62.5F);
    assert_false(event_scalar(events.event[2], "classifier/epoch", &value));
    assert_scalar(events.event[3], "run/avg_top1", 70.5F);
    assert_false(event_scalar(events.event[3], "run/steps", &value));
    events_fini(&events);
}

static void test_several_runs_have_folders_of_their_own(void **state)
{
    struct file_fixture *f = *state;
    struct tensorboard_options options = {.folder = scratch_path(&f->scratch, "board"),
                                          .by_run = true};
    static const char *const runs[] = {"out/first", "second"};
    static const char *const folders[] = {"board/first", "board/second"};
    struct tensorboard *board;
    assert_ok(f->ctx, tensorboard_open(f->ctx, &options, &board));
    const struct experiment_listener *listener = tensorboard_listener(board);
    for (int i = 0; i < 2; i++) {
        struct run_beginning run = {.out = runs[i]};
        char path[SCRATCH_PATH_MAX];
        assert_ok(f->ctx, listener->begin(listener->user, &run));
        tell(listener, f->ctx, END);
        listener->end(listener->user);
        find_file(scratch_path(&f->scratch, folders[i]), path);
    }
    tensorboard_close(board);
}

struct heard {
    int n_warnings;
};

static void count_warnings(void *user, enum der_log_level level, const char *text)
{
    struct heard *heard = user;
    if (level == DER_LOG_WARNING && strstr(text, "no more events are written, the run goes on: "))
        heard->n_warnings++;
}

static void test_a_full_disk_is_told_once_and_the_run_goes_on(void **state)
{
    struct file_fixture *f = *state;
    struct heard heard = {0};
    f->ctx->log = count_warnings;
    f->ctx->log_user = &heard;
    int n_warned = 0;
    for (int k = 1;; k++) {
        struct faulty_calls calls = {.fail_at = k, .error = ENOSPC, .is_full = true};
        const struct io_calls io = faulty_calls(&calls);
        struct tensorboard_options options = {.folder = scratch_path(&f->scratch, "board"),
                                              .io = &io};
        struct tensorboard *board;
        struct run_beginning run = {.out = NULL};
        heard.n_warnings = 0;
        if (tensorboard_open(f->ctx, &options, &board) != DER_OK)
            continue;
        const struct experiment_listener *listener = tensorboard_listener(board);
        if (listener->begin(listener->user, &run) == DER_OK) {
            for (int i = 0; i < 4; i++)
                tell(listener, f->ctx, EPOCH);
            listener->end(listener->user);
        }
        tensorboard_close(board);
        assert_true(heard.n_warnings <= 1);
        n_warned += heard.n_warnings;
        if (!calls.failed_call)
            break;
    }
    assert_int_equal(n_warned, 4); /* each of the four records was once the first that failed */
}

static void test_a_folder_that_cannot_be_made_is_told_at_once(void **state)
{
    struct file_fixture *f = *state;
    struct tensorboard_options options = {.folder = scratch_path(&f->scratch, "file")};
    struct tensorboard *board;
    scratch_text(&f->scratch, "file", "");
    assert_int_equal(tensorboard_open(f->ctx, &options, &board), DER_IO);
    assert_null(board);
    assert_non_null(strstr(der_ctx_error(f->ctx), "cannot make folder"));
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_numbers_of_records_are_scalars),
        CASE(test_several_runs_have_folders_of_their_own),
        CASE(test_a_full_disk_is_told_once_and_the_run_goes_on),
        CASE(test_a_folder_that_cannot_be_made_is_told_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
