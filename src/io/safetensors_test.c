/*
 * Writing and reading, byte for byte against files of the format's own library
 * (tools/gen_safetensors_fixtures.py), and with every call and allocation failing once.
 */
#include "io/safetensors.h"

#include "support/faulty_calls.h"
#include "support/file_fixture.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WEIGHTS = 2 * 3 * 3 * 3 };

/* The metadata of the fixture model.safetensors. */
#define METADATA                                                                                   \
    "{\"classes\":[\"caf\xc3\xa9\",\"a \\\"b\\\" \\\\ "                                            \
    "/\"],\"controls\":\"\t\r\n\b\f\x01\x1f\x7f\"}"

struct content {
    struct safetensors_tensor tensor;
    const void *data;
    size_t size;
};

static const float CLASSIFIER[] = {0.5F, -0.25F, 1e-30F, 3.0e38F, -0.0F, 1.0F};
static const float VARIANCES[] = {1.0F, 2.0F};

/* Tensors of the fixture model.safetensors. */
static void model_content(struct content content[3], float weights[WEIGHTS])
{
    for (int i = 0; i < WEIGHTS; i++)
        weights[i] = (float)i / 8.0F - 3.0F;
    content[0] = (struct content){
        {"classifier.weight", SAFETENSORS_F32, 2, {3, 2}, 0, 0}, CLASSIFIER, sizeof CLASSIFIER};
    content[1] = (struct content){{"extractors.0.bn1.running_var", SAFETENSORS_F32, 1, {2}, 0, 0},
                                  VARIANCES,
                                  sizeof VARIANCES};
    content[2] =
        (struct content){{"extractors.0.conv1.weight", SAFETENSORS_F32, 4, {2, 3, 3, 3}, 0, 0},
                         weights,
                         WEIGHTS * sizeof *weights};
}

static const int64_t LONGS[] = {INT64_MIN, INT64_MAX};
static const int64_t SCALAR[] = {7};
static const double DOUBLES[] = {1.0 / 3.0, -0x1p1000};
static const float FLOATS[] = {1.5F};
static const int32_t INTS[] = {INT32_MIN, INT32_MAX};
static const uint8_t BYTES[] = {0, 1, 255};

/* Tensors of the fixture types.safetensors. */
static const struct content TYPES[] = {
    {{"longs", SAFETENSORS_I64, 1, {2}, 0, 0}, LONGS, sizeof LONGS},
    {{"scalar", SAFETENSORS_I64, 0, {0}, 0, 0}, SCALAR, sizeof SCALAR},
    {{"doubles", SAFETENSORS_F64, 2, {1, 2}, 0, 0}, DOUBLES, sizeof DOUBLES},
    {{"empty", SAFETENSORS_F32, 2, {0, 4}, 0, 0}, NULL, 0},
    {{"floats", SAFETENSORS_F32, 1, {1}, 0, 0}, FLOATS, sizeof FLOATS},
    {{"ints", SAFETENSORS_I32, 2, {2, 1}, 0, 0}, INTS, sizeof INTS},
    {{"bytes", SAFETENSORS_U8, 1, {3}, 0, 0}, BYTES, sizeof BYTES},
};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0] };

static enum der_status fill(struct safetensors_writer *w, const struct content *content, int n,
                            const char *metadata)
{
    if (metadata)
        TRY(safetensors_describe(w, "der", metadata));
    for (int i = 0; i < n; i++)
        TRY(safetensors_declare(w, &content[i].tensor));
    for (int i = 0; i < n; i++)
        TRY(safetensors_put(w, content[i].tensor.name, content[i].data, content[i].size));
    return DER_OK;
}

static enum der_status save(struct file_fixture *f, const struct io_calls *io, const char *name,
                            const struct content *content, int n, const char *metadata)
{
    struct safetensors_writer *w;
    TRY(safetensors_writer_new(f->ctx, io, scratch_path(&f->scratch, name), &w));
    enum der_status status = fill(w, content, n, metadata);
    if (status != DER_OK) {
        safetensors_abort(w);
        return status;
    }
    return safetensors_commit(w);
}

static enum der_status save_model(struct file_fixture *f, const struct io_calls *io)
{
    struct content content[3];
    float weights[WEIGHTS];
    model_content(content, weights);
    return save(f, io, "model", content, 3, METADATA);
}

static void assert_same_bytes(struct file_fixture *f, const char *name, const char *fixture)
{
    struct file_bytes expected = fixture_read(f->ctx, fixture);
    struct file_bytes bytes = {0};
    struct fault fault;
    if (file_read(&f->ctx->mem, NULL, scratch_path(&f->scratch, name), 1 << 20, &bytes, &fault) !=
        DER_OK)
        fail_msg("%s", fault.text);
    assert_int_equal(bytes.size, expected.size);
    assert_memory_equal(bytes.data, expected.data, expected.size);
    file_bytes_free(&f->ctx->mem, &bytes);
    file_bytes_free(&f->ctx->mem, &expected);
}

static void test_what_is_written_is_what_the_reference_library_writes(void **state)
{
    struct file_fixture *f = *state;
    assert_ok(f->ctx, save_model(f, NULL));
    assert_same_bytes(f, "model", "safetensors/model.safetensors");
    assert_ok(f->ctx, save(f, NULL, "types", TYPES, N_TYPES, NULL));
    assert_same_bytes(f, "types", "safetensors/types.safetensors");
}

static void test_what_the_reference_library_writes_is_read(void **state)
{
    struct file_fixture *f = *state;
    char path[SCRATCH_PATH_MAX];
    struct safetensors_file *file;
    fixture_path(path, "safetensors/types.safetensors");
    assert_ok(f->ctx, safetensors_open(f->ctx, NULL, path, &file));
    assert_int_equal(safetensors_count(file), N_TYPES);
    assert_null(safetensors_metadata(file, "der"));
    size_t end = 0;
    for (int i = 0; i < N_TYPES; i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        char data[16];
        assert_string_equal(tensor->name, TYPES[i].tensor.name);
        assert_int_equal(tensor->begin, end);
        assert_int_equal(tensor->size, TYPES[i].size);
        assert_ptr_equal(safetensors_find(file, tensor->name), tensor);
        assert_ok(f->ctx, safetensors_read(file, &TYPES[i].tensor, SAFETENSORS_FINITE, data));
        if (TYPES[i].size > 0)
            assert_memory_equal(data, TYPES[i].data, TYPES[i].size);
        end += tensor->size;
    }
    assert_null(safetensors_find(file, "absent"));
    safetensors_close(file);
    safetensors_close(NULL);
}

static void test_metadata_is_read_with_all_escapes(void **state)
{
    struct file_fixture *f = *state;
    char path[SCRATCH_PATH_MAX];
    struct safetensors_file *file;
    fixture_path(path, "safetensors/model.safetensors");
    assert_ok(f->ctx, safetensors_open(f->ctx, NULL, path, &file));
    assert_string_equal(safetensors_metadata(file, "der"), METADATA);
    assert_null(safetensors_metadata(file, "DER"));
    safetensors_close(file);
}

static void test_data_may_come_in_pieces(void **state)
{
    struct file_fixture *f = *state;
    struct content content[3];
    float weights[WEIGHTS];
    struct safetensors_writer *w;
    model_content(content, weights);
    assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, scratch_path(&f->scratch, "model"), &w));
    for (int i = 0; i < 3; i++)
        assert_ok(f->ctx, safetensors_declare(w, &content[i].tensor));
    assert_ok(f->ctx, safetensors_describe(w, "der", METADATA));
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < content[i].size; k += 4)
            assert_ok(f->ctx, safetensors_put(w, content[i].tensor.name,
                                              (const char *)content[i].data + k, 4));
    assert_ok(f->ctx, safetensors_commit(w));
    assert_same_bytes(f, "model", "safetensors/model.safetensors");
}

static void test_a_file_without_tensors_is_a_file(void **state)
{
    struct file_fixture *f = *state;
    struct safetensors_file *file;
    assert_ok(f->ctx, save(f, NULL, "none", NULL, 0, NULL));
    assert_ok(f->ctx, safetensors_open(f->ctx, NULL, scratch_path(&f->scratch, "none"), &file));
    assert_int_equal(safetensors_count(file), 0);
    assert_null(safetensors_find(file, "a"));
    safetensors_close(file);
}

static void test_many_tensors_are_found_by_name(void **state)
{
    struct file_fixture *f = *state;
    enum { MANY = 300 };
    static struct content content[MANY];
    static char names[MANY][16];
    static float values[MANY];
    struct safetensors_file *file;
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%d", (i * 7919) % MANY);
        values[i] = (float)i;
        content[i] = (struct content){
            {names[i], SAFETENSORS_F32, 1, {1}, 0, 0}, &values[i], sizeof values[i]};
    }
    assert_ok(f->ctx, save(f, NULL, "many", content, MANY, NULL));
    assert_ok(f->ctx, safetensors_open(f->ctx, NULL, scratch_path(&f->scratch, "many"), &file));
    for (int i = 0; i < MANY; i++) {
        float value;
        assert_ok(f->ctx, safetensors_read(file, &content[i].tensor, SAFETENSORS_ANY, &value));
        assert_true(value == values[i]);
    }
    safetensors_close(file);
}

static void test_another_type_or_shape_than_wanted_is_refused(void **state)
{
    struct file_fixture *f = *state;
    struct safetensors_file *file;
    float data[8];
    assert_ok(f->ctx, save_model(f, NULL));
    assert_ok(f->ctx, safetensors_open(f->ctx, NULL, scratch_path(&f->scratch, "model"), &file));
    struct safetensors_tensor wanted = {"classifier.weight", SAFETENSORS_F32, 2, {2, 3}, 0, 0};
    assert_int_equal(safetensors_read(file, &wanted, SAFETENSORS_ANY, data), DER_FORMAT);
    assert_non_null(
        strstr(der_ctx_error(f->ctx), "'classifier.weight' is F32 [3, 2], want F32 [2, 3]"));
    wanted.dtype = SAFETENSORS_I32;
    wanted.rank = 0;
    assert_int_equal(safetensors_read(file, &wanted, SAFETENSORS_ANY, data), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "is F32 [3, 2], want I32 []"));
    wanted.name = "classifier.bias";
    assert_int_equal(safetensors_read(file, &wanted, SAFETENSORS_ANY, data), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "there is no tensor 'classifier.bias'"));
    safetensors_close(file);
}

static void test_values_that_are_not_finite_are_found_on_request(void **state)
{
    struct file_fixture *f = *state;
    const float floats[] = {1.0F, -INFINITY};
    const double doubles[] = {NAN, 1.0};
    const struct content content[] = {
        {{"d", SAFETENSORS_F64, 1, {2}, 0, 0}, doubles, sizeof doubles},
        {{"f", SAFETENSORS_F32, 1, {2}, 0, 0}, floats, sizeof floats},
        {{"i", SAFETENSORS_I32, 1, {2}, 0, 0}, floats, sizeof floats},
    };
    static const enum der_status expected[] = {DER_FORMAT, DER_FORMAT, DER_OK};
    struct safetensors_file *file;
    assert_ok(f->ctx, save(f, NULL, "a", content, 3, NULL));
    assert_ok(f->ctx, safetensors_open(f->ctx, NULL, scratch_path(&f->scratch, "a"), &file));
    for (int i = 0; i < 3; i++) {
        double data[2];
        assert_ok(f->ctx, safetensors_read(file, &content[i].tensor, SAFETENSORS_ANY, data));
        assert_int_equal(safetensors_read(file, &content[i].tensor, SAFETENSORS_FINITE, data),
                         expected[i]);
    }
    assert_non_null(
        strstr(der_ctx_error(f->ctx), "/a: tensor 'f' holds a value that is not finite"));
    safetensors_close(file);
}

/* ---- Faults ------------------------------------------------------------------------------------- */

/* Opens "model" and reads all of it; the values must be those of the fixture. */
static enum der_status load_model(struct file_fixture *f, const struct io_calls *io)
{
    struct content content[3];
    float weights[WEIGHTS];
    float data[WEIGHTS];
    struct safetensors_file *file;
    model_content(content, weights);
    TRY(safetensors_open(f->ctx, io, scratch_path(&f->scratch, "model"), &file));
    enum der_status status = DER_OK;
    for (int i = 0; i < 3 && status == DER_OK; i++) {
        status = safetensors_read(file, &content[i].tensor, SAFETENSORS_FINITE, data);
        if (status == DER_OK)
            assert_memory_equal(data, content[i].data, content[i].size);
    }
    safetensors_close(file);
    return status;
}

static void test_whichever_call_of_a_save_fails_the_last_model_loads(void **state)
{
    struct file_fixture *f = *state;
    int n_failed = 0;
    for (int k = 1;; k++) {
        struct faulty_calls calls = {.fail_at = k, .error = ENOSPC, .most = 100, .is_full = true};
        struct io_calls io = faulty_calls(&calls);
        assert_ok(f->ctx, save_model(f, NULL));
        enum der_status status = save_model(f, &io);
        assert_ok(f->ctx, load_model(f, NULL));
        if (!calls.failed_call)
            break;
        n_failed += status != DER_OK;
    }
    assert_true(n_failed > 12);
}

static void test_short_and_interrupted_calls_change_nothing(void **state)
{
    struct file_fixture *f = *state;
    struct faulty_calls calls = {.most = 5, .interrupts = true};
    struct io_calls io = faulty_calls(&calls);
    assert_ok(f->ctx, save_model(f, &io));
    assert_same_bytes(f, "model", "safetensors/model.safetensors");
    assert_ok(f->ctx, load_model(f, &io));
}

static void test_whichever_call_of_a_load_fails_is_told(void **state)
{
    struct file_fixture *f = *state;
    assert_ok(f->ctx, save_model(f, NULL));
    int n_failed = 0;
    for (int k = 1;; k++) {
        struct faulty_calls calls = {.fail_at = k, .error = EIO};
        struct io_calls io = faulty_calls(&calls);
        enum der_status status = load_model(f, &io);
        if (!calls.failed_call || strcmp(calls.failed_call, "close") == 0)
            break;
        assert_int_equal(status, DER_IO);
        assert_non_null(strstr(der_ctx_error(f->ctx), "/model: Input/output error"));
        n_failed++;
    }
    assert_int_equal(n_failed, 2 + 2 + 3); /* open and stat, length and header, tensors */
}

static void test_every_lack_of_memory_is_told(void **state)
{
    struct file_fixture *f = *state;
    struct mem *mem = &f->ctx->mem;
    assert_ok(f->ctx, save_model(f, NULL));
    for (int loads = 0; loads < 2; loads++) {
        int n_failed = 0;
        for (uint64_t k = 1;; k++) {
            atomic_store(&mem->fail_at, atomic_load(&mem->n_allocs) + k);
            enum der_status status = loads ? load_model(f, NULL) : save_model(f, NULL);
            bool has_failed = atomic_load(&mem->n_allocs) >= atomic_load(&mem->fail_at);
            atomic_store(&mem->fail_at, 0);
            assert_ok(f->ctx, load_model(f, NULL));
            if (!has_failed)
                break;
            assert_int_equal(status, DER_NOMEM);
            assert_int_equal(der_ctx_memory(f->ctx).n_live, 0);
            n_failed++;
        }
        assert_true(n_failed >= 6);
    }
}

static void test_a_file_that_shrinks_after_opening_is_told(void **state)
{
    struct file_fixture *f = *state;
    struct safetensors_file *file;
    float data[WEIGHTS];
    struct content content[3];
    float weights[WEIGHTS];
    model_content(content, weights);
    assert_ok(f->ctx, save_model(f, NULL));
    assert_ok(f->ctx, safetensors_open(f->ctx, NULL, scratch_path(&f->scratch, "model"), &file));
    assert_int_equal(truncate(scratch_path(&f->scratch, "model"), 600), 0);
    assert_ok(f->ctx, safetensors_read(file, &content[0].tensor, SAFETENSORS_ANY, data));
    assert_int_equal(safetensors_read(file, &content[2].tensor, SAFETENSORS_ANY, data), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "became shorter while it was read"));
    safetensors_close(file);
}

int main(void)
{
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, file_fixture_set_up, file_fixture_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_what_is_written_is_what_the_reference_library_writes),
        CASE(test_what_the_reference_library_writes_is_read),
        CASE(test_metadata_is_read_with_all_escapes),
        CASE(test_data_may_come_in_pieces),
        CASE(test_a_file_without_tensors_is_a_file),
        CASE(test_many_tensors_are_found_by_name),
        CASE(test_another_type_or_shape_than_wanted_is_refused),
        CASE(test_values_that_are_not_finite_are_found_on_request),
        CASE(test_whichever_call_of_a_save_fails_the_last_model_loads),
        CASE(test_short_and_interrupted_calls_change_nothing),
        CASE(test_whichever_call_of_a_load_fails_is_told),
        CASE(test_every_lack_of_memory_is_told),
        CASE(test_a_file_that_shrinks_after_opening_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
