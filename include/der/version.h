/*
 * The version of the library and what was built into it.
 *
 * The three numbers below are the only place where the version is written; the build reads them.
 */
#ifndef DER_VERSION_H
#define DER_VERSION_H

#include <der/export.h>

#define DER_VERSION_MAJOR 0
#define DER_VERSION_MINOR 1
#define DER_VERSION_PATCH 0

/* What was fixed when the library was built. Strings are never NULL and of static storage. */
struct der_build_info {
    const char *version;    /* "major.minor.patch" */
    const char *build_type; /* "release", "debug" */
    const char *compiler;   /* name and version of the C compiler */
    const char *back_ends;  /* names of the back ends, separated by ", " */
    const char *formats;    /* optional file formats of data sets, separated by ", " */
    const char *dnnl;       /* version of the oneDNN headers; "" when not built in */
    const char *openmp;     /* version of OpenMP; "" when not built in */
    const char *cuda;       /* version of the CUDA toolkit; "" when not built in */
    const char *downloads;  /* libraries that der_data_get works with; "" when not built in */
};

/* The version of the library that is running, which a program may compare with the
 * DER_VERSION_* it was compiled with. */
DER_API const char *der_version(void);

/* What is built in. Static storage. */
DER_API const struct der_build_info *der_build_info(void);

#endif
