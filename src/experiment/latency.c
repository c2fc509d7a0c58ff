#include "experiment/latency.h"

#include "core/clock.h"
#include "metrics/summary.h"

enum { ROUNDS = 9, WARM_UP = 2 };

static const int BATCHES[LATENCY_BATCHES] = {1, 128};

/* One way to compute features: extractors, and a program of each for one batch size. */
struct contender {
    struct extractor *extractors[LEARNER_MAX_STEPS];
    int n;
    struct buffer *image, *matrix;
    struct sequence *sequence;
    double ms[ROUNDS];
};

/* Inference does not care about the values of weights: an unpruned network as initialised will do. */
static enum der_status full_extractor(const struct learner *learner, struct extractor **out)
{
    TRY(extractor_new(learner->be, &learner->options.spec, out));
    enum der_status status = param_set_init((*out)->params, learner->options.config.seed, 0);
    if (status != DER_OK) {
        extractor_free(*out);
        *out = NULL;
    }
    return status;
}

static int64_t feature_dim(const struct contender *c)
{
    int64_t dim = 0;
    for (int i = 0; i < c->n; i++)
        dim += resnet_feature_dim(&c->extractors[i]->spec);
    return dim;
}

static enum der_status open_contender(struct contender *c, struct backend *be,
                                      const struct resnet_spec *spec, int batch)
{
    struct sequence_item items[LEARNER_MAX_STEPS];
    size_t pixels = (size_t)spec->in_channels * (size_t)spec->height * (size_t)spec->width;
    int64_t dim = feature_dim(c);
    int64_t col = 0;
    TRY(buffer_new(be, (size_t)batch * pixels * sizeof(float), &c->image));
    TRY(buffer_new(be, (size_t)batch * (size_t)dim * sizeof(float), &c->matrix));
    for (int i = 0; i < c->n; i++) {
        const struct folded *folded;
        TRY(extractor_folded(c->extractors[i], batch, &folded));
        struct span feature = {c->matrix, (size_t)col * sizeof(float), dim};
        TRY(folded_bind(folded, (struct span){.buffer = c->image}, feature));
        items[i] = (struct sequence_item){folded->program, 0};
        col += resnet_feature_dim(&c->extractors[i]->spec);
    }
    return sequence_new(be, items, c->n, &c->sequence);
}

static void close_contender(struct contender *c)
{
    sequence_free(c->sequence);
    buffer_free(c->image);
    buffer_free(c->matrix);
    c->sequence = NULL;
    c->image = c->matrix = NULL;
}

/* Reading a number back waits for the work, on every back end. */
static enum der_status time_once(struct contender *c, double *ms)
{
    float feature;
    double start = clock_seconds();
    TRY(sequence_run(c->sequence));
    TRY(buffer_read(c->matrix, 0, &feature, sizeof feature));
    *ms = 1e3 * (clock_seconds() - start);
    return DER_OK;
}

enum { NOW, UNPRUNED, SINGLE, CONTENDERS };

static enum der_status time_batch(const struct learner *learner, struct contender *c, int batch,
                                  double *per_image)
{
    for (int i = 0; i < CONTENDERS; i++)
        TRY(open_contender(&c[i], learner->be, &learner->options.spec, batch));
    for (int round = -WARM_UP; round < ROUNDS; round++)
        for (int i = 0; i < CONTENDERS; i++)
            TRY(time_once(&c[i], &c[i].ms[round < 0 ? 0 : round]));
    for (int i = 0; i < CONTENDERS; i++) {
        summary_sort(c[i].ms, ROUNDS);
        per_image[i] = summary_median(c[i].ms, ROUNDS) / batch;
    }
    return DER_OK;
}

static enum der_status measure(const struct learner *learner, struct contender *c,
                               struct latency_report *out)
{
    c[NOW].n = learner->n_extractors;
    for (int i = 0; i < c[NOW].n; i++)
        c[NOW].extractors[i] = learner->extractors[i];
    for (; c[UNPRUNED].n < learner->n_extractors; c[UNPRUNED].n++)
        TRY(full_extractor(learner, &c[UNPRUNED].extractors[c[UNPRUNED].n]));
    TRY(full_extractor(learner, &c[SINGLE].extractors[0]));
    c[SINGLE].n = 1;
    for (int b = 0; b < LATENCY_BATCHES; b++) {
        double per_image[CONTENDERS];
        enum der_status status = time_batch(learner, c, BATCHES[b], per_image);
        for (int i = 0; i < CONTENDERS; i++)
            close_contender(&c[i]);
        TRY(status);
        out->now[b] = per_image[NOW];
        out->unpruned[b] = per_image[UNPRUNED];
        out->single[b] = per_image[SINGLE];
    }
    return DER_OK;
}

enum der_status latency_measure(const struct learner *learner, struct latency_report *out)
{
    struct mem *mem = &learner->be->ctx->mem;
    struct contender *c = mem_zalloc(mem, CONTENDERS, sizeof *c);
    *out = (struct latency_report){0};
    if (!c)
        return ctx_nomem(learner->be->ctx);
    enum der_status status = measure(learner, c, out);
    for (int i = 0; i < CONTENDERS; i++) {
        close_contender(&c[i]);
        for (int k = 0; i != NOW && k < c[i].n; k++)
            extractor_free(c[i].extractors[k]);
    }
    mem_free(mem, c);
    return status;
}

static bool add_times(cJSON *object, const char *name, const double *ms)
{
    static const char *const keys[LATENCY_BATCHES] = {"batch_1", "batch_128"};
    cJSON *times = cJSON_AddObjectToObject(object, name);
    bool complete = times != NULL;
    for (int b = 0; complete && b < LATENCY_BATCHES; b++)
        complete = cJSON_AddNumberToObject(times, keys[b], ms[b]) != NULL;
    return complete;
}

cJSON *latency_to_json(const struct latency_report *report)
{
    cJSON *object = cJSON_CreateObject();
    if (object && add_times(object, "model", report->now) &&
        add_times(object, "unpruned", report->unpruned) &&
        add_times(object, "one_network", report->single))
        return object;
    cJSON_Delete(object);
    return NULL;
}
