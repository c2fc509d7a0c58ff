/*
 * `der nets`: the networks that can serve as extractors, one a line.
 */
#include "style.h"
#include "table.h"

#include <der/network.h>

#include <inttypes.h>
#include <stdio.h>

enum { COLOUR_CHANNELS = 3 };

static enum exit_code run(void *request)
{
    (void)request;
    struct der_ctx *ctx;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status != DER_OK)
        return fail_status(NULL, status);
    style_heading("%-16s %12s %9s  %s\n", "name", "parameters", "features", "what it is");
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

const struct command command_nets = {
    .name = "nets",
    .usage = "",
    .summary = "list the networks that can serve as extractors",
    .about =
        "Lists the networks that can serve as feature extractors, with their sizes at full width. "
        "`--set network=`NAME chooses one, `--set width=`F scales it.",
    .run = run,
};
