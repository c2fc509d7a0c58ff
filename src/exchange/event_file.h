/*
 * Event files, as TensorBoard reads them: a sequence of records,
 *
 *     8 bytes   length n, little-endian
 *     4 bytes   masked CRC-32C of these eight
 *     n bytes   an Event, a message of protocol buffers
 *     4 bytes   masked CRC-32C of the message
 *
 * in files events.out.tfevents.TIME.HOST.PID, which are read in the order of their names. A record is written
 * whole or not at all; what a killed process leaves of one is where readers stop.
 */
#ifndef EXCHANGE_EVENT_FILE_H
#define EXCHANGE_EVENT_FILE_H

#include "exchange/proto.h"
#include "io/io_calls.h"

/* Fields of event.proto and summary.proto that are used. */
enum event_field {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_STATUS = 1,
    SUMMARY_VALUE = 1,
    SUMMARY_TAG = 1,
    SUMMARY_SIMPLE_VALUE = 2,
    SUMMARY_IMAGE = 4,
    SUMMARY_HISTOGRAM = 5,
    IMAGE_HEIGHT = 1,
    IMAGE_WIDTH = 2,
    IMAGE_COLOURSPACE = 3,
    IMAGE_ENCODED = 4,
    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX = 2,
    HISTOGRAM_NUM = 3,
    HISTOGRAM_SUM = 4,
    HISTOGRAM_SUM_SQUARES = 5,
    HISTOGRAM_LIMITS = 6,
    HISTOGRAM_COUNTS = 7,
};

struct event_file;

/* Makes a file in a folder that is there, behind all others by its name. What readers have met so far from
 * `first_step` on no longer counts: it comes again. `io` may be NULL. */
NODISCARD enum der_status event_file_create(struct der_ctx *ctx, const struct io_calls *io,
                                            const char *folder, int64_t first_step,
                                            struct event_file **out);
void event_file_close(struct event_file *file);

/* Where it lies. */
const char *event_file_path(const struct event_file *file);

/* Empties `event` and fills in the time and the step; a summary may follow. */
void event_start(struct proto *event, int64_t step);

/* Appends an event. After a failure the file is as it was before. */
NODISCARD enum der_status event_file_write(struct event_file *file, const struct proto *event);

#endif
