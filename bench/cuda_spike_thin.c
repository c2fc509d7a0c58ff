/*
 * Own kernels for thin layers (thin.cu, thin_weights.cu) and small images (strip.cu, strip_weights.cu, sheet.cu) beside cuDNN.
 *
 * One line per layer and pass with cuDNN's time for the padding that it wants, then the best tiles and strips: microseconds alone
 * and with four launches side by side, and the largest difference from the plain kernel (conv.cu) as a share
 * of the largest result.
 */
#include "cuda_spike.h"

#include "cuda_replay.h"

#include "backend/cuda/cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum pass { FUSED, FORWARD, D_SRC, D_WEIGHTS, N_PASSES };

static const char *const PASS_NAMES[N_PASSES] = {"+bias+res+relu", "forward", "d_src", "d_weights"};

enum {
    TRAINED = 1U << FORWARD | 1U << D_SRC | 1U << D_WEIGHTS,
    FROZEN = 1U << FUSED,
    IMAGES = 1U << FUSED | 1U << FORWARD | 1U << D_SRC,
    WEIGHTS = 1U << D_WEIGHTS
};

/* The modified ResNet-32, then what is left of a ResNet-18 when it is pruned, then what else there are strips for,
 * then what pruning for accuracy leaves of a ResNet-18, and strided layers of a whole one. */
static const struct thin_layer {
    struct spike_layer conv;
    unsigned passes;
} LAYERS[] = {
    {{16, 32, 16, 3, 1}, TRAINED | FROZEN},
    {{16, 32, 32, 3, 2}, TRAINED | FROZEN},
    {{16, 32, 32, 1, 2}, TRAINED | FROZEN},
    {{32, 16, 32, 3, 1}, TRAINED | FROZEN},
    {{32, 16, 64, 3, 2}, TRAINED | FROZEN},
    {{32, 16, 64, 1, 2}, TRAINED | FROZEN},
    {{64, 8, 64, 3, 1}, TRAINED | FROZEN},
    {{32, 32, 32, 3, 1}, TRAINED | FROZEN},
    {{32, 32, 48, 3, 2}, FROZEN},
    {{32, 32, 48, 1, 2}, FROZEN},
    {{48, 16, 48, 3, 1}, FROZEN},
    {{48, 16, 80, 3, 2}, FROZEN},
    {{48, 16, 80, 1, 2}, FROZEN},
    {{80, 8, 80, 3, 1}, FROZEN},
    {{80, 8, 160, 3, 2}, FROZEN},
    {{80, 8, 160, 1, 2}, FROZEN},
    {{144, 4, 144, 3, 1}, FROZEN},
    {{160, 4, 160, 3, 1}, FROZEN},
    {{48, 32, 48, 3, 1}, IMAGES},
    {{64, 16, 64, 3, 1}, IMAGES | WEIGHTS},
    {{96, 8, 96, 3, 1}, FROZEN},
    {{64, 32, 64, 3, 1}, FROZEN | TRAINED},
    {{128, 16, 128, 3, 1}, IMAGES | WEIGHTS},
    {{32, 32, 64, 3, 1}, IMAGES},
    {{64, 32, 32, 3, 1}, IMAGES},
    {{48, 32, 64, 3, 1}, IMAGES},
    {{64, 16, 128, 3, 1}, IMAGES},
    {{128, 16, 64, 3, 1}, IMAGES},
    {{64, 16, 80, 3, 1}, FROZEN},
    {{80, 16, 64, 3, 1}, FROZEN},
    {{80, 16, 80, 3, 1}, FROZEN},
    {{80, 16, 96, 3, 1}, FROZEN},
    {{96, 16, 80, 3, 1}, FROZEN},
    {{112, 16, 80, 3, 1}, FROZEN},
    {{128, 16, 80, 3, 1}, FROZEN},
    {{64, 32, 48, 3, 1}, FROZEN},
    {{32, 32, 112, 3, 2}, FROZEN},
    {{80, 16, 176, 3, 2}, FROZEN},
    {{208, 8, 80, 3, 1}, FROZEN},
    {{80, 8, 144, 3, 1}, FROZEN},
    {{144, 8, 80, 3, 1}, FROZEN},
    {{80, 8, 208, 3, 1}, FROZEN},
    {{64, 8, 144, 3, 1}, FROZEN},
    {{80, 8, 192, 3, 2}, FROZEN},
    {{32, 32, 80, 1, 2}, FROZEN},
    {{80, 16, 80, 1, 2}, FROZEN},
    {{80, 8, 64, 1, 2}, FROZEN},
    {{64, 32, 128, 3, 2}, FROZEN},
    {{128, 16, 256, 3, 2}, FROZEN},
    {{256, 8, 256, 3, 1}, FROZEN},
    {{192, 4, 64, 3, 1}, FROZEN},
    {{64, 4, 112, 3, 1}, FROZEN},
    {{112, 4, 48, 3, 1}, FROZEN},
    {{256, 8, 256, 3, 1}, WEIGHTS},
    {{512, 4, 512, 3, 1}, WEIGHTS},
    {{192, 8, 192, 3, 1}, WEIGHTS},
    {{320, 4, 320, 3, 1}, WEIGHTS},
    {{64, 32, 128, 1, 2}, WEIGHTS},
    {{128, 16, 256, 1, 2}, WEIGHTS},
    {{256, 8, 512, 1, 2}, WEIGHTS},
};

struct trial {
    struct cuda_conv_shape shape;
    enum pass pass;
    struct cuda_thin_tile tile;
    struct cuda_thin_grad_tile grad_tile;
    int splits; /* strips: of the gradient of weights */
    double alone, beside, difference;
    bool repeats;
    bool is_rule; /* the tile that the back end takes */
    enum { TILE, STRIP, SHEET } kind;
    struct cuda_sheet_tile sheet;
};

/* ---- launches ------------------------------------------------------------------------------------ */

static struct cuda_weights sizes_of(const struct cuda_conv_shape *shape)
{
    return (struct cuda_weights){.k = shape->k,
                                 .c = shape->c,
                                 .area = shape->r * shape->s,
                                 .k_stored = shape->k,
                                 .c_stored = shape->c};
}

/* Forward writes the result, its gradients the workspace: [0, half) the gradient, then scratch. */
static void *gradient_of(const struct spike *s, int branch)
{
    return spike_memory(s, SPIKE_WORKSPACE, branch);
}

static void *scratch_of(const struct spike *s, int branch)
{
    return (char *)gradient_of(s, branch) + spike_size(SPIKE_WORKSPACE) / 2;
}

static cudaError_t run_trial(struct spike *s, const struct trial *t, int branch)
{
    const bool fused = t->pass == FUSED;
    void *src = spike_memory(s, SPIKE_IMAGE, branch);
    void *weights = spike_memory(s, SPIKE_WEIGHTS, branch);
    void *dst = spike_memory(s, SPIKE_RESULT, branch);
    const struct cuda_thin thin = {
        .dst = gradient_of(s, branch),
        .src = src,
        .weights = weights,
        .bias = fused ? spike_memory(s, SPIKE_BIAS, branch) : NULL,
        .residual = fused ? spike_memory(s, SPIKE_RESIDUAL, branch) : NULL,
        .relu = fused,
    };
    const struct cuda_weights sizes = sizes_of(&t->shape);
    if (t->pass == D_WEIGHTS && t->kind == STRIP)
        return cuda_strip_d_weights(&t->shape, t->splits, gradient_of(s, branch), src, dst,
                                    scratch_of(s, branch), s->stream[branch]);
    if (t->pass == D_WEIGHTS)
        return cuda_thin_d_weights(&t->shape, &t->grad_tile, gradient_of(s, branch), &sizes, src,
                                   dst, scratch_of(s, branch), s->stream[branch]);
    if (t->pass == D_SRC && t->kind == STRIP)
        return cuda_strip_d_src(&t->shape, gradient_of(s, branch), dst, weights, s->stream[branch]);
    if (t->pass == D_SRC)
        return cuda_thin_d_src(&t->shape, &t->tile, gradient_of(s, branch), dst, weights,
                               s->stream[branch]);
    if (t->kind == STRIP)
        return cuda_strip(&t->shape, &thin, s->stream[branch]);
    if (t->kind == SHEET)
        return cuda_sheet(&t->shape, &t->sheet, &thin, s->stream[branch]);
    return cuda_thin(&t->shape, &t->tile, &thin, s->stream[branch]);
}

static bool launch_trial(struct spike *s, const struct spike_work *work, int branch)
{
    return run_trial(s, work->user, branch) == cudaSuccess;
}

/* What conv.cu says, into the same place; the plain gradient of weights is [k, r, s, c] in the scratch first. */
static bool run_plain(struct spike *s, const struct trial *t)
{
    const struct cuda_conv_shape *shape = &t->shape;
    void *src = spike_memory(s, SPIKE_IMAGE, 0);
    void *weights = spike_memory(s, SPIKE_WEIGHTS, 0);
    void *dst = spike_memory(s, SPIKE_RESULT, 0);
    void *out = gradient_of(s, 0);
    cudaStream_t stream = s->stream[0];
    const struct cuda_weights sizes = sizes_of(shape);
    if (t->pass == D_SRC)
        return replay_fine(cuda_conv_d_src(shape, out, dst, weights, stream), "plain d_src");
    if (t->pass == D_WEIGHTS)
        return replay_fine(cuda_conv_d_weights(shape, scratch_of(s, 0), src, dst, stream),
                           "plain d_weights") &&
               replay_fine(cuda_export_weights(out, scratch_of(s, 0), CUDA_F32, &sizes, stream),
                           "writing out");
    if (!replay_fine(cuda_conv(shape, out, src, weights, stream), "plain"))
        return false;
    if (t->pass != FUSED)
        return true;
    const struct cuda_rows rows = {.data = out,
                                   .rows = shape->n * shape->out_h * shape->out_w,
                                   .cols = shape->k,
                                   .stored = shape->k,
                                   .pitch = shape->k,
                                   .type = CUDA_BF16};
    struct cuda_rows residual = rows;
    residual.data = spike_memory(s, SPIKE_RESIDUAL, 0);
    return replay_fine(
        cuda_epilogue(rows, rows, spike_memory(s, SPIKE_BIAS, 0), residual, true, stream),
        "epilogue");
}

/* ---- comparing ------------------------------------------------------------------------------------ */

static size_t count_of(const struct trial *t)
{
    const struct cuda_conv_shape *s = &t->shape;
    if (t->pass == D_WEIGHTS)
        return (size_t)(s->k * s->r * s->s * s->c);
    return (size_t)(t->pass == D_SRC ? s->n * s->h * s->w * s->c
                                     : s->n * s->out_h * s->out_w * s->k);
}

static size_t bytes_of(const struct trial *t)
{
    return count_of(t) * (t->pass == D_WEIGHTS ? 4 : 2);
}

static float number_at(const struct trial *t, const void *data, size_t i)
{
    float x;
    if (t->pass == D_WEIGHTS)
        return ((const float *)data)[i];
    const uint32_t word = (uint32_t)((const uint16_t *)data)[i] << 16;
    memcpy(&x, &word, sizeof x);
    return x;
}

static double difference(const struct trial *t, const void *actual, const void *expected)
{
    double worst = 0.0;
    double largest = 0.0;
    for (size_t i = 0; i < count_of(t); i++) {
        const double x = (double)number_at(t, expected, i);
        const double apart = fabs((double)number_at(t, actual, i) - x);
        worst = !(apart <= worst) ? apart : worst; /* NaN counts */
        largest = fabs(x) > largest ? fabs(x) : largest;
    }
    return worst / largest;
}

/* Gradients of weights as all others write them, where they are compared. */
static bool fetch(struct spike *s, const struct trial *t, void *host)
{
    const struct cuda_weights sizes = sizes_of(&t->shape);
    float *out = scratch_of(s, 0);
    const bool is_raw = t->pass == D_WEIGHTS && t->kind == STRIP;
    return (!is_raw || replay_fine(cuda_export_weights(out, gradient_of(s, 0), CUDA_BF16, &sizes,
                                                       s->stream[0]),
                                   "writing out")) &&
           replay_fine(cudaStreamSynchronize(s->stream[0]), "waiting") &&
           replay_fine(cudaMemcpy(host, is_raw ? out : gradient_of(s, 0), bytes_of(t),
                                  cudaMemcpyDeviceToHost),
                       "reading");
}

/* Fills in what a tile gives, once more to see that it gives the same again; false: it is none for this layer. */
static bool try_tile(struct spike *s, struct trial *t, const void *expected, void *host[2])
{
    const struct spike_work work = {.launch = launch_trial, .user = t};
    for (int i = 0; i < 2; i++) {
        (void)cudaMemsetAsync(gradient_of(s, 0), 0xff, bytes_of(t), s->stream[0]);
        if (run_trial(s, t, 0) != cudaSuccess) {
            (void)cudaGetLastError();
            return false;
        }
        if (!fetch(s, t, host[i]))
            return false;
    }
    t->difference = difference(t, host[0], expected);
    t->repeats = memcmp(host[0], host[1], bytes_of(t)) == 0;
    t->alone = spike_measure(s, &work, 1);
    t->beside = spike_measure(s, &work, SPIKE_BRANCHES);
    return true;
}

/* ---- trials ----------------------------------------------------------------------------------------- */

enum { MAX_TRIALS = 512 };

struct trials {
    struct trial list[MAX_TRIALS];
    int n;
};

static void add(struct trials *all, struct spike *s, const struct trial *t, const void *expected,
                void *host[2])
{
    if (all->n == MAX_TRIALS)
        return;
    all->list[all->n] = *t;
    all->n += try_tile(s, &all->list[all->n], expected, host);
}

static void try_rule(struct trials *all, struct spike *s, struct trial t, const void *expected,
                     void *host[2])
{
    enum { SHARED = 227 << 10 };
    t.is_rule = true;
    if (t.pass == D_WEIGHTS)
        t.grad_tile = cuda_thin_grad_tile_of(&t.shape, SHARED);
    else
        t.tile = cuda_thin_tile_of(&t.shape, t.pass == D_SRC, SHARED);
    add(all, s, &t, expected, host);
}

/* By the rule, then for a sixth of a GPU up to all of it. */
static void try_strip_weights(struct trials *all, struct spike *s, struct trial *t,
                              const void *expected, void *host[2])
{
    enum { SIXTH = 22, ALL = 132 };
    const int tiles = cuda_strip_grad_tiles(&t->shape);
    t->splits = cuda_strip_splits(&t->shape);
    t->is_rule = true;
    add(all, s, t, expected, host);
    t->is_rule = false;
    for (int blocks = SIXTH; blocks <= ALL; blocks += SIXTH) {
        const int splits = blocks / tiles;
        if (splits == t->splits || splits == cuda_strip_splits(&t->shape))
            continue;
        t->splits = splits;
        add(all, s, t, expected, host);
    }
}

static void try_strip(struct trials *all, struct spike *s, struct trial t, const void *expected,
                      void *host[2])
{
    t.kind = STRIP;
    if (t.pass == D_WEIGHTS && cuda_strip_grad_exists(&t.shape))
        try_strip_weights(all, s, &t, expected, host);
    else if (t.pass != D_WEIGHTS && cuda_strip_exists(&t.shape, t.pass == D_SRC))
        add(all, s, &t, expected, host);
}

static bool has_sheet(const struct trial *t)
{
    const struct cuda_sheet_tile tile = cuda_sheet_tile_of(&t->shape);
    return (t->pass == FUSED || t->pass == FORWARD) && cuda_sheet_shared(&t->shape, &tile) > 0;
}

/* As many slots as there are taps, or as fit. */
static void try_slots(struct trials *all, struct spike *s, struct trial *t, size_t room,
                      const void *expected, void *host[2])
{
    for (t->sheet.slots = 9; t->sheet.slots >= 2; t->sheet.slots--) {
        const size_t shared = cuda_sheet_shared(&t->shape, &t->sheet);
        if (shared > 0 && shared <= room) {
            add(all, s, t, expected, host);
            return;
        }
    }
}

/* One block to a multiprocessor or two. */
static void try_sheets(struct trials *all, struct spike *s, struct trial t, const void *expected,
                       void *host[2])
{
    enum { ALL = 227 << 10, HALF = 113 << 10, UNIT = 16 };
    t.kind = SHEET;
    t.is_rule = true;
    t.sheet = cuda_sheet_tile_of(&t.shape);
    if (!has_sheet(&t))
        return;
    add(all, s, &t, expected, host);
    t.is_rule = false;
    for (int pictures = 1; pictures <= 4; pictures *= 2)
        for (int parts = 1; parts <= 6; parts++)
            for (int sheets = 1; sheets <= 2; sheets++) {
                const int columns = ((int)t.shape.k + parts * UNIT - 1) / (parts * UNIT) * UNIT;
                t.sheet = (struct cuda_sheet_tile){
                    .pictures = pictures, .columns = columns, .sheets = sheets};
                try_slots(all, s, &t, ALL, expected, host);
                try_slots(all, s, &t, HALF, expected, host);
            }
}

static void try_grad_tiles(struct trials *all, struct spike *s, struct trial *t,
                           const void *expected, void *host[2])
{
    static const int blocks[] = {16, 32, 66, 132, 264};
    for (int pixels = 64; pixels <= 256; pixels *= 2)
        for (int chunk = 16; chunk <= t->shape.c; chunk *= 2)
            for (int i = 0; i < 5; i++) {
                t->grad_tile = (struct cuda_thin_grad_tile){
                    .pixels = pixels, .chunk = chunk, .blocks = blocks[i]};
                add(all, s, t, expected, host);
            }
}

static void try_tiles(struct trials *all, struct spike *s, struct trial *t, const void *expected,
                      void *host[2])
{
    const int from = (int)(t->pass == D_SRC ? t->shape.k : t->shape.c);
    const int to = (int)(t->pass == D_SRC ? t->shape.c : t->shape.k);
    for (int rows = 1; rows <= 4; rows *= 2)
        for (int warps = 4; warps <= 8; warps *= 2)
            for (int columns = 16; columns <= 80 && columns <= to; columns += 16)
                for (int chunk = 16; chunk <= from && chunk <= 80; chunk += 16)
                    for (int stages = 2; stages <= (chunk < from ? 3 : 2); stages++) {
                        const int chunks = (from + chunk - 1) / chunk;
                        const bool is_even = (from + chunks * 16 - 1) / (chunks * 16) * 16 == chunk;
                        const bool is_wide = to % columns == 0 || to > 80;
                        if (!is_even || !is_wide || (columns == 16 && to > 32) ||
                            (chunk == 16 && from > 48))
                            continue;
                        t->tile = (struct cuda_thin_tile){.rows = rows,
                                                          .warps = warps,
                                                          .columns = columns,
                                                          .chunk = chunk,
                                                          .stages = stages};
                        add(all, s, t, expected, host);
                    }
}

static int by_time(const void *a, const void *b)
{
    const struct trial *x = a;
    const struct trial *y = b;
    const bool side = x->pass == FUSED;
    const double left = side ? x->beside : x->alone;
    const double right = side ? y->beside : y->alone;
    return left < right ? -1 : left > right;
}

static void print(const struct trials *all, int n)
{
    int n_wrong = 0;
    for (int i = 0; i < all->n; i++) {
        const struct trial *t = &all->list[i];
        const bool is_wrong =
            !(t->difference < (t->pass == D_WEIGHTS && t->kind != STRIP ? 1e-4 : 0.01)) ||
            !t->repeats;
        n_wrong += is_wrong;
        if (i >= n && !t->is_rule && t->kind != STRIP && (!is_wrong || n_wrong > n))
            continue;
        if (t->kind == STRIP && t->pass == D_WEIGHTS)
            printf("      strips, splits %3d", t->splits);
        else if (t->kind == STRIP)
            printf("      strips");
        else if (t->kind == SHEET)
            printf("      pictures %d columns %3d sheets %d slots %d", t->sheet.pictures,
                   t->sheet.columns, t->sheet.sheets, t->sheet.slots);
        else if (t->pass == D_WEIGHTS)
            printf("      pixels %3d chunk %2d blocks %3d", t->grad_tile.pixels, t->grad_tile.chunk,
                   t->grad_tile.blocks);
        else
            printf("      rows %d warps %d columns %2d chunk %2d stages %d", t->tile.rows,
                   t->tile.warps, t->tile.columns, t->tile.chunk, t->tile.stages);
        printf(" %6.2f %6.2f us, off by %.1e%s%s%s\n", t->alone, t->beside, t->difference,
               t->repeats ? "" : ", NOT REPEATED", is_wrong ? "  WRONG" : "",
               t->is_rule ? "  <- taken" : "");
    }
}

/* ---- cuDNN ------------------------------------------------------------------------------------------- */

/* For cuDNN, as in training. */
static int64_t padded(int64_t channels)
{
    const int64_t unit = channels > 32 ? 64 : channels > 16 ? 32 : 16;
    return (channels + unit - 1) / unit * unit;
}

/* As the back end asks (first_request in cuda_conv.c). */
static bool is_compiled(enum pass pass, const struct cuda_conv_shape *s)
{
    const bool is_strided = s->stride > 1 && s->r > 1;
    const bool is_narrow = s->c % 64 != 0 && s->h * s->w > 256;
    if (s->c % 32 != 0)
        return false;
    return pass == FORWARD || (pass == D_SRC && !is_strided && !is_narrow);
}

static struct dnn_conv request_of(const struct trial *t)
{
    struct dnn_conv conv = {.pass = t->pass == D_SRC       ? DNN_D_SRC
                                    : t->pass == D_WEIGHTS ? DNN_D_WEIGHTS
                                                           : DNN_FORWARD,
                            .shape = t->shape,
                            .d_weights_type = CUDA_BF16,
                            .tensor_cores = true,
                            .deterministic = true};
    conv.shape.c = padded(conv.shape.c);
    conv.shape.k = padded(conv.shape.k);
    conv.bias = conv.residual = conv.relu = t->pass == FUSED;
    conv.compiled = is_compiled(t->pass, &conv.shape);
    return conv;
}

struct planned {
    const struct dnn_plan *plan;
    enum pass pass;
};

/* What is written is not what others read. */
static bool launch_plan(struct spike *s, const struct spike_work *work, int branch)
{
    const struct planned *planned = work->user;
    struct dnn_pointers pointers = {.image = spike_memory(s, SPIKE_IMAGE, branch),
                                    .weights = spike_memory(s, SPIKE_WEIGHTS, branch),
                                    .result = spike_memory(s, SPIKE_RESULT, branch),
                                    .bias = spike_memory(s, SPIKE_BIAS, branch),
                                    .residual = spike_memory(s, SPIKE_RESIDUAL, branch),
                                    .workspace = scratch_of(s, branch)};
    void **written = planned->pass == D_WEIGHTS ? &pointers.weights
                     : planned->pass == D_SRC   ? &pointers.image
                                                : &pointers.result;
    *written = gradient_of(s, branch);
    return dnn_run(s->dnn, planned->plan, &pointers, s->stream[branch]) == DER_OK;
}

static void print_dnn(struct spike *s, const struct trial *t)
{
    const struct dnn_conv conv = request_of(t);
    const struct dnn_plan *plan = NULL;
    if (dnn_find(s->dnn, &conv, &plan) != DER_OK || !plan) {
        printf(" no plan\n");
        return;
    }
    const struct spike_work work = {.launch = launch_plan,
                                    .user = &(struct planned){plan, t->pass}};
    printf(" cuDNN %6.2f %6.2f us\n", spike_measure(s, &work, 1),
           spike_measure(s, &work, SPIKE_BRANCHES));
}

static struct trial trial_of(const struct spike *s, const struct thin_layer *layer, enum pass pass)
{
    return (struct trial){.pass = pass, .shape = spike_shape(s, &layer->conv, CUDA_BF16)};
}

static void try_layer(struct spike *s, const struct thin_layer *layer, enum pass pass,
                      struct trials *all, int n)
{
    struct trial t = trial_of(s, layer, pass);
    void *host[3] = {malloc(bytes_of(&t)), malloc(bytes_of(&t)), malloc(bytes_of(&t))};
    all->n = 0;
    if (host[0] && host[1] && host[2] && run_plain(s, &t) && fetch(s, &t, host[2])) {
        printf("%3d -> %3d %2dx%d %dx%d /%d %-14s", (int)layer->conv.c, (int)layer->conv.k,
               (int)layer->conv.size, (int)layer->conv.size, (int)layer->conv.kernel,
               (int)layer->conv.kernel, (int)layer->conv.stride, PASS_NAMES[pass]);
        print_dnn(s, &t);
        try_rule(all, s, t, host[2], host);
        try_strip(all, s, t, host[2], host);
        try_sheets(all, s, t, host[2], host);
        if (pass == D_WEIGHTS)
            try_grad_tiles(all, s, &t, host[2], host);
        else if (!has_sheet(&t))
            try_tiles(all, s, &t, host[2], host);
        qsort(all->list, (size_t)all->n, sizeof *all->list, by_time);
        print(all, n);
        (void)fflush(stdout);
    }
    for (int i = 0; i < 3; i++)
        free(host[i]);
}

static bool has_pass(const struct thin_layer *layer, enum pass pass)
{
    return layer->passes >> pass & 1U;
}

static bool is_asked(int layer, int first, int last)
{
    return first < 0 || (layer >= first && layer <= last);
}

void spike_thin(struct spike *s, int n, int only, int last)
{
    enum { N_LAYERS = sizeof LAYERS / sizeof *LAYERS };
    struct dnn_conv convs[N_LAYERS * N_PASSES];
    struct trials *all = malloc(sizeof *all);
    int n_convs = 0;
    for (int i = 0; i < N_LAYERS * N_PASSES; i++) {
        const struct trial t = trial_of(s, &LAYERS[i / N_PASSES], i % N_PASSES);
        if (has_pass(&LAYERS[i / N_PASSES], i % N_PASSES) && is_asked(i / N_PASSES, only, last))
            convs[n_convs++] = request_of(&t);
    }
    dnn_prefetch(s->dnn, convs, n_convs);
    for (int i = 0; all && i < N_LAYERS * N_PASSES; i++)
        if (has_pass(&LAYERS[i / N_PASSES], i % N_PASSES) && is_asked(i / N_PASSES, only, last))
            try_layer(s, &LAYERS[i / N_PASSES], i % N_PASSES, all, n);
    free(all);
}
