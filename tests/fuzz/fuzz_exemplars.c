/*
 * Fuzz target: an exemplar file is refused with a sentence, or its lists hold samples of the data set, none
 * twice, under distinct names.
 */
#include "fuzz_file.h"
#include "store/exemplar_file.h"
#include "store/model_text.h"

enum { CAPACITY = 6, SAMPLES = 1000 };

static void check_lists(const struct exemplar_file *file)
{
    bool seen[SAMPLES] = {false};
    const struct exemplars *memory = file->memory;
    require(file->step >= 1 && memory->n_classes <= CAPACITY && memory->capacity == CAPACITY);
    for (int k = 0; k < memory->n_classes; k++) {
        require(strlen(file->classes[k]) > 0);
        for (int other = 0; other < k; other++)
            require(strcmp(file->classes[other], file->classes[k]) != 0);
        for (int i = 0; i < memory->lists[k].n; i++) {
            int64_t sample = memory->lists[k].samples[i];
            require(sample >= 0 && sample < SAMPLES && !seen[sample]);
            seen[sample] = true;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = input_ctx();
    struct exemplar_file *file;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = input_calls(&input);
    int step;
    enum der_status status = exemplar_file_read(ctx, &io, "fuzz", CAPACITY, SAMPLES, &file);
    if (status == DER_OK) {
        check_lists(file);
        require(text_peek_step(ctx, &io, "fuzz", &step) == DER_OK && step == file->step);
    } else {
        check_refusal(ctx, status);
    }
    exemplar_file_free(file);
    input_end(ctx, &input);
    return 0;
}
