/*
 * The descriptions in the metadata of model and state files, as JSON.
 */
#ifndef STORE_MODEL_TEXT_H
#define STORE_MODEL_TEXT_H

#include "json/json.h"
#include "store/model_file.h"

#define STORE_METADATA_KEY "der" /* of safetensors' metadata, in every file of this room */

/* What other rooms call a wrong argument is a fault of the file when it came from there: DER_ARG becomes
 * DER_FORMAT, and the sentence begins with the source. Other statuses pass. */
NODISCARD enum der_status text_blame(struct der_ctx *ctx, const char *source,
                                     enum der_status status);

/* An object has these members, each once, and no others: DER_FORMAT otherwise. `keys` ends with NULL; one
 * that begins with '?' may be missing. */
NODISCARD enum der_status text_members(struct der_ctx *ctx, const char *source, const cJSON *object,
                                       const char *const *keys);

/* Parses the description in a file's metadata. Caller frees with json_free. */
NODISCARD enum der_status text_description(struct der_ctx *ctx, const char *source,
                                           const struct safetensors_file *file, cJSON **out);

/* Writes the description, which is taken over; NULL means that there was no memory to make it. */
NODISCARD enum der_status text_describe(struct der_ctx *ctx, struct safetensors_writer *writer,
                                        cJSON *object);

/* A description of what belongs to classes: {"format", "step", "classes"}. NULL: no memory. */
cJSON *text_from_names(const char *const *classes, int n, int step);

/* A vector that is there, of that type; its floats are finite. Caller frees with mem_free, also after a
 * failure. */
NODISCARD enum der_status text_read_vector(struct der_ctx *ctx, const char *source,
                                           struct safetensors_file *file, const char *name,
                                           enum safetensors_dtype dtype, void **values, int64_t *n);

/* The member `step` of the description in a file, and nothing else of it. */
NODISCARD enum der_status text_peek_step(struct der_ctx *ctx, const struct io_calls *io,
                                         const char *path, int *step);

/* Names without one that is empty or occurs twice, from an array of texts; they and the list are the
 * arena's. At least `least` of them. */
NODISCARD enum der_status text_names(struct der_ctx *ctx, const char *source, const cJSON *array,
                                     int least, struct arena *arena, const char *const **names,
                                     int *n);

/* The words of the format: "3x3", "plain" ... */
const char *text_stem_name(enum resnet_stem stem);
const char *text_geometry_name(enum augment_geometry geometry);

/* The widths of a network, and back; the size of its images is the caller's. NULL: no memory. */
cJSON *text_from_spec(const struct resnet_spec *spec);
NODISCARD enum der_status text_to_spec(struct der_ctx *ctx, const char *source, const cJSON *object,
                                       struct resnet_spec *spec);

/* The whole description of a model. NULL: no memory. */
cJSON *text_from_model(const struct model *model);

/* The other way round. Texts go to model->texts; *specs [*n_specs], in that arena too, are the networks that
 * the tensors have to fit. */
NODISCARD enum der_status text_to_model(struct der_ctx *ctx, const char *source,
                                        const cJSON *object, struct model *model,
                                        struct resnet_spec **specs, int *n_specs);

#endif
