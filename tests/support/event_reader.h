/*
 * Event files, read: every frame and both of its checksums must be right.
 */
#ifndef SUPPORT_EVENT_READER_H
#define SUPPORT_EVENT_READER_H

#include "core/file.h"
#include "support/proto_reader.h"

enum { EVENTS_MAX = 16 };

struct events {
    struct der_ctx *ctx;
    struct file_bytes bytes;
    struct proto_reader event[EVENTS_MAX];
    int n;
};

void events_read(struct events *events, struct der_ctx *ctx, const char *path);
void events_fini(struct events *events);

/* The simple value under a tag; false: the event has none. */
bool event_scalar(struct proto_reader event, const char *tag, float *value);

#endif
