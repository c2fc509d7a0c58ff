/*
 * What the paper measures about a representation, apart from the accuracy of its classifier (Sec. 4.4,
 * App. C). All of it needs training on data that a learner may not keep, so none of it flows back.
 */
#ifndef METHOD_PROBE_H
#define METHOD_PROBE_H

#include "method/learner.h"

/* The representation of a finished step, read by an ideal classifier: a fresh one, trained by the recipe of
 * the second stage on all training images of all classes so far. */
struct probe_reading {
    double bound;                     /* top-1 over all classes: the classifier's upper bound */
    double groups[LEARNER_MAX_STEPS]; /* A^t_{Y_k}: classes of group k, arg-max among them */
};
/* Group k, of n_groups, has the classes [first_class[k], first_class[k + 1]). */
NODISCARD enum der_status probe_representation(struct learner *learner, const int *first_class,
                                               int n_groups, const struct train_hooks *hooks,
                                               struct probe_reading *out);

/* Abar^i_{Y_i}: a network trained from random values on what the next step will be trained on, cross-entropy
 * only. Call before learner_step. Accuracy on the n_new classes with the arg-max among them. */
struct probe_reference {
    double ideal; /* read by an ideal classifier */
    double own;   /* read by its own */
};
NODISCARD enum der_status probe_reference(struct learner *learner, int n_new,
                                          const struct train_hooks *hooks,
                                          struct probe_reference *out);

#endif
