#include "store/basis_file.h"

#include "store/companion.h"
#include "store/stored_extractor.h"
#include "store/tensor_list.h"

#define PREFIX "last_full."
#define TRAINED "trained.pictures"

enum { MOST_MEMORY = 1000000000 }; /* what the setting allows */

static const int64_t MOST_PARAMS = INT64_C(1) << 53;

void basis_fini(struct basis *basis)
{
    extractor_free(basis->last_full);
    picture_set_fini(&basis->trained);
    *basis = (struct basis){0};
}

/* ---- writing ------------------------------------------------------------------------------------- */

static cJSON *make_text(const struct basis *basis, uint64_t model)
{
    cJSON *object = cJSON_CreateObject();
    if (object && companion_describe(object, model) &&
        cJSON_AddNumberToObject(object, "memory", basis->memory) &&
        cJSON_AddNumberToObject(object, "target_params", (double)basis->target_params))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static enum der_status write_all(struct der_ctx *ctx, const struct basis *basis, uint64_t model,
                                 struct safetensors_writer *writer)
{
    struct tensor_list list;
    TRY(text_describe(ctx, writer, make_text(basis, model)));
    tensor_list_init(&list, ctx);
    enum der_status status = tensor_list_add(&list, TRAINED, SAFETENSORS_I64, basis->trained.n, -1,
                                             basis->trained.marks);
    if (status == DER_OK)
        status = tensor_list_add_params(&list, PREFIX, basis->last_full->params, false);
    if (status == DER_OK)
        status = tensor_list_write(&list, writer);
    tensor_list_fini(&list);
    return status;
}

enum der_status basis_write(const struct basis *basis, uint64_t model, const struct io_calls *io,
                            const char *path)
{
    struct der_ctx *ctx = basis->last_full->be->ctx;
    struct safetensors_writer *writer;
    TRY(safetensors_writer_new(ctx, io, path, &writer));
    enum der_status status = write_all(ctx, basis, model, writer);
    if (status != DER_OK) {
        safetensors_abort(writer);
        return status;
    }
    return safetensors_commit(writer);
}

/* ---- reading ------------------------------------------------------------------------------------- */

static enum der_status get_text(struct der_ctx *ctx, const char *path,
                                const struct safetensors_file *file, struct basis *basis)
{
    static const char *const keys[] = {"format", "model", "memory", "target_params", NULL};
    cJSON *object;
    int64_t memory = 0;
    uint64_t model;
    TRY(text_description(ctx, path, file, &object));
    enum der_status status = text_members(ctx, path, object, keys);
    if (status == DER_OK)
        status = companion_model(ctx, path, object, &model);
    if (status == DER_OK)
        status = json_get_int(ctx, path, object, "memory", 1, MOST_MEMORY, &memory);
    if (status == DER_OK)
        status =
            json_get_int(ctx, path, object, "target_params", 0, MOST_PARAMS, &basis->target_params);
    basis->memory = (int)memory;
    json_free(object);
    return status;
}

/* Files were once written without them. */
static enum der_status get_trained(struct der_ctx *ctx, const char *path,
                                   struct safetensors_file *file, struct picture_set *set,
                                   int *n_tensors)
{
    const struct safetensors_tensor *found = safetensors_find(file, TRAINED);
    if (!found)
        return DER_OK;
    const struct safetensors_tensor wanted = {
        .name = TRAINED, .dtype = SAFETENSORS_I64, .rank = 1, .dim = {found->dim[0]}};
    TRY(safetensors_check(file, &wanted));
    *set = (struct picture_set){.ctx = ctx, .n = wanted.dim[0]};
    set->marks = mem_alloc(&ctx->mem, (size_t)set->n, sizeof *set->marks);
    if (!set->marks)
        return ctx_nomem(ctx);
    TRY(safetensors_read(file, &wanted, SAFETENSORS_ANY, set->marks));
    for (int64_t i = 1; i < set->n; i++)
        if (set->marks[i] <= set->marks[i - 1])
            return ctx_fail(ctx, DER_FORMAT, "%s: the fingerprints in '%s' do not rise", path,
                            TRAINED);
    ++*n_tensors;
    return DER_OK;
}

static enum der_status read_all(struct backend *be, const char *path, struct safetensors_file *file,
                                const struct resnet_spec *spec, struct basis *basis)
{
    int n_tensors = 0;
    TRY(get_text(be->ctx, path, file, basis));
    TRY(extractor_is_stored(be->ctx, path, file, PREFIX, spec, &n_tensors));
    TRY(get_trained(be->ctx, path, file, &basis->trained, &n_tensors));
    if (n_tensors != safetensors_count(file))
        return ctx_fail(be->ctx, DER_FORMAT, "%s has %d tensors, but %d are known", path,
                        safetensors_count(file), n_tensors);
    return extractor_restore(be, path, file, PREFIX, spec, &basis->last_full);
}

enum der_status basis_read(struct backend *be, const struct io_calls *io, const char *path,
                           const struct resnet_spec *spec, struct basis *out)
{
    struct safetensors_file *file;
    *out = (struct basis){0};
    TRY(safetensors_open(be->ctx, io, path, &file));
    enum der_status status = read_all(be, path, file, spec, out);
    safetensors_close(file);
    if (status != DER_OK)
        basis_fini(out);
    return status;
}
