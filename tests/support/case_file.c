#include "support/case_file.h"

#include "support/test_ctx.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATH_CHARS = 1024 };

static char *read_all(const char *name, const char *ending, size_t *size)
{
    char path[PATH_CHARS];
    snprintf(path, sizeof path, "%s/data/fixtures/augment/%s.%s", DER_TESTS_DIR, name, ending);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = '\0';
    fclose(file);
    return bytes;
}

struct case_file case_open(const char *name)
{
    struct case_file file = {0};
    size_t length;
    file.text = read_all(name, "txt", &length);
    file.at = file.text;
    file.bytes = read_all(name, "bin", &file.size);
    return file;
}

bool case_next(struct case_file *file, int64_t *numbers, int n)
{
    if (*file->at == '\0')
        return false;
    for (int i = 0; i < n; i++) {
        char *end;
        numbers[i] = strtoll(file->at, &end, 10);
        assert_ptr_not_equal(end, file->at);
        file->at = end;
    }
    assert_int_equal(*file->at, '\n');
    file->at++;
    return true;
}

const void *case_data(struct case_file *file, size_t size)
{
    assert_true(file->size - file->used >= size);
    const char *data = file->bytes + file->used;
    file->used += size;
    return data;
}

void case_close(struct case_file *file)
{
    assert_int_equal(*file->at, '\0');
    assert_int_equal(file->used, file->size);
    free(file->text);
    free(file->bytes);
}

uint8_t *case_picture(int height, int width, int channels, uint32_t seed)
{
    uint8_t *pixels = malloc((size_t)height * (size_t)width * (size_t)channels);
    assert_non_null(pixels);
    uint8_t *next = pixels;
    for (uint32_t y = 0; y < (uint32_t)height; y++)
        for (uint32_t x = 0; x < (uint32_t)width; x++)
            for (uint32_t c = 0; c < (uint32_t)channels; c++) {
                uint32_t noise = (y * 73856093u) ^ (x * 19349663u) ^ (c * 83492791u);
                noise = ((noise + seed) * 2654435761u) >> 24;
                uint32_t smooth = 3 * x + 5 * y + 60 * c;
                uint32_t step = (x / 5 + y / 7) % 2 == 1 ? 90 : 0;
                *next++ = (uint8_t)(smooth + step + noise / 4);
            }
    return pixels;
}
