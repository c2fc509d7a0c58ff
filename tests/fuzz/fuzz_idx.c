/*
 * Fuzz target: pairs of IDX files, plain or gzip. The first two bytes say how long the images'
 * file is; the labels' file follows it. Both splits are read from the same pair.
 */
#include "fuzz/fuzz_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t length = (size_t)data[0] << 8 | data[1];
    if (length > size - 2)
        length = size - 2;
    struct reader_input images = {"images", data + 2, length};
    struct reader_input labels = {"labels", data + 2 + length, size - 2 - length};
    struct der_ctx *ctx = fuzz_ctx();
    struct dataset *set = fuzz_set(ctx);
    enum der_status status = idx_parse(set, DATA_TRAIN, images, labels);
    fuzz_check(set, DATA_TRAIN, status);
    if (status == DER_OK)
        fuzz_check(set, DATA_TEST, idx_parse(set, DATA_TEST, images, labels));
    dataset_free(set);
    fuzz_ctx_free(ctx);
    return 0;
}
