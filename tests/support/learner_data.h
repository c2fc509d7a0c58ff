/*
 * What a learner learns from in tests: a procedural set in its natural order, and options for a narrow ResNet-18
 * of which only the config is left to fill in.
 */
#ifndef SUPPORT_LEARNER_DATA_H
#define SUPPORT_LEARNER_DATA_H

#include "method/learner.h"

struct learner_data {
    struct der_ctx *ctx;
    struct backend *be;
    struct dataset *set;
    struct class_order *order;
    struct data_view *train, *test;
    struct learner_options options;
};

/* set: "synth:..."; width: factor on the channels of the network. */
void learner_data_open(struct learner_data *data, const char *backend, const char *set,
                       double width);
void learner_data_close(struct learner_data *data);

/* The settings of preset `custom` for a method, and n changes to them. */
void learner_data_configure(struct learner_data *data, enum method method,
                            const char *const *settings, int n);

#endif
