/*
 * Data sets before training: getting the well-known ones, and looking for what is wrong with any.
 */
#ifndef DER_DATA_TOOLS_H
#define DER_DATA_TOOLS_H

#include <der/context.h>

#include <stdbool.h>

/* A data set that der_data_get knows. Strings are of static storage. */
struct der_data_offer {
    const char *name;       /* "cifar100" */
    const char *title;      /* what it is, in a line */
    const char *address;    /* of the files, their common part */
    const char *source;     /* page of the publishers */
    const char *licence;    /* what they say about using it */
    int64_t download_bytes; /* of all files */
    int64_t disk_bytes;     /* in the end */
};

DER_API int der_data_offer_count(void);
DER_API DER_NODISCARD enum der_status der_data_offer_describe(struct der_ctx *ctx, int index,
                                                              struct der_data_offer *out);

enum der_data_stage { DER_DATA_DOWNLOADING, DER_DATA_CHECKING, DER_DATA_UNPACKING };

struct der_data_progress {
    enum der_data_stage stage;
    const char *file;        /* borrowed */
    int64_t done, total;     /* bytes; total 0: not known */
    double bytes_per_second; /* downloading; 0: not known yet */
    double seconds_left;     /* downloading; negative: not known */
};

/* Zero or NULL means the default in parentheses. */
struct der_data_get_options {
    const char *name;   /* of an offer; required */
    const char *folder; /* where to; required. Made if it is not there, with those it lies in */
    const char
        *url; /* another address of the file, or, with a slash at its end or for several files,
                           * of their folder: http, https or file (the publishers') */
    const char
        *checksum;     /* "md5:HEX" or "sha256:HEX" of another file than the published one, for data
                           * sets of one file (the published one's) */
    int stall_seconds; /* without a byte, then the connection is tried anew (30) */
    int retries;       /* connections in a row that may fail without progress (5); negative: none */
    void (*progress)(void *user, const struct der_data_progress *progress);
    bool (*cancelled)(void *user); /* true ends with DER_CANCELLED */
    void *user;                    /* argument of the two */
};

/* Downloads a data set, checks it and unpacks it. What is there whole is recognised and left alone, and
 * *was_there set; what was broken off, by an error, by the cancel function or by force, goes on where it stopped
 * at the next call. Nothing appears under its name before it is whole. */
DER_API DER_NODISCARD enum der_status der_data_get(struct der_ctx *ctx,
                                                   const struct der_data_get_options *options,
                                                   bool *was_there);

/* Zero or NULL means the default in parentheses. */
struct der_data_check_options {
    const char *path;       /* what `der train --data` takes; required */
    const char *class_list; /* image folders: a file with the classes to use (all) */
    void (*progress)(void *user, int64_t done, int64_t total); /* images */
    bool (*cancelled)(void *user);                             /* true ends with DER_CANCELLED */
    void *user;                                                /* argument of the two */
};

struct der_data_report; /* what der_data_check found */

struct der_data_summary {
    const char *kind; /* "cifar100", "folder" ...; NULL: it cannot be read, and the rest is 0 */
    int n_classes, channels;
    int64_t n_train, n_test;                          /* images */
    int height_min, height_max, width_min, width_max; /* of images that decode */
    int64_t n_findings, n_errors;                     /* all; those that would end training */
};

struct der_data_class {
    const char *name;
    int64_t n_train, n_test;
};

struct der_data_finding {
    const char *kind; /* "bad-image", "duplicate" ...; findings of a kind follow each other */
    bool is_error;    /* it would end training */
    const char *text; /* a sentence without a full stop */
};

/* Opens a data set, decodes every image of it with the threads of the context, and finds: images that do not
 * decode, classes without images, with few or of unequal size, or with names that are no UTF-8, test pictures that are
 * among those trained on, pictures under two classes, files and folders that nothing reads. What is wrong with the set
 * is in the report, not in the status. *out is freed with der_data_report_free; texts of a report live as long as it does. */
DER_API DER_NODISCARD enum der_status der_data_check(struct der_ctx *ctx,
                                                     const struct der_data_check_options *options,
                                                     struct der_data_report **out);
DER_API void der_data_report_free(struct der_data_report *report); /* NULL is allowed */

DER_API struct der_data_summary der_data_report_summary(const struct der_data_report *report);

/* DER_ARG when there is no such class or finding. */
DER_API DER_NODISCARD enum der_status der_data_report_class(const struct der_data_report *report,
                                                            int index, struct der_data_class *out);
DER_API DER_NODISCARD enum der_status der_data_report_finding(const struct der_data_report *report,
                                                              int64_t index,
                                                              struct der_data_finding *out);

/* All of it as a JSON object. */
DER_API DER_NODISCARD enum der_status der_data_report_json(struct der_data_report *report,
                                                           const char **out);

#endif
