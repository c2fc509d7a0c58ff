/*
 * What back ends that compute in host memory have in common: buffers are heap blocks, copies are
 * memcpy, work is done when the call returns. They put these functions into their tables.
 */
#ifndef GRAPH_HOST_H
#define GRAPH_HOST_H

#include "graph/backend.h"

NODISCARD enum der_status host_buffer_new(struct backend *be, size_t bytes, struct buffer **out);
void host_buffer_free(struct backend *be, struct buffer *buffer);
NODISCARD enum der_status host_write(struct backend *be, struct buffer *dst, size_t offset,
                                     const void *host, size_t bytes);
NODISCARD enum der_status host_read(struct backend *be, const struct buffer *src, size_t offset,
                                    void *host, size_t bytes);
void host_sequence_drop(struct backend *be, struct sequence *sequence);
NODISCARD enum der_status host_sync(struct backend *be);

#endif
