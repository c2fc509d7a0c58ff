#include "backend/cuda/cuda_libs.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(x) #x
#define NUMBER_OF(x) TEXT_OF(x)

enum { PATH_CHARS = 512 };

/* By the loader's own search first, then where the build found the toolkit. */
static void *open_library(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    char path[PATH_CHARS];
    if (!library && snprintf(path, sizeof path, "%s/%s", CUDA_LIBRARY_DIR, name) < PATH_CHARS)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library;
}

static enum der_status find(struct der_ctx *ctx, void *library, const char *file, const char *name,
                            void *function, size_t size)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        return ctx_fail(ctx, DER_UNSUPPORTED, "%s has no function %s: it is too old", file, name);
    memcpy(function, &symbol, size); /* ISO C has no cast from object to function pointers */
    return DER_OK;
}

enum der_status cuda_libs_load(struct der_ctx *ctx, struct cuda_libs *libs)
{
    static const char CUDNN[] = "libcudnn.so." NUMBER_OF(CUDNN_MAJOR);
    static const char CUBLASLT[] = "libcublasLt.so." NUMBER_OF(CUBLAS_VER_MAJOR);
    static const char MISSING[] =
        "back end 'cuda' needs %s, which cannot be loaded; install it, or "
        "name its folder in LD_LIBRARY_PATH";
    void *library = open_library(CUDNN);
    if (!library)
        return ctx_fail(ctx, DER_UNSUPPORTED, MISSING, CUDNN);
#define FIND(name) TRY(find(ctx, library, CUDNN, #name, (void *)&libs->name, sizeof libs->name));
    CUDNN_FUNCTIONS(FIND)
#undef FIND
    library = open_library(CUBLASLT);
    if (!library)
        return ctx_fail(ctx, DER_UNSUPPORTED, MISSING, CUBLASLT);
#define FIND(name) TRY(find(ctx, library, CUBLASLT, #name, (void *)&libs->name, sizeof libs->name));
    CUBLASLT_FUNCTIONS(FIND)
#undef FIND
    return DER_OK;
}
