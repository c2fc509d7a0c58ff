/*
 * Models of the public interface: loaded, described, asked, tested, saved.
 */
#include <der/der.h>

#include "core/file.h"
#include "core/rng.h"
#include "json/json.h"
#include "support/made_model.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PICTURES = 70, SIDE = 9, BYTES = 3 * SIDE * SIDE };

struct fixture {
    struct der_ctx *ctx;
    struct scratch scratch;
    char path[SCRATCH_PATH_MAX];
    struct der_model_options options;
    struct der_model *model;
    uint8_t bytes[PICTURES][BYTES];
    struct der_image images[PICTURES];
};

static int set_up(void **state)
{
    static struct fixture f;
    struct augment_spec input = made_input();
    f = (struct fixture){.ctx = test_ctx_new(1), .options = {.backend = test_backend()}};
    scratch_init(&f.scratch);
    (void)snprintf(f.path, sizeof f.path, "%s", scratch_path(&f.scratch, "a model"));
    made_model_write(f.ctx, f.path, &input, 2.5);
    assert_ok(f.ctx, der_model_load(f.ctx, f.path, &f.options, &f.model));
    for (int i = 0; i < PICTURES; i++) {
        for (int k = 0; k < BYTES; k++)
            f.bytes[i][k] = (uint8_t)rng_at(4, RNG_TEST, (uint32_t)i, (uint64_t)k).word[0];
        f.images[i] =
            (struct der_image){.pixels = f.bytes[i], .channels = 3, .height = SIDE, .width = SIDE};
    }
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    der_model_free(f->model);
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}

static void test_a_model_is_described(void **state)
{
    struct fixture *f = *state;
    struct der_model_info info = der_model_info(f->model);
    struct der_extractor_info extractor;
    assert_int_equal(info.n_classes, MADE_CLASSES);
    assert_int_equal(info.n_steps, 2);
    assert_int_equal(info.n_extractors, 2);
    assert_true(info.channels == 3 && info.height == MADE_SIZE && info.width == MADE_SIZE);
    assert_true(info.temperature == 2.5 && info.mean[1] == 0.25F && info.std[2] == 0.125F);
    assert_string_equal(info.transform, "plain");
    assert_string_equal(info.network, "resnet18-cifar");
    assert_string_equal(info.preset, "custom");
    assert_int_equal(info.features, 5 + 7);
    assert_int_equal(info.params_total - info.params, (12 + 1) * MADE_CLASSES); /* with a bias */
    assert_string_equal(der_model_class(f->model, 1), "caf\xc3\xa9");
    assert_null(der_model_class(f->model, MADE_CLASSES));
    assert_null(der_model_class(f->model, -1));
    assert_int_equal(der_model_step_classes(f->model, 0), 3);
    assert_int_equal(der_model_step_classes(f->model, 2), 0);
    int64_t params = 0;
    int64_t multiply_adds = 0;
    for (int i = 0; i < 2; i++) {
        assert_ok(f->ctx, der_model_extractor(f->model, i, &extractor));
        assert_int_equal(extractor.n_stages, 2);
        assert_int_equal(extractor.streams[1], 5 + 2 * i);
        assert_int_equal(extractor.inner[1][1], 7);
        assert_int_equal(extractor.features, 5 + 2 * i);
        params += extractor.params;
        multiply_adds += extractor.multiply_adds;
    }
    assert_string_equal(extractor.stem, "3x3-pool");
    assert_int_equal(params, info.params);
    assert_int_equal(multiply_adds, info.multiply_adds);
    /* Stem and two blocks of 3x3 convolutions with their two numbers a channel, and a 1x1 shortcut. */
    assert_ok(f->ctx, der_model_extractor(f->model, 0, &extractor));
    int64_t want = 27 * 3 + 6 + 9 * (3 * 5 + 5 * 3) + 16 + 9 * (3 * 2 + 2 * 5) + 14 + 3 * 5 + 10 +
                   9 * (5 * 7 + 7 * 5) + 24;
    assert_int_equal(extractor.params, want);
    assert_int_equal(der_model_extractor(f->model, 2, &extractor), DER_ARG);
}

static cJSON *parse(struct fixture *f, const char *text)
{
    cJSON *value;
    assert_ok(f->ctx, json_parse(f->ctx, "text", text, strlen(text), &value));
    return value;
}

static double number(const cJSON *object, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static void test_a_model_as_json(void **state)
{
    struct fixture *f = *state;
    struct der_model_info info = der_model_info(f->model);
    const char *text;
    assert_ok(f->ctx, der_model_json(f->model, &text));
    cJSON *root = parse(f, text);
    const cJSON *classes = cJSON_GetObjectItemCaseSensitive(root, "classes");
    const cJSON *extractors = cJSON_GetObjectItemCaseSensitive(root, "extractors");
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(root, "parameters");
    assert_int_equal(cJSON_GetArraySize(classes), MADE_CLASSES);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(classes, 2)), made_classes[2]);
    assert_int_equal(cJSON_GetArraySize(extractors), 2);
    assert_true(number(cJSON_GetArrayItem(extractors, 1), "features") == 7.0);
    assert_true(number(parameters, "total") == (double)info.params_total);
    assert_true(number(root, "temperature") == 2.5);
    json_free(root);
}

static void test_predictions_of_images(void **state)
{
    struct fixture *f = *state;
    static float logits[PICTURES * MADE_CLASSES];
    static struct der_guess guesses[PICTURES * 2];
    assert_ok(f->ctx, der_model_logits(f->model, f->images, PICTURES, logits));
    assert_ok(f->ctx, der_model_predict(f->model, f->images, PICTURES, 2, guesses));
    for (int i = 0; i < PICTURES; i++) {
        const float *row = logits + (size_t)i * MADE_CLASSES;
        const struct der_guess *best = &guesses[2 * i];
        double sum = 0.0;
        int above = 0;
        for (int c = 0; c < MADE_CLASSES; c++) {
            above += row[c] > best->logit;
            sum += exp(((double)row[c] - (double)best->logit) / 2.5);
        }
        assert_int_equal(above, 0);
        assert_true(best->logit == row[best->label]);
        assert_true(fabs((double)best->probability - 1.0 / sum) < 1e-6); /* a float's rounding */
        assert_string_equal(best->name, made_classes[best->label]);
        assert_true(best[1].probability <= best[0].probability);
    }
    assert_int_equal(der_model_predict(f->model, f->images, 1, 0, guesses), DER_ARG);
    f->images[65].channels = 2;
    assert_int_equal(der_model_predict(f->model, f->images, PICTURES, 1, guesses), DER_ARG);
    assert_non_null(strstr(der_ctx_error(f->ctx), "picture 66 has neither 1 nor 3 channels"));
    assert_ok(f->ctx, der_model_predict(f->model, f->images, 0, 1, guesses));
}

static void test_grey_and_strides(void **state)
{
    struct fixture *f = *state;
    float want[MADE_CLASSES];
    float got[MADE_CLASSES];
    /* Grey as it is, and as three equal channels of planes. */
    uint8_t planes[3][SIDE * SIDE];
    for (int c = 0; c < 3; c++)
        memcpy(planes[c], f->bytes[0], sizeof planes[c]);
    struct der_image grey = {.pixels = f->bytes[0], .channels = 1, .height = SIDE, .width = SIDE};
    struct der_image colour = {.pixels = planes[0],
                               .channels = 3,
                               .height = SIDE,
                               .width = SIDE,
                               .channel_stride = SIDE * SIDE,
                               .row_stride = SIDE,
                               .pixel_stride = 1};
    assert_ok(f->ctx, der_model_logits(f->model, &colour, 1, want));
    assert_ok(f->ctx, der_model_logits(f->model, &grey, 1, got));
    assert_memory_equal(got, want, sizeof want);
}

static void test_predictions_as_json(void **state)
{
    struct fixture *f = *state;
    struct der_guess guesses[MADE_CLASSES + 2];
    const char *text;
    float logits[MADE_CLASSES];
    assert_ok(f->ctx, der_model_logits(f->model, f->images, 1, logits));
    assert_ok(f->ctx, der_model_predict(f->model, f->images, 1, MADE_CLASSES + 2, guesses));
    assert_int_equal(guesses[MADE_CLASSES].label, -1);
    assert_ok(f->ctx, der_model_prediction_json(f->model, "a\n\xff\"", guesses, 2, true, &text));
    assert_null(strchr(text, '\n'));
    cJSON *root = parse(f, text);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "guesses");
    const cJSON *row = cJSON_GetObjectItemCaseSensitive(root, "logits");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "path")),
                        "a\n\xef\xbf\xbd\"");
    assert_int_equal(cJSON_GetArraySize(list), 2);
    assert_true(number(cJSON_GetArrayItem(list, 0), "label") == guesses[0].label);
    assert_true(number(cJSON_GetArrayItem(list, 1), "probability") ==
                (double)guesses[1].probability);
    assert_int_equal(cJSON_GetArraySize(row), MADE_CLASSES);
    for (int c = 0; c < MADE_CLASSES; c++)
        assert_true(cJSON_GetNumberValue(cJSON_GetArrayItem(row, c)) == (double)logits[c]);
    json_free(root);
    assert_ok(f->ctx,
              der_model_prediction_json(f->model, "x", guesses, MADE_CLASSES + 2, false, &text));
    root = parse(f, text);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(root, "guesses")),
                     MADE_CLASSES);
    assert_null(cJSON_GetObjectItemCaseSensitive(root, "logits"));
    json_free(root);
}

static void keep_log(void *user, enum der_log_level level, const char *text)
{
    assert_int_equal(level, DER_LOG_WARNING);
    (void)snprintf(user, CTX_ERROR_MAX, "%s", text);
}

static void test_a_test_counts_what_predictions_say(void **state)
{
    struct fixture *f = *state;
    struct der_class_score scores[MADE_CLASSES];
    struct der_evaluate_options options = {.scores = scores};
    struct der_evaluation evaluation;
    struct der_data *data;
    char log[CTX_ERROR_MAX] = "";
    int right = 0;
    static const int used[4] = {0, 2, 3, 4};
    const char *text;
    f->ctx->log = keep_log;
    f->ctx->log_user = log;
    assert_ok(f->ctx, der_data_new(f->ctx, &data));
    for (int i = 0; i < PICTURES; i++) {
        struct der_guess guess;
        const char *name = i % 7 == 6 ? "zebra" : made_classes[used[i % 4]];
        assert_ok(f->ctx, der_data_add(data, DER_SPLIT_TEST, name, &f->images[i]));
        assert_ok(f->ctx, der_model_predict(f->model, &f->images[i], 1, 1, &guess));
        right += strcmp(guess.name, name) == 0;
    }
    assert_ok(f->ctx, der_model_evaluate(f->model, data, DER_SPLIT_TEST, &options, &evaluation));
    assert_int_equal(evaluation.n, 60);
    assert_int_equal(evaluation.n_classes, 4);
    assert_int_equal(evaluation.unknown_classes, 1);
    assert_int_equal(evaluation.unknown_images, 10);
    assert_true(right > 0 && fabs(evaluation.top1 - 100.0 * right / 60.0) < 1e-12);
    assert_true(evaluation.top5 == 100.0); /* there are five classes */
    assert_int_equal(scores[0].n + scores[2].n + scores[3].n + scores[4].n, 60);
    assert_int_equal(scores[0].top1 + scores[2].top1 + scores[3].top1 + scores[4].top1, right);
    assert_non_null(strstr(log, "does not know 1 of the 5 classes of the set in memory, 'zebra'"));
    assert_ok(f->ctx, der_model_evaluation_json(f->model, &evaluation, scores, &text));
    cJSON *root = parse(f, text);
    const cJSON *steps = cJSON_GetObjectItemCaseSensitive(root, "steps");
    const cJSON *classes = cJSON_GetObjectItemCaseSensitive(root, "classes");
    assert_true(number(root, "top1") == evaluation.top1);
    assert_true(number(cJSON_GetArrayItem(steps, 1), "images") ==
                (double)(scores[3].n + scores[4].n));
    assert_true(cJSON_IsNull(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(classes, 1), "top1"))); /* no images */
    json_free(root);
    assert_ok(f->ctx, der_model_evaluate(f->model, data, DER_SPLIT_TEST, NULL, &evaluation));
    assert_int_equal(evaluation.n, 60);
    assert_int_equal(der_model_evaluate(f->model, data, DER_SPLIT_TRAIN, NULL, &evaluation),
                     DER_FORMAT);
    der_data_free(data);
    f->ctx->log = NULL;
}

static void test_a_saved_model_is_the_same_file(void **state)
{
    struct fixture *f = *state;
    struct file_bytes a = {0};
    struct file_bytes b = {0};
    struct fault fault;
    const char *copy = scratch_path(&f->scratch, "copy");
    assert_ok(f->ctx, der_model_save(f->model, copy));
    assert_int_equal(file_read(&f->ctx->mem, NULL, f->path, 1 << 20, &a, &fault), DER_OK);
    assert_int_equal(file_read(&f->ctx->mem, NULL, copy, 1 << 20, &b, &fault), DER_OK);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    file_bytes_free(&f->ctx->mem, &a);
    file_bytes_free(&f->ctx->mem, &b);
    assert_int_equal(der_model_save(f->model, "/nowhere/at/all"), DER_IO);
}

static void test_folders_files_and_back_ends_that_are_none(void **state)
{
    struct fixture *f = *state;
    struct augment_spec input = made_input();
    struct der_model *model;
    struct der_model_options options = {.backend = "abacus"};
    assert_int_equal(der_model_load(f->ctx, f->scratch.root, NULL, &model), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "holds no model"));
    assert_null(model);
    assert_int_equal(der_model_load(f->ctx, "/nowhere/at/all", NULL, &model), DER_IO);
    assert_int_equal(der_model_load(f->ctx, f->path, &options, &model), DER_UNSUPPORTED);
    scratch_text(&f->scratch, "text", "this is no model");
    assert_int_equal(der_model_load(f->ctx, scratch_path(&f->scratch, "text"), NULL, &model),
                     DER_FORMAT);
    scratch_mkdir(&f->scratch, "run");
    made_model_write(f->ctx, scratch_path(&f->scratch, "run/model.safetensors"), &input, 1.0);
    assert_ok(f->ctx, der_model_load(f->ctx, scratch_path(&f->scratch, "run"), NULL, &model));
    assert_true(der_model_info(model).temperature == 1.0);
    der_model_free(model);
    der_model_free(NULL);
}

static void test_every_failed_allocation_is_told(void **state)
{
    struct fixture *f = *state;
    enum der_status status = DER_NOMEM;
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    for (uint64_t n = 1; status != DER_OK; n++) {
        struct der_model *model;
        struct der_guess guess;
        const char *text;
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        status = der_model_load(f->ctx, f->path, &f->options, &model);
        assert_true((status == DER_OK) == (model != NULL));
        if (status == DER_OK)
            status = der_model_predict(model, f->images, 1, 1, &guess);
        if (status == DER_OK)
            status = der_model_json(model, &text);
        if (status == DER_OK)
            status = der_model_prediction_json(model, "x", &guess, 1, false, &text);
        atomic_store(&f->ctx->mem.fail_at, 0);
        assert_true(status == DER_OK || status == DER_NOMEM);
        der_model_free(model);
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_true(n < 5000);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_model_is_described),
        TEST(test_a_model_as_json),
        TEST(test_predictions_of_images),
        TEST(test_grey_and_strides),
        TEST(test_predictions_as_json),
        TEST(test_a_test_counts_what_predictions_say),
        TEST(test_a_saved_model_is_the_same_file),
        TEST(test_folders_files_and_back_ends_that_are_none),
        TEST(test_every_failed_allocation_is_told),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
