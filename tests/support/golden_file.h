/*
 * Golden values: the safetensors files that tools/gen_golden.py writes, the inputs that follow a
 * formula instead of being stored, and the comparison.
 *
 * For tests only: whatever is missing or wrong fails the running cmocka test.
 */
#ifndef SUPPORT_GOLDEN_FILE_H
#define SUPPORT_GOLDEN_FILE_H

#include "graph/tensor.h"

struct golden_tensor {
    char *name;
    enum dtype dtype;
    struct shape shape;
    const void *data; /* within the file's bytes, aligned for its type */
};

/* An entry of __metadata__. */
struct golden_note {
    char *key;
    char *text;
};

struct golden_file {
    char *bytes;                   /* the whole file */
    struct golden_tensor *tensors; /* [n_tensors] */
    int n_tensors;
    struct golden_note *notes; /* [n_notes], in the order of the file */
    int n_notes;
};

/* Opens <data folder>/<name>.safetensors. The folder is $DER_TEST_DATA, or tests/golden/data. */
struct golden_file *golden_open(const char *name);
void golden_close(struct golden_file *file);

/* The tensor of that name, NULL when there is none; golden_get fails the test instead. */
const struct golden_tensor *golden_find(const struct golden_file *file, const char *name);
const struct golden_tensor *golden_get(const struct golden_file *file, const char *name);

/* The note of that key; fails the test when there is none. */
const char *golden_text(const struct golden_file *file, const char *key);
/* The file's "seed", which every formula below takes. */
uint32_t golden_seed(const struct golden_file *file);

/* dst[i] uniform in centre + [-amplitude, amplitude), a pure function of name, seed and i. */
void golden_noise(float *dst, int64_t n, const char *name, uint32_t seed, double centre,
                  double amplitude);
/* Labels in [0, n_classes). */
void golden_labels(int32_t *dst, int64_t n, const char *name, uint32_t seed, int n_classes);
/* The formula for a network's parameter, chosen by its name and shape. */
void golden_param(float *dst, struct shape shape, const char *name, uint32_t seed);

/* Fails unless |got - want|^2 <= nmse |want|^2; integers must be equal. `what` opens the message.
 * With DER_GOLDEN_SHOW in the environment the NMSE of everything compared goes to stderr. */
void golden_compare(const char *what, const void *got, const struct golden_tensor *want,
                    double nmse);

#endif
