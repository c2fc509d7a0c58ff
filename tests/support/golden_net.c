#include "support/golden_net.h"

#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_CHARS = 128 };

void golden_spec(struct resnet_spec *spec, const char *text)
{
    char stem[16];
    int used = 0;
    *spec = (struct resnet_spec){0};
    assert_int_equal(sscanf(text, "%15s %d %d %d%n", stem, &spec->in_channels, &spec->height,
                            &spec->width, &used),
                     4);
    spec->stem = strcmp(stem, "7x7pool") == 0   ? RESNET_STEM_7X7_POOL
                 : strcmp(stem, "3x3pool") == 0 ? RESNET_STEM_3X3_POOL
                                                : RESNET_STEM_3X3;
    for (text += used; *text == ' '; spec->n_stages++) {
        int k = spec->n_stages;
        assert_true(k < RESNET_MAX_STAGES);
        char *end;
        spec->stream[k] = (int)strtol(text + 1, &end, 10);
        for (text = end; *text == ':' || *text == ','; text = end) {
            assert_true(spec->n_blocks[k] < RESNET_MAX_BLOCKS);
            spec->inner[k][spec->n_blocks[k]++] = (int)strtol(text + 1, &end, 10);
        }
    }
}

void golden_fill(struct param_set *set, uint32_t seed)
{
    for (int i = 0; i < set->n; i++) {
        const struct param *p = &set->items[i];
        float *host = malloc((size_t)shape_count(p->shape) * sizeof *host);
        assert_non_null(host);
        golden_param(host, p->shape, p->name, seed);
        assert_ok(set->ctx, param_write(set, i, host));
        free(host);
    }
}

/* Memory, gradients, and values by formula. */
static void fill(const struct golden_rig *rig, struct param_set *set, uint32_t seed)
{
    assert_ok(rig->ctx, param_set_allocate(set, rig->be));
    assert_ok(rig->ctx, param_set_thaw(set));
    golden_fill(set, seed);
}

struct param_set *golden_extractor(const struct golden_rig *rig, const struct resnet_spec *spec,
                                   uint32_t seed)
{
    struct param_set *set;
    assert_ok(rig->ctx, param_set_new(rig->ctx, &set));
    assert_ok(rig->ctx, resnet_declare(spec, set));
    fill(rig, set, seed);
    return set;
}

struct param_set *golden_head(const struct golden_rig *rig, const struct golden_matrix *matrices,
                              uint32_t seed)
{
    struct param_set *set;
    assert_ok(rig->ctx, param_set_new(rig->ctx, &set));
    for (; matrices->name; matrices++) {
        int index;
        assert_ok(rig->ctx,
                  param_set_add(set, matrices->name, shape_2d(matrices->rows, matrices->columns),
                                PARAM_LEARNT, INIT_LINEAR_NORMAL, &index));
    }
    fill(rig, set, seed);
    return set;
}

void golden_check_grads(const struct param_set *set, const struct golden_file *file,
                        const char *prefix, double nmse)
{
    for (int i = 0; i < set->n; i++) {
        const struct param *p = &set->items[i];
        if (p->role != PARAM_LEARNT)
            continue;
        char name[NAME_MAX_CHARS];
        (void)snprintf(name, sizeof name, "%s%s", prefix, p->name);
        const struct golden_tensor *want = golden_get(file, name);
        assert_true(shape_equal(p->shape, want->shape));
        float *host = malloc((size_t)shape_count(p->shape) * sizeof *host);
        assert_non_null(host);
        assert_ok(set->ctx, param_read_grad(set, i, host));
        golden_compare(set->be->ops->name, host, want, nmse);
        free(host);
    }
}

void golden_check_params(const struct param_set *set, enum param_role role,
                         const struct golden_file *file, const char *prefix, double nmse)
{
    for (int i = 0; i < set->n; i++) {
        const struct param *p = &set->items[i];
        if (p->role != role)
            continue;
        char name[NAME_MAX_CHARS];
        (void)snprintf(name, sizeof name, "%s%s", prefix, p->name);
        const struct golden_tensor *want = golden_get(file, name);
        assert_true(shape_equal(p->shape, want->shape));
        float *host = malloc((size_t)shape_count(p->shape) * sizeof *host);
        assert_non_null(host);
        assert_ok(set->ctx, param_read(set, i, host));
        golden_compare(set->be->ops->name, host, want, nmse);
        free(host);
    }
}
