/*
 * A run as TensorBoard shows it: a listener that writes the numbers of metrics.jsonl, histograms of the masks and
 * pictures of the exemplars to event files. docs/FORMATS.md lists the tags.
 *
 * The step of an event is the number of its record, that is of its line in metrics.jsonl. A run that goes on
 * begins a new file, at whose start readers forget what comes again, so that no curve doubles. The run's own
 * files matter more than these: when events cannot be written any more, that is told to the log once, and the
 * run goes on without them.
 */
#ifndef EXCHANGE_TENSORBOARD_H
#define EXCHANGE_TENSORBOARD_H

#include "experiment/experiment.h"
#include "io/io_calls.h"

struct tensorboard_options {
    const char *folder;        /* made if it is not there */
    bool by_run;               /* several runs: each in a folder within, named as that of the run */
    const struct io_calls *io; /* may be NULL */
};

struct tensorboard;

NODISCARD enum der_status tensorboard_open(struct der_ctx *ctx,
                                           const struct tensorboard_options *options,
                                           struct tensorboard **out);
void tensorboard_close(struct tensorboard *board);

/* What an experiment is given. Good until the board is closed. */
const struct experiment_listener *tensorboard_listener(const struct tensorboard *board);

#endif
