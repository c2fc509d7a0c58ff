/*
 * Views: lists of (sample, label) that say which part of a split is used and under which labels.
 *
 * A view owns nothing but its list. Labels are positions in the class order, so that the classes of
 * step t are a range of labels whatever the set calls them.
 */
#ifndef DATA_VIEW_H
#define DATA_VIEW_H

#include "data/dataset.h"
#include "data/order.h"

struct view_item {
    int64_t sample; /* position in the split */
    int32_t label;  /* position of its class in the class order */
};

struct data_view {
    struct der_ctx *ctx;
    int64_t n;
    struct view_item *items; /* [n] */
};

/* All views are made by these and freed with view_free. On failure *out is NULL. */

/* n items without content, for callers that fill them in. */
NODISCARD enum der_status view_new(struct der_ctx *ctx, int64_t n, struct data_view **out);
void view_free(struct data_view *view);

/* The samples of the classes learnt from `first` to `last` - 1, class by class in learning order,
 * within a class by position in the split. `part` must have the classes of `order`. */
NODISCARD enum der_status view_classes(struct der_ctx *ctx, const struct data_part *part,
                                       const struct class_order *order, int first, int last,
                                       struct data_view **out);

/* The items with labels from `first` to `last` - 1, in the order of the view. */
NODISCARD enum der_status view_range(struct der_ctx *ctx, const struct data_view *view, int first,
                                     int last, struct data_view **out);

/* Keeps of every label below n_labels the first `most` items, in place. */
NODISCARD enum der_status view_limit(struct data_view *view, int n_labels, int64_t most);

/* The items of a, then those of b: D_t with M_t. */
NODISCARD enum der_status view_union(struct der_ctx *ctx, const struct data_view *a,
                                     const struct data_view *b, struct data_view **out);

/* A class-balanced subset: of every label that occurs in the view the same number of samples,
 * namely as many as the rarest label has, drawn without replacement. Which ones is a pure function
 * of (seed, step, sample) and of what else the label has. Ordered by label, then as in the view. */
NODISCARD enum der_status view_balanced(struct der_ctx *ctx, const struct data_view *view,
                                        uint64_t seed, uint32_t step, struct data_view **out);

/* The same with at least `least` samples a label, so that one rare label does not leave next to nothing of the
 * others: labels that have fewer give all of theirs again and again, differing in number by at most one. */
NODISCARD enum der_status view_balanced_to(struct der_ctx *ctx, const struct data_view *view,
                                           int64_t least, uint64_t seed, uint32_t step,
                                           struct data_view **out);

/* Splits a view of whole classes into a part to train on and a held-out part: of a class with n
 * samples round(share * n) are held out, but at least one and at most n - 1. Which ones is a pure
 * function of (seed, class), whatever the order or the step; both parts keep the view's order.
 * Fails on a label with a single sample. 0 < share < 1. */
NODISCARD enum der_status view_holdout(struct der_ctx *ctx, const struct data_view *view,
                                       double share, uint64_t seed, struct data_view **kept,
                                       struct data_view **held);

/* The same, but a label with fewer than `fewest` samples (at least 2) keeps them all, and none fails. */
NODISCARD enum der_status view_holdout_from(struct der_ctx *ctx, const struct data_view *view,
                                            double share, int64_t fewest, uint64_t seed,
                                            struct data_view **kept, struct data_view **held);

/* Takes `each` items of every label out, drawn without replacement, but leaves at least one of any. Which ones is a
 * pure function of (seed, sample) and of what else the label has; both parts keep the view's order. */
NODISCARD enum der_status view_set_aside(struct der_ctx *ctx, const struct data_view *view,
                                         int64_t each, uint64_t seed, struct data_view **kept,
                                         struct data_view **aside);

/* The items i of a view with marks[i], and the rest; both keep the view's order. */
NODISCARD enum der_status view_split(struct der_ctx *ctx, const struct data_view *view,
                                     const bool *marks, struct data_view **rest,
                                     struct data_view **marked);

/* counts[l] = items with label l, for labels below n_labels; others are not counted. */
void view_counts(const struct data_view *view, int64_t *counts, int n_labels);

#endif
