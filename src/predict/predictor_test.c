/*
 * A predictor's logits are those of its networks, however pictures come and in whatever company.
 */
#include "predict/predictor.h"

#include "core/rng.h"
#include "data/row.h"
#include "der_build.h"
#include "support/made_model.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <math.h>
#include <string.h>

enum { PICTURES = 70, SIDE = 17, BYTES = 3 * SIDE * SIDE };

/* Sums of some hundred products in float32 against double, in another order where a back end likes. */
static const double CLOSE = 1e-4;

static void assert_close(double met, double want)
{
    assert_true(fabs(met - want) <= CLOSE * fmax(1.0, fabs(want)));
}

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct predictor *predictor;
    uint8_t bytes[PICTURES][BYTES];
    struct picture pictures[PICTURES]; /* interleaved, of sizes from 4 x 5 to SIDE x SIDE */
};

static void open_with(struct fixture *f, const char *backend, const struct augment_spec *input)
{
    assert_ok(f->ctx, backend_open(f->ctx, backend, NULL, &f->be));
    assert_ok(f->ctx, predictor_new(f->be, made_model_new(f->be, input, 2.0), &f->predictor));
}

static void close_again(struct fixture *f)
{
    predictor_free(f->predictor);
    backend_close(f->be);
    f->predictor = NULL;
    f->be = NULL;
}

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.ctx = test_ctx_new(2)};
    for (int i = 0; i < PICTURES; i++) {
        int height = 4 + i % (SIDE - 3);
        int width = 5 + i * 3 % (SIDE - 4);
        for (int k = 0; k < BYTES; k++)
            f.bytes[i][k] = (uint8_t)rng_at(1, RNG_TEST, (uint32_t)i, (uint64_t)k).word[0];
        f.pictures[i] = (struct picture){.kind = PICTURE_IMAGE,
                                         .number = i + 1,
                                         .image = {.data = f.bytes[i],
                                                   .channels = 3,
                                                   .height = height,
                                                   .width = width,
                                                   .channel_stride = 1,
                                                   .row_stride = 3 * (ptrdiff_t)width,
                                                   .pixel_stride = 3}};
    }
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    test_ctx_free(f->ctx);
    return 0;
}

/* The logits of a picture without any part of the predictor. */
static void direct_logits(struct fixture *f, const struct picture *picture, double *logits)
{
    struct augment augment;
    struct row_tools tools;
    struct augment_spec spec = predictor_model(f->predictor)->info.input;
    float image[3 * MADE_SIZE * MADE_SIZE];
    spec.adapts = true;
    assert_ok(f->ctx, augment_init(f->ctx, &spec, &augment));
    row_tools_init(&tools, &f->ctx->mem, NULL);
    struct augment_draw draw = augment_draw(&spec, 0, 0, 0);
    assert_int_equal(row_from_image(&augment, &draw, &tools, "", &picture->image, image), DER_OK);
    row_tools_fini(&tools);
    made_model_logits(predictor_model(f->predictor), image, logits);
}

static void test_logits_are_those_of_the_networks(void **state)
{
    struct fixture *f = *state;
    static const enum augment_geometry geometries[] = {AUGMENT_PLAIN, AUGMENT_SQUASH,
                                                       AUGMENT_SHORTER_SIDE};
    for (const struct backend_ops *const *be = test_backends(); *be; be++) {
        for (int g = 0; g < 3; g++) {
            struct augment_spec input = made_input();
            input.geometry = geometries[g];
            input.resize = g == 0 ? 0 : MADE_SIZE + 3;
            open_with(f, (*be)->name, &input);
            for (int i = 0; i < 3; i++) {
                double want[MADE_CLASSES];
                float got[MADE_CLASSES];
                direct_logits(f, &f->pictures[i], want);
                assert_ok(f->ctx, predictor_logits(f->predictor, &f->pictures[i], 1, got));
                for (int c = 0; c < MADE_CLASSES; c++)
                    assert_close((double)got[c], want[c]);
            }
            close_again(f);
        }
    }
}

static void test_company_does_not_matter(void **state)
{
    struct fixture *f = *state;
    static const int counts[] = {0, 1, 2, 4, 5, 8, 9, 33, 64, 65, PICTURES};
    for (const struct backend_ops *const *be = test_backends(); *be; be++) {
        static float alone[PICTURES * MADE_CLASSES];
        static float got[(PICTURES + 1) * MADE_CLASSES];
        struct augment_spec input = made_input();
        open_with(f, (*be)->name, &input);
        for (int i = 0; i < PICTURES; i++)
            assert_ok(f->ctx, predictor_logits(f->predictor, &f->pictures[i], 1,
                                               alone + (size_t)i * MADE_CLASSES));
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            int n = counts[k] * MADE_CLASSES;
            for (int i = 0; i <= n; i++)
                got[i] = 123.0F;
            assert_ok(f->ctx, predictor_logits(f->predictor, f->pictures, counts[k], got));
            for (int i = 0; i < n; i++)
                assert_close((double)got[i], (double)alone[i]);
            assert_true(got[n] == 123.0F);
        }
        close_again(f);
    }
}

static void test_guesses_are_of_the_logits_and_the_temperature(void **state)
{
    struct fixture *f = *state;
    enum { TOP = 3, N = 5 };
    struct der_guess got[N * TOP];
    struct der_guess want[TOP];
    float logits[N * MADE_CLASSES];
    struct augment_spec input = made_input();
    open_with(f, test_backend(), &input);
    assert_ok(f->ctx, predictor_logits(f->predictor, f->pictures, N, logits));
    assert_ok(f->ctx, predictor_guess(f->predictor, f->pictures, N, TOP, got));
    for (int i = 0; i < N; i++) {
        guess_top(logits + (size_t)i * MADE_CLASSES, MADE_CLASSES, 2.0, TOP, want);
        for (int k = 0; k < TOP; k++) {
            const struct der_guess *guess = &got[i * TOP + k];
            assert_int_equal(guess->label, want[k].label);
            assert_true(guess->probability == want[k].probability);
            assert_true(guess->logit == want[k].logit);
            assert_string_equal(guess->name, made_classes[guess->label]);
        }
    }
    close_again(f);
}

static void test_files_bytes_and_images_are_alike(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"png/rgb8.png", "png/grey4.png", "jpeg/420.jpg"};
    if (!DER_HAVE_JPEG || !DER_HAVE_PNG)
        skip();
    struct augment_spec input = made_input();
    open_with(f, test_backend(), &input);
    for (int i = 0; i < 3; i++) {
        char path[SCRATCH_PATH_MAX];
        float want[MADE_CLASSES];
        float got[MADE_CLASSES];
        struct image_decoder decoder;
        fixture_path(path, files[i]);
        struct picture file = {.kind = PICTURE_FILE, .name = path};
        struct picture bytes = {
            .kind = PICTURE_BYTES, .name = "bytes", .bytes = fixture_read(f->ctx, files[i])};
        struct picture image = {.kind = PICTURE_IMAGE, .number = 1};
        assert_ok(f->ctx, predictor_logits(f->predictor, &file, 1, want));
        assert_ok(f->ctx, predictor_logits(f->predictor, &bytes, 1, got));
        assert_memory_equal(got, want, sizeof want);
        image_decoder_init(&decoder, &f->ctx->mem);
        assert_int_equal(image_load(&decoder, path), DER_OK);
        assert_int_equal(image_decode(&decoder, 3, IMAGE_SCALE_FULL, NULL, &image.image), DER_OK);
        assert_ok(f->ctx, predictor_logits(f->predictor, &image, 1, got));
        assert_memory_equal(got, want, sizeof want);
        image_decoder_fini(&decoder);
        file_bytes_free(&f->ctx->mem, &bytes.bytes);
    }
    close_again(f);
}

static void test_a_picture_that_cannot_be_used_is_named(void **state)
{
    struct fixture *f = *state;
    float logits[2 * MADE_CLASSES];
    struct augment_spec input = made_input();
    open_with(f, test_backend(), &input);
    struct picture pictures[2] = {f->pictures[0], {.kind = PICTURE_FILE, .name = "/nowhere/x.png"}};
    assert_int_equal(predictor_logits(f->predictor, pictures, 2, logits), DER_IO);
    assert_non_null(strstr(der_ctx_error(f->ctx), "/nowhere/x.png"));
    pictures[1] = (struct picture){.kind = PICTURE_BYTES,
                                   .number = 2,
                                   .bytes = {.data = f->bytes[0], .size = 20, .capacity = 20}};
    assert_int_equal(predictor_logits(f->predictor, pictures, 2, logits), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "picture 2 is neither a JPEG nor a PNG"));
    assert_ok(f->ctx, predictor_logits(f->predictor, pictures, 1, logits));
    close_again(f);
}

static void test_numbers_that_are_not_finite_are_told(void **state)
{
    struct fixture *f = *state;
    float logits[MADE_CLASSES];
    float weights[MADE_CLASSES * 64];
    struct augment_spec input = made_input();
    assert_ok(f->ctx, backend_open(f->ctx, test_backend(), NULL, &f->be));
    struct model *model = made_model_new(f->be, &input, 1.0);
    for (int i = 0; i < MADE_CLASSES * 64; i++)
        weights[i] = 3e38F;
    assert_ok(f->ctx, param_write(model->classifier, 0, weights));
    assert_ok(f->ctx, predictor_new(f->be, model, &f->predictor));
    assert_int_equal(predictor_logits(f->predictor, f->pictures, 1, logits), DER_NUMERIC);
    assert_string_equal(der_ctx_error(f->ctx), "picture 1: the model's logits are not finite");
    close_again(f);
}

static void test_nothing_is_allocated_once_warm(void **state)
{
    struct fixture *f = *state;
    static float logits[PICTURES * MADE_CLASSES];
    struct der_guess guesses[2];
    for (const struct backend_ops *const *be = test_backends(); *be; be++) {
        struct augment_spec input = made_input();
        open_with(f, (*be)->name, &input);
        uint64_t before = 0;
        for (int round = 0; round < 2; round++) {
            before = der_ctx_memory(f->ctx).n_allocs;
            assert_ok(f->ctx, predictor_logits(f->predictor, f->pictures, PICTURES, logits));
            for (int i = 0; i < PICTURES; i++)
                assert_ok(f->ctx, predictor_guess(f->predictor, &f->pictures[i], 1, 2, guesses));
        }
        assert_int_equal(der_ctx_memory(f->ctx).n_allocs, before);
        close_again(f);
    }
}

/* Evaluation may ask for any batch sizes; prediction goes on all the same. */
static void test_any_number_of_batch_sizes_can_be_asked_for(void **state)
{
    struct fixture *f = *state;
    float want[MADE_CLASSES];
    float got[MADE_CLASSES];
    struct augment_spec input = made_input();
    open_with(f, test_backend(), &input);
    assert_ok(f->ctx, predictor_logits(f->predictor, f->pictures, 1, want));
    for (int batch = 1; batch <= 2 * EXTRACTOR_MAX_FOLDED + 1; batch++) {
        struct stage_program program;
        assert_ok(f->ctx, predictor_program(f->predictor, batch, &program));
        assert_non_null(program.rank);
        assert_true(program.image->bytes >= (size_t)batch * sizeof(float));
        assert_ok(f->ctx, sequence_run(program.sequence));
    }
    assert_ok(f->ctx, predictor_logits(f->predictor, f->pictures, 1, got));
    assert_memory_equal(got, want, sizeof want);
    close_again(f);
}

static void test_every_failed_allocation_is_told_and_survived(void **state)
{
    struct fixture *f = *state;
    struct augment_spec input = made_input();
    float want[MADE_CLASSES];
    float got[MADE_CLASSES];
    open_with(f, test_backend(), &input);
    assert_ok(f->ctx, predictor_logits(f->predictor, f->pictures, 1, want));
    close_again(f);
    enum der_status status = DER_NOMEM;
    assert_ok(f->ctx, backend_open(f->ctx, test_backend(), NULL, &f->be));
    uint64_t live = der_ctx_memory(f->ctx).n_live;
    for (uint64_t n = 1; status != DER_OK; n++) {
        struct model *model = made_model_new(f->be, &input, 1.0);
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        status = predictor_new(f->be, model, &f->predictor);
        if (status == DER_OK)
            status = predictor_logits(f->predictor, f->pictures, 1, got);
        atomic_store(&f->ctx->mem.fail_at, 0);
        assert_true(status == DER_OK || status == DER_NOMEM);
        if (f->predictor) { /* which is as good as new */
            assert_ok(f->ctx, predictor_logits(f->predictor, f->pictures, 1, got));
            assert_memory_equal(got, want, sizeof want);
        }
        predictor_free(f->predictor);
        f->predictor = NULL;
        assert_int_equal(der_ctx_memory(f->ctx).n_live, live);
        assert_true(n < 5000);
    }
    close_again(f);
}

static void test_other_channels_than_pictures_have_are_refused(void **state)
{
    struct fixture *f = *state;
    struct augment_spec input = made_input();
    input.channels = 2;
    assert_ok(f->ctx, backend_open(f->ctx, test_backend(), NULL, &f->be));
    struct model *model = made_model_new(f->be, &input, 1.0);
    assert_int_equal(predictor_new(f->be, model, &f->predictor), DER_UNSUPPORTED);
    assert_null(f->predictor);
    assert_non_null(strstr(der_ctx_error(f->ctx), "2 channels"));
    close_again(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_logits_are_those_of_the_networks),
        TEST(test_company_does_not_matter),
        TEST(test_guesses_are_of_the_logits_and_the_temperature),
        TEST(test_files_bytes_and_images_are_alike),
        TEST(test_a_picture_that_cannot_be_used_is_named),
        TEST(test_numbers_that_are_not_finite_are_told),
        TEST(test_nothing_is_allocated_once_warm),
        TEST(test_any_number_of_batch_sizes_can_be_asked_for),
        TEST(test_every_failed_allocation_is_told_and_survived),
        TEST(test_other_channels_than_pictures_have_are_refused),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
