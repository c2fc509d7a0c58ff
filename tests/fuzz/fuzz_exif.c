/*
 * Fuzz target: the EXIF segment alone.
 */
#include "data/image_codec.h"

#include "fuzz/fuzz_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int orientation = exif_orientation(data, size);
    require(orientation >= 1 && orientation <= 8);
    return 0;
}
