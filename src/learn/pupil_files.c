#include "learn/pupil_files.h"

#include "io/durable.h"
#include "store/album_file.h"
#include "store/companion.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ENDING ".safetensors"

enum companion { ALBUM, BASIS, COMPANIONS };

static const char *const ROLES[COMPANIONS] = {[ALBUM] = ".exemplars", [BASIS] = ".state"};

/* Where everything is; the texts are the arena's. */
struct places {
    struct der_ctx *ctx;
    const struct io_calls *io; /* never NULL */
    struct arena texts;
    const char *model, *model_next;
    const char *file[COMPANIONS], *next[COMPANIONS];
    const char *lock;
};

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool pupil_exists(const char *path)
{
    return exists(path);
}

/* Behind a link, where one is. */
static enum der_status follow(struct places *p, const char *path, const char **out)
{
    char *place;
    TRY(durable_place(p->ctx, path, &place));
    *out = arena_strdup(&p->texts, place);
    mem_free(&p->ctx->mem, place);
    return *out ? DER_OK : ctx_nomem(p->ctx);
}

/* cats.safetensors has cats.exemplars.safetensors; a model without that ending has everything behind its name. */
static enum der_status add_companions(struct places *p)
{
    size_t length = strlen(p->model);
    size_t tail = strlen(ENDING);
    bool has_ending = length > tail && strcmp(p->model + length - tail, ENDING) == 0;
    int stem = (int)(has_ending ? length - tail : length);
    p->lock = arena_printf(&p->texts, "%.*s.lock", stem, p->model);
    for (int i = 0; i < COMPANIONS && p->lock; i++) {
        const char *name = arena_printf(&p->texts, "%.*s%s" ENDING, stem, p->model, ROLES[i]);
        if (!name)
            return ctx_nomem(p->ctx);
        TRY(follow(p, name, &p->file[i]));
        p->next[i] = arena_printf(&p->texts, "%s.next", p->file[i]);
        if (!p->next[i])
            return ctx_nomem(p->ctx);
    }
    return p->lock ? DER_OK : ctx_nomem(p->ctx);
}

static enum der_status places_init(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                   struct places *p)
{
    *p = (struct places){.ctx = ctx, .io = io ? io : io_calls_plain()};
    arena_init(&p->texts, &ctx->mem);
    TRY(follow(p, path, &p->model));
    p->model_next = arena_printf(&p->texts, "%s.next", p->model);
    return p->model_next ? add_companions(p) : ctx_nomem(ctx);
}

static void places_fini(struct places *p)
{
    arena_fini(&p->texts);
}

enum der_status pupil_lock(struct der_ctx *ctx, const char *path, struct lock **out)
{
    struct places p;
    *out = NULL;
    enum der_status status = places_init(ctx, NULL, path, &p);
    if (status == DER_OK)
        status = lock_take(ctx, p.lock, path, out);
    places_fini(&p);
    return status;
}

enum der_status pupil_check_room(struct der_ctx *ctx, const char *path)
{
    struct places p;
    enum der_status status = places_init(ctx, NULL, path, &p);
    for (int i = 0; i < COMPANIONS && status == DER_OK; i++)
        if (exists(p.file[i]))
            status = ctx_fail(ctx, DER_STATE,
                              "%s is there, but not its model %s: put that back, or move the "
                              "file away to begin a new one",
                              p.file[i], path);
    places_fini(&p);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------- */

/* Does a file name this model? One that is not there does not, nor one that is no companion at all. */
static enum der_status belongs(const struct places *p, const char *path, uint64_t model, bool *out)
{
    uint64_t named = 0;
    *out = false;
    if (!exists(path))
        return DER_OK;
    enum der_status status = companion_peek(p->ctx, p->io, path, &named);
    *out = status == DER_OK && named == model;
    return status == DER_FORMAT ? DER_OK : status;
}

/* A companion in its place, or still beside it. */
static enum der_status find(const struct places *p, enum companion which, uint64_t model,
                            const char **path)
{
    bool is_here;
    bool is_beside;
    TRY(belongs(p, p->file[which], model, &is_here));
    TRY(belongs(p, p->next[which], model, &is_beside));
    *path = is_here ? p->file[which] : p->next[which];
    if (is_here || is_beside)
        return DER_OK;
    if (exists(p->file[which]))
        return ctx_fail(p->ctx, DER_STATE,
                        "%s does not belong to this version of %s; to learn on, put the file back "
                        "that was saved with it, or begin a new model",
                        p->file[which], p->model);
    return ctx_fail(p->ctx, DER_STATE,
                    "%s is missing: %s can predict without it, but not learn on; copy it along "
                    "with the model, or begin a new one",
                    p->file[which], p->model);
}

/* The pictures must be of the model's classes, or none would know what they show. */
static enum der_status check_album(const struct places *p, const char *path,
                                   const struct pupil *pupil)
{
    const struct model_info *info = &pupil->model->info;
    const struct dataset *album = pupil->album;
    bool fits = album->n_classes == info->n_classes && album->channels == info->input.channels;
    for (int k = 0; fits && k < info->n_classes; k++)
        fits = strcmp(album->class_names[k], info->classes[k]) == 0;
    return fits ? DER_OK
                : ctx_fail(p->ctx, DER_FORMAT, "%s has other classes or colours than %s", path,
                           p->model);
}

static enum der_status load(const struct places *p, struct pupil *pupil)
{
    struct backend *be = pupil->be;
    const char *path[COMPANIONS];
    uint64_t model;
    struct resnet_spec spec;
    TRY(companion_fingerprint(p->ctx, p->io, p->model, &model));
    TRY(model_load(be, p->io, p->model, &pupil->model));
    for (int i = 0; i < COMPANIONS; i++)
        TRY(find(p, (enum companion)i, model, &path[i]));
    TRY(album_read(p->ctx, p->io, path[ALBUM], &pupil->album));
    TRY(check_album(p, path[ALBUM], pupil));
    const struct model_info *info = &pupil->model->info;
    TRY(text_blame(p->ctx, p->model,
                   resnet_spec_init(p->ctx, &spec, info->network, info->input.channels,
                                    info->input.height, info->input.width, info->width)));
    return basis_read(be, p->io, path[BASIS], &spec, &pupil->basis);
}

enum der_status pupil_load(struct backend *be, const struct io_calls *io, const char *path,
                           struct pupil *out)
{
    struct places p;
    *out = (struct pupil){.be = be};
    enum der_status status = places_init(be->ctx, io, path, &p);
    if (status == DER_OK)
        status = load(&p, out);
    places_fini(&p);
    if (status != DER_OK)
        pupil_fini(out);
    return status;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static enum der_status remove_file(const struct places *p, const char *path)
{
    if (!exists(path) || p->io->unlink(p->io->user, path) == 0)
        return DER_OK;
    return io_fail(p->ctx, "cannot remove", path, errno);
}

/* Are two files in one folder, by their names? */
static bool share_folder(const char *a, const char *b)
{
    const char *slash = strrchr(a, '/');
    size_t length = slash ? (size_t)(slash - a) + 1 : 0;
    return strncmp(a, b, length) == 0 && !strchr(b + length, '/');
}

static enum der_status move(const struct places *p, const char *from, const char *to)
{
    if (p->io->rename(p->io->user, from, to) == 0)
        return DER_OK;
    return io_fail(p->ctx, "cannot put in place", to, errno);
}

/* Companions behind links may have folders of their own. */
static enum der_status sync_names(const struct places *p)
{
    TRY(durable_sync_names(p->ctx, p->io, p->model));
    for (int i = 0; i < COMPANIONS; i++)
        if (!share_folder(p->model, p->file[i]))
            TRY(durable_sync_names(p->ctx, p->io, p->file[i]));
    return DER_OK;
}

/* What a killed process left: companions that the model in its place knows go to theirs, the rest goes away. */
static enum der_status settle(const struct places *p)
{
    uint64_t model = 0;
    bool has_model = exists(p->model);
    TRY(durable_sweep_file(p->ctx, p->model_next));
    for (int i = 0; i < COMPANIONS; i++)
        TRY(durable_sweep_file(p->ctx, p->next[i]));
    TRY(remove_file(p, p->model_next));
    if (has_model)
        TRY(companion_fingerprint(p->ctx, p->io, p->model, &model));
    for (int i = 0; i < COMPANIONS; i++) {
        bool is_wanted = false;
        if (has_model)
            TRY(belongs(p, p->next[i], model, &is_wanted));
        if (is_wanted)
            TRY(move(p, p->next[i], p->file[i]));
        else
            TRY(remove_file(p, p->next[i]));
    }
    return sync_names(p);
}

static enum der_status save(const struct places *p, const struct pupil *pupil)
{
    uint64_t model;
    TRY(settle(p));
    TRY(model_write(pupil->model, p->io, p->model_next));
    TRY(companion_fingerprint(p->ctx, p->io, p->model_next, &model));
    TRY(album_write(pupil->album, model, p->io, p->next[ALBUM]));
    TRY(basis_write(&pupil->basis, model, p->io, p->next[BASIS]));
    TRY(move(p, p->model_next, p->model)); /* from here on it is the new one */
    TRY(durable_sync_names(p->ctx, p->io, p->model));
    for (int i = 0; i < COMPANIONS; i++)
        TRY(move(p, p->next[i], p->file[i]));
    return sync_names(p);
}

enum der_status pupil_save(const struct pupil *pupil, const struct io_calls *io, const char *path)
{
    struct places p;
    enum der_status status = places_init(pupil->be->ctx, io, path, &p);
    if (status == DER_OK)
        status = save(&p, pupil);
    places_fini(&p);
    return status;
}
