#include "predict/guess.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

static bool is_better(const struct der_guess *a, const struct der_guess *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->label < b->label);
}

/* Lets heap[at] sink until no child is worse than its parent: the worst of the n is heap[0]. */
static void sink(struct der_guess *heap, int n, int at)
{
    struct der_guess moving = heap[at];
    for (;;) {
        int child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && is_better(&heap[child], &heap[child + 1]))
            child++;
        if (!is_better(&moving, &heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

/* The best k of n >= k, best first: a heap of the best so far, then taken apart from its worst. */
static void select_best(const float *logits, int n, int k, struct der_guess *out)
{
    for (int i = 0; i < k; i++)
        out[i] = (struct der_guess){.label = i, .name = "", .logit = logits[i]};
    for (int i = k / 2 - 1; i >= 0; i--)
        sink(out, k, i);
    for (int i = k; i < n; i++) {
        struct der_guess next = {.label = i, .name = "", .logit = logits[i]};
        if (!is_better(&next, &out[0]))
            continue;
        out[0] = next;
        sink(out, k, 0);
    }
    for (int left = k - 1; left > 0; left--) {
        struct der_guess worst = out[0];
        out[0] = out[left];
        out[left] = worst;
        sink(out, left, 0);
    }
}

void guess_top(const float *logits, int n, double temperature, int top, struct der_guess *out)
{
    assert(n > 0 && top > 0 && temperature > 0.0);
    int k = top < n ? top : n;
    select_best(logits, n, k, out);
    /* p_i = exp((z_i - max z) / T) / sum_j exp((z_j - max z) / T) */
    double largest = (double)out[0].logit;
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += exp(((double)logits[i] - largest) / temperature);
    for (int i = 0; i < k; i++)
        out[i].probability = (float)(exp(((double)out[i].logit - largest) / temperature) / sum);
    for (int i = k; i < top; i++)
        out[i] = (struct der_guess){.label = -1, .name = ""};
}
