/*
 * The command line of a command, read by its rows of the table.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "table.h"

/* Reads "--name value", "--name=value", "--name" of flags, "-o value" of options with a letter, and words; behind
 * "--" there are only words, and "-" is one. Anything else, an unknown flag, a missing, malformed or unknown value
 * is reported and EXIT_USAGE returned. What is asked with --help or -h is only told; nothing is checked then.
 * Whatever `request` points to afterwards belongs to argv. */
enum exit_code options_parse(const struct command *command, int argc, char **argv, void *request,
                             bool *wants_help);

/* --help or -h? */
bool options_is_help(const char *word);

/* The option that a word such as "--data", "--data=x" or "-o" names; NULL when there is none. */
const struct option *option_named(const struct command *command, const char *word);

/* The row of the number-th word (from 0) that is no flag; NULL when there is none. */
const struct option *option_of_word(const struct command *command, int number);

bool option_is_word(const struct option *option);
bool option_is_repeatable(const struct option *option);

/* Bytes of the texts below, their ends included. */
enum { OPTION_TEXT_MAX = 128 };

/* The placeholder of its value: "DIR", "f32|tf32|bf16"; "" of flags and words. */
const char *option_argument(const struct option *option, char text[OPTION_TEXT_MAX]);

/* Which of the choices a word is; -1 and a message when it is none of them. `name` is what takes it: "--split". */
int option_choose(const char *name, const char *const *choices, const char *word);

/* ---- rows that several commands have ---------------------------------------------------------------- */

extern const char *const PRECISIONS[];      /* in the order of enum der_precision */
extern const char *const BAD_IMAGE_WORDS[]; /* in the order of enum der_bad_images */

#define DEVICE_ROW(member)                                                                         \
    {                                                                                              \
        .name = "device", .kind = KIND_DEVICE, .argument = "NAME",                                 \
        .help = "back end, as `der version` lists them (the fastest)", .at = AT(member)            \
    }
#define PRECISION_ROW(member)                                                                      \
    {                                                                                              \
        .name = "precision", .type = OPTION_CHOICE, .choices = PRECISIONS,                         \
        .help = "precision of convolutions; the CPU has f32 only (f32)",                           \
        .more = "With bf16, training runs in bf16, and tests, predictions and the choice of "      \
                "exemplars in tf32.",                                                              \
        .at = AT(member)                                                                           \
    }
#define THREADS_ROW(member)                                                                        \
    {                                                                                              \
        .name = "threads", .type = OPTION_INT, .argument = "N", .at_least = 1,                     \
        .help = "compute threads; results depend on it (2)",                                       \
        .more = "The same seed and thread count give the same result to the byte.",                \
        .at = AT(member)                                                                           \
    }
#define LOADERS_ROW(member)                                                                        \
    {                                                                                              \
        .name = "loaders", .type = OPTION_INT, .argument = "N",                                    \
        .help = "threads that prepare batches (1)", .more = "They change no result.",              \
        .at = AT(member)                                                                           \
    }
#define CLASS_LIST_ROW(member)                                                                     \
    {                                                                                              \
        .name = "class-list", .kind = KIND_FILE, .argument = "FILE",                               \
        .help = "image folders: use the classes named in FILE, one a line",                        \
        .more = "Their order in the file is their order in training.", .at = AT(member)            \
    }
#define BAD_IMAGES_ROW(member, usual, besides)                                                     \
    {                                                                                              \
        .name = "bad-images", .type = OPTION_CHOICE, .choices = BAD_IMAGE_WORDS,                   \
        .help = "what to do with images that do not decode (" usual ")",                           \
        .more = "Those that are skipped are named and counted." besides, .at = AT(member)          \
    }
#define BAD_IMAGES_OF_TRAINING                                                                     \
    " A class without a single training image that can be used is an error in either case."
#define DETERMINISTIC_ROW(member)                                                                  \
    {                                                                                              \
        .name = "deterministic", .type = OPTION_FLAG,                                              \
        .help = "only algorithms that give the same bytes twice", .more = "The CPU always does.",  \
        .at = AT(member)                                                                           \
    }
#define SET_ROW(member, text)                                                                      \
    {                                                                                              \
        .name = "set", .type = OPTION_TEXTS, .kind = KIND_SETTING, .argument = "KEY=VALUE",        \
        .help = text, .more = "May be given several times, in any order.", .at = AT(member)        \
    }
#define JSON_ROW(member, text)                                                                     \
    {                                                                                              \
        .name = "json", .type = OPTION_FLAG, .help = text, .at = AT(member)                        \
    }
#define QUIET_ROW(member, text)                                                                    \
    {                                                                                              \
        .name = "quiet", .type = OPTION_FLAG, .help = text, .at = AT(member)                       \
    }

#endif
