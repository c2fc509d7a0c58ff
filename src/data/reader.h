/*
 * What the readers of the data room share: one function per kind of data set, and the few steps
 * that all of them take. Private to the room.
 */
#ifndef DATA_READER_H
#define DATA_READER_H

#include "data/dataset.h"

/* Bytes of a parsed file, borrowed, with the name that messages call it by. */
struct reader_input {
    const char *name;
    const uint8_t *data;
    size_t size;
};

enum { READER_CIFAR10 = 10, READER_CIFAR100 = 100 }; /* number of classes; tells the two apart */

/* What one file of a distribution holds, added to the end of a split: the parsers that the openers
 * below are made of. Wants the set's n_classes, channels, height and width. */
NODISCARD enum der_status cifar_parse(struct dataset *set, enum data_split split,
                                      struct reader_input input);
NODISCARD enum der_status cifar_pickle_parse(struct dataset *set, enum data_split split,
                                             struct reader_input input);
/* The class names instead; sets class_names. */
NODISCARD enum der_status cifar_pickle_parse_names(struct dataset *set, struct reader_input input);

/* One pair of IDX files, plain or gzip, which become the whole split. The first pair sets the
 * image size, and the number of classes from its largest label; a second one must agree. */
NODISCARD enum der_status idx_parse(struct dataset *set, enum data_split split,
                                    struct reader_input images, struct reader_input labels);

/* The kinds that a folder's files give away. */
struct cifar_layout;
const struct cifar_layout *cifar_detect(const char *folder); /* NULL: not CIFAR */
bool idx_detect(const char *folder);

/* Each fills `set`, whose ctx, arena and path are set; on failure dataset_free cleans up. */
NODISCARD enum der_status cifar_open(struct dataset *set, const struct cifar_layout *layout,
                                     const char *folder, const struct dataset_options *options);
NODISCARD enum der_status idx_open(struct dataset *set, const char *folder,
                                   const struct dataset_options *options);
NODISCARD enum der_status folder_open(struct dataset *set, const char *folder,
                                      const struct dataset_options *options);
NODISCARD enum der_status synth_open(struct dataset *set, const char *description);

/* Is it the name of a list of labels that folder_open looks for? */
bool folder_is_list(const char *name);

/* Which folder beside "train" holds the test images: "val", "test", or NULL when there is neither. */
const char *folder_test_name(const char *folder);

/* Is there something at folder/name, and is it a regular file or a folder? */
bool reader_is_file(const char *folder, const char *name);
bool reader_is_folder(const char *folder, const char *name);

/* "folder/name" in the set's arena; NULL when memory is short. */
char *reader_path(struct dataset *set, const char *folder, const char *name);

/* file_read whose failure goes to the context. */
NODISCARD enum der_status reader_read(struct dataset *set, const struct dataset_options *options,
                                      const char *path, struct file_bytes *bytes);

/* Makes room for the labels and the pixels of `more` images at the end of a split, whose count
 * grows by as many. Wants the set's channels, height and width. */
NODISCARD enum der_status reader_grow_part(struct dataset *set, enum data_split split, size_t more);

/* Gives the classes the names "0", "1", ... */
NODISCARD enum der_status reader_number_classes(struct dataset *set, int n_classes);

/* Takes one name a line from `text`; want exactly n_classes. Empty lines at the end are fine. */
NODISCARD enum der_status reader_name_classes(struct dataset *set, struct reader_input text,
                                              int n_classes);

/* Fails when two classes have one name; `where` says where the names come from. */
NODISCARD enum der_status reader_check_names(struct dataset *set, const char *where);

#endif
