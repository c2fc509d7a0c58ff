/*
 * Losses, each with its gradient times `weight`, and the rank that accuracy is counted from.
 *
 * A gradient has the shape of the logits: columns and rows that do not take part receive 0.
 */
#include "backend/ref/ref.h"

#include <math.h>

/* Below this a vector has no direction; its length counts as this in COSINE_LOSS. */
static const double LENGTH_MIN = 1e-12;

static void fill_zero(const struct ref_tensor *tensor)
{
    for (int64_t n = 0; tensor && n < ref_n_rows(tensor); n++)
        for (int64_t i = 0; i < ref_row_length(tensor); i++)
            ref_row(tensor, n)[i] = 0.0F;
}

static void store_loss(const struct ref_call *call, double loss)
{
    float *value = ref_out_data(call, LOSS_VALUE);
    if (value)
        *value = (float)loss;
}

/* log(sum over j of exp(row[j] / temperature)), shifted by the maximum so that nothing overflows. */
static double log_sum_exp(const float *row, int64_t count, double temperature)
{
    double largest = (double)row[0];
    for (int64_t j = 1; j < count; j++)
        largest = (double)row[j] > largest ? (double)row[j] : largest;
    double sum = 0.0;
    for (int64_t j = 0; j < count; j++)
        sum += exp(((double)row[j] - largest) / temperature);
    return largest / temperature + log(sum);
}

/* Target column within the range, -1 when the row does not take part. */
static int64_t xent_target(const struct loss_attr *attr, int32_t label)
{
    int64_t target = (int64_t)label - attr->label_shift;
    if (target < 0 && attr->clamp_low)
        target = 0;
    return target >= 0 && target < attr->count ? target : -1;
}

/* loss = mean over rows of -log q[t], q = softmax(logits / T);  d_logits = weight / (rows T) (q - [t]) */
void ref_softmax_xent(const struct ref_call *call)
{
    const struct loss_attr *attr = &call->attr->loss;
    const struct ref_tensor *logits = ref_in(call, LOSS_LOGITS);
    const int32_t *labels = ref_in(call, LOSS_LABELS)->ints;
    const double weight = (double)ref_in_data(call, LOSS_WEIGHT)[0];
    const struct ref_tensor *d_logits = ref_out(call, LOSS_D_LOGITS);
    const double temperature = (double)attr->temperature;

    int64_t rows = 0;
    for (int64_t n = 0; n < logits->shape.dim[0]; n++)
        rows += xent_target(attr, labels[n]) >= 0;

    fill_zero(d_logits);
    double loss = 0.0;
    for (int64_t n = 0; n < logits->shape.dim[0]; n++) {
        const int64_t target = xent_target(attr, labels[n]);
        if (target < 0)
            continue;
        const float *row = ref_row(logits, n) + attr->first;
        const double norm = log_sum_exp(row, attr->count, temperature);
        loss += norm - (double)row[target] / temperature;
        for (int64_t j = 0; d_logits && j < attr->count; j++) {
            const double q = exp((double)row[j] / temperature - norm);
            const double slope = (q - (j == target ? 1.0 : 0.0)) / ((double)rows * temperature);
            ref_row(d_logits, n)[attr->first + j] = (float)(weight * slope);
        }
    }
    store_loss(call, rows > 0 ? loss / (double)rows : 0.0);
}

/* loss = mean over rows of -sum p log q;  d_logits = weight / (n T) (q - p) */
void ref_distill(const struct ref_call *call)
{
    const struct loss_attr *attr = &call->attr->loss;
    const struct ref_tensor *logits = ref_in(call, PAIR_LOSS_LOGITS);
    const struct ref_tensor *teacher = ref_in(call, PAIR_LOSS_TEACHER);
    const double weight = (double)ref_in_data(call, PAIR_LOSS_WEIGHT)[0];
    const struct ref_tensor *d_logits = ref_out(call, LOSS_D_LOGITS);
    const double temperature = (double)attr->temperature;
    const int64_t rows = logits->shape.dim[0];

    fill_zero(d_logits);
    double loss = 0.0;
    for (int64_t n = 0; n < rows; n++) {
        const float *student_row = ref_row(logits, n) + attr->first;
        const float *teacher_row = ref_row(teacher, n) + attr->teacher_first;
        const double student_norm = log_sum_exp(student_row, attr->count, temperature);
        const double teacher_norm = log_sum_exp(teacher_row, attr->count, temperature);
        for (int64_t j = 0; j < attr->count; j++) {
            const double p = exp((double)teacher_row[j] / temperature - teacher_norm);
            const double log_q = (double)student_row[j] / temperature - student_norm;
            loss -= p * log_q;
            if (d_logits)
                ref_row(d_logits, n)[attr->first + j] =
                    (float)(weight * (exp(log_q) - p) / ((double)rows * temperature));
        }
    }
    store_loss(call, loss / (double)rows);
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* Entry (n, j): -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) = max(x, 0) - t x + log(1 + e^-|x|);
 * loss = mean over all entries;  d_logits = weight / (n c) (sigmoid(x) - t) */
void ref_bce(const struct ref_call *call)
{
    const struct loss_attr *attr = &call->attr->loss;
    const struct ref_tensor *logits = ref_in(call, BCE_LOGITS);
    const int32_t *labels = ref_in(call, BCE_LABELS)->ints;
    const struct ref_tensor *teacher = ref_in(call, BCE_TEACHER);
    const double weight = (double)ref_in_data(call, BCE_WEIGHT)[0];
    const struct ref_tensor *d_logits = ref_out(call, LOSS_D_LOGITS);
    const double entries = (double)shape_count(logits->shape);

    double loss = 0.0;
    for (int64_t n = 0; n < logits->shape.dim[0]; n++)
        for (int64_t j = 0; j < logits->shape.dim[1]; j++) {
            const double x = (double)ref_row(logits, n)[j];
            double t = j == labels[n] ? 1.0 : 0.0;
            if (j < attr->n_old)
                t = sigmoid((double)ref_row(teacher, n)[j]);
            loss += (x > 0.0 ? x : 0.0) - t * x + log1p(exp(-fabs(x)));
            if (d_logits)
                ref_row(d_logits, n)[j] = (float)(weight * (sigmoid(x) - t) / entries);
        }
    store_loss(call, loss / entries);
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* cos = <a, b> / (|a| |b|);  loss = mean of 1 - cos;
 * d_a = -weight / n (b / |b| - cos a / |a|) / |a| */
void ref_cosine_loss(const struct ref_call *call)
{
    const struct ref_tensor *a = ref_in(call, PAIR_LOSS_LOGITS);
    const struct ref_tensor *b = ref_in(call, PAIR_LOSS_TEACHER);
    const double weight = (double)ref_in_data(call, PAIR_LOSS_WEIGHT)[0];
    const struct ref_tensor *d_a = ref_out(call, LOSS_D_LOGITS);
    const int64_t rows = a->shape.dim[0];
    const int64_t d = a->shape.dim[1];

    double loss = 0.0;
    for (int64_t n = 0; n < rows; n++) {
        const float *u = ref_row(a, n);
        const float *v = ref_row(b, n);
        const double length_u = fmax(sqrt(dot(u, u, d)), LENGTH_MIN);
        const double length_v = fmax(sqrt(dot(v, v, d)), LENGTH_MIN);
        const double cosine = dot(u, v, d) / (length_u * length_v);
        loss += 1.0 - cosine;
        for (int64_t i = 0; d_a && i < d; i++) {
            const double slope =
                ((double)v[i] / length_v - cosine * (double)u[i] / length_u) / length_u;
            ref_row(d_a, n)[i] = (float)(-weight * slope / (double)rows);
        }
    }
    store_loss(call, loss / (double)rows);
}

/* The best column of [first, count) after column `after` in the order: larger first, left first
 * among equals. after -1: the best of all. */
static int64_t next_best(const float *row, int64_t first, int64_t count, int64_t after)
{
    int64_t best = -1;
    for (int64_t j = first; j < count; j++) {
        const bool comes_after =
            after < 0 || row[j] < row[after] || (row[j] == row[after] && j > after);
        if (comes_after && (best < 0 || row[j] > row[best]))
            best = j;
    }
    return best;
}

/* Terms max(0, margin - score_label + score_j) for the top_k best j >= n_old of every old row;
 * an open term adds weight / terms at j and takes it away at the label. */
void ref_margin_loss(const struct ref_call *call)
{
    const struct loss_attr *attr = &call->attr->loss;
    const struct ref_tensor *scores = ref_in(call, LOSS_LOGITS);
    const int32_t *labels = ref_in(call, LOSS_LABELS)->ints;
    const double weight = (double)ref_in_data(call, LOSS_WEIGHT)[0];
    const struct ref_tensor *d_scores = ref_out(call, LOSS_D_LOGITS);
    const int64_t columns = scores->shape.dim[1];
    const int64_t top_k = attr->top_k < columns - attr->n_old ? attr->top_k : columns - attr->n_old;

    int64_t terms = 0;
    for (int64_t n = 0; n < scores->shape.dim[0]; n++)
        terms += labels[n] >= 0 && labels[n] < attr->n_old ? top_k : 0;

    fill_zero(d_scores);
    double loss = 0.0;
    for (int64_t n = 0; n < scores->shape.dim[0]; n++) {
        const int32_t label = labels[n];
        if (label < 0 || label >= attr->n_old)
            continue;
        const float *row = ref_row(scores, n);
        double open = 0.0;
        int64_t j = -1;
        for (int64_t k = 0; k < top_k; k++) {
            j = next_best(row, attr->n_old, columns, j);
            if (j < 0)
                break; /* only NaN is left */
            const double term = (double)attr->margin - (double)row[label] + (double)row[j];
            if (term <= 0.0)
                continue;
            loss += term;
            open += 1.0;
            if (d_scores)
                ref_row(d_scores, n)[j] = (float)(weight / (double)terms);
        }
        if (d_scores)
            ref_row(d_scores, n)[label] = (float)(-weight * open / (double)terms);
    }
    store_loss(call, terms > 0 ? loss / (double)terms : 0.0);
}

/* rank = number of columns in [first, first + count) with a larger logit than the label's, or an
 * equal one further left. Without a logit to compare with, all columns stand before it. */
void ref_rank(const struct ref_call *call)
{
    const struct loss_attr *attr = &call->attr->loss;
    const struct ref_tensor *logits = ref_in(call, LOSS_LOGITS);
    const int32_t *labels = ref_in(call, LOSS_LABELS)->ints;
    int32_t *rank = ref_out(call, 0)->ints;

    for (int64_t n = 0; n < logits->shape.dim[0]; n++) {
        const float *row = ref_row(logits, n);
        const int64_t label = labels[n];
        if (label < 0 || label >= logits->shape.dim[1] || isnan(row[label])) {
            rank[n] = (int32_t)attr->count;
            continue;
        }
        int32_t before = 0;
        for (int64_t j = attr->first; j < attr->first + attr->count; j++)
            before += row[j] > row[label] || (row[j] == row[label] && j < label);
        rank[n] = before;
    }
}
