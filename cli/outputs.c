#include "outputs.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

enum { PATH_SHOWN_MAX = 4096 };

static bool is_same_file(const char *a, const char *b)
{
    struct stat x;
    struct stat y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A report may lie in the folder of a run, so only what makes up the run is spared. */
static const char *const RUN_FILES[] = {"config.json",
                                        "metrics.jsonl",
                                        "model.safetensors",
                                        "exemplars.safetensors",
                                        "state.safetensors",
                                        "predictions.safetensors",
                                        "lock"};

enum exit_code outputs_spare(const char *option, const char *output, const char *input)
{
    char path[PATH_SHOWN_MAX];
    if (!output)
        return EXIT_OK;
    if (is_same_file(output, input))
        return fail(EXIT_USAGE, "--%s would replace %s, which is to be read", option, input);
    for (size_t i = 0; i < sizeof RUN_FILES / sizeof *RUN_FILES; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", input, RUN_FILES[i]);
        if (n > 0 && (size_t)n < sizeof path && is_same_file(output, path))
            return fail(EXIT_USAGE, "--%s would replace %s, which belongs to the run", option,
                        path);
    }
    return EXIT_OK;
}
