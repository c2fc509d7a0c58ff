/*
 * The numbers of the paper's tables, as printed.
 *
 * Columns: table, protocol, row; parameters in millions; top-1 Avg, deviation, Last; top-5 Avg,
 * Last.
 */
#include "metrics/paper_internal.h"

#include <math.h>

const struct paper_value PAPER_VALUES[] = {
    /* T1, CIFAR100-B0, ResNet-18, 2,000 exemplars in all, three class orders. The Last of 50 steps
     * stands in the text; the released curve ends at 59.77. RPSNet is quoted from its own paper. */
    {"T1", "cifar100-b0-5", "joint", 11.2, 80.40, NAN, NAN, NAN, NAN},
    {"T1", "cifar100-b0-5", "icarl", 11.2, 71.14, 0.34, NAN, NAN, NAN},
    {"T1", "cifar100-b0-5", "ucir", 11.2, 62.77, 0.82, NAN, NAN, NAN},
    {"T1", "cifar100-b0-5", "bic", 11.2, 73.10, 0.55, NAN, NAN, NAN},
    {"T1", "cifar100-b0-5", "wa", 11.2, 72.81, 0.28, NAN, NAN, NAN},
    {"T1", "cifar100-b0-5", "podnet", 11.2, 66.70, 0.64, NAN, NAN, NAN},
    {"T1", "cifar100-b0-5", "rpsnet", 60.6, 70.5, NAN, NAN, NAN, NAN},
    {"T1", "cifar100-b0-5", "der-wop", 33.6, 76.80, 0.79, NAN, NAN, NAN},
    {"T1", "cifar100-b0-5", "der", 2.89, 75.55, 0.65, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "joint", 11.2, 80.41, NAN, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "icarl", 11.2, 65.27, 1.02, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "ucir", 11.2, 58.66, 0.71, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "bic", 11.2, 68.80, 1.20, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "wa", 11.2, 69.46, 0.29, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "podnet", 11.2, 58.03, 1.27, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "rpsnet", 56.5, 68.6, NAN, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "der-wop", 61.6, 75.36, 0.36, NAN, NAN, NAN},
    {"T1", "cifar100-b0-10", "der", 4.96, 74.64, 0.28, NAN, NAN, NAN},
    {"T1", "cifar100-b0-20", "joint", 11.2, 81.49, NAN, NAN, NAN, NAN},
    {"T1", "cifar100-b0-20", "icarl", 11.2, 61.20, 0.83, NAN, NAN, NAN},
    {"T1", "cifar100-b0-20", "ucir", 11.2, 58.17, 0.30, NAN, NAN, NAN},
    {"T1", "cifar100-b0-20", "bic", 11.2, 66.48, 0.32, NAN, NAN, NAN},
    {"T1", "cifar100-b0-20", "wa", 11.2, 67.33, 0.15, NAN, NAN, NAN},
    {"T1", "cifar100-b0-20", "podnet", 11.2, 53.97, 0.85, NAN, NAN, NAN},
    {"T1", "cifar100-b0-20", "der-wop", 117.6, 74.09, 0.33, NAN, NAN, NAN},
    {"T1", "cifar100-b0-20", "der", 7.21, 73.98, 0.36, NAN, NAN, NAN},
    {"T1", "cifar100-b0-50", "joint", 11.2, 81.74, NAN, NAN, NAN, NAN},
    {"T1", "cifar100-b0-50", "icarl", 11.2, 56.08, 0.83, NAN, NAN, NAN},
    {"T1", "cifar100-b0-50", "ucir", 11.2, 56.86, 3.74, NAN, NAN, NAN},
    {"T1", "cifar100-b0-50", "bic", 11.2, 62.09, 0.85, NAN, NAN, NAN},
    {"T1", "cifar100-b0-50", "wa", 11.2, 64.32, 0.28, NAN, NAN, NAN},
    {"T1", "cifar100-b0-50", "podnet", 11.2, 51.19, 1.02, NAN, NAN, NAN},
    {"T1", "cifar100-b0-50", "der-wop", 285.6, 72.41, 0.36, NAN, NAN, NAN},
    {"T1", "cifar100-b0-50", "der", 10.15, 72.05, 0.55, 58.66, NAN, NAN},
    /* T2, CIFAR100-B50, ResNet-18, 20 exemplars a class, three class orders. The Last of 10 steps
     * stands in the text. */
    {"T2", "cifar100-b50-2", "joint", 11.2, 77.22, NAN, NAN, NAN, NAN},
    {"T2", "cifar100-b50-2", "icarl", 11.2, 71.33, 0.35, NAN, NAN, NAN},
    {"T2", "cifar100-b50-2", "ucir", 11.2, 67.21, 0.35, NAN, NAN, NAN},
    {"T2", "cifar100-b50-2", "bic", 11.2, 72.47, 0.99, NAN, NAN, NAN},
    {"T2", "cifar100-b50-2", "wa", 11.2, 71.43, 0.65, NAN, NAN, NAN},
    {"T2", "cifar100-b50-2", "podnet", 11.2, 71.30, 0.46, NAN, NAN, NAN},
    {"T2", "cifar100-b50-2", "der-wop", 22.4, 74.61, 0.52, NAN, NAN, NAN},
    {"T2", "cifar100-b50-2", "der", 3.90, 74.57, 0.42, NAN, NAN, NAN},
    {"T2", "cifar100-b50-5", "joint", 11.2, 79.89, NAN, NAN, NAN, NAN},
    {"T2", "cifar100-b50-5", "icarl", 11.2, 65.06, 0.53, NAN, NAN, NAN},
    {"T2", "cifar100-b50-5", "ucir", 11.2, 64.28, 0.19, NAN, NAN, NAN},
    {"T2", "cifar100-b50-5", "bic", 11.2, 66.62, 0.45, NAN, NAN, NAN},
    {"T2", "cifar100-b50-5", "wa", 11.2, 64.01, 1.62, NAN, NAN, NAN},
    {"T2", "cifar100-b50-5", "podnet", 11.2, 67.25, 0.27, NAN, NAN, NAN},
    {"T2", "cifar100-b50-5", "der-wop", 39.2, 73.21, 0.78, NAN, NAN, NAN},
    {"T2", "cifar100-b50-5", "der", 6.13, 72.60, 0.78, NAN, NAN, NAN},
    {"T2", "cifar100-b50-10", "joint", 11.2, 79.91, NAN, NAN, NAN, NAN},
    {"T2", "cifar100-b50-10", "icarl", 11.2, 58.59, 0.95, NAN, NAN, NAN},
    {"T2", "cifar100-b50-10", "ucir", 11.2, 59.92, 2.4, NAN, NAN, NAN},
    {"T2", "cifar100-b50-10", "bic", 11.2, 60.25, 0.34, NAN, NAN, NAN},
    {"T2", "cifar100-b50-10", "wa", 11.2, 57.86, 0.81, NAN, NAN, NAN},
    {"T2", "cifar100-b50-10", "podnet", 11.2, 64.04, 0.43, NAN, NAN, NAN},
    {"T2", "cifar100-b50-10", "der-wop", 67.2, 72.81, 0.88, NAN, NAN, NAN},
    {"T2", "cifar100-b50-10", "der", 8.79, 72.45, 0.76, 65.58, NAN, NAN},
    /* T3, ImageNet. The Bound of ImageNet-1000, 89.27, is printed as top-1 Avg but is a top-5
     * number. The Last of ImageNet100-B50 without pruning, 74.92, is 72.92 in the released curve,
     * and the top-5 Last of ImageNet100-B0 without pruning, 87.52, is 88.72 there. */
    {"T3", "imagenet100-b0-10", "joint", 11.2, NAN, NAN, NAN, NAN, 95.1},
    {"T3", "imagenet100-b0-10", "icarl", 11.2, NAN, NAN, NAN, 83.6, 63.8},
    {"T3", "imagenet100-b0-10", "bic", 11.2, NAN, NAN, NAN, 90.6, 84.4},
    {"T3", "imagenet100-b0-10", "wa", 11.2, NAN, NAN, NAN, 91.0, 84.1},
    {"T3", "imagenet100-b0-10", "rpsnet", NAN, NAN, NAN, NAN, 87.9, 74.0},
    {"T3", "imagenet100-b0-10", "der-wop", 61.6, 77.18, NAN, 66.70, 93.23, 87.52},
    {"T3", "imagenet100-b0-10", "der", 7.67, 76.12, NAN, 66.06, 92.79, 88.38},
    {"T3", "imagenet1000-b0-10", "joint", 11.2, 89.27, NAN, NAN, NAN, NAN},
    {"T3", "imagenet1000-b0-10", "icarl", 11.2, 38.4, NAN, 22.7, 63.7, 44.0},
    {"T3", "imagenet1000-b0-10", "bic", 11.2, NAN, NAN, NAN, 84.0, 73.2},
    {"T3", "imagenet1000-b0-10", "wa", 11.2, 65.67, NAN, 55.6, 86.6, 81.1},
    {"T3", "imagenet1000-b0-10", "der-wop", 61.6, 68.84, NAN, 60.16, 88.17, 82.86},
    {"T3", "imagenet1000-b0-10", "der", 14.52, 66.73, NAN, 58.62, 87.08, 81.89},
    {"T3", "imagenet100-b50-10", "joint", 11.2, 81.20, NAN, 81.5, NAN, NAN},
    {"T3", "imagenet100-b50-10", "ucir", 11.2, 68.09, NAN, 57.3, NAN, NAN},
    {"T3", "imagenet100-b50-10", "podnet", 11.2, 74.33, NAN, NAN, NAN, NAN},
    {"T3", "imagenet100-b50-10", "tpcil", 11.2, 74.81, NAN, 66.91, NAN, NAN},
    {"T3", "imagenet100-b50-10", "der-wop", 67.20, 78.20, NAN, 74.92, 94.20, 91.30},
    {"T3", "imagenet100-b50-10", "der", 8.87, 77.73, NAN, 72.06, 94.01, 91.64},
    /* T4, contribution of expansion and auxiliary loss, CIFAR100-B0 in 10 steps, no pruning. */
    {"T4", "cifar100-b0-10", "finetune", NAN, 61.84, NAN, 40.81, NAN, NAN},
    {"T4", "cifar100-b0-10", "der-noaux", NAN, 73.26, NAN, 63.07, NAN, NAN},
    {"T4", "cifar100-b0-10", "der-wop", NAN, 75.36, NAN, 65.34, NAN, NAN},
    /* T6, sensitivity to lambda_a, CIFAR100-B0 in 10 steps, with pruning. */
    {"T6", "cifar100-b0-10", "lambda_a=0.1", NAN, 74.12, 0.06, NAN, NAN, NAN},
    {"T6", "cifar100-b0-10", "lambda_a=0.5", NAN, 74.41, 0.16, NAN, NAN, NAN},
    {"T6", "cifar100-b0-10", "lambda_a=1", NAN, 74.64, 0.28, NAN, NAN, NAN},
    {"T6", "cifar100-b0-10", "lambda_a=5", NAN, 74.52, 0.33, NAN, NAN, NAN},
    {"T6", "cifar100-b0-10", "lambda_a=10", NAN, 73.54, 0.22, NAN, NAN, NAN},
    /* T7, CIFAR100-B0, 32-layer network; the other methods are quoted from their papers. */
    {"T7", "cifar100-b0-5-rn32", "icarl", 0.46, 67.20, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-5-rn32", "bic", 0.46, 68.92, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-5-rn32", "wa", 0.46, 70.00, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-5-rn32", "der-wop", 1.38, 73.00, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-5-rn32", "der", 0.42, 72.31, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-10-rn32", "icarl", 0.46, 64.04, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-10-rn32", "bic", 0.46, 66.15, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-10-rn32", "wa", 0.46, 67.25, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-10-rn32", "der-wop", 2.53, 71.29, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-10-rn32", "der", 0.52, 69.41, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-20-rn32", "icarl", 0.46, 61.16, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-20-rn32", "bic", 0.46, 63.80, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-20-rn32", "wa", 0.46, 64.33, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-20-rn32", "der-wop", 4.83, 71.07, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-20-rn32", "der", 0.45, 68.82, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-50-rn32", "icarl", 0.46, 57.00, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-50-rn32", "der-wop", 11.73, 70.58, NAN, NAN, NAN, NAN},
    {"T7", "cifar100-b0-50-rn32", "der", 0.70, 67.29, NAN, NAN, NAN, NAN},
    /* T8, CIFAR100-B50, 32-layer network; the other methods are quoted from their papers. */
    {"T8", "cifar100-b50-2-rn32", "ucir", 0.46, 66.76, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-2-rn32", "der-wop", 0.92, 70.18, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-2-rn32", "der", 0.32, 69.52, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-5-rn32", "ucir", 0.46, 63.42, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-5-rn32", "podnet", 0.46, 64.83, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-5-rn32", "tpcil", 0.46, 65.34, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-5-rn32", "der-wop", 1.61, 68.52, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-5-rn32", "der", 0.59, 67.60, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-10-rn32", "ucir", 0.46, 60.18, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-10-rn32", "podnet", 0.46, 64.03, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-10-rn32", "tpcil", 0.46, 63.58, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-10-rn32", "der-wop", 2.76, 67.09, NAN, NAN, NAN, NAN},
    {"T8", "cifar100-b50-10-rn32", "der", 0.61, 66.36, NAN, NAN, NAN, NAN},
    /* T10, appendix: the second stage trained on all previous data, with pruning. */
    {"T10", "cifar100-b0-10", "classifier-bound", NAN, 76.14, 0.80, NAN, NAN, NAN},
};

const int N_PAPER_VALUES = sizeof PAPER_VALUES / sizeof *PAPER_VALUES;

/* T5, CIFAR100-B0 in 10 steps: row, BWT, FWT. The paper does not say whether "Ours" is pruned. */
const struct paper_transfer PAPER_TRANSFERS[] = {
    {"icarl", -4.14, -4.91}, {"ucir", -8.52, -5.56},    {"bic", -3.40, -0.17},
    {"wa", -3.18, 0.82},     {"podnet", -16.27, -5.58}, {"der", 1.36, 1.49},
};

const int N_PAPER_TRANSFERS = sizeof PAPER_TRANSFERS / sizeof *PAPER_TRANSFERS;
