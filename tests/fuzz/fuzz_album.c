/*
 * Fuzz target: an album file is refused with a sentence, or all its pictures are there, of known classes, in rising
 * order.
 */
#include "fuzz_file.h"
#include "store/album_file.h"
#include "store/companion.h"

static void check_split(const struct dataset *album, enum data_split split)
{
    const struct data_part *part = &album->part[split];
    for (int64_t i = 0; i < part->n; i++) {
        struct image_view picture = dataset_view(album, split, i);
        require(part->labels[i] >= (i > 0 ? part->labels[i - 1] : 0));
        require(part->labels[i] < album->n_classes);
        require(picture.channels == album->channels && picture.height > 0 && picture.width > 0);
        volatile uint8_t last =
            picture.data[(size_t)picture.height * (size_t)picture.width * (size_t)picture.channels -
                         1];
        (void)last;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = input_ctx();
    struct dataset *album;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = input_calls(&input);
    uint64_t model;
    enum der_status status = album_read(ctx, &io, "fuzz", &album);
    if (status == DER_OK) {
        check_split(album, DATA_TRAIN);
        check_split(album, DATA_TEST);
        require(companion_peek(ctx, &io, "fuzz", &model) == DER_OK);
    } else {
        check_refusal(ctx, status);
    }
    dataset_free(album);
    input_end(ctx, &input);
    return 0;
}
