/*
 * A hash of bytes that tells things apart that nobody made alike on purpose: 64-bit FNV-1a.
 */
#ifndef CORE_HASH_H
#define CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)

/* Continued from `hash`; begin with HASH_START. */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t size);

#endif
