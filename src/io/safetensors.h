/*
 * safetensors files (Hugging Face), written and read in pieces.
 *
 *     8 bytes   length of the header, little-endian
 *     header    JSON: {"__metadata__": {key: text}, name: {"dtype": "F32", "shape": [2, 3],
 *               "data_offsets": [begin, end]}, ...}, spaces behind it
 *     data      the tensors, dense, row-major, little-endian, without gaps
 *
 * What is written is a function of what was declared and put: same calls, same bytes. What is read
 * is believed in nothing: safetensors_open checks the whole header against the size of the file
 * before it gives away anything of it.
 */
#ifndef IO_SAFETENSORS_H
#define IO_SAFETENSORS_H

#include "io/io_calls.h"

enum {
    SAFETENSORS_MAX_RANK = 8,
    /* The format's own library stops at 100 MB. A tensor takes some 120 bytes of a header, so this is
     * room for 100,000 of them, and a hostile header cannot make the JSON tree much more than 1 GB. */
    SAFETENSORS_MAX_HEADER = 16 << 20,
};

enum safetensors_dtype {
    SAFETENSORS_F64,
    SAFETENSORS_I64,
    SAFETENSORS_F32,
    SAFETENSORS_I32,
    SAFETENSORS_F16,  /* IEEE half precision */
    SAFETENSORS_BF16, /* the upper half of an F32 */
    SAFETENSORS_U8,
    SAFETENSORS_DTYPES
};

struct safetensors_tensor {
    const char *name;
    enum safetensors_dtype dtype;
    int rank;                          /* 0: one element without dimensions */
    int64_t dim[SAFETENSORS_MAX_RANK]; /* from 0 on */
    size_t begin, size; /* bytes: place in the data, and how many; results, ignored as arguments */
};

/* "F32". */
const char *safetensors_dtype_name(enum safetensors_dtype dtype);

/* Bytes of the elements; false when that overflows or a dimension is negative. */
bool safetensors_size(const struct safetensors_tensor *tensor, size_t *size);

/* ---- Writing: new, declare and describe all, put the data in order, commit ---------------------- */

struct safetensors_writer;

/* Writes to `path` as durable.h does: nothing is there before the commit. `io` may be NULL. */
NODISCARD enum der_status safetensors_writer_new(struct der_ctx *ctx, const struct io_calls *io,
                                                 const char *path, struct safetensors_writer **out);

/* Announces a tensor; data lies in the order of these calls. Names are UTF-8 without control
 * characters and differ. So that every tensor is aligned in the file, wider types come first.
 * `tensor` is copied. */
NODISCARD enum der_status safetensors_declare(struct safetensors_writer *writer,
                                              const struct safetensors_tensor *tensor);

/* Adds UTF-8 text under a key of the metadata. Another program may list several keys in any order. */
NODISCARD enum der_status safetensors_describe(struct safetensors_writer *writer, const char *key,
                                               const char *text);

/* Appends to the data of a tensor. It must be the first one that is not complete; it may come in
 * any number of pieces. The first call ends the declarations. After a failure, of this or of a call
 * before it, the writer can only be given up. */
NODISCARD enum der_status safetensors_put(struct safetensors_writer *writer, const char *name,
                                          const void *data, size_t size);

/* Puts the file in place when all tensors are complete. `writer` is gone whatever comes of it. */
NODISCARD enum der_status safetensors_commit(struct safetensors_writer *writer);

/* Gives up; an old file stays as it was. NULL is allowed. */
void safetensors_abort(struct safetensors_writer *writer);

/* ---- Reading ------------------------------------------------------------------------------------ */

struct safetensors_file;

/* Opens a file and checks its header; a header that is not in order is DER_FORMAT, and the message
 * says why. `io` may be NULL and must outlive the file. */
NODISCARD enum der_status safetensors_open(struct der_ctx *ctx, const struct io_calls *io,
                                           const char *path, struct safetensors_file **out);
void safetensors_close(struct safetensors_file *file);

/* The tensors in the order of their data. Borrowed until the file is closed. */
int safetensors_count(const struct safetensors_file *file);
const struct safetensors_tensor *safetensors_at(const struct safetensors_file *file, int index);

/* NULL: there is none of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors_file *file,
                                                  const char *name);

/* Text of the metadata, borrowed; NULL: no such key. */
const char *safetensors_metadata(const struct safetensors_file *file, const char *key);

enum safetensors_values {
    SAFETENSORS_ANY,   /* whatever the file holds */
    SAFETENSORS_FINITE /* a float that is infinite or not a number is DER_FORMAT */
};

/* Is there a tensor of that name, type and dimensions? DER_FORMAT otherwise, as safetensors_read would say;
 * for callers that take memory only for what is there. */
NODISCARD enum der_status safetensors_check(struct safetensors_file *file,
                                            const struct safetensors_tensor *wanted);

/* Reads the tensor of that name, which must have the type and dimensions of `wanted`. `dst` has room
 * for safetensors_size(wanted); after a failure its content is undefined. */
NODISCARD enum der_status safetensors_read(struct safetensors_file *file,
                                           const struct safetensors_tensor *wanted,
                                           enum safetensors_values values, void *dst);

/* Reads a tensor of floats of any width as F32, for files that others made. Everything but the type must be as
 * in `wanted`, whose type is ignored; a value that is not finite, or too large for F32, is DER_FORMAT. */
NODISCARD enum der_status safetensors_read_floats(struct safetensors_file *file,
                                                  const struct safetensors_tensor *wanted,
                                                  float *dst);

/* safetensors_check for that. */
NODISCARD enum der_status safetensors_check_floats(struct safetensors_file *file,
                                                   const struct safetensors_tensor *wanted);

#endif
