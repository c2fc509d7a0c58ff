/*
 * Model files: what is loaded is what was written, to the last bit of a feature; and a refusal with its
 * sentence for everything that can be wrong with one.
 */
#include "store/model_file.h"

#include "support/hand_model.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <string.h>

enum {
    BATCH = 2,
    SIZE = HAND_MODEL_SIDE,
    PIXELS = BATCH * HAND_MODEL_CHANNELS * SIZE * SIZE,
    CLASSES = HAND_MODEL_CLASSES
};

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct scratch scratch;
    struct model model; /* of borrowed and owned parts */
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f.ctx, backend_open(f.ctx, test_backend(), NULL, &f.be));
    scratch_init(&f.scratch);
    hand_model_init(&f.model, f.be);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    hand_model_fini(&f->model);
    scratch_fini(&f->scratch);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

/* Features of one extractor for a fixed batch. */
static void run(struct fixture *f, struct extractor *extractor, float *features)
{
    const struct folded *folded;
    struct buffer *image;
    struct buffer *matrix;
    struct sequence *sequence;
    float pixels[PIXELS];
    size_t bytes = BATCH * (size_t)resnet_feature_dim(&extractor->spec) * sizeof *features;
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (float)(i * 31 % 17) / 8.0F - 1.0F;
    assert_ok(f->ctx, extractor_folded(extractor, BATCH, &folded));
    assert_ok(f->ctx, buffer_new(f->be, sizeof pixels, &image));
    assert_ok(f->ctx, buffer_new(f->be, bytes, &matrix));
    assert_ok(f->ctx, buffer_write(image, 0, pixels, sizeof pixels));
    assert_ok(f->ctx, folded_bind(folded, (struct span){image, 0, 0}, (struct span){matrix, 0, 0}));
    struct sequence_item item = {folded->program, 0};
    assert_ok(f->ctx, sequence_new(f->be, &item, 1, &sequence));
    assert_ok(f->ctx, sequence_run(sequence));
    assert_ok(f->ctx, buffer_read(matrix, 0, features, bytes));
    sequence_free(sequence);
    buffer_free(image);
    buffer_free(matrix);
}

static void assert_same_params(const struct param_set *a, const struct param_set *b)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        float x[1024];
        float y[1024];
        assert_string_equal(a->items[i].name, b->items[i].name);
        assert_ok(a->ctx, param_read(a, i, x));
        assert_ok(b->ctx, param_read(b, i, y));
        assert_memory_equal(x, y, (size_t)shape_count(a->items[i].shape) * sizeof *x);
    }
}

static void test_a_loaded_model_computes_the_same_bits(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    struct model *loaded;
    assert_ok(f->ctx, model_write(&f->model, NULL, path));
    assert_ok(f->ctx, model_load(f->be, NULL, path, &loaded));
    assert_int_equal(loaded->n_extractors, 2);
    for (int i = 0; i < 2; i++) {
        float before[64] = {0};
        float after[64] = {0};
        assert_same_params(f->model.extractors[i]->params, loaded->extractors[i]->params);
        run(f, f->model.extractors[i], before);
        run(f, loaded->extractors[i], after);
        assert_memory_equal(before, after, sizeof before);
    }
    assert_same_params(f->model.classifier, loaded->classifier);
    model_free(loaded);
}

/* The hand-made model's classifier, with a bias of `n` values. */
static struct param_set *biased(struct fixture *f, int n)
{
    struct param_set *head;
    int index;
    assert_ok(f->ctx, param_set_new(f->ctx, &head));
    assert_ok(f->ctx, param_set_add(head, "classifier.weight", shape_2d(CLASSES, 10), PARAM_LEARNT,
                                    INIT_ZERO, &index));
    assert_ok(f->ctx,
              param_set_add(head, "classifier.bias", shape_1d(n), PARAM_LEARNT, INIT_ZERO, &index));
    assert_ok(f->ctx, param_set_allocate(head, f->be));
    hand_model_fill(head, 3);
    return head;
}

static void test_a_bias_is_loaded_and_copied(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    struct model model = f->model;
    struct model *loaded;
    struct model *copy;
    model.classifier = biased(f, CLASSES);
    assert_ok(f->ctx, model_write(&model, NULL, path));
    assert_ok(f->ctx, model_load(f->be, NULL, path, &loaded));
    assert_same_params(model.classifier, loaded->classifier);
    assert_ok(f->ctx, model_copy(loaded, &copy));
    assert_same_params(model.classifier, copy->classifier);
    model_free(copy);
    model_free(loaded);
    param_set_free(model.classifier);
    assert_ok(f->ctx, model_copy(&f->model, &copy)); /* most have none */
    assert_int_equal(copy->classifier->n, 1);
    model_free(copy);
}

static void test_a_loaded_model_says_what_was_written(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    const struct model_info *want = &f->model.info;
    struct model *loaded;
    int n_steps;
    assert_ok(f->ctx, model_write(&f->model, NULL, path));
    assert_ok(f->ctx, model_peek_steps(f->ctx, NULL, path, &n_steps));
    assert_int_equal(n_steps, 2);
    assert_ok(f->ctx, model_load(f->be, NULL, path, &loaded));
    const struct model_info *is = &loaded->info;
    assert_int_equal(is->n_classes, CLASSES);
    for (int k = 0; k < CLASSES; k++)
        assert_string_equal(is->classes[k], HAND_MODEL_NAMES[k]);
    assert_int_equal(is->n_steps, 2);
    assert_memory_equal(is->steps, want->steps, 2 * sizeof(int));
    assert_int_equal(is->input.geometry, AUGMENT_SQUASH);
    assert_int_equal(is->input.resize, SIZE + 1);
    assert_memory_equal(is->input.mean, want->input.mean, HAND_MODEL_CHANNELS * sizeof(float));
    assert_memory_equal(is->input.std, want->input.std, HAND_MODEL_CHANNELS * sizeof(float));
    assert_string_equal(is->network, "resnet18-cifar");
    assert_true(is->width == 0.12 && is->temperature == 5.0 && is->seed == want->seed);
    assert_string_equal(is->version, "0.1.0");
    assert_string_equal(is->preset, "custom");
    assert_int_equal(model_feature_dim(loaded), 10);
    model_free(loaded);
}

/* What was loaded and written again is the same file. */
static void test_a_model_that_travels_keeps_its_bytes(void **state)
{
    struct fixture *f = *state;
    char first[SCRATCH_PATH_MAX];
    struct model *loaded;
    struct file_bytes a = {0};
    struct file_bytes b = {0};
    struct fault fault;
    (void)snprintf(first, sizeof first, "%s", scratch_path(&f->scratch, "first"));
    const char *second = scratch_path(&f->scratch, "second");
    assert_ok(f->ctx, model_write(&f->model, NULL, first));
    assert_ok(f->ctx, model_load(f->be, NULL, first, &loaded));
    assert_ok(f->ctx, model_write(loaded, NULL, second));
    model_free(loaded);
    assert_int_equal(file_read(&f->ctx->mem, NULL, first, 1 << 20, &a, &fault), DER_OK);
    assert_int_equal(file_read(&f->ctx->mem, NULL, second, 1 << 20, &b, &fault), DER_OK);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    file_bytes_free(&f->ctx->mem, &a);
    file_bytes_free(&f->ctx->mem, &b);
}

/* ---- refusals ------------------------------------------------------------------------------------- */

/* Writes the model with its description changed: `from` becomes `to`, which has the same length. */
static void write_changed(struct fixture *f, const char *from, const char *to, const char *path)
{
    struct file_bytes bytes = {0};
    struct fault fault;
    size_t n = strlen(from);
    assert_int_equal(strlen(to), n);
    assert_ok(f->ctx, model_write(&f->model, NULL, path));
    assert_int_equal(file_read(&f->ctx->mem, NULL, path, 1 << 20, &bytes, &fault), DER_OK);
    size_t at = 0;
    while (at + n <= bytes.size && memcmp(bytes.data + at, from, n) != 0)
        at++;
    assert_true(at + n <= bytes.size);
    memcpy(bytes.data + at, to, n);
    scratch_write(&f->scratch, "model", bytes.data, bytes.size);
    file_bytes_free(&f->ctx->mem, &bytes);
}

static void assert_refused(struct fixture *f, const char *path, const char *sentence)
{
    struct model *loaded;
    assert_int_equal(model_load(f->be, NULL, path, &loaded), DER_FORMAT);
    assert_null(loaded);
    if (!strstr(f->ctx->error, sentence))
        fail_msg("'%s' does not say '%s'", f->ctx->error, sentence);
}

/* The header holds the description as a text within JSON: its quotes are escaped. */
static void test_every_fault_of_a_description_is_told(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *from, *to, *sentence;
    } faults[] = {
        {"format\\\":1", "format\\\":2", "reads format 1"},
        {"\\\"classes\\\"", "\\\"klasses\\\"", "'klasses' is no member"},
        {"\\\"steps\\\"", "\\\"image\\\"", "'image' occurs twice"},
        {"\\\"cat\\\"", "\\\"\\\"   ", "is not a text or is empty"},
        {"[2,1]", "[2,2]", "add up to 4, but there are 3 classes"},
        {"[2,1]", "[2,0]", "number 2 of 'steps' is not a whole number"},
        {"height\\\":8", "height\\\":0", "'height' must be a whole number from 1"},
        {"squash", "squish", "'geometry' cannot be 'squish'"},
        {"resize\\\":9", "resize\\\":7", "geometry 'squash' does not go with 'resize' 7"},
        {"0.2675", "-0.267", "number 1 of 'std' is not usable"},
        {"0.4867", "1e9999", "not usable"},
        {"resnet18-cifar", "resnet19-cifar", "unknown network 'resnet19-cifar'"},
        {"\\\"width\\\":0.12", "\\\"width\\\":0.00", "width factor"},
        {"\\\"3x3\\\"", "\\\"3x4\\\"", "'stem' cannot be '3x4'"},
        {"[3,4]", "[3,5]", "want F32 [5, "},
        {"[3,4]", "[3,0]", "number 2 of 'streams'"},
        {"[[5],[2,7]]", "[[5],[2.7]]", "number 1 of 'inner'"},
        {"[[5],[2,7]]", "[[5,2,7]  ]", "as many lists as 'streams' (2)"},
        {"temperature\\\":5", "temperature\\\":0", "'temperature' must lie above 0"},
        {"\\\"step\\\":2", "\\\"step\\\":1", "'step' must be a whole number from 2 to 2"},
        {"\"extractors.1.bn1.bias\"", "\"extractors.1.bn1.bios\"",
         "no tensor 'extractors.1.bn1.bias'"},
        {"\"classifier.weight\"", "\"classifier.veight\"", "no tensor 'classifier.weight'"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        char path[SCRATCH_PATH_MAX];
        (void)snprintf(path, sizeof path, "%s", scratch_path(&f->scratch, "model"));
        write_changed(f, faults[i].from, faults[i].to, path);
        assert_refused(f, path, faults[i].sentence);
    }
}

static void test_a_negative_variance_is_refused(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    struct param_set *params = f->model.extractors[1]->params;
    const float values[3] = {1.0F, -1e-6F, 1.0F};
    assert_ok(f->ctx, param_write(params, LAYER_VAR, values));
    assert_ok(f->ctx, model_write(&f->model, NULL, path));
    assert_refused(f, path, "'extractors.1.bn1.running_var' holds a negative variance");
}

static void test_a_weight_that_is_not_finite_is_refused(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    float values[CLASSES * 10] = {0};
    values[7] = 1e30F * 1e30F;
    assert_ok(f->ctx, param_write(f->model.classifier, 0, values));
    assert_ok(f->ctx, model_write(&f->model, NULL, path));
    assert_refused(f, path, "'classifier.weight' holds a value that is not finite");
}

static void test_a_classifier_of_other_features_is_refused(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    f->model.n_extractors = 1; /* the classifier has the columns of both */
    assert_ok(f->ctx, model_write(&f->model, NULL, path));
    f->model.n_extractors = 2;
    assert_refused(f, path, "tensor 'classifier.weight' is F32 [3, 10], want F32 [3, 4]");
}

static void test_a_bias_of_other_classes_is_refused(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    struct model model = f->model;
    model.classifier = biased(f, CLASSES + 1);
    assert_ok(f->ctx, model_write(&model, NULL, path));
    param_set_free(model.classifier);
    assert_refused(f, path, "tensor 'classifier.bias' is F32 [4], want F32 [3]");
}

static void test_a_tensor_too_many_is_refused(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    struct param_set *larger;
    int index;
    assert_ok(f->ctx, param_set_new(f->ctx, &larger));
    assert_ok(f->ctx, param_set_add(larger, "classifier.weight", shape_2d(CLASSES, 10),
                                    PARAM_LEARNT, INIT_ZERO, &index));
    assert_ok(f->ctx, param_set_add(larger, "classifier.scale", shape_1d(CLASSES), PARAM_LEARNT,
                                    INIT_ZERO, &index));
    assert_ok(f->ctx, param_set_allocate(larger, f->be));
    struct model model = f->model;
    model.classifier = larger;
    assert_ok(f->ctx, model_write(&model, NULL, path));
    param_set_free(larger);
    assert_refused(f, path, "tensors, but the model it describes has");
}

static void test_a_file_of_another_program_is_refused(void **state)
{
    struct fixture *f = *state;
    struct safetensors_writer *writer;
    const char *path = scratch_path(&f->scratch, "model");
    assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, path, &writer));
    assert_ok(f->ctx, safetensors_commit(writer));
    assert_refused(f, path, "not a file of der");
}

static void test_every_failed_allocation_of_loading_is_survived(void **state)
{
    struct fixture *f = *state;
    const char *path = scratch_path(&f->scratch, "model");
    assert_ok(f->ctx, model_write(&f->model, NULL, path));
    for (int n = 1;; n++) {
        struct model *loaded;
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + (unsigned)n);
        enum der_status status = model_load(f->be, NULL, path, &loaded);
        atomic_store(&f->ctx->mem.fail_at, 0);
        if (status == DER_OK) {
            assert_true(n > 50);
            model_free(loaded);
            break;
        }
        assert_int_equal(status, DER_NOMEM);
        assert_null(loaded);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_loaded_model_computes_the_same_bits),
        TEST(test_a_bias_is_loaded_and_copied),
        TEST(test_a_loaded_model_says_what_was_written),
        TEST(test_a_model_that_travels_keeps_its_bytes),
        TEST(test_every_fault_of_a_description_is_told),
        TEST(test_a_negative_variance_is_refused),
        TEST(test_a_weight_that_is_not_finite_is_refused),
        TEST(test_a_classifier_of_other_features_is_refused),
        TEST(test_a_bias_of_other_classes_is_refused),
        TEST(test_a_tensor_too_many_is_refused),
        TEST(test_a_file_of_another_program_is_refused),
        TEST(test_every_failed_allocation_of_loading_is_survived),
    };
    if (!test_backend_is_here())
        return test_backend_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
