/*
 * One row of a batch: a sample taken from memory, decoded from its file or asked for, and augmented.
 */
#ifndef DATA_ROW_H
#define DATA_ROW_H

#include "data/augment.h"
#include "data/image_file.h"
#include "data/image_form.h"

/* What rows are made from. Threads share it and only read it while they work. */
struct row_source {
    const struct dataset *set;
    enum data_split split;
    struct augment augment;
    uint64_t seed;
    uint32_t epoch;
};

/* What a thread works with; row_tools_init takes no memory. */
struct row_tools {
    struct image_decoder decoder; /* its fault also tells of what no decoder is needed for */
    struct image_form form;
    struct resample work;
};

void row_tools_init(struct row_tools *tools, struct mem *mem, const struct file_io *io);
void row_tools_fini(struct row_tools *tools);

/* dst [channels][height][width] of the augmentation. On failure tools->decoder.fault has a sentence
 * that names the image, except for DER_NOMEM. Of a JPEG file a random crop decodes what it needs: a
 * file that is cut off below the crop is noticed by the first crop that reaches there, or by the
 * first augmentation that uses the whole image, as those for evaluation do. */
NODISCARD enum der_status row_make(const struct row_source *source, struct row_tools *tools,
                                   int64_t sample, float *dst);

/* The same for a picture that is no sample of a set: one in memory, a file, or the bytes of a file, which
 * messages call `name`. */
NODISCARD enum der_status row_from_image(const struct augment *augment,
                                         const struct augment_draw *draw, struct row_tools *tools,
                                         const char *name, const struct image_view *image,
                                         float *dst);
NODISCARD enum der_status row_from_file(const struct augment *augment,
                                        const struct augment_draw *draw, struct row_tools *tools,
                                        const char *path, float *dst);
NODISCARD enum der_status row_from_bytes(const struct augment *augment,
                                         const struct augment_draw *draw, struct row_tools *tools,
                                         const char *name, const struct file_bytes *bytes,
                                         float *dst);

#endif
