/*
 * Fuzz target: a state file is refused with a sentence, or its numbers are within their ranges and its modules
 * fill a parameter set or are refused too.
 */
#include "fuzz_file.h"
#include "store/state_file.h"

#include <math.h>

enum { ROWS = 2, COLS = 3 };

/* A set like the ones that the corpus has. */
static struct param_set *new_head(struct backend *be)
{
    struct param_set *head;
    int index;
    require(param_set_new(be->ctx, &head) == DER_OK);
    require(param_set_add(head, "classifier.weight", shape_2d(ROWS, COLS), PARAM_LEARNT, INIT_ZERO,
                          &index) == DER_OK);
    require(param_set_allocate(head, be) == DER_OK && param_set_thaw(head) == DER_OK);
    return head;
}

static void check_numbers(const struct run_state *state)
{
    const struct stage_point *point = &state->point;
    require(state->n_steps >= 1 && state->n_steps <= STATE_MAX_STEPS);
    require(state->step >= 0 && state->step <= state->n_steps);
    require((point->phase == PHASE_FINISHED) == (state->step == state->n_steps));
    require(point->epoch >= 0 && state->metrics_lines >= 0);
    require(state->metrics->n_steps <= state->step);
    volatile double last = state->reference[state->n_steps - 1] +
                           state->representation[state->n_steps * state->n_steps - 1];
    (void)last;
    double average = incremental_average(state->metrics, TOP1);
    require(isnan(average) || (average >= 0.0 && average <= 100.0));
    if (point->phase == PHASE_CLASSIFIER)
        require(point->newest.n_stages >= 1 && point->newest.n_stages <= RESNET_MAX_STAGES);
}

static void read_module(struct der_ctx *ctx, struct state_file *file)
{
    struct backend *be;
    require(backend_open(ctx, "ref", NULL, &be) == DER_OK);
    struct param_set *head = new_head(be);
    enum der_status status = state_restore(file, "head.", head, true);
    if (status == DER_OK)
        status = state_check_done(file);
    if (status != DER_OK)
        check_refusal(ctx, status);
    param_set_free(head);
    backend_close(be);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = input_ctx();
    struct state_file *file;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = input_calls(&input);
    enum der_status status = state_open(ctx, &io, "fuzz", &file);
    if (status == DER_OK) {
        check_numbers(&file->state);
        read_module(ctx, file);
    } else {
        check_refusal(ctx, status);
    }
    state_close(file);
    input_end(ctx, &input);
    return 0;
}
