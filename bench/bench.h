/*
 * What the parts of der_bench share: settings, a network made ready to run, the clock.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "graph/backend.h"
#include "model/resnet.h"

struct bench_options {
    const char *backend; /* "cpu" */
    const char *model;   /* a name of resnet_names() */
    double width;        /* factor on every layer; 1 is the published network */
    bool infers;         /* folded inference, not loss, gradients and update */
    int batch;
    int threads;
    int n_extractors;    /* compile, der: of the step */
    const char *part;    /* der: "step", "train" or "frozen" */
    const char *folder;  /* loader: of JPEG files; NULL: some are made */
    int side;            /* loader: longer side of the pictures that are made */
    int rounds;          /* loader: turns of both sides */
    double frozen_width; /* der: of the frozen extractors */
    const char *widths;  /* der: channels of the trained extractor, layer by layer; NULL: all */
    const char *frozen_widths;    /* der: of the frozen ones */
    bool masks;                   /* der: channel masks are trained */
    enum precision precision;     /* step, der */
    struct backend_tuning tuning; /* step, der */
    const char *cache;            /* folder for compiled kernels; NULL: none */
    const char *file;             /* model, predict: the model file */
    const char *image;            /* predict: bytes of a picture */
};

enum { BENCH_IMAGE_SIZE = 32, BENCH_N_CLASSES = 100, BENCH_MAX_CHANNELS = 2048 };

/* Buffers that programs of one batch size share. */
struct bench_data {
    struct buffer *image, *labels, *one, *lr, *loss, *logits;
};

/* Everything below reports failures through the context. */
NODISCARD enum der_status bench_data_init(struct bench_data *data, struct backend *be, int batch);
void bench_data_fini(struct bench_data *data);

/* A set filled with starting values; thawed when `training`. */
NODISCARD enum der_status bench_extractor(struct backend *be, const struct resnet_spec *spec,
                                          bool training, struct param_set **out);
NODISCARD enum der_status bench_head(struct backend *be, int dim, bool training,
                                     struct param_set **out);

/* What a network is compiled for. */
enum bench_use {
    BENCH_TRAINING, /* forward, loss, backward and SGD */
    BENCH_FROZEN,   /* folded, within an iteration of training */
    BENCH_ANSWERS   /* folded, as precise as answers have to be */
};

/* Describes, fuses, compiles and binds. */
NODISCARD enum der_status bench_compile(struct backend *be, const struct resnet_spec *spec,
                                        struct param_set *extractor, struct param_set *head,
                                        const struct bench_data *data, int batch,
                                        enum bench_use use, struct program **out);

/* Seconds on a clock that never jumps. */
double bench_clock(void);
/* Processor seconds of all threads of this process. */
double bench_cpu_clock(void);

/* Answers the lines of bench/run.py (bench_net.c says which) by running `sequence`; the first float
 * of `result` is read back after every measurement. */
NODISCARD enum der_status bench_obey(struct sequence *sequence, struct buffer *result,
                                     double start_mib);

/* A field of /proc/self/status in MiB; 0 where there is no such file. */
double bench_status_mib(const char *field);

/* The commands. */
NODISCARD enum der_status bench_net(struct der_ctx *ctx, const struct bench_options *options);
NODISCARD enum der_status bench_step(struct der_ctx *ctx, const struct bench_options *options);
NODISCARD enum der_status bench_der(struct der_ctx *ctx, const struct bench_options *options);
NODISCARD enum der_status bench_augment(struct der_ctx *ctx, const struct bench_options *options);
NODISCARD enum der_status bench_loader(struct der_ctx *ctx, const struct bench_options *options);
NODISCARD enum der_status bench_model(struct der_ctx *ctx, const struct bench_options *options);
NODISCARD enum der_status bench_predict(struct der_ctx *ctx, const struct bench_options *options);

#endif
