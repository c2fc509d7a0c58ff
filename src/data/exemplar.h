/*
 * Exemplars: the few images of old classes that a learner may keep, chosen by herding.
 *
 * Herding ranks the images of a class once, when the class is new; later steps only shorten the
 * list, so what is kept is always a prefix of that ranking, with what a method puts among it. Only when
 * images join a known class is it ranked again, among those that were kept and those that are new.
 */
#ifndef DATA_EXEMPLAR_H
#define DATA_EXEMPLAR_H

#include "data/view.h"

enum memory_mode {
    MEMORY_FIXED_TOTAL, /* K images in all: floor(K / classes seen) per class */
    MEMORY_PER_CLASS    /* K images per class */
};

struct exemplar_list {
    int64_t *samples; /* [n] positions in the training split, best rank first */
    int n;
};

struct exemplars {
    struct der_ctx *ctx;
    int n_classes;               /* classes with a list, in learning order */
    int capacity;                /* lists there is room for */
    struct exemplar_list *lists; /* [n_classes] */
};

/* Images per class that may be kept once n_seen classes are known. */
int exemplar_quota(enum memory_mode mode, int budget, int n_seen);

/* Ranks the images of one class (iCaRL's herding as the DER code has it).
 *   features [n][d] of its images; ranks [min(m, n)] receives positions in [0, n), best first
 * *n_ranked may stay below min(m, n): after 1000 iterations herding gives up. Fails with
 * DER_NUMERIC on a feature that is not finite. */
NODISCARD enum der_status exemplar_herd(struct der_ctx *ctx, const float *features, int n, int d,
                                        int m, int32_t *ranks, int *n_ranked);

/* An empty memory for up to n_classes classes. Caller frees with exemplars_free. */
NODISCARD enum der_status exemplars_new(struct der_ctx *ctx, int n_classes, struct exemplars **out);
void exemplars_free(struct exemplars *memory);

/* Appends the list of the next class in learning order; the samples are copied. */
NODISCARD enum der_status exemplars_add(struct exemplars *memory, const int64_t *samples, int n);

/* Puts another list in the place of a class's; the samples are copied. */
NODISCARD enum der_status exemplars_replace(struct exemplars *memory, int label,
                                            const int64_t *samples, int n);

/* Shortens every list to its first `quota` samples. */
void exemplars_truncate(struct exemplars *memory, int quota);

/* M_t: all exemplars, class by class, best rank first, labelled by position of their class. */
NODISCARD enum der_status exemplars_view(const struct exemplars *memory, struct data_view **out);

#endif
