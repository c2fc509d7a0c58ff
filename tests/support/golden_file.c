#include "support/golden_file.h"

#include "support/tensor_check.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DER_TEST_DATA
#ifdef DER_TESTS_DIR
#define DER_TEST_DATA DER_TESTS_DIR "/golden/data"
#else
#define DER_TEST_DATA "tests/golden/data"
#endif
#endif

enum { PATH_MAX_CHARS = 1024, LENGTH_BYTES = 8 };

/* ---- reading the header ---------------------------------------------------------------------- */

/* A cursor over the JSON header. Only what gen_golden.py writes is understood: objects, strings
 * without escapes, arrays of whole numbers, no space between tokens. */
struct cursor {
    char *at;
    const char *end;
};

static void expect(struct cursor *c, char wanted)
{
    if (c->at >= c->end || *c->at != wanted)
        fail_msg("golden header: want '%c' at \"%.20s\"", wanted, c->at);
    c->at++;
}

static bool accept(struct cursor *c, char wanted)
{
    if (c->at >= c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* The string under the cursor, ended in place. */
static char *read_string(struct cursor *c)
{
    expect(c, '"');
    char *text = c->at;
    while (c->at < c->end && *c->at != '"') {
        if (*c->at == '\\')
            fail_msg("golden header: escapes are not read: \"%.20s\"", c->at);
        c->at++;
    }
    char *close = c->at;
    expect(c, '"');
    *close = '\0';
    return text;
}

/* Whole numbers in brackets; returns how many. */
static int read_numbers(struct cursor *c, int64_t *numbers, int capacity)
{
    int n = 0;
    expect(c, '[');
    while (!accept(c, ']')) {
        if (n > 0)
            expect(c, ',');
        if (n == capacity)
            fail_msg("golden header: more than %d numbers", capacity);
        numbers[n++] = strtoll(c->at, &c->at, 10);
    }
    return n;
}

static void read_tensor(struct cursor *c, struct golden_tensor *tensor, const char *data)
{
    int64_t offsets[2] = {0};
    expect(c, '{');
    do {
        const char *key = read_string(c);
        expect(c, ':');
        if (strcmp(key, "dtype") == 0)
            tensor->dtype = strcmp(read_string(c), "I32") == 0 ? DTYPE_I32 : DTYPE_F32;
        else if (strcmp(key, "shape") == 0)
            tensor->shape.rank = read_numbers(c, tensor->shape.dim, SHAPE_MAX_RANK);
        else
            (void)read_numbers(c, offsets, 2);
    } while (accept(c, ','));
    expect(c, '}');
    tensor->data = data + offsets[0];
    size_t bytes = (size_t)shape_count(tensor->shape) * dtype_bytes(tensor->dtype);
    assert_int_equal(offsets[1] - offsets[0], bytes);
}

static void read_notes(struct cursor *c, struct golden_file *file)
{
    expect(c, '{');
    do {
        struct golden_note *note = &file->notes[file->n_notes++];
        note->key = read_string(c);
        expect(c, ':');
        note->text = read_string(c);
    } while (accept(c, ','));
    expect(c, '}');
}

static int count_colons(const char *text, const char *end)
{
    int n = 0;
    for (; text < end; text++)
        n += *text == ':';
    return n;
}

static char *read_whole(const char *path, size_t *length)
{
    FILE *stream = fopen(path, "rb");
    if (!stream)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    *length = (size_t)ftell(stream);
    rewind(stream);
    char *bytes = malloc(*length);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *length, stream), *length);
    (void)fclose(stream);
    return bytes;
}

struct golden_file *golden_open(const char *name)
{
    const char *folder = getenv("DER_TEST_DATA");
    char path[PATH_MAX_CHARS];
    (void)snprintf(path, sizeof path, "%s/%s.safetensors", folder ? folder : DER_TEST_DATA, name);
    size_t length;
    struct golden_file *file = calloc(1, sizeof *file);
    assert_non_null(file);
    file->bytes = read_whole(path, &length);
    uint64_t header = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        header = header << 8 | (unsigned char)file->bytes[i];
    assert_true(header <= length - LENGTH_BYTES);

    struct cursor c = {file->bytes + LENGTH_BYTES, file->bytes + LENGTH_BYTES + header};
    size_t most = (size_t)count_colons(c.at, c.end);
    file->tensors = calloc(most, sizeof *file->tensors);
    file->notes = calloc(most, sizeof *file->notes);
    assert_non_null(file->tensors);
    assert_non_null(file->notes);
    const char *data = c.end;
    expect(&c, '{');
    do {
        char *key = read_string(&c);
        expect(&c, ':');
        if (strcmp(key, "__metadata__") == 0) {
            read_notes(&c, file);
            continue;
        }
        file->tensors[file->n_tensors].name = key;
        read_tensor(&c, &file->tensors[file->n_tensors++], data);
    } while (accept(&c, ','));
    expect(&c, '}');
    return file;
}

void golden_close(struct golden_file *file)
{
    if (!file)
        return;
    free(file->tensors);
    free(file->notes);
    free(file->bytes);
    free(file);
}

const struct golden_tensor *golden_find(const struct golden_file *file, const char *name)
{
    for (int i = 0; i < file->n_tensors; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

const struct golden_tensor *golden_get(const struct golden_file *file, const char *name)
{
    const struct golden_tensor *tensor = golden_find(file, name);
    if (!tensor)
        fail_msg("the golden file has no tensor '%s'", name);
    return tensor;
}

const char *golden_text(const struct golden_file *file, const char *key)
{
    for (int i = 0; i < file->n_notes; i++)
        if (strcmp(file->notes[i].key, key) == 0)
            return file->notes[i].text;
    fail_msg("the golden file has no note '%s'", key);
    return NULL;
}

uint32_t golden_seed(const struct golden_file *file)
{
    return (uint32_t)strtoul(golden_text(file, "seed"), NULL, 10);
}

/* ---- inputs by formula: store.py does the same ----------------------------------------------- */

/* 32-bit FNV-1a of the name, mixed with the seed. */
static uint32_t name_seed(const char *name, uint32_t seed)
{
    uint32_t value = 2166136261u;
    for (; *name; name++)
        value = (value ^ (unsigned char)*name) * 16777619u;
    return value ^ seed;
}

static uint32_t noise_word(uint32_t start, int64_t index)
{
    uint32_t x = (uint32_t)index * 0x9E3779B9u + start;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

void golden_noise(float *dst, int64_t n, const char *name, uint32_t seed, double centre,
                  double amplitude)
{
    uint32_t start = name_seed(name, seed);
    for (int64_t i = 0; i < n; i++) {
        double unit = (double)(noise_word(start, i) >> 8) / 8388608.0 - 1.0;
        dst[i] = (float)(centre + amplitude * unit);
    }
}

void golden_labels(int32_t *dst, int64_t n, const char *name, uint32_t seed, int n_classes)
{
    uint32_t start = name_seed(name, seed);
    for (int64_t i = 0; i < n; i++)
        dst[i] = (int32_t)(noise_word(start, i) % (uint32_t)n_classes);
}

static bool ends_with(const char *text, const char *suffix)
{
    size_t length = strlen(text);
    size_t tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

void golden_param(float *dst, struct shape shape, const char *name, uint32_t seed)
{
    double centre = 0.0;
    double amplitude = 0.2;
    if (shape.rank == 4) {
        amplitude = sqrt(6.0 / (double)(shape.dim[0] * shape.dim[2] * shape.dim[3]));
    } else if (shape.rank == 2) {
        amplitude = 1.0 / sqrt((double)shape.dim[1]);
    } else if (ends_with(name, "bn2.weight")) {
        centre = 0.3;
        amplitude = 0.1;
    } else if (ends_with(name, ".weight")) {
        centre = 1.0;
        amplitude = 0.3;
    } else if (ends_with(name, ".running_var")) {
        centre = 1.0;
        amplitude = 0.5;
    }
    golden_noise(dst, shape_count(shape), name, seed, centre, amplitude);
}

/* ---- comparison ------------------------------------------------------------------------------ */

void golden_compare(const char *what, const void *got, const struct golden_tensor *want,
                    double nmse)
{
    int64_t n = shape_count(want->shape);
    char text[PATH_MAX_CHARS];
    (void)snprintf(text, sizeof text, "%s: %s", what, want->name);
    if (getenv("DER_GOLDEN_SHOW") && want->dtype == DTYPE_F32)
        (void)fprintf(stderr, "# %s nmse %.2e\n", text, tensor_nmse(got, want->data, n));
    if (want->dtype == DTYPE_I32)
        assert_ints_equal(got, want->data, n, text);
    else
        assert_tensor_close(got, want->data, n, nmse, text);
}
