/*
 * What the versions of oneDNN share: primitives with their memories, running them, errors.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "backend/cpu/dnnl_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Arguments of a convolution, in the order of shim_conv.memory. */
enum { ARG_SRC, ARG_WEIGHTS, ARG_DST, ARG_BIAS, ARG_SCRATCH, ARG_COUNT };

/* Primitive, the memories it works on, and the addresses they had last time. */
struct runnable {
    struct shim *shim;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[ARG_COUNT]; /* NULL where there is none */
    void *address[ARG_COUNT];
    int id[ARG_COUNT]; /* DNNL_ARG_... */
};

struct shim_conv {
    struct runnable run;
    struct conv_spec spec;
    struct conv_info info;
    struct shim_desc weights; /* as the primitive wants them */
};

struct shim_reorder {
    struct runnable run;
    size_t scratch_bytes;
};

/* The only place where a status of oneDNN becomes one of ours. */
static enum der_status translate(struct shim *shim, dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return DER_OK;
    if (status == dnnl_out_of_memory)
        return ctx_fail(shim->ctx, DER_NOMEM, "oneDNN ran out of memory for %s", what);
    return ctx_fail(shim->ctx, DER_DEVICE, "oneDNN status %d for %s", (int)status, what);
}

/* Kernels have up to 256 KB each; a primitive has a few, products have some thirty in two sets. */
enum { KERNEL_BYTES = 32 << 20 };

/* Nothing of the room is touched: it costs two system calls. */
static bool has_room(void)
{
    void *room =
        mmap(NULL, KERNEL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return false;
    (void)munmap(room, KERNEL_BYTES);
    return true;
}

enum der_status shim_check_room(struct shim *shim)
{
    return has_room() ? DER_OK : translate(shim, dnnl_out_of_memory, "its kernels");
}

static dnnl_status_t create(dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t primitive_desc)
{
    return has_room() ? dnnl_primitive_create(primitive, primitive_desc) : dnnl_out_of_memory;
}

static const char *conv_text(const struct conv_spec *spec, char *text, size_t size)
{
    static const char *const names[] = {"conv2d", "conv2d_affine", "conv2d_d_src",
                                        "conv2d_d_weights"};
    const struct conv_geometry *g = &spec->geometry;
    snprintf(text, size,
             "%s of [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "] with weights [%" PRId64
             ", %" PRId64 ", %" PRId64 ", %" PRId64 "], stride %" PRId64 ", pad %" PRId64,
             names[spec->pass], g->n, g->c, g->h, g->w, g->k, g->c, g->r, g->s, g->stride, g->pad);
    return text;
}

enum { CONV_TEXT_MAX = 160 };

enum der_status shim_open(struct der_ctx *ctx, struct shim **out)
{
    *out = NULL;
    struct shim *shim = mem_zalloc(&ctx->mem, 1, sizeof *shim);
    if (!shim)
        return ctx_nomem(ctx);
    shim->ctx = ctx;
    dnnl_status_t status = dnnl_engine_create(&shim->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&shim->stream, shim->engine, dnnl_stream_default_flags);
    enum der_status result = translate(shim, status, "its engine");
    if (result != DER_OK) {
        shim_close(shim);
        return result;
    }
    *out = shim;
    return DER_OK;
}

void shim_close(struct shim *shim)
{
    if (!shim)
        return;
    if (shim->stream)
        dnnl_stream_destroy(shim->stream);
    if (shim->engine)
        dnnl_engine_destroy(shim->engine);
    mem_free(&shim->ctx->mem, shim);
}

void shim_version(char *text, size_t size)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, size, "%d.%d.%d", version->major, version->minor, version->patch);
}

/* ---- runnables -------------------------------------------------------------------------------- */

static void runnable_fini(struct runnable *run)
{
    for (int i = 0; i < ARG_COUNT; i++)
        if (run->memory[i])
            dnnl_memory_destroy(run->memory[i]);
    if (run->primitive)
        dnnl_primitive_destroy(run->primitive);
}

static dnnl_status_t runnable_memory(struct runnable *run, int arg, int id,
                                     const_dnnl_primitive_desc_t primitive_desc, dnnl_query_t what)
{
    struct shim_desc desc = {0};
    dnnl_status_t status = desc_query(&desc, primitive_desc, what);
    if (status == dnnl_success && desc_bytes(&desc) > 0) {
        run->id[arg] = id;
        status = desc_memory(&desc, run->shim->engine, &run->memory[arg]);
    }
    desc_fini(&desc);
    return status;
}

static dnnl_status_t runnable_execute(struct runnable *run, void *const address[ARG_COUNT])
{
    dnnl_exec_arg_t args[ARG_COUNT];
    int n = 0;
    for (int i = 0; i < ARG_COUNT; i++) {
        if (!run->memory[i])
            continue;
        if (address[i] != run->address[i]) {
            dnnl_status_t status = dnnl_memory_set_data_handle(run->memory[i], address[i]);
            if (status != dnnl_success)
                return status;
            run->address[i] = address[i];
        }
        args[n++] = (dnnl_exec_arg_t){.arg = run->id[i], .memory = run->memory[i]};
    }
    dnnl_status_t status = dnnl_primitive_execute(run->primitive, run->shim->stream, n, args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(run->shim->stream);
    return status;
}

/* ---- layouts ---------------------------------------------------------------------------------- */

static dnnl_format_tag_t tag_of(int64_t block, int64_t c, bool nhwc)
{
    if (block == BLOCK_ANY)
        return dnnl_format_tag_any;
    if (block == 1)
        return dnnl_nchw;
    if (block == c && (nhwc || (block != 8 && block != 16)))
        return dnnl_nhwc;
    return block == 8 ? dnnl_nChw8c : dnnl_nChw16c;
}

/* The block whose layout a descriptor has, or -1. */
static int64_t block_of(const struct shim_desc *desc, const int64_t dim[4])
{
    const struct {
        dnnl_format_tag_t tag;
        int64_t block;
    } family[] = {{dnnl_nchw, 1}, {dnnl_nChw16c, 16}, {dnnl_nChw8c, 8}, {dnnl_nhwc, dim[1]}};
    for (size_t i = 0; i < sizeof family / sizeof *family; i++) {
        struct shim_desc member = {0};
        bool same =
            desc_init(&member, 4, dim, family[i].tag) == dnnl_success && desc_equal(desc, &member);
        desc_fini(&member);
        if (same)
            return family[i].block;
    }
    return -1;
}

/* Images of one pixel look the same in several layouts: what was asked for is what it is. */
static int64_t chosen_block(int64_t asked, const struct shim_desc *desc, const int64_t dim[4])
{
    return asked == BLOCK_ANY ? block_of(desc, dim) : asked;
}

static void conv_dims(const struct conv_geometry *g, int64_t src[4], int64_t weights[4],
                      int64_t dst[4])
{
    const int64_t dims[3][4] = {
        {g->n, g->c, g->h, g->w}, {g->k, g->c, g->r, g->s}, {g->n, g->k, g->out_h, g->out_w}};
    for (int i = 0; i < 4; i++) {
        src[i] = dims[0][i];
        weights[i] = dims[1][i];
        dst[i] = dims[2][i];
    }
}

/* ---- convolutions ----------------------------------------------------------------------------- */

/* Scratch is the caller's, so that programs can plan it and any thread may run them. */
static dnnl_status_t attr_new(const struct conv_spec *spec, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !spec || (!spec->sum && !spec->relu))
        return status;
    status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success)
        status = post_ops_append(ops, spec->sum, spec->relu);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ops)
        dnnl_post_ops_destroy(ops);
    return status;
}

static dnnl_status_t describe(struct shim *shim, const struct conv_spec *spec,
                              dnnl_primitive_desc_t *out)
{
    int64_t src[4], weights[4], dst[4];
    conv_dims(&spec->geometry, src, weights, dst);
    struct conv_descs descs = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status =
        desc_init(&descs.src, 4, src, tag_of(spec->src_block, src[1], spec->nhwc));
    if (status == dnnl_success)
        status = desc_init(&descs.dst, 4, dst, tag_of(spec->dst_block, dst[1], spec->nhwc));
    if (status == dnnl_success)
        status = desc_init(&descs.weights, 4, weights, dnnl_format_tag_any);
    if (status == dnnl_success)
        status = desc_init(&descs.bias, 1, &weights[0], dnnl_a);
    if (status == dnnl_success)
        status = attr_new(spec, &attr);
    if (status == dnnl_success)
        status = conv_desc_create(shim, spec, &descs, attr, out);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    desc_fini(&descs.src);
    desc_fini(&descs.dst);
    desc_fini(&descs.weights);
    desc_fini(&descs.bias);
    return status;
}

/* Which query and which argument each operand of a pass is. */
struct operand_names {
    dnnl_query_t src_query, weights_query, dst_query;
    int src_arg, weights_arg, dst_arg;
};

static struct operand_names names_of(enum conv_pass pass)
{
    struct operand_names names = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md,
                                  DNNL_ARG_SRC,      DNNL_ARG_WEIGHTS,      DNNL_ARG_DST};
    if (pass == CONV_BACK_SRC) {
        names.src_query = dnnl_query_diff_src_md;
        names.src_arg = DNNL_ARG_DIFF_SRC;
    }
    if (pass == CONV_BACK_WEIGHTS) {
        names.weights_query = dnnl_query_diff_weights_md;
        names.weights_arg = DNNL_ARG_DIFF_WEIGHTS;
    }
    if (pass == CONV_BACK_SRC || pass == CONV_BACK_WEIGHTS) {
        names.dst_query = dnnl_query_diff_dst_md;
        names.dst_arg = DNNL_ARG_DIFF_DST;
    }
    return names;
}

static dnnl_status_t query_info(struct shim_conv *conv, const_dnnl_primitive_desc_t primitive_desc,
                                const struct operand_names *names)
{
    int64_t src[4], weights[4], dst[4];
    conv_dims(&conv->spec.geometry, src, weights, dst);
    struct shim_desc desc = {0};
    dnnl_status_t status = desc_query(&desc, primitive_desc, names->src_query);
    conv->info.src_block = chosen_block(conv->spec.src_block, &desc, src);
    desc_fini(&desc);
    if (status == dnnl_success)
        status = desc_query(&desc, primitive_desc, names->dst_query);
    conv->info.dst_block = chosen_block(conv->spec.dst_block, &desc, dst);
    desc_fini(&desc);
    if (status == dnnl_success)
        status = desc_query(&desc, primitive_desc, dnnl_query_scratchpad_md);
    conv->info.scratch_bytes = status == dnnl_success ? desc_bytes(&desc) : 0;
    desc_fini(&desc);
    if (status == dnnl_success)
        status = desc_query(&conv->weights, primitive_desc, names->weights_query);
    if (status == dnnl_success)
        status = desc_init(&desc, 4, weights, dnnl_oihw);
    if (status == dnnl_success) {
        conv->info.weights_bytes = desc_bytes(&conv->weights);
        conv->info.canonical_weights = desc_equal(&desc, &conv->weights);
    }
    desc_fini(&desc);
    return status;
}

/* oneDNN has a plain loop for everything, a hundred times slower than a layout change. It serves
 * only where any layout was good enough. */
static bool is_plain_loop(const struct conv_spec *spec, const_dnnl_primitive_desc_t primitive_desc)
{
    const char *name = "";
    if (spec->src_block == BLOCK_ANY && spec->dst_block == BLOCK_ANY)
        return false;
    return dnnl_primitive_desc_query(primitive_desc, dnnl_query_impl_info_str, 0, &name) ==
               dnnl_success &&
           strncmp(name, "ref", 3) == 0;
}

static dnnl_status_t conv_build(struct shim_conv *conv, const_dnnl_primitive_desc_t primitive_desc)
{
    struct operand_names names = names_of(conv->spec.pass);
    struct runnable *run = &conv->run;
    if (is_plain_loop(&conv->spec, primitive_desc))
        return dnnl_unimplemented;
    dnnl_status_t status = query_info(conv, primitive_desc, &names);
    if (status == dnnl_success)
        status = create(&run->primitive, primitive_desc);
    if (status == dnnl_success)
        status = runnable_memory(run, ARG_SRC, names.src_arg, primitive_desc, names.src_query);
    if (status == dnnl_success)
        status = runnable_memory(run, ARG_WEIGHTS, names.weights_arg, primitive_desc,
                                 names.weights_query);
    if (status == dnnl_success)
        status = runnable_memory(run, ARG_DST, names.dst_arg, primitive_desc, names.dst_query);
    if (status == dnnl_success)
        status = runnable_memory(run, ARG_SCRATCH, DNNL_ARG_SCRATCHPAD, primitive_desc,
                                 dnnl_query_scratchpad_md);
    if (status == dnnl_success && conv->spec.pass == CONV_FOLDED) {
        struct shim_desc bias = {0};
        status = desc_init(&bias, 1, &conv->spec.geometry.k, dnnl_a);
        if (status == dnnl_success)
            status = desc_memory(&bias, run->shim->engine, &run->memory[ARG_BIAS]);
        run->id[ARG_BIAS] = DNNL_ARG_BIAS;
        desc_fini(&bias);
    }
    return status;
}

enum der_status shim_conv_layouts(struct shim *shim, const struct conv_spec *spec,
                                  int64_t *src_block, int64_t *dst_block)
{
    *src_block = *dst_block = 1;
    struct shim_conv conv = {.spec = *spec};
    struct operand_names names = names_of(spec->pass);
    dnnl_primitive_desc_t primitive_desc = NULL;
    dnnl_status_t status = describe(shim, spec, &primitive_desc);
    if (status == dnnl_success)
        status = query_info(&conv, primitive_desc, &names);
    if (status == dnnl_success && conv.info.src_block > 0 && conv.info.dst_block > 0) {
        *src_block = conv.info.src_block;
        *dst_block = conv.info.dst_block;
    }
    desc_fini(&conv.weights);
    if (primitive_desc)
        dnnl_primitive_desc_destroy(primitive_desc);
    char text[CONV_TEXT_MAX];
    if (status == dnnl_unimplemented)
        return DER_OK;
    return translate(shim, status, conv_text(spec, text, sizeof text));
}

enum der_status shim_conv_new(struct shim *shim, const struct conv_spec *spec,
                              struct shim_conv **out)
{
    *out = NULL;
    char text[CONV_TEXT_MAX];
    struct shim_conv *conv = mem_zalloc(&shim->ctx->mem, 1, sizeof *conv);
    if (!conv)
        return ctx_nomem(shim->ctx);
    conv->run.shim = shim;
    conv->spec = *spec;
    dnnl_primitive_desc_t primitive_desc = NULL;
    dnnl_status_t status = describe(shim, spec, &primitive_desc);
    if (status == dnnl_success)
        status = conv_build(conv, primitive_desc);
    if (primitive_desc)
        dnnl_primitive_desc_destroy(primitive_desc);
    if (status == dnnl_success) {
        *out = conv;
        return DER_OK;
    }
    shim_conv_free(conv);
    if (status == dnnl_unimplemented)
        return DER_OK;
    return translate(shim, status, conv_text(spec, text, sizeof text));
}

void shim_conv_free(struct shim_conv *conv)
{
    if (!conv)
        return;
    runnable_fini(&conv->run);
    desc_fini(&conv->weights);
    mem_free(&conv->run.shim->ctx->mem, conv);
}

const struct conv_info *shim_conv_info(const struct shim_conv *conv)
{
    return &conv->info;
}

bool shim_conv_same_weights(const struct shim_conv *a, const struct shim_conv *b)
{
    return desc_equal(&a->weights, &b->weights);
}

enum der_status shim_conv_run(struct shim_conv *conv, const struct conv_args *args)
{
    void *const address[ARG_COUNT] = {
        [ARG_SRC] = args->src,   [ARG_WEIGHTS] = args->weights, [ARG_DST] = args->dst,
        [ARG_BIAS] = args->bias, [ARG_SCRATCH] = args->scratch,
    };
    dnnl_status_t status = runnable_execute(&conv->run, address);
    if (status == dnnl_success)
        return DER_OK;
    char text[CONV_TEXT_MAX];
    return translate(conv->run.shim, status, conv_text(&conv->spec, text, sizeof text));
}

/* ---- layout changes --------------------------------------------------------------------------- */

static enum der_status reorder_new(struct shim *shim, const struct shim_desc *from,
                                   const struct shim_desc *to, const char *what,
                                   struct shim_reorder **out)
{
    struct shim_reorder *reorder = mem_zalloc(&shim->ctx->mem, 1, sizeof *reorder);
    if (!reorder)
        return ctx_nomem(shim->ctx);
    reorder->run.shim = shim;
    reorder->run.id[ARG_SRC] = DNNL_ARG_FROM;
    reorder->run.id[ARG_DST] = DNNL_ARG_TO;
    dnnl_primitive_desc_t primitive_desc = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = attr_new(NULL, &attr);
    if (status == dnnl_success)
        status = reorder_desc_create(shim, from, to, attr, &primitive_desc);
    if (status == dnnl_success)
        status = create(&reorder->run.primitive, primitive_desc);
    if (status == dnnl_success)
        status = desc_memory(from, shim->engine, &reorder->run.memory[ARG_SRC]);
    if (status == dnnl_success)
        status = desc_memory(to, shim->engine, &reorder->run.memory[ARG_DST]);
    if (status == dnnl_success)
        status = runnable_memory(&reorder->run, ARG_SCRATCH, DNNL_ARG_SCRATCHPAD, primitive_desc,
                                 dnnl_query_scratchpad_md);
    struct shim_desc scratch = {0};
    if (status == dnnl_success)
        status = desc_query(&scratch, primitive_desc, dnnl_query_scratchpad_md);
    if (status == dnnl_success)
        reorder->scratch_bytes = desc_bytes(&scratch);
    desc_fini(&scratch);
    if (primitive_desc)
        dnnl_primitive_desc_destroy(primitive_desc);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    if (status != dnnl_success) {
        shim_reorder_free(reorder);
        return translate(shim, status, what);
    }
    *out = reorder;
    return DER_OK;
}

enum der_status shim_reorder_weights(struct shim *shim, const struct shim_conv *conv,
                                     bool to_canonical, struct shim_reorder **out)
{
    *out = NULL;
    const struct conv_geometry *g = &conv->spec.geometry;
    const int64_t dim[4] = {g->k, g->c, g->r, g->s};
    char text[CONV_TEXT_MAX];
    conv_text(&conv->spec, text, sizeof text);
    struct shim_desc canonical = {0};
    enum der_status status = translate(shim, desc_init(&canonical, 4, dim, dnnl_oihw), text);
    if (status == DER_OK)
        status = to_canonical ? reorder_new(shim, &conv->weights, &canonical, text, out)
                              : reorder_new(shim, &canonical, &conv->weights, text, out);
    desc_fini(&canonical);
    return status;
}

enum der_status shim_reorder_image(struct shim *shim, const int64_t dim[4], int64_t from_block,
                                   int64_t to_block, struct shim_reorder **out)
{
    *out = NULL;
    struct shim_desc from = {0};
    struct shim_desc to = {0};
    dnnl_status_t status = desc_init(&from, 4, dim, tag_of(from_block, dim[1], false));
    if (status == dnnl_success)
        status = desc_init(&to, 4, dim, tag_of(to_block, dim[1], false));
    enum der_status result = translate(shim, status, "a layout change");
    if (result == DER_OK)
        result = reorder_new(shim, &from, &to, "a layout change", out);
    desc_fini(&from);
    desc_fini(&to);
    return result;
}

void shim_reorder_free(struct shim_reorder *reorder)
{
    if (!reorder)
        return;
    runnable_fini(&reorder->run);
    mem_free(&reorder->run.shim->ctx->mem, reorder);
}

size_t shim_reorder_scratch_bytes(const struct shim_reorder *reorder)
{
    return reorder ? reorder->scratch_bytes : 0;
}

enum der_status shim_reorder_run(struct shim_reorder *reorder, void *from, void *to, void *scratch)
{
    void *const address[ARG_COUNT] = {[ARG_SRC] = from, [ARG_DST] = to, [ARG_SCRATCH] = scratch};
    return translate(reorder->run.shim, runnable_execute(&reorder->run, address),
                     "a layout change");
}

/* ---- matrix products -------------------------------------------------------------------------- */

enum der_status shim_gemm(struct shim *shim, const struct shim_gemm *gemm)
{
    dnnl_status_t status = dnnl_sgemm(gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N',
                                      gemm->m, gemm->n, gemm->k, 1.0f, gemm->a, gemm->pitch_a,
                                      gemm->b, gemm->pitch_b, 0.0f, gemm->c, gemm->pitch_c);
    return translate(shim, status, "a matrix product");
}
