/*
 * The rows of the paper's tables that this program can run again. Of the methods that the paper compares with these are
 * iCaRL, BiC and WA, by its own recipes (docs/METHODS.md) where the tables quote other papers.
 *
 * Settings that a row is about are always spelt out, so that no preset can change its meaning. T5
 * has two rows because the paper does not say whether its representation was pruned. Figure 1 shows
 * accuracy against size without a number; here the size is moved by lambda_s, of which the paper
 * ran 0.75, and which is not steered then. The bound is what a second stage on all previous data
 * would reach.
 */
#include "metrics/paper_internal.h"

const struct paper_table PAPER_TABLES[] = {
    {"T1", "CIFAR100-B0, ResNet-18, 2,000 exemplars in all", PAPER_ACCURACY},
    {"T2", "CIFAR100-B50, ResNet-18, 20 exemplars a class", PAPER_ACCURACY},
    {"T3", "ImageNet-100 and ImageNet-1000, ResNet-18", PAPER_ACCURACY},
    {"T4", "Contribution of each component, CIFAR100-B0 in 10 steps", PAPER_ACCURACY},
    {"T5", "Transfer of the representation, CIFAR100-B0 in 10 steps", PAPER_TRANSFER},
    {"T6", "Sensitivity to lambda_a, CIFAR100-B0 in 10 steps", PAPER_ACCURACY},
    {"T7", "CIFAR100-B0, 32-layer network, 2,000 exemplars in all", PAPER_ACCURACY},
    {"T8", "CIFAR100-B50, 32-layer network, 20 exemplars a class", PAPER_ACCURACY},
    {"fig1", "Accuracy against parameters by lambda_s, CIFAR100-B0 in 10 steps", PAPER_ACCURACY},
    {"bound", "Upper bound of the classifier, CIFAR100-B0 in 10 steps", PAPER_BOUND},
};

const int N_PAPER_TABLES = sizeof PAPER_TABLES / sizeof *PAPER_TABLES;

/* One shape of row each, so that the list below reads as the tables do. */
#define JOINT(table, preset, what)                                                                 \
    {                                                                                              \
        table, "joint, " what, preset, "joint", {"prune=false"}, table, "joint"                    \
    }
#define ICARL_SETTINGS "prune=false", "distill=added", "readout=means"
#define ICARL(table, preset, what)                                                                 \
    {                                                                                              \
        table, "iCaRL, " what, preset, "icarl", {ICARL_SETTINGS}, table, "icarl"                   \
    }
#define WA_SETTINGS "prune=false", "distill=shared", "readout=aligned", "classifier_positive=true"
#define WA(table, preset, what)                                                                    \
    {                                                                                              \
        table, "WA, " what, preset, "wa", {WA_SETTINGS}, table, "wa"                               \
    }
#define BIC_SETTINGS "prune=false", "distill=shared", "readout=corrected"
#define BIC(table, preset, what)                                                                   \
    {                                                                                              \
        table, "BiC, " what, preset, "bic", {BIC_SETTINGS}, table, "bic"                           \
    }
#define WHOLE(table, preset, what)                                                                 \
    {                                                                                              \
        table, "DER without pruning, " what, preset, "der", {"prune=false"}, table, "der-wop"      \
    }
#define PRUNED(table, preset, what)                                                                \
    {                                                                                              \
        table, "DER, " what, preset, "der", {"prune=true"}, table, "der"                           \
    }
#define ABLATION(label, method, auxiliary, row)                                                    \
    {                                                                                              \
        "T4", label, "cifar100-b0-10", method, {"prune=false", auxiliary}, "T4", row               \
    }
#define TRANSFER(label, method, ...)                                                               \
    {                                                                                              \
        "T5", label, "cifar100-b0-10", method, {__VA_ARGS__}, "T5", method                         \
    }
#define BOUND(preset, what)                                                                        \
    {                                                                                              \
        "bound", "DER, " what, preset, "der", {"prune=true"}, "T1", "der"                          \
    }
#define LAMBDA_A(setting)                                                                          \
    {                                                                                              \
        "T6", setting, "cifar100-b0-10", "der", {"prune=true", setting}, "T6", setting             \
    }
#define LAMBDA_S(setting, value_table, value_row)                                                  \
    {                                                                                              \
        "fig1", setting, "cifar100-b0-10", "der", {"prune=true", "target_params=0", setting},      \
            value_table, value_row                                                                 \
    }

const struct paper_run PAPER_RUNS[] = {
    JOINT("T1", "cifar100-b0-5", "5 steps"),
    ICARL("T1", "cifar100-b0-5", "5 steps"),
    BIC("T1", "cifar100-b0-5", "5 steps"),
    WA("T1", "cifar100-b0-5", "5 steps"),
    WHOLE("T1", "cifar100-b0-5", "5 steps"),
    PRUNED("T1", "cifar100-b0-5", "5 steps"),
    JOINT("T1", "cifar100-b0-10", "10 steps"),
    ICARL("T1", "cifar100-b0-10", "10 steps"),
    BIC("T1", "cifar100-b0-10", "10 steps"),
    WA("T1", "cifar100-b0-10", "10 steps"),
    WHOLE("T1", "cifar100-b0-10", "10 steps"),
    PRUNED("T1", "cifar100-b0-10", "10 steps"),
    JOINT("T1", "cifar100-b0-20", "20 steps"),
    ICARL("T1", "cifar100-b0-20", "20 steps"),
    BIC("T1", "cifar100-b0-20", "20 steps"),
    WA("T1", "cifar100-b0-20", "20 steps"),
    WHOLE("T1", "cifar100-b0-20", "20 steps"),
    PRUNED("T1", "cifar100-b0-20", "20 steps"),
    JOINT("T1", "cifar100-b0-50", "50 steps"),
    ICARL("T1", "cifar100-b0-50", "50 steps"),
    BIC("T1", "cifar100-b0-50", "50 steps"),
    WA("T1", "cifar100-b0-50", "50 steps"),
    WHOLE("T1", "cifar100-b0-50", "50 steps"),
    PRUNED("T1", "cifar100-b0-50", "50 steps"),
    JOINT("T2", "cifar100-b50-2", "2 steps"),
    ICARL("T2", "cifar100-b50-2", "2 steps"),
    BIC("T2", "cifar100-b50-2", "2 steps"),
    WA("T2", "cifar100-b50-2", "2 steps"),
    WHOLE("T2", "cifar100-b50-2", "2 steps"),
    PRUNED("T2", "cifar100-b50-2", "2 steps"),
    JOINT("T2", "cifar100-b50-5", "5 steps"),
    ICARL("T2", "cifar100-b50-5", "5 steps"),
    BIC("T2", "cifar100-b50-5", "5 steps"),
    WA("T2", "cifar100-b50-5", "5 steps"),
    WHOLE("T2", "cifar100-b50-5", "5 steps"),
    PRUNED("T2", "cifar100-b50-5", "5 steps"),
    JOINT("T2", "cifar100-b50-10", "10 steps"),
    ICARL("T2", "cifar100-b50-10", "10 steps"),
    BIC("T2", "cifar100-b50-10", "10 steps"),
    WA("T2", "cifar100-b50-10", "10 steps"),
    WHOLE("T2", "cifar100-b50-10", "10 steps"),
    PRUNED("T2", "cifar100-b50-10", "10 steps"),
    JOINT("T3", "imagenet100-b0-10", "ImageNet100-B0"),
    ICARL("T3", "imagenet100-b0-10", "ImageNet100-B0"),
    BIC("T3", "imagenet100-b0-10", "ImageNet100-B0"),
    WA("T3", "imagenet100-b0-10", "ImageNet100-B0"),
    WHOLE("T3", "imagenet100-b0-10", "ImageNet100-B0"),
    PRUNED("T3", "imagenet100-b0-10", "ImageNet100-B0"),
    JOINT("T3", "imagenet1000-b0-10", "ImageNet1000-B0"),
    ICARL("T3", "imagenet1000-b0-10", "ImageNet1000-B0"),
    BIC("T3", "imagenet1000-b0-10", "ImageNet1000-B0"),
    WA("T3", "imagenet1000-b0-10", "ImageNet1000-B0"),
    WHOLE("T3", "imagenet1000-b0-10", "ImageNet1000-B0"),
    PRUNED("T3", "imagenet1000-b0-10", "ImageNet1000-B0"),
    JOINT("T3", "imagenet100-b50-10", "ImageNet100-B50"),
    WHOLE("T3", "imagenet100-b50-10", "ImageNet100-B50"),
    PRUNED("T3", "imagenet100-b50-10", "ImageNet100-B50"),
    ABLATION("neither", "finetune", "auxiliary=false", "finetune"),
    ABLATION("expansion", "der", "auxiliary=false", "der-noaux"),
    ABLATION("expansion and auxiliary loss", "der", "auxiliary=true", "der-wop"),
    TRANSFER("iCaRL", "icarl", ICARL_SETTINGS),
    TRANSFER("BiC", "bic", BIC_SETTINGS),
    TRANSFER("WA", "wa", WA_SETTINGS),
    TRANSFER("DER without pruning", "der", "prune=false"),
    TRANSFER("DER", "der", "prune=true"),
    LAMBDA_A("lambda_a=0.1"),
    LAMBDA_A("lambda_a=0.5"),
    LAMBDA_A("lambda_a=1"),
    LAMBDA_A("lambda_a=5"),
    LAMBDA_A("lambda_a=10"),
    ICARL("T7", "cifar100-b0-5-rn32", "5 steps"),
    BIC("T7", "cifar100-b0-5-rn32", "5 steps"),
    WA("T7", "cifar100-b0-5-rn32", "5 steps"),
    WHOLE("T7", "cifar100-b0-5-rn32", "5 steps"),
    PRUNED("T7", "cifar100-b0-5-rn32", "5 steps"),
    ICARL("T7", "cifar100-b0-10-rn32", "10 steps"),
    BIC("T7", "cifar100-b0-10-rn32", "10 steps"),
    WA("T7", "cifar100-b0-10-rn32", "10 steps"),
    WHOLE("T7", "cifar100-b0-10-rn32", "10 steps"),
    PRUNED("T7", "cifar100-b0-10-rn32", "10 steps"),
    ICARL("T7", "cifar100-b0-20-rn32", "20 steps"),
    BIC("T7", "cifar100-b0-20-rn32", "20 steps"),
    WA("T7", "cifar100-b0-20-rn32", "20 steps"),
    WHOLE("T7", "cifar100-b0-20-rn32", "20 steps"),
    PRUNED("T7", "cifar100-b0-20-rn32", "20 steps"),
    ICARL("T7", "cifar100-b0-50-rn32", "50 steps"),
    WHOLE("T7", "cifar100-b0-50-rn32", "50 steps"),
    PRUNED("T7", "cifar100-b0-50-rn32", "50 steps"),
    WHOLE("T8", "cifar100-b50-2-rn32", "2 steps"),
    PRUNED("T8", "cifar100-b50-2-rn32", "2 steps"),
    WHOLE("T8", "cifar100-b50-5-rn32", "5 steps"),
    PRUNED("T8", "cifar100-b50-5-rn32", "5 steps"),
    WHOLE("T8", "cifar100-b50-10-rn32", "10 steps"),
    PRUNED("T8", "cifar100-b50-10-rn32", "10 steps"),
    LAMBDA_S("lambda_s=0.25", NULL, NULL),
    LAMBDA_S("lambda_s=0.5", NULL, NULL),
    LAMBDA_S("lambda_s=0.75", "T1", "der"),
    LAMBDA_S("lambda_s=1.5", NULL, NULL),
    BOUND("cifar100-b0-10", "10 steps"),
};

const int N_PAPER_RUNS = sizeof PAPER_RUNS / sizeof *PAPER_RUNS;
