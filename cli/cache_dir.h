/*
 * The folder for what takes long to make and can be made again; struct der_ctx_options says what goes there.
 */
#ifndef CLI_CACHE_DIR_H
#define CLI_CACHE_DIR_H

enum { CACHE_DIR_MAX = 4096 };

/* $DER_CACHE_DIR, $XDG_CACHE_HOME/der or ~/.cache/der, the first that there is. NULL: $DER_CACHE_DIR is empty, or there is
 * none. Stands in `path` or in the environment. */
const char *cache_dir(char path[CACHE_DIR_MAX]);

#endif
