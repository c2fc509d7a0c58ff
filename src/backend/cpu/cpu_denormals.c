/*
 * Numbers below 1.2e-38 count as zero while the back end computes.
 *
 * Processors take a hundred cycles and more over an operation on a denormal number. Closed masks are 1e-20, so in
 * the soft phase of DER half a network is made of them, and training ran at less than half its speed.
 * Nothing that is learnt depends on such numbers; `ref` keeps them.
 *
 * The mode is a register of each thread. Between begin and end it is ours on the caller's thread and on those of
 * its pool, which oneDNN computes with as well; a thread that OpenMP makes in between inherits it. Afterwards
 * the threads have what they had: how a program that uses the library rounds is its own affair. Of the
 * register, the bits for denormals alone are touched.
 */
#include "backend/cpu/cpu.h"

#include "backend/cpu/cpu_tile.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__x86_64__)
#include <xmmintrin.h>

/* MXCSR: results flushed to zero (bit 15), operands taken for zero (bit 6). */
enum { FLUSH_BITS = 0x8040 };

static uint64_t control_read(void)
{
    return _mm_getcsr();
}

static void control_write(uint64_t control)
{
    _mm_setcsr((unsigned)control);
}

#elif defined(__aarch64__)

/* FPCR.FZ: operands and results of single and double precision. */
enum { FLUSH_BITS = 1 << 24 };

static uint64_t control_read(void)
{
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}

static void control_write(uint64_t control)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}

#else

enum { FLUSH_BITS = 0 };

static uint64_t control_read(void)
{
    return 0;
}

static void control_write(uint64_t control)
{
    (void)control;
}

#endif

uint64_t cpu_denormals_mode(void)
{
    return control_read() & FLUSH_BITS;
}

static void set_mode(uint64_t mode)
{
    control_write((control_read() & ~(uint64_t)FLUSH_BITS) | mode);
}

static int thread_number(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

void cpu_denormals_begin(uint64_t *modes, int threads)
{
    uint64_t callers = cpu_denormals_mode();
    for (int i = 0; i < threads; i++)
        modes[i] = callers;
    /* The caller comes last, so that threads of a pool that is only made here start with its own mode. */
    if (threads > 1) {
        CPU_PRAGMA(omp parallel num_threads(threads))
        {
            modes[thread_number()] = cpu_denormals_mode();
            set_mode(FLUSH_BITS);
        }
    }
    set_mode(FLUSH_BITS);
}

void cpu_denormals_end(const uint64_t *modes, int threads)
{
    set_mode(modes[0]);
    if (threads > 1) {
        CPU_PRAGMA(omp parallel num_threads(threads))
        set_mode(modes[thread_number()]);
    }
}
