/*
 * From the name of a table to the list of its runs.
 */
#ifndef EXPERIMENT_REPRODUCE_PLAN_H
#define EXPERIMENT_REPRODUCE_PLAN_H

#include "experiment/reproduce.h"

/* Fills table, rows and items, all but their outcomes. */
NODISCARD enum der_status reproduce_plan(struct reproduction *reproduction);

#endif
