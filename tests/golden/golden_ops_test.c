/*
 * Every op against PyTorch, on every back end.
 *
 * The cases are written in tools/golden/ops.py; the file carries each as a line such as
 *     conv2d stride=2 pad=1: src weights -> dst; conv2d_d_src stride=2 pad=1: d_dst weights -> d_src
 * which is turned into exactly these nodes. Every operand is external, so that the ops meet dense
 * memory; the layouts inside a network are the business of golden_net_test.c.
 */
#include "support/test_backend.h"
#include "support/golden_file.h"
#include "support/golden_run.h"
#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX_CHARS = 256, MAX_OPERANDS = 24, MAX_LAYERS = 8 };

/* Stored values carry a relative rounding error of 2^-25 (NMSE 1e-15) and short float sums a little
 * more (1e-14); Winograd convolutions have been seen at 2e-12. A wrong formula is off by 1e-6 at
 * the very least. */
#define OP_NMSE 1e-11
/* The hat gradient multiplies 1 - y, y rounded to float: the last bit of y near 0.99 is a relative
 * 6e-6 of it. */
#define HAT_NMSE 1e-9

/* ---- attributes --------------------------------------------------------------------------- */

enum group { CONV, NORM, POOL, COLUMNS, LOSS, MASK, SPARSITY, SGD, EPS, PLAIN };
enum kind { KIND_INT, KIND_INT64, KIND_FLOAT, KIND_DOUBLE, KIND_BOOL, KIND_LAYERS };

struct field {
    enum group group;
    const char *key;
    enum kind kind;
    size_t offset;
};

static const struct field FIELDS[] = {
    {CONV, "stride", KIND_INT, offsetof(union op_attr, conv.stride)},
    {CONV, "pad", KIND_INT, offsetof(union op_attr, conv.pad)},
    {CONV, "eps", KIND_FLOAT, offsetof(union op_attr, conv.eps)},
    {CONV, "relu", KIND_BOOL, offsetof(union op_attr, conv.relu)},
    {NORM, "eps", KIND_FLOAT, offsetof(union op_attr, norm.eps)},
    {NORM, "momentum", KIND_FLOAT, offsetof(union op_attr, norm.momentum)},
    {NORM, "training", KIND_BOOL, offsetof(union op_attr, norm.training)},
    {NORM, "relu", KIND_BOOL, offsetof(union op_attr, norm.relu)},
    {POOL, "kernel", KIND_INT, offsetof(union op_attr, pool.kernel)},
    {POOL, "stride", KIND_INT, offsetof(union op_attr, pool.stride)},
    {POOL, "pad", KIND_INT, offsetof(union op_attr, pool.pad)},
    {COLUMNS, "first", KIND_INT64, offsetof(union op_attr, columns.first)},
    {COLUMNS, "count", KIND_INT64, offsetof(union op_attr, columns.count)},
    {LOSS, "first", KIND_INT64, offsetof(union op_attr, loss.first)},
    {LOSS, "count", KIND_INT64, offsetof(union op_attr, loss.count)},
    {LOSS, "teacher_first", KIND_INT64, offsetof(union op_attr, loss.teacher_first)},
    {LOSS, "label_shift", KIND_INT64, offsetof(union op_attr, loss.label_shift)},
    {LOSS, "clamp_low", KIND_BOOL, offsetof(union op_attr, loss.clamp_low)},
    {LOSS, "temperature", KIND_FLOAT, offsetof(union op_attr, loss.temperature)},
    {LOSS, "n_old", KIND_INT64, offsetof(union op_attr, loss.n_old)},
    {LOSS, "top_k", KIND_INT, offsetof(union op_attr, loss.top_k)},
    {LOSS, "margin", KIND_FLOAT, offsetof(union op_attr, loss.margin)},
    {MASK, "gradient", KIND_INT, offsetof(union op_attr, mask.gradient)},
    {MASK, "s_max", KIND_FLOAT, offsetof(union op_attr, mask.s_max)},
    {SPARSITY, "layers", KIND_LAYERS, 0},
    {SPARSITY, "total", KIND_DOUBLE, offsetof(union op_attr, sparsity.total)},
    {SGD, "momentum", KIND_FLOAT, offsetof(union op_attr, sgd.momentum)},
    {SGD, "decay", KIND_FLOAT, offsetof(union op_attr, sgd.decay)},
    {SGD, "gain", KIND_FLOAT, offsetof(union op_attr, sgd.gain)},
    {SGD, "low", KIND_FLOAT, offsetof(union op_attr, sgd.low)},
    {SGD, "high", KIND_FLOAT, offsetof(union op_attr, sgd.high)},
    {EPS, "eps", KIND_FLOAT, offsetof(union op_attr, eps)},
};

static enum group group_of(enum op op)
{
    switch (op) {
    case OP_CONV2D:
    case OP_CONV2D_D_SRC:
    case OP_CONV2D_D_WEIGHTS:
    case OP_CONV2D_AFFINE:
        return CONV;
    case OP_BATCHNORM:
    case OP_BATCHNORM_GRAD:
        return NORM;
    case OP_MAXPOOL:
    case OP_MAXPOOL_GRAD:
        return POOL;
    case OP_LINEAR_D_SRC:
        return COLUMNS;
    case OP_SOFTMAX_XENT:
    case OP_DISTILL:
    case OP_BCE:
    case OP_COSINE_LOSS:
    case OP_MARGIN_LOSS:
    case OP_RANK:
        return LOSS;
    case OP_MASK_GATE:
    case OP_MASK_GATE_GRAD:
        return MASK;
    case OP_MASK_SPARSITY:
        return SPARSITY;
    case OP_SGD:
        return SGD;
    case OP_L2NORM:
    case OP_L2NORM_GRAD:
        return EPS;
    default:
        return PLAIN;
    }
}

/* "-1:0:49:3|0:2:9:0": in_mask, out_mask, kernel_area, in_channels of every layer. */
static void parse_layers(struct graph *g, const char *text, struct sparsity_attr *attr)
{
    struct sparsity_layer *layers = arena_zalloc(&g->arena, MAX_LAYERS, sizeof *layers);
    assert_non_null(layers);
    int n = 0;
    for (; text; text = strchr(text, '|')) {
        text += *text == '|';
        struct sparsity_layer *layer = &layers[n++];
        assert_true(n <= MAX_LAYERS);
        assert_int_equal(sscanf(text, "%d:%d:%d:%d", &layer->in_mask, &layer->out_mask,
                                &layer->kernel_area, &layer->in_channels),
                         4);
    }
    attr->layers = layers;
    attr->n_layers = n;
}

static void set_field(struct graph *g, const struct field *field, const char *text,
                      union op_attr *attr)
{
    char *place = (char *)attr + field->offset;
    switch (field->kind) {
    case KIND_INT:
        memcpy(place, &(int){(int)strtol(text, NULL, 10)}, sizeof(int));
        break;
    case KIND_INT64:
        memcpy(place, &(int64_t){strtoll(text, NULL, 10)}, sizeof(int64_t));
        break;
    case KIND_FLOAT:
        memcpy(place, &(float){strtof(text, NULL)}, sizeof(float));
        break;
    case KIND_DOUBLE:
        memcpy(place, &(double){strtod(text, NULL)}, sizeof(double));
        break;
    case KIND_BOOL:
        memcpy(place, &(bool){text[0] == '1'}, sizeof(bool));
        break;
    case KIND_LAYERS:
        parse_layers(g, text, &attr->sparsity);
        break;
    }
}

/* "key=value" into the attributes of an op. */
static void parse_attr(struct graph *g, enum op op, const char *word, union op_attr *attr)
{
    const char *equals = strchr(word, '=');
    assert_non_null(equals);
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        const struct field *field = &FIELDS[i];
        if (field->group == group_of(op) && strlen(field->key) == (size_t)(equals - word) &&
            strncmp(field->key, word, strlen(field->key)) == 0) {
            set_field(g, field, equals + 1, attr);
            return;
        }
    }
    fail_msg("%s has no attribute '%s'", op_name(op), word);
}

/* ---- cases ---------------------------------------------------------------------------------- */

struct op_graph {
    const struct golden_file *file;
    const char *name; /* of the case */
    struct graph *g;
    bool *written; /* [capacity] by value: some node writes it */
    bool *after;   /* [capacity] by value: an input that a node overwrites */
};

/* Copies the next word to `word`; returns what follows, NULL at the end. ':' and ';' stand alone. */
static const char *next_word(const char *text, char word[WORD_MAX_CHARS])
{
    text += strspn(text, " ");
    if (!*text)
        return NULL;
    size_t length = strcspn(text, " ;");
    /* Only the colon that ends an op's attributes is followed by a space. */
    if (length > 1 && text[length - 1] == ':')
        length--;
    length += length == 0;
    assert_true(length < WORD_MAX_CHARS);
    memcpy(word, text, length);
    word[length] = '\0';
    return text + length;
}

static const struct golden_tensor *tensor_of(const struct op_graph *og, const char *operand,
                                             const char *suffix)
{
    char name[2 * WORD_MAX_CHARS];
    (void)snprintf(name, sizeof name, "%s/%s%s", og->name, operand, suffix);
    return golden_get(og->file, name);
}

/* The value of an operand, declared when it is first met. */
static int operand_value(struct op_graph *og, const char *operand)
{
    if (strcmp(operand, "-") == 0)
        return NO_VALUE;
    for (int i = 0; i < og->g->n_values; i++)
        if (strcmp(og->g->values[i].name, operand) == 0)
            return i;
    const struct golden_tensor *tensor = tensor_of(og, operand, "");
    int value;
    assert_ok(og->g->ctx, graph_input(og->g, operand, tensor->dtype, tensor->shape, &value));
    assert_true(value < MAX_OPERANDS);
    return value;
}

static enum op op_of(const char *name)
{
    for (int op = 0; op < OP_COUNT; op++)
        if (strcmp(op_name((enum op)op), name) == 0)
            return (enum op)op;
    fail_msg("there is no op '%s'", name);
    return OP_COUNT;
}

/* Appends the node that starts at `text`; returns what follows it. */
static const char *add_node(struct op_graph *og, const char *text)
{
    char word[WORD_MAX_CHARS];
    text = next_word(text, word);
    enum op op = op_of(word);
    union op_attr attr;
    memset(&attr, 0, sizeof attr);
    for (text = next_word(text, word); text && strcmp(word, ":") != 0; text = next_word(text, word))
        parse_attr(og->g, op, word, &attr);
    int operands[2][MAX_OPERANDS];
    int n[2] = {0, 0};
    int side = 0;
    while (text && (text = next_word(text, word)) && strcmp(word, ";") != 0) {
        if (strcmp(word, "->") == 0) {
            side = 1;
            continue;
        }
        assert_true(n[side] < MAX_OPERANDS);
        operands[side][n[side]++] = operand_value(og, word);
    }
    struct node node = {.op = op, .n_in = n[0], .in = operands[0], .attr = attr};
    for (int i = 0; i < n[0]; i++)
        if (operands[0][i] != NO_VALUE && node_overwrites_input(&node, i))
            og->after[operands[0][i]] = true;
    for (int i = 0; i < n[1]; i++)
        if (operands[1][i] != NO_VALUE)
            og->written[operands[1][i]] = true;
    assert_ok(og->g->ctx, graph_add_node(og->g, op, operands[0], n[0], operands[1], n[1], &attr));
    return text;
}

static void check_results(const struct op_graph *og, const struct golden_run *run)
{
    char what[2 * WORD_MAX_CHARS];
    bool hat = strncmp(og->name, "mask_gate_hat", strlen("mask_gate_hat")) == 0;
    (void)snprintf(what, sizeof what, "back end %s", run->program->be->ops->name);
    for (int i = 0; i < og->g->n_values; i++) {
        const struct golden_tensor *want = tensor_of(og, og->g->values[i].name, "");
        if (og->after[i])
            want = tensor_of(og, og->g->values[i].name, ".after");
        void *got = golden_run_read(run, i);
        /* What no node writes must come back as it went in. */
        if (!og->written[i] && !og->after[i])
            assert_memory_equal(got, want->data, (size_t)shape_count(want->shape) * sizeof(float));
        else
            golden_compare(what, got, want, hat ? HAT_NMSE : OP_NMSE);
        free(got);
    }
}

static void run_case(const struct golden_file *file, const char *name, const char *text,
                     const struct backend_ops *ops)
{
    bool written[MAX_OPERANDS] = {false};
    bool after[MAX_OPERANDS] = {false};
    struct golden_rig rig;
    struct op_graph og = {.file = file, .name = name, .written = written, .after = after};
    golden_rig_init(&rig, ops);
    assert_ok(rig.ctx, graph_new(rig.ctx, &og.g));
    while (text)
        text = add_node(&og, text);
    struct golden_run run;
    golden_run_init(&run, &rig, og.g);
    for (int i = 0; i < og.g->n_values; i++)
        if (!written[i])
            golden_run_write(&run, i, tensor_of(&og, og.g->values[i].name, "")->data);
    golden_run_once(&run);
    check_results(&og, &run);
    golden_run_fini(&run);
    graph_free(og.g);
    golden_rig_fini(&rig);
}

/* The cases whose names start with *state, on all back ends. */
static void test_cases(void **state)
{
    const char *family = *state;
    struct golden_file *file = golden_open("ops");
    int n = 0;
    for (int i = 0; i < file->n_notes; i++) {
        static const char prefix[] = "case ";
        const char *name = file->notes[i].key + strlen(prefix);
        if (strncmp(file->notes[i].key, prefix, strlen(prefix)) != 0 ||
            strncmp(name, family, strlen(family)) != 0)
            continue;
        n++;
        for (const struct backend_ops *const *ops = test_backends(); *ops; ops++)
            run_case(file, name, file->notes[i].text, *ops);
    }
    assert_int_not_equal(n, 0);
    golden_close(file);
}

/* A new op without golden values is noticed here. JOIN computes nothing; golden_der_test.c has it. FEED is held
 * against data/augment.c, whose values are Pillow's and torchvision's (feeder_test.c); TALLY copies. */
static void test_every_op_has_a_case(void **state)
{
    (void)state;
    struct golden_file *file = golden_open("ops");
    for (int op = 0; op < OP_COUNT; op++) {
        char start[WORD_MAX_CHARS];
        (void)snprintf(start, sizeof start, "%s", op_name((enum op)op));
        bool found = op == OP_JOIN || op == OP_FEED || op == OP_TALLY;
        for (int i = 0; i < file->n_notes && !found; i++) {
            const char *at = file->notes[i].text;
            while (!found && (at = strstr(at, start))) {
                at += strlen(start);
                found = *at == ':' || *at == ' ';
            }
        }
        if (!found)
            fail_msg("no golden values for %s", start);
    }
    golden_close(file);
}

#define FAMILY(label, prefix)                                                                      \
    {                                                                                              \
        label, test_cases, NULL, NULL, (void *)(uintptr_t)(prefix)                                 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_a_case),
        FAMILY("convolution agrees with PyTorch", "conv2d_"),
        FAMILY("batch norm agrees with PyTorch", "batchnorm_"),
        FAMILY("relu agrees with PyTorch", "relu"),
        FAMILY("add agrees with PyTorch", "add"),
        FAMILY("scale agrees with PyTorch", "scale"),
        FAMILY("max-pool agrees with PyTorch", "maxpool_"),
        FAMILY("average pool agrees with PyTorch", "avgpool"),
        FAMILY("linear agrees with PyTorch", "linear_"),
        FAMILY("row normalisation agrees with PyTorch", "l2norm"),
        FAMILY("cross-entropy agrees with PyTorch", "softmax_xent_"),
        FAMILY("distillation agrees with PyTorch", "distill"),
        FAMILY("sigmoid cross-entropy agrees with PyTorch", "bce_"),
        FAMILY("cosine loss agrees with PyTorch", "cosine_loss"),
        FAMILY("margin loss agrees with PyTorch", "margin_loss"),
        FAMILY("rank agrees with PyTorch", "rank"),
        FAMILY("masks agree with PyTorch", "mask_gate_"),
        FAMILY("sparsity loss agrees with PyTorch", "mask_sparsity"),
        FAMILY("SGD agrees with PyTorch", "sgd_"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
