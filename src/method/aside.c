#include "method/aside.h"

#include "method/learner_internal.h"

int aside_count(double share, int n)
{
    const double rounding = 1e-9; /* 0.29 * 100 is 28.999... */
    const int count = (int)(share * n + rounding);
    const int most = n > 0 ? n - 1 : 0;
    if (count > most)
        return most;
    return count < 1 && most > 0 ? 1 : count;
}

bool aside_is_place(double share, int place)
{
    return aside_count(share, place + 1) > aside_count(share, place);
}

int aside_weave(const struct data_view *aside, double share, int quota, int64_t *samples, int n)
{
    int length = 0;
    while (length < quota && aside_count(share, length + 1) <= aside->n &&
           length + 1 - aside_count(share, length + 1) <= n)
        length++;
    int n_aside = aside_count(share, length);
    int n_ranked = length - n_aside;
    for (int place = length - 1; place >= 0; place--) /* from the end, where there is room */
        samples[place] =
            aside_is_place(share, place) ? aside->items[--n_aside].sample : samples[--n_ranked];
    return length;
}

/* ---- of what a step could be trained on ------------------------------------------------------------ */

/* An old class has them in its list. */
static bool is_kept_aside(const struct learner *learner, const struct view_item *item)
{
    const struct exemplar_list *list = &learner->memory->lists[item->label];
    int place = 0;
    while (place < list->n && list->samples[place] != item->sample)
        place++;
    return place < list->n && aside_is_place(learner->options.config.correction_share, place);
}

/* As many images of a class as the memory could keep of one while the step is learnt, or behind the first one. */
static int kept_of_a_class(const struct learner *learner, int n_new)
{
    const struct config *config = &learner->options.config;
    return exemplar_quota(config->memory_mode, config->memory,
                          learner->step > 0 ? learner->n_classes : n_new);
}

/* Those of a new class are drawn. */
static enum der_status draw(const struct learner *learner, const struct data_view *view, int label,
                            int most, bool *is_aside)
{
    struct der_ctx *ctx = view->ctx;
    struct data_view *all;
    struct data_view *kept = NULL;
    struct data_view *drawn = NULL;
    enum der_status status = DER_OK;
    TRY(view_range(ctx, view, label, label + 1, &all));
    const int n = all->n < most ? (int)all->n : most;
    const int count = aside_count(learner->options.config.correction_share, n);
    if (count > 0)
        status =
            view_set_aside(ctx, all, count, learner_seed(learner, STAGE_CORRECTION), &kept, &drawn);
    int64_t next = 0; /* both have the order of the view */
    for (int64_t i = 0; drawn && i < view->n && next < drawn->n; i++)
        if (view->items[i].sample == drawn->items[next].sample) {
            is_aside[i] = true;
            next++;
        }
    view_free(all);
    view_free(kept);
    view_free(drawn);
    return status;
}

enum der_status learner_set_aside(const struct learner *learner, const struct data_view *view,
                                  int n_new, struct data_view **kept, struct data_view **aside)
{
    struct der_ctx *ctx = view->ctx;
    const int n_old = learner->n_classes;
    enum der_status status = DER_OK;
    *kept = NULL;
    *aside = NULL;
    bool *is_aside = mem_zalloc(&ctx->mem, (size_t)view->n, sizeof *is_aside);
    if (!is_aside)
        return ctx_nomem(ctx);
    for (int64_t i = 0; i < view->n; i++)
        is_aside[i] = view->items[i].label < n_old && is_kept_aside(learner, &view->items[i]);
    for (int label = n_old; label < n_old + n_new && status == DER_OK; label++)
        status = draw(learner, view, label, kept_of_a_class(learner, n_new), is_aside);
    if (status == DER_OK)
        status = view_split(ctx, view, is_aside, kept, aside);
    mem_free(&ctx->mem, is_aside);
    return status;
}
