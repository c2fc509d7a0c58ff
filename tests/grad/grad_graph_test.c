/*
 * graph_backward against central differences, through a whole network on the reference back end.
 *
 * Tolerance: the losses are floats of size 1, so that a difference over a step of 1/64 carries
 * noise of about 1e-5; gradients of single weights are near 1e-2. 2e-2 of the gradient's size
 * covers that, and a share that is lost or counted twice is off by far more. Points with a kink
 * nearby are left out: there two steps disagree about the slope, or about the bend, which halves
 * with the step where the loss is smooth.
 */
#include "support/test_ctx.h"
#include "support/test_net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double STEP = 1.0 / 64.0;
static const double TOLERANCE = 2e-2;

enum { MAX_SAMPLES = 24 };

/* Two instances of a network: one gives gradients, the other only losses. */
struct probe {
    struct der_ctx *ctx;
    struct backend *ref;
    struct test_net net, forward_net;
    struct graph_runner runner, forward;
};

static void probe_init(struct probe *p, struct test_net_options options)
{
    p->ctx = test_ctx_new(1);
    assert_ok(p->ctx, backend_open(p->ctx, "ref", NULL, &p->ref));
    test_net_init(&p->forward_net, p->ctx, &options);
    options.backward = true;
    test_net_init(&p->net, p->ctx, &options);
    graph_runner_init(&p->forward, p->ref, p->forward_net.g);
    graph_runner_init(&p->runner, p->ref, p->net.g);
}

static void probe_fini(struct probe *p)
{
    graph_runner_fini(&p->runner);
    graph_runner_fini(&p->forward);
    test_net_fini(&p->net);
    test_net_fini(&p->forward_net);
    backend_close(p->ref);
    test_ctx_free(p->ctx);
}

static double read_number(const struct graph_runner *runner, int value)
{
    float *data = graph_runner_read(runner, value);
    const double number = (double)data[0];
    free(data);
    return number;
}

/* The weighted sum of all losses. */
static double total_loss(struct probe *p)
{
    graph_runner_run(&p->forward);
    double sum = 0.0;
    for (int i = 0; i < p->forward_net.n_losses; i++)
        sum += read_number(&p->forward, p->forward_net.losses[i]) *
               read_number(&p->forward, p->forward_net.loss_weights[i]);
    return sum;
}

/* What two steps of +-h say about the loss. */
struct difference {
    double slope; /* (L(x + h) - L(x - h)) / 2h */
    double bend;  /* (L(x + h) + L(x - h) - 2 L(x)) / h */
};

static double loss_with(struct probe *p, int value, float *data, int64_t at, float number)
{
    const float before = data[at];
    data[at] = number;
    graph_runner_write(&p->forward, value, data);
    data[at] = before;
    return total_loss(p);
}

static struct difference difference(struct probe *p, int value, float *data, int64_t at, double h)
{
    const float above = (float)((double)data[at] + h);
    const float below = (float)((double)data[at] - h);
    const double loss_above = loss_with(p, value, data, at, above);
    const double loss_below = loss_with(p, value, data, at, below);
    const double loss = loss_with(p, value, data, at, data[at]);
    return (struct difference){
        .slope = (loss_above - loss_below) / ((double)above - (double)below),
        .bend = (loss_above + loss_below - 2.0 * loss) / h,
    };
}

/* Returns how many points were compared; *n_sampled receives how many were tried. */
static int check_param(struct probe *p, int index, int *n_sampled)
{
    const int value = p->net.params[index];
    const struct value *param = &p->net.g->values[value];
    const int64_t n = shape_count(param->shape);
    const int64_t stride = n > MAX_SAMPLES ? n / MAX_SAMPLES + 1 : 1;
    float *gradient = graph_runner_read(&p->runner, param->grad);
    float *data = graph_runner_read(&p->forward, p->forward_net.params[index]);
    double typical = 0.0;
    for (int64_t i = 0; i < n; i++)
        typical += (double)gradient[i] * (double)gradient[i];
    typical = sqrt(typical / (double)n) + 1e-4;

    int n_compared = 0;
    for (int64_t i = 0; i < n; i += stride, ++*n_sampled) {
        const int moved = p->forward_net.params[index];
        const struct difference coarse = difference(p, moved, data, i, STEP);
        const struct difference fine = difference(p, moved, data, i, STEP / 2);
        const double scale = typical + fabs(fine.slope);
        if (fabs(coarse.slope - fine.slope) > 0.5 * TOLERANCE * scale ||
            fabs(coarse.bend - 2.0 * fine.bend) > 0.5 * TOLERANCE * scale)
            continue;
        n_compared++;
        if (!(fabs((double)gradient[i] - fine.slope) <= TOLERANCE * scale)) {
            print_error("gradient of %s at %d: %.6g, differences give %.6g\n", param->name, (int)i,
                        (double)gradient[i], fine.slope);
            fail();
        }
    }
    free(gradient);
    free(data);
    return n_compared;
}

static void check_net(struct test_net_options options)
{
    struct probe p;
    probe_init(&p, options);
    graph_runner_run(&p.runner);
    int n_sampled = 0;
    int n_compared = 0;
    for (int i = 0; i < p.net.n_params; i++)
        n_compared += check_param(&p, i, &n_sampled);
    assert_true(4 * n_compared >= 3 * n_sampled);
    probe_fini(&p);
}

static void test_gradients_of_unfused_network(void **state)
{
    (void)state;
    check_net((struct test_net_options){.masks = true});
}

static void test_gradients_of_fused_network(void **state)
{
    (void)state;
    check_net((struct test_net_options){.masks = true, .fuse = true});
}

static void test_gradients_of_network_without_masks(void **state)
{
    (void)state;
    check_net((struct test_net_options){.masks = false, .fuse = true});
}

static void test_gradients_of_heads_over_frozen_extractor(void **state)
{
    (void)state;
    check_net((struct test_net_options){.frozen = true, .fuse = true});
}

static void test_unreached_parameter_is_refused(void **state)
{
    (void)state;
    struct der_ctx *ctx = test_ctx_new(1);
    struct test_net net;
    int unused;
    test_net_init(&net, ctx, &(struct test_net_options){.masks = true});
    assert_ok(ctx, graph_param(net.g, "unused", shape_1d(3), true, &unused));
    assert_int_equal(graph_backward(net.g), DER_STATE);
    assert_non_null(strstr(der_ctx_error(ctx), "unused"));
    test_net_fini(&net);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_of_unfused_network),
        cmocka_unit_test(test_gradients_of_fused_network),
        cmocka_unit_test(test_gradients_of_network_without_masks),
        cmocka_unit_test(test_gradients_of_heads_over_frozen_extractor),
        cmocka_unit_test(test_unreached_parameter_is_refused),
    };
    return cmocka_run_group_tests_name("grad_graph", tests, NULL, NULL);
}
