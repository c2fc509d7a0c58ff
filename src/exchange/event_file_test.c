/*
 * Event files record by record: frames, checksums, the marks at their start, names, and a disk that is full.
 */
#include "exchange/event_file.h"

#include "support/event_reader.h"
#include "support/faulty_calls.h"
#include "support/file_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static enum der_status write_number(struct event_file *file, struct der_ctx *ctx, int64_t step)
{
    struct proto event;
    proto_init(&event, &ctx->mem);
    event_start(&event, step);
    enum der_status status = event_file_write(file, &event);
    proto_fini(&event);
    return status;
}

static void test_a_file_begins_with_its_version_and_a_mark(void **state)
{
    struct file_fixture *f = *state;
    struct event_file *file;
    struct events events;
    assert_ok(f->ctx, event_file_create(f->ctx, NULL, f->scratch.root, 41, &file));
    assert_ok(f->ctx, write_number(file, f->ctx, 42));
    events_read(&events, f->ctx, event_file_path(file));
    assert_int_equal(events.n, 3);
    assert_true(proto_is_text(proto_content(events.event[0], EVENT_FILE_VERSION), "brain.Event:2"));
    assert_int_equal(proto_value(events.event[1], EVENT_STEP), 41);
    assert_int_equal(proto_value(proto_content(events.event[1], EVENT_SESSION_LOG), SESSION_STATUS),
                     1);
    assert_int_equal(proto_value(events.event[2], EVENT_STEP), 42);
    uint64_t bits = proto_value(events.event[2], EVENT_WALL_TIME);
    double time;
    memcpy(&time, &bits, sizeof time);
    assert_true(time > 1.6e9); /* seconds of this century */
    events_fini(&events);
    event_file_close(file);
    event_file_close(NULL);
}

static void test_files_are_in_order_of_their_names(void **state)
{
    struct file_fixture *f = *state;
    struct event_file *files[3];
    scratch_text(&f->scratch, "events.out.tfevents.9999999990.elsewhere.1", "");
    scratch_text(&f->scratch, "events.out.tfevents.notanumber", "");
    for (int i = 0; i < 3; i++)
        assert_ok(f->ctx, event_file_create(f->ctx, NULL, f->scratch.root, 1, &files[i]));
    for (int i = 0; i < 3; i++) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "/events.out.tfevents.999999999%d.", i + 1);
        assert_non_null(strstr(event_file_path(files[i]), expected));
        event_file_close(files[i]);
    }
}

static void test_two_files_of_one_second_are_two(void **state)
{
    struct file_fixture *f = *state;
    struct event_file *first;
    struct event_file *second;
    assert_ok(f->ctx, event_file_create(f->ctx, NULL, f->scratch.root, 1, &first));
    assert_ok(f->ctx, event_file_create(f->ctx, NULL, f->scratch.root, 1, &second));
    assert_true(strcmp(event_file_path(first), event_file_path(second)) < 0);
    event_file_close(first);
    event_file_close(second);
}

static void test_a_full_disk_leaves_whole_records(void **state)
{
    struct file_fixture *f = *state;
    for (int k = 1;; k++) {
        struct faulty_calls calls = {.fail_at = k, .error = ENOSPC, .most = 7};
        const struct io_calls io = faulty_calls(&calls);
        struct event_file *file;
        char path[SCRATCH_PATH_MAX];
        struct events events;
        int n_written = 0;
        if (event_file_create(f->ctx, &io, f->scratch.root, 1, &file) != DER_OK) {
            assert_null(file);
            continue;
        }
        for (int64_t step = 1; step <= 3; step++)
            n_written += write_number(file, f->ctx, step) == DER_OK;
        (void)snprintf(path, sizeof path, "%s", event_file_path(file));
        event_file_close(file);
        if (!calls.failed_call) {
            assert_int_equal(n_written, 3);
            assert_true(k > 10);
            return;
        }
        if (strcmp(calls.failed_call, "ftruncate") == 0)
            continue; /* then a half record stays, where readers stop */
        events_read(&events, f->ctx, path);
        assert_int_equal(events.n, 2 + n_written);
        events_fini(&events);
    }
}

static void test_a_folder_that_is_not_there_is_told(void **state)
{
    struct file_fixture *f = *state;
    struct event_file *file;
    assert_int_equal(event_file_create(f->ctx, NULL, scratch_path(&f->scratch, "absent"), 1, &file),
                     DER_IO);
    assert_null(file);
    assert_non_null(strstr(der_ctx_error(f->ctx), "cannot list folder"));
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_a_file_begins_with_its_version_and_a_mark),
        CASE(test_files_are_in_order_of_their_names),
        CASE(test_two_files_of_one_second_are_two),
        CASE(test_a_full_disk_leaves_whole_records),
        CASE(test_a_folder_that_is_not_there_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
