/*
 * Basic blocks against PyTorch: identity and projection shortcuts, stride 2, with and without
 * channel masks, fused and not; outputs, all gradients (the input's and the masks' too) and the
 * running statistics.
 */
#include "support/test_backend.h"
#include "support/golden_file.h"
#include "support/golden_run.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_CHARS = 128 };

/* Three convolutions and three batch norms in float, each normalised again: about 1e-13 on the
 * reference, and Winograd adds up to 2e-12 a convolution. */
#define VALUE_NMSE 1e-10
/* Gradients pass through the same layers twice. */
#define GRAD_NMSE 1e-9

struct block {
    const struct golden_file *file;
    const char *name;
    struct graph *g;
};

static const struct golden_tensor *block_tensor(const struct block *b, const char *prefix,
                                                const char *key)
{
    char name[2 * NAME_MAX_CHARS];
    (void)snprintf(name, sizeof name, "%s/%s%s", b->name, prefix, key);
    return golden_find(b->file, name);
}

/* Declares a parameter with the shape it has in the file; NO_VALUE when the block lacks it. */
static int declare(const struct block *b, const char *layer, const char *part)
{
    char key[NAME_MAX_CHARS];
    (void)snprintf(key, sizeof key, "%s%s", layer, part);
    const struct golden_tensor *tensor = block_tensor(b, "", key);
    if (!tensor)
        return NO_VALUE;
    int value;
    assert_ok(b->g->ctx, graph_param(b->g, key, tensor->shape, !strstr(part, "running"), &value));
    return value;
}

/* m * bn(conv(src)). */
static int conv_norm(const struct block *b, const char *conv, const char *norm, int src, int stride,
                     int mask)
{
    int weights = declare(b, conv, ".weight");
    int64_t kernel = b->g->values[weights].shape.dim[2];
    struct batchnorm_params params = {.gamma = declare(b, norm, ".weight"),
                                      .beta = declare(b, norm, ".bias"),
                                      .running_mean = declare(b, norm, ".running_mean"),
                                      .running_var = declare(b, norm, ".running_var")};
    int value;
    assert_ok(b->g->ctx, graph_conv2d(b->g, src, weights, stride, (int)kernel / 2, &value));
    assert_ok(b->g->ctx, graph_batchnorm(b->g, value, &params, true, &value));
    if (mask != NO_VALUE)
        assert_ok(b->g->ctx, graph_scale_channel(b->g, value, mask, &value));
    return value;
}

/* What is looked at besides parameters and their gradients. */
struct block_values {
    int labels, weight, h, logits, loss;
};

static void build(const struct block *b, int stride, struct block_values *v)
{
    struct der_ctx *ctx = b->g->ctx;
    int x = declare(b, "x", "");
    int inner_mask = declare(b, "inner_mask", "");
    int stream_mask = declare(b, "stream_mask", "");
    int u = conv_norm(b, "conv1", "bn1", x, stride, inner_mask);
    assert_ok(ctx, graph_relu(b->g, u, &u));
    int r = conv_norm(b, "conv2", "bn2", u, 1, stream_mask);
    int shortcut = x;
    if (block_tensor(b, "", "downsample.0.weight"))
        shortcut = conv_norm(b, "downsample.0", "downsample.1", x, stride, stream_mask);
    assert_ok(ctx, graph_add(b->g, r, shortcut, &r));
    assert_ok(ctx, graph_relu(b->g, r, &v->h));
    int feature;
    assert_ok(ctx, graph_avgpool(b->g, v->h, &feature));
    assert_ok(ctx, graph_linear(b->g, feature, declare(b, "head", ""), NO_VALUE, &v->logits));
    struct shape batch = shape_1d(b->g->values[x].shape.dim[0]);
    assert_ok(ctx, graph_input(b->g, "labels", DTYPE_I32, batch, &v->labels));
    assert_ok(ctx, graph_input(b->g, "weight", DTYPE_F32, shape_1d(1), &v->weight));
    assert_ok(ctx, graph_softmax_xent(b->g, v->logits, v->labels, v->weight, NULL, &v->loss));
    assert_ok(ctx, graph_expose(b->g, v->h));
    assert_ok(ctx, graph_expose(b->g, v->logits));
}

static void check_value(const struct golden_run *run, int value, const struct golden_tensor *want,
                        double nmse)
{
    assert_non_null(want);
    void *got = golden_run_read(run, value);
    golden_compare(run->program->be->ops->name, got, want, nmse);
    free(got);
}

static void check_block(const struct block *b, struct golden_run *run, const struct block_values *v)
{
    golden_run_scalar(run, v->weight, 1.0f);
    for (int i = 0; i < b->g->n_values; i++) {
        const struct golden_tensor *given = block_tensor(b, "", b->g->values[i].name);
        if (given && b->g->values[i].kind == VALUE_EXTERNAL && b->g->values[i].producer < 0)
            golden_run_write(run, i, given->data);
    }
    golden_run_once(run);
    check_value(run, v->h, block_tensor(b, "", "h"), VALUE_NMSE);
    check_value(run, v->logits, block_tensor(b, "", "logits"), VALUE_NMSE);
    check_value(run, v->loss, block_tensor(b, "", "loss"), VALUE_NMSE);
    int n_grads = 0;
    for (int i = 0; i < b->g->n_values; i++) {
        const struct value *value = &b->g->values[i];
        if (value->kind != VALUE_EXTERNAL || value->producer >= 0)
            continue;
        const struct golden_tensor *after = block_tensor(b, "after/", value->name);
        if (after)
            check_value(run, i, after, VALUE_NMSE);
        if (!value->trainable)
            continue;
        n_grads++;
        check_value(run, value->grad, block_tensor(b, "grad/", value->name), GRAD_NMSE);
    }
    assert_true(n_grads >= 8);
}

static void run_block(const struct golden_file *file, const char *name, int stride, bool fuse,
                      const struct backend_ops *ops)
{
    struct golden_rig rig;
    struct block b = {.file = file, .name = name};
    struct block_values v;
    struct golden_run run;
    golden_rig_init(&rig, ops);
    assert_ok(rig.ctx, graph_new(rig.ctx, &b.g));
    build(&b, stride, &v);
    if (fuse)
        assert_ok(rig.ctx, graph_fuse(b.g));
    assert_ok(rig.ctx, graph_backward(b.g));
    golden_run_init(&run, &rig, b.g);
    check_block(&b, &run, &v);
    golden_run_fini(&run);
    graph_free(b.g);
    golden_rig_fini(&rig);
}

static void test_block(void **state)
{
    const char *name = *state;
    struct golden_file *file = golden_open("blocks");
    char key[NAME_MAX_CHARS];
    int stride;
    (void)snprintf(key, sizeof key, "block %s", name);
    assert_int_equal(sscanf(golden_text(file, key), "stride=%d", &stride), 1);
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        run_block(file, name, stride, false, *ops);
        run_block(file, name, stride, true, *ops);
    }
    golden_close(file);
}

#define BLOCK(label, name)                                                                         \
    {                                                                                              \
        label, test_block, NULL, NULL, (void *)(uintptr_t)(name)                                   \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BLOCK("a block with identity shortcut agrees with PyTorch", "identity"),
        BLOCK("a block with projection shortcut agrees with PyTorch", "projection"),
        BLOCK("a block with stride 2 agrees with PyTorch", "stride2"),
        BLOCK("a masked block with identity shortcut agrees with PyTorch", "identity_masked"),
        BLOCK("a masked block with stride 2 agrees with PyTorch", "stride2_masked"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
