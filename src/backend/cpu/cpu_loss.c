/*
 * Losses, each with its gradient times `weight`, and the rank that accuracy is counted from.
 *
 * A batch of logits is small beside the network that made it: one thread, doubles, libm. A
 * gradient has the shape of the logits; columns and rows that do not take part receive 0.
 */
#include "backend/cpu/cpu_kernels.h"

#include <math.h>

/* Below this a vector has no direction; its length counts as this in COSINE_LOSS. */
static const double LENGTH_MIN = 1e-12;

static float *row_of(struct cpu_matrix matrix, int64_t row)
{
    return matrix.data + row * matrix.pitch;
}

static void row_zero(struct cpu_matrix matrix, int64_t row, int64_t begin, int64_t end)
{
    for (int64_t j = begin; matrix.data && j < end; j++)
        row_of(matrix, row)[j] = 0;
}

/* log(sum over j of exp(row[j] / T)), shifted by the maximum so that nothing overflows. */
static double log_sum_exp(const float *row, int64_t count, double temperature)
{
    double largest = (double)row[0];
    for (int64_t j = 1; j < count; j++)
        largest = (double)row[j] > largest ? (double)row[j] : largest;
    double sum = 0;
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

/* L = mean over rows of -log q[t], q = softmax(logits / T);
 * d_logits = weight / (rows T) (q - [j = t]) */
void cpu_softmax_xent(const struct cpu_loss *args)
{
    const struct loss_attr *attr = &args->attr;
    const double temperature = (double)attr->temperature;
    int64_t rows = 0;
    for (int64_t n = 0; n < args->logits.rows; n++)
        rows += xent_target(attr, args->labels[n]) >= 0;

    const double factor = (double)*args->weight / ((double)rows * temperature);
    double loss = 0;
    for (int64_t n = 0; n < args->logits.rows; n++) {
        const int64_t target = xent_target(attr, args->labels[n]);
        if (target < 0) {
            row_zero(args->d_logits, n, 0, args->logits.cols);
            continue;
        }
        const float *row = row_of(args->logits, n) + attr->first;
        const double norm = log_sum_exp(row, attr->count, temperature);
        loss += norm - (double)row[target] / temperature;
        if (!args->d_logits.data)
            continue;
        float *d_row = row_of(args->d_logits, n) + attr->first;
        for (int64_t j = 0; j < attr->count; j++) {
            const double q = exp((double)row[j] / temperature - norm);
            d_row[j] = (float)(factor * (q - (j == target ? 1 : 0)));
        }
        row_zero(args->d_logits, n, 0, attr->first);
        row_zero(args->d_logits, n, attr->first + attr->count, args->logits.cols);
    }
    *args->loss = rows > 0 ? (float)(loss / (double)rows) : 0;
}

/* L = mean over rows of -sum p log q;  d_logits = weight / (n T) (q - p) */
void cpu_distill(const struct cpu_loss *args)
{
    const struct loss_attr *attr = &args->attr;
    const double temperature = (double)attr->temperature;
    const double rows = (double)args->logits.rows;
    const double factor = (double)*args->weight / (rows * temperature);
    double loss = 0;
    for (int64_t n = 0; n < args->logits.rows; n++) {
        const float *student = row_of(args->logits, n) + attr->first;
        const float *teacher = row_of(args->teacher, n) + attr->teacher_first;
        const double student_norm = log_sum_exp(student, attr->count, temperature);
        const double teacher_norm = log_sum_exp(teacher, attr->count, temperature);
        for (int64_t j = 0; j < attr->count; j++) {
            const double p = exp((double)teacher[j] / temperature - teacher_norm);
            const double log_q = (double)student[j] / temperature - student_norm;
            loss -= p * log_q;
            if (args->d_logits.data)
                row_of(args->d_logits, n)[attr->first + j] = (float)(factor * (exp(log_q) - p));
        }
        row_zero(args->d_logits, n, 0, attr->first);
        row_zero(args->d_logits, n, attr->first + attr->count, args->logits.cols);
    }
    *args->loss = (float)(loss / rows);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)) = max(x, 0) - t x + log(1 + e^-|x|);
 * L = mean over all entries;  d_logits = weight / (n c) (sigmoid(x) - t) */
void cpu_bce(const struct cpu_loss *args)
{
    const double entries = (double)(args->logits.rows * args->logits.cols);
    const double factor = (double)*args->weight / entries;
    double loss = 0;
    for (int64_t n = 0; n < args->logits.rows; n++) {
        for (int64_t j = 0; j < args->logits.cols; j++) {
            const double x = (double)row_of(args->logits, n)[j];
            double t = j == args->labels[n] ? 1 : 0;
            if (j < args->attr.n_old)
                t = sigmoid((double)row_of(args->teacher, n)[j]);
            loss += (x < 0 ? 0 : x) - t * x + log1p(exp(-fabs(x)));
            if (args->d_logits.data)
                row_of(args->d_logits, n)[j] = (float)(factor * (sigmoid(x) - t));
        }
    }
    *args->loss = (float)(loss / entries);
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* cos = <a, b> / (|a| |b|);  L = mean of 1 - cos;
 * d_a = -weight / n (b / |b| - cos a / |a|) / |a| */
void cpu_cosine_loss(const struct cpu_loss *args)
{
    const int64_t d = args->logits.cols;
    const double rows = (double)args->logits.rows;
    const double factor = -(double)*args->weight / rows;
    double loss = 0;
    for (int64_t n = 0; n < args->logits.rows; n++) {
        const float *a = row_of(args->logits, n);
        const float *b = row_of(args->teacher, n);
        const double length_a = fmax(sqrt(dot(a, a, d)), LENGTH_MIN);
        const double length_b = fmax(sqrt(dot(b, b, d)), LENGTH_MIN);
        const double cosine = dot(a, b, d) / (length_a * length_b);
        loss += 1 - cosine;
        for (int64_t i = 0; args->d_logits.data && i < d; i++) {
            const double slope = (double)b[i] / length_b - cosine * (double)a[i] / length_a;
            row_of(args->d_logits, n)[i] = (float)(factor * slope / length_a);
        }
    }
    *args->loss = (float)(loss / rows);
}

/* The best column of [first, count) that comes after column `after` in the order: larger first,
 * left first among equals. after -1: the best of all. Returns -1 when only NaN is left. */
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

/* Adds the terms of one old row; returns their sum. share: weight / number of all terms. */
static double margin_row(const struct cpu_loss *args, int64_t n, int64_t top_k, double share)
{
    const struct loss_attr *attr = &args->attr;
    const float *row = row_of(args->logits, n);
    float *d_row = args->d_logits.data ? row_of(args->d_logits, n) : NULL;
    const int32_t label = args->labels[n];
    double loss = 0;
    int64_t open = 0; /* terms above 0 */
    int64_t j = -1;
    for (int64_t k = 0; k < top_k; k++) {
        j = next_best(row, attr->n_old, args->logits.cols, j);
        if (j < 0)
            break;
        const double term = (double)attr->margin - (double)row[label] + (double)row[j];
        if (term <= 0)
            continue;
        loss += term;
        open++;
        if (d_row)
            d_row[j] = (float)share;
    }
    if (d_row)
        d_row[label] = (float)(-share * (double)open);
    return loss;
}

/* max(0, margin - score_label + score_j) for the top_k best j >= n_old of every old row; an open
 * term gives weight / terms to j and takes it from the label. */
void cpu_margin_loss(const struct cpu_loss *args)
{
    const int64_t n_new = args->logits.cols - args->attr.n_old;
    const int64_t top_k = args->attr.top_k < n_new ? args->attr.top_k : n_new;
    int64_t terms = 0;
    for (int64_t n = 0; n < args->logits.rows; n++) {
        const int32_t label = args->labels[n];
        terms += label >= 0 && label < args->attr.n_old ? top_k : 0;
    }

    double loss = 0;
    for (int64_t n = 0; n < args->logits.rows; n++) {
        const int32_t label = args->labels[n];
        row_zero(args->d_logits, n, 0, args->logits.cols);
        if (label >= 0 && label < args->attr.n_old)
            loss += margin_row(args, n, top_k, (double)*args->weight / (double)terms);
    }
    *args->loss = terms > 0 ? (float)(loss / (double)terms) : 0;
}

/* Without a logit to compare with, all columns stand before the label. */
void cpu_rank(int32_t *rank, struct cpu_matrix logits, const int32_t *labels,
              const struct loss_attr *attr)
{
    for (int64_t n = 0; n < logits.rows; n++) {
        const float *row = row_of(logits, n);
        const int64_t label = labels[n];
        if (label < 0 || label >= logits.cols || isnan(row[label])) {
            rank[n] = (int32_t)attr->count;
            continue;
        }
        int32_t before = 0;
        for (int64_t j = attr->first; j < attr->first + attr->count; j++)
            before += row[j] > row[label] || (row[j] == row[label] && j < label);
        rank[n] = before;
    }
}
