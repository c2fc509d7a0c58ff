/*
 * The orientation out of an EXIF segment (CIPA DC-008): "Exif", two zero bytes, a TIFF header, and
 * a table of twelve-byte entries, of which one is looked for. Whatever is odd counts as upright, as
 * it does for other programs: a broken note is no reason to refuse the picture.
 */
#include "data/image_codec.h"

#include <string.h>

enum {
    MARK_BYTES = 6,   /* "Exif\0\0" */
    TIFF_HEADER = 8,  /* byte order, 42, offset of the first table */
    ENTRY_BYTES = 12, /* tag, type, count, value */
    TAG_ORIENTATION = 0x0112,
    TYPE_SHORT = 3,
    UPRIGHT = 1,
    ORIENTATION_MAX = 8,
};

static uint32_t number(const uint8_t *bytes, int width, bool big)
{
    uint32_t value = 0;
    for (int i = 0; i < width; i++)
        value = value << 8 | bytes[big ? i : width - 1 - i];
    return value;
}

int exif_orientation(const uint8_t *segment, size_t size)
{
    if (size < MARK_BYTES + TIFF_HEADER || memcmp(segment, "Exif\0\0", MARK_BYTES) != 0)
        return UPRIGHT;
    const uint8_t *tiff = segment + MARK_BYTES;
    size -= MARK_BYTES;
    bool big = memcmp(tiff, "MM", 2) == 0;
    if ((!big && memcmp(tiff, "II", 2) != 0) || number(tiff + 2, 2, big) != 42)
        return UPRIGHT;

    size_t at = number(tiff + 4, 4, big);
    if (at > size - 2) /* size is at least TIFF_HEADER */
        return UPRIGHT;
    uint32_t n = number(tiff + at, 2, big);
    at += 2;
    for (uint32_t i = 0; i < n && size - at >= ENTRY_BYTES; i++, at += ENTRY_BYTES) {
        const uint8_t *entry = tiff + at;
        if (number(entry, 2, big) != TAG_ORIENTATION)
            continue;
        uint32_t value = number(entry + 8, 2, big);
        bool good = number(entry + 2, 2, big) == TYPE_SHORT && number(entry + 4, 4, big) == 1 &&
                    value >= UPRIGHT && value <= ORIENTATION_MAX;
        return good ? (int)value : UPRIGHT;
    }
    return UPRIGHT;
}
