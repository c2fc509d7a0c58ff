/*
 * What the tests of the kernels share: images in every layout, with sentinels round them.
 *
 * Tests speak of plain arrays [n][c][spatial]. pack() turns one into the layout under test, and
 * unpack() back, checking on the way that padding is zero and nothing outside was touched.
 */
#ifndef CPU_TEST_IMAGE_H
#define CPU_TEST_IMAGE_H

#include "backend/cpu/cpu_kernels.h"
#include "core/arena.h"
#include "core/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Kernels and the loops of the tests differ by float rounding of single terms only. */
#define KERNEL_TOLERANCE 1e-12

enum { GUARD = 16, MAX_THREADS = 3 };
static const float SENTINEL = 12345.0F;

struct fixture {
    struct mem mem;
    struct arena arena;
    uint32_t stream; /* of random numbers: no two arrays are alike */
};

static inline struct fixture *fixture_of(void **state)
{
    return *state;
}

static inline int fixture_setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    mem_init(&fixture.mem);
    arena_init(&fixture.arena, &fixture.mem);
    *state = &fixture;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    arena_fini(&fixture_of(state)->arena);
    return 0;
}

static inline void *take(struct fixture *f, int64_t count, size_t size)
{
    void *block = arena_zalloc(&f->arena, (size_t)count, size);
    assert_non_null(block);
    return block;
}

static inline float *take_random(struct fixture *f, int64_t count)
{
    float *data = take(f, count, sizeof *data);
    rng_uniform(data, count, -1, 1, 42, RNG_TEST, f->stream++);
    return data;
}

/* `count` floats that hold nothing sensible, between sentinels. */
static inline float *take_guarded(struct fixture *f, int64_t count)
{
    float *data = take(f, count + 2 * (int64_t)GUARD, sizeof *data);
    for (int64_t i = 0; i < count + 2 * (int64_t)GUARD; i++)
        data[i] = SENTINEL;
    return data + GUARD;
}

static inline void assert_guarded(const float *data, int64_t count)
{
    for (int64_t i = 0; i < GUARD; i++) {
        assert_true(data[-1 - i] == SENTINEL);
        assert_true(data[count + i] == SENTINEL);
    }
}

static inline int64_t position_of(struct cpu_image image, int64_t n, int64_t c, int64_t s)
{
    const int64_t blocks = (image.c + image.block - 1) / image.block;
    const int64_t block = n * blocks + c / image.block;
    return (block * image.spatial + s) * image.block + c % image.block;
}

static inline int64_t plain_count(struct cpu_image image)
{
    return image.n * image.c * image.spatial;
}

static inline float *take_image(struct fixture *f, struct cpu_image image)
{
    return take_guarded(f, cpu_image_floats(image));
}

static inline float *pack(struct fixture *f, const float *plain, struct cpu_image image)
{
    float *data = take_image(f, image);
    memset(data, 0, (size_t)cpu_image_floats(image) * sizeof *data);
    for (int64_t n = 0; n < image.n; n++)
        for (int64_t c = 0; c < image.c; c++)
            for (int64_t s = 0; s < image.spatial; s++)
                data[position_of(image, n, c, s)] = plain[(n * image.c + c) * image.spatial + s];
    return data;
}

static inline float *unpack(struct fixture *f, const float *data, struct cpu_image image)
{
    float *plain = take(f, plain_count(image), sizeof *plain);
    const int64_t padded = (image.c + image.block - 1) / image.block * image.block;
    assert_guarded(data, cpu_image_floats(image));
    for (int64_t n = 0; n < image.n; n++)
        for (int64_t c = 0; c < padded; c++)
            for (int64_t s = 0; s < image.spatial; s++) {
                const float value = data[position_of(image, n, c, s)];
                if (c < image.c)
                    plain[(n * image.c + c) * image.spatial + s] = value;
                else
                    assert_true(value == 0);
            }
    return plain;
}

static inline void assert_same_bytes(const float *a, const float *b, int64_t count)
{
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
}

#define KERNEL_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* Runs a check over all layouts, channel counts and a few sizes; memory is given back between. */
static inline void for_each_image(struct fixture *f,
                                  void (*check)(struct fixture *f, struct cpu_image image))
{
    static const int64_t channels[] = {1, 3, 16, 17, 33, 64};
    static const int64_t blocks[] = {1, 8, 16, 0};                         /* 0: NHWC */
    static const int64_t sizes[][2] = {{5, 1}, {3, 9}, {1, 50}, {40, 16}}; /* n, spatial */
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (size_t j = 0; j < sizeof blocks / sizeof *blocks; j++)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                const struct cpu_image image = {
                    .n = sizes[k][0],
                    .c = channels[i],
                    .spatial = sizes[k][1],
                    .block = blocks[j] ? blocks[j] : channels[i],
                };
                check(f, image);
                arena_fini(&f->arena);
                arena_init(&f->arena, &f->mem);
            }
}

#endif
