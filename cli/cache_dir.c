#include "cache_dir.h"

#include <stdio.h>
#include <stdlib.h>

static const char *join(char path[CACHE_DIR_MAX], const char *folder, const char *name)
{
    const int length = snprintf(path, CACHE_DIR_MAX, "%s/%s", folder, name);
    return length < CACHE_DIR_MAX ? path : NULL;
}

const char *cache_dir(char path[CACHE_DIR_MAX])
{
    const char *own = getenv("DER_CACHE_DIR");
    const char *caches = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (own)
        return own[0] ? own : NULL;
    if (caches && caches[0] == '/') /* others are to be ignored, says the XDG specification */
        return join(path, caches, "der");
    if (home && home[0])
        return join(path, home, ".cache/der");
    return NULL;
}
