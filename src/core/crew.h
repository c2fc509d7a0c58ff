/*
 * A crew: some threads that do a piece of work together and are gone when it is done.
 *
 * What they share, usually the number of the next item, is the work's own. The caller's thread is one of them: it
 * may talk to the outside, and where the system refuses threads it does the work alone.
 */
#ifndef CORE_CREW_H
#define CORE_CREW_H

#include "core/ctx.h"

/* Calls work(user, k) for k from 0 to n - 1, each in a thread of its own, 0 in the caller's, and waits for all. A
 * member that could not be started is left out, so none may be relied on but number 0. DER_NOMEM: no work is done. */
NODISCARD enum der_status crew_run(struct der_ctx *ctx, int n, void (*work)(void *user, int member),
                                   void *user);

#endif
