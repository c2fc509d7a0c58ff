/*
 * The one table of the program: commands, their words and options, exit codes.
 *
 * Parsing (options.h), help (help.h), the manual (manual.h) and completion (completion.h) all read it, so that
 * none of them knows a name the others do not. The rows of a command stand in its file, cmd_<name>.c; settings,
 * presets, networks and so on are tables of the library, which are asked for by kind.
 *
 * In texts, what is typed as it stands lies between `backticks`; a newline begins a paragraph.
 */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "cli.h"

#include <stdbool.h>
#include <stddef.h>

/* How a value is read, and what it is stored in. */
enum option_type {
    OPTION_TEXT,    /* const char * */
    OPTION_INT,     /* int, from at_least on */
    OPTION_NUMBER,  /* double, from at_least on */
    OPTION_FLAG,    /* bool: --name alone */
    OPTION_CHOICE,  /* an int or an enum: the place of the word in `choices` */
    OPTION_CHOICES, /* unsigned: a bit for every word that was given, by its place; several times */
    OPTION_TEXTS,   /* struct option_texts; may be given several times */
    OPTION_WORD,    /* const char *, no flag: a word by its place; rows are filled in their order */
    OPTION_WORDS,   /* struct option_words: all words that are left */
};

/* What a value stands for, which tells what can be offered for it. */
enum value_kind {
    KIND_TEXT, /* anything */
    KIND_FILE,
    KIND_FOLDER,
    KIND_PRESET,
    KIND_SETTING, /* KEY=VALUE */
    KIND_DEVICE,
    KIND_NETWORK,
    KIND_TABLE,    /* of the paper */
    KIND_ROW,      /* of the table that is the first word */
    KIND_DOWNLOAD, /* a data set that can be had */
    KIND_COMMAND,  /* or a subject of `der help` */
};

enum { OPTION_TEXTS_MAX = 128 };

/* What OPTION_TEXTS collects, in the order of the command line. */
struct option_texts {
    const char *text[OPTION_TEXTS_MAX];
    int n;
};

/* What OPTION_WORDS collects: a part of the command line, moved together. */
struct option_words {
    char **word;
    int n;
};

struct option {
    const char *name; /* without the two hyphens; of a word: its placeholder */
    char letter;      /* its short form, -o; 0: it has none */
    enum option_type type;
    enum value_kind kind;
    const char *argument; /* placeholder of the value: DIR, N; NULL: the choices */
    const char *const
        *choices;        /* ends with NULL. Other types than OPTION_CHOICE take more than these */
    const char *setting; /* the setting that it is a short form of, whose choices it has; or NULL */
    const char *help;    /* one line, without a full stop */
    const char *more;    /* further sentences for the manual; or NULL */
    bool required;       /* texts and words */
    int at_least;        /* numbers */
    bool is_positive;    /* numbers: not 0 either */
    size_t at;           /* in the command's request */
};

/* Where an option is stored. What the command line fills in is called `struct request` in every command. */
#define AT(member) offsetof(struct request, member)

struct command {
    const char *name; /* "train"; of a part, with the command that it belongs to: "data get" */
    const char
        *usage; /* what follows the name, a line for every way to call it; "" if nothing does */
    const char *summary; /* one line, without a full stop */
    const char *about;   /* paragraphs for the manual; or NULL */
    const struct option *options;
    int n_options;
    size_t request_size;  /* of its struct request */
    const void *defaults; /* what that holds before the command line is read; NULL: zeros */
    enum exit_code (*run)(void *request);
    const struct command *const
        *parts;          /* ends with NULL; a command that has parts does nothing itself */
    bool lists_settings; /* its page of the manual describes presets and settings */
};

/* The members of struct command that tell about options and request. */
#define TAKES(table)                                                                               \
    .options = (table), .n_options = (int)(sizeof(table) / sizeof(table)[0]),                      \
    .request_size = sizeof(struct request)

extern const struct command *const commands[]; /* by name; ends with NULL */

struct exit_meaning {
    enum exit_code code;
    const char *text; /* one line, without a full stop */
};
extern const struct exit_meaning exit_meanings[];
extern const int n_exit_meanings;

/* The command of a name, or the part of a command; NULL when there is none. */
const struct command *command_find(const char *name);
const struct command *command_part(const struct command *command, const char *word);

/* The last word of its name: "get" of "data get". */
const char *command_word(const struct command *command);

/* Reads the command line behind the command's name, argv[0], and runs the command, or one of its parts, or shows
 * its help where that is asked for. */
enum exit_code command_run(const struct command *command, int argc, char **argv);

/* The message for a command that does not exist, with the closest one that does. */
enum exit_code fail_unknown_command(const char *name);

/* The same for a part of a command. */
enum exit_code fail_unknown_part(const struct command *command, const char *word);

extern const struct command command_completion;
extern const struct command command_data;
extern const struct command command_data_check;
extern const struct command command_data_get;
extern const struct command command_eval;
extern const struct command command_export;
extern const struct command command_help;
extern const struct command command_import;
extern const struct command command_info;
extern const struct command command_learn;
extern const struct command command_nets;
extern const struct command command_predict;
extern const struct command command_presets;
extern const struct command command_report;
extern const struct command command_reproduce;
extern const struct command command_train;
extern const struct command command_version;

#endif
