/*
 * Assemblies: what trains may be coarse where a back end is, what answers never is; losses that the graph has not.
 */
#include "train/assembly.h"

#include "support/test_backend.h"
#include "support/test_ctx.h"

enum { BATCH = 3, CLASSES = 4, SIZE = 8 };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct resnet_spec spec;
    struct extractor *extractor;
    struct param_set *head;
    struct buffer *scalars;
    struct desks desks;
};

static void open_fixture(struct fixture *f, const char *backend)
{
    int index;
    *f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f->ctx, backend_open(f->ctx, backend, NULL, &f->be));
    assert_ok(f->ctx, resnet_spec_init(f->ctx, &f->spec, "resnet32", 3, SIZE, SIZE, 0.25));
    assert_ok(f->ctx, extractor_new(f->be, &f->spec, &f->extractor));
    assert_ok(f->ctx, param_set_init(f->extractor->params, 1, 0));
    assert_ok(f->ctx, param_set_new(f->ctx, &f->head));
    assert_ok(f->ctx, param_set_add(f->head, "classifier.weight",
                                    shape_2d(CLASSES, resnet_feature_dim(&f->spec)), PARAM_LEARNT,
                                    INIT_LINEAR_UNIFORM, &index));
    assert_ok(f->ctx, param_set_allocate(f->head, f->be));
    assert_ok(f->ctx, param_set_init(f->head, 1, 1));
    assert_ok(f->ctx, buffer_new(f->be, ASSEMBLY_MAX_SCALARS * sizeof(float), &f->scalars));
    desks_init(&f->desks, f->be, &f->spec, resnet_feature_dim(&f->spec));
}

static void close_fixture(struct fixture *f)
{
    desks_fini(&f->desks);
    buffer_free(f->scalars);
    param_set_free(f->head);
    extractor_free(f->extractor);
    backend_close(f->be);
    test_ctx_free(f->ctx);
}

static enum der_status describe_answer(void *self, struct graph *g, struct assembly_io *io)
{
    struct fixture *f = self;
    struct param_use *head;
    TRY(assembly_attach(g, io, f->head, false, &head));
    TRY(graph_linear(g, io->matrix, head->value[0], NO_VALUE, &io->logits));
    return graph_expose(g, io->logits);
}

static enum der_status describe_loss(void *self, struct graph *g, struct assembly_io *io)
{
    struct fixture *f = self;
    struct param_use *head;
    int one;
    int logits;
    TRY(assembly_scalar(g, io, 0, "one", &one));
    TRY(assembly_attach(g, io, f->head, false, &head));
    TRY(graph_linear(g, io->matrix, head->value[0], NO_VALUE, &logits));
    io->n_losses = 1;
    return graph_softmax_xent(g, logits, io->labels, one, NULL, &io->loss[0]);
}

static void assemble(struct fixture *f, struct assembly_cache *cache,
                     enum der_status (*describe)(void *, struct graph *, struct assembly_io *),
                     struct assembly **out)
{
    const struct assembly_plan plan = {.be = f->be,
                                       .frozen = &f->extractor,
                                       .n_frozen = 1,
                                       .desks = &f->desks,
                                       .scalars = f->scalars,
                                       .self = f,
                                       .describe = describe};
    assert_ok(f->ctx, assembly_get(cache, &plan, BATCH, out));
}

/* Both run on the same desk, so each must be bound to it. */
static void check(const char *backend, bool is_coarse)
{
    struct fixture f;
    struct assembly_cache training = {0};
    struct assembly_cache testing = {0};
    struct assembly *trained;
    struct assembly *tested;
    open_fixture(&f, backend);
    f.be->is_coarse = is_coarse;
    assemble(&f, &training, describe_loss, &trained);
    assemble(&f, &testing, describe_answer, &tested);
    assert_true(trained->trains);
    assert_false(tested->trains);
    assert_int_equal(f.extractor->n_folded, is_coarse ? 2 : 1);
    assert_int_equal(f.extractor->folded[0].is_precise, !is_coarse);
    assert_ptr_equal(trained->sequence->items[0].program, f.extractor->folded[0].program);
    assert_ptr_equal(tested->sequence->items[0].program,
                     f.extractor->folded[f.extractor->n_folded - 1].program);
    assert_true(f.extractor->folded[f.extractor->n_folded - 1].is_precise);
    assert_ok(f.ctx, sequence_run(trained->sequence));
    assert_ok(f.ctx, sequence_run(tested->sequence));
    assembly_cache_fini(&training);
    assembly_cache_fini(&testing);
    close_fixture(&f);
}

static void test_answers_have_precise_features_also_where_training_is_coarse(void **state)
{
    (void)state;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        check((*ops)->name, false);
        check((*ops)->name, true);
    }
}

static enum der_status describe_known_loss(void *self, struct graph *g, struct assembly_io *io)
{
    TRY(describe_loss(self, g, io));
    io->n_losses = 2;
    io->loss[1] = NO_VALUE;
    io->known_loss[1] = 0.375f;
    return DER_OK;
}

static void test_a_loss_that_is_known_stands_beside_those_of_the_graph(void **state)
{
    (void)state;
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        const float one = 1.0f;
        struct fixture f;
        struct assembly_cache cache = {0};
        struct assembly *a;
        float losses[2];
        open_fixture(&f, (*ops)->name);
        assert_ok(f.ctx, buffer_write(f.scalars, 0, &one, sizeof one));
        assemble(&f, &cache, describe_known_loss, &a);
        for (int i = 0; i < 2; i++)
            assert_ok(f.ctx, sequence_run(a->sequence));
        assert_ok(f.ctx, buffer_read(a->losses, 0, losses, sizeof losses));
        assert_true(losses[0] > 0.0f);
        assert_true(losses[1] == 0.375f);
        assembly_cache_fini(&cache);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_have_precise_features_also_where_training_is_coarse),
        cmocka_unit_test(test_a_loss_that_is_known_stands_beside_those_of_the_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
