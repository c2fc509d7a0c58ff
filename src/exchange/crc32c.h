/*
 * CRC-32C (Castagnoli), as RFC 3720 has it, and the masked form in which event files store it.
 */
#ifndef EXCHANGE_CRC32C_H
#define EXCHANGE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *data, size_t size);

/* A checksum that is itself stored among checksummed data is turned and shifted. */
uint32_t crc32c_masked(const void *data, size_t size);

#endif
