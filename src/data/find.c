#include "data/find.h"

#include "data/listing.h"

#include <sys/stat.h>

struct search {
    struct der_ctx *ctx;
    bool (*found)(void *user, const char *path);
    void *user;
    bool is_over;
    struct stat within[FIND_MAX_DEPTH]; /* the folder that is searched, and those it lies in */
};

static enum der_status search_folder(struct search *search, const char *folder, int depth);

/* Every name of a listing as a path: told, or searched. */
static enum der_status visit(struct search *search, const char *folder, enum listing_kind kind,
                             int depth)
{
    struct listing listing;
    struct arena *arena = &listing.arena;
    enum der_status status = listing_read(search->ctx, folder, kind, &listing);
    for (size_t i = 0; i < listing.n && status == DER_OK && !search->is_over; i++) {
        const char *path = arena_printf(arena, "%s/%s", folder, listing.names[i]);
        if (!path)
            status = ctx_nomem(search->ctx);
        else if (kind == LISTING_IMAGES)
            search->is_over = !search->found(search->user, path);
        else
            status = search_folder(search, path, depth + 1);
    }
    listing_free(&listing);
    return status;
}

/* Does a link lead back to a folder that is being searched? */
static bool is_circle(const struct search *search, const struct stat *info, int depth)
{
    for (int i = 0; i < depth - 1; i++)
        if (search->within[i].st_dev == info->st_dev && search->within[i].st_ino == info->st_ino)
            return true;
    return false;
}

static enum der_status search_folder(struct search *search, const char *folder, int depth)
{
    struct stat info = {0};
    if (stat(folder, &info) == 0 && is_circle(search, &info, depth))
        return DER_OK; /* what cannot be examined cannot be listed either, which is told below */
    if (depth > FIND_MAX_DEPTH)
        return ctx_fail(search->ctx, DER_FORMAT, "%s: more than %d folders within each other",
                        folder, FIND_MAX_DEPTH);
    search->within[depth - 1] = info;
    TRY(visit(search, folder, LISTING_IMAGES, depth));
    return visit(search, folder, LISTING_FOLDERS, depth);
}

enum der_status find_images(struct der_ctx *ctx, const char *folder,
                            bool (*found)(void *user, const char *path), void *user)
{
    struct search search = {.ctx = ctx, .found = found, .user = user};
    return search_folder(&search, folder, 1);
}
