/*
 * Classifies raw video frames as they come and tells how long each took.
 *
 *     classify_frames MODEL WIDTH HEIGHT < frames
 *
 * MODEL is a model file or a run folder. Frames are read from standard input, three bytes (red, green, blue) a
 * pixel, row by row, without headers, as cameras and decoders deliver them:
 *
 *     ffmpeg -i film.mp4 -f rawvideo -pix_fmt rgb24 -s 64x48 - | classify_frames MODEL 64 48
 */
#define _POSIX_C_SOURCE 200809L
#include <der/der.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TOP = 2, MAX_SIDE = 16384 };

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* One frame after the other through the same buffer. A picture is lent to the library for the length of a call; it
 * may have any size, since the model brings it to its own. */
static enum der_status classify(struct der_model *model, const struct der_image *frame,
                                uint8_t *pixels, size_t n_bytes)
{
    double first = 0.0, others = 0.0;
    size_t got;
    long n = 0;
    for (; (got = fread(pixels, 1, n_bytes, stdin)) == n_bytes; n++) {
        struct der_guess guesses[TOP];
        double start = milliseconds();
        enum der_status status = der_model_predict(model, frame, 1, TOP, guesses);
        if (status != DER_OK)
            return status;
        *(n == 0 ? &first : &others) += milliseconds() - start;
        printf("frame %ld:", n);
        for (int i = 0; i < TOP && guesses[i].label >= 0; i++)
            printf(" %s %.1f %%", guesses[i].name, 100.0 * (double)guesses[i].probability);
        printf("\n");
    }
    if (got > 0)
        fprintf(stderr, "%zu bytes of a last frame, which has %zu, are left over\n", got, n_bytes);
    if (n > 1) /* the first call makes what the others use again */
        fprintf(stderr, "%ld frames: the first in %.2f ms, then %.2f ms a frame\n", n, first,
                others / (double)(n - 1));
    return DER_OK;
}

static enum der_status run(struct der_ctx *ctx, const char *path, int width, int height)
{
    struct der_model *model = NULL;
    enum der_status status = der_model_load(ctx, path, NULL, &model);
    if (status != DER_OK)
        return status;

    size_t n_bytes = (size_t)width * (size_t)height * 3;
    uint8_t *pixels = malloc(n_bytes);
    struct der_image frame = {.pixels = pixels, .channels = 3, .height = height, .width = width};
    status = pixels ? classify(model, &frame, pixels, n_bytes) : DER_NOMEM;
    free(pixels);
    der_model_free(model);
    return status;
}

int main(int argc, char **argv)
{
    int width = argc == 4 ? atoi(argv[2]) : 0;
    int height = argc == 4 ? atoi(argv[3]) : 0;
    if (width < 1 || height < 1 || width > MAX_SIDE || height > MAX_SIDE) {
        fprintf(stderr, "usage: classify_frames MODEL WIDTH HEIGHT < frames\n");
        return 2;
    }

    struct der_ctx_options options = {.threads = 2};
    struct der_ctx *ctx = NULL;
    enum der_status status = der_ctx_new(&options, &ctx);
    if (status == DER_OK)
        status = run(ctx, argv[1], width, height);
    if (status != DER_OK) /* the context has the sentence, where there is a context */
        fprintf(stderr, "classify_frames: %s\n",
                ctx && *der_ctx_error(ctx) ? der_ctx_error(ctx) : der_status_text(status));
    der_ctx_free(ctx);
    return status == DER_OK ? 0 : 1;
}
