#include "report/thumbnails.h"

#include "data/image_encode.h"
#include "data/row.h"
#include "experiment/fingerprint.h"
#include "json/maker.h"
#include "report/base64.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SIDE = 48,       /* longest side of a thumbnail */
    SIDE_MANY = 32,  /* with many classes */
    MANY = 200,      /* classes that are many */
    EXEMPLARS = 600, /* thumbnails of exemplars in all */
    PER_CLASS = 10,
    WRONG = 24,
    NOTE_MAX = 400
};

/* What making them needs. */
struct studio {
    const struct run_view *run;
    struct der_ctx *ctx;
    struct dataset *set; /* NULL: there are no images, and the note says why */
    struct row_source source;
    struct row_tools tools;
    float *row;     /* one image [channels][height][width], 0 to 1 */
    uint8_t *strip; /* PER_CLASS of them side by side, planar */
    size_t budget;  /* bytes of text that may still be made */
    bool is_short;  /* it was not enough */
    char note[NOTE_MAX];
};

/* ---- the data set ---------------------------------------------------------------------------------- */

static bool is_same_set(const struct studio *s)
{
    char checksum[17];
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64, fingerprint_dataset(s->set));
    return strcmp(checksum, s->run->record.data_checksum) == 0;
}

/* The set, where it can be had. Only short memory is an error. */
static enum der_status open_set(struct studio *s, const char *data)
{
    const struct run_record *record = &s->run->record;
    const char *path = data ? data : record->data;
    struct dataset_options which = {.class_list = record->class_list,
                                    .first_classes = record->config.first_classes};
    if (!image_encode_is_built()) {
        (void)snprintf(s->note, sizeof s->note,
                       "This build of der has no libpng, so images are left out.");
        return DER_OK;
    }
    enum der_status status = dataset_open_with(s->ctx, path, &which, &s->set);
    if (status == DER_NOMEM)
        return status;
    if (status != DER_OK) {
        (void)snprintf(s->note, sizeof s->note, "Images are left out: %.300s.", s->ctx->error);
        return DER_OK;
    }
    if (is_same_set(s))
        return DER_OK;
    (void)snprintf(s->note, sizeof s->note,
                   "Images are left out: %.200s is not the data set of the run any more.", path);
    dataset_free(s->set);
    s->set = NULL;
    return DER_OK;
}

/* Images as they are where that is small enough, otherwise a square of the middle. */
static struct augment_spec spec_of(const struct dataset *set, int side)
{
    struct augment_spec spec = {.geometry = AUGMENT_PLAIN,
                                .channels = set->channels,
                                .height = set->height,
                                .width = set->width,
                                .scaled_decode = true};
    if (set->height < 1 || set->height > side || set->width > side) {
        spec.geometry = AUGMENT_SHORTER_SIDE;
        spec.height = spec.width = spec.resize = side;
    }
    for (int c = 0; c < spec.channels; c++)
        spec.std[c] = 1.0F; /* and a mean of 0: bytes over 255 */
    return spec;
}

static enum der_status set_up(struct studio *s)
{
    int side = s->run->outcome.n_classes > MANY ? SIDE_MANY : SIDE;
    struct augment_spec spec = spec_of(s->set, side);
    size_t bytes = (size_t)spec.channels * (size_t)spec.height * (size_t)spec.width;
    s->source.set = s->set;
    TRY(augment_init(s->ctx, &spec, &s->source.augment));
    s->row = mem_alloc(&s->ctx->mem, bytes, sizeof *s->row);
    s->strip = mem_alloc(&s->ctx->mem, bytes * PER_CLASS, 1);
    return s->row && s->strip ? DER_OK : ctx_nomem(s->ctx);
}

static void tear_down(struct studio *s)
{
    row_tools_fini(&s->tools);
    mem_free(&s->ctx->mem, s->row);
    mem_free(&s->ctx->mem, s->strip);
    dataset_free(s->set);
}

/* ---- images ---------------------------------------------------------------------------------------- */

/* Puts one image at place `at` of a strip of `n`. One that does not decode stays black. */
static enum der_status draw(struct studio *s, enum data_split split, int64_t sample, int at, int n)
{
    const struct augment_spec *spec = &s->source.augment.spec;
    size_t h = (size_t)spec->height;
    size_t w = (size_t)spec->width;
    s->source.split = split;
    enum der_status status = row_make(&s->source, &s->tools, sample, s->row);
    if (status == DER_NOMEM)
        return ctx_nomem(s->ctx);
    if (status != DER_OK)
        memset(s->row, 0, (size_t)spec->channels * h * w * sizeof *s->row);
    for (size_t c = 0; c < (size_t)spec->channels; c++)
        for (size_t y = 0; y < h; y++)
            for (size_t x = 0; x < w; x++)
                s->strip[((c * h + y) * (size_t)n + (size_t)at) * w + x] =
                    (uint8_t)(s->row[(c * h + y) * w + x] * 255.0F + 0.5F);
    return DER_OK;
}

/* The strip of n images as a data: URI under "image"; nothing when the budget is spent. */
static enum der_status add_strip(struct studio *s, int n, struct maker *m)
{
    const struct augment_spec *spec = &s->source.augment.spec;
    ptrdiff_t row = (ptrdiff_t)spec->width * n;
    struct image_view image = {.data = s->strip,
                               .channels = spec->channels,
                               .height = spec->height,
                               .width = (int)row,
                               .channel_stride = row * spec->height,
                               .row_stride = row,
                               .pixel_stride = 1};
    uint8_t *png;
    size_t size;
    struct text text = {.mem = &s->ctx->mem};
    char *uri = NULL;
    enum der_status status = image_encode_png(s->ctx, &image, &png, &size);
    if (status == DER_OK) {
        text_put(&text, "data:image/png;base64,");
        base64_put(&text, png, size);
        status = text_finish(s->ctx, &text, &uri);
    }
    mem_free(&s->ctx->mem, png);
    TRY(status);
    size_t length = strlen(uri);
    if (length <= s->budget) {
        s->budget -= length;
        add_text(m, "image", uri);
    } else {
        s->budget = 0; /* of two lists the end is missing, not the middle */
        s->is_short = true;
    }
    mem_free(&s->ctx->mem, uri);
    return DER_OK;
}

static enum der_status add_images(struct studio *s, enum data_split split, const int64_t *samples,
                                  int n, struct maker *m)
{
    if (!s->set || n == 0 || s->budget == 0)
        return DER_OK;
    for (int i = 0; i < n; i++)
        TRY(draw(s, split, samples[i], i, n));
    return add_strip(s, n, m);
}

/* ---- lists ----------------------------------------------------------------------------------------- */

/* Takes over the maker. */
static enum der_status append(struct studio *s, enum der_status status, struct maker *m,
                              cJSON *list)
{
    if (status != DER_OK) {
        cJSON_Delete(m->object);
        return status;
    }
    return append_item(list, maker_done(m)) ? DER_OK : ctx_nomem(s->ctx);
}

static enum der_status list_exemplars(struct studio *s, cJSON *list)
{
    if (!s->run->exemplars)
        return DER_OK;
    const struct exemplars *memory = s->run->exemplars->memory;
    int most = memory->n_classes > 0 ? EXEMPLARS / memory->n_classes : 0;
    most = most < 1 ? 1 : most > PER_CLASS ? PER_CLASS : most;
    for (int k = 0; k < memory->n_classes; k++) {
        const struct exemplar_list *kept = &memory->lists[k];
        int n = kept->n < most ? kept->n : most;
        struct maker m = maker_new();
        add_number(&m, "class", k);
        add_number(&m, "kept", kept->n);
        add_number(&m, "shown", n);
        TRY(append(s, add_images(s, DATA_TRAIN, kept->samples, n, &m), &m, list));
    }
    return DER_OK;
}

static enum der_status list_wrong(struct studio *s, cJSON *list)
{
    const struct prediction_file *file = s->run->predictions;
    int64_t worst[WRONG];
    if (!file)
        return DER_OK;
    int n = prediction_worst(file->predictions, file->n, WRONG, worst);
    for (int i = 0; i < n; i++) {
        const struct prediction *p = &file->predictions[worst[i]];
        struct maker m = maker_new();
        add_number(&m, "sample", (double)p->sample);
        add_number(&m, "label", p->label);
        add_number(&m, "guess", p->guess);
        add_number(&m, "confidence", (double)p->confidence);
        bool exists = s->set && p->sample < s->set->part[file->split].n;
        TRY(append(s, add_images(s, file->split, &p->sample, exists ? 1 : 0, &m), &m, list));
    }
    return DER_OK;
}

static enum der_status fill(struct studio *s, const char *data, cJSON *wrong, cJSON *exemplars)
{
    if (!wrong || !exemplars)
        return ctx_nomem(s->ctx);
    TRY(open_set(s, data));
    if (s->set)
        TRY(set_up(s));
    TRY(list_wrong(s, wrong));
    TRY(list_exemplars(s, exemplars));
    if (s->is_short)
        (void)snprintf(s->note, sizeof s->note, "Some images are left out to keep the page small.");
    return DER_OK;
}

enum der_status thumbnails_make(const struct run_view *run, const char *data, size_t budget,
                                cJSON **out)
{
    struct studio s = {.run = run, .ctx = run->ctx, .budget = budget};
    cJSON *wrong = cJSON_CreateArray();
    cJSON *exemplars = cJSON_CreateArray();
    *out = NULL;
    row_tools_init(&s.tools, &run->ctx->mem, NULL);
    enum der_status status = fill(&s, data, wrong, exemplars);
    tear_down(&s);
    if (status != DER_OK) {
        cJSON_Delete(wrong);
        cJSON_Delete(exemplars);
        return status;
    }
    struct maker m = maker_new();
    add_text(&m, "note", s.note);
    add_item(&m, "exemplars", exemplars);
    add_item(&m, "wrong", wrong);
    *out = maker_done(&m);
    return *out ? DER_OK : ctx_nomem(run->ctx);
}
