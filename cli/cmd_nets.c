/*
 * `der nets`: the networks that can serve as extractors, one a line.
 */
#include "cli.h"

#include <der/network.h>

#include <inttypes.h>
#include <stdio.h>

enum { COLOUR_CHANNELS = 3 };

enum exit_code cmd_nets(int argc, char **argv)
{
    if (argc > 1)
        return fail_unexpected_argument("nets", argv[1]);

    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    printf("%-16s %12s %9s  %s\n", "name", "parameters", "features", "what it is");
    for (int i = 0; i < der_network_count() && status == DER_OK; i++) {
        struct der_network_info info;
        status = der_network_describe(ctx, i, COLOUR_CHANNELS, &info);
        if (status == DER_OK)
            printf("%-16s %12" PRId64 " %9d  %s\n", info.name, info.parameters, info.features,
                   info.summary);
    }
    enum exit_code code = status == DER_OK ? EXIT_OK : fail_status(ctx, status);
    der_ctx_free(ctx);
    return code;
}
