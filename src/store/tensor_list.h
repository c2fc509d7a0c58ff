/*
 * Tensors on their way into a safetensors file, from the host or from parameters on a device.
 *
 * A file wants its wider types first, and all declarations before any data. Whoever saves something adds it
 * here in the order that reads best; writing sorts by width, and within a width keeps that order.
 */
#ifndef STORE_TENSOR_LIST_H
#define STORE_TENSOR_LIST_H

#include "core/arena.h"
#include "io/safetensors.h"
#include "model/resnet.h"

/* One tensor and where its data lies. */
struct tensor_source {
    struct safetensors_tensor tensor; /* its name is the list's */
    const void *host;                 /* data on the host, or NULL */
    const struct param_set *set;      /* otherwise a parameter of this set, or its velocity */
    int index;
    bool is_velocity;
};

struct tensor_list {
    struct der_ctx *ctx;
    struct arena names;
    struct tensor_source *items; /* [n] */
    int n, capacity;
};

void tensor_list_init(struct tensor_list *list, struct der_ctx *ctx);
void tensor_list_fini(struct tensor_list *list);

/* Adds a tensor of the host: cols < 0 means a vector of `rows`, otherwise a matrix. `data` is borrowed until
 * the list is written. */
NODISCARD enum der_status tensor_list_add(struct tensor_list *list, const char *name,
                                          enum safetensors_dtype dtype, int64_t rows, int64_t cols,
                                          const void *data);

/* Adds every parameter of a set as PREFIX followed by its name; `moving`: and the velocities of what is
 * learnt, as PREFIX, name, ".velocity". The set is borrowed until the list is written. */
NODISCARD enum der_status tensor_list_add_params(struct tensor_list *list, const char *prefix,
                                                 const struct param_set *set, bool moving);

/* Declares and puts everything; describe before, commit after. */
NODISCARD enum der_status tensor_list_write(const struct tensor_list *list,
                                            struct safetensors_writer *writer);

/* ---- the way back ------------------------------------------------------------------------------- */

/* Does the file have every tensor of a declared set, each of its shape? Nothing is allocated for it, so this
 * comes before memory of that size is taken. *n (may be NULL) grows by the number of tensors. */
NODISCARD enum der_status params_are_stored(struct safetensors_file *file, const char *prefix,
                                            const struct param_set *set, bool moving, int *n);

/* Fills an allocated set. Numbers that are not finite are DER_FORMAT. */
NODISCARD enum der_status params_restore(struct safetensors_file *file, const char *prefix,
                                         struct param_set *set, bool moving);

/* A variance below 0 has no root: DER_FORMAT for the parameters of a network that hold one. */
NODISCARD enum der_status params_check_variances(const struct param_set *set, const char *source,
                                                 const char *prefix);

#endif
