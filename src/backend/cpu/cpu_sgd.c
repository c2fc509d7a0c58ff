/*
 * Stochastic gradient descent with momentum and decay over any number of flat arrays.
 *
 * One parallel region for all of them: networks have many short ones.
 */
#include "backend/cpu/cpu_kernels.h"

#include "backend/cpu/cpu_tile.h"

/* v = momentum v + (g + decay p);  p = clamp(p - lr gain v, low, high) */
CPU_CLONES static void sgd_range(struct cpu_sgd_span span, float step, struct sgd_attr attr,
                                 struct cpu_range range)
{
    CPU_SIMD
    for (int64_t i = range.begin; i < range.end; i++) {
        const float v = attr.momentum * span.v[i] + (span.g[i] + attr.decay * span.p[i]);
        const float p = span.p[i] - step * v;
        const float raised = p < attr.low ? attr.low : p;
        span.v[i] = v;
        span.p[i] = raised > attr.high ? attr.high : raised;
    }
}

void cpu_sgd(const struct cpu_sgd_span *spans, int n, const float *lr, const struct sgd_attr *attr,
             int threads)
{
    const float step = *lr * attr->gain;
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(static))
    for (int t = 0; t < threads; t++) {
        for (int i = 0; i < n; i++)
            sgd_range(spans[i], step, *attr, cpu_part(spans[i].count, t, threads));
    }
}
