#include "support/save_trial.h"

#include "support/test_ctx.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CALLS = 1000 };

/* Notes what is there after a save with its n-th call going wrong; true when no call did, since there are fewer. */
static bool note(const struct save_trial *trial, struct save_outcome *outcome, int n, bool is_whole)
{
    int version = trial->check(trial->self);
    if (is_whole) {
        assert_int_equal(version, 2);
        outcome->n_calls = n - 1;
        return true;
    }
    outcome->n_old += version == 1;
    outcome->n_new += version == 2;
    if (trial->go_on)
        trial->go_on(trial->self, n);
    return false;
}

struct save_outcome save_trial_fail_each(const struct save_trial *trial)
{
    struct save_outcome outcome = {0};
    for (int n = 1; n < MOST_CALLS; n++) {
        struct faulty_calls faults = {.error = EIO};
        int n_new = outcome.n_new;
        trial->begin(trial->self);
        enum der_status status = trial->save(trial->self, &faults, n);
        if (note(trial, &outcome, n, !faults.failed_call))
            return outcome;
        /* A close that only read may fail unheard. */
        assert_true(status == DER_IO || outcome.n_new > n_new);
    }
    fail_msg("a save of more than %d calls", MOST_CALLS);
    return outcome;
}

struct save_outcome save_trial_kill_each(const struct save_trial *trial)
{
    struct save_outcome outcome = {0};
    for (int n = 1; n < MOST_CALLS; n++) {
        struct faulty_calls faults = {.kills = true};
        int status = 0;
        trial->begin(trial->self);
        pid_t child = fork();
        if (child == 0)
            _exit(trial->save(trial->self, &faults, n) == DER_OK ? 0 : 1);
        assert_true(child > 0 && waitpid(child, &status, 0) == child);
        if (WIFEXITED(status))
            assert_int_equal(WEXITSTATUS(status), 0);
        else
            assert_int_equal(WTERMSIG(status), SIGKILL);
        if (note(trial, &outcome, n, WIFEXITED(status)))
            return outcome;
    }
    fail_msg("a save of more than %d calls", MOST_CALLS);
    return outcome;
}

void save_trial_fill_disk(const struct save_trial *trial)
{
    for (int n = 1; n < MOST_CALLS; n++) {
        struct faulty_calls faults = {.error = ENOSPC, .is_full = true};
        trial->begin(trial->self);
        enum der_status status = trial->save(trial->self, &faults, n);
        assert_non_null(faults.failed_call); /* there is a write among the calls */
        if (strcmp(faults.failed_call, "write") != 0)
            continue;
        assert_int_equal(status, DER_IO);
        assert_int_equal(trial->check(trial->self), 1);
        return;
    }
    fail_msg("a save of more than %d calls", MOST_CALLS);
}
