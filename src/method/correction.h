/*
 * Bias correction (BiC): a network that is trained on with few images of its old classes favours the new ones. Two
 * numbers for all new classes,
 *
 *     q_k = z_k for old classes k,     q_k = beta z_k + gamma for new ones,
 *
 * make up for it, found on images that no step was trained on (aside.h), as many of every class.
 */
#ifndef METHOD_CORRECTION_H
#define METHOD_CORRECTION_H

#include "core/ctx.h"

struct correction {
    double beta, gamma;
};

/* Logits of images, and what they show. */
struct correction_data {
    const double *logits;  /* [n, n_classes] */
    const int32_t *labels; /* [n] */
    int64_t n;
    int n_old, n_classes; /* the classes from n_old on are new */
};

/* The beta and gamma that minimise
 *
 *     mean cross-entropy of softmax(q) + 0.05 gamma^2 + 0.0005 (beta - 1)^2.
 *
 * That is convex and has one minimum: without the last term there would be none where the images can be told apart
 * without error. Of no images, and of logits that are not finite, beta = 1 and gamma = 0. */
struct correction correction_fit(const struct correction_data *data);

#endif
