/*
 * The number of OpenMP threads belongs to the caller's process; the back end borrows it.
 */
#include "backend/cpu/cpu.h"

#ifdef _OPENMP
#include <omp.h>
#endif

int cpu_threads_enter(int threads)
{
#ifdef _OPENMP
    int saved = omp_get_max_threads();
    if (saved != threads)
        omp_set_num_threads(threads);
    return saved;
#else
    return threads;
#endif
}

bool cpu_threads_are_denied(int threads)
{
#ifdef _OPENMP
    return threads > 1 && omp_in_parallel();
#else
    (void)threads;
    return false;
#endif
}

void cpu_threads_leave(int saved)
{
#ifdef _OPENMP
    if (omp_get_max_threads() != saved)
        omp_set_num_threads(saved);
#else
    (void)saved;
#endif
}
