/*
 * `der version`: the version and what is built in, one fact a line.
 */
#include "cli.h"

#include <der/version.h>

#include <stdio.h>

static void print_part(const char *name, const char *version)
{
    printf("  %-10s %s\n", name, version[0] ? version : "not built in");
}

enum exit_code cmd_version(int argc, char **argv)
{
    if (argc > 1)
        return fail_unexpected_argument("version", argv[1]);

    const struct der_build_info *info = der_build_info();
    printf("der %s\n", info->version);
    printf("  %-10s %s, %s\n", "build", info->build_type, info->compiler);
    print_part("back ends", info->back_ends);
    print_part("formats", info->formats);
    print_part("oneDNN", info->dnnl);
    print_part("OpenMP", info->openmp);
    print_part("CUDA", info->cuda);
    print_part("downloads", info->downloads);
    return EXIT_OK;
}
