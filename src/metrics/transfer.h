/*
 * Transfer of the representation (DER, section 4.4): does learning more help or harm what was
 * learnt before, and does what was learnt before help what comes?
 *
 * A[i][j] is the accuracy, in per cent, on the classes of step j of the representation after step
 * i, read by a linear classifier trained on all data of all classes seen up to i, its choice
 * restricted to the classes of step j. A is a row-major [n_steps, n_steps] matrix of which
 * only j <= i is read.
 */
#ifndef METRICS_TRANSFER_H
#define METRICS_TRANSFER_H

/* Backward transfer, with steps from 1 to T as the paper counts them:
 *
 *     BWT = 1/(T-1) sum_{i=2..T} 1/i sum_{j=1..i} (A^i_j - A^j_j)
 *
 * NAN with fewer than two steps: there is nothing to look back on. */
double transfer_backward(const double *accuracy, int n_steps);

/* Forward transfer, against networks that were trained from random initialisation on what step i
 * had at hand, cross-entropy only:
 *
 *     FWT = 1/(T-1) sum_{i=2..T} (A^i_i - Abar^i)
 *
 * reference: [n_steps] Abar; that of the first step is not read. NAN with fewer than two steps. */
double transfer_forward(const double *accuracy, const double *reference, int n_steps);

#endif
