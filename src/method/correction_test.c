/* Bias correction: the two numbers against PyTorch, by their definition, and where they cannot be had. */
#include "method/correction.h"

#include "support/golden_file.h"
#include "support/test_ctx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_IMAGES = 64, MOST_CLASSES = 10, MOST_LOGITS = MOST_IMAGES * MOST_CLASSES };
enum { NAME_CHARS = 64 };

struct sample {
    double logits[MOST_LOGITS];
    int32_t labels[MOST_IMAGES];
    struct correction_data data;
};

/* Image i of a case has label i mod the number of classes. */
static void open_sample(const struct golden_file *file, const char *name, struct sample *s)
{
    char full[NAME_CHARS];
    (void)snprintf(full, sizeof full, "%s/size", name);
    const int32_t *size = golden_get(file, full)->data;
    (void)snprintf(full, sizeof full, "%s/logits", name);
    const float *logits = golden_get(file, full)->data;
    s->data = (struct correction_data){.logits = s->logits,
                                       .labels = s->labels,
                                       .n = size[0],
                                       .n_old = size[1],
                                       .n_classes = size[2]};
    assert_true(size[0] <= MOST_IMAGES && size[2] <= MOST_CLASSES);
    for (int i = 0; i < size[0] * size[2]; i++)
        s->logits[i] = (double)logits[i];
    for (int i = 0; i < size[0]; i++)
        s->labels[i] = i % size[2];
}

/* The loss, as its definition has it. */
static double loss(const struct correction_data *data, double beta, double gamma)
{
    double sum = 0.0;
    for (int64_t i = 0; i < data->n; i++) {
        double q[MOST_CLASSES];
        double total = 0.0;
        for (int k = 0; k < data->n_classes; k++) {
            const double z = data->logits[i * data->n_classes + k];
            q[k] = k < data->n_old ? z : beta * z + gamma;
            total += exp(q[k]);
        }
        sum += log(total) - q[data->labels[i]];
    }
    return sum / (double)data->n + 0.05 * gamma * gamma + 0.0005 * (beta - 1.0) * (beta - 1.0);
}

/* Calls `check` for every case of the golden file with its beta, gamma and loss. */
static void for_each(void (*check)(const struct sample *sample, const float best[3]))
{
    struct golden_file *file = golden_open("correction");
    char name[NAME_CHARS / 2];
    int used;
    int n = 0;
    for (const char *at = golden_text(file, "cases"); sscanf(at, "%31s%n", name, &used) == 1;
         at += used, n++) {
        struct sample sample;
        char full[NAME_CHARS];
        open_sample(file, name, &sample);
        (void)snprintf(full, sizeof full, "%s/best", name);
        check(&sample, golden_get(file, full)->data);
    }
    assert_true(n > 0);
    golden_close(file);
}

static void check_golden(const struct sample *sample, const float best[3])
{
    const struct correction found = correction_fit(&sample->data);
    assert_true(fabs(found.beta - (double)best[0]) < 1e-5 * fabs((double)best[0]));
    assert_true(fabs(found.gamma - (double)best[1]) < 1e-5);
    assert_true(fabs(loss(&sample->data, found.beta, found.gamma) - (double)best[2]) < 1e-6);
}

static void test_it_is_pytorchs(void **state)
{
    (void)state;
    for_each(check_golden);
}

/* The slope is nothing where it stops, and the surface rises on all sides. */
static void check_minimum(const struct sample *sample, const float best[3])
{
    (void)best;
    const double step = 1e-4;
    const struct correction at = correction_fit(&sample->data);
    const double here = loss(&sample->data, at.beta, at.gamma);
    for (int i = 0; i < 8; i++) {
        const double b = step * cos(0.785398 * i);
        const double g = step * sin(0.785398 * i);
        const double there = loss(&sample->data, at.beta + b, at.gamma + g);
        const double behind = loss(&sample->data, at.beta - b, at.gamma - g);
        assert_true(there > here);
        assert_true(fabs(there - behind) / (2.0 * step) < 1e-6);
    }
    assert_true(here < loss(&sample->data, 1.0, 0.0));
}

static void test_it_is_a_minimum(void **state)
{
    (void)state;
    for_each(check_minimum);
}

/* New classes that win everywhere lose their lead; the order among them stays as it was. */
static void test_a_lead_is_taken_from_new_classes(void **state)
{
    (void)state;
    enum { N_OLD = 3, N_CLASSES = 6 };
    struct sample s = {.data = {.logits = s.logits,
                                .labels = s.labels,
                                .n = 30,
                                .n_old = N_OLD,
                                .n_classes = N_CLASSES}};
    for (int i = 0; i < 30; i++) {
        s.labels[i] = i % N_CLASSES;
        for (int k = 0; k < N_CLASSES; k++)
            s.logits[i * N_CLASSES + k] = (k == s.labels[i] ? 2.0 : 0.0) + (k >= N_OLD ? 3.0 : 0.0);
    }
    const struct correction found = correction_fit(&s.data);
    assert_true(found.beta > 0.0);
    for (int i = 0; i < N_OLD; i++) /* an old image's own class is above the best new one now */
        assert_true(2.0 > found.beta * 3.0 + found.gamma);
    assert_true(found.beta * 5.0 + found.gamma > 0.0);
}

static void test_without_anything_to_go_by_nothing_is_corrected(void **state)
{
    (void)state;
    struct sample s = {
        .logits = {1.0, NAN, 0.5, INFINITY},
        .labels = {0, 1},
        .data = {.logits = s.logits, .labels = s.labels, .n = 0, .n_old = 1, .n_classes = 2}};
    struct correction found = correction_fit(&s.data);
    assert_true(found.beta == 1.0 && found.gamma == 0.0);
    s.data.n = 2;
    found = correction_fit(&s.data);
    assert_true(found.beta == 1.0 && found.gamma == 0.0);
}

/* Logits as large as a network can have them. */
static void test_large_logits_are_no_trouble(void **state)
{
    (void)state;
    struct sample s = {
        .data = {.logits = s.logits, .labels = s.labels, .n = 8, .n_old = 1, .n_classes = 2}};
    for (int i = 0; i < 8; i++) {
        s.labels[i] = i % 2;
        s.logits[2 * i] = 1e6 + 1e5 * i;
        s.logits[2 * i + 1] = (i == 5 ? 0.5 : 2.0) * s.logits[2 * i];
    }
    const struct correction found = correction_fit(&s.data);
    assert_true(isfinite(found.beta) && isfinite(found.gamma));
    assert_true(found.beta > 0.0 && found.beta < 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_pytorchs),
        cmocka_unit_test(test_it_is_a_minimum),
        cmocka_unit_test(test_a_lead_is_taken_from_new_classes),
        cmocka_unit_test(test_without_anything_to_go_by_nothing_is_corrected),
        cmocka_unit_test(test_large_logits_are_no_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
