#include "data/check_ignored.h"

#include "data/listing.h"
#include "data/reader.h"

#include <stdio.h>
#include <string.h>

enum { NAMES_SHOWN = 5, NAMES_TEXT = 400 };

/* "a, b, c ... (12)" */
static void join_names(const struct listing *listing, char text[NAMES_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < listing->n && i < NAMES_SHOWN && used < NAMES_TEXT; i++)
        used += (size_t)snprintf(text + used, NAMES_TEXT - used, "%s%.60s", i > 0 ? ", " : "",
                                 listing->names[i]);
    if (listing->n > NAMES_SHOWN && used < NAMES_TEXT)
        (void)snprintf(text + used, NAMES_TEXT - used, " and %zu more", listing->n - NAMES_SHOWN);
}

/* `reason` NULL: memory was short when it was made. */
static enum der_status report(struct data_check *check, const char *folder, const char *reason,
                              const struct listing *ignored)
{
    char names[NAMES_TEXT];
    if (!reason)
        return ctx_nomem(check->ctx);
    if (ignored->n == 0)
        return DER_OK;
    join_names(ignored, names);
    return check_find(
        check, CHECK_IGNORED,
        arena_printf(&check->arena, "%s: ignored, since %s: %s", folder, reason, names));
}

/* Leaves the names for which `is_read` says no. */
static void drop_read(struct listing *listing, bool (*is_read)(const void *user, const char *name),
                      const void *user)
{
    size_t kept = 0;
    for (size_t i = 0; i < listing->n; i++)
        if (!is_read(user, listing->names[i]))
            listing->names[kept++] = listing->names[i];
    listing->n = kept;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Lists of labels are read, though they are no images. */
static bool is_list(const void *user, const char *name)
{
    (void)user;
    return folder_is_list(name);
}

static enum der_status look_at_files(struct data_check *check, const char *folder,
                                     enum listing_kind kind)
{
    struct listing others;
    enum der_status status = listing_read(check->ctx, folder, kind, &others);
    drop_read(&others, is_list, NULL);
    if (status == DER_OK)
        status = report(check, folder,
                        kind == LISTING_NOT_IMAGES ? "no .jpg, .jpeg or .png file"
                                                   : "in no class folder",
                        &others);
    listing_free(&others);
    return status;
}

/* Cuts the last part off a path of the arena; NULL when memory is short. */
static char *parent_of(struct data_check *check, const char *path)
{
    const char *slash = strrchr(path, '/');
    return arena_printf(&check->arena, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

/* Images of a class lie side by side, so a new folder is one that differs from the last. */
static enum der_status look_at_split(struct data_check *check, enum data_split split)
{
    const struct data_part *part = &check->set->part[split];
    const char *folder = "";
    const char *above = "";
    for (int64_t i = 0; part->files && i < part->n; i++) {
        const char *slash = strrchr(part->files[i], '/');
        size_t length = slash ? (size_t)(slash - part->files[i]) : 0;
        if (strlen(folder) == length && strncmp(folder, part->files[i], length) == 0)
            continue;
        folder = parent_of(check, part->files[i]);
        const char *parent = folder ? parent_of(check, folder) : NULL;
        if (!folder || !parent)
            return ctx_nomem(check->ctx);
        TRY(look_at_files(check, folder, LISTING_NOT_IMAGES));
        if (strcmp(parent, above) != 0)
            TRY(look_at_files(check, parent, LISTING_NOT_FOLDERS));
        above = parent;
    }
    return DER_OK;
}

/* ---- folders --------------------------------------------------------------------------------- */

static bool is_split(const void *user, const char *name)
{
    const char *test = user;
    return strcmp(name, "train") == 0 || (test && strcmp(name, test) == 0);
}

/* Beside train and val: pictures of both "val" and "test", or of a "validation", pass for used. */
static enum der_status look_beside_splits(struct data_check *check, const char *test)
{
    const char *folder = check->set->path;
    const char *reason = arena_printf(&check->arena, "images are read from train %s%s",
                                      test ? "and " : "alone", test ? test : "");
    struct listing others;
    enum der_status status = listing_read(check->ctx, folder, LISTING_FOLDERS, &others);
    drop_read(&others, is_split, test);
    if (status == DER_OK)
        status = report(check, folder, reason, &others);
    listing_free(&others);
    return status;
}

/* Folders of test images: those with a namesake that is trained on, or would be if it were chosen, and the one
 * that a list of labels is about. */
struct known {
    struct listing classes;
    bool has_list;
};

static bool is_known(const void *user, const char *name)
{
    const struct known *known = user;
    return listing_find(&known->classes, name, strlen(name)) >= 0 ||
           (known->has_list && strcmp(name, "images") == 0);
}

static enum der_status look_for_strangers(struct data_check *check, const char *train,
                                          const char *test, const struct known *known)
{
    struct listing others;
    enum der_status status = listing_read(check->ctx, test, LISTING_FOLDERS, &others);
    drop_read(&others, is_known, known);
    if (status == DER_OK)
        status = report(check, test, arena_printf(&check->arena, "no class of %s", train), &others);
    listing_free(&others);
    return status;
}

/* Classes to test with that are not trained on. */
static enum der_status look_at_test_classes(struct data_check *check, const char *train,
                                            const char *test)
{
    const struct data_part *part = &check->set->part[DATA_TEST];
    const char *below = part->n > 0 ? part->files[0] + strlen(test) + 1 : "";
    if (!strchr(below, '/'))
        return DER_OK; /* images in `test` itself: look_at_split has met what lies among them */
    struct known known = {.has_list = strncmp(below, "images/", strlen("images/")) == 0};
    enum der_status status = listing_read(check->ctx, train, LISTING_FOLDERS, &known.classes);
    if (status == DER_OK)
        status = look_for_strangers(check, train, test, &known);
    listing_free(&known.classes);
    return status;
}

static enum der_status look_at_folders(struct data_check *check)
{
    struct dataset *set = check->set;
    if (!set->part[DATA_TRAIN].files || !reader_is_folder(set->path, "train"))
        return DER_OK;
    const char *name = folder_test_name(set->path);
    TRY(look_beside_splits(check, name));
    if (!name)
        return DER_OK;
    const char *train = reader_path(set, set->path, "train");
    const char *test = reader_path(set, set->path, name);
    if (!train || !test)
        return ctx_nomem(check->ctx);
    return look_at_test_classes(check, train, test);
}

/* ---- the whole ------------------------------------------------------------------------------- */

enum der_status check_ignored(struct data_check *check)
{
    for (int split = 0; split < DATA_SPLITS; split++)
        TRY(look_at_split(check, (enum data_split)split));
    return look_at_folders(check);
}
