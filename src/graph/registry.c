/*
 * The back ends of this build. The only place outside the back ends that names them.
 */
#include "graph/backend.h"

#include "der_build.h"

extern const struct backend_ops ref_backend;
#if DER_HAVE_DNNL
extern const struct backend_ops cpu_backend;
#endif

const struct backend_ops *const *backend_list(void)
{
    static const struct backend_ops *const list[] = {
#if DER_HAVE_DNNL
        &cpu_backend,
#endif
        &ref_backend,
        NULL,
    };
    return list;
}
