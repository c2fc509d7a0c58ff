#include "method/correction.h"

#include "method/head.h"
#include "method/learner_internal.h"

#include <assert.h>
#include <math.h>

/* Weights of gamma^2 / 2, as BiC's authors have it, and of (beta - 1)^2 / 2. */
static const double GAMMA_DECAY = 0.1;
static const double BETA_DECAY = 1e-3;

enum { MOST_STEPS = 100, MOST_HALVINGS = 60 };

/* ---- two numbers ------------------------------------------------------------------------------- */

/* The loss at a place, with its gradient and its matrix of second derivatives. */
struct surface {
    double value;
    double beta, gamma;          /* first derivatives */
    double beta2, mixed, gamma2; /* second ones */
};

static double corrected(const struct correction_data *data, struct correction at, int64_t i, int k)
{
    const double z = data->logits[i * data->n_classes + k];
    return k < data->n_old ? z : at.beta * z + at.gamma;
}

/* Adds one image. With v_k = dq_k / d(beta, gamma), which is (z_k, 1) for new classes and 0 for old ones, and
 * expectations over p = softmax(q):
 *
 *     gradient = E v - v_label,     second derivatives = E v v^T - E v E v^T */
static void add_image(const struct correction_data *data, struct correction at, int64_t i,
                      struct surface *sum)
{
    const int label = data->labels[i];
    const double *z = data->logits + i * data->n_classes;
    double most = -INFINITY;
    double total = 0.0;
    double mean_z = 0.0;
    double mean_z2 = 0.0;
    double mean_1 = 0.0;
    for (int k = 0; k < data->n_classes; k++)
        most = fmax(most, corrected(data, at, i, k));
    for (int k = 0; k < data->n_classes; k++) {
        const double e = exp(corrected(data, at, i, k) - most);
        total += e;
        if (k < data->n_old)
            continue;
        mean_1 += e;
        mean_z += e * z[k];
        mean_z2 += e * z[k] * z[k];
    }
    mean_1 /= total;
    mean_z /= total;
    mean_z2 /= total;
    const bool is_new = label >= data->n_old;
    sum->value += most + log(total) - corrected(data, at, i, label);
    sum->beta += mean_z - (is_new ? z[label] : 0.0);
    sum->gamma += mean_1 - (is_new ? 1.0 : 0.0);
    sum->beta2 += mean_z2 - mean_z * mean_z;
    sum->mixed += mean_z - mean_z * mean_1;
    sum->gamma2 += mean_1 - mean_1 * mean_1;
}

static struct surface survey(const struct correction_data *data, struct correction at)
{
    struct surface s = {0};
    const double n = (double)data->n;
    for (int64_t i = 0; i < data->n; i++)
        add_image(data, at, i, &s);
    const double away = at.beta - 1.0;
    s.value = s.value / n + 0.5 * (GAMMA_DECAY * at.gamma * at.gamma + BETA_DECAY * away * away);
    s.beta = s.beta / n + BETA_DECAY * away;
    s.gamma = s.gamma / n + GAMMA_DECAY * at.gamma;
    s.beta2 = s.beta2 / n + BETA_DECAY;
    s.mixed /= n;
    s.gamma2 = s.gamma2 / n + GAMMA_DECAY;
    return s;
}

/* Newton's direction. The matrix is positive definite: its two weights are on the diagonal. */
static struct correction descent(const struct surface *s)
{
    const double det = s->beta2 * s->gamma2 - s->mixed * s->mixed;
    return (struct correction){.beta = (s->mixed * s->gamma - s->gamma2 * s->beta) / det,
                               .gamma = (s->mixed * s->beta - s->beta2 * s->gamma) / det};
}

/* Goes as far as the loss falls by a part of what its slope promises; false: nowhere, which is the minimum as far as
 * doubles can tell. */
static bool go(const struct correction_data *data, struct correction *at, struct surface *s)
{
    const double sufficient = 1e-4;
    const struct correction way = descent(s);
    const double slope = s->beta * way.beta + s->gamma * way.gamma;
    double share = 1.0;
    for (int i = 0; i < MOST_HALVINGS; i++, share *= 0.5) {
        const struct correction next = {at->beta + share * way.beta, at->gamma + share * way.gamma};
        const struct surface there = survey(data, next);
        if (there.value < s->value + sufficient * share * slope) {
            *at = next;
            *s = there;
            return true;
        }
    }
    return false;
}

struct correction correction_fit(const struct correction_data *data)
{
    const struct correction none = {.beta = 1.0, .gamma = 0.0};
    struct correction at = none;
    assert(data->n_old > 0 && data->n_old < data->n_classes);
    if (data->n == 0)
        return none;
    struct surface s = survey(data, at);
    for (int i = 0; i < MOST_STEPS && go(data, &at, &s); i++)
        continue;
    return isfinite(at.beta) && isfinite(at.gamma) ? at : none;
}

/* ---- the classifier that they make --------------------------------------------------------------- */

/* z = W Phi(x) of n images. */
static void multiply(const float *rows, const float *features, int64_t n, int64_t n_rows,
                     int64_t dim, double *logits)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n_rows; k++) {
            double sum = 0.0;
            for (int64_t d = 0; d < dim; d++)
                sum += (double)rows[k * dim + d] * (double)features[i * dim + d];
            logits[i * n_rows + k] = sum;
        }
}

/* Room for what is read of the images set aside. */
struct look {
    float *rows, *features;
    struct view_item *items;
    double *logits;
    int32_t *labels;
};

static enum der_status look_new(const struct learner *learner, int64_t n, struct look *look)
{
    struct mem *mem = &learner->be->ctx->mem;
    const size_t dim = (size_t)learner_feature_dim(learner);
    const size_t classes = (size_t)learner->n_classes;
    *look = (struct look){.rows = mem_alloc(mem, classes * dim, sizeof *look->rows),
                          .features = mem_alloc(mem, (size_t)n * dim, sizeof *look->features),
                          .items = mem_alloc(mem, (size_t)n, sizeof *look->items),
                          .logits = mem_alloc(mem, (size_t)n * classes, sizeof *look->logits),
                          .labels = mem_alloc(mem, (size_t)n, sizeof *look->labels)};
    return look->rows && look->features && look->items && look->logits && look->labels
               ? DER_OK
               : ctx_nomem(learner->be->ctx);
}

static void look_free(const struct learner *learner, struct look *look)
{
    struct mem *mem = &learner->be->ctx->mem;
    mem_free(mem, look->rows);
    mem_free(mem, look->features);
    mem_free(mem, look->items);
    mem_free(mem, look->logits);
    mem_free(mem, look->labels);
}

static enum der_status find(struct learner *learner, const struct data_view *aside, int n_old,
                            struct look *look)
{
    struct reading reading = {.learner = learner, .head = learner->classifier};
    int64_t n = 0;
    enum der_status status = DER_OK;
    if (aside->n > 0) /* a memory of one image a class has none */
        status = reading_features(&reading, aside, look->features, look->items, &n);
    reading_fini(&reading);
    TRY(status);
    TRY(param_read(learner->classifier, 0, look->rows));
    multiply(look->rows, look->features, n, learner->n_classes, learner_feature_dim(learner),
             look->logits);
    for (int64_t i = 0; i < n; i++)
        look->labels[i] = look->items[i].label;
    const struct correction_data data = {.logits = look->logits,
                                         .labels = look->labels,
                                         .n = n,
                                         .n_old = n_old,
                                         .n_classes = learner->n_classes};
    learner->correction = correction_fit(&data);
    return DER_OK;
}

enum der_status learner_correct(struct learner *learner, const struct data_view *aside, int n_old)
{
    struct param_set *head;
    struct data_view *balanced;
    struct look look;
    TRY(view_balanced(learner->be->ctx, aside, learner_seed(learner, STAGE_CORRECTION),
                      (uint32_t)learner->step, &balanced));
    enum der_status status = look_new(learner, balanced->n, &look);
    if (status == DER_OK)
        status = find(learner, balanced, n_old, &look);
    look_free(learner, &look);
    view_free(balanced);
    TRY(status);
    TRY(head_correct(learner->classifier, n_old, learner->correction.beta,
                     learner->correction.gamma, &head));
    param_set_free(learner->trained_head);
    learner->trained_head = learner->classifier;
    learner->classifier = head;
    learner->is_corrected = true;
    return DER_OK;
}
