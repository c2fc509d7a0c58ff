/*
 * Linkage and attributes of the public functions.
 */
#ifndef DER_EXPORT_H
#define DER_EXPORT_H

#ifdef __cplusplus
#define DER_EXTERN extern "C"
#else
#define DER_EXTERN extern
#endif

#if defined(__GNUC__)
#define DER_API DER_EXTERN __attribute__((visibility("default")))
#define DER_NODISCARD __attribute__((warn_unused_result))
#else
#define DER_API DER_EXTERN
#define DER_NODISCARD
#endif

#endif
