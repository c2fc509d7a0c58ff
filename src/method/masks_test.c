/* Masks of an extractor: their start, what they keep, and fitting that to a wanted size. */
#include "method/masks.h"

#include "support/test_ctx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHANNELS = 1024 };

static const int NONE[RESNET_MAX_MASKS]; /* channels that must stay */

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct resnet_spec spec;
};

static int set_up(void **state)
{
    static struct fixture f;
    f.ctx = test_ctx_new(1);
    assert_ok(f.ctx, backend_open(f.ctx, "ref", NULL, &f.be));
    assert_ok(f.ctx, resnet_spec_init(f.ctx, &f.spec, "resnet18-cifar", 3, 32, 32, 0.1));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    backend_close(f->be);
    test_ctx_free(f->ctx);
    return 0;
}

static struct param_set *make(struct fixture *f, enum mask_init init, uint32_t stream)
{
    struct param_set *masks;
    assert_ok(f->ctx, masks_new(f->be, &f->spec, init, 1, stream, &masks));
    return masks;
}

/* All e, mask after mask; returns how many. */
static int read_all(struct fixture *f, const struct param_set *masks, float e[MOST_CHANNELS])
{
    int n = 0;
    assert_true(param_set_count(masks) <= MOST_CHANNELS);
    for (int i = 0; i < masks->n; i++) {
        assert_ok(f->ctx, param_read(masks, i, e + n));
        n += (int)shape_count(masks->items[i].shape);
    }
    return n;
}

/* Parameters with the channels above a threshold: layers of kept channels, at least one in each mask. */
static int64_t size_above(const struct fixture *f, const float *e, float threshold)
{
    struct sparsity_layer layers[RESNET_MAX_LAYERS];
    int64_t count[RESNET_MAX_MASKS] = {0};
    int64_t size = 0;
    for (int i = 0; i < resnet_mask_count(&f->spec); i++) {
        for (int c = 0; c < resnet_mask_channels(&f->spec, i); c++)
            count[i] += *e++ > threshold;
        count[i] = count[i] > 0 ? count[i] : 1;
    }
    int n = resnet_sparsity_layers(&f->spec, layers, RESNET_MAX_LAYERS);
    for (int i = 0; i < n; i++) {
        int64_t in = layers[i].in_mask < 0 ? layers[i].in_channels : count[layers[i].in_mask];
        int64_t out = count[layers[i].out_mask];
        size += layers[i].kernel_area * in * out + 2 * out;
    }
    return size;
}

/* The distance from `target` of the best of all thresholds. */
static int64_t least_distance(const struct fixture *f, const float *e, int n, int64_t target)
{
    int64_t least = llabs(size_above(f, e, -INFINITY) - target);
    for (int i = 0; i < n; i++) {
        int64_t distance = llabs(size_above(f, e, e[i]) - target);
        least = distance < least ? distance : least;
    }
    return least;
}

static void test_masks_start_as_asked(void **state)
{
    struct fixture *f = *state;
    float e[MOST_CHANNELS];
    for (enum mask_init init = MASK_INIT_NORMAL; init <= MASK_INIT_CONSTANT; init++) {
        struct param_set *masks = make(f, init, 0);
        int n = read_all(f, masks, e);
        double mean = 0.0;
        double square = 0.0;
        assert_int_equal(masks->n, resnet_mask_count(&f->spec));
        for (int i = 0; i < n; i++) {
            mean += (double)e[i] / n;
            square += (double)e[i] * (double)e[i] / n;
            if (init == MASK_INIT_UNIFORM)
                assert_true(e[i] >= 0.0f && e[i] <= 2.0f);
            if (init == MASK_INIT_CONSTANT)
                assert_true(e[i] == 1.0f);
        }
        /* Moments of N(0, 1), U(0, 2) and 1, within five deviations of some 290 draws. */
        assert_true(fabs(mean - (init == MASK_INIT_NORMAL ? 0.0 : 1.0)) < 0.3);
        assert_true(fabs(square - (init == MASK_INIT_UNIFORM ? 4.0 / 3.0 : 1.0)) < 0.42);
        param_set_free(masks);
    }
}

static void test_every_step_draws_other_masks(void **state)
{
    struct fixture *f = *state;
    struct param_set *first = make(f, MASK_INIT_NORMAL, 3);
    struct param_set *again = make(f, MASK_INIT_NORMAL, 3);
    struct param_set *next = make(f, MASK_INIT_NORMAL, 11);
    float e[3][MOST_CHANNELS];
    size_t bytes = (size_t)read_all(f, first, e[0]) * sizeof e[0][0];
    read_all(f, again, e[1]);
    read_all(f, next, e[2]);
    assert_memory_equal(e[0], e[1], bytes);
    assert_memory_not_equal(e[0], e[2], bytes);
    param_set_free(first);
    param_set_free(again);
    param_set_free(next);
}

static void test_leaning_moves_what_was_kept_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct param_set *last = make(f, MASK_INIT_NORMAL, 3);
    struct param_set *masks = make(f, MASK_INIT_UNIFORM, 11);
    float old[MOST_CHANNELS];
    float before[MOST_CHANNELS];
    float after[MOST_CHANNELS];
    int n = read_all(f, last, old);
    read_all(f, masks, before);
    assert_ok(f->ctx, masks_lean(masks, last, &f->spec, 1.5));
    read_all(f, masks, after);
    for (int i = 0; i < n; i++)
        assert_true(after[i] == (old[i] > 0.0f ? before[i] + 1.5f : before[i]));
    param_set_free(last);
    param_set_free(masks);
}

static void test_what_is_above_zero_stays_and_one_channel_at_least(void **state)
{
    struct fixture *f = *state;
    struct param_set *masks;
    struct kept kept;
    int64_t size;
    static const float stream[] = {0.5f, -0.5f, 0.0f, 1e-6f};
    static const float inner[] = {-3.0f, -1.0f, -1.0f};
    f->spec = (struct resnet_spec){.in_channels = 3,
                                   .height = 8,
                                   .width = 8,
                                   .n_stages = 1,
                                   .n_blocks = {1},
                                   .stream = {4},
                                   .inner = {{3}}};
    masks = make(f, MASK_INIT_NORMAL, 0);
    assert_ok(f->ctx, param_write(masks, 0, stream));
    assert_ok(f->ctx, param_write(masks, 1, inner));
    assert_ok(f->ctx, masks_kept(masks, &f->spec, &kept));
    assert_int_equal(kept.count[0], 2);
    assert_int_equal(kept.channel[0][0], 0);
    assert_int_equal(kept.channel[0][1], 3);
    assert_int_equal(kept.count[1], 1);
    assert_int_equal(kept.channel[1][0], 1);
    kept_fini(f->ctx, &kept);
    assert_ok(f->ctx, masks_kept_params(masks, &f->spec, &size));
    /* 3 to 2, 2 to 1 and 1 to 2 channels, 3x3 each, with gamma and beta. */
    assert_int_equal(size, (54 + 4) + (18 + 2) + (18 + 4));
    param_set_free(masks);
}

/* Shifted by one constant, up to the rounding of a few additions. */
static void assert_shifted(const float *before, const float *after, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(fabs((double)(after[i] - before[i]) - (double)(after[0] - before[0])) < 1e-5);
}

/* Up to nine tenths of the network: fitting always cuts the lowest channel. */
static void test_fitting_finds_the_nearest_size(void **state)
{
    struct fixture *f = *state;
    int64_t full = resnet_count_params(&f->spec);
    float before[MOST_CHANNELS];
    float after[MOST_CHANNELS];
    for (uint32_t stream = 0; stream < 10; stream++)
        for (int tenth = 0; tenth <= 9; tenth++) {
            struct param_set *masks =
                make(f, stream % 2 == 0 ? MASK_INIT_NORMAL : MASK_INIT_UNIFORM, stream);
            int64_t target = full * tenth / 10;
            int64_t size;
            int n = read_all(f, masks, before);
            assert_ok(f->ctx, masks_fit(masks, &f->spec, target, NONE));
            assert_ok(f->ctx, masks_kept_params(masks, &f->spec, &size));
            if (llabs(size - target) != least_distance(f, before, n, target))
                fail_msg("stream %u: wanted %lld, got %lld; %lld off is possible", stream,
                         (long long)target, (long long)size,
                         (long long)least_distance(f, before, n, target));
            read_all(f, masks, after);
            assert_shifted(before, after, n);
            param_set_free(masks);
        }
}

static void test_a_larger_target_keeps_what_a_smaller_one_does(void **state)
{
    struct fixture *f = *state;
    struct param_set *masks = make(f, MASK_INIT_NORMAL, 0);
    int64_t full = resnet_count_params(&f->spec);
    float last[MOST_CHANNELS];
    float e[MOST_CHANNELS];
    int64_t last_size = 0;
    int n = read_all(f, masks, last);
    for (int i = 0; i < n; i++)
        last[i] = -1.0f;
    for (int percent = 2; percent <= 100; percent += 7) {
        int64_t size;
        assert_ok(f->ctx, masks_fit(masks, &f->spec, full * percent / 100, NONE));
        assert_ok(f->ctx, masks_kept_params(masks, &f->spec, &size));
        assert_true(size >= last_size);
        read_all(f, masks, e);
        for (int i = 0; i < n; i++)
            assert_true(e[i] > 0.0f || !(last[i] > 0.0f));
        memcpy(last, e, sizeof last);
        last_size = size;
    }
    assert_true(last_size > full * 9 / 10);
    param_set_free(masks);
}

static void test_an_even_cut_goes_by_the_square_of_widths(void **state)
{
    struct fixture *f = *state;
    int64_t full = resnet_count_params(&f->spec);
    int least[RESNET_MAX_MASKS];
    assert_true(masks_least(&f->spec, full / 4, 1.0, least));
    for (int i = 0; i < resnet_mask_count(&f->spec); i++)
        assert_in_range(least[i], (resnet_mask_channels(&f->spec, i) - 1) / 2,
                        resnet_mask_channels(&f->spec, i) / 2);
    assert_true(masks_least(&f->spec, 4 * full, 0.5, least));
    for (int i = 0; i < resnet_mask_count(&f->spec); i++)
        assert_int_equal(least[i], resnet_mask_channels(&f->spec, i) / 2);
    assert_false(masks_least(&f->spec, 0, 1.0, least));
    assert_memory_equal(least, NONE, (size_t)resnet_mask_count(&f->spec) * sizeof *least);
    assert_false(masks_least(&f->spec, full / 4, 0.0, least));
    assert_memory_equal(least, NONE, (size_t)resnet_mask_count(&f->spec) * sizeof *least);
}

/* Streams with low e would go first and leave a bottleneck; the highest of them stay, and the size is that of before
 * where it can be. */
static void test_fitting_leaves_channels_to_every_mask(void **state)
{
    struct fixture *f = *state;
    int64_t target = resnet_count_params(&f->spec) / 4;
    struct param_set *masks = make(f, MASK_INIT_UNIFORM, 3);
    int least[RESNET_MAX_MASKS];
    float e[MOST_CHANNELS];
    int64_t size;
    struct kept kept;
    for (int i = 0; i < f->spec.n_stages; i++) {
        int n = resnet_mask_channels(&f->spec, i);
        assert_ok(f->ctx, param_read(masks, i, e));
        for (int c = 0; c < n; c++)
            e[c] -= 3.0f;
        assert_ok(f->ctx, param_write(masks, i, e));
    }
    read_all(f, masks, e);
    assert_true(masks_least(&f->spec, target, 0.75, least));
    assert_ok(f->ctx, masks_fit(masks, &f->spec, target, least));
    assert_ok(f->ctx, masks_kept_params(masks, &f->spec, &size));
    assert_true(llabs(size - target) < target / 20);
    assert_ok(f->ctx, masks_kept(masks, &f->spec, &kept));
    const float *row = e;
    for (int i = 0; i < kept.n_masks; i++) {
        int n = resnet_mask_channels(&f->spec, i);
        assert_true(least[i] > 0 && kept.count[i] >= least[i]);
        /* None that went had a higher e than one that stayed. */
        float lowest = INFINITY;
        for (int k = 0; k < kept.count[i]; k++)
            lowest = fminf(lowest, row[kept.channel[i][k]]);
        for (int c = 0, k = 0; c < n; c++) {
            bool stays = k < kept.count[i] && kept.channel[i][k] == c;
            k += stays;
            assert_true(stays || row[c] <= lowest);
        }
        row += n;
    }
    kept_fini(f->ctx, &kept);
    param_set_free(masks);
}

/* Clamped e are often equal: those above them stay first, then so many of the equals. */
static void test_equal_channels_stay_in_their_order(void **state)
{
    struct fixture *f = *state;
    struct param_set *masks = make(f, MASK_INIT_CONSTANT, 0);
    int least[RESNET_MAX_MASKS] = {0};
    float e[MOST_CHANNELS];
    int last = resnet_mask_count(&f->spec) - 1;
    int n = resnet_mask_channels(&f->spec, last);
    for (int c = 0; c < n; c++)
        e[c] = c == n - 1 ? 2.0f : c == n - 2 ? 3.0f : -6.0f;
    assert_ok(f->ctx, param_write(masks, last, e));
    least[last] = 3;
    assert_ok(f->ctx, masks_fit(masks, &f->spec, 0, least));
    assert_ok(f->ctx, param_read(masks, last, e));
    for (int c = 0; c < n; c++)
        assert_int_equal(e[c] > 0.0f, c == 0 || c >= n - 2);
    for (int i = 0; i < masks->n; i++)
        least[i] = resnet_mask_channels(&f->spec, i);
    int64_t size;
    assert_ok(f->ctx, masks_fit(masks, &f->spec, 0, least));
    assert_ok(f->ctx, masks_kept_params(masks, &f->spec, &size));
    assert_int_equal(size, resnet_count_params(&f->spec));
    param_set_free(masks);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_masks_start_as_asked),
        TEST(test_every_step_draws_other_masks),
        TEST(test_leaning_moves_what_was_kept_and_nothing_else),
        TEST(test_what_is_above_zero_stays_and_one_channel_at_least),
        TEST(test_fitting_finds_the_nearest_size),
        TEST(test_a_larger_target_keeps_what_a_smaller_one_does),
        TEST(test_an_even_cut_goes_by_the_square_of_widths),
        TEST(test_fitting_leaves_channels_to_every_mask),
        TEST(test_equal_channels_stay_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
