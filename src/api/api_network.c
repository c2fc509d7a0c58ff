#include <der/network.h>

#include "model/resnet.h"

/* Parameters do not depend on the size of the image; any that survives the strides will do. */
enum { SOME_IMAGE_SIZE = 32 };

int der_network_count(void)
{
    int n = 0;
    while (resnet_names()[n].name)
        n++;
    return n;
}

enum der_status der_network_describe(struct der_ctx *ctx, int index, int channels,
                                     struct der_network_info *out)
{
    *out = (struct der_network_info){0};
    if (index < 0 || index >= der_network_count())
        return ctx_fail(ctx, DER_ARG, "there is no network %d; there are %d", index,
                        der_network_count());
    const struct resnet_name *name = &resnet_names()[index];
    struct resnet_spec spec;
    TRY(resnet_spec_init(ctx, &spec, name->name, channels, SOME_IMAGE_SIZE, SOME_IMAGE_SIZE, 1.0));
    *out = (struct der_network_info){.name = name->name,
                                     .summary = name->summary,
                                     .parameters = resnet_count_params(&spec),
                                     .features = resnet_feature_dim(&spec)};
    for (int i = 0; i < resnet_mask_count(&spec); i++)
        out->maskable_channels += resnet_mask_channels(&spec, i);
    return DER_OK;
}
