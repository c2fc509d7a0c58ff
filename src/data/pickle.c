/*
 * The stack machine behind pickle.h, with the opcodes of Python's pickletools.py.
 *
 * Values never move between tables and are never copied, so a memo entry is a number. Memory is
 * bounded by fixed counts and by the size of the file; nothing here recurses.
 */
#include "data/pickle_machine.h"

#include <string.h>

enum {
    VALUES_MAX = 1 << 21, /* CIFAR-100 has 150,000 */
    ITEMS_MAX = 1 << 22,
    STACK_MAX = 1 << 20,
    MARKS_MAX = 64, /* open containers; the files have 3 */
    TABLE_START = 256,
    NOT_IN_MEMO = 0, /* memo entries are value numbers plus one */
};

enum der_status pickle_broken(struct machine *m, const char *what)
{
    return ctx_fail(m->p->ctx, DER_FORMAT, "%s: byte %zu: %s", m->name, m->at, what);
}

/* Makes room for one more element of a table; *table has `capacity` elements of `size` bytes. */
static enum der_status grow(struct machine *m, void **table, size_t *capacity, size_t n,
                            size_t size, size_t most)
{
    if (n >= most)
        return pickle_broken(m, "the pickle is larger or deeper than any CIFAR file");
    if (n < *capacity)
        return DER_OK;
    size_t wanted = *capacity > 0 ? *capacity * 2 : TABLE_START;
    void *larger = mem_realloc(&m->p->ctx->mem, *table, wanted, size);
    if (!larger)
        return ctx_nomem(m->p->ctx);
    *table = larger;
    *capacity = wanted;
    return DER_OK;
}

static enum der_status put_number(struct machine *m, struct numbers *table, size_t number,
                                  size_t most)
{
    void *at = table->at;
    TRY(grow(m, &at, &table->capacity, table->n, sizeof *table->at, most));
    table->at = at;
    table->at[table->n++] = (uint32_t)number;
    return DER_OK;
}

static enum der_status push(struct machine *m, uint32_t value)
{
    return put_number(m, &m->stack, value, STACK_MAX);
}

enum der_status pickle_push(struct machine *m, struct pickle_value value)
{
    struct pickle *p = m->p;
    void *at = p->values;
    TRY(grow(m, &at, &p->values_capacity, p->n_values, sizeof *p->values, VALUES_MAX));
    p->values = at;
    p->values[p->n_values] = value;
    return push(m, (uint32_t)p->n_values++);
}

/* Height below which the innermost open container does not reach. */
static size_t floor_of(const struct machine *m)
{
    return m->marks.n > 0 ? m->marks.at[m->marks.n - 1] : 0;
}

enum der_status pickle_peek(struct machine *m, uint32_t *value)
{
    if (m->stack.n <= floor_of(m))
        return pickle_broken(m, "an opcode finds no value on the stack");
    *value = m->stack.at[m->stack.n - 1];
    return DER_OK;
}

enum der_status pickle_pop(struct machine *m, uint32_t *value)
{
    TRY(pickle_peek(m, value));
    m->stack.n--;
    return DER_OK;
}

static enum der_status pop_mark(struct machine *m, size_t *height)
{
    if (m->marks.n == 0)
        return pickle_broken(m, "a container ends that was never begun");
    *height = m->marks.at[--m->marks.n];
    return DER_OK;
}

static enum der_status top(struct machine *m, enum pickle_type type, uint32_t *value)
{
    if (m->stack.n <= floor_of(m) || m->p->values[m->stack.at[m->stack.n - 1]].type != type)
        return pickle_broken(m, "an opcode does not find the container it adds to");
    *value = m->stack.at[m->stack.n - 1];
    return DER_OK;
}

static enum der_status take(struct machine *m, uint64_t n, const uint8_t **bytes)
{
    if (n > m->size - m->at)
        return pickle_broken(m, "the file ends within a value");
    *bytes = m->data + m->at;
    m->at += (size_t)n;
    return DER_OK;
}

static enum der_status take_number(struct machine *m, int width, uint64_t *number)
{
    const uint8_t *bytes = NULL;
    TRY(take(m, (uint64_t)width, &bytes));
    *number = 0;
    for (int i = width - 1; i >= 0; i--)
        *number = *number << 8 | bytes[i];
    return DER_OK;
}

/* ---- containers ------------------------------------------------------------------------------ */

static enum der_status add_item(struct machine *m, uint32_t container, uint32_t value)
{
    struct pickle *p = m->p;
    if (p->n_items == 0)
        p->n_items = 1; /* number 0 means none */
    void *at = p->items;
    TRY(grow(m, &at, &p->items_capacity, p->n_items, sizeof *p->items, ITEMS_MAX));
    p->items = at;
    uint32_t item = (uint32_t)p->n_items++;
    p->items[item] = (struct pickle_item){.value = value};
    struct pickle_value *c = &p->values[container];
    if (c->n_items == 0)
        c->first = item;
    else
        p->items[c->last].next = item;
    c->last = item;
    c->n_items++;
    return DER_OK;
}

/* Moves the values from `height` up to the end of a container. */
static enum der_status add_from(struct machine *m, uint32_t container, size_t height)
{
    for (size_t i = height; i < m->stack.n; i++)
        TRY(add_item(m, container, m->stack.at[i]));
    m->stack.n = height;
    return DER_OK;
}

/* The values above `height` become one tuple, which takes their place. */
static enum der_status make_tuple(struct machine *m, size_t height)
{
    size_t n = m->stack.n;
    TRY(pickle_push(m, (struct pickle_value){.type = PICKLE_TUPLE}));
    uint32_t tuple = m->stack.at[n];
    m->stack.n = n;
    TRY(add_from(m, tuple, height));
    return push(m, tuple);
}

static enum der_status op_empty(struct machine *m, int type)
{
    return pickle_push(m, (struct pickle_value){.type = (enum pickle_type)type});
}

static enum der_status op_mark(struct machine *m, int unused)
{
    (void)unused;
    return put_number(m, &m->marks, m->stack.n, MARKS_MAX);
}

static enum der_status op_tuple(struct machine *m, int unused)
{
    (void)unused;
    size_t height = 0;
    TRY(pop_mark(m, &height));
    return make_tuple(m, height);
}

static enum der_status op_tuple_of(struct machine *m, int n)
{
    if (m->stack.n < floor_of(m) + (size_t)n)
        return pickle_broken(m, "a tuple finds too few values on the stack");
    return make_tuple(m, m->stack.n - (size_t)n);
}

static enum der_status op_append(struct machine *m, int unused)
{
    (void)unused;
    uint32_t value = 0;
    uint32_t list = 0;
    TRY(pickle_pop(m, &value));
    TRY(top(m, PICKLE_LIST, &list));
    return add_item(m, list, value);
}

/* The opcode finds its container below the mark. */
static enum der_status add_above_mark(struct machine *m, enum pickle_type type)
{
    size_t height = 0;
    TRY(pop_mark(m, &height));
    size_t n = m->stack.n;
    uint32_t container = 0;
    m->stack.n = height;
    TRY(top(m, type, &container));
    if (type == PICKLE_DICT && (n - height) % 2 != 0)
        return pickle_broken(m, "a dictionary key has no value");
    m->stack.n = n;
    return add_from(m, container, height);
}

static enum der_status op_appends(struct machine *m, int type)
{
    return add_above_mark(m, (enum pickle_type)type);
}

static enum der_status op_set_item(struct machine *m, int unused)
{
    (void)unused;
    uint32_t value = 0;
    uint32_t key = 0;
    uint32_t dict = 0;
    TRY(pickle_pop(m, &value));
    TRY(pickle_pop(m, &key));
    TRY(top(m, PICKLE_DICT, &dict));
    TRY(add_item(m, dict, key));
    return add_item(m, dict, value);
}

/* ---- plain values ---------------------------------------------------------------------------- */

static enum der_status push_int(struct machine *m, int64_t integer)
{
    return pickle_push(m, (struct pickle_value){.type = PICKLE_INT, .integer = integer});
}

static enum der_status op_constant(struct machine *m, int integer)
{
    return push_int(m, integer);
}

static enum der_status op_unsigned(struct machine *m, int width)
{
    uint64_t number = 0;
    TRY(take_number(m, width, &number));
    return push_int(m, (int64_t)number);
}

static enum der_status op_signed(struct machine *m, int width)
{
    uint64_t number = 0;
    TRY(take_number(m, width, &number));
    uint64_t sign = (uint64_t)1 << (8 * width - 1);
    return push_int(m, (int64_t)((number ^ sign) - sign));
}

static enum der_status op_long(struct machine *m, int unused)
{
    (void)unused;
    uint64_t width = 0;
    TRY(take_number(m, 1, &width));
    if (width > 8)
        return pickle_broken(m, "a number has more than 64 bits");
    return width == 0 ? push_int(m, 0) : op_signed(m, (int)width);
}

static enum der_status op_string(struct machine *m, int width)
{
    uint64_t size = 0;
    const uint8_t *text = NULL;
    TRY(take_number(m, width, &size));
    TRY(take(m, size, &text));
    return pickle_push(
        m, (struct pickle_value){.type = PICKLE_STRING, .text = text, .size = (size_t)size});
}

/* ---- memo ------------------------------------------------------------------------------------ */

static enum der_status memo_put(struct machine *m, uint64_t index)
{
    uint32_t value = 0;
    TRY(pickle_peek(m, &value));
    if (index >= VALUES_MAX)
        return pickle_broken(m, "a memo number is larger than in any CIFAR file");
    while (m->memo.n <= index)
        TRY(put_number(m, &m->memo, NOT_IN_MEMO, VALUES_MAX));
    m->memo.at[index] = value + 1;
    return DER_OK;
}

static enum der_status op_put(struct machine *m, int width)
{
    uint64_t index = 0;
    TRY(take_number(m, width, &index));
    return memo_put(m, index);
}

static enum der_status op_memoize(struct machine *m, int unused)
{
    (void)unused;
    return memo_put(m, m->memo.n);
}

static enum der_status op_get(struct machine *m, int width)
{
    uint64_t index = 0;
    TRY(take_number(m, width, &index));
    if (index >= m->memo.n || m->memo.at[index] == NOT_IN_MEMO)
        return pickle_broken(m, "a memo number was never given");
    return push(m, m->memo.at[index] - 1);
}

bool pickle_text_is(const uint8_t *text, size_t size, const char *wanted)
{
    return size == strlen(wanted) && memcmp(text, wanted, size) == 0;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static enum der_status op_frame(struct machine *m, int width)
{
    uint64_t size = 0; /* only says how much to read at once */
    return take_number(m, width, &size);
}

static enum der_status op_stop(struct machine *m, int unused)
{
    (void)unused;
    m->stopped = true;
    TRY(pickle_pop(m, &m->p->root));
    return m->stack.n == 0 && m->marks.n == 0
               ? DER_OK
               : pickle_broken(m, "the pickle ends with loose values");
}

static const struct {
    enum der_status (*run)(struct machine *m, int argument);
    int argument;
} opcodes[256] = {
    ['('] = {op_mark, 0},
    ['.'] = {op_stop, 0},
    [')'] = {op_empty, PICKLE_TUPLE},
    [']'] = {op_empty, PICKLE_LIST},
    ['}'] = {op_empty, PICKLE_DICT},
    ['N'] = {op_empty, PICKLE_NONE},
    ['t'] = {op_tuple, 0},
    [0x85] = {op_tuple_of, 1},
    [0x86] = {op_tuple_of, 2},
    [0x87] = {op_tuple_of, 3},
    ['a'] = {op_append, 0},
    ['e'] = {op_appends, PICKLE_LIST},
    ['s'] = {op_set_item, 0},
    ['u'] = {op_appends, PICKLE_DICT},
    [0x88] = {op_constant, 1}, /* True */
    [0x89] = {op_constant, 0}, /* False */
    ['K'] = {op_unsigned, 1},
    ['M'] = {op_unsigned, 2},
    ['J'] = {op_signed, 4},
    [0x8A] = {op_long, 0},
    ['U'] = {op_string, 1}, /* str of Python 2 */
    ['T'] = {op_string, 4},
    ['C'] = {op_string, 1}, /* bytes */
    ['B'] = {op_string, 4},
    [0x8E] = {op_string, 8},
    [0x96] = {op_string, 8}, /* bytearray */
    [0x8C] = {op_string, 1}, /* str of Python 3 */
    ['X'] = {op_string, 4},
    [0x8D] = {op_string, 8},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    [0x94] = {op_memoize, 0},
    ['h'] = {op_get, 1},
    ['j'] = {op_get, 4},
    ['c'] = {pickle_op_name, 0},
    [0x93] = {pickle_op_stack_name, 0},
    ['R'] = {pickle_op_reduce, 0},
    ['b'] = {pickle_op_build, 0},
    [0x95] = {op_frame, 8},
};

static enum der_status run(struct machine *m)
{
    while (!m->stopped) {
        const uint8_t *byte = NULL;
        TRY(take(m, 1, &byte));
        if (!opcodes[*byte].run)
            return ctx_fail(m->p->ctx, DER_FORMAT,
                            "%s: byte %zu: opcode 0x%02x, which no CIFAR file needs", m->name,
                            m->at - 1, *byte);
        TRY(opcodes[*byte].run(m, opcodes[*byte].argument));
    }
    return DER_OK;
}

enum der_status pickle_read(struct der_ctx *ctx, const char *name, const uint8_t *data, size_t size,
                            struct pickle *out)
{
    *out = (struct pickle){.ctx = ctx};
    if (size < 2 || data[0] != 0x80 || data[1] < 2 || data[1] > 5)
        return ctx_fail(ctx, DER_FORMAT, "%s is not a Python pickle of protocol 2 to 5", name);
    struct machine m = {.p = out, .name = name, .data = data, .size = size, .at = 2};
    enum der_status status = run(&m);
    mem_free(&ctx->mem, m.stack.at);
    mem_free(&ctx->mem, m.marks.at);
    mem_free(&ctx->mem, m.memo.at);
    return status;
}

void pickle_free(struct pickle *pickle)
{
    struct mem *mem = &pickle->ctx->mem;
    mem_free(mem, pickle->values);
    mem_free(mem, pickle->items);
    mem_free(mem, pickle->decoded);
    *pickle = (struct pickle){.ctx = pickle->ctx};
}

const struct pickle_value *pickle_get(const struct pickle *pickle, const struct pickle_value *dict,
                                      const char *key)
{
    const struct pickle_value *found = NULL;
    if (dict->type != PICKLE_DICT)
        return NULL;
    for (uint32_t item = dict->first; item != 0;) {
        const struct pickle_value *k = &pickle->values[pickle->items[item].value];
        uint32_t value_item = pickle->items[item].next;
        if (k->type == PICKLE_STRING && pickle_text_is(k->text, k->size, key))
            found = &pickle->values[pickle->items[value_item].value];
        item = pickle->items[value_item].next;
    }
    return found;
}
