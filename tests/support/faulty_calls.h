/*
 * System calls that go wrong on request: a table of the calls in io/io_calls.h whose n-th call
 * fails, whose writes and reads come up short, and which signals interrupt.
 */
#ifndef SUPPORT_FAULTY_CALLS_H
#define SUPPORT_FAULTY_CALLS_H

#include "io/io_calls.h"

struct faulty_calls {
    int fail_at;             /* number of the call that fails, from 1; 0: none */
    int error;               /* its errno */
    bool kills;              /* it does not fail: the process is killed before it (SIGKILL) */
    bool interrupts;         /* every other call is interrupted by a signal */
    size_t most;             /* bytes that one write or read moves; 0: any number */
    bool is_full;            /* after a write that failed, all others do: a full disk */
    int n_calls;             /* so far */
    const char *failed_call; /* name of the one that failed; NULL: none yet */
};

/* Good as long as `calls` is. */
struct io_calls faulty_calls(struct faulty_calls *calls);

#endif
