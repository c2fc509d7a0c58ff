#include "data/readable.h"

#include "data/row.h"

enum { NONE_TRIED = -1, HAS_READABLE = -2 };

struct search {
    struct der_ctx *ctx;
    const struct loader_options *data;
    int n_labels;
    struct row_source source;
    struct row_tools tools;
    float *image;  /* what is made of an image; nobody looks at it */
    int64_t *seen; /* [n_labels] NONE_TRIED, HAS_READABLE, or the first sample that was tried */
};

static enum der_status open_search(struct search *s)
{
    const struct loader_options *data = s->data;
    const struct augment_spec *spec = data->augment;
    struct mem *mem = &s->ctx->mem;
    row_tools_init(&s->tools, mem, data->io);
    s->source.set = data->set;
    s->source.split = data->split;
    TRY(augment_init(s->ctx, spec, &s->source.augment));
    s->image = mem_alloc(mem, (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width,
                         sizeof *s->image);
    s->seen = mem_alloc(mem, (size_t)s->n_labels, sizeof *s->seen);
    if (!s->image || !s->seen)
        return ctx_nomem(s->ctx);
    for (int label = 0; label < s->n_labels; label++)
        s->seen[label] = NONE_TRIED;
    return DER_OK;
}

static void close_search(struct search *s)
{
    mem_free(&s->ctx->mem, s->image);
    mem_free(&s->ctx->mem, s->seen);
    row_tools_fini(&s->tools);
}

static enum der_status try_item(struct search *s, struct view_item item)
{
    enum der_status status = row_make(&s->source, &s->tools, item.sample, s->image);
    if (status == DER_OK)
        s->seen[item.label] = HAS_READABLE;
    else if (status == DER_NOMEM)
        return ctx_nomem(s->ctx);
    else if (!loader_can_skip(status))
        return ctx_fail(s->ctx, status, "%s", s->tools.decoder.fault.text);
    else if (s->seen[item.label] == NONE_TRIED)
        s->seen[item.label] = item.sample;
    return DER_OK;
}

static enum der_status try_all(struct search *s)
{
    const struct data_view *view = s->data->view;
    for (int64_t i = 0; i < view->n; i++) {
        struct view_item item = view->items[i];
        if (item.label < s->n_labels && s->seen[item.label] != HAS_READABLE)
            TRY(try_item(s, item));
    }
    return DER_OK;
}

/* Only a fault that is told is worth keeping, so the image is tried once more for it. */
static enum der_status refuse_class(struct search *s, int64_t sample)
{
    const struct dataset *set = s->data->set;
    int class = set->part[s->data->split].labels[sample];
    enum der_status status = row_make(&s->source, &s->tools, sample, s->image);
    return ctx_fail(s->ctx, DER_FORMAT,
                    "none of the images of class '%s' in %s can be used, the first being: %s",
                    set->class_names[class], set->path,
                    status == DER_OK ? "one that has changed" : s->tools.decoder.fault.text);
}

static enum der_status judge(struct search *s)
{
    for (int label = 0; label < s->n_labels; label++)
        if (s->seen[label] >= 0)
            return refuse_class(s, s->seen[label]);
    return DER_OK;
}

enum der_status readable_check(struct der_ctx *ctx, const struct loader_options *data, int n_labels)
{
    struct search s = {.ctx = ctx, .data = data, .n_labels = n_labels};
    enum der_status status = open_search(&s);
    if (status == DER_OK)
        status = try_all(&s);
    if (status == DER_OK)
        status = judge(&s);
    close_search(&s);
    return status;
}
