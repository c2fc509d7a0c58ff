/*
 * Trains DER through two steps of two classes each, and tells how each went.
 *
 *     train_two_steps [DATA [RUN]]
 *
 * DATA is a folder with a data set; left out, procedural images are learnt, which takes seconds. With
 * RUN the run is kept in that folder, its model as RUN/model.safetensors. Ctrl-C ends the run, and the
 * same command goes on with it.
 */
#include <der/der.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* The library asks between batches; true ends training, with the latest save intact. */
static bool is_cancelled(void *user)
{
    (void)user;
    return interrupted != 0;
}

static void show_progress(void *user, const struct der_progress *p)
{
    (void)user;
    if (p->epoch_done)
        fprintf(stderr, "%s: epoch %d of %d, loss %.3f\n", p->stage, p->epoch + 1, p->epochs,
                p->loss);
}

static void show_step(void *user, const struct der_step *s)
{
    (void)user;
    printf("step %d: %d classes, %.1f %% right, %" PRId64 " parameters\n", s->step, s->n_classes,
           s->top1, s->params_total);
}

static enum der_status train(struct der_ctx *ctx, const char *data, const char *run)
{
    /* "custom" is the protocol that leaves everything free; `der presets custom` lists all settings. These are
     * for a small network and a short run. */
    static const char *const assignments[] = {
        "step_classes=2",         /* classes that arrive at a time */
        "memory=40",              /* images of old classes that are kept, in all */
        "network=resnet18-cifar", /* one extractor of this kind a step... */
        "width=0.12",             /* ...with so much of its channels */
        "epochs=12",
        "classifier_epochs=12",
        "batch=16",
        "lr=0.05",
    };
    const int n_assignments = (int)(sizeof assignments / sizeof *assignments);
    struct der_settings *settings = NULL;
    enum der_status status =
        der_settings_new(ctx, "custom", "der", assignments, n_assignments, &settings);
    if (status != DER_OK)
        return status;

    struct der_train_options options = {
        .settings = settings,
        .data = data,
        .out = run,
        .resume = run != NULL, /* begins the run where there is none yet */
        .max_steps = 2,
        .progress = show_progress,
        .step = show_step,
        .cancelled = is_cancelled,
    };
    struct der_train_result result;
    status = der_train(ctx, &options, &result);
    if (status == DER_OK)
        printf("%d classes learnt, average %.1f %% over the steps\n", result.last.n_classes,
               result.last.avg_top1);
    der_settings_free(settings);
    return status;
}

int main(int argc, char **argv)
{
    const char *data = argc > 1 ? argv[1] : "synth:classes=4,train=60,test=20,size=16,seed=1";
    const char *run = argc > 2 ? argv[2] : NULL;

    (void)signal(SIGINT, interrupt);

    struct der_ctx_options options = {.threads = 2};
    struct der_ctx *ctx = NULL;
    enum der_status status = der_ctx_new(&options, &ctx);
    if (status == DER_OK)
        status = train(ctx, data, run);
    if (status != DER_OK) /* the context has the sentence, where there is a context */
        fprintf(stderr, "train_two_steps: %s\n",
                ctx ? der_ctx_error(ctx) : der_status_text(status));
    der_ctx_free(ctx);
    return status == DER_OK ? 0 : 1;
}
