/*
 * Status codes: every fallible function of the library returns one.
 *
 * The code says what kind of thing went wrong; the sentence a person can act on
 * is kept by the context (der_ctx_error).
 */
#ifndef DER_STATUS_H
#define DER_STATUS_H

#include <der/export.h>

/* One row per status: constant, value, short name, general text. */
#define DER_STATUS_LIST(X)                                                                         \
    X(DER_OK, 0, "ok", "success")                                                                  \
    X(DER_NOMEM, -1, "nomem", "out of memory")                                                     \
    X(DER_ARG, -2, "arg", "invalid argument")                                                      \
    X(DER_SHAPE, -3, "shape", "tensor shapes do not fit together")                                 \
    X(DER_IO, -4, "io", "reading or writing failed")                                               \
    X(DER_FORMAT, -5, "format", "file content is not what its format asks for")                    \
    X(DER_DEVICE, -6, "device", "the compute device or its library failed")                        \
    X(DER_UNSUPPORTED, -7, "unsupported", "not supported by this build or device")                 \
    X(DER_NUMERIC, -8, "numeric", "numbers left the finite range")                                 \
    X(DER_CANCELLED, -9, "cancelled", "stopped on request")                                        \
    X(DER_STATE, -10, "state", "the object is not in a state that allows this call")

enum der_status {
#define DER_STATUS_ENUM(constant, value, name, text) constant = value,
    DER_STATUS_LIST(DER_STATUS_ENUM)
#undef DER_STATUS_ENUM
};

/* Short name of a status, such as "nomem"; "unknown" for a value that is none. Static storage. */
DER_API const char *der_status_name(enum der_status status);

/* One general sentence for a status. Static storage. */
DER_API const char *der_status_text(enum der_status status);

#endif
