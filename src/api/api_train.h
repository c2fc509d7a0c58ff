/*
 * From the public options of training to those of an experiment, for all functions that train.
 */
#ifndef API_API_TRAIN_H
#define API_API_TRAIN_H

#include <der/train.h>

#include "experiment/experiment.h"

/* All but the configuration. The hooks pass on to those of `options`, which must stay. */
struct experiment_options api_experiment(struct der_train_options *options);

/* Words of the public interface as the rooms below know them. */
enum precision api_precision(enum der_precision precision);
enum bad_images api_bad_images(enum der_bad_images bad_images);

#endif
