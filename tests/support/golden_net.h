/*
 * A residual network and a head with the parameters of a golden file, and the checks that several
 * golden tests make on them. For tests only: what goes wrong fails the running test.
 */
#ifndef SUPPORT_GOLDEN_NET_H
#define SUPPORT_GOLDEN_NET_H

#include "model/resnet.h"
#include "support/golden_file.h"
#include "support/golden_run.h"

/* "3x3 3 16 16 4:4,4 8:8,8": stem, image, then stream:inner,inner of every stage. */
void golden_spec(struct resnet_spec *spec, const char *text);

/* A set holding only the named matrices; ends with a NULL name. */
struct golden_matrix {
    const char *name;
    int64_t rows, columns;
};

/* Writes golden_param into every parameter of a set that has memory. */
void golden_fill(struct param_set *set, uint32_t seed);

/* Sets made ready to train, filled by golden_param; freed with param_set_free. */
struct param_set *golden_extractor(const struct golden_rig *rig, const struct resnet_spec *spec,
                                   uint32_t seed);
struct param_set *golden_head(const struct golden_rig *rig, const struct golden_matrix *matrices,
                              uint32_t seed);

/* Compares every learnt parameter's gradient with "<prefix><name>". */
void golden_check_grads(const struct param_set *set, const struct golden_file *file,
                        const char *prefix, double nmse);
/* Compares parameters of a role with "<prefix><name>". */
void golden_check_params(const struct param_set *set, enum param_role role,
                         const struct golden_file *file, const char *prefix, double nmse);

#endif
