/*
 * A data set that is offered by name, from its publishers into a folder: downloaded, checked against its
 * checksum, unpacked, looked at, and only then given its name.
 *
 *     DIR/NAME.part              what was downloaded so far; the next call goes on from there
 *     DIR/.FOLDER.unpacking      files of an archive that is being unpacked
 *     DIR/FOLDER, DIR/NAME       whole, or not there
 *
 * The checksum decides: what was pieced together of two versions of a file is thrown away and downloaded once
 * more. One process at a time works on a file; a second one is refused.
 */
#ifndef FETCH_FETCH_H
#define FETCH_FETCH_H

#include "fetch/offer.h"
#include "fetch/watch.h"
#include "io/io_calls.h"

struct fetch_options {
    const struct io_calls *io; /* NULL: the system's */
    const char *url; /* in place of the offer's: address of the file, or, with a slash at its end
                           * or for several files, of their folder; NULL: the offer's */
    const char
        *checksum;     /* "md5:HEX" or "sha256:HEX" in place of the offer's, for offers of one file,
                           * whose size is then not checked either; NULL: the offer's */
    int stall_seconds; /* see transfer.h */
    int retries;
    double pause_seconds;
    struct fetch_watch watch;
    /* Is what came from `url` and was unpacked to `folder` the data set? DER_FORMAT says no and throws the archive
     * away, any other failure keeps it; NULL: whatever has the checksum is */
    enum der_status (*content)(void *user, const char *folder, const char *url);
    void *content_user;
};

/* Makes the folder if it is not there; its parent must be. Files that are there already are kept when
 * their checksum is right, and are an error when it is not: nothing of the user's is written over. */
NODISCARD enum der_status fetch_run(struct der_ctx *ctx, const struct offer *offer,
                                    const char *folder, const struct fetch_options *options);

#endif
