/*
 * Base64 (RFC 4648), for images that travel inside the page.
 */
#ifndef REPORT_BASE64_H
#define REPORT_BASE64_H

#include "core/text.h"

void base64_put(struct text *text, const uint8_t *data, size_t n);

#endif
