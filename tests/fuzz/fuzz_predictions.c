/*
 * Fuzz target: a prediction file is refused with a sentence, or its classes, names and probabilities are in
 * order.
 */
#include "fuzz_file.h"
#include "store/prediction_file.h"

static void check_file(const struct prediction_file *file)
{
    require(file->step >= 1 && file->n_classes >= 1 && file->n >= 0);
    for (int k = 0; k < file->n_classes; k++)
        require(strlen(file->classes[k]) > 0);
    for (int64_t i = 0; i < file->n; i++) {
        const struct prediction *p = &file->predictions[i];
        require(p->sample >= 0 && p->confidence >= 0.0F && p->confidence <= 1.0F);
        require(p->label >= 0 && p->label < file->n_classes);
        require(p->guess >= 0 && p->guess < file->n_classes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = input_ctx();
    struct prediction_file *file;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = input_calls(&input);
    enum der_status status = prediction_file_read(ctx, &io, "fuzz", &file);
    if (status == DER_OK)
        check_file(file);
    else
        check_refusal(ctx, status);
    prediction_file_free(file);
    input_end(ctx, &input);
    return 0;
}
