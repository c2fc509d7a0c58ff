#include "train/resident.h"

/* Bytes at a time: what is copied on its way to a device should stay small. */
static const size_t PIECE = (size_t)16 << 20;

void resident_init(struct resident *resident, struct backend *be, const struct dataset *set)
{
    *resident = (struct resident){.be = be, .set = set, .is_wanted = be->ops->is_device};
}

void resident_fini(struct resident *resident)
{
    for (int split = 0; split < DATA_SPLITS; split++) {
        buffer_free(resident->pixels[split]);
        resident->pixels[split] = NULL;
    }
}

/* Samples are numbered by 32 bits on the device. */
static bool can_be_held(const struct dataset *set, enum data_split split, size_t *bytes)
{
    const struct data_part *part = &set->part[split];
    return part->pixels && part->n > 0 && part->n <= INT32_MAX &&
           size_mul((size_t)part->n,
                    (size_t)set->channels * (size_t)set->height * (size_t)set->width, bytes);
}

static enum der_status upload(struct buffer *buffer, const uint8_t *pixels, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE)
        TRY(buffer_write(buffer, at, pixels + at, bytes - at < PIECE ? bytes - at : PIECE));
    return DER_OK;
}

static void refuse(struct resident *resident, enum data_split split, size_t bytes)
{
    struct der_ctx *ctx = resident->be->ctx;
    resident->is_refused[split] = true;
    ctx_log(ctx, DER_LOG_WARNING,
            "%s: its %zu MiB do not fit beside the networks (%s); batches "
            "are streamed",
            resident->set->path, bytes >> 20, der_ctx_error(ctx));
}

enum der_status resident_pixels(struct resident *resident, enum data_split split,
                                struct buffer **out)
{
    size_t bytes;
    *out = resident->pixels[split];
    if (*out || !resident->is_wanted || resident->is_refused[split] ||
        !can_be_held(resident->set, split, &bytes))
        return DER_OK;
    struct buffer *buffer;
    /* FEED sees the bytes as words. */
    enum der_status status = buffer_new(resident->be, (bytes + 3) / 4 * 4, &buffer);
    if (status == DER_NOMEM) {
        refuse(resident, split, bytes);
        return DER_OK;
    }
    TRY(status);
    status = upload(buffer, resident->set->part[split].pixels, bytes);
    if (status != DER_OK) {
        buffer_free(buffer);
        return status;
    }
    resident->pixels[split] = *out = buffer;
    return DER_OK;
}

bool resident_let_go(struct resident *resident)
{
    bool was_held = false;
    for (int split = 0; split < DATA_SPLITS; split++) {
        size_t bytes;
        if (!resident->pixels[split] || !can_be_held(resident->set, (enum data_split)split, &bytes))
            continue;
        was_held = true;
        refuse(resident, (enum data_split)split, bytes);
    }
    resident_fini(resident);
    return was_held;
}
