/*
 * The back ends of this build. The only place outside the back ends that names them.
 */
#include "graph/backend.h"

#include "der_build.h"

extern const struct backend_ops ref_backend;
#if DER_HAVE_DNNL
extern const struct backend_ops cpu_backend;
#endif
#if DER_HAVE_CUDA
extern const struct backend_ops cuda_backend;
#endif

const struct backend_ops *const *backend_list(void)
{
    static const struct backend_ops *const list[] = {
#if DER_HAVE_DNNL
        &cpu_backend,
#endif
#if DER_HAVE_CUDA
        &cuda_backend,
#endif
        &ref_backend,
        NULL,
    };
    return list;
}

bool backend_is_usable(const struct backend_ops *ops)
{
    return !ops->is_usable || ops->is_usable();
}

const char *backend_default(void)
{
#if DER_HAVE_CUDA
    if (backend_is_usable(&cuda_backend))
        return cuda_backend.name;
#endif
    /* The list has the fastest first but for cuda, which not every machine can use. */
    const struct backend_ops *const *list = backend_list();
    while (!backend_is_usable(*list))
        list++;
    return (*list)->name;
}
