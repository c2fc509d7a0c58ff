/*
 * Fuzz target: the binary CIFAR files. The first byte chooses between CIFAR-10 and CIFAR-100 and
 * whether the rest are images or class names; images are made of the same few bytes again and
 * again, so that short inputs reach whole records.
 */
#include "fuzz/fuzz_set.h"

#include <string.h>

enum { RECORDS_MAX = 4, RECORD_MAX = 3074 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct der_ctx *ctx = fuzz_ctx();
    struct dataset *set = fuzz_set(ctx);
    set->n_classes = data[0] & 1 ? READER_CIFAR100 : READER_CIFAR10;
    set->channels = 3;
    set->height = 32;
    set->width = 32;
    if (data[0] & 2) {
        struct reader_input text = {"input", data + 1, size - 1};
        if (reader_name_classes(set, text, set->n_classes) == DER_OK)
            require(set->class_names[set->n_classes - 1][0] != 0);
    } else {
        size_t bytes = (size_t)(data[0] >> 2) * (RECORDS_MAX * RECORD_MAX) / 60;
        uint8_t *file = mem_alloc(&ctx->mem, bytes, 1);
        require(file != NULL);
        for (size_t i = 0; i < bytes; i++)
            file[i] = data[1 + i % (size - 1)];
        struct reader_input input = {"input", file, bytes};
        fuzz_check(set, DATA_TRAIN, cifar_parse(set, DATA_TRAIN, input));
        mem_free(&ctx->mem, file);
    }
    dataset_free(set);
    fuzz_ctx_free(ctx);
    return 0;
}
