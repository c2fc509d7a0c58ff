#include "exchange/exemplar_sheet.h"

#include <math.h>
#include <string.h>

enum { PAPER = 255 };

/* Where things lie on a sheet. */
struct layout {
    const struct augment_spec *input;
    int first;         /* label of the first row */
    int rows, columns; /* images */
    int shrink;        /* pixels of an image that become one, in each direction */
    int height, width; /* of an image on the sheet */
    int n_drawn[SHEET_CLASSES];
};

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static struct layout plan(const struct learner *learner)
{
    const struct exemplars *memory = learner->memory;
    struct layout l = {.input = &learner->options.test_augment};
    int side = l.input->height > l.input->width ? l.input->height : l.input->width;
    int step = learner->step > 0 ? learner->step : 1;
    l.first = learner->first_class[step - 1];
    l.rows =
        smaller(smaller(learner->first_class[step], memory->n_classes) - l.first, SHEET_CLASSES);
    for (int r = 0; r < l.rows; r++) {
        int n = smaller(memory->lists[l.first + r].n, SHEET_IMAGES);
        l.columns = n > l.columns ? n : l.columns;
    }
    l.shrink = (side + SHEET_SIDE - 1) / SHEET_SIDE;
    l.height = l.input->height / l.shrink;
    l.width = l.input->width / l.shrink;
    return l;
}

/* What is drawn, in the order of the rows. */
static enum der_status choose(const struct learner *learner, const struct layout *l,
                              struct data_view **out)
{
    const struct exemplars *memory = learner->memory;
    int64_t n = 0;
    for (int r = 0; r < l->rows; r++)
        n += smaller(memory->lists[l->first + r].n, l->columns);
    TRY(view_new(learner->be->ctx, n, out));
    n = 0;
    for (int r = 0; r < l->rows; r++)
        for (int c = 0; c < smaller(memory->lists[l->first + r].n, l->columns); c++)
            (*out)->items[n++] = (struct view_item){
                .sample = memory->lists[l->first + r].samples[c], .label = l->first + r};
    return DER_OK;
}

/* The mean of the pixels that become one, back in bytes. */
static uint8_t shrunk(const struct layout *l, const float *plane, int channel, int y, int x)
{
    double sum = 0.0;
    for (int dy = 0; dy < l->shrink; dy++)
        for (int dx = 0; dx < l->shrink; dx++)
            sum += (double)plane[(y * l->shrink + dy) * l->input->width + x * l->shrink + dx];
    double mean = sum / (l->shrink * l->shrink);
    double byte = 255.0 * (mean * (double)l->input->std[channel] + (double)l->input->mean[channel]);
    return (uint8_t)lround(fmin(fmax(byte, 0.0), 255.0));
}

/* image [channels, height, width], normalised. */
static void draw(const struct layout *l, const float *image, int row, int column,
                 struct exemplar_sheet *sheet)
{
    const struct image_view *view = &sheet->image;
    for (int y = 0; y < l->height; y++)
        for (int x = 0; x < l->width; x++)
            for (int c = 0; c < l->input->channels; c++)
                sheet->pixels[(row * l->height + y) * view->row_stride +
                              (column * l->width + x) * view->pixel_stride + c] =
                    shrunk(l, image + (ptrdiff_t)c * l->input->height * l->input->width, c, y, x);
}

static enum der_status draw_all(struct loader *loader, struct layout *l,
                                struct exemplar_sheet *sheet)
{
    size_t floats = (size_t)l->input->channels * (size_t)l->input->height * (size_t)l->input->width;
    TRY(loader_start(loader, 0, 0));
    for (;;) {
        const struct batch *batch;
        TRY(loader_next(loader, &batch));
        if (!batch)
            return DER_OK;
        for (int i = 0; i < batch->n; i++) {
            int row = batch->labels[i] - l->first;
            draw(l, batch->images + (size_t)i * floats, row, l->n_drawn[row]++, sheet);
        }
    }
}

static enum der_status new_pixels(const struct layout *l, struct exemplar_sheet *sheet)
{
    struct image_view *image = &sheet->image;
    *image = (struct image_view){.channels = l->input->channels,
                                 .height = l->rows * l->height,
                                 .width = l->columns * l->width,
                                 .channel_stride = 1,
                                 .pixel_stride = l->input->channels};
    image->row_stride = (ptrdiff_t)image->width * image->pixel_stride;
    size_t n = (size_t)image->height * (size_t)image->row_stride;
    sheet->pixels = mem_alloc(&sheet->ctx->mem, n, 1);
    if (!sheet->pixels)
        return ctx_nomem(sheet->ctx);
    memset(sheet->pixels, PAPER, n);
    image->data = sheet->pixels;
    return DER_OK;
}

enum der_status exemplar_sheet_draw(const struct learner *learner, struct exemplar_sheet *out)
{
    const struct learner_options *options = &learner->options;
    struct layout l = plan(learner);
    struct data_view *view;
    struct loader *loader = NULL;
    *out = (struct exemplar_sheet){.ctx = learner->be->ctx};
    if (l.rows < 1 || l.columns < 1)
        return DER_OK;
    TRY(new_pixels(&l, out));
    TRY(choose(learner, &l, &view));
    struct loader_options load = {.set = options->set,
                                  .view = view,
                                  .augment = &options->test_augment,
                                  .split = DATA_TRAIN,
                                  .mode = LOADER_EVAL,
                                  .bad_images = BAD_IMAGES_SKIP,
                                  .batch = SHEET_IMAGES};
    enum der_status status = loader_new(out->ctx, &load, &loader);
    if (status == DER_OK)
        status = draw_all(loader, &l, out);
    loader_free(loader);
    view_free(view);
    return status;
}

void exemplar_sheet_fini(struct exemplar_sheet *sheet)
{
    if (sheet->ctx)
        mem_free(&sheet->ctx->mem, sheet->pixels);
    *sheet = (struct exemplar_sheet){0};
}
