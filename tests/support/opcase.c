#include "support/opcase.h"

#include "core/rng.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Odd distances, so that operands do not lie on the alignment that kernels would like. */
enum { WORDS_BEFORE = 7, WORDS_AFTER = 9 };

static const uint32_t SENTINEL = 0x7fc0deadU; /* a NaN that no computation produces */

enum { TEST_SEED = 20210331 };

/* ---- operands ------------------------------------------------------------------------------ */

struct operand operand_normal(struct shape shape)
{
    return (struct operand){.fill = FILL_NORMAL, .shape = shape};
}

struct operand operand_uniform(struct shape shape, double low, double high)
{
    return (struct operand){.fill = FILL_UNIFORM, .shape = shape, .low = low, .high = high};
}

struct operand operand_labels(int64_t n, int64_t low, int64_t high)
{
    return (struct operand){
        .fill = FILL_LABELS, .shape = shape_1d(n), .low = (double)low, .high = (double)high};
}

struct operand operand_scalar(double value)
{
    return (struct operand){.fill = FILL_VALUE, .shape = shape_1d(1), .low = value};
}

struct operand operand_result(struct shape shape)
{
    return (struct operand){.fill = FILL_RESULT, .shape = shape};
}

struct operand operand_result_i32(struct shape shape)
{
    return (struct operand){.fill = FILL_RESULT_I32, .shape = shape};
}

struct operand operand_with_gap(struct operand operand, int64_t gap)
{
    operand.gap = gap;
    return operand;
}

struct operand operand_absent(void)
{
    return (struct operand){.fill = FILL_ABSENT};
}

struct operand operand_if(bool present, struct operand operand)
{
    return present ? operand : operand_absent();
}

bool operand_is_int(const struct operand *operand)
{
    return operand->fill == FILL_LABELS || operand->fill == FILL_GIVEN_I32 ||
           operand->fill == FILL_RESULT_I32;
}

static enum dtype operand_dtype(const struct operand *operand)
{
    return operand_is_int(operand) ? DTYPE_I32 : DTYPE_F32;
}

/* ---- data on the host ---------------------------------------------------------------------- */

static void fill_labels(int32_t *dst, const struct operand *operand, uint32_t stream)
{
    for (int64_t i = 0; i < shape_count(operand->shape); i++) {
        const struct rng_block block = rng_at(TEST_SEED, RNG_TEST, stream, (uint64_t)i);
        const double unit = (double)rng_unit(block.word[0]);
        dst[i] = (int32_t)(operand->low + (double)(int64_t)(unit * (operand->high - operand->low)));
    }
}

static void *make_operand(const struct operand *operand, uint32_t stream)
{
    if (operand->fill == FILL_ABSENT)
        return NULL;
    const int64_t n = shape_count(operand->shape);
    float *data = malloc((size_t)n * sizeof *data);
    assert_non_null(data);
    switch (operand->fill) {
    case FILL_NORMAL:
        rng_normal(data, n, 1.0, TEST_SEED, RNG_TEST, stream);
        break;
    case FILL_UNIFORM:
        rng_uniform(data, n, operand->low, operand->high, TEST_SEED, RNG_TEST, stream);
        break;
    case FILL_VALUE:
        for (int64_t i = 0; i < n; i++)
            data[i] = (float)operand->low;
        break;
    case FILL_LABELS:
        fill_labels((int32_t *)(void *)data, operand, stream);
        break;
    case FILL_GIVEN:
    case FILL_GIVEN_I32:
        memcpy(data, operand->given, (size_t)n * sizeof *data);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(data + i, &SENTINEL, sizeof SENTINEL);
    }
    return data;
}

void op_data_init(struct op_data *data, const struct op_case *c)
{
    *data = (struct op_data){0};
    for (int i = 0; i < c->n_in; i++)
        data->in[i] = make_operand(&c->in[i], c->stream * OPCASE_MAX_OPERANDS + (uint32_t)i);
    for (int i = 0; i < c->n_out; i++)
        data->out[i] = make_operand(&c->out[i], 0);
}

static void *copy_operand(const struct operand *operand, const void *from)
{
    if (!from)
        return NULL;
    const size_t bytes = (size_t)shape_count(operand->shape) * sizeof(float);
    void *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, from, bytes);
    return copy;
}

void op_data_copy(struct op_data *data, const struct op_data *from, const struct op_case *c)
{
    *data = (struct op_data){0};
    for (int i = 0; i < c->n_in; i++)
        data->in[i] = copy_operand(&c->in[i], from->in[i]);
    for (int i = 0; i < c->n_out; i++)
        data->out[i] = copy_operand(&c->out[i], from->out[i]);
}

void op_data_fini(struct op_data *data)
{
    for (int i = 0; i < OPCASE_MAX_OPERANDS; i++) {
        free(data->in[i]);
        free(data->out[i]);
    }
    *data = (struct op_data){0};
}

static void append_operand(char *text, const struct operand *operand, const char *before)
{
    char shape[SHAPE_TEXT_MAX] = "-";
    if (operand->fill != FILL_ABSENT)
        (void)shape_text(operand->shape, shape);
    const size_t used = strlen(text);
    (void)snprintf(text + used, OPCASE_TEXT_MAX - used, "%s%s", before, shape);
}

const char *op_case_text(const struct op_case *c, char text[OPCASE_TEXT_MAX])
{
    (void)snprintf(text, OPCASE_TEXT_MAX, "%s(", op_name(c->op));
    for (int i = 0; i < c->n_in; i++)
        append_operand(text, &c->in[i], i ? ", " : "");
    for (int i = 0; i < c->n_out; i++)
        append_operand(text, &c->out[i], i ? ", " : ") -> ");
    const size_t used = strlen(text);
    (void)snprintf(text + used, OPCASE_TEXT_MAX - used, " #%u", (unsigned)c->stream);
    return text;
}

/* ---- operands on the device ---------------------------------------------------------------- */

/* How an operand lies in its buffer. */
struct placement {
    int64_t rows, length, pitch; /* words */
    int64_t words;               /* of the whole buffer */
};

static struct placement place(const struct operand *operand)
{
    const bool is_matrix = operand->shape.rank == 2;
    struct placement at = {
        .rows = is_matrix ? operand->shape.dim[0] : 1,
        .length = is_matrix ? operand->shape.dim[1] : shape_count(operand->shape),
    };
    at.pitch = at.length + operand->gap;
    at.words = WORDS_BEFORE + (at.rows - 1) * at.pitch + at.length + WORDS_AFTER;
    return at;
}

/* The buffer's content: sentinels, and the rows of `data` between them. Caller frees. */
static uint32_t *stage(const struct operand *operand, const void *data)
{
    const struct placement at = place(operand);
    uint32_t *words = malloc((size_t)at.words * sizeof *words);
    assert_non_null(words);
    for (int64_t i = 0; i < at.words; i++)
        words[i] = SENTINEL;
    for (int64_t row = 0; row < at.rows; row++)
        memcpy(words + WORDS_BEFORE + row * at.pitch, (const uint32_t *)data + row * at.length,
               (size_t)at.length * sizeof *words);
    return words;
}

static void upload(struct buffer *buffer, const struct operand *operand, const void *data)
{
    if (!buffer)
        return;
    uint32_t *words = stage(operand, data);
    assert_ok(buffer->be->ctx, buffer_write(buffer, 0, words, buffer->bytes));
    free(words);
}

/* Reads an operand back into `data`; with may_change false its own words must be as they were. */
static void download(const struct buffer *buffer, const struct op_case *c,
                     const struct operand *operand, void *data, bool may_change)
{
    if (!buffer)
        return;
    const struct placement at = place(operand);
    uint32_t *before = stage(operand, data);
    uint32_t *after = malloc((size_t)at.words * sizeof *after);
    assert_non_null(after);
    assert_ok(buffer->be->ctx, buffer_read(buffer, 0, after, buffer->bytes));
    for (int64_t i = 0; i < at.words; i++) {
        const int64_t from_start = i - WORDS_BEFORE;
        const bool is_data =
            from_start >= 0 && i < at.words - WORDS_AFTER && from_start % at.pitch < at.length;
        if (after[i] != before[i] && !(is_data && may_change)) {
            char text[OPCASE_TEXT_MAX];
            char shape[SHAPE_TEXT_MAX];
            print_error("%s on %s: %s was changed, near word %d of operand %s\n",
                        op_case_text(c, text), buffer->be->ops->name,
                        is_data ? "an input" : "memory outside the operands", (int)from_start,
                        shape_text(operand->shape, shape));
            fail();
        }
    }
    for (int64_t row = 0; row < at.rows; row++)
        memcpy((uint32_t *)data + row * at.length, after + WORDS_BEFORE + row * at.pitch,
               (size_t)at.length * sizeof *after);
    free(before);
    free(after);
}

/* ---- the runner ---------------------------------------------------------------------------- */

static int add_operand(struct graph *g, const struct operand *operand, const char *kind, int index)
{
    if (operand->fill == FILL_ABSENT)
        return NO_VALUE;
    char name[32];
    (void)snprintf(name, sizeof name, "%s %d", kind, index);
    int value;
    assert_ok(g->ctx, graph_add_value(g, name, operand_dtype(operand), operand->shape,
                                      VALUE_EXTERNAL, &value));
    return value;
}

static struct buffer *bind_operand(struct op_runner *runner, const struct operand *operand,
                                   int value)
{
    if (value == NO_VALUE)
        return NULL;
    struct der_ctx *ctx = runner->be->ctx;
    const struct placement at = place(operand);
    struct buffer *buffer;
    assert_ok(ctx, buffer_new(runner->be, (size_t)at.words * sizeof(float), &buffer));
    const struct span span = {
        .buffer = buffer,
        .offset = WORDS_BEFORE * sizeof(float),
        .pitch = operand->gap > 0 ? at.pitch : 0,
    };
    assert_ok(ctx, program_bind(runner->program, value, span));
    return buffer;
}

void op_runner_init(struct op_runner *runner, struct backend *be, const struct op_case *c)
{
    *runner = (struct op_runner){.c = c, .be = be};
    struct graph *g;
    assert_ok(be->ctx, graph_new(be->ctx, &g));
    int in[OPCASE_MAX_OPERANDS];
    int out[OPCASE_MAX_OPERANDS];
    for (int i = 0; i < c->n_in; i++)
        in[i] = add_operand(g, &c->in[i], "in", i);
    for (int i = 0; i < c->n_out; i++)
        out[i] = add_operand(g, &c->out[i], "out", i);
    assert_ok(be->ctx, graph_add_node(g, c->op, in, c->n_in, out, c->n_out, &c->attr));
    for (int i = 0; i < c->n_in; i++)
        runner->overwritten[i] = node_overwrites_input(&g->nodes[0], i);
    assert_ok(be->ctx, program_compile(be, g, &runner->program));
    graph_free(g);

    for (int i = 0; i < c->n_in; i++)
        runner->in[i] = bind_operand(runner, &c->in[i], in[i]);
    for (int i = 0; i < c->n_out; i++)
        runner->out[i] = bind_operand(runner, &c->out[i], out[i]);
    const struct sequence_item item = {.program = runner->program};
    assert_ok(be->ctx, sequence_new(be, &item, 1, &runner->sequence));
}

void op_runner_fini(struct op_runner *runner)
{
    sequence_free(runner->sequence);
    program_free(runner->program);
    for (int i = 0; i < OPCASE_MAX_OPERANDS; i++) {
        buffer_free(runner->in[i]);
        buffer_free(runner->out[i]);
    }
}

void op_runner_run(struct op_runner *runner, struct op_data *data)
{
    const struct op_case *c = runner->c;
    for (int i = 0; i < c->n_in; i++)
        upload(runner->in[i], &c->in[i], data->in[i]);
    for (int i = 0; i < c->n_out; i++)
        upload(runner->out[i], &c->out[i], data->out[i]);
    assert_ok(runner->be->ctx, sequence_run(runner->sequence));
    for (int i = 0; i < c->n_in; i++)
        download(runner->in[i], c, &c->in[i], data->in[i], runner->overwritten[i]);
    for (int i = 0; i < c->n_out; i++)
        download(runner->out[i], c, &c->out[i], data->out[i], true);
}

void op_case_run(struct backend *be, const struct op_case *c, struct op_data *data)
{
    struct op_runner runner;
    op_runner_init(&runner, be, c);
    op_runner_run(&runner, data);
    op_runner_fini(&runner);
}
