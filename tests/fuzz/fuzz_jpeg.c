/*
 * Fuzz target: JPEG files, with their EXIF segments.
 */
#include "fuzz/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 0xFF)
        fuzz_image(data, size);
    return 0;
}
