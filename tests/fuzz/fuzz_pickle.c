/*
 * Fuzz target: the pickle reader, for images and for class names of CIFAR-10 and CIFAR-100.
 */
#include "fuzz/fuzz_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = fuzz_ctx();
    static const int n_classes[] = {READER_CIFAR10, READER_CIFAR100};
    for (int i = 0; i < 2; i++) {
        struct dataset *set = fuzz_set(ctx);
        set->n_classes = n_classes[i];
        set->channels = 3;
        set->height = 32;
        set->width = 32;
        struct reader_input input = {"input", data, size};
        fuzz_check(set, DATA_TRAIN, cifar_pickle_parse(set, DATA_TRAIN, input));
        if (cifar_pickle_parse_names(set, input) == DER_OK)
            for (int k = 0; k < set->n_classes; k++)
                require(set->class_names[k][0] != 0);
        dataset_free(set);
    }
    fuzz_ctx_free(ctx);
    return 0;
}
