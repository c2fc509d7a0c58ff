/*
 * One file over libcurl into a file of ours, appended to what is there, over as many connections as it
 * takes.
 *
 * A connection that is cut, stalls or is refused for the moment is tried again after a pause, from the byte
 * where the last one stopped. A server that ignores that wish, or whose file has become another one
 * in between (its entity tag changed), makes the download start anew. Only http, https and file
 * addresses are followed, redirections to http and https alone, and never from https to http.
 * Certificates are checked. Proxies come from the environment, as libcurl has it.
 *
 * libcurl takes its memory from malloc, not from the context.
 */
#ifndef FETCH_TRANSFER_H
#define FETCH_TRANSFER_H

#include "fetch/watch.h"
#include "io/io_calls.h"

struct transfer_request {
    const char *url;
    const char *path;     /* of the file that is written, for messages */
    const char *name;     /* of the file, for progress */
    int64_t size;         /* of the whole file; 0: not known */
    int64_t size_max;     /* more bytes are refused; at least `size` */
    int stall_seconds;    /* without a byte, then the connection is given up */
    int retries;          /* connections that may fail in a row without a byte of progress */
    double pause_seconds; /* before the first retry; doubles from one to the next */
    const struct fetch_watch *watch;
};

/* Downloads into `fd`, open for appending. *connections says how many it took. After a failure what came
 * so far is in the file and the next call goes on from there; the message says so. */
NODISCARD enum der_status transfer_run(struct der_ctx *ctx, const struct io_calls *io, int fd,
                                       const struct transfer_request *request, int *connections);

#endif
