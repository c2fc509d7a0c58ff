/*
 * The stack machine behind pickle.h, with the opcodes of Python's pickletools.py.
 *
 * Values never move between tables and are never copied, so a memo entry is a number. Memory is
 * bounded by fixed counts and by the size of the file; nothing here recurses.
 */
#include "data/pickle.h"

#include <inttypes.h>
#include <string.h>

enum {
    VALUES_MAX = 1 << 21, /* CIFAR-100 has 150,000 */
    ITEMS_MAX = 1 << 22,
    STACK_MAX = 1 << 20,
    MARKS_MAX = 64, /* open containers; the files have 3 */
    TABLE_START = 256,
    NOT_IN_MEMO = 0, /* memo entries are value numbers plus one */
    NAME_SHOWN_MAX = 60,
};

enum name_id { NAME_RECONSTRUCT, NAME_NDARRAY, NAME_DTYPE, NAME_FROMBUFFER, NAME_ENCODE, NAME_BYTES };

static const struct {
    const char *module, *name;
    enum name_id id;
} names[] = {
    {"numpy.core.multiarray", "_reconstruct", NAME_RECONSTRUCT},
    {"numpy._core.multiarray", "_reconstruct", NAME_RECONSTRUCT},
    {"numpy", "ndarray", NAME_NDARRAY},
    {"numpy", "dtype", NAME_DTYPE},
    {"numpy.core.numeric", "_frombuffer", NAME_FROMBUFFER},
    {"numpy._core.numeric", "_frombuffer", NAME_FROMBUFFER},
    {"_codecs", "encode", NAME_ENCODE},
    {"__builtin__", "bytes", NAME_BYTES},
    {"builtins", "bytes", NAME_BYTES},
};

enum { N_NAMES = sizeof names / sizeof names[0] };

/* A table of numbers that grows. */
struct numbers {
    uint32_t *at;
    size_t n, capacity;
};

struct machine {
    struct pickle *p;
    const char *name;    /* of the file */
    const uint8_t *data;
    size_t size;
    size_t at;           /* next byte */
    struct numbers stack; /* of values */
    struct numbers marks; /* heights of the stack */
    struct numbers memo;  /* value + 1 */
    bool stopped;
};

static enum der_status broken(struct machine *m, const char *what)
{
    return ctx_fail(m->p->ctx, DER_FORMAT, "%s: byte %zu: %s", m->name, m->at, what);
}

/* Makes room for one more element of a table; *table has `capacity` elements of `size` bytes. */
static enum der_status grow(struct machine *m, void **table, size_t *capacity, size_t n,
                            size_t size, size_t most)
{
    if (n < *capacity)
        return DER_OK;
    if (n >= most)
        return broken(m, "the pickle is larger than any CIFAR file");
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

static enum der_status push_new(struct machine *m, struct pickle_value value)
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

static enum der_status pop(struct machine *m, uint32_t *value)
{
    if (m->stack.n <= floor_of(m))
        return broken(m, "an opcode finds no value on the stack");
    *value = m->stack.at[--m->stack.n];
    return DER_OK;
}

static enum der_status pop_mark(struct machine *m, size_t *height)
{
    if (m->marks.n == 0)
        return broken(m, "a container ends that was never begun");
    *height = m->marks.at[--m->marks.n];
    return DER_OK;
}

static enum der_status top(struct machine *m, enum pickle_type type, uint32_t *value)
{
    if (m->stack.n <= floor_of(m) || m->p->values[m->stack.at[m->stack.n - 1]].type != type)
        return broken(m, "an opcode does not find the container it adds to");
    *value = m->stack.at[m->stack.n - 1];
    return DER_OK;
}

static enum der_status take(struct machine *m, uint64_t n, const uint8_t **bytes)
{
    if (n > m->size - m->at)
        return broken(m, "the file ends within a value");
    *bytes = m->data + m->at;
    m->at += (size_t)n;
    return DER_OK;
}

static enum der_status take_number(struct machine *m, int width, uint64_t *number)
{
    const uint8_t *bytes;
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
    TRY(push_new(m, (struct pickle_value){.type = PICKLE_TUPLE}));
    uint32_t tuple = m->stack.at[n];
    m->stack.n = n;
    TRY(add_from(m, tuple, height));
    return push(m, tuple);
}

static enum der_status op_empty(struct machine *m, int type)
{
    return push_new(m, (struct pickle_value){.type = (enum pickle_type)type});
}

static enum der_status op_mark(struct machine *m, int unused)
{
    (void)unused;
    return put_number(m, &m->marks, m->stack.n, MARKS_MAX);
}

static enum der_status op_tuple(struct machine *m, int unused)
{
    (void)unused;
    size_t height;
    TRY(pop_mark(m, &height));
    return make_tuple(m, height);
}

static enum der_status op_tuple_of(struct machine *m, int n)
{
    if (m->stack.n < floor_of(m) + (size_t)n)
        return broken(m, "a tuple finds too few values on the stack");
    return make_tuple(m, m->stack.n - (size_t)n);
}

static enum der_status op_append(struct machine *m, int unused)
{
    (void)unused;
    uint32_t value;
    uint32_t list;
    TRY(pop(m, &value));
    TRY(top(m, PICKLE_LIST, &list));
    return add_item(m, list, value);
}

/* The opcode finds its container below the mark. */
static enum der_status add_above_mark(struct machine *m, enum pickle_type type)
{
    size_t height;
    TRY(pop_mark(m, &height));
    size_t n = m->stack.n;
    uint32_t container;
    m->stack.n = height;
    TRY(top(m, type, &container));
    if (type == PICKLE_DICT && (n - height) % 2 != 0)
        return broken(m, "a dictionary key has no value");
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
    uint32_t value;
    uint32_t key;
    uint32_t dict;
    TRY(pop(m, &value));
    TRY(pop(m, &key));
    TRY(top(m, PICKLE_DICT, &dict));
    TRY(add_item(m, dict, key));
    return add_item(m, dict, value);
}

/* ---- plain values ---------------------------------------------------------------------------- */

static enum der_status push_int(struct machine *m, int64_t integer)
{
    return push_new(m, (struct pickle_value){.type = PICKLE_INT, .integer = integer});
}

static enum der_status op_constant(struct machine *m, int integer)
{
    return push_int(m, integer);
}

static enum der_status op_unsigned(struct machine *m, int width)
{
    uint64_t number;
    TRY(take_number(m, width, &number));
    return push_int(m, (int64_t)number);
}

static enum der_status op_signed(struct machine *m, int width)
{
    uint64_t number;
    TRY(take_number(m, width, &number));
    uint64_t sign = (uint64_t)1 << (8 * width - 1);
    return push_int(m, (int64_t)((number ^ sign) - sign));
}

static enum der_status op_long(struct machine *m, int unused)
{
    (void)unused;
    uint64_t width;
    TRY(take_number(m, 1, &width));
    if (width > 8)
        return broken(m, "a number has more than 64 bits");
    return width == 0 ? push_int(m, 0) : op_signed(m, (int)width);
}

static enum der_status op_string(struct machine *m, int width)
{
    uint64_t size;
    const uint8_t *text;
    TRY(take_number(m, width, &size));
    TRY(take(m, size, &text));
    return push_new(m, (struct pickle_value){
                           .type = PICKLE_STRING, .text = text, .size = (size_t)size});
}

/* ---- memo ------------------------------------------------------------------------------------ */

static enum der_status memo_put(struct machine *m, uint64_t index)
{
    if (m->stack.n <= floor_of(m))
        return broken(m, "there is no value to remember");
    if (index >= VALUES_MAX)
        return broken(m, "a memo number is larger than in any CIFAR file");
    while (m->memo.n <= index)
        TRY(put_number(m, &m->memo, NOT_IN_MEMO, VALUES_MAX));
    m->memo.at[index] = m->stack.at[m->stack.n - 1] + 1;
    return DER_OK;
}

static enum der_status op_put(struct machine *m, int width)
{
    uint64_t index;
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
    uint64_t index;
    TRY(take_number(m, width, &index));
    if (index >= m->memo.n || m->memo.at[index] == NOT_IN_MEMO)
        return broken(m, "a memo number was never given");
    return push(m, m->memo.at[index] - 1);
}

/* ---- names, and the arrays they make --------------------------------------------------------- */

static bool text_is(const uint8_t *text, size_t size, const char *wanted)
{
    return size == strlen(wanted) && memcmp(text, wanted, size) == 0;
}

static enum der_status push_name(struct machine *m, const uint8_t *module, size_t module_size,
                                 const uint8_t *name, size_t name_size)
{
    for (int i = 0; i < N_NAMES; i++)
        if (text_is(module, module_size, names[i].module) && text_is(name, name_size, names[i].name))
            return push_new(m, (struct pickle_value){.type = PICKLE_NAME, .integer = names[i].id});
    int module_shown = module_size < NAME_SHOWN_MAX ? (int)module_size : NAME_SHOWN_MAX;
    int name_shown = name_size < NAME_SHOWN_MAX ? (int)name_size : NAME_SHOWN_MAX;
    return ctx_fail(m->p->ctx, DER_FORMAT,
                    "%s: byte %zu: the pickle asks for %.*s.%.*s, which no CIFAR file needs; "
                    "nothing was executed",
                    m->name, m->at, module_shown, (const char *)module, name_shown,
                    (const char *)name);
}

/* Up to the end of the line. */
static enum der_status take_line(struct machine *m, const uint8_t **line, size_t *length)
{
    *line = m->data + m->at;
    const uint8_t *end = memchr(*line, '\n', m->size - m->at);
    if (!end)
        return broken(m, "the file ends within a name");
    *length = (size_t)(end - *line);
    m->at += *length + 1;
    return DER_OK;
}

static enum der_status op_name(struct machine *m, int unused)
{
    (void)unused;
    const uint8_t *module;
    const uint8_t *name;
    size_t module_size;
    size_t name_size;
    TRY(take_line(m, &module, &module_size));
    TRY(take_line(m, &name, &name_size));
    return push_name(m, module, module_size, name, name_size);
}

static enum der_status op_stack_name(struct machine *m, int unused)
{
    (void)unused;
    uint32_t name;
    uint32_t module;
    TRY(pop(m, &name));
    TRY(pop(m, &module));
    const struct pickle_value *values = m->p->values;
    if (values[name].type != PICKLE_STRING || values[module].type != PICKLE_STRING)
        return broken(m, "a name is not made of two strings");
    return push_name(m, values[module].text, values[module].size, values[name].text,
                     values[name].size);
}

/* The values of a tuple of exactly n items; false when it is something else. */
static bool unpack(const struct pickle *p, uint32_t tuple, uint32_t n,
                   const struct pickle_value **out)
{
    if (p->values[tuple].type != PICKLE_TUPLE || p->values[tuple].n_items != n)
        return false;
    uint32_t item = p->values[tuple].first;
    for (uint32_t i = 0; i < n; i++, item = p->items[item].next)
        out[i] = &p->values[p->items[item].value];
    return true;
}

/* Makes *array the bytes `text`, seen as rows and columns. */
static enum der_status set_array(struct machine *m, struct pickle_value *array,
                                 const struct pickle_value *text, const struct pickle_value *dtype,
                                 const struct pickle_value *shape, bool fortran)
{
    const struct pickle_value *side[2];
    size_t rows_by_columns;
    if (text->type != PICKLE_STRING || dtype->type != PICKLE_DTYPE)
        return broken(m, "an array is not made of bytes");
    if (!unpack(m->p, (uint32_t)(shape - m->p->values), 2, side) || side[0]->type != PICKLE_INT ||
        side[1]->type != PICKLE_INT || side[0]->integer < 0 || side[1]->integer < 0)
        return broken(m, "an array is not two-dimensional");
    if (!size_mul((size_t)side[0]->integer, (size_t)side[1]->integer, &rows_by_columns) ||
        rows_by_columns != text->size)
        return ctx_fail(m->p->ctx, DER_FORMAT,
                        "%s: byte %zu: an array of %" PRId64 " x %" PRId64 " has %zu bytes", m->name,
                        m->at, side[0]->integer, side[1]->integer, text->size);
    array->type = PICKLE_ARRAY;
    array->text = text->text;
    array->size = text->size;
    array->shape[0] = side[0]->integer;
    array->shape[1] = side[1]->integer;
    array->fortran = fortran;
    return DER_OK;
}

/* _codecs.encode(text, "latin1"): how Python 3 writes bytes with protocol 2. The text is UTF-8 of
 * characters below 256, so it has at most two bytes a character. */
static enum der_status encode_latin1(struct machine *m, const struct pickle_value *text,
                                     struct pickle_value *result)
{
    struct pickle *p = m->p;
    if (!p->decoded) {
        p->decoded = mem_alloc(&p->ctx->mem, m->size, 1);
        if (!p->decoded)
            return ctx_nomem(p->ctx);
        p->decoded_capacity = m->size;
    }
    /* No honest file turns more text to bytes than it holds. */
    if (text->size > p->decoded_capacity - p->decoded_size)
        return broken(m, "the same text is used again and again");
    uint8_t *start = p->decoded + p->decoded_size;
    uint8_t *dst = start;
    for (size_t i = 0; i < text->size; i++) {
        uint8_t byte = text->text[i];
        if (byte >= 0x80) {
            bool pair = (byte == 0xC2 || byte == 0xC3) && i + 1 < text->size &&
                        (text->text[i + 1] & 0xC0) == 0x80;
            if (!pair)
                return broken(m, "text that stands for bytes has other characters");
            byte = (uint8_t)((byte & 3) << 6 | (text->text[++i] & 0x3F));
        }
        *dst++ = byte;
    }
    *result = (struct pickle_value){
        .type = PICKLE_STRING, .text = start, .size = (size_t)(dst - start)};
    p->decoded_size += result->size;
    return DER_OK;
}

/* numpy.dtype(code, align, copy): only bytes. */
static enum der_status make_dtype(struct machine *m, const struct pickle_value *code,
                                  struct pickle_value *result)
{
    if (code->type != PICKLE_STRING ||
        (!text_is(code->text, code->size, "u1") && !text_is(code->text, code->size, "|u1")))
        return broken(m, "an array has another type than unsigned bytes (u1)");
    result->type = PICKLE_DTYPE;
    return DER_OK;
}

/* function(arguments), for the functions of the table. */
static enum der_status op_reduce(struct machine *m, int unused)
{
    (void)unused;
    uint32_t arguments;
    uint32_t function;
    TRY(pop(m, &arguments));
    TRY(pop(m, &function));
    const struct pickle *p = m->p;
    const struct pickle_value *arg[4] = {0};
    struct pickle_value result = {.type = PICKLE_ARRAY}; /* empty, until op_build fills it */
    if (p->values[function].type != PICKLE_NAME)
        return broken(m, "something that is no function is called");
    switch ((enum name_id)p->values[function].integer) {
    case NAME_RECONSTRUCT:
        if (unpack(p, arguments, 3, arg))
            return push_new(m, result);
        break;
    case NAME_DTYPE:
        if (!unpack(p, arguments, 3, arg))
            break;
        TRY(make_dtype(m, arg[0], &result));
        return push_new(m, result);
    case NAME_FROMBUFFER:
        if (!unpack(p, arguments, 4, arg) || arg[3]->type != PICKLE_STRING ||
            (!text_is(arg[3]->text, arg[3]->size, "C") && !text_is(arg[3]->text, arg[3]->size, "F")))
            break;
        TRY(set_array(m, &result, arg[0], arg[1], arg[2], arg[3]->text[0] == 'F'));
        return push_new(m, result);
    case NAME_ENCODE:
        if (!unpack(p, arguments, 2, arg) || arg[0]->type != PICKLE_STRING ||
            arg[1]->type != PICKLE_STRING || !text_is(arg[1]->text, arg[1]->size, "latin1"))
            break;
        TRY(encode_latin1(m, arg[0], &result));
        return push_new(m, result);
    case NAME_BYTES:
        if (!unpack(p, arguments, 0, arg))
            break;
        return push_new(m, (struct pickle_value){.type = PICKLE_STRING, .text = m->data});
    case NAME_NDARRAY:
        break;
    }
    return broken(m, "a numpy array is not made the way numpy writes it");
}

/* Gives an array its content; what a dtype is given says nothing about bytes. */
static enum der_status op_build(struct machine *m, int unused)
{
    (void)unused;
    uint32_t state;
    TRY(pop(m, &state));
    if (m->stack.n <= floor_of(m))
        return broken(m, "there is nothing to fill");
    struct pickle_value *object = &m->p->values[m->stack.at[m->stack.n - 1]];
    const struct pickle_value *field[5]; /* version, shape, dtype, is Fortran order, bytes */
    if (object->type == PICKLE_DTYPE && m->p->values[state].type == PICKLE_TUPLE)
        return DER_OK;
    if (object->type != PICKLE_ARRAY || !unpack(m->p, state, 5, field) ||
        field[3]->type != PICKLE_INT)
        return broken(m, "an object is not filled the way numpy writes it");
    return set_array(m, object, field[4], field[2], field[1], field[3]->integer != 0);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static enum der_status op_frame(struct machine *m, int width)
{
    uint64_t size; /* only says how much to read at once */
    return take_number(m, width, &size);
}

static enum der_status op_stop(struct machine *m, int unused)
{
    (void)unused;
    m->stopped = true;
    TRY(pop(m, &m->p->root));
    return m->stack.n == 0 && m->marks.n == 0 ? DER_OK
                                              : broken(m, "the pickle ends with loose values");
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
    ['c'] = {op_name, 0},
    [0x93] = {op_stack_name, 0},
    ['R'] = {op_reduce, 0},
    ['b'] = {op_build, 0},
    [0x95] = {op_frame, 8},
};

static enum der_status run(struct machine *m)
{
    while (!m->stopped) {
        const uint8_t *byte;
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
        if (k->type == PICKLE_STRING && text_is(k->text, k->size, key))
            found = &pickle->values[pickle->items[value_item].value];
        item = pickle->items[value_item].next;
    }
    return found;
}
