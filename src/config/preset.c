#include "config/preset.h"

#include "core/suggest.h"

#include <stdio.h>
#include <string.h>

#define RN18 "resnet18-cifar"
#define RN32 "resnet32"
#define TOTAL MEMORY_FIXED_TOTAL
#define EACH MEMORY_PER_CLASS

/* Name, summary, family, network, classes (all, of step 1, of later steps), memory, and what masks are told: lambda_s,
 * parameters of an extractor and of the first one, the share of an even cut that each keeps, the share of the epochs
 * behind which they are hard. The paper's Table 9 has the lambda_s of its ResNet-18 rows; those of the 32-layer network
 * are not published. Sizes are what its tables come to for one extractor on average; where the first step has half of
 * the classes, docs/METHODS.md says how much of that is the first one's. Both shares were found on held-out images
 * (docs/PRUNING.md): with few new classes the sparsity loss, left alone, closes streams until a handful of channels is
 * left; and the 32-layer network, which has no channels to spare, needs more of the full rate to recover from losing
 * any. */
const struct preset preset_table[] = {
    {"cifar100-b0-5", "CIFAR-100, 5 steps of 20 classes, ResNet-18", PRESET_CIFAR100_B0, RN18, 100,
     20, 20, TOTAL, 2000, 0.75, 960000, 0, 0, 0},
    {"cifar100-b0-10", "CIFAR-100, 10 steps of 10 classes, ResNet-18", PRESET_CIFAR100_B0, RN18,
     100, 10, 10, TOTAL, 2000, 0.75, 900000, 0, 0, 0},
    {"cifar100-b0-20", "CIFAR-100, 20 steps of 5 classes, ResNet-18", PRESET_CIFAR100_B0, RN18, 100,
     5, 5, TOTAL, 2000, 0.75, 686000, 0, 0.5, 0},
    {"cifar100-b0-50", "CIFAR-100, 50 steps of 2 classes, ResNet-18", PRESET_CIFAR100_B0, RN18, 100,
     2, 2, TOTAL, 2000, 0.75, 398000, 0, 1, 0},
    {"cifar100-b50-2", "CIFAR-100, 50 classes, then 2 steps of 25, ResNet-18", PRESET_CIFAR100_B50,
     RN18, 100, 50, 25, EACH, 20, 0.25, 1500000, 2400000, 0, 0},
    {"cifar100-b50-5", "CIFAR-100, 50 classes, then 5 steps of 10, ResNet-18", PRESET_CIFAR100_B50,
     RN18, 100, 50, 10, EACH, 20, 0.25, 1490000, 2400000, 0, 0},
    {"cifar100-b50-10", "CIFAR-100, 50 classes, then 10 steps of 5, ResNet-18", PRESET_CIFAR100_B50,
     RN18, 100, 50, 5, EACH, 20, 0.25, 1278000, 2400000, 0, 0},
    {"cifar100-b0-5-rn32", "CIFAR-100, 5 steps of 20 classes, ResNet-32", PRESET_CIFAR100_B0, RN32,
     100, 20, 20, TOTAL, 2000, 0.75, 140000, 0, 0, 0.35},
    {"cifar100-b0-10-rn32", "CIFAR-100, 10 steps of 10 classes, ResNet-32", PRESET_CIFAR100_B0,
     RN32, 100, 10, 10, TOTAL, 2000, 0.75, 94000, 0, 0, 0.35},
    {"cifar100-b0-20-rn32", "CIFAR-100, 20 steps of 5 classes, ResNet-32", PRESET_CIFAR100_B0, RN32,
     100, 5, 5, TOTAL, 2000, 0.75, 42800, 0, 0.5, 0},
    {"cifar100-b0-50-rn32", "CIFAR-100, 50 steps of 2 classes, ResNet-32", PRESET_CIFAR100_B0, RN32,
     100, 2, 2, TOTAL, 2000, 0.75, 27400, 0, 0.5, 0},
    {"cifar100-b50-2-rn32", "CIFAR-100, 50 classes, then 2 steps of 25, ResNet-32",
     PRESET_CIFAR100_B50, RN32, 100, 50, 25, EACH, 20, 0.25, 100000, 220000, 0, 0.35},
    {"cifar100-b50-5-rn32", "CIFAR-100, 50 classes, then 5 steps of 10, ResNet-32",
     PRESET_CIFAR100_B50, RN32, 100, 50, 10, EACH, 20, 0.25, 148000, 220000, 0, 0.35},
    {"cifar100-b50-10-rn32", "CIFAR-100, 50 classes, then 10 steps of 5, ResNet-32",
     PRESET_CIFAR100_B50, RN32, 100, 50, 5, EACH, 20, 0.25, 78000, 220000, 0, 0},
    {"imagenet100-b0-10", "ImageNet's first 100 classes, 10 steps of 10, ResNet-18",
     PRESET_IMAGENET_B0, "resnet18", 100, 10, 10, TOTAL, 2000, 0.75, 1394000, 0, 0, 0},
    {"imagenet100-b50-10", "ImageNet's first 100 classes, 50, then 10 steps of 5, ResNet-18",
     PRESET_IMAGENET_B50, "resnet18-3x3", 100, 50, 5, EACH, 20, 0.5, 1478000, 0, 0, 0},
    {"imagenet1000-b0-10", "ImageNet, 10 steps of 100 classes, ResNet-18", PRESET_IMAGENET_B0,
     "resnet18", 1000, 100, 100, TOTAL, 20000, 0.75, 2640000, 0, 0, 0},
    {"fashion-mnist-5", "Fashion-MNIST, 5 steps of 2 classes, ResNet-32, short enough for a CPU",
     PRESET_FASHION_MNIST, RN32, 10, 2, 2, TOTAL, 100, 0.75, 0, 0, 0, 0},
    {"custom", "any data set, all classes in one step, nothing fixed", PRESET_CUSTOM, RN18, 0, 0, 0,
     TOTAL, 2000, 0.75, 0, 0, 0, 0},
};

const int n_presets = (int)(sizeof preset_table / sizeof preset_table[0]);

enum { CPU_EPOCHS = 40, IMAGENET_100 = 100 };

/* Step 1 of the protocols that begin with half of the classes: the authors' separate routine. */
static const struct schedule HALF_FIRST = {
    .lr = 0.1, .epochs = 200, .n_drops = 3, .drop = {60, 120, 160}, .factor = 0.1};

/* 10 + 120 epochs, falling 30, 60, 80 and 90 epochs after the warm-up. */
static const struct schedule IMAGENET = {.lr = 0.1,
                                         .epochs = 130,
                                         .warmup_epochs = 10,
                                         .n_drops = 4,
                                         .drop = {40, 70, 90, 100},
                                         .factor = 0.1};

static const struct schedule CLASSIFIER = {
    .lr = 0.1, .epochs = 30, .n_drops = 1, .drop = {15}, .factor = 0.1};

static void set_text(char *field, size_t size, const char *text)
{
    (void)snprintf(field, size, "%s", text);
}

/* What all presets have in common. */
static void fill_common(struct config *config)
{
    *config = (struct config){
        .seed = 1993,
        .width = 1.0,
        .batch = 128,
        .test_batch = 256,
        .momentum = 0.9,
        .decay = 5e-4,
        .first = schedule_cifar(),
        .representation = schedule_cifar(),
        .classifier = CLASSIFIER,
        .temperature = 5.0,
        .lambda_a = 1.0,
        .classifier_init = CLASSIFIER_FRESH,
        .reset_after_warmup = true,
        .distill_temperature = 2.0,
        .correction_share = 0.1,
        .mask_init = MASK_INIT_NORMAL,
        .mask_gradient = MASK_GRADIENT_EXACT,
        .mask_gain = 5.0,
        .s_max = 400.0,
        .mask_clamp = 6.0,
        .hard_epoch = HARD_EPOCH_AUTO,
    };
    set_text(config->order, sizeof config->order, "seed:1993");
    set_text(config->augment, sizeof config->augment, "auto");
}

/* Masks that are steered to the size the paper came to (docs/METHODS.md, "A wanted size"). */
static void fill_masks(const struct preset *preset, struct config *config)
{
    config->target_params = preset->target_params;
    config->first_target_params = preset->first_target_params;
    config->mask_init = MASK_INIT_UNIFORM;
    config->mask_gain = 10.0;
    config->mask_inherit = 1.0;
    config->mask_least = preset->mask_least;
    config->hard_share = preset->hard_share;
}

static void fill_cifar100(struct config *config)
{
    set_text(config->order, sizeof config->order, "1");
    set_text(config->augment, sizeof config->augment, "cifar100");
}

static void fill_imagenet(const struct preset *preset, struct config *config)
{
    set_text(config->augment, sizeof config->augment, "imagenet");
    config->first_classes = preset->classes == IMAGENET_100 ? IMAGENET_100 : 0;
    config->batch = 256;
    config->temperature = 1.0;
    config->representation = IMAGENET;
    config->first = IMAGENET;
}

static void fill_family(const struct preset *preset, struct config *config)
{
    switch (preset->family) {
    case PRESET_CIFAR100_B50:
        fill_cifar100(config);
        config->first = HALF_FIRST;
        return;
    case PRESET_CIFAR100_B0:
        fill_cifar100(config);
        return;
    case PRESET_IMAGENET_B50:
        fill_imagenet(preset, config);
        config->first = HALF_FIRST;
        return;
    case PRESET_IMAGENET_B0:
        fill_imagenet(preset, config);
        return;
    case PRESET_FASHION_MNIST:
        config->representation = schedule_scaled(&config->representation, CPU_EPOCHS);
        config->first = config->representation;
        config->temperature_features = PAPER_FEATURES;
        return;
    case PRESET_CUSTOM:
        return;
    }
}

/* What makes a method what it is; zero is what it does not do. */
static const struct {
    bool grows; /* expand, auxiliary, prune */
    bool second_stage;
    enum classifier_init classifier_init;
    bool reset_after_warmup;
    enum distill distill;
    enum readout readout;
    bool classifier_positive;
} switches[] = {
    [METHOD_DER] = {.grows = true, .second_stage = true, .reset_after_warmup = true},
    [METHOD_FINETUNE] = {.second_stage = true, .reset_after_warmup = true},
    [METHOD_JOINT] = {.reset_after_warmup = true},
    [METHOD_ICARL] = {.classifier_init = CLASSIFIER_INHERIT,
                      .distill = DISTILL_ADDED,
                      .readout = READOUT_MEANS},
    [METHOD_WA] = {.classifier_init = CLASSIFIER_INHERIT,
                   .distill = DISTILL_SHARED,
                   .readout = READOUT_ALIGNED,
                   .classifier_positive = true},
    [METHOD_BIC] = {.classifier_init = CLASSIFIER_INHERIT,
                    .distill = DISTILL_SHARED,
                    .readout = READOUT_CORRECTED},
};

void preset_use_method(struct config *config, enum method method)
{
    config->method = method;
    config->expand = switches[method].grows;
    config->auxiliary = switches[method].grows;
    config->prune = switches[method].grows;
    config->second_stage = switches[method].second_stage;
    config->classifier_init = switches[method].classifier_init;
    config->reset_after_warmup = switches[method].reset_after_warmup;
    config->distill = switches[method].distill;
    config->readout = switches[method].readout;
    config->classifier_positive = switches[method].classifier_positive;
}

void preset_fill(const struct preset *preset, enum method method, struct config *config)
{
    fill_common(config);
    set_text(config->preset, sizeof config->preset, preset->name);
    set_text(config->network, sizeof config->network, preset->network);
    config->classes = preset->classes;
    config->base_classes = preset->base_classes;
    config->step_classes = preset->step_classes;
    config->memory_mode = preset->memory_mode;
    config->memory = preset->memory;
    config->lambda_s = preset->lambda_s;
    fill_family(preset, config);
    if (preset->target_params > 0)
        fill_masks(preset, config);
    preset_use_method(config, method);
}

bool preset_shares_schedule(const struct preset *preset)
{
    return preset->family != PRESET_CIFAR100_B50 && preset->family != PRESET_IMAGENET_B50;
}

bool preset_is_free(const struct preset *preset)
{
    return preset->family == PRESET_CUSTOM;
}

enum der_status preset_find(struct der_ctx *ctx, const char *name, const struct preset **out)
{
    *out = NULL;
    for (int i = 0; i < n_presets; i++) {
        if (strcmp(preset_table[i].name, name) == 0) {
            *out = &preset_table[i];
            return DER_OK;
        }
    }
    const char *close =
        suggest_word(name, &preset_table[0].name, n_presets, sizeof preset_table[0]);
    if (close)
        return ctx_fail(ctx, DER_ARG, "unknown preset '%.64s'; did you mean '%s'?", name, close);
    return ctx_fail(ctx, DER_ARG, "unknown preset '%.64s'; 'der presets' lists them", name);
}

enum der_status config_from_preset(struct der_ctx *ctx, const char *preset, enum method method,
                                   struct config *config)
{
    const struct preset *found;
    TRY(preset_find(ctx, preset, &found));
    preset_fill(found, method, config);
    return DER_OK;
}
