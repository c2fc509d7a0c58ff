#include "data/find.h"

#include "data/listing.h"

#include <sys/stat.h>

struct search {
    struct der_ctx *ctx;
    bool (*found)(void *user, const char *path);
    void *user;
    bool is_over;
};

static bool is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

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
        else if (!is_link(path))
            status = search_folder(search, path, depth + 1);
    }
    listing_free(&listing);
    return status;
}

static enum der_status search_folder(struct search *search, const char *folder, int depth)
{
    if (depth > FIND_MAX_DEPTH)
        return ctx_fail(search->ctx, DER_FORMAT, "%s: more than %d folders within each other",
                        folder, FIND_MAX_DEPTH);
    TRY(visit(search, folder, LISTING_IMAGES, depth));
    return visit(search, folder, LISTING_FOLDERS, depth);
}

enum der_status find_images(struct der_ctx *ctx, const char *folder,
                            bool (*found)(void *user, const char *path), void *user)
{
    struct search search = {.ctx = ctx, .found = found, .user = user};
    return search_folder(&search, folder, 1);
}
