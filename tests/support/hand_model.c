#include "support/hand_model.h"

#include "support/test_ctx.h"

const char *const HAND_MODEL_NAMES[HAND_MODEL_CLASSES] = {"cat", "caf\xc3\xa9", "a \"b\""};

struct resnet_spec hand_model_spec(enum resnet_stem stem, int last)
{
    return (struct resnet_spec){.stem = stem,
                                .in_channels = HAND_MODEL_CHANNELS,
                                .height = HAND_MODEL_SIDE,
                                .width = HAND_MODEL_SIDE,
                                .n_stages = 2,
                                .n_blocks = {1, 2},
                                .stream = {3, last},
                                .inner = {{5}, {2, 7}}};
}

void hand_model_fill(struct param_set *set, int salt)
{
    for (int i = 0; i < set->n; i++) {
        float values[1024];
        int64_t n = shape_count(set->items[i].shape);
        bool is_variance = set->items[i].role == PARAM_STATE;
        assert_true(n <= 1024);
        for (int64_t k = 0; k < n; k++)
            values[k] = (float)((k * 7 + i * 3 + salt) % 11) / 8.0F - (is_variance ? 0.0F : 0.6F);
        assert_ok(set->ctx, param_write(set, i, values));
    }
}

static void add_extractor(struct model *model, struct backend *be, enum resnet_stem stem, int last)
{
    struct resnet_spec spec = hand_model_spec(stem, last);
    struct extractor **extractor = &model->extractors[model->n_extractors];
    assert_ok(model->ctx, extractor_new(be, &spec, extractor));
    hand_model_fill((*extractor)->params, ++model->n_extractors);
}

void hand_model_init(struct model *model, struct backend *be)
{
    int index;
    *model = (struct model){.ctx = be->ctx};
    add_extractor(model, be, RESNET_STEM_3X3, 4);
    add_extractor(model, be, RESNET_STEM_3X3_POOL, 6);
    assert_ok(be->ctx, param_set_new(be->ctx, &model->classifier));
    assert_ok(be->ctx,
              param_set_add(model->classifier, "classifier.weight",
                            shape_2d(HAND_MODEL_CLASSES, 10), PARAM_LEARNT, INIT_ZERO, &index));
    assert_ok(be->ctx, param_set_allocate(model->classifier, be));
    hand_model_fill(model->classifier, 9);
    model->info = (struct model_info){.classes = HAND_MODEL_NAMES,
                                      .n_classes = HAND_MODEL_CLASSES,
                                      .steps = {2, 1},
                                      .n_steps = 2,
                                      .input = {.geometry = AUGMENT_SQUASH,
                                                .channels = HAND_MODEL_CHANNELS,
                                                .height = HAND_MODEL_SIDE,
                                                .width = HAND_MODEL_SIDE,
                                                .resize = HAND_MODEL_SIDE + 1,
                                                .mean = {0.5071F, 0.4867F, 1.0F / 3.0F},
                                                .std = {0.2675F, 0.2565F, 0.2761F}},
                                      .network = "resnet18-cifar",
                                      .width = 0.12,
                                      .temperature = 5.0,
                                      .version = "0.1.0",
                                      .preset = "custom",
                                      .seed = 999999999999999};
}

void hand_model_fini(struct model *model)
{
    for (int i = 0; i < model->n_extractors; i++)
        extractor_free(model->extractors[i]);
    param_set_free(model->classifier);
    *model = (struct model){0};
}
