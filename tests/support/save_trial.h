/*
 * A save of several files that must be all or nothing, tried with every one of its system calls going wrong.
 *
 * The trial has a first version saved, and saves a second one over it with the n-th call failing, or with the
 * process killed before it. Whatever happens, one version must be there as a whole.
 */
#ifndef SUPPORT_SAVE_TRIAL_H
#define SUPPORT_SAVE_TRIAL_H

#include <der/status.h>
#include "support/faulty_calls.h"

struct save_trial {
    void *self;
    /* Leaves nothing but version 1. */
    void (*begin)(void *self);
    /* Saves version 2 through the calls, of which the n-th goes wrong. */
    enum der_status (*save)(void *self, struct faulty_calls *faults, int n);
    /* Asserts that one version is whole; returns which. */
    int (*check)(void *self);
    /* After a save that went wrong and was checked: what must still work; NULL: nothing. */
    void (*go_on)(void *self, int n);
};

struct save_outcome {
    int n_calls;      /* of a save that goes well */
    int n_old, n_new; /* version found after those that did not */
};

/* The process lives on and may clean up behind a call that fails. */
struct save_outcome save_trial_fail_each(const struct save_trial *trial);
/* The process is gone before its n-th call: nothing is cleaned up behind it. */
struct save_outcome save_trial_kill_each(const struct save_trial *trial);

/* Asserts that a disk which is full from some write on leaves version 1. */
void save_trial_fill_disk(const struct save_trial *trial);

#endif
