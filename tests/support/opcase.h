/*
 * One op, one set of operands: the unit that parity and gradient tests are made of.
 *
 * A case says how each operand is made; a runner compiles the single node on a back end, with every
 * operand external. Each operand lies in a buffer of its own, between words that must not change
 * (between rows too, where the matrix has a pitch); those words are NaNs, so that reading them
 * does not go unnoticed either.
 */
#ifndef SUPPORT_OPCASE_H
#define SUPPORT_OPCASE_H

#include "graph/backend.h"

enum { OPCASE_MAX_OPERANDS = 12, OPCASE_TEXT_MAX = 512 };

enum fill {
    FILL_ABSENT,  /* the operand is not there */
    FILL_NORMAL,  /* N(0, 1) */
    FILL_UNIFORM, /* U[low, high) */
    FILL_VALUE,   /* every element is low */
    FILL_LABELS,  /* i32, uniform in [low, high) */
    FILL_GIVEN,   /* copied from `given` */
    FILL_GIVEN_I32,
    FILL_RESULT, /* outputs: written by the op */
    FILL_RESULT_I32,
};

struct operand {
    enum fill fill;
    struct shape shape;
    double low, high;
    int64_t gap;       /* matrices: elements between the end of a row and the next one */
    const void *given; /* [count] for FILL_GIVEN */
};

struct op_case {
    enum op op;
    union op_attr attr;
    struct operand in[OPCASE_MAX_OPERANDS];
    int n_in;
    struct operand out[OPCASE_MAX_OPERANDS];
    int n_out;
    uint32_t stream; /* tells the random draws of cases apart */
};

/* ---- operands, in short -------------------------------------------------------------------- */

struct operand operand_normal(struct shape shape);
struct operand operand_uniform(struct shape shape, double low, double high);
struct operand operand_labels(int64_t n, int64_t low, int64_t high);
struct operand operand_scalar(double value);
struct operand operand_result(struct shape shape);
struct operand operand_result_i32(struct shape shape);
struct operand operand_with_gap(struct operand operand, int64_t gap);
struct operand operand_absent(void);

/* True when it holds integers. */
bool operand_is_int(const struct operand *operand);

/* What distinguishes an operand that is there only in some cases. */
struct operand operand_if(bool present, struct operand operand);

/* ---- data on the host ---------------------------------------------------------------------- */

/* Dense contents of the operands; NULL where absent. */
struct op_data {
    void *in[OPCASE_MAX_OPERANDS]; /* also what overwritten inputs became */
    void *out[OPCASE_MAX_OPERANDS];
};

/* Allocates and fills inputs; outputs receive NaNs. */
void op_data_init(struct op_data *data, const struct op_case *c);
void op_data_copy(struct op_data *data, const struct op_data *from, const struct op_case *c);
void op_data_fini(struct op_data *data);

/* "conv2d([1, 3, 5, 5], [4, 3, 3, 3], -) #7" */
const char *op_case_text(const struct op_case *c, char text[OPCASE_TEXT_MAX]);

/* ---- running ------------------------------------------------------------------------------- */

struct op_runner {
    const struct op_case *c; /* borrowed */
    struct backend *be;
    struct program *program;
    struct sequence *sequence;
    struct buffer *in[OPCASE_MAX_OPERANDS];
    struct buffer *out[OPCASE_MAX_OPERANDS];
    bool overwritten[OPCASE_MAX_OPERANDS];
};

/* Failures end the test with a message. */
void op_runner_init(struct op_runner *runner, struct backend *be, const struct op_case *c);
void op_runner_fini(struct op_runner *runner);

/* Runs once with data->in; replaces data->out and overwritten inputs; checks everything that must
 * not have changed. */
void op_runner_run(struct op_runner *runner, struct op_data *data);

/* All three at once. */
void op_case_run(struct backend *be, const struct op_case *c, struct op_data *data);

#endif
