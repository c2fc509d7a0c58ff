/*
 * Weights of others: found behind any prefix and in any width of floats, and a sentence for everything that does
 * not fit. Files that PyTorch and safetensors' own library write are tests/e2e's.
 */
#include "store/weights_file.h"

#include "io/safetensors.h"
#include "support/faulty_calls.h"
#include "support/hand_model.h"
#include "support/scratch.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { NAME_CHARS = 160, MAX_EXTRA = 4, VALUES = 1024 };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct scratch scratch;
    struct extractor *source; /* whose weights are stored */
    struct extractor *loaded;
};

static int set_up(void **state)
{
    static struct fixture f;
    struct resnet_spec spec = hand_model_spec(RESNET_STEM_3X3, 4);
    f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f.ctx, backend_open(f.ctx, test_backend(), NULL, &f.be));
    scratch_init(&f.scratch);
    assert_ok(f.ctx, extractor_new(f.be, &spec, &f.source));
    assert_ok(f.ctx, extractor_new(f.be, &spec, &f.loaded));
    hand_model_fill(f.source->params, 1);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    extractor_free(f->source);
    extractor_free(f->loaded);
    scratch_fini(&f->scratch);
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

/* What a stored file has besides, or instead. */
struct variant {
    const char *prefixes[3];      /* ends with NULL: the network once behind each */
    const char *extra[MAX_EXTRA]; /* further tensors of one number, ends with NULL */
    const char *left_out;         /* a tensor that is missing */
    const char *negative;         /* a tensor whose first number is -1 */
    bool wide;                    /* F64 instead of F32 */
};

static struct safetensors_tensor tensor_of(const struct variant *v, const char *prefix,
                                           const struct param *param, char name[NAME_CHARS])
{
    struct safetensors_tensor tensor = {.name = name,
                                        .dtype = v->wide ? SAFETENSORS_F64 : SAFETENSORS_F32,
                                        .rank = param->shape.rank};
    (void)snprintf(name, NAME_CHARS, "%s%s", prefix, param->name);
    for (int i = 0; i < tensor.rank; i++)
        tensor.dim[i] = param->shape.dim[i];
    return tensor;
}

static bool is_stored(const struct variant *v, const char *name)
{
    return !v->left_out || strcmp(v->left_out, name) != 0;
}

static void put(const struct fixture *f, const struct variant *v, struct safetensors_writer *w,
                const char *name, int index)
{
    float values[VALUES];
    double doubles[VALUES];
    size_t n = (size_t)shape_count(f->source->params->items[index].shape);
    assert_ok(f->ctx, param_read(f->source->params, index, values));
    if (v->negative && strcmp(v->negative, name) == 0)
        values[0] = -1.0F;
    for (size_t i = 0; i < n; i++)
        doubles[i] = (double)values[i];
    if (v->wide)
        assert_ok(f->ctx, safetensors_put(w, name, doubles, n * sizeof *doubles));
    else
        assert_ok(f->ctx, safetensors_put(w, name, values, n * sizeof *values));
}

/* All tensors of a file, first declared and then put. */
static void walk(struct fixture *f, const struct variant *v, struct safetensors_writer *w,
                 bool declares)
{
    const struct param_set *set = f->source->params;
    const float zero = 0.0F;
    char name[NAME_CHARS];
    for (const char *const *prefix = v->prefixes; *prefix; prefix++)
        for (int i = 0; i < set->n; i++) {
            struct safetensors_tensor t = tensor_of(v, *prefix, &set->items[i], name);
            if (!is_stored(v, name))
                continue;
            if (declares)
                assert_ok(f->ctx, safetensors_declare(w, &t));
            else
                put(f, v, w, name, i);
        }
    for (const char *const *extra = v->extra; *extra; extra++) {
        struct safetensors_tensor t = {
            .name = *extra, .dtype = SAFETENSORS_F32, .rank = 1, .dim = {1}};
        if (declares)
            assert_ok(f->ctx, safetensors_declare(w, &t));
        else
            assert_ok(f->ctx, safetensors_put(w, *extra, &zero, sizeof zero));
    }
}

/* Good until the next call. */
static struct weights_options store(struct fixture *f, const struct variant *v)
{
    struct safetensors_writer *w;
    const char *path = scratch_path(&f->scratch, "weights");
    assert_ok(f->ctx, safetensors_writer_new(f->ctx, NULL, path, &w));
    walk(f, v, w, true);
    walk(f, v, w, false);
    assert_ok(f->ctx, safetensors_commit(w));
    return (struct weights_options){.path = scratch_path(&f->scratch, "weights")};
}

static void assert_loaded(struct fixture *f)
{
    const struct param_set *a = f->source->params;
    const struct param_set *b = f->loaded->params;
    for (int i = 0; i < a->n; i++) {
        float x[VALUES];
        float y[VALUES];
        assert_ok(f->ctx, param_read(a, i, x));
        assert_ok(f->ctx, param_read(b, i, y));
        assert_memory_equal(x, y, (size_t)shape_count(a->items[i].shape) * sizeof *x);
    }
}

static void test_a_network_is_found_behind_any_prefix(void **state)
{
    struct fixture *f = *state;
    static const char *const prefixes[] = {"", "model.", "module.backbone."};
    static const char *const counters[] = {"bn1.num_batches_tracked",
                                           "model.bn1.num_batches_tracked",
                                           "module.backbone.layer1.0.bn1.num_batches_tracked"};
    for (int i = 0; i < 3; i++) {
        struct variant v = {.prefixes = {prefixes[i]}, .extra = {"fc.weight", counters[i]}};
        struct weights_options options = store(f, &v);
        struct weights_match match;
        hand_model_fill(f->loaded->params, 5);
        assert_ok(f->ctx, weights_check(f->ctx, &options, &f->source->spec, &match));
        assert_string_equal(match.prefix, prefixes[i]);
        assert_int_equal(match.n_used, f->source->params->n);
        assert_int_equal(match.n_ignored, 2);
        assert_ok(f->ctx, weights_load(&options, f->loaded, &match));
        assert_string_equal(match.prefix, prefixes[i]);
        assert_loaded(f);
    }
}

static void test_floats_may_have_another_width(void **state)
{
    struct fixture *f = *state;
    struct variant v = {.prefixes = {"net."}, .wide = true};
    struct weights_options options = store(f, &v);
    assert_ok(f->ctx, weights_load(&options, f->loaded, NULL));
    assert_loaded(f);
}

static void test_one_of_several_networks_can_be_named(void **state)
{
    struct fixture *f = *state;
    struct variant v = {.prefixes = {"student.", "teacher."}};
    struct weights_options options = store(f, &v);
    assert_int_equal(weights_check(f->ctx, &options, &f->source->spec, NULL), DER_FORMAT);
    assert_non_null(strstr(der_ctx_error(f->ctx), "holds several networks: the names of one begin "
                                                  "with 'student.', those of another with "
                                                  "'teacher.'"));
    options.prefix = "teacher.";
    assert_ok(f->ctx, weights_load(&options, f->loaded, NULL));
    assert_loaded(f);
}

static void test_what_is_written_is_read(void **state)
{
    struct fixture *f = *state;
    struct weights_options options = {.path = scratch_path(&f->scratch, "out")};
    struct weights_match match;
    assert_ok(f->ctx, weights_write(f->source, NULL, options.path));
    assert_ok(f->ctx, weights_load(&options, f->loaded, &match));
    assert_string_equal(match.prefix, "");
    assert_int_equal(match.n_ignored, 0);
    assert_loaded(f);
}

static void assert_refused(struct fixture *f, const struct variant *v, struct resnet_spec spec,
                           const char *prefix, const char *message)
{
    struct weights_options options = store(f, v);
    struct weights_match match = {.n_used = -1};
    options.prefix = prefix;
    assert_int_equal(weights_check(f->ctx, &options, &spec, &match), DER_FORMAT);
    if (!strstr(der_ctx_error(f->ctx), message))
        fail_msg("'%s' lacks '%s'", der_ctx_error(f->ctx), message);
    assert_int_equal(match.n_used, -1);
}

static void test_what_does_not_fit_is_told(void **state)
{
    struct fixture *f = *state;
    struct variant plain = {.prefixes = {""}};
    struct resnet_spec spec = f->source->spec;
    struct resnet_spec other = spec;
    other.stem = RESNET_STEM_7X7_POOL;
    assert_refused(f, &plain, other, NULL,
                   "begins with a convolution of 3 x 3, the network with one of 7 x 7");
    other = spec;
    other.in_channels = 1;
    assert_refused(f, &plain, other, NULL, "is for images of 3 channels, not of 1");
    other = spec;
    other.inner[1][0] = 3;
    assert_refused(f, &plain, other, NULL,
                   "tensor 'layer2.0.conv1.weight' is F32 [2, 3, 3, 3], want F32 [3, 3, 3, 3]");
    other = spec;
    other.n_blocks[1] = 1;
    assert_refused(f, &plain, other, NULL,
                   "the network has no place for tensor 'layer2.1.conv1.weight'");
    struct variant v = {.prefixes = {"a."}, .left_out = "a.layer2.0.downsample.1.running_var"};
    assert_refused(f, &v, spec, NULL, "there is no tensor 'a.layer2.0.downsample.1.running_var'");
    assert_refused(f, &plain, spec, "b.", "there is no tensor 'b.conv1.weight'");
    v = (struct variant){.prefixes = {NULL}, .extra = {"fc.weight"}};
    assert_refused(f, &v, spec, NULL, "holds no residual network with torchvision's names");
    char prefix[NAME_CHARS];
    (void)snprintf(prefix, sizeof prefix, "%0*d.", WEIGHTS_PREFIX_MAX, 0);
    assert_refused(f, &plain, spec, prefix, "names with a prefix of 129 characters");
}

static void test_a_negative_variance_is_refused(void **state)
{
    struct fixture *f = *state;
    struct variant v = {.prefixes = {"a."}, .negative = "a.bn1.running_var"};
    struct weights_options options = store(f, &v);
    assert_int_equal(weights_load(&options, f->loaded, NULL), DER_FORMAT);
    assert_non_null(
        strstr(der_ctx_error(f->ctx), "tensor 'a.bn1.running_var' holds a negative variance"));
}

static void test_every_failed_allocation_is_told(void **state)
{
    struct fixture *f = *state;
    struct variant v = {.prefixes = {"a."}};
    struct weights_options options = store(f, &v);
    for (unsigned n = 1;; n++) {
        atomic_store(&f->ctx->mem.fail_at, atomic_load(&f->ctx->mem.n_allocs) + n);
        enum der_status status = weights_load(&options, f->loaded, NULL);
        atomic_store(&f->ctx->mem.fail_at, 0);
        if (status == DER_OK) {
            assert_true(n > 50);
            return;
        }
        assert_int_equal(status, DER_NOMEM);
    }
}

static void test_whichever_call_fails_is_told(void **state)
{
    struct fixture *f = *state;
    struct variant v = {.prefixes = {"a."}};
    struct weights_options options = store(f, &v);
    for (int k = 1;; k++) {
        struct faulty_calls calls = {.fail_at = k, .error = EIO};
        const struct io_calls io = faulty_calls(&calls);
        options.io = &io;
        enum der_status status = weights_load(&options, f->loaded, NULL);
        if (!calls.failed_call || strcmp(calls.failed_call, "close") == 0) {
            assert_ok(f->ctx, status);
            assert_true(k > 30);
            return;
        }
        assert_int_equal(status, DER_IO);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_network_is_found_behind_any_prefix),
        TEST(test_floats_may_have_another_width),
        TEST(test_one_of_several_networks_can_be_named),
        TEST(test_what_is_written_is_read),
        TEST(test_what_does_not_fit_is_told),
        TEST(test_a_negative_variance_is_refused),
        TEST(test_every_failed_allocation_is_told),
        TEST(test_whichever_call_fails_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
