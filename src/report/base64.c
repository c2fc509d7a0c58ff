#include "report/base64.h"

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_put(struct text *text, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i < 3 ? n - i : 3;
        uint32_t word = (uint32_t)data[i] << 16;
        if (left > 1)
            word |= (uint32_t)data[i + 1] << 8;
        if (left > 2)
            word |= data[i + 2];
        const char four[4] = {DIGITS[word >> 18], DIGITS[word >> 12 & 63],
                              left > 1 ? DIGITS[word >> 6 & 63] : '=',
                              left > 2 ? DIGITS[word & 63] : '='};
        text_add(text, four, sizeof four);
    }
}
