/*
 * Everything that can be set about a run, in one flat struct: the protocol, the optimisation, the
 * method and its switches. Presets fill it, overrides change it, config.json records it.
 *
 * Which keys there are, their types, ranges and help come from one table (setting.h).
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "data/exemplar.h"
#include "graph/op.h"
#include "train/schedule.h"

enum { CONFIG_NAME = 64, CONFIG_PATH = 1024 };

enum method { METHOD_DER, METHOD_FINETUNE, METHOD_JOINT, METHOD_ICARL, METHOD_WA, METHOD_BIC };

/* How the mask parameters e of a new extractor start. */
enum mask_init {
    MASK_INIT_NORMAL,  /* N(0, 1) */
    MASK_INIT_UNIFORM, /* U(0, 2) */
    MASK_INIT_CONSTANT /* 1 */
};

/* Which channels stay when masks harden. */
enum mask_choice {
    MASK_CHOICE_LEARNED, /* those with e > 0 */
    MASK_CHOICE_RANDOM   /* as many of every mask, drawn at random: what learning them is worth */
};

/* How H_t starts a step. */
enum classifier_init {
    CLASSIFIER_FRESH,  /* anew, as the authors' code does */
    CLASSIFIER_INHERIT /* rows and columns of H_{t-1} kept, as the paper says */
};

/* What a network that is trained on is told by the network it was. */
enum distill {
    DISTILL_NONE,
    DISTILL_ADDED, /* L_CE + L_KD */
    DISTILL_SHARED /* (1 - lambda) L_CE + lambda L_KD, lambda the share of old classes */
};

/* The classifier that a step ends with. */
enum readout {
    READOUT_TRAINED,
    READOUT_ALIGNED, /* rows of new classes scaled to the mean length of the old ones' */
    READOUT_MEANS,   /* of the exemplars of a class: the nearest one's is the guess */
    READOUT_CORRECTED /* logits of new classes scaled and shifted, by what images say that were set aside */
};

enum { HARD_EPOCH_AUTO = -1 };

struct config {
    char preset[CONFIG_NAME];
    enum method method;

    /* The protocol. */
    int classes;                  /* classes the data set must have; 0: any number */
    int base_classes;             /* classes of step 1; 0: as many as later steps */
    int step_classes;             /* classes of every later step; 0: all that are left */
    enum memory_mode memory_mode; /* fixed by a preset, like the three lines around it */
    int memory;                   /* images in all, or per class */
    int first_classes;            /* image folders: use so many classes in sorted order; 0: all */
    char order[CONFIG_PATH];      /* of the classes: "1", "2", "3", "seed:N" or a file */
    uint64_t seed;                /* of everything random; below 10^15 */

    /* Data. */
    char augment[CONFIG_NAME]; /* "auto", or a family of transforms such as "cifar100" */
    int per_class;             /* train on at most so many images of a class; 0: all */
    double validation;         /* share of the training images held out and tested on */

    /* Network and optimisation. */
    char network[CONFIG_NAME];
    double width; /* factor on the channels of every layer */
    int batch, test_batch;
    double momentum, decay;
    struct schedule first;          /* of step 1 */
    struct schedule representation; /* of every later step */
    struct schedule classifier;     /* of the second stage */
    bool second_stage;              /* train the classifier anew on a balanced subset */
    double temperature;             /* delta of the second stage */
    int temperature_features;       /* delta is for extractors of so many; 0: of any number */

    /* Representation. */
    bool expand;     /* a new extractor a step; false: one, trained on */
    bool auxiliary;  /* the auxiliary loss, from step 2 on */
    double lambda_a; /* its weight */
    enum classifier_init classifier_init;
    bool reset_after_warmup; /* both heads start anew when the warm-up ends */

    /* The comparators'. */
    enum distill distill;
    double distill_temperature;
    enum readout readout;
    double correction_share;  /* of a class's kept images: set aside for the correction */
    bool classifier_positive; /* its weights never fall below 0 */

    /* Masks and pruning. */
    bool prune;
    double lambda_s; /* weight of the sparsity loss */
    enum mask_init mask_init;
    double mask_inherit; /* added to the first e of channels that the extractor before it kept */
    double
        mask_least; /* share that every mask keeps, of what an even cut to the wanted size would leave */
    enum mask_gradient mask_gradient;
    enum mask_choice mask_choice;
    double mask_gain; /* factor on the learning rate of e */
    double s_max;
    double mask_clamp;     /* e stays within +- this */
    int hard_epoch;        /* masks are 0 or 1 from this epoch on; HARD_EPOCH_AUTO: from the first
                              drop of the rate past 25 % of the epochs */
    double hard_share;     /* HARD_EPOCH_AUTO: or from this share of the epochs on, where that is
                              earlier; 0: not so */
    int64_t target_params; /* wanted size of a pruned extractor; 0: lambda_s stays as it is */
    int64_t first_target_params; /* that of step 1; 0: the same */

    bool joint_last; /* joint training: at the last step only */
};

/* The epoch where the hard phase of a stage with this schedule begins. */
int config_hard_epoch(const struct config *config, const struct schedule *schedule);

/* Step t (from 0) of a set of n_classes: classes that are new in it; 0 past the last step. */
int config_step_classes(const struct config *config, int n_classes, int step);
int config_steps(const struct config *config, int n_classes);

/* The transforms that `augment` names, as augment_preset knows them; NULL: the data set decides. */
const char *config_augment(const struct config *config, bool training);

/* Every value within its range, and all of them together: DER_ARG with a sentence otherwise. */
NODISCARD enum der_status config_check(struct der_ctx *ctx, const struct config *config);

/* The memory has room for as many images of every class as a run of n_steps steps through n_classes classes needs: one,
 * of those known before the last step, for a second stage; one of all for means of exemplars; two, of those known before
 * the last step, where some are set aside for a correction. DER_ARG with a sentence otherwise. */
NODISCARD enum der_status config_check_memory(struct der_ctx *ctx, const struct config *config,
                                              int n_classes, int n_steps);

#endif
