/*
 * Archives for tests, good and evil, written with libarchive. All of it is in the header, so that a build without
 * libarchive can do without it.
 */
#ifndef SUPPORT_TAR_FILE_H
#define SUPPORT_TAR_FILE_H

#include "support/test_ctx.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>

enum tar_type { TAR_FILE, TAR_FOLDER, TAR_SYMLINK, TAR_HARDLINK, TAR_FIFO };

struct tar_entry {
    enum tar_type type;
    const char *path;
    const char *text; /* content of a file, target of a link; NULL: `size` zeros */
    size_t size;
};

static inline void tar_describe(struct archive_entry *out, const struct tar_entry *entry,
                                size_t size)
{
    static const mode_t types[] = {[TAR_FILE] = AE_IFREG,
                                   [TAR_FOLDER] = AE_IFDIR,
                                   [TAR_SYMLINK] = AE_IFLNK,
                                   [TAR_HARDLINK] = AE_IFREG,
                                   [TAR_FIFO] = AE_IFIFO};
    archive_entry_set_pathname(out, entry->path);
    archive_entry_set_filetype(out, types[entry->type]);
    archive_entry_set_perm(out, 0755);
    archive_entry_set_size(out, (la_int64_t)size);
    if (entry->type == TAR_SYMLINK)
        archive_entry_set_symlink(out, entry->text);
    if (entry->type == TAR_HARDLINK)
        archive_entry_set_hardlink(out, entry->text);
}

static inline void tar_append(struct archive *archive, const struct tar_entry *entry)
{
    static const char zeros[1 << 16];
    size_t left = 0;
    if (entry->type == TAR_FILE)
        left = entry->text ? strlen(entry->text) : entry->size;
    struct archive_entry *header = archive_entry_new();
    tar_describe(header, entry, left);
    assert_int_equal(archive_write_header(archive, header), ARCHIVE_OK);
    archive_entry_free(header);
    while (left > 0) {
        size_t n = entry->text || left < sizeof zeros ? left : sizeof zeros;
        assert_int_equal(archive_write_data(archive, entry->text ? entry->text : zeros, n), n);
        left -= n;
    }
}

/* Writes n entries as a tar file packed with gzip; fails the running test when it cannot. */
static inline void tar_write(const char *path, const struct tar_entry *entries, size_t n)
{
    struct archive *archive = archive_write_new();
    assert_int_equal(archive_write_add_filter_gzip(archive), ARCHIVE_OK);
    assert_int_equal(archive_write_set_format_gnutar(archive), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(archive, path), ARCHIVE_OK);
    for (size_t i = 0; i < n; i++)
        tar_append(archive, &entries[i]);
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
}

#endif
