/*
 * Which algorithm and which layout a convolution gets: a fixed rule of its shape and of what the
 * oneDNN at hand can do, never of a timing, so that the same settings always run the same kernels.
 *
 * Measured with two threads of an AVX-512 machine, batch 128, in milliseconds: forward training /
 * back to src / back to weights / folded with sum and ReLU. nhwc means that images of one block,
 * which are NHWC already, are also described so: other kernels take them then.
 *
 *                          oneDNN 2.6                                   oneDNN 3.2
 *                   direct               nhwc                Winograd             direct
 *   64->64   @32    41 / 41 / 50 / 41    42 / 44 / 46 / 43   18 / 18 / 24 / 22    41 / 41 / 50 / 41
 *   128->128 @16    39 / 39 / 44 / 39    41 / 40 / 43 / 42   18 / 16 / 17 / 17    39 / 39 / 44 / 39
 *   256->256 @8     36 / 35 / 41 / 36    37 / 36 / 40 / 37   15 / 15 / 15 / 15    36 / 36 / 41 / 36
 *   512->512 @4     30 / 31 / 44 / 30    36 / 31 / 42 / 37   15 / 15 / 17 / 14    30 / 31 / 44 / 30
 *   64->128 s2      22 / 22 / 23 / 23    22 / 23 / 26 / 23   -                    22 / 22 / 23 / 23
 *   16->16   @32    3.5/ 2.6/ 3.1/ 3.6   2.8/ 2.6/ 2.6/ 2.9  3.5/ 3.5/ 2.1/ 4.0   3.5/ 2.5/ 3.1/ 3.5
 *   32->32   @16    2.4/ 2.4/ 2.7/ 2.4   2.5/ 2.4/ 2.6/ 2.5  1.4/ 1.4/ 1.6/ 1.9   2.4/ 2.4/ 2.7/ 2.4
 *   64->64   @8     2.3/ 2.3/ 2.9/ 2.3   2.2/ 2.3/ 2.4/ 2.3  1.1/ 1.1/ 1.3/ 1.2   2.2/ 2.3/ 2.9/ 2.3
 *
 * cpu_winograd() in the same terms, forward / folded, of which one thread takes twice as long
 * (weights prepared): 64->64 @32 18 / 18, 128->128 16, 256->256 15, 512->512 19, 16->16 @32 1.3,
 * 32->32 @16 1.0, 64->64 @8 0.9. It stands alone where oneDNN has no Winograd.
 *
 * oneDNN's own choice (convolution_auto) declines Winograd backward to thin weights, and takes
 * NHWC kernels without Winograd as soon as a convolution has post-ops; hence the explicit choice.
 * With few tiles Winograd drowns in transforming the weights, except where they are prepared once:
 * 512->512 @4, batch 1, forward 2.1 against 0.26, folded 0.15 against 0.26.
 *
 * That is a layer run again and again. Ten pruned extractors on one picture find their weights out of the
 * caches, and then fewer bytes win. One thread of another machine, within the whole, folded, in microseconds:
 *
 *                        cpu_direct()   cpu_winograd()   oneDNN 2.6
 *   148->117 @4              82              380
 *   103->81  @8             123              205
 *   60->53   @16              -               91
 *   81->78   @8 s2           27                -             47
 *   53->103  @16 s2          82                -            104
 *   32->76   @32 s2         137                -            129
 *   32->53   @32 1x1 s2      19                -             17
 *   3->32    @32             44               78             32
 *
 * Where oneDNN is no slower its kernels still have to be made, which a first prediction waits for; and programs
 * without it can run side by side.
 */
#include "backend/cpu/cpu.h"

#include <assert.h>

enum {
    WINOGRAD_TILE = 4,           /* outputs per side */
    WINOGRAD_MIN_TILES = 32,     /* below, transforming weights costs more than it saves */
    THIN = 16,                   /* channels of one AVX-512 register */
    OWN_MAX_KERNELS = 256 * 256, /* transformed weights that still come and go through the caches */
    DIRECT_MAX_TILES = 4,        /* up to here Winograd waits for its weights */
    DIRECT_MAX_PIXELS = 1024,    /* up to here oneDNN's kernels do not come into their own */
};

bool cpu_is_conv(enum op op)
{
    return op == OP_CONV2D || op == OP_CONV2D_AFFINE || op == OP_CONV2D_D_SRC ||
           op == OP_CONV2D_D_WEIGHTS;
}

enum conv_pass cpu_conv_pass(enum op op)
{
    switch (op) {
    case OP_CONV2D_AFFINE:
        return CONV_FOLDED;
    case OP_CONV2D_D_SRC:
        return CONV_BACK_SRC;
    case OP_CONV2D_D_WEIGHTS:
        return CONV_BACK_WEIGHTS;
    default:
        return CONV_FORWARD;
    }
}

struct conv_operands cpu_conv_operands(const struct node *node)
{
    switch (node->op) {
    case OP_CONV2D_D_SRC:
        return (struct conv_operands){node->out[0], node->in[CONV_D_SRC_WEIGHTS],
                                      node->in[CONV_D_SRC_D_DST]};
    case OP_CONV2D_D_WEIGHTS:
        return (struct conv_operands){node->in[CONV_D_WEIGHTS_SRC], node->out[0],
                                      node->in[CONV_D_WEIGHTS_D_DST]};
    default:
        assert(cpu_is_conv(node->op));
        return (struct conv_operands){node->in[CONV_SRC], node->in[CONV_WEIGHTS], node->out[0]};
    }
}

struct conv_geometry cpu_conv_geometry(struct shape src, struct shape weights, struct shape dst,
                                       const struct conv_attr *attr)
{
    return (struct conv_geometry){
        .n = src.dim[0],
        .c = src.dim[1],
        .h = src.dim[2],
        .w = src.dim[3],
        .k = dst.dim[1],
        .out_h = dst.dim[2],
        .out_w = dst.dim[3],
        .r = weights.dim[2],
        .s = weights.dim[3],
        .stride = attr->stride,
        .pad = attr->pad,
    };
}

static bool is_body(const struct conv_geometry *g)
{
    return g->r == 3 && g->s == 3 && g->stride == 1 && g->pad == 1;
}

static int64_t count_tiles(const struct conv_geometry *g)
{
    return g->n * ((g->out_h + WINOGRAD_TILE - 1) / WINOGRAD_TILE) *
           ((g->out_w + WINOGRAD_TILE - 1) / WINOGRAD_TILE);
}

static bool is_small(const struct conv_geometry *g)
{
    return g->n * g->out_h * g->out_w <= DIRECT_MAX_PIXELS;
}

bool cpu_conv_wants_direct(const struct conv_spec *spec)
{
    const struct conv_geometry *g = &spec->geometry;
    if (spec->pass != CONV_FOLDED || spec->dst_block != THIN || g->r != g->s ||
        !cpu_direct_available(g->stride))
        return false;
    if (spec->src_block != THIN && (spec->src_block != 1 || g->c > THIN))
        return false;
    return is_body(g) && g->c >= THIN ? count_tiles(g) <= DIRECT_MAX_TILES : is_small(g);
}

bool cpu_conv_wants_winograd(const struct conv_spec *spec)
{
    const struct conv_geometry *g = &spec->geometry;
    if (!is_body(g) || spec->src_block != THIN || spec->dst_block != THIN ||
        spec->pass == CONV_BACK_WEIGHTS || !cpu_winograd_available())
        return false;
    bool fits = g->c * g->k <= OWN_MAX_KERNELS;
    bool prepared = spec->pass == CONV_FOLDED && fits;
    return (fits || !shim_has_winograd()) && (prepared || count_tiles(g) >= WINOGRAD_MIN_TILES);
}

/* oneDNN is asked the same question for all passes, so that they agree; it need not be asked about what own
 * kernels do in a program of few pixels. */
enum der_status cpu_conv_prefers(struct cpu_backend *be, enum conv_pass pass,
                                 const struct conv_geometry *geometry, int64_t *src_block,
                                 int64_t *dst_block)
{
    struct conv_spec own = {
        .pass = pass, .geometry = *geometry, .src_block = THIN, .dst_block = THIN};
    if (cpu_conv_wants_direct(&own) || (is_small(geometry) && cpu_conv_wants_winograd(&own))) {
        *src_block = *dst_block = THIN;
        return DER_OK;
    }
    struct conv_spec spec = {.pass = CONV_FORWARD,
                             .geometry = *geometry,
                             .src_block = BLOCK_ANY,
                             .dst_block = BLOCK_ANY};
    return shim_conv_layouts(be->shim, &spec, src_block, dst_block);
}

static bool wants_winograd(const struct conv_spec *spec, bool thin)
{
    const struct conv_geometry *g = &spec->geometry;
    if (!shim_has_winograd() || g->c < THIN || g->k < THIN)
        return false;
    if (spec->pass == CONV_FOLDED)
        return !thin;
    return count_tiles(g) >= WINOGRAD_MIN_TILES && (!thin || spec->pass == CONV_BACK_WEIGHTS);
}

int cpu_conv_choices(const struct conv_spec *spec, struct conv_spec choices[CONV_MAX_CHOICES])
{
    const struct conv_geometry *g = &spec->geometry;
    bool thin = g->c <= THIN && g->k <= THIN;
    bool one_block = spec->src_block == g->c && spec->dst_block == g->k && g->c > 1;
    int n = 0;
    if (is_body(g) && wants_winograd(spec, thin)) {
        choices[n] = *spec;
        choices[n++].winograd = true;
    }
    if (is_body(g) && one_block && spec->pass != CONV_BACK_SRC) {
        choices[n] = *spec;
        choices[n++].nhwc = true;
    }
    choices[n++] = *spec;
    return n;
}
