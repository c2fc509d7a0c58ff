/*
 * From the public options of training to those of an experiment, for all functions that train.
 */
#ifndef API_API_TRAIN_H
#define API_API_TRAIN_H

#include <der/train.h>

#include "exchange/tensorboard.h"
#include "experiment/experiment.h"

/* All but the configuration. The hooks pass on to those of `options`, which must stay. Numbers that mean nothing are
 * DER_ARG. */
NODISCARD enum der_status api_experiment(struct der_ctx *ctx, struct der_train_options *options,
                                         struct experiment_options *out);

/* Progress as the public interface tells it. */
struct der_progress api_progress(const struct train_progress *progress);

/* Words of the public interface as the rooms below know them. */
enum precision api_precision(enum der_precision precision);
enum bad_images api_bad_images(enum der_bad_images bad_images);

/* Has an experiment, or several (`by_run`), heard by what the options ask for. *out is NULL where that is
 * nothing; otherwise the caller closes it after the last of them. */
NODISCARD enum der_status api_listen(struct der_ctx *ctx, const struct der_train_options *options,
                                     bool by_run, struct experiment_options *experiment,
                                     struct tensorboard **out);

#endif
