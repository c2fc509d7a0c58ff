#include "support/cuda/thin_tiles.h"

void try_thin_parts(const struct conv_layer *layer, bool backwards,
                    const struct cuda_thin_tile *tile, thin_trial trial)
{
    enum { MOST = 256 };
    const struct cuda_conv_shape shape = conv_layer_shape(layer);
    const int boxes = cuda_thin_boxes(&shape, backwards, tile);
    trial(layer, tile, boxes < MOST ? boxes : MOST);
    trial(layer, tile, (boxes + 6) / 7);
}

int try_thin_tiles(const struct conv_layer *layers, int n_layers, bool backwards, thin_trial trial)
{
    enum { SHARED = 99 << 10, TILES = 3 * 4 * 3 };
    int n_tiles = 0;
    for (int i = 0; i < n_layers * TILES; i++) {
        const struct conv_layer *layer = &layers[i / TILES];
        const struct cuda_conv_shape shape = conv_layer_shape(layer);
        const struct cuda_thin_tile tile = {.rows = 1 << i % 3,
                                            .warps = 1 << i / 3 % 4,
                                            .columns = 16 << i / 12 % 3,
                                            .chunk = 32,
                                            .stages = 2};
        const size_t shared = cuda_thin_shared(&shape, backwards, false, &tile);
        if (shared == 0 || shared > SHARED)
            continue;
        try_thin_parts(layer, backwards, &tile, trial);
        n_tiles++;
    }
    return n_tiles;
}
