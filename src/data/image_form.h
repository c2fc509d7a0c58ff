/*
 * Pictures in memory, in whatever layout they come, brought into one that augmentation takes: the wanted
 * number of channels, interleaved without gaps or in planes whose rows have none. Most come so and cost
 * nothing; the others are copied.
 */
#ifndef DATA_IMAGE_FORM_H
#define DATA_IMAGE_FORM_H

#include "data/dataset.h"

/* Memory of one thread, which grows to the largest picture met. Zeroed but for `mem`, it is ready. */
struct image_form {
    struct mem *mem;
    uint8_t *bytes;
    size_t capacity;
};

void image_form_fini(struct image_form *form);

/* `channels` is 1 or 3, as are those of `src`: grey becomes three equal channels, colour becomes grey as in
 * decoded files. *out lies in `src` or in `form`, and is good until the next call. DER_NOMEM is the only
 * failure, and it leaves the message to the caller. */
NODISCARD enum der_status image_form_apply(struct image_form *form, const struct image_view *src,
                                           int channels, struct image_view *out);

/* The copy alone: dst [height][width][channels]. */
void image_form_copy(uint8_t *dst, int channels, const struct image_view *src);

/* Grey of red, green and blue by the weights of ITU-R 601 in 16 bits, rounded: what Pillow's convert("L")
 * computes. */
static inline uint8_t image_luma(uint8_t red, uint8_t green, uint8_t blue)
{
    return (uint8_t)((red * 19595u + green * 38470u + blue * 7471u + 0x8000u) >> 16);
}

#endif
