/*
 * The names that a pickled numpy array uses, and the values they stand for.
 *
 * A pickle names a function and lists its arguments. The functions of numpy and Python that make an
 * array of bytes are known by name and what they would return is put together here; no other name
 * passes.
 */
#include "data/pickle_machine.h"

#include <inttypes.h>
#include <string.h>

enum { NAME_SHOWN_MAX = 60 };

enum name_id {
    NAME_RECONSTRUCT,
    NAME_NDARRAY,
    NAME_DTYPE,
    NAME_FROMBUFFER,
    NAME_ENCODE,
    NAME_BYTES
};

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

static enum der_status push_name(struct machine *m, const uint8_t *module, size_t module_size,
                                 const uint8_t *name, size_t name_size)
{
    for (int i = 0; i < N_NAMES; i++)
        if (pickle_text_is(module, module_size, names[i].module) &&
            pickle_text_is(name, name_size, names[i].name))
            return pickle_push(m,
                               (struct pickle_value){.type = PICKLE_NAME, .integer = names[i].id});
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
        return pickle_broken(m, "the file ends within a name");
    *length = (size_t)(end - *line);
    m->at += *length + 1;
    return DER_OK;
}

enum der_status pickle_op_name(struct machine *m, int unused)
{
    (void)unused;
    const uint8_t *module = NULL;
    const uint8_t *name = NULL;
    size_t module_size = 0;
    size_t name_size = 0;
    TRY(take_line(m, &module, &module_size));
    TRY(take_line(m, &name, &name_size));
    return push_name(m, module, module_size, name, name_size);
}

enum der_status pickle_op_stack_name(struct machine *m, int unused)
{
    (void)unused;
    uint32_t name = 0;
    uint32_t module = 0;
    TRY(pickle_pop(m, &name));
    TRY(pickle_pop(m, &module));
    const struct pickle_value *values = m->p->values;
    if (values[name].type != PICKLE_STRING || values[module].type != PICKLE_STRING)
        return pickle_broken(m, "a name is not made of two strings");
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
        return pickle_broken(m, "an array is not made of bytes");
    if (!unpack(m->p, (uint32_t)(shape - m->p->values), 2, side) || side[0]->type != PICKLE_INT ||
        side[1]->type != PICKLE_INT || side[0]->integer < 0 || side[1]->integer < 0)
        return pickle_broken(m, "an array is not two-dimensional");
    if (!size_mul((size_t)side[0]->integer, (size_t)side[1]->integer, &rows_by_columns) ||
        rows_by_columns != text->size)
        return ctx_fail(m->p->ctx, DER_FORMAT,
                        "%s: byte %zu: an array of %" PRId64 " x %" PRId64 " has %zu bytes",
                        m->name, m->at, side[0]->integer, side[1]->integer, text->size);
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
        return pickle_broken(m, "the same text is used again and again");
    uint8_t *start = p->decoded + p->decoded_size;
    uint8_t *dst = start;
    for (size_t i = 0; i < text->size; i++) {
        uint8_t byte = text->text[i];
        if (byte >= 0x80) {
            bool pair = (byte == 0xC2 || byte == 0xC3) && i + 1 < text->size &&
                        (text->text[i + 1] & 0xC0) == 0x80;
            if (!pair)
                return pickle_broken(m, "text that stands for bytes has other characters");
            byte = (uint8_t)((byte & 3) << 6 | (text->text[++i] & 0x3F));
        }
        *dst++ = byte;
    }
    *result =
        (struct pickle_value){.type = PICKLE_STRING, .text = start, .size = (size_t)(dst - start)};
    p->decoded_size += result->size;
    return DER_OK;
}

/* numpy.dtype(code, align, copy): only bytes. */
static enum der_status make_dtype(struct machine *m, const struct pickle_value *code,
                                  struct pickle_value *result)
{
    if (code->type != PICKLE_STRING || (!pickle_text_is(code->text, code->size, "u1") &&
                                        !pickle_text_is(code->text, code->size, "|u1")))
        return pickle_broken(m, "an array has another type than unsigned bytes (u1)");
    result->type = PICKLE_DTYPE;
    return DER_OK;
}

/* function(arguments), for the functions of the table. */
enum der_status pickle_op_reduce(struct machine *m, int unused)
{
    (void)unused;
    uint32_t arguments = 0;
    uint32_t function = 0;
    TRY(pickle_pop(m, &arguments));
    TRY(pickle_pop(m, &function));
    const struct pickle *p = m->p;
    const struct pickle_value *arg[4] = {0};
    struct pickle_value result = {.type = PICKLE_ARRAY}; /* empty, until pickle_op_build fills it */
    if (p->values[function].type != PICKLE_NAME)
        return pickle_broken(m, "something that is no function is called");
    switch ((enum name_id)p->values[function].integer) {
    case NAME_RECONSTRUCT:
        if (unpack(p, arguments, 3, arg))
            return pickle_push(m, result);
        break;
    case NAME_DTYPE:
        if (!unpack(p, arguments, 3, arg))
            break;
        TRY(make_dtype(m, arg[0], &result));
        return pickle_push(m, result);
    case NAME_FROMBUFFER:
        if (!unpack(p, arguments, 4, arg) || arg[3]->type != PICKLE_STRING ||
            (!pickle_text_is(arg[3]->text, arg[3]->size, "C") &&
             !pickle_text_is(arg[3]->text, arg[3]->size, "F")))
            break;
        TRY(set_array(m, &result, arg[0], arg[1], arg[2], arg[3]->text[0] == 'F'));
        return pickle_push(m, result);
    case NAME_ENCODE:
        if (!unpack(p, arguments, 2, arg) || arg[0]->type != PICKLE_STRING ||
            arg[1]->type != PICKLE_STRING || !pickle_text_is(arg[1]->text, arg[1]->size, "latin1"))
            break;
        TRY(encode_latin1(m, arg[0], &result));
        return pickle_push(m, result);
    case NAME_BYTES:
        if (!unpack(p, arguments, 0, arg))
            break;
        return pickle_push(m, (struct pickle_value){.type = PICKLE_STRING, .text = m->data});
    case NAME_NDARRAY:
        break;
    }
    return pickle_broken(m, "a numpy array is not made the way numpy writes it");
}

/* Gives an array its content; what a dtype is given says nothing about bytes. */
enum der_status pickle_op_build(struct machine *m, int unused)
{
    (void)unused;
    uint32_t state = 0;
    TRY(pickle_pop(m, &state));
    uint32_t filled = 0;
    TRY(pickle_peek(m, &filled));
    struct pickle_value *object = &m->p->values[filled];
    const struct pickle_value *field[5]; /* version, shape, dtype, is Fortran order, bytes */
    if (object->type == PICKLE_DTYPE && m->p->values[state].type == PICKLE_TUPLE)
        return DER_OK;
    if (object->type != PICKLE_ARRAY || !unpack(m->p, state, 5, field) ||
        field[3]->type != PICKLE_INT)
        return pickle_broken(m, "an object is not filled the way numpy writes it");
    return set_array(m, object, field[4], field[2], field[1], field[3]->integer != 0);
}
