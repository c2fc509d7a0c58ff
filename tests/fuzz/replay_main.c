/*
 * Stands in for libFuzzer where it is not: runs a fuzz target once on every file of a folder.
 * Each file is a test case, reported in TAP; a finding ends the program, which counts as failed.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILE_MAX = 65536, PATH_LENGTH_MAX = 4096 };

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int replay(const char *path)
{
    static uint8_t data[FILE_MAX];
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    /* A block of just that size lets the address sanitizer see a read behind its end. */
    uint8_t *exact = malloc(size > 0 ? size : 1);
    if (!exact)
        return -1;
    memcpy(exact, data, size);
    int result = LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return result;
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    int n = argc == 2 ? scandir(argv[1], &entries, is_visible, alphasort) : -1;
    if (n < 1) {
        fprintf(stderr, "usage: %s FOLDER (with at least one file)\n", argv[0]);
        return 2;
    }

    int n_failed = 0;
    printf("1..%d\n", n);
    for (int i = 0; i < n; i++) {
        char path[PATH_LENGTH_MAX];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        fflush(stdout);
        int result = replay(path);
        n_failed += result != 0;
        printf("%sok %d - %s\n", result != 0 ? "not " : "", i + 1, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return n_failed > 0;
}
