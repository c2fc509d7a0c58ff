/*
 * Fuzz target: a class-order file is either refused with a sentence or is a permutation.
 *
 * The first byte is the number of classes, less one; the rest is the text.
 */
#include "data/order.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_permutation(const struct class_order *order)
{
    for (int k = 0; k < order->n; k++) {
        int32_t class = order->class_of[k];
        require(class >= 0 && class < order->n);
        require(order->label_of[class] == k);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct der_ctx *ctx = NULL;
    require(der_ctx_new(NULL, &ctx) == DER_OK);
    int n_classes = data[0] + 1;
    struct class_order *order;
    enum der_status status =
        order_parse(ctx, "fuzz", (const char *)data + 1, size - 1, n_classes, &order);
    require((status == DER_OK) == (order != NULL));
    if (status == DER_OK)
        check_permutation(order);
    else
        require(strlen(der_ctx_error(ctx)) > 0);
    order_free(order);
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
    return 0;
}
