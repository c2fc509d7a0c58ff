/*
 * Class orders: in which order the classes of a set are learnt.
 *
 * order->class_of[k] is the set's own number of the class learnt k-th; k is the label that networks
 * and metrics see. The paper's three CIFAR-100 orders are PODNet's and come from no seed, so they
 * are tables.
 */
#ifndef DATA_ORDER_H
#define DATA_ORDER_H

#include "core/ctx.h"

struct class_order {
    struct der_ctx *ctx;
    int n;             /* classes */
    int32_t *class_of; /* [n] label in learning order -> class of the set */
    int32_t *label_of; /* [n] the inverse */
};

/* An order by name: "1", "2" or "3" for the paper's (100 classes), "seed:N" for numpy's legacy
 * RandomState(N).shuffle(arange(n)), 0 <= N < 2^32; anything else is the path of a file with the
 * permutation in decimal, separated by white space or commas. Caller frees with order_free. */
NODISCARD enum der_status order_new(struct der_ctx *ctx, const char *name, int n_classes,
                                    struct class_order **out);

/* The order that an array states; it is checked to be a permutation. `source` opens the message. */
NODISCARD enum der_status order_from_array(struct der_ctx *ctx, const char *source,
                                           const int32_t *classes, int n_classes,
                                           struct class_order **out);

/* What order_new does with the content of a file, which need not end in a zero byte. */
NODISCARD enum der_status order_parse(struct der_ctx *ctx, const char *source, const char *text,
                                      size_t length, int n_classes, struct class_order **out);

void order_free(struct class_order *order);

#endif
