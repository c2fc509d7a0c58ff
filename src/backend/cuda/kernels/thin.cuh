/*
 * How the kernels for thin layers cut up an image: a block owns a box of result pixels, 2^x by 2^y of 2^z
 * images, and has the source pixels that these look at in shared memory once, whatever the number of taps.
 *
 * A tap is then a constant distance from the address of a pixel. Source columns of strided layers lie sorted,
 * even ones first, so that neighbouring results read neighbouring addresses; pixels are an odd number of
 * 16-byte words apart, and rows of narrow boxes are moved apart, so that eight pixels meet all banks.
 *
 * Backwards through a strided layer a box counts places of the smaller image, each of which has 2 x 2 pixels of the
 * result: every tap of the kernel belongs to one of these four and to one of 2 x 2 places.
 */
#ifndef CUDA_THIN_CUH
#define CUDA_THIN_CUH

#include "backend/cuda/kernels/mma.cuh"

enum { MAX_TAPS = 9, WORD = 16 /* bytes */, WORD_CHANNELS = 8, STEP = 16 /* of a product */ };

enum { MAX_LOG_PLACES = 9 }; /* of a box */

/* Division by a number that the host knows, right while the product of both is below 2^32. */
struct divider {
    unsigned by, magic; /* magic: 2^32 / by, rounded up; 0 stands for 2^32 */
};

static inline struct divider divider_of(int by)
{
    const struct divider d = {(unsigned)by, (unsigned)((0x100000000ull + by - 1) / by)};
    return d;
}

__device__ inline int divide(int x, const struct divider &d)
{
    return d.magic ? (int)__umulhi((unsigned)x, d.magic) : x;
}

struct thin_box {
    int n, h, w, c;           /* of the source */
    int out_h, out_w;         /* of the result */
    int spread;               /* 2: a place is 2 x 2 pixels of the result; else 1 */
    int log_w, log_h, places; /* of a box: 2^log_w by 2^log_h, so many places in all */
    int across, down;         /* boxes */
    int boxes;                /* of all images */
    int step;                 /* source pixels from place to place */
    int pad;
    int fetch_step;                          /* between source pixels that are looked at */
    int fetch_h, fetch_w;                    /* source pixels that a box looks at, in one image */
    bool sorted;                             /* even columns first */
    int fetched;                             /* in all images */
    int turn;                                /* of them that all threads fetch at a time */
    int turn_images, turn_rows, turn_columns; /* the same, as a distance */
    int chunk;                               /* channels at a time */
    int pixel_pitch, row_pitch, image_pitch; /* bytes */
    int step_pitch;                          /* from one row of places to the next */
    int tap_at[MAX_TAPS];                    /* bytes; by the tap of the weights */
    struct divider per_pixel;                /* words */
    struct divider per_row, per_image;       /* pixels */
    struct divider by_across, by_down;
};

static inline int log2_above(int64_t x, int most)
{
    int log = 0;
    while (log < most && (int64_t)1 << log < x)
        log++;
    return log;
}

/* Bytes to add so that `times` pitches are `words` words apart, as far as the banks can tell. */
static inline int bank_shift(int pitch, int times, int words)
{
    for (int shift = 0; shift < 8; shift++)
        if ((times * (pitch / WORD + shift) - words) % 8 == 0)
            return shift * WORD;
    return 0;
}

/* What a place looks at, forwards or backwards. */
static inline void look(struct thin_box *b, const struct cuda_conv_shape *shape, bool backwards,
                        int *window)
{
    const bool is_strided = shape->stride > 1;
    *window = (int)shape->r;
    b->n = (int)shape->n;
    b->spread = 1;
    if (!backwards) {
        b->h = (int)shape->h, b->w = (int)shape->w, b->c = (int)shape->c;
        b->out_h = (int)shape->out_h, b->out_w = (int)shape->out_w;
        b->step = (int)shape->stride;
        b->pad = (int)shape->pad;
        return;
    }
    b->h = (int)shape->out_h, b->w = (int)shape->out_w, b->c = (int)shape->k;
    b->out_h = (int)shape->h, b->out_w = (int)shape->w;
    b->step = 1;
    b->pad = is_strided ? 0 : *window - 1 - (int)shape->pad;
    b->spread = is_strided ? 2 : 1;
    *window = is_strided ? (*window + 1) / 2 : *window;
}

static inline int column_at(const struct thin_box *b, int column)
{
    return b->sorted ? column % 2 * ((b->fetch_w + 1) / 2) + column / 2 : column;
}

/* A tap of the kernel is row r of the window forwards, row size - 1 - r backwards; through strides of 2 the first of
 * three rows is the second of two. */
static inline void place_taps(struct thin_box *b, int size, bool backwards)
{
    for (int tap = 0; tap < size * size; tap++) {
        int r = tap / size;
        int s = tap % size;
        if (b->spread > 1)
            r = size > 1 && r == 0, s = size > 1 && s == 0;
        else if (backwards)
            r = size - 1 - r, s = size - 1 - s;
        b->tap_at[tap] = r * b->row_pitch + column_at(b, s) * b->pixel_pitch;
    }
}

/* Of the channels of the source `chunk` are in shared memory at a time. */
static inline struct thin_box thin_box_of(const struct cuda_conv_shape *shape, bool backwards,
                                          int log_places, int chunk, int threads)
{
    struct thin_box b = {};
    int window;
    look(&b, shape, backwards, &window);
    const int grid_w = (b.out_w + b.spread - 1) / b.spread;
    const int grid_h = (b.out_h + b.spread - 1) / b.spread;
    b.log_w = log2_above(grid_w, log_places > 6 ? 4 : 3);
    b.log_h = log2_above(grid_h, log_places - b.log_w);
    b.places = 1 << log_places;
    b.across = (grid_w + (1 << b.log_w) - 1) >> b.log_w;
    b.down = (grid_h + (1 << b.log_h) - 1) >> b.log_h;
    const int images = 1 << (log_places - b.log_w - b.log_h);
    b.boxes = (b.n + images - 1) / images * b.across * b.down;
    b.fetch_step = window == 1 ? b.step : 1;
    b.sorted = window > 1 && b.step > 1;
    const int apart = b.step / b.fetch_step; /* places, in source pixels that are fetched */
    b.fetch_w = apart * ((1 << b.log_w) - 1) + window;
    b.fetch_h = apart * ((1 << b.log_h) - 1) + window;
    b.fetched = images * b.fetch_h * b.fetch_w;
    b.turn = threads / (chunk / WORD_CHANNELS);
    b.turn_images = b.turn / (b.fetch_h * b.fetch_w);
    b.turn_rows = b.turn / b.fetch_w % b.fetch_h;
    b.turn_columns = b.turn % b.fetch_w;
    b.chunk = chunk;
    b.pixel_pitch = chunk * 2 + WORD;
    const int odd = b.pixel_pitch / WORD;
    b.row_pitch = b.fetch_w * b.pixel_pitch;
    if (b.log_w < 3)
        b.row_pitch += bank_shift(b.row_pitch, apart, odd << b.log_w);
    b.step_pitch = apart * b.row_pitch;
    b.image_pitch = b.fetch_h * b.row_pitch;
    if (b.log_w + b.log_h < 3)
        b.image_pitch += bank_shift(b.image_pitch, 1, odd << (b.log_w + b.log_h));
    place_taps(&b, (int)shape->r, backwards);
    b.per_pixel = divider_of(chunk / WORD_CHANNELS);
    b.per_row = divider_of(b.fetch_w);
    b.per_image = divider_of(b.fetch_h * b.fetch_w);
    b.by_across = divider_of(b.across);
    b.by_down = divider_of(b.down);
    return b;
}

static inline size_t thin_box_bytes(const struct thin_box *b)
{
    return (size_t)(b->places >> (b->log_w + b->log_h)) * (size_t)b->image_pitch;
}

/* Where a box begins. */
struct box_place {
    int n, y, x;
};

__device__ inline struct box_place place_of(const struct thin_box &b, int index)
{
    const int images = b.places >> (b.log_w + b.log_h);
    const int row = divide(index, b.by_across);
    const int image = divide(row, b.by_down);
    const struct box_place at = {image * images, (row - image * b.down) << b.log_h,
                                 (index - row * b.across) << b.log_w};
    return at;
}

/* Pixel `corner` (0 to 3 where places are spread, else 0) of place i of a box, as it is counted in the whole
 * result; -1: there is none. */
__device__ inline int result_pixel(const struct thin_box &b, const struct box_place &at, int i,
                                   int corner = 0)
{
    const int x = (at.x + (i & ((1 << b.log_w) - 1))) * b.spread + corner % 2;
    const int y = (at.y + (i >> b.log_w & ((1 << b.log_h) - 1))) * b.spread + corner / 2;
    const int n = at.n + (i >> (b.log_w + b.log_h));
    return n < b.n && y < b.out_h && x < b.out_w ? (n * b.out_h + y) * b.out_w + x : -1;
}

/* Bytes from the start of the box's memory to the first source pixel that place i looks at. */
__device__ inline int source_at(const struct thin_box &b, int i)
{
    return (i >> (b.log_w + b.log_h)) * b.image_pitch +
           (i >> b.log_w & ((1 << b.log_h) - 1)) * b.step_pitch +
           (i & ((1 << b.log_w) - 1)) * b.pixel_pitch;
}

/* Begins to copy `width` channels from `first` on of all source pixels of a box; zeros where there are none. A thread
 * copies the same word of every `turn`th pixel. */
__device__ inline void fetch_box(const struct thin_box &b, const struct box_place &at, unsigned to,
                                 const bf16 *src, int first, int width)
{
    int pixel = divide(threadIdx.x, b.per_pixel);
    const int word = (int)threadIdx.x - pixel * (int)b.per_pixel.by;
    int image = divide(pixel, b.per_image);
    const int within = pixel - image * (int)b.per_image.by;
    int row = divide(within, b.per_row);
    int column = within - row * b.fetch_w;
    const int y0 = at.y * b.step - b.pad;
    const int x0 = at.x * b.step - b.pad;
    const int half = (b.fetch_w + 1) / 2;
    const bool is_wanted = word * WORD_CHANNELS < width;
    to += word * WORD;
    first += word * WORD_CHANNELS;
    if (pixel >= b.turn)
        return;
    for (; pixel < b.fetched; pixel += b.turn) {
        const int n = at.n + image;
        const int y = y0 + row * b.fetch_step;
        const int x = x0 + column * b.fetch_step;
        const bool exists = is_wanted && n < b.n && (unsigned)y < (unsigned)b.h &&
                            (unsigned)x < (unsigned)b.w;
        const int place = b.sorted ? (column & 1) * half + column / 2 : column;
        const int from = exists ? (n * b.h + y) * b.w + x : 0;
        copy_16<false>(to + image * b.image_pitch + row * b.row_pitch + place * b.pixel_pitch,
                       src + (int64_t)from * b.c + first, exists);
        column += b.turn_columns;
        row += b.turn_rows;
        image += b.turn_images;
        if (column >= b.fetch_w)
            column -= b.fetch_w, row++;
        if (row >= b.fetch_h)
            row -= b.fetch_h, image++;
    }
}

#endif
