#include "data/image_form.h"

#include <assert.h>

void image_form_fini(struct image_form *form)
{
    mem_free(form->mem, form->bytes);
    *form = (struct image_form){.mem = form->mem};
}

static bool reserve(struct image_form *form, const struct image_view *src, int channels)
{
    size_t bytes;
    bool fits = size_mul((size_t)src->height, (size_t)src->width, &bytes) &&
                size_mul(bytes, (size_t)channels, &bytes);
    if (fits && bytes <= form->capacity)
        return true;
    mem_free(form->mem, form->bytes);
    form->capacity = 0;
    form->bytes = fits ? mem_alloc(form->mem, bytes, 1) : NULL;
    if (!form->bytes)
        return false;
    form->capacity = bytes;
    return true;
}

/* One pixel in the other number of channels, or as it is. */
static void put_pixel(uint8_t *dst, int channels, const uint8_t *src, const struct image_view *view)
{
    ptrdiff_t step = view->channels == 1 ? 0 : view->channel_stride;
    if (channels == 1 && view->channels == 3)
        *dst = image_luma(src[0], src[step], src[2 * step]);
    else
        for (int c = 0; c < channels; c++)
            dst[c] = src[c * step];
}

void image_form_copy(uint8_t *dst, int channels, const struct image_view *src)
{
    for (int y = 0; y < src->height; y++) {
        const uint8_t *at = src->data + y * src->row_stride;
        for (int x = 0; x < src->width; x++, at += src->pixel_stride, dst += channels)
            put_pixel(dst, channels, at, src);
    }
}

enum der_status image_form_apply(struct image_form *form, const struct image_view *src,
                                 int channels, struct image_view *out)
{
    assert((channels == 1 || channels == 3) && (src->channels == 1 || src->channels == 3));
    bool is_interleaved = src->channel_stride == 1 && src->pixel_stride == src->channels;
    *out = *src;
    if (src->channels == channels && (is_interleaved || src->pixel_stride == 1))
        return DER_OK;
    out->channels = channels;
    if (src->channels == 1 && src->pixel_stride == 1) { /* one plane serves as all three */
        out->channel_stride = 0;
        return DER_OK;
    }
    if (!reserve(form, src, channels))
        return DER_NOMEM;
    image_form_copy(form->bytes, channels, src);
    out->data = form->bytes;
    out->channel_stride = 1;
    out->pixel_stride = channels;
    out->row_stride = (ptrdiff_t)src->width * channels;
    return DER_OK;
}
