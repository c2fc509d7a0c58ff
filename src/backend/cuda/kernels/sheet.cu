/*
 * Launches of sheet.cuh: how shared memory is laid out, and what tells the copy engine where arrays lie.
 *
 * Compiled for sm_90a alone, whatever the other kernels are compiled for.
 */
#include "backend/cuda/kernels/box_map.cuh"
#include "backend/cuda/kernels/sheet.cuh"

/* ---- kernels --------------------------------------------------------------------------------------- */

typedef void (*sheet_function)(const struct sheet_args, const struct sheet_maps);

/* NULL: there is none. */
static sheet_function function_of(const struct cuda_sheet_tile *tile)
{
    static const struct {
        int columns, sheets;
        sheet_function function;
    } kernels[] = {
        {32, 1, sheet_kernel<32, 1>},   {32, 2, sheet_kernel<32, 2>},
        {48, 1, sheet_kernel<48, 1>},   {64, 1, sheet_kernel<64, 1>},
        {80, 1, sheet_kernel<80, 1>},   {96, 1, sheet_kernel<96, 1>},
        {112, 1, sheet_kernel<112, 1>}, {128, 1, sheet_kernel<128, 1>},
        {48, 2, sheet_kernel<48, 2>},   {64, 2, sheet_kernel<64, 2>},
        {80, 2, sheet_kernel<80, 2>},
    };
    for (const auto &k : kernels)
        if (k.columns == tile->columns && k.sheets == tile->sheets)
            return k.function;
    return NULL;
}

/* ---- shared memory ---------------------------------------------------------------------------------- */

static int whole_atoms(int bytes)
{
    return (bytes + ATOM - 1) / ATOM * ATOM;
}

/* steps: of a piece. */
static struct sheet_rows rows_of(const struct sheet_layout &l, int pieces, int steps, int columns,
                                 int stride)
{
    struct sheet_rows r = {};
    r.pieces = pieces;
    r.steps = steps;
    r.row = steps == 1 ? 32 : steps == 2 ? 64 : 128;
    r.picture_piece = whole_atoms(l.pitch * l.pitch * l.images_each * r.row);
    r.weights_piece = columns * r.row;
    r.pixels_high = descriptor_high(r.row, (l.images_each > 1 ? SIDE : l.pitch) * r.row);
    r.weights_high = descriptor_high(r.row, SIDE * r.row);
    for (int tap = 0; tap < l.taps; tap++) {
        const int part = l.parts == 4 ? tap / 3 % 2 * 2 + tap % 3 % 2 : 0;
        const int pixel = tap / 3 / stride * l.pitch + tap % 3 / stride;
        r.tap[tap] = (part * r.picture_piece + pixel * l.images_each * r.row) / WORD;
    }
    return r;
}

/* Pictures smaller than a sheet lie between each other. */
static int images_each(const struct cuda_conv_shape *s)
{
    return s->out_h < SIDE ? SIDE : 1;
}

static int pitch_of(const struct cuda_conv_shape *s)
{
    return (int)s->out_h + (s->r == 1 ? 0 : s->stride == 2 ? 1 : 2);
}

/* Where they do, borders between the first pixel and the last one are in sheets. */
static int sheets_each(const struct cuda_conv_shape *s, int pitch)
{
    const int across = (int)s->out_h / SIDE;
    const int pixels = ((int)s->out_h - 1) * pitch + (int)s->out_h;
    return across > 0 ? across * across : (pixels + SIDE - 1) / SIDE;
}

static struct sheet_layout layout_of(const struct cuda_conv_shape *s,
                                     const struct cuda_sheet_tile *tile)
{
    const int steps = (int)s->c / CHANNELS;
    const int stride = (int)s->stride;
    struct sheet_layout l = {};
    l.images = (int)s->n;
    l.size = (int)s->out_h;
    l.from = (int)s->c;
    l.to = (int)s->k;
    l.pictures = tile->pictures;
    l.taps = (int)(s->r * s->s);
    l.first = -(int)s->pad;
    l.parts = l.taps > 1 && stride == 2 ? 4 : 1;
    l.pitch = pitch_of(s);
    l.images_each = images_each(s);
    l.sheets_each = sheets_each(s, l.pitch);
    l.whole = rows_of(l, steps / PIECE_STEPS, PIECE_STEPS, tile->columns, stride);
    l.rest = rows_of(l, steps % PIECE_STEPS > 0, steps % PIECE_STEPS, tile->columns, stride);
    l.rest.picture_at = l.whole.pieces * l.parts * l.whole.picture_piece;
    l.rest.weights_at = l.whole.pieces * l.whole.weights_piece;
    l.picture = l.rest.picture_at + l.rest.pieces * l.parts * l.rest.picture_piece;
    l.pictures_bytes = l.pictures * l.images_each * l.parts * l.pitch * l.pitch *
                       (l.whole.pieces * l.whole.row + l.rest.pieces * l.rest.row);
    l.slot_bytes = l.rest.weights_at + l.rest.pieces * l.rest.weights_piece;
    l.slots = tile->slots;
    l.slot = whole_atoms(l.slot_bytes);
    l.weights_at = l.pictures * l.picture;
    l.bias_at = l.weights_at + l.slots * l.slot;
    l.barriers_at = l.bias_at + tile->columns * (int)sizeof(float);
    return l;
}

static bool is_known(const struct cuda_conv_shape *s)
{
    const bool is_kernel =
        (s->r == 3 && s->s == 3 && s->pad == 1) || (s->r == 1 && s->s == 1 && s->pad == 0);
    const bool is_picture = s->h == s->w && s->out_h == s->out_w && s->h == s->out_h * s->stride &&
                            (s->out_h == 4 || s->out_h == 8 || s->out_h == 16);
    const bool is_counted = s->n >= 1 && s->n <= INT32_MAX / 2 / (32 * 32); /* pixels, in an int */
    return s->type == CUDA_BF16 && is_kernel && is_picture && is_counted &&
           (s->stride == 1 || s->stride == 2) && s->c > 0 && s->c <= 512 && s->k > 0 &&
           s->k <= 512 && s->c % CHANNELS == 0 && s->k % CHANNELS == 0;
}

/* Threads of a block; 0: its pictures are not what groups of warps can share. */
static int threads_of(const struct cuda_conv_shape *s, const struct cuda_sheet_tile *tile)
{
    const int sheets = tile->pictures * sheets_each(s, pitch_of(s));
    const int threads = sheets % tile->sheets == 0 ? sheets / tile->sheets * 128 : 0;
    return threads <= 512 / tile->sheets ? threads : 0;
}

size_t cuda_sheet_shared(const struct cuda_conv_shape *shape, const struct cuda_sheet_tile *tile)
{
    enum { MOST = 227 << 10 };
    if (!is_known(shape) || !function_of(tile) || tile->pictures < 1 || tile->pictures > 8 ||
        threads_of(shape, tile) == 0 || tile->slots < 2 || tile->slots > MOST_TAPS)
        return 0;
    const struct sheet_layout l = layout_of(shape, tile);
    const int bytes = l.barriers_at + (1 + 2 * l.slots) * 8;
    return bytes <= MOST ? (size_t)bytes : 0;
}

/* ---- maps for the copy engine ------------------------------------------------------------------------ */

/* [n, h, w, from]: a picture with its border, or one of its four parts; or eight of them, images before pixels. Then
 * steps do not grow from dimension to dimension, which the copy engine does not mind. */
static cudaError_t map_pixels(CUtensorMap *map, const struct cuda_conv_shape *s,
                              const struct sheet_layout &l, const struct sheet_rows &rows,
                              const void *src)
{
    const cuuint64_t pixel = (cuuint64_t)s->c * 2;
    const cuuint64_t width = (cuuint64_t)s->w;
    const cuuint32_t stride = (cuuint32_t)s->stride;
    const cuuint32_t box_size = stride * ((cuuint32_t)l.pitch - 1) + 1;
    const cuuint64_t image = width * width * pixel;
    const cuuint64_t n = (cuuint64_t)s->n;
    const cuuint64_t channels = (cuuint64_t)s->c;
    const cuuint32_t row = (cuuint32_t)rows.row / 2;
    if (rows.pieces == 0)
        return cudaSuccess;
    if (l.images_each == 1)
        return make_map(map, src, {channels, width, width, n}, {pixel, width * pixel, image},
                        {row, box_size, box_size, 1}, {1, stride, stride, 1});
    return make_map(map, src, {channels, n, width, width}, {image, pixel, width * pixel},
                    {row, SIDE, box_size, box_size}, {1, 1, stride, stride});
}

/* [k, taps, c]: channels of one tap. Of sixteen rows, lane i % 4 of a product has sums of columns 2 * i, the next, and
 * those eight further on; they are to be rows 4 * i to 4 * i + 3. */
static cudaError_t map_weights(CUtensorMap *map, const struct sheet_layout &l,
                               const struct sheet_rows &rows, int columns, const void *weights)
{
    const cuuint64_t channels = (cuuint64_t)(l.taps * l.from); /* of all taps */
    const cuuint64_t row = channels * 2;
    const cuuint64_t sizes[] = {channels, 2, 4, 2, (cuuint64_t)l.to / CHANNELS};
    const cuuint64_t steps[] = {row, 4 * row, 2 * row, CHANNELS * row};
    const cuuint32_t box[] = {(cuuint32_t)rows.row / 2, 2, 4, 2, (cuuint32_t)columns / CHANNELS};
    return rows.pieces > 0 ? make_map(map, weights, sizes, steps, box, {1, 1, 1, 1, 1})
                           : cudaSuccess;
}

static cudaError_t make_maps(struct sheet_maps *maps, const struct cuda_conv_shape *s,
                             const struct sheet_layout &l, int columns,
                             const struct cuda_thin *operands)
{
    cudaError_t error = map_pixels(&maps->whole_pixels, s, l, l.whole, operands->src);
    if (error == cudaSuccess)
        error = map_pixels(&maps->rest_pixels, s, l, l.rest, operands->src);
    if (error == cudaSuccess)
        error = map_weights(&maps->whole_weights, l, l.whole, columns, operands->weights);
    if (error == cudaSuccess)
        error = map_weights(&maps->rest_weights, l, l.rest, columns, operands->weights);
    return error;
}

/* ---- launching --------------------------------------------------------------------------------------- */

cudaError_t cuda_sheet(const struct cuda_conv_shape *shape, const struct cuda_sheet_tile *tile,
                       const struct cuda_thin *operands, cudaStream_t stream)
{
    const size_t shared = cuda_sheet_shared(shape, tile);
    if (shared == 0)
        return cudaErrorInvalidValue;
    const sheet_function function = function_of(tile);
    const struct sheet_args a = {layout_of(shape, tile), (bf16 *)operands->dst, operands->bias,
                                 (const bf16 *)operands->residual, operands->relu};
    const int64_t images = tile->pictures * images_each(shape);
    const dim3 grid((unsigned)((shape->n + images - 1) / images),
                    (unsigned)((shape->k + tile->columns - 1) / tile->columns));
    struct sheet_maps maps = {};
    cudaError_t error = make_maps(&maps, shape, a.layout, tile->columns, operands);
    if (error == cudaSuccess)
        error = allow_shared((const void *)function);
    if (error != cudaSuccess)
        return error;
    function<<<grid, (unsigned)threads_of(shape, tile), shared, stream>>>(a, maps);
    return cudaGetLastError();
}
