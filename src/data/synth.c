/*
 * A procedural set of images, for tests and for machines without data.
 *
 * A class is a combination of four things: the shape of an object, the direction of the stripes in
 * it, the pair of colours they alternate between, and how fine they are. Place, size, turn, phase,
 * contrast, brightness, a striped background and noise are random for every image. Stripes average
 * out, so no single pixel tells anything and a linear classifier stays near chance; filters
 * for edges and colours, and a few epochs, do the job.
 *
 * Only whole numbers are used: an image is the same on every machine. An angle is a fraction of a
 * turn in 32 bits, a length is in 1/256 pixel.
 */
#include "data/reader.h"

#include "core/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHAPES = 4,
    DIRECTIONS = 6,
    COLOURS = 4,
    FINENESSES = 2,
    COMBINATIONS = SHAPES * DIRECTIONS * COLOURS * FINENESSES,
    CLASS_STEP = 67, /* prime to COMBINATIONS: neighbours differ in everything */
    SUBPIXEL = 256,
    UNIT = 1 << 15, /* amplitude of wave() */
    NAME_CHARS = 64,
};

struct parameters {
    int64_t classes, train, test, size, seed, channels;
};

/* What rng_at is asked for, besides the image: the draws of a picture, and its noise. */
enum { USE_PICTURE, USE_NOISE, USES };

struct picture {
    int size, channels;
    int shape;
    int centre_x, centre_y;         /* of the object, in 1/256 pixel */
    int radius;                     /* in 1/256 pixel */
    uint32_t turn;                  /* of the object */
    uint32_t step_x, step_y, phase; /* stripes of the object: turns per pixel */
    uint32_t back_x, back_y, back_phase;
    int contrast, back_contrast; /* 0..255 */
    int colour, back_colour;     /* rows of `colours` */
    int base[3], back_base[3];   /* mean colours */
    int noise;                   /* amplitude, levels */
};

/* Directions in colour space, of about equal visibility: light-dark, red-green, blue-yellow,
 * magenta-green. Stripes go both ways along one of them. */
static const struct {
    const char *name;
    int weight[3];
} colours[COLOURS] = {
    {"light-dark", {60, 60, 60}},
    {"red-green", {100, -100, 0}},
    {"blue-yellow", {-60, -60, 110}},
    {"magenta-cyan", {100, -20, -90}},
};

static const char *const shape_names[SHAPES] = {"disc", "square", "cross", "triangle"};
static const char *const fineness_names[FINENESSES] = {"coarse", "fine"};

/* ---- numbers --------------------------------------------------------------------------------- */

/* A parabola for a sine: -UNIT..UNIT. */
static int wave(uint32_t angle)
{
    int x = (int)(angle >> 16) - UNIT; /* -1/2 .. 1/2 turn, so the sign is reversed below */
    int magnitude = x < 0 ? -x : x;
    return -(x * (UNIT - magnitude)) / (UNIT / 4);
}

static int wave_cosine(uint32_t angle)
{
    return wave(angle + ((uint32_t)1 << 30));
}

/* Whole number in [low, high] out of a random word. */
static int between(uint32_t word, int low, int high)
{
    return low + (int)(((uint64_t)word * (uint64_t)(high - low + 1)) >> 32);
}

/* ---- one picture ----------------------------------------------------------------------------- */

/* Random words of a picture, one after the other. */
struct draws {
    uint64_t seed, image;
    uint32_t stream;
    struct rng_block block;
    uint32_t used;
};

static uint32_t draw(struct draws *d)
{
    if (d->used % 4 == 0)
        d->block = rng_at(d->seed, RNG_SYNTH, d->stream, d->image << 32 | d->used / 4);
    return d->block.word[d->used++ % 4];
}

/* Stripes across a direction: turns per pixel, for so many 256th of a period over the image. A turn
 * is 2^32, so one of these is 2^32 / 256 / UNIT = 2^9 per unit of wave(). */
static void set_stripes(uint32_t direction, int periods_by_256, int size, uint32_t *x, uint32_t *y)
{
    int64_t length = (int64_t)periods_by_256 * (1 << 9);
    *x = (uint32_t)(length * wave_cosine(direction) / size);
    *y = (uint32_t)(length * wave(direction) / size);
}

static void compose(struct picture *p, const struct parameters *parameters, int label,
                    struct draws *d)
{
    int combination = label * CLASS_STEP % COMBINATIONS;
    int size = (int)parameters->size;
    p->size = size;
    p->channels = (int)parameters->channels;
    p->shape = combination % SHAPES;
    int direction = combination / SHAPES % DIRECTIONS;
    p->colour = combination / (SHAPES * DIRECTIONS) % COLOURS;
    int fineness = combination / (SHAPES * DIRECTIONS * COLOURS);

    p->radius = between(draw(d), size * 60, size * 100);
    int reach = size * SUBPIXEL - p->radius * 3 / 2;
    p->centre_x = between(draw(d), p->radius * 3 / 4, reach > 0 ? reach : 0);
    p->centre_y = between(draw(d), p->radius * 3 / 4, reach > 0 ? reach : 0);
    p->turn = draw(d);

    /* Half a turn brings stripes back; the jitter is a quarter of the distance to the next class. */
    uint32_t apart = UINT32_MAX / 2 / DIRECTIONS;
    uint32_t angle = (uint32_t)direction * apart + (draw(d) % (apart / 2)) - apart / 4;
    int periods = fineness ? between(draw(d), 1900, 2300) : between(draw(d), 950, 1200);
    set_stripes(angle, periods, size, &p->step_x, &p->step_y);
    p->phase = draw(d);
    p->contrast = between(draw(d), 90, 200);

    uint32_t back_angle = draw(d);
    int back_periods = between(draw(d), 300, 2300);
    set_stripes(back_angle, back_periods, size, &p->back_x, &p->back_y);
    p->back_phase = draw(d);
    p->back_colour = between(draw(d), 0, COLOURS - 1);
    p->back_contrast = between(draw(d), 20, 110);
    for (int c = 0; c < 3; c++) {
        p->base[c] = between(draw(d), 80, 175);
        p->back_base[c] = between(draw(d), 60, 195);
    }
    p->noise = between(draw(d), 4, 28);
}

/* Is a point of the object's own frame, in units of 1/256 pixel, within the object? */
static bool within(int shape, int64_t u, int64_t v, int64_t radius)
{
    int64_t across = u < 0 ? -u : u;
    int64_t along = v < 0 ? -v : v;
    switch (shape) {
    case 0:
        return u * u + v * v < radius * radius;
    case 1:
        return across * 10 < radius * 9 && along * 10 < radius * 9;
    case 2:
        return (across < radius && along * 5 < radius * 2) ||
               (along < radius && across * 5 < radius * 2);
    default:
        return v * 10 > -radius * 7 && across * 10 < (radius * 13 - v * 10) * 6 / 10;
    }
}

static uint8_t clip(int value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Red, green and blue of a pixel without noise. */
static void paint(const struct picture *p, int x, int y, int *rgb)
{
    int64_t dx = x * SUBPIXEL + SUBPIXEL / 2 - p->centre_x;
    int64_t dy = y * SUBPIXEL + SUBPIXEL / 2 - p->centre_y;
    int64_t u = (dx * wave_cosine(p->turn) + dy * wave(p->turn)) / UNIT;
    int64_t v = (dy * wave_cosine(p->turn) - dx * wave(p->turn)) / UNIT;
    bool object = within(p->shape, u, v, p->radius);
    uint32_t angle = object ? p->phase + p->step_x * (uint32_t)x + p->step_y * (uint32_t)y
                            : p->back_phase + p->back_x * (uint32_t)x + p->back_y * (uint32_t)y;
    int64_t amplitude = (int64_t)wave(angle) * (object ? p->contrast : p->back_contrast);
    const int *weight = colours[object ? p->colour : p->back_colour].weight;
    const int *base = object ? p->base : p->back_base;
    for (int c = 0; c < 3; c++)
        rgb[c] = base[c] + (int)(amplitude * weight[c] / (UNIT * 256));
}

static void render(const struct picture *p, struct draws *noise, uint8_t *dst)
{
    size_t plane = (size_t)p->size * (size_t)p->size;
    for (int y = 0; y < p->size; y++) {
        for (int x = 0; x < p->size; x++) {
            int rgb[3];
            paint(p, x, y, rgb);
            uint32_t word = draw(noise);
            size_t at = (size_t)y * (size_t)p->size + (size_t)x;
            for (int c = 0; c < 3; c++) {
                int grain = (int)(word >> (10 * c) & 1023) * (2 * p->noise + 1) / 1024 - p->noise;
                rgb[c] = clip(rgb[c] + grain);
            }
            if (p->channels == 1)
                dst[at] = (uint8_t)((2 * rgb[0] + 3 * rgb[1] + rgb[2]) / 6);
            for (size_t c = 0; p->channels == 3 && c < 3; c++)
                dst[c * plane + at] = (uint8_t)rgb[c];
        }
    }
}

/* ---- the set --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
    int64_t standard, least, most;
} fields[] = {
    {"classes", offsetof(struct parameters, classes), 10, 2, COMBINATIONS},
    {"train", offsetof(struct parameters, train), 100, 1, 1 << 20},
    {"test", offsetof(struct parameters, test), 20, 0, 1 << 20},
    {"size", offsetof(struct parameters, size), 32, 8, 512},
    {"seed", offsetof(struct parameters, seed), 1, 0, INT64_MAX},
    {"channels", offsetof(struct parameters, channels), 3, 1, 3},
};

enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static int64_t *field_of(struct parameters *parameters, int i)
{
    return (int64_t *)(void *)((char *)parameters + fields[i].offset);
}

/* One "name=number"; at its end *text points to the comma or the end. */
static enum der_status parse_field(struct der_ctx *ctx, const char **text,
                                   struct parameters *parameters)
{
    const char *at = *text;
    size_t length = strcspn(at, "=,");
    for (int i = 0; at[length] == '=' && i < N_FIELDS; i++) {
        if (strlen(fields[i].name) != length || strncmp(at, fields[i].name, length) != 0)
            continue;
        const char *digits = at + length + 1;
        size_t n_digits = strspn(digits, "0123456789");
        int64_t value = n_digits > 0 && n_digits < 19 ? strtoll(digits, NULL, 10) : -1;
        bool ended = digits[n_digits] == ',' || digits[n_digits] == 0;
        if (!ended || value < fields[i].least || value > fields[i].most)
            return ctx_fail(ctx, DER_ARG, "synth: %s is '%.*s', want %lld..%lld", fields[i].name,
                            (int)strcspn(digits, ","), digits, (long long)fields[i].least,
                            (long long)fields[i].most);
        *field_of(parameters, i) = value;
        *text = digits + n_digits;
        return DER_OK;
    }
    return ctx_fail(ctx, DER_ARG,
                    "synth: '%.*s' is unknown, want synth:NAME=NUMBER,... with classes, train, "
                    "test, size, seed, channels",
                    (int)strcspn(at, ","), at);
}

static enum der_status parse(struct der_ctx *ctx, const char *description,
                             struct parameters *parameters)
{
    for (int i = 0; i < N_FIELDS; i++)
        *field_of(parameters, i) = fields[i].standard;
    const char *at = strchr(description, ':');
    at = at ? at + 1 : "";
    while (*at) {
        TRY(parse_field(ctx, &at, parameters));
        if (*at == ',')
            at++;
    }
    if (parameters->channels == 2)
        return ctx_fail(ctx, DER_ARG, "synth: channels is '2', want 1 or 3");
    return DER_OK;
}

static enum der_status name_classes(struct dataset *set, int n_classes)
{
    set->class_names = arena_zalloc(&set->arena, (size_t)n_classes, sizeof *set->class_names);
    if (!set->class_names)
        return ctx_nomem(set->ctx);
    for (int i = 0; i < n_classes; i++) {
        int combination = i * CLASS_STEP % COMBINATIONS;
        set->class_names[i] =
            arena_printf(&set->arena, "%s-%d-%s-%s", shape_names[combination % SHAPES],
                         combination / SHAPES % DIRECTIONS * (180 / DIRECTIONS),
                         colours[combination / (SHAPES * DIRECTIONS) % COLOURS].name,
                         fineness_names[combination / (SHAPES * DIRECTIONS * COLOURS)]);
        if (!set->class_names[i])
            return ctx_nomem(set->ctx);
    }
    set->n_classes = n_classes;
    return DER_OK;
}

/* Labels go round, so that any number of images from the start on is balanced. */
static void make_image(struct dataset *set, const struct parameters *parameters,
                       enum data_split split, int64_t index)
{
    struct data_part *part = &set->part[split];
    uint32_t stream = (uint32_t)split * USES;
    int label = (int)(index % set->n_classes);
    struct draws choice = {.seed = (uint64_t)parameters->seed,
                           .image = (uint64_t)index,
                           .stream = stream + USE_PICTURE};
    struct draws noise = choice;
    noise.stream = stream + USE_NOISE;
    struct picture picture;
    compose(&picture, parameters, label, &choice);
    int64_t image_bytes = parameters->channels * parameters->size * parameters->size;
    render(&picture, &noise, part->pixels + index * image_bytes);
    part->labels[index] = label;
}

enum der_status synth_open(struct dataset *set, const char *description)
{
    struct parameters parameters;
    TRY(parse(set->ctx, description, &parameters));
    set->kind = "synth";
    set->channels = (int)parameters.channels;
    set->height = (int)parameters.size;
    set->width = (int)parameters.size;
    TRY(name_classes(set, (int)parameters.classes));
    const int64_t per_class[DATA_SPLITS] = {parameters.train, parameters.test};
    for (int split = 0; split < DATA_SPLITS; split++) {
        size_t n = (size_t)per_class[split] * (size_t)parameters.classes;
        if (n == 0)
            continue;
        TRY(reader_grow_part(set, (enum data_split)split, n));
        for (int64_t i = 0; i < (int64_t)n; i++)
            make_image(set, &parameters, (enum data_split)split, i);
    }
    return DER_OK;
}
