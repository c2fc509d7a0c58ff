/*
 * Training a network on a whole data set.
 */
#ifndef DER_TRAIN_H
#define DER_TRAIN_H

#include <der/context.h>

#include <stdbool.h>

/* Where training stands; averages since the epoch began. */
struct der_progress {
    const char *stage;               /* what is being trained; borrowed */
    int epoch, epochs;               /* from 0, in all */
    int64_t iteration, n_iterations; /* done in this epoch, in all of it */
    bool epoch_done;
    double lr, loss;
    double accuracy; /* per cent of the training images; negative: not measured */
    double images_per_second;
    double seconds, seconds_left;
};

typedef void der_progress_fn(void *user, const struct der_progress *progress);

enum der_bad_images { DER_BAD_IMAGES_STOP, DER_BAD_IMAGES_SKIP };

/* Settings; zero or NULL means the default in parentheses. */
struct der_train_options {
    const char *data;       /* folder of a data set, or "synth:..."; required */
    const char *class_list; /* image folders: a file with the class folders to use, one a line */
    int first_classes;      /* image folders: only so many classes in sorted order; 100 makes
                                     * ImageNet-100 of ImageNet (all) */
    const char *network;    /* as der_network_describe names it ("resnet18-cifar") */
    double width;           /* factor on every layer's channels (1) */
    const char *backend;    /* "cpu", "ref" (the fastest of the build) */
    int epochs;             /* (170, the paper's; its schedule is squeezed into others) */
    int batch;              /* images a batch (128) */
    double lr;              /* rate after the warm-up (0.1) */
    int per_class;          /* train on at most so many images of each class (all) */
    double validation;      /* share of the training images held out and tested on instead of the
                                     * test images (0; a set without test images: 0.2) */
    int loader_threads;     /* threads that prepare batches (1) */
    enum der_bad_images bad_images; /* what to do with images that do not decode (stop) */
    der_progress_fn *progress;
    void *progress_user;
    /* Asked between iterations; true ends training with DER_CANCELLED. NULL: never. */
    bool (*cancelled)(void *user);
    void *cancelled_user;
};

struct der_train_result {
    int n_classes;
    int64_t n_train, n_test; /* images */
    int64_t parameters;      /* of the extractor */
    double top1, top5;       /* per cent of the test images */
    bool on_validation;      /* they were held-out training images */
    double seconds;
};

/* Trains a fresh network and tests it. */
DER_API DER_NODISCARD enum der_status der_train(struct der_ctx *ctx,
                                                const struct der_train_options *options,
                                                struct der_train_result *result);

#endif
