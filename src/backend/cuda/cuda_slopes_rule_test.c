/*
 * Which gradients of convolutions' data leave the sums of batch norm's gradient, and what that changes in a program. Needs no
 * GPU.
 */
#include "backend/cuda/cuda.h"

#include "support/cuda/hand_program.h"
#include "support/test_ctx.h"

enum { SRC, DST, OTHER_GRADIENT, BACK, D_DST, WEIGHTS, D_SRC, D_RESIDUAL, MEANS, N_VALUES };
enum { NORM, OTHER, CONV, GRADIENT, BEHIND, N_STEPS };
enum { CHANNELS = 32, SIZE = 32 };

/* Batch norm with a ReLU; something that makes a second gradient; the gradient of data that reaches batch norm, and its
 * gradient; a step that does nothing. No GPU is asked. */
struct fixture {
    struct hand_program hand;
    struct cuda_value values[N_VALUES];
    struct cuda_step steps[N_STEPS];
    struct cuda_derived derived[N_STEPS];
    int norm_in[BN_N_IN], norm_out[BN_N_OUT];
    int conv_in[2], conv_out;
    int gradient_in[BNG_N_IN], gradient_out[BNG_N_OUT];
    int other_out, behind_in;
};

static void fill_ids(int *ids, int n)
{
    for (int i = 0; i < n; i++)
        ids[i] = NO_VALUE;
}

static void make_nodes(struct fixture *f)
{
    fill_ids(f->norm_in, BN_N_IN);
    fill_ids(f->norm_out, BN_N_OUT);
    fill_ids(f->gradient_in, BNG_N_IN);
    fill_ids(f->gradient_out, BNG_N_OUT);
    f->norm_in[BN_SRC] = f->gradient_in[BNG_SRC] = SRC;
    f->norm_out[BN_DST] = f->gradient_in[BNG_DST] = DST;
    f->norm_out[BN_MEAN] = f->gradient_in[BNG_MEAN] = MEANS;
    f->conv_in[CONV_D_SRC_WEIGHTS] = WEIGHTS;
    f->conv_in[CONV_D_SRC_D_DST] = D_DST;
    f->conv_out = f->gradient_in[BNG_D_DST] = BACK;
    f->gradient_out[BNG_D_SRC] = D_SRC;
    f->other_out = OTHER_GRADIENT;
    f->behind_in = NO_VALUE;
    f->steps[NORM].node = (struct node){.op = OP_BATCHNORM,
                                        .in = f->norm_in,
                                        .n_in = BN_N_IN,
                                        .out = f->norm_out,
                                        .n_out = BN_N_OUT};
    f->steps[OTHER].node = (struct node){.op = OP_ADD, .out = &f->other_out, .n_out = 1};
    f->steps[CONV].node = (struct node){
        .op = OP_CONV2D_D_SRC, .in = f->conv_in, .n_in = 2, .out = &f->conv_out, .n_out = 1};
    f->steps[CONV].node.attr.conv = (struct conv_attr){.stride = 1, .pad = 1};
    f->steps[GRADIENT].node = (struct node){.op = OP_BATCHNORM_GRAD,
                                            .in = f->gradient_in,
                                            .n_in = BNG_N_IN,
                                            .out = f->gradient_out,
                                            .n_out = BNG_N_OUT};
    f->steps[NORM].node.attr.norm = f->steps[GRADIENT].node.attr.norm =
        (struct norm_attr){.training = true, .relu = true};
    f->steps[BEHIND].node = (struct node){.op = OP_ADD, .in = &f->behind_in, .n_in = 1};
}

static void make(struct fixture *f, int64_t n, bool strips)
{
    const struct conv_layer layer = {n, SIZE, SIZE, CHANNELS, CHANNELS, 3, 1};
    const struct hand_parts parts = {f->values, N_VALUES, WEIGHTS, f->steps, N_STEPS, f->derived};
    *f = (struct fixture){0};
    hand_program_init(&f->hand, &parts, &layer, strips);
    make_nodes(f);
    f->steps[GRADIENT].scratch_bytes = 1;
    assert_ok(f->hand.ctx, cuda_conv_init(&f->hand.p, &f->steps[CONV]));
}

static void check_summed(struct fixture *f, bool is_plain)
{
    cuda_statistics_plan(&f->hand.p);
    assert_ptr_equal(f->steps[GRADIENT].summed_by, &f->steps[CONV]);
    assert_ptr_equal(f->steps[CONV].conv->norm, &f->steps[GRADIENT]);
    assert_int_equal(f->steps[GRADIENT].is_plain, is_plain);
    assert_int_equal(f->steps[GRADIENT].scratch_bytes,
                     f->steps[CONV].conv->parts * CHANNELS * 2 * (int)sizeof(float));
    assert_int_equal(cuda_statistics_first(&f->hand.p, GRADIENT), CONV);
    assert_int_equal(f->gradient_in[BNG_D_DST], BACK);
    hand_program_fini(&f->hand);
}

static void check_apart(struct fixture *f)
{
    cuda_statistics_plan(&f->hand.p);
    assert_null(f->steps[GRADIENT].summed_by);
    assert_null(f->steps[CONV].conv->norm);
    assert_int_equal(f->steps[GRADIENT].scratch_bytes, 1);
    assert_int_equal(cuda_statistics_first(&f->hand.p, GRADIENT), GRADIENT);
    assert_int_equal(f->values[D_RESIDUAL].owner, D_RESIDUAL);
    hand_program_fini(&f->hand);
}

static void test_a_gradient_leaves_the_sums_of_its_batch_norm(void **state)
{
    (void)state;
    static const int64_t batches[] = {64, 128, 256};
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        make(&f, batches[i], true);
        check_summed(&f, true);
    }
}

/* Thin layers leave as many parts as they have boxes, of 512 pixels where images are many, or as many as can be read. */
static void test_the_gradient_of_a_thin_layer_leaves_few_parts(void **state)
{
    (void)state;
    static const struct {
        int64_t batch;
        int parts;
    } cases[] = {{1, 16}, {64, 128}, {128, 256}, {257, 256}};
    for (int i = 0; i < 4; i++) {
        struct fixture f;
        make(&f, cases[i].batch, false);
        assert_int_equal(f.steps[CONV].conv->way, CONV_BY_THIN);
        cuda_statistics_plan(&f.hand.p);
        assert_int_equal(f.steps[CONV].conv->parts, cases[i].parts);
        f.steps[CONV].conv->norm = NULL;
        check_summed(&f, true);
    }
}

/* Whichever of the two comes from the convolution. What it writes is the residual's gradient too. */
static void test_a_second_gradient_is_added_on_the_way(void **state)
{
    (void)state;
    for (int is_second = 0; is_second < 2; is_second++) {
        struct fixture f;
        make(&f, 128, true);
        f.norm_in[BN_RESIDUAL] = SRC;
        f.gradient_in[is_second ? BNG_D_DST2 : BNG_D_DST] = BACK;
        f.gradient_in[is_second ? BNG_D_DST : BNG_D_DST2] = OTHER_GRADIENT;
        f.gradient_out[BNG_D_RESIDUAL] = D_RESIDUAL;
        cuda_statistics_plan(&f.hand.p);
        assert_int_equal(f.gradient_in[BNG_D_DST2], OTHER_GRADIENT);
        assert_int_equal(f.values[D_RESIDUAL].owner, BACK);
        assert_int_equal(f.values[D_RESIDUAL].kind, VALUE_ALIAS);
        hand_program_fini(&f.hand);
        make(&f, 128, true);
        f.norm_in[BN_RESIDUAL] = SRC;
        f.gradient_in[is_second ? BNG_D_DST2 : BNG_D_DST] = BACK;
        f.gradient_in[is_second ? BNG_D_DST : BNG_D_DST2] = OTHER_GRADIENT;
        check_summed(&f, false);
    }
}

/* The convolution waits for what the gradient of batch norm reads, which comes so much later that it would leave it to
 * another lane. */
static void test_lanes_know_what_is_read_on_the_way(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.gradient_in[BNG_D_DST2] = OTHER_GRADIENT;
    const struct cuda_step gradient = f.steps[GRADIENT];
    f.steps[GRADIENT] = f.steps[BEHIND];
    f.steps[BEHIND] = gradient;
    cuda_lanes_plan(&f.hand.p);
    const struct cuda_step *other = &f.steps[OTHER];
    assert_int_equal(other->lane, LANE_BRANCH);
    cuda_statistics_plan(&f.hand.p);
    assert_ptr_equal(f.steps[BEHIND].summed_by, &f.steps[CONV]);
    cuda_lanes_plan(&f.hand.p);
    assert_true(other->lane == f.steps[CONV].lane || (f.steps[CONV].waits >> other->lane & 1U));
    hand_program_fini(&f.hand);
}

/* On request, other kernels, zeros that are not stored, so many images that their parts are too many to be read, running statistics. */
static void test_others_leave_none(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.hand.cuda.slopes_apart = true;
    check_apart(&f);
    make(&f, 128, false);
    f.hand.cuda.slopes_apart = true;
    check_apart(&f);
    make(&f, 128, false);
    f.steps[CONV].conv->way = CONV_BY_CUDNN;
    check_apart(&f);
    make(&f, 128, false);
    f.values[BACK].sparse = true;
    check_apart(&f);
    make(&f, 257, true);
    check_apart(&f);
    make(&f, 128, true);
    f.steps[GRADIENT].node.attr.norm.training = false;
    check_apart(&f);
}

/* Somebody else who wants to see what comes back; a caller who does, or wants the residual's gradient; what comes to be
 * only behind the convolution; a result that another step changes. */
static void test_what_others_need_is_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.behind_in = BACK;
    check_apart(&f);
    make(&f, 128, true);
    f.values[BACK].kind = VALUE_EXTERNAL;
    check_apart(&f);
    make(&f, 128, true);
    f.gradient_out[BNG_D_RESIDUAL] = D_RESIDUAL;
    f.values[D_RESIDUAL].kind = VALUE_EXTERNAL;
    check_apart(&f);
    make(&f, 128, true);
    f.gradient_in[BNG_D_DST2] = OTHER_GRADIENT;
    const struct cuda_step other = f.steps[OTHER];
    f.steps[OTHER] = f.steps[CONV];
    f.steps[CONV] = other;
    cuda_statistics_plan(&f.hand.p);
    assert_null(f.steps[GRADIENT].summed_by);
    hand_program_fini(&f.hand);
    make(&f, 128, true);
    f.other_out = BACK;
    check_apart(&f);
}

/* Where there was a residual, or the result is that of something else, the source does not tell where the ReLU was
 * open. */
static void test_only_plain_batch_norm_is_computed_anew(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 128, true);
    f.norm_in[BN_RESIDUAL] = OTHER_GRADIENT;
    check_summed(&f, false);
    make(&f, 128, true);
    f.norm_in[BN_SRC] = D_SRC;
    check_summed(&f, false);
    make(&f, 128, true);
    f.gradient_in[BNG_DST] = OTHER_GRADIENT;
    check_summed(&f, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gradient_leaves_the_sums_of_its_batch_norm),
        cmocka_unit_test(test_the_gradient_of_a_thin_layer_leaves_few_parts),
        cmocka_unit_test(test_a_second_gradient_is_added_on_the_way),
        cmocka_unit_test(test_lanes_know_what_is_read_on_the_way),
        cmocka_unit_test(test_others_leave_none),
        cmocka_unit_test(test_what_others_need_is_left_alone),
        cmocka_unit_test(test_only_plain_batch_norm_is_computed_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
