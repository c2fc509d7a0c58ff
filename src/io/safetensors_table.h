/*
 * What the writer and the reader of safetensors files share: the list of tensors and its names.
 */
#ifndef IO_SAFETENSORS_TABLE_H
#define IO_SAFETENSORS_TABLE_H

#include "io/safetensors.h"

#define SAFETENSORS_METADATA "__metadata__"

/* Formats for a name from a file in a message: not more of it than leaves room for the sentence. */
#define SAFETENSORS_NAME "'%.100s'"

enum { SAFETENSORS_LENGTH_BYTES = 8, SAFETENSORS_ALIGNMENT = 8 };

struct safetensors_table {
    struct safetensors_tensor *tensors; /* [n], in the order of their data */
    int n, capacity;
    const struct safetensors_tensor **by_name; /* [n], sorted */
};

void safetensors_table_free(struct mem *mem, struct safetensors_table *table);

/* Bytes of an element. */
size_t safetensors_dtype_bytes(enum safetensors_dtype dtype);

/* Is it a name that may stand in a file: UTF-8, not empty, without control characters? */
bool safetensors_name_is_valid(const char *name);

/* Fills by_name, once all tensors are there. A name that occurs twice is DER_FORMAT. */
NODISCARD enum der_status safetensors_table_index(struct der_ctx *ctx, const char *source,
                                                  struct safetensors_table *table);

/* NULL: there is none of that name. */
const struct safetensors_tensor *safetensors_table_find(const struct safetensors_table *table,
                                                        const char *name);

/* Fills the table from the JSON text of a header, for a file with `data_size` bytes behind it. The
 * names in it, and *metadata (NULL: there is none), are borrowed from *root, which the caller gives
 * back with json_free. After a failure *root is NULL and the table is empty. */
struct cJSON;
NODISCARD enum der_status safetensors_header_parse(struct der_ctx *ctx, const char *source,
                                                   const char *text, size_t length,
                                                   size_t data_size, struct cJSON **root,
                                                   const struct cJSON **metadata,
                                                   struct safetensors_table *table);

#endif
