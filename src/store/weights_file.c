#include "store/weights_file.h"

#include "store/tensor_list.h"

#include <stdio.h>
#include <string.h>

/* A name that every residual network of torchvision has, and no other layer ends like it. */
#define MARK "layer1.0.conv1.weight"
#define STEM "conv1.weight"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* ---- the prefix ------------------------------------------------------------------------------------ */

static enum der_status take_prefix(struct der_ctx *ctx, const char *path, const char *prefix,
                                   size_t length, char out[WEIGHTS_PREFIX_MAX])
{
    if (length >= WEIGHTS_PREFIX_MAX)
        return ctx_fail(ctx, DER_FORMAT, "%s: names with a prefix of %zu characters; at most %d",
                        path, length, WEIGHTS_PREFIX_MAX - 1);
    memcpy(out, prefix, length);
    out[length] = '\0';
    return DER_OK;
}

/* What stands before the names of the one network in the file. */
static enum der_status find_prefix(struct der_ctx *ctx, const char *path,
                                   const struct safetensors_file *file,
                                   char out[WEIGHTS_PREFIX_MAX])
{
    int n_found = 0;
    for (int i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        if (!ends_with(name, MARK))
            continue;
        size_t length = strlen(name) - strlen(MARK);
        if (n_found++ > 0)
            return ctx_fail(ctx, DER_FORMAT,
                            "%s holds several networks: the names of one begin with '%s', those of "
                            "another with '%.*s'; say which prefix is meant",
                            path, out, (int)length, name);
        TRY(take_prefix(ctx, path, name, length, out));
    }
    if (n_found == 0)
        return ctx_fail(ctx, DER_FORMAT,
                        "%s holds no residual network with torchvision's names: no tensor is "
                        "called '" MARK "', with or without a prefix",
                        path);
    return DER_OK;
}

/* ---- fitting --------------------------------------------------------------------------------------- */

/* What is opened and found out while a file is looked at. */
struct fitting {
    struct der_ctx *ctx;
    const char *path;
    struct safetensors_file *file;
    struct weights_match match;
    char name[WEIGHTS_PREFIX_MAX + 128]; /* the latest of tensor_of */
};

/* The tensor of a parameter as the file should have it; good until the next call. */
static struct safetensors_tensor tensor_of(struct fitting *f, const struct param *param)
{
    struct safetensors_tensor tensor = {
        .name = f->name, .dtype = SAFETENSORS_F32, .rank = param->shape.rank};
    (void)snprintf(f->name, sizeof f->name, "%s%s", f->match.prefix, param->name);
    for (int i = 0; i < tensor.rank; i++)
        tensor.dim[i] = param->shape.dim[i];
    return tensor;
}

/* The two mistakes that are easy to make get a sentence of their own. */
static enum der_status check_stem(struct fitting *f, const struct param *stem)
{
    const struct safetensors_tensor wanted = tensor_of(f, stem);
    const struct safetensors_tensor *found = safetensors_find(f->file, wanted.name);
    if (!found || found->rank != 4)
        return DER_OK; /* told with all others */
    if (found->dim[2] != wanted.dim[2])
        return ctx_fail(f->ctx, DER_FORMAT,
                        "%s begins with a convolution of %jd x %jd, the network with one of %jd x "
                        "%jd; 'der nets' lists the networks",
                        f->path, (intmax_t)found->dim[2], (intmax_t)found->dim[3],
                        (intmax_t)wanted.dim[2], (intmax_t)wanted.dim[3]);
    if (found->dim[1] != wanted.dim[1])
        return ctx_fail(f->ctx, DER_FORMAT, "%s is for images of %jd channels, not of %jd", f->path,
                        (intmax_t)found->dim[1], (intmax_t)wanted.dim[1]);
    return DER_OK;
}

/* Would the extractor lack something without it? Not of a head, and not of a counter. */
static bool is_of_extractor(const char *name)
{
    bool is_layer =
        begins_with(name, "layer") || begins_with(name, "conv") || begins_with(name, "bn");
    return is_layer && !ends_with(name, ".num_batches_tracked");
}

/* Are all layers behind the prefix used? */
static enum der_status check_rest(struct fitting *f, const struct param_set *declared)
{
    size_t length = strlen(f->match.prefix);
    for (int i = 0; i < safetensors_count(f->file); i++) {
        const char *name = safetensors_at(f->file, i)->name;
        bool is_inside = begins_with(name, f->match.prefix);
        if (is_inside && param_set_find(declared, name + length) >= 0) {
            f->match.n_used++;
            continue;
        }
        if (is_inside && is_of_extractor(name + length))
            return ctx_fail(f->ctx, DER_FORMAT, "%s: the network has no place for tensor '%.100s'",
                            f->path, name);
        f->match.n_ignored++;
    }
    return DER_OK;
}

static enum der_status fit(struct fitting *f, const struct resnet_spec *spec,
                           struct param_set *declared)
{
    TRY(resnet_declare(spec, declared));
    TRY(check_stem(f, &declared->items[0]));
    for (int i = 0; i < declared->n; i++) {
        const struct safetensors_tensor wanted = tensor_of(f, &declared->items[i]);
        TRY(safetensors_check_floats(f->file, &wanted));
    }
    return check_rest(f, declared);
}

/* Opens the file and sees whether it fits. Close with safetensors_close, also after a failure. */
static enum der_status open_fitting(struct der_ctx *ctx, const struct weights_options *options,
                                    const struct resnet_spec *spec, struct fitting *f)
{
    struct param_set *declared;
    *f = (struct fitting){.ctx = ctx, .path = options->path};
    TRY(safetensors_open(ctx, options->io, options->path, &f->file));
    if (options->prefix)
        TRY(take_prefix(ctx, f->path, options->prefix, strlen(options->prefix), f->match.prefix));
    else
        TRY(find_prefix(ctx, f->path, f->file, f->match.prefix));
    TRY(param_set_new(ctx, &declared));
    enum der_status status = fit(f, spec, declared);
    param_set_free(declared);
    return status;
}

static enum der_status finish(struct fitting *f, enum der_status status,
                              struct weights_match *match)
{
    safetensors_close(f->file);
    if (status == DER_OK && match)
        *match = f->match;
    return status;
}

enum der_status weights_check(struct der_ctx *ctx, const struct weights_options *options,
                              const struct resnet_spec *spec, struct weights_match *match)
{
    struct fitting f;
    enum der_status status = open_fitting(ctx, options, spec, &f);
    return finish(&f, status, match);
}

/* ---- loading and writing --------------------------------------------------------------------------- */

static enum der_status load_one(struct fitting *f, struct param_set *set, int index)
{
    const struct safetensors_tensor wanted = tensor_of(f, &set->items[index]);
    size_t count = (size_t)shape_count(set->items[index].shape);
    float *host = mem_alloc(&f->ctx->mem, count, sizeof *host);
    if (!host)
        return ctx_nomem(f->ctx);
    enum der_status status = safetensors_read_floats(f->file, &wanted, host);
    if (status == DER_OK)
        status = param_write(set, index, host);
    mem_free(&f->ctx->mem, host);
    return status;
}

enum der_status weights_load(const struct weights_options *options, struct extractor *extractor,
                             struct weights_match *match)
{
    struct param_set *set = extractor->params;
    struct fitting f;
    enum der_status status = open_fitting(set->ctx, options, &extractor->spec, &f);
    for (int i = 0; i < set->n && status == DER_OK; i++)
        status = load_one(&f, set, i);
    if (status == DER_OK)
        status = params_check_variances(set, options->path, f.match.prefix);
    return finish(&f, status, match);
}

enum der_status weights_write(const struct extractor *extractor, const struct io_calls *io,
                              const char *path)
{
    struct der_ctx *ctx = extractor->params->ctx;
    struct safetensors_writer *writer;
    struct tensor_list list;
    TRY(safetensors_writer_new(ctx, io, path, &writer));
    tensor_list_init(&list, ctx);
    enum der_status status = tensor_list_add_params(&list, "", extractor->params, false);
    if (status == DER_OK)
        status = tensor_list_write(&list, writer);
    tensor_list_fini(&list);
    if (status != DER_OK) {
        safetensors_abort(writer);
        return status;
    }
    return safetensors_commit(writer);
}
