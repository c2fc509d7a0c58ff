/*
 * Golden cases of tools/gen_augment_fixtures.py: NAME.txt holds one case a line as whole numbers,
 * NAME.bin the results of all cases one after the other.
 *
 * For tests only: whatever is missing or wrong fails the running cmocka test.
 */
#ifndef SUPPORT_CASE_FILE_H
#define SUPPORT_CASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct case_file {
    char *text; /* the .txt, read from `at` on */
    char *at;
    char *bytes; /* the .bin, read from `used` on */
    size_t size, used;
};

struct case_file case_open(const char *name);

/* The numbers of the next case; false when there are no more cases. */
bool case_next(struct case_file *file, int64_t *numbers, int n);

/* The next `size` bytes of results, borrowed until case_close. */
const void *case_data(struct case_file *file, size_t size);

/* Fails the test unless everything was read. */
void case_close(struct case_file *file);

/* Bytes of the test picture, interleaved [height][width][channels]; caller frees with free. */
uint8_t *case_picture(int height, int width, int channels, uint32_t seed);

#endif
