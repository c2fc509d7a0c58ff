/*
 * Batches that the back end makes from images it holds are those of the loader, to the bit, in whatever epoch,
 * batch or mode; what it keeps is what its programs gave; and a network trained on the one is the network
 * trained on the other.
 */
/* labels: first */
#include "data/order.h"
#include "support/supervised.h"
#include "support/test_backend.h"
#include "support/test_ctx.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 5, PER_CLASS = 23, SIZE = 12, BATCH = 16, MAX_ROWS = 128, MAX_BATCHES = 16 };

struct fixture {
    struct der_ctx *ctx;
    struct backend *be;
    struct dataset *set;
    struct class_order *order;
    struct data_view *view;
    struct resident resident;
    struct augment_spec augment;
};

static void open_fixture(struct fixture *f, const char *backend)
{
    const int32_t classes[CLASSES] = {3, 1, 4, 0, 2};
    *f = (struct fixture){.ctx = test_ctx_new(1)};
    assert_ok(f->ctx, backend_open(f->ctx, backend, NULL, &f->be));
    assert_ok(f->ctx,
              dataset_open(f->ctx, "synth:classes=5,train=23,test=9,size=12,seed=4", &f->set));
    assert_ok(f->ctx, order_from_array(f->ctx, "test", classes, CLASSES, &f->order));
    assert_ok(f->ctx,
              view_classes(f->ctx, &f->set->part[DATA_TRAIN], f->order, 0, CLASSES, &f->view));
    f->augment = *augment_preset("cifar100-train");
    f->augment.height = f->augment.width = SIZE;
    resident_init(&f->resident, f->be, f->set);
    f->resident.is_wanted = true;
}

static void close_fixture(struct fixture *f)
{
    resident_fini(&f->resident);
    view_free(f->view);
    order_free(f->order);
    dataset_free(f->set);
    backend_close(f->be);
    test_ctx_free(f->ctx);
}

static void for_each_back_end(void (*test)(struct fixture *f))
{
    for (const struct backend_ops *const *ops = test_backends(); *ops; ops++) {
        struct fixture f;
        open_fixture(&f, (*ops)->name);
        test(&f);
        close_fixture(&f);
    }
}

static struct loader_options data_of(const struct fixture *f, enum loader_mode mode)
{
    return (struct loader_options){.set = f->set,
                                   .view = f->view,
                                   .augment = &f->augment,
                                   .split = DATA_TRAIN,
                                   .mode = mode,
                                   .batch = BATCH,
                                   .seed = UINT64_C(0xfedcba9876543210)};
}

/* ---- batches ------------------------------------------------------------------------------------------ */

/* A program that gives an image's floats as features: what the feeder put there can be read back. The copy is
 * made by ADD of one operand; scalars come back as the loss. */
struct mirror {
    struct program *program;
    struct buffer *now;
    struct stage_program stage;
};

static struct buffer *new_buffer(struct fixture *f, size_t words)
{
    struct buffer *buffer;
    assert_ok(f->ctx, buffer_new(f->be, words * 4, &buffer));
    return buffer;
}

static void bind_to(struct fixture *f, struct program *program, int value, struct buffer *buffer)
{
    assert_ok(f->ctx, program_bind(program, value, (struct span){.buffer = buffer}));
}

static void copy_value(struct graph *g, int from, int *to)
{
    assert_ok(g->ctx,
              graph_add_value(g, "copy", DTYPE_F32, g->values[from].shape, VALUE_EXTERNAL, to));
    assert_ok(g->ctx, graph_add_node(g, OP_ADD, &from, 1, to, 1, NULL));
}

static void mirror_init(struct fixture *f, int rows, bool scalars, struct mirror *m)
{
    const int64_t pixels = (int64_t)3 * SIZE * SIZE;
    struct graph *g;
    int image;
    int image_copy;
    int now;
    int now_copy;
    assert_ok(f->ctx, graph_new(f->ctx, &g));
    assert_ok(f->ctx, graph_input(g, "image", DTYPE_F32, shape_1d(rows * pixels), &image));
    assert_ok(f->ctx, graph_input(g, "now", DTYPE_F32, shape_1d(STAGE_MAX_SCALARS), &now));
    copy_value(g, image, &image_copy);
    copy_value(g, now, &now_copy);
    assert_ok(f->ctx, program_compile(f->be, g, &m->program));
    graph_free(g);
    struct buffer *image_buffer = new_buffer(f, (size_t)(rows * pixels));
    struct buffer *matrix = new_buffer(f, (size_t)(rows * pixels));
    m->now = new_buffer(f, STAGE_MAX_SCALARS);
    struct buffer *losses = new_buffer(f, STAGE_MAX_SCALARS);
    m->stage = (struct stage_program){.image = image_buffer,
                                      .labels = new_buffer(f, (size_t)rows),
                                      .scalars = scalars ? m->now : NULL,
                                      .losses = losses,
                                      .matrix = matrix};
    m->stage.rank = m->stage.labels; /* labels come back as ranks */
    bind_to(f, m->program, image, image_buffer);
    bind_to(f, m->program, image_copy, matrix);
    bind_to(f, m->program, now, m->now);
    bind_to(f, m->program, now_copy, losses);
    assert_ok(f->ctx, sequence_new(f->be, &(struct sequence_item){.program = m->program}, 1,
                                   &m->stage.sequence));
}

static void mirror_fini(struct mirror *m)
{
    sequence_free(m->stage.sequence);
    program_free(m->program);
    buffer_free(m->stage.image);
    buffer_free(m->stage.labels);
    buffer_free(m->now);
    buffer_free(m->stage.losses);
    buffer_free(m->stage.matrix);
}

/* One epoch, everything it gave. */
struct epoch {
    int n_batches;
    int rows[MAX_BATCHES];
    float features[MAX_ROWS * 3 * SIZE * SIZE];
    float losses[MAX_BATCHES * STAGE_MAX_SCALARS];
    int32_t ranks[MAX_ROWS];
    int32_t labels[MAX_ROWS];
};

static void run_epoch(struct fixture *f, struct feeder *feeder, uint32_t epoch, bool train,
                      struct mirror mirrors[2], struct epoch *out)
{
    float scalars[MAX_BATCHES * STAGE_MAX_SCALARS];
    for (int i = 0; i < MAX_BATCHES * STAGE_MAX_SCALARS; i++)
        scalars[i] = (float)epoch + (float)i / 64.0f;
    memset(out, 0, sizeof *out);
    assert_ok(f->ctx, feeder_start(feeder, epoch, train ? scalars : NULL));
    for (;; out->n_batches++) {
        int rows;
        assert_ok(f->ctx, feeder_next(feeder, &rows));
        if (rows == 0)
            break;
        assert_true(out->n_batches < MAX_BATCHES);
        out->rows[out->n_batches] = rows;
        assert_ok(f->ctx, feeder_run(feeder, &mirrors[train && rows < BATCH].stage));
    }
    assert_int_equal(out->n_batches, feeder_batches(feeder));
    assert_true(out->n_batches * BATCH <= MAX_ROWS);
    assert_ok(f->ctx, feeder_ranks(feeder, 0, out->n_batches, out->ranks));
    assert_ok(f->ctx, feeder_features(feeder, out->features));
    if (train)
        assert_ok(f->ctx, feeder_losses(feeder, 0, out->n_batches, out->losses));
    memcpy(out->labels, feeder_labels(feeder), (size_t)out->n_batches * BATCH * 4);
}

/* Rows that are not there may hold anything. */
static void forget_ranks_of_no_row(struct epoch *e)
{
    for (int i = 0; i < e->n_batches * BATCH; i++)
        if (e->labels[i] < 0)
            e->ranks[i] = -1;
}

/* Other programs, likely in the places of these: the feeders must not take them for the old ones. */
static void renew_mirrors(struct fixture *f, int tail, bool train, struct mirror mirrors[2],
                          struct feeder *a, struct feeder *b)
{
    feeder_forget(a);
    feeder_forget(b);
    mirror_fini(&mirrors[0]);
    mirror_fini(&mirrors[1]);
    mirror_init(f, tail, train, &mirrors[1]);
    mirror_init(f, BATCH, train, &mirrors[0]);
}

static void compare_epochs(struct fixture *f, enum loader_mode mode)
{
    const bool train = mode == LOADER_TRAIN;
    const int tail = CLASSES * PER_CLASS % BATCH;
    struct loader_options data = data_of(f, mode);
    struct feeder_options options = {.be = f->be,
                                     .data = &data,
                                     .n_losses = train ? STAGE_MAX_SCALARS : 0,
                                     .ranks = true,
                                     .n_columns = (int64_t)3 * SIZE * SIZE};
    struct mirror mirrors[2];
    struct feeder *streamed;
    struct feeder *held;
    struct epoch *a = malloc(sizeof *a);
    struct epoch *b = malloc(sizeof *b);
    assert_non_null(a);
    assert_non_null(b);
    mirror_init(f, BATCH, train, &mirrors[0]);
    mirror_init(f, tail, train, &mirrors[1]);
    assert_ok(f->ctx, feeder_new(f->ctx, &options, &streamed));
    options.resident = &f->resident;
    assert_ok(f->ctx, feeder_new(f->ctx, &options, &held));
    assert_non_null(f->resident.pixels[DATA_TRAIN]);
    for (uint32_t epoch = 0; epoch < 4; epoch++) {
        if (epoch == 2)
            renew_mirrors(f, tail, train, mirrors, streamed, held);
        run_epoch(f, streamed, epoch * 1000003, train, mirrors, a);
        run_epoch(f, held, epoch * 1000003, train, mirrors, b);
        forget_ranks_of_no_row(a);
        forget_ranks_of_no_row(b);
        assert_int_equal(a->rows[a->n_batches - 1], tail);
        for (int i = 0; i < CLASSES * PER_CLASS; i++)
            assert_int_equal(a->ranks[i], a->labels[i]);
        assert_memory_equal(a, b, sizeof *a);
    }
    feeder_free(held);
    feeder_free(streamed);
    mirror_fini(&mirrors[0]);
    mirror_fini(&mirrors[1]);
    free(a);
    free(b);
}

static void compare_training(struct fixture *f)
{
    compare_epochs(f, LOADER_TRAIN);
}

static void compare_evaluation(struct fixture *f)
{
    f->augment.geometry = AUGMENT_PLAIN;
    f->augment.flip = false;
    f->augment.brightness = 0.0;
    compare_epochs(f, LOADER_EVAL);
}

static void test_held_images_give_the_loaders_batches_in_training(void **state)
{
    (void)state;
    for_each_back_end(compare_training);
}

static void test_held_images_give_the_loaders_batches_in_evaluation(void **state)
{
    (void)state;
    for_each_back_end(compare_evaluation);
}

/* ---- the augmentation alone --------------------------------------------------------------------------- */

static const struct {
    enum augment_geometry geometry;
    int height, width, pad;
    bool flip;
    double brightness;
} shapes[] = {
    {AUGMENT_PLAIN, 12, 12, 0, false, 0.0},     {AUGMENT_PLAIN, 12, 12, 0, true, 0.3},
    {AUGMENT_PAD_CROP, 12, 12, 4, true, 0.247}, {AUGMENT_PAD_CROP, 9, 7, 0, true, 0.0},
    {AUGMENT_PAD_CROP, 20, 15, 5, false, 2.5},  {AUGMENT_PAD_CROP, 12, 12, 30, true, 1.0},
};

static void compare_draws(const struct fixture *f, const struct augment *augment)
{
    const struct augment_spec *spec = &augment->spec;
    const struct feed_attr attr = {.batch = 1,
                                   .channels = 3,
                                   .height = SIZE,
                                   .width = SIZE,
                                   .out_height = spec->height,
                                   .out_width = spec->width,
                                   .pad = spec->pad,
                                   .flip = spec->flip,
                                   .low = spec->brightness > 1.0 ? 0.0 : 1.0 - spec->brightness,
                                   .high = 1.0 + spec->brightness};
    float expected[3 * 20 * 20];
    struct resample work = {.mem = &f->ctx->mem};
    for (int i = 0; i < 4000; i++) {
        const uint64_t seed = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(i / 7);
        const uint32_t epoch = (uint32_t)(i % 7) * 613566757U;
        const int64_t sample = i % (CLASSES * PER_CLASS);
        const struct image_view view = dataset_view(f->set, DATA_TRAIN, sample);
        const struct augment_source source = augment_full_size(view);
        const struct augment_draw want = augment_draw(spec, seed, epoch, sample);
        const struct feed_draw draw = feed_draw(&attr, seed, epoch, sample);
        assert_true(draw.flip == want.flip && draw.factor == want.brightness);
        assert_int_equal(augment_apply(augment, &want, &source, &work, expected), DER_OK);
        const float *next = expected;
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < spec->height; y++)
                for (int x = 0; x < spec->width; x++)
                    assert_true(feed_pixel(&attr, &draw, view.data, augment->table[0], c, y, x) ==
                                *next++);
    }
}

static void test_a_pixel_is_what_the_augmentation_makes_of_it(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "ref");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct augment augment;
        f.augment.geometry = shapes[i].geometry;
        f.augment.height = shapes[i].height;
        f.augment.width = shapes[i].width;
        f.augment.pad = shapes[i].pad;
        f.augment.flip = shapes[i].flip;
        f.augment.brightness = shapes[i].brightness;
        assert_ok(f.ctx, augment_init(f.ctx, &f.augment, &augment));
        compare_draws(&f, &augment);
    }
    close_fixture(&f);
}

/* ---- whole trainings ---------------------------------------------------------------------------------- */

struct outcome {
    float head[CLASSES * 64];
    double loss, accuracy, top1;
};

static void note(void *user, const struct train_progress *p)
{
    struct outcome *outcome = user;
    outcome->loss = p->losses[0];
    outcome->accuracy = p->accuracy;
}

static void train(struct fixture *f, struct resident *resident, struct outcome *out)
{
    struct supervised_options options = {
        .n_classes = CLASSES, .momentum = 0.9f, .decay = 5e-4f, .seed = 7};
    struct schedule schedule = {.lr = 0.05, .epochs = 2, .factor = 0.1};
    struct train_hooks hooks = {.progress = note, .user = out};
    struct loader_options data = data_of(f, LOADER_TRAIN);
    struct supervised *model;
    struct evaluation result;
    memset(out, 0, sizeof *out);
    assert_ok(f->ctx,
              resnet_spec_init(f->ctx, &options.spec, "resnet18-cifar", 3, SIZE, SIZE, 0.1));
    assert_true(resnet_feature_dim(&options.spec) <= 64);
    assert_ok(f->ctx, supervised_new(f->be, &options, &model));
    model->resident = resident;
    assert_ok(f->ctx, supervised_train(model, "test", &schedule, &data, &hooks));
    assert_ok(f->ctx, param_read(model->head, 0, out->head));
    data.mode = LOADER_EVAL;
    assert_ok(f->ctx, supervised_test(model, &data, NULL, &result));
    out->top1 = evaluation_top1(&result, 0, CLASSES);
    evaluation_fini(f->ctx, &result);
    supervised_free(model);
}

static void compare_networks(struct fixture *f)
{
    struct outcome *streamed = malloc(sizeof *streamed);
    struct outcome *held = malloc(sizeof *held);
    assert_non_null(streamed);
    assert_non_null(held);
    train(f, NULL, streamed);
    assert_null(f->resident.pixels[DATA_TRAIN]);
    train(f, &f->resident, held);
    assert_non_null(f->resident.pixels[DATA_TRAIN]);
    assert_memory_equal(streamed, held, sizeof *held);

    /* A device is looked at seldom: the sums must be the same. */
    const struct backend_ops *own = f->be->ops;
    struct backend_ops device = *own;
    device.is_device = true;
    f->be->ops = &device;
    train(f, &f->resident, held);
    f->be->ops = own;
    assert_memory_equal(streamed, held, sizeof *held);
    assert_true(held->loss > 0.0 && held->accuracy > 0.0);
    free(streamed);
    free(held);
}

static void test_a_network_is_the_same_however_it_was_fed(void **state)
{
    (void)state;
    for_each_back_end(compare_networks);
}

static void test_without_wish_or_use_nothing_is_held(void **state)
{
    (void)state;
    struct fixture f;
    struct buffer *pixels;
    open_fixture(&f, "ref");
    resident_init(&f.resident, f.be, f.set);
    assert_false(f.resident.is_wanted);
    assert_ok(f.ctx, resident_pixels(&f.resident, DATA_TRAIN, &pixels));
    assert_null(pixels);
    /* Augmentations that resize are the loader's. */
    f.resident.is_wanted = true;
    f.augment = *augment_preset("imagenet-train");
    f.augment.height = f.augment.width = SIZE;
    struct loader_options data = data_of(&f, LOADER_TRAIN);
    const struct feeder_options options = {.be = f.be, .resident = &f.resident, .data = &data};
    struct feeder *feeder;
    assert_ok(f.ctx, feeder_new(f.ctx, &options, &feeder));
    assert_null(f.resident.pixels[DATA_TRAIN]);
    feeder_free(feeder);
    close_fixture(&f);
}

/* A back end that has no room for a program while it holds images. */
struct crowded {
    struct backend_ops ops;
    const struct backend_ops *own;
    const struct resident *resident;
    int n_refused;
};

static enum der_status compile_if_there_is_room(struct backend *be, const struct graph *g,
                                                struct program **out)
{
    struct crowded *room = (struct crowded *)(uintptr_t)be->ops;
    if (!room->resident->pixels[DATA_TRAIN])
        return room->own->compile(be, g, out);
    room->n_refused++;
    return ctx_nomem(be->ctx);
}

/* No room for the networks beside the images: these go, and nothing else changes. */
static void make_room(struct fixture *f)
{
    struct outcome *streamed = malloc(sizeof *streamed);
    struct outcome *crowded = malloc(sizeof *crowded);
    assert_non_null(streamed);
    assert_non_null(crowded);
    train(f, NULL, streamed);
    struct crowded room = {.ops = *f->be->ops, .own = f->be->ops, .resident = &f->resident};
    room.ops.compile = compile_if_there_is_room;
    f->be->ops = &room.ops;
    train(f, &f->resident, crowded);
    f->be->ops = room.own;
    assert_int_equal(room.n_refused, 1);
    assert_true(f->resident.is_refused[DATA_TRAIN]);
    assert_null(f->resident.pixels[DATA_TRAIN]);
    assert_memory_equal(streamed, crowded, sizeof *crowded);
    free(streamed);
    free(crowded);
}

static void test_images_make_room_for_networks(void **state)
{
    (void)state;
    for_each_back_end(make_room);
}

/* No room for the images: one warning, and batches are streamed. */
static void test_images_that_do_not_fit_are_streamed(void **state)
{
    (void)state;
    struct fixture f;
    struct buffer *pixels;
    open_fixture(&f, "ref");
    f.ctx->mem.fail_at = f.ctx->mem.n_allocs + 1;
    assert_ok(f.ctx, resident_pixels(&f.resident, DATA_TRAIN, &pixels));
    assert_null(pixels);
    assert_ok(f.ctx, resident_pixels(&f.resident, DATA_TRAIN, &pixels));
    assert_null(pixels); /* it is not tried again */
    close_fixture(&f);
}

/* One epoch of a held set, with the n-th request for memory refused. */
static enum der_status feed_once(struct fixture *f, const struct stage_program *stage)
{
    struct loader_options data = data_of(f, LOADER_EVAL);
    const struct feeder_options options = {
        .be = f->be, .resident = &f->resident, .data = &data, .ranks = true};
    struct feeder *feeder;
    int rows;
    TRY(feeder_new(f->ctx, &options, &feeder));
    enum der_status status = feeder_start(feeder, 0, NULL);
    if (status == DER_OK)
        status = feeder_next(feeder, &rows);
    if (status == DER_OK)
        status = feeder_run(feeder, stage);
    feeder_free(feeder);
    return status;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct fixture f;
    struct mirror mirror;
    struct buffer *pixels;
    uint64_t n = 0;
    open_fixture(&f, "ref");
    mirror_init(&f, BATCH, false, &mirror);
    assert_ok(f.ctx, resident_pixels(&f.resident, DATA_TRAIN, &pixels));
    const uint64_t live = f.ctx->mem.n_live;
    for (enum der_status status = DER_NOMEM; status != DER_OK; n++) {
        f.ctx->mem.fail_at = f.ctx->mem.n_allocs + n + 1;
        status = feed_once(&f, &mirror.stage);
        assert_true(status == DER_OK || status == DER_NOMEM);
        assert_true(f.ctx->mem.n_live == live);
    }
    f.ctx->mem.fail_at = 0;
    assert_true(n > 20);
    mirror_fini(&mirror);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pixel_is_what_the_augmentation_makes_of_it),
        cmocka_unit_test(test_held_images_give_the_loaders_batches_in_training),
        cmocka_unit_test(test_held_images_give_the_loaders_batches_in_evaluation),
        cmocka_unit_test(test_a_network_is_the_same_however_it_was_fed),
        cmocka_unit_test(test_without_wish_or_use_nothing_is_held),
        cmocka_unit_test(test_images_that_do_not_fit_are_streamed),
        cmocka_unit_test(test_images_make_room_for_networks),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
