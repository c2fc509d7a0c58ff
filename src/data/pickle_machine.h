/*
 * The state of the machine that follows a pickle, shared by pickle.c (stack, containers, memo) and
 * pickle_numpy.c (names and the arrays they make). Private to those two.
 */
#ifndef DATA_PICKLE_MACHINE_H
#define DATA_PICKLE_MACHINE_H

#include "data/pickle.h"

/* A table of numbers that grows. */
struct numbers {
    uint32_t *at;
    size_t n, capacity;
};

struct machine {
    struct pickle *p;
    const char *name; /* of the file */
    const uint8_t *data;
    size_t size;
    size_t at;            /* next byte */
    struct numbers stack; /* of values */
    struct numbers marks; /* heights of the stack */
    struct numbers memo;  /* value + 1 */
    bool stopped;
};

/* "<file>: byte <n>: <what>", DER_FORMAT. */
enum der_status pickle_broken(struct machine *m, const char *what);

/* The stack; pop does not reach below the innermost open container. */
NODISCARD enum der_status pickle_push(struct machine *m, struct pickle_value value);
NODISCARD enum der_status pickle_pop(struct machine *m, uint32_t *value);
/* The value on top, not taken off. */
NODISCARD enum der_status pickle_peek(struct machine *m, uint32_t *value);

/* Is a string of the file this one? */
bool pickle_text_is(const uint8_t *text, size_t size, const char *wanted);

/* Opcodes of names and objects. The argument is not used. */
NODISCARD enum der_status pickle_op_name(struct machine *m, int unused);
NODISCARD enum der_status pickle_op_stack_name(struct machine *m, int unused);
NODISCARD enum der_status pickle_op_reduce(struct machine *m, int unused);
NODISCARD enum der_status pickle_op_build(struct machine *m, int unused);

#endif
