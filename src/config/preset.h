/*
 * Presets: the protocols of the paper, ready to run.
 *
 * A preset fills every setting. What makes results comparable (how the classes are split, how many
 * exemplars are kept and how they are counted) belongs to the preset and cannot be overridden; the
 * preset `custom` leaves everything free.
 */
#ifndef CONFIG_PRESET_H
#define CONFIG_PRESET_H

#include "config/config.h"

/* What kind of protocol it is: everything but the numbers of the row. */
enum preset_family {
    PRESET_CIFAR100_B0,
    PRESET_CIFAR100_B50,
    PRESET_IMAGENET_B0,
    PRESET_IMAGENET_B50,
    PRESET_FASHION_MNIST,
    PRESET_CUSTOM
};

/* Of the extractors that the published temperature of the second stage is for. */
enum { PAPER_FEATURES = 512 };

struct preset {
    const char *name;
    const char *summary; /* one line */
    enum preset_family family;
    const char *network;
    int classes, base_classes, step_classes;
    enum memory_mode memory_mode;
    int memory;
    double lambda_s;
    int64_t target_params;       /* of an extractor; 0: whatever lambda_s leaves */
    int64_t first_target_params; /* of the first; 0: as of all others */
    double mask_least;           /* share of an even cut that every mask keeps */
    double hard_share; /* share of the epochs behind which masks are hard; 0: see config.h */
};

extern const struct preset preset_table[];
extern const int n_presets;

/* An unknown name is DER_ARG, and the message suggests a known one. */
NODISCARD enum der_status preset_find(struct der_ctx *ctx, const char *name,
                                      const struct preset **out);

/* Everything as the preset has it, with the switches of a method. */
void preset_fill(const struct preset *preset, enum method method, struct config *config);

/* The switches that make a method of the loop: what grows, what teaches, what classifies in the end. */
void preset_use_method(struct config *config, enum method method);

/* Step 1 is trained like every other step. */
bool preset_shares_schedule(const struct preset *preset);

/* What the protocol decides is open. */
bool preset_is_free(const struct preset *preset);

/* preset_find and preset_fill. */
NODISCARD enum der_status config_from_preset(struct der_ctx *ctx, const char *preset,
                                             enum method method, struct config *config);

#endif
