/*
 * Fuzz target: a file of weights is refused with a sentence, or the smallest network there is gets finite weights
 * and variances from it that have a root.
 */
#include "fuzz_file.h"
#include "store/weights_file.h"

#include <math.h>

static const struct resnet_spec SPEC = {.stem = RESNET_STEM_3X3,
                                        .in_channels = 1,
                                        .height = 4,
                                        .width = 4,
                                        .n_stages = 1,
                                        .n_blocks = {1},
                                        .stream = {1},
                                        .inner = {{1}}};

static void check_weights(const struct param_set *set)
{
    for (int i = 0; i < set->n; i++) {
        float values[9];
        require(param_read(set, i, values) == DER_OK);
        for (int64_t k = 0; k < shape_count(set->items[i].shape); k++)
            require(isfinite(values[k]) &&
                    (i % PARAMS_PER_LAYER != LAYER_VAR || values[k] >= 0.0F));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = input_ctx();
    struct backend *be;
    struct extractor *extractor;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = input_calls(&input);
    struct weights_options options = {.path = "fuzz", .io = &io};
    struct weights_match match;
    require(backend_open(ctx, "ref", NULL, &be) == DER_OK);
    require(extractor_new(be, &SPEC, &extractor) == DER_OK);
    enum der_status status = weights_load(&options, extractor, &match);
    if (status == DER_OK) {
        require(match.n_used == extractor->params->n && match.n_ignored >= 0);
        check_weights(extractor->params);
    } else {
        check_refusal(ctx, status);
    }
    extractor_free(extractor);
    backend_close(be);
    input_end(ctx, &input);
    return 0;
}
