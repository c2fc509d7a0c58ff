/*
 * Looking into runs, and into settings before anything is trained with them.
 */
#ifndef DER_INSPECT_H
#define DER_INSPECT_H

#include <der/reproduce.h>

/* ---- settings --------------------------------------------------------------------------------------- */

/* What settings amount to. The network is the one of full width, which every step begins with. */
struct der_plan_info {
    const char *network;
    double width_factor;
    int channels, height, width; /* of the images */
    bool image_is_assumed;       /* the data set decides on them: these are an example */
    int n_classes, n_steps;      /* 0: the data set decides */
    int memory;                  /* exemplars */
    bool memory_is_per_class;    /* so many of each class; else in all */
    int features;
    int n_layers;
    int64_t params;        /* learnt, the classifier not counted */
    int64_t multiply_adds; /* of its convolutions, for one image */
};

/* A convolution with its batch norm. */
struct der_layer_info {
    char name[64]; /* torchvision's name of the convolution */
    int in_channels, out_channels, kernel, stride;
    int height, width;     /* of its result */
    int64_t params;        /* with those of the batch norm */
    int64_t multiply_adds; /* for one image */
};

DER_API DER_NODISCARD enum der_status der_settings_plan(const struct der_settings *settings,
                                                        struct der_plan_info *out);

/* Layer `index`, from 0, of n_layers. */
DER_API DER_NODISCARD enum der_status der_settings_layer(const struct der_settings *settings,
                                                         int index, struct der_layer_info *out);

/* Classes that step `step` (from 0) adds; 0 past the last step, or where the data set decides. */
DER_API int der_settings_step_classes(const struct der_settings *settings, int step);

/* All of it as a JSON object, indented, with a newline at the end. Borrowed as long as the settings live. */
DER_API DER_NODISCARD enum der_status der_settings_plan_json(struct der_settings *settings,
                                                             const char **text);

/* ---- runs ------------------------------------------------------------------------------------------- */

struct der_run;

/* Per cent where nothing else is said; what was not measured, or not yet, is NAN. Texts are borrowed. */
struct der_run_info {
    enum der_run_state state; /* DER_RUN_PARTIAL: begun, and not at its end */
    bool has_ended;  /* also of a run that was to end before the last step of its protocol */
    bool is_running; /* some process works on it now */
    bool has_model;  /* a step is finished, and der_model_load takes the folder */
    const char *preset, *method, *network;
    const char *data_kind, *precision;
    int n_classes;
    int64_t train_images, test_images; /* of the data set */
    int steps_done, n_steps;
    const char *phase;           /* "representation", "classifier", or "" between steps */
    int epochs_saved;            /* of that phase, in the latest state */
    double last_top1, last_top5; /* after the latest step */
    double avg_top1, avg_top5;   /* over the steps so far */
    double avg_params;           /* likewise; parameters of the extractors */
    double bwt, fwt;             /* backward and forward transfer, at the end */
    double classifier_bound;     /* at the end */
};

/* A finished step. */
struct der_run_step {
    int step; /* from 1 */
    double top1, top5;
    int64_t params; /* of the extractors */
};

/* What a run was started with: what a context and the options of der_train need to go on with it. */
struct der_run_start {
    bool has_run;    /* false: there is none in the folder, and the rest is zero */
    char device[16]; /* name of the back end */
    enum der_precision precision;
    bool deterministic;
    int threads;
    int max_steps;    /* 0: all */
    unsigned measure; /* of enum der_measure */
    enum der_bad_images bad_images;
};

/* Of the run in a folder, or where one is to begin. */
DER_API DER_NODISCARD enum der_status der_run_start(struct der_ctx *ctx, const char *path,
                                                    struct der_run_start *out);

/* What is said about the settings of a run: any of it, or nothing. */
struct der_settings_given {
    const char *preset, *method; /* NULL: not given */
    const char *const *assignments;
    int n_assignments;
};

/* Settings for der_train to go on with the run in a folder: all of them are the run's own, and those that are given
 * must be among them; DER_ARG names the ones that are not. What follows from them in der_settings_new is not
 * looked at. Where no run is yet, they are those of der_settings_new, with the preset "custom" unless one is given.
 * Caller frees with der_settings_free. */
DER_API DER_NODISCARD enum der_status der_settings_resume(struct der_ctx *ctx, const char *path,
                                                          const struct der_settings_given *given,
                                                          struct der_settings **out);

/* Reads the folder of a run; one without a run is DER_FORMAT. Caller frees with der_run_free. */
DER_API DER_NODISCARD enum der_status der_run_open(struct der_ctx *ctx, const char *path,
                                                   struct der_run **out);
DER_API void der_run_free(struct der_run *run);

DER_API struct der_run_info der_run_info(const struct der_run *run);

/* Finished step `index`, from 0, of steps_done. Where joint training waits for the last step, the ones before it have
 * accuracies of NAN and no parameters. */
DER_API DER_NODISCARD enum der_status der_run_step(const struct der_run *run, int index,
                                                   struct der_run_step *out);

/* What it was started with. Borrowed from the run. */
DER_API struct der_settings *der_run_settings(struct der_run *run);

/* All of it as a JSON object, indented, with a newline at the end. Borrowed as long as the run lives. */
DER_API DER_NODISCARD enum der_status der_run_json(struct der_run *run, const char **text);

#endif
