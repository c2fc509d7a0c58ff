/*
 * `der version`: the version and what is built in, one fact a line.
 */
#include "cache_dir.h"
#include "table.h"

#include <der/version.h>

#include <stdio.h>

static void print_part(const char *name, const char *version)
{
    printf("  %-10s %s\n", name, version[0] ? version : "not built in");
}

static enum exit_code run(void *request)
{
    (void)request;
    char path[CACHE_DIR_MAX];
    const char *cache = cache_dir(path);
    const struct der_build_info *info = der_build_info();
    printf("der %s\n", info->version);
    printf("  %-10s %s, %s\n", "build", info->build_type, info->compiler);
    print_part("back ends", info->back_ends);
    print_part("formats", info->formats);
    print_part("oneDNN", info->dnnl);
    print_part("OpenMP", info->openmp);
    print_part("CUDA", info->cuda);
    print_part("downloads", info->downloads);
    printf("  %-10s %s\n", "cache", cache ? cache : "none");
    return EXIT_OK;
}

const struct command command_version = {
    .name = "version",
    .usage = "",
    .summary = "show the version and what is built in",
    .about = "Shows the version, the compiler, the back ends that `--device` takes, the file "
             "formats and the "
             "libraries that are built in, and the folder for compiled kernels.",
    .run = run,
};
