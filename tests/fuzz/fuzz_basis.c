/*
 * Fuzz target: a basis file is refused with a sentence, or it has the network that was asked for and settings
 * within their ranges.
 */
#include "fuzz_file.h"
#include "store/basis_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct resnet_spec spec = {.in_channels = 1,
                                            .height = 4,
                                            .width = 4,
                                            .n_stages = 1,
                                            .n_blocks = {1},
                                            .stream = {1},
                                            .inner = {{1}}};
    struct der_ctx *ctx = input_ctx();
    struct backend *be;
    struct basis basis;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = input_calls(&input);
    require(backend_open(ctx, "ref", NULL, &be) == DER_OK);
    enum der_status status = basis_read(be, &io, "fuzz", &spec, &basis);
    if (status == DER_OK) {
        require(basis.last_full && basis.memory >= 1 && basis.target_params >= 0);
    } else {
        require(!basis.last_full);
        check_refusal(ctx, status);
    }
    basis_fini(&basis);
    backend_close(be);
    input_end(ctx, &input);
    return 0;
}
