/*
 * What the writer and the reader of state files share: names.
 */
#ifndef STORE_STATE_TEXT_H
#define STORE_STATE_TEXT_H

#include "store/model_text.h"
#include "store/state_file.h"

#define STATE_REPRESENTATION "measured.representation"
#define STATE_REFERENCE "measured.reference"
#define STATE_BOUND_SUM "measured.bound_sum"
#define STATE_REFERENCE_OWN "measured.reference_own"
#define STATE_METRICS_LINES "metrics_lines"
#define STATE_TEST_CLASSES "tests.classes"
#define STATE_TEST_PARAMETERS "tests.parameters"
#define STATE_TEST_COUNTS "tests.counts"
#define STATE_LAMBDA_S "pressure.lambda_s"
#define STATE_START_PARAMS "pressure.start"
#define STATE_SIZE_ERROR "pressure.error"

const char *state_phase_name(enum run_phase phase);

#endif
