/*
 * `der predict`: the classes of pictures, one line each.
 */
#include "loading.h"
#include "options.h"
#include "running.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What the command line fills in. */
struct request {
    struct loading loading;
    struct option_words pictures;
    int top;
    bool logits, json;
};

static const struct request defaults = {.loading = {.threads = 2}, .top = 1};

static const struct option options[] = {
    MODEL_ROW(loading.model),
    {.name = "IMAGE|DIR|-",
     .type = OPTION_WORDS,
     .kind = KIND_FILE,
     .help = "JPEG or PNG files; folders for all below them; - reads one file from stdin",
     .more = "Links to folders are followed, but for those that lead back to a folder above them. "
             "Hidden files are left out.",
     .required = true,
     .at = AT(pictures)},
    {.name = "top",
     .type = OPTION_INT,
     .argument = "K",
     .help = "show the K best classes, best first (1)",
     .at_least = 1,
     .at = AT(top)},
    {.name = "logits",
     .type = OPTION_FLAG,
     .help = "show the logits of all classes too",
     .more = "They stand behind the guesses, in the order of learning.",
     .at = AT(logits)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "one JSON object a line",
     .more = "It has `path`, `guesses` with class, label and probability, and `logits` on request.",
     .at = AT(json)},
    DEVICE_ROW(loading.device),
    PRECISION_ROW(loading.precision),
    THREADS_ROW(loading.threads),
};

/* The work: every picture is tried; those that cannot be used are told and passed over. */
struct work {
    const struct request *request;
    struct der_ctx *ctx;
    struct der_model *model;
    struct der_guess *guesses; /* [n_guesses] */
    float *logits;             /* [n_classes] in the order of labels; NULL: not wanted */
    int n_guesses;             /* all classes where logits are wanted */
    int n_classes;
    int n_found; /* pictures in the present folder */
    bool has_bad;
    enum der_status status; /* what ends the work */
};

/* ---- showing ------------------------------------------------------------------------------------- */

static void show_text(const struct work *w, const char *name)
{
    text_print(stdout, name);
    for (int i = 0; i < w->request->top && i < w->n_guesses && w->guesses[i].label >= 0; i++) {
        printf("\t");
        text_print(stdout, w->guesses[i].name);
        printf("\t%.6f", (double)w->guesses[i].probability);
    }
    if (w->logits) {
        for (int i = 0; i < w->n_guesses; i++)
            w->logits[w->guesses[i].label] = w->guesses[i].logit;
        for (int c = 0; c < w->n_classes; c++)
            printf("\t%.9g", (double)w->logits[c]);
    }
    printf("\n");
}

static enum der_status show(const struct work *w, const char *name)
{
    const struct request *r = w->request;
    const char *text;
    if (!r->json) {
        show_text(w, name);
        return DER_OK;
    }
    int top = r->top < w->n_guesses ? r->top : w->n_guesses;
    enum der_status status =
        der_model_prediction_json(w->model, name, w->guesses, top, r->logits, &text);
    if (status == DER_OK)
        printf("%s\n", text);
    return status;
}

/* ---- pictures ------------------------------------------------------------------------------------ */

static bool is_about_picture(enum der_status status)
{
    return status == DER_IO || status == DER_FORMAT || status == DER_UNSUPPORTED ||
           status == DER_SHAPE || status == DER_NUMERIC;
}

/* What came of a picture. Of one that came through a pipe the message does not know the name. */
static void finish(struct work *w, const char *name, enum der_status status, bool is_named)
{
    if (status == DER_OK) {
        w->status = show(w, name);
    } else if (is_about_picture(status)) {
        w->has_bad = true;
        if (is_named)
            (void)fail(EXIT_DATA, "%s", der_ctx_error(w->ctx));
        else
            (void)fail(EXIT_DATA, "%s: %s", name, der_ctx_error(w->ctx));
    } else {
        w->status = status;
    }
}

/* For der_find_images: false ends the search. */
static bool predict_file(void *user, const char *path)
{
    struct work *w = user;
    w->n_found++;
    finish(w, path, der_model_predict_file(w->model, path, w->n_guesses, w->guesses), true);
    return w->status == DER_OK && !running_is_interrupted(NULL);
}

static void predict_folder(struct work *w, const char *folder)
{
    w->n_found = 0;
    enum der_status status = der_find_images(w->ctx, folder, predict_file, w);
    if (status == DER_NOMEM) {
        w->status = status;
    } else if (status != DER_OK) {
        w->has_bad = true;
        (void)fail(EXIT_DATA, "%s", der_ctx_error(w->ctx));
    } else if (w->n_found == 0) {
        w->has_bad = true;
        (void)fail(EXIT_DATA, "%s: there is no JPEG or PNG file below this folder", folder);
    }
}

/* All that comes from stdin; *bytes is the caller's to free. NULL when memory is short or it is too long. */
static unsigned char *read_stdin(size_t *size)
{
    enum { MOST = 1 << 30 };
    size_t capacity = 1 << 16;
    unsigned char *bytes = malloc(capacity);
    *size = 0;
    while (bytes) {
        size_t n = fread(bytes + *size, 1, capacity - *size, stdin);
        *size += n;
        if (n == 0)
            return bytes;
        if (*size < capacity)
            continue;
        capacity *= 2;
        unsigned char *more = capacity <= MOST ? realloc(bytes, capacity) : NULL;
        if (!more)
            free(bytes);
        bytes = more;
    }
    return NULL;
}

static void predict_stdin(struct work *w)
{
    size_t size;
    unsigned char *bytes = read_stdin(&size);
    if (!bytes) {
        w->has_bad = true;
        (void)fail(EXIT_DATA, "-: there is no memory for what comes from standard input");
        return;
    }
    finish(w, "-", der_model_predict_encoded(w->model, bytes, size, w->n_guesses, w->guesses),
           false);
    free(bytes);
}

static void predict(struct work *w, const char *word)
{
    struct stat info;
    if (strcmp(word, "-") == 0)
        predict_stdin(w);
    else if (stat(word, &info) == 0 && S_ISDIR(info.st_mode))
        predict_folder(w, word);
    else
        (void)predict_file(w, word);
}

/* ---- the command --------------------------------------------------------------------------------- */

static enum exit_code predict_all(struct work *w)
{
    const struct option_words *pictures = &w->request->pictures;
    for (int i = 0; i < pictures->n && w->status == DER_OK && !running_is_interrupted(NULL); i++)
        predict(w, pictures->word[i]);
    if (w->status != DER_OK)
        return fail_status(w->ctx, w->status);
    if (running_is_interrupted(NULL))
        return fail(EXIT_RUN, "stopped on request");
    return w->has_bad ? EXIT_DATA : EXIT_OK;
}

static enum exit_code run(void *user)
{
    const struct request *r = user;
    running_catch_interrupts();
    struct work work = {.request = r};
    enum exit_code code = loading_open(&r->loading, &work.ctx, &work.model);
    if (code != EXIT_OK)
        return code;
    work.n_classes = der_model_info(work.model).n_classes;
    work.n_guesses = r->logits || r->top > work.n_classes ? work.n_classes : r->top;
    work.guesses = calloc((size_t)work.n_guesses, sizeof *work.guesses);
    work.logits = r->logits ? calloc((size_t)work.n_classes, sizeof *work.logits) : NULL;
    bool has_memory = work.guesses && (work.logits || !r->logits);
    code = has_memory ? predict_all(&work) : fail_status(NULL, DER_NOMEM);
    free(work.guesses);
    free(work.logits);
    der_model_free(work.model);
    der_ctx_free(work.ctx);
    return code;
}

const struct command command_predict = {
    .name = "predict",
    .usage = "MODEL IMAGE|DIR|-... [OPTIONS]",
    .summary = "name the classes of pictures",
    .about =
        "Names the classes of pictures: JPEG or PNG files of any size, in colour or grey; a folder "
        "stands for "
        "all such files below it, in sorted order, `-` for one file from standard input. They are "
        "resized as the "
        "model's images were; a model of images that were not resized squashes pictures of another "
        "size to its "
        "own.\n"
        "Each prints one line: path, class, probability, and further pairs of those, separated by "
        "tabs. "
        "Probabilities are a softmax of the logits divided by the model's temperature. A picture "
        "that cannot be "
        "read is reported, the others go on, and the exit status is 3 at the end. In names of "
        "files and classes "
        "control characters are shown as `\\n`, `\\t`, `\\x1b` and so on, and a backslash as two.",
    TAKES(options),
    .defaults = &defaults,
    .run = run,
};
