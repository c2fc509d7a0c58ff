/*
 * 64-bit FNV-1a: short numbers that tell whether something is what it was. Not against those who want to
 * deceive.
 */
#ifndef CORE_FNV_H
#define CORE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_START UINT64_C(0xcbf29ce484222325)

/* Continued from `hash`; begin with FNV_START. */
uint64_t fnv_bytes(uint64_t hash, const void *data, size_t size);

#endif
