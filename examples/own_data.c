/*
 * Learns from pictures that the program itself provides, first two classes and later one more.
 *
 *     own_data [MODEL]
 *
 * A source hands over one picture at a time, when it is needed: out of an archive, a data base, a simulator.
 * Here they are drawn: stripes and chequers of any colours, widths and places. With MODEL the model is saved in
 * that file, for classify_frames.
 */
#include <der/der.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 24, TRAIN_PER_CLASS = 40, TEST_PER_CLASS = 20, N_CLASSES = 3 };

static const char *const NAMES[N_CLASSES] = {"rows", "columns", "chequers"};

/* What the callbacks are given: a part of the classes. */
struct archive {
    int first, n_classes;
};

/* A number that looks random and depends on its key alone (Steele, Lea, Flood 2014). */
static uint32_t scramble(uint64_t key)
{
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9u;
    key = (key ^ key >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(key >> 32);
}

static void draw(int label, uint64_t key, uint8_t pixels[SIDE][SIDE][3])
{
    uint32_t dark = scramble(3 * key + 1);
    uint32_t light = scramble(3 * key + 2) | 0x808080u;
    uint32_t place = scramble(3 * key + 3);
    uint32_t period = 3 + place % 3;
    for (uint32_t y = 0; y < SIDE; y++)
        for (uint32_t x = 0; x < SIDE; x++) {
            uint32_t row = (y + (place >> 8) % 16) / period;
            uint32_t column = (x + (place >> 16) % 16) / period;
            const uint32_t pattern[N_CLASSES] = {row, column, row + column};
            uint32_t colour = pattern[label] % 2 ? light : dark & 0x7f7f7fu;
            for (int c = 0; c < 3; c++)
                pixels[y][x][c] = (uint8_t)(colour >> 8 * c);
        }
}

static int label_of(void *user, enum der_split split, int64_t index)
{
    const struct archive *archive = user;
    (void)split;
    return (int)(index % archive->n_classes);
}

/* Called from several threads at once, so every picture has memory of its own until it is done with. */
static bool read_picture(void *user, enum der_split split, int64_t index, struct der_image *image)
{
    const struct archive *archive = user;
    uint8_t(*pixels)[SIDE][3] = malloc(SIDE * sizeof *pixels);
    if (!pixels)
        return false;
    uint64_t key = (uint64_t)index * 2 + (split == DER_SPLIT_TEST);
    draw(archive->first + label_of(user, split, index), key, pixels);
    *image = (struct der_image){
        .pixels = &pixels[0][0][0], .channels = 3, .height = SIDE, .width = SIDE};
    return true;
}

static void release_picture(void *user, struct der_image *image)
{
    (void)user;
    free((void *)image->pixels);
}

/* The archive must live as long as the data. */
static enum der_status open_archive(struct der_ctx *ctx, struct archive *archive,
                                    struct der_data **out)
{
    struct der_source source = {
        .n_train = (int64_t)TRAIN_PER_CLASS * archive->n_classes,
        .n_test = (int64_t)TEST_PER_CLASS * archive->n_classes,
        .class_names = NAMES + archive->first,
        .n_classes = archive->n_classes,
        .label = label_of,
        .read = read_picture,
        .done = release_picture,
        .user = archive,
    };
    return der_data_from_source(ctx, &source, out);
}

static enum der_status learn(struct der_ctx *ctx, struct der_model *model, struct archive archive)
{
    struct der_data *data = NULL;
    enum der_status status = open_archive(ctx, &archive, &data);
    if (status != DER_OK)
        return status;

    /* Everything has a default; these make it quick. */
    struct der_learn_options options = {.network = "resnet18-cifar",
                                        .width = 0.12,
                                        .epochs = 16,
                                        .batch = 16,
                                        .lr = 0.1,
                                        .image_size = 16};
    struct der_learn_report report;
    status = der_model_learn(model, data, &options, &report);
    if (status == DER_OK)
        printf("learnt %d classes from %" PRId64 " pictures; %.1f %% of all so far right\n",
               report.new_classes, report.n_pictures, report.all_after);
    der_data_free(data);
    return status;
}

static enum der_status test(struct der_ctx *ctx, struct der_model *model)
{
    struct archive everything = {.first = 0, .n_classes = N_CLASSES};
    struct der_data *data = NULL;
    enum der_status status = open_archive(ctx, &everything, &data);
    if (status != DER_OK)
        return status;

    struct der_class_score scores[N_CLASSES] = {{0}};
    struct der_evaluate_options options = {.scores = scores};
    struct der_evaluation evaluation;
    status = der_model_evaluate(model, data, DER_SPLIT_TEST, &options, &evaluation);
    if (status == DER_OK)
        for (int i = 0; i < evaluation.n_classes; i++) /* the model's classes, not the archive's */
            printf("%s: %" PRId64 " of %" PRId64 " right\n", der_model_class(model, i),
                   scores[i].top1, scores[i].n);
    der_data_free(data);
    return status;
}

static enum der_status run(struct der_ctx *ctx, const char *path)
{
    struct der_model *model = NULL;
    enum der_status status = der_model_new(ctx, NULL, &model);
    if (status == DER_OK)
        status = learn(ctx, model, (struct archive){.first = 0, .n_classes = 2});
    if (status == DER_OK) /* days later, perhaps in another process */
        status = learn(ctx, model, (struct archive){.first = 2, .n_classes = 1});
    if (status == DER_OK)
        status = test(ctx, model);
    if (status == DER_OK && path)
        status = der_model_save(model, path);
    der_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    struct der_ctx_options options = {.threads = 2};
    struct der_ctx *ctx = NULL;
    enum der_status status = der_ctx_new(&options, &ctx);
    if (status == DER_OK)
        status = run(ctx, argc > 1 ? argv[1] : NULL);
    if (status != DER_OK) /* the context has the sentence, where there is a context */
        fprintf(stderr, "own_data: %s\n", ctx ? der_ctx_error(ctx) : der_status_text(status));
    der_ctx_free(ctx);
    return status == DER_OK ? 0 : 1;
}
