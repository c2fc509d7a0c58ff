/*
 * First stage of a step: a new extractor is trained beside the frozen ones, with learned masks that decide
 * which of its channels stay. The objective is in objective.h; here is when what happens to it:
 *
 *     epoch 0                F_t starts where F_{t-1} ended before it was pruned, e anew, leaning towards the
 *                            channels that F_{t-1} kept; a network that is trained on may have what it was before
 *                            for a teacher
 *     end of the warm-up     both heads start anew
 *     soft epochs            s rises within every epoch; lambda_s follows the wanted size, if there is one
 *     hard_epoch             m = [e > 0]: the channels that are off are cut out, and what is left trains on, so
 *                            that weights and statistics fit what is kept
 *     end                    what was learnt returns to the network of full width; masks that were soft to the end
 *                            harden now
 */
#include "method/cut.h"
#include "method/head.h"
#include "method/learner_internal.h"
#include "method/masks.h"
#include "method/pressure.h"
#include "store/weights_file.h"

/* Streams of initialisation; a step adds its number times STREAMS. */
enum { STREAM_EXTRACTOR, STREAM_HEAD, STREAM_AUXILIARY, STREAM_MASKS, STREAM_RESET, STREAMS = 8 };

struct representation {
    struct learner *learner;
    int n_new; /* classes of this step */
    struct schedule schedule;
    int hard_epoch;
    struct objective objective;
    struct pressure pressure;
    struct buffer *scalars;
    struct desks desks;
    struct assembly_cache assemblies;
    const char *loss_names[STAGE_MAX_LOSSES];
    int n_losses;
};

static uint32_t stream_of(const struct representation *r, int which)
{
    return (uint32_t)(r->learner->step * STREAMS + which);
}

/* H_{t-1}, where this step is taught by it: as it was trained, but for a correction. */
static struct param_set *teacher_of(const struct learner *learner)
{
    const struct config *config = &learner->options.config;
    if (config->distill == DISTILL_NONE || learner->step == 0)
        return NULL;
    return config->readout == READOUT_CORRECTED ? learner->classifier
                                                : learner_trained_head(learner);
}

static bool has_auxiliary(const struct learner *learner)
{
    const struct config *config = &learner->options.config;
    return config->auxiliary && config->expand && learner->step > 0;
}

/* ---- the stage -------------------------------------------------------------------------------- */

static enum der_status program(void *self, int batch, struct stage_program *out)
{
    struct representation *r = self;
    struct learner *learner = r->learner;
    struct assembly_plan plan = {.be = learner->be,
                                 .frozen = learner->extractors,
                                 .n_frozen = learner->n_extractors,
                                 .desks = &r->desks,
                                 .scalars = r->scalars,
                                 .self = &r->objective,
                                 .describe = objective_describe};
    struct assembly *assembly;
    TRY(assembly_get(&r->assemblies, &plan, batch, &assembly));
    *out = assembly_program(assembly);
    return DER_OK;
}

/* The velocities of the heads live on, as in the authors' code. */
static enum der_status reset_heads(struct representation *r)
{
    uint64_t seed = r->learner->options.config.seed;
    TRY(head_reset(r->objective.head, seed, stream_of(r, STREAM_RESET)));
    if (!r->objective.auxiliary)
        return DER_OK;
    return head_reset(r->objective.auxiliary, seed, stream_of(r, STREAM_RESET) + 1);
}

static enum der_status note_size(struct representation *r)
{
    if (!r->objective.masks)
        return DER_OK;
    return masks_kept_params(r->objective.masks, &r->learner->options.spec,
                             &r->learner->kept_params);
}

/* The matrix has the frozen features and, unless these are a teacher's, those of F_t. */
static void open_desks(struct representation *r, const struct resnet_spec *spec)
{
    const int64_t own = r->objective.teacher ? 0 : resnet_feature_dim(spec);
    learner_desks(r->learner, learner_feature_dim(r->learner) + own, &r->desks);
}

/* From here on the matrix is as wide as what the masks keep. */
static enum der_status cut(struct representation *r)
{
    assembly_cache_fini(&r->assemblies);
    desks_fini(&r->desks);
    TRY(objective_cut(&r->objective));
    open_desks(r, &r->objective.extractor->spec);
    return DER_OK;
}

/* 0: any size will do. */
static int64_t wanted_params(const struct learner *learner)
{
    const struct config *config = &learner->options.config;
    return learner->step == 0 && config->first_target_params > 0 ? config->first_target_params
                                                                 : config->target_params;
}

/* From here on the masks are what they are. */
static enum der_status harden(struct representation *r)
{
    struct param_set *masks = r->objective.masks;
    const struct config *config = &r->learner->options.config;
    if (wanted_params(r->learner) > 0)
        TRY(masks_fit(masks, &r->learner->options.spec, wanted_params(r->learner),
                      r->objective.least));
    if (config->mask_choice == MASK_CHOICE_RANDOM)
        TRY(masks_shuffle(masks, config->seed, stream_of(r, STREAM_MASKS)));
    return cut(r);
}

static bool renews(const void *self, int number)
{
    const struct representation *r = self;
    return r->objective.masks && number == r->hard_epoch;
}

static enum der_status epoch(void *self, int number)
{
    struct representation *r = self;
    bool warm = r->schedule.warmup_epochs > 0 && number == r->schedule.warmup_epochs;
    if (warm && r->learner->options.config.reset_after_warmup)
        TRY(reset_heads(r));
    if (!r->objective.masks)
        return DER_OK;
    if (number == r->hard_epoch)
        TRY(harden(r));
    TRY(note_size(r));
    if (number < r->hard_epoch)
        pressure_update(&r->pressure, r->learner->kept_params, number, r->hard_epoch);
    r->learner->lambda_s = r->pressure.lambda_s;
    return DER_OK;
}

static enum der_status epoch_end(void *self, int number)
{
    (void)number;
    return note_size(self);
}

/* s = 1/s_max + (s_max - 1/s_max) (b - 1) / (B - 1) within an epoch; s_max where B is 1. Hard masks, s infinite,
 * are cut out instead. */
static double steepness(const struct representation *r, const struct moment *now)
{
    double s_max = r->learner->options.config.s_max;
    if (now->n_iterations < 2)
        return s_max;
    double share = (double)now->iteration / (double)(now->n_iterations - 1);
    return 1.0 / s_max + (s_max - 1.0 / s_max) * share;
}

/* lambda: old classes of all. */
static double old_share(const struct representation *r)
{
    const int n_old = r->learner->n_classes;
    return (double)n_old / (double)(n_old + r->n_new);
}

static void fill_scalars(void *self, const struct moment *now, float *scalars)
{
    const struct representation *r = self;
    const struct config *config = &r->learner->options.config;
    const bool shares = r->objective.teacher && config->distill == DISTILL_SHARED;
    scalars[OBJECTIVE_LR] = (float)now->lr;
    scalars[OBJECTIVE_MAIN] = (float)(shares ? 1.0 - old_share(r) : 1.0);
    scalars[OBJECTIVE_LAMBDA_D] = (float)(shares ? old_share(r) : 1.0);
    scalars[OBJECTIVE_LAMBDA_A] = (float)config->lambda_a;
    scalars[OBJECTIVE_LAMBDA_S] = (float)r->pressure.lambda_s;
    scalars[OBJECTIVE_S] = (float)steepness(r, now);
}

enum { MOST_MODULES = 4 };

/* The sets in training, as a state names them. */
static int list_moving(const struct representation *r, struct state_module modules[MOST_MODULES])
{
    const struct objective *o = &r->objective;
    const struct state_module all[] = {{"extractor.", o->extractor->params, true},
                                       {"head.", o->head, true},
                                       {"auxiliary.", o->auxiliary, true},
                                       {"masks.", o->whole ? NULL : o->masks, true}};
    int n = 0;
    for (int i = 0; i < MOST_MODULES; i++)
        if (all[i].set)
            modules[n++] = all[i];
    return n;
}

/* What a network in training was cut out of: masks, and F_t at full width. */
static int list_resting(const struct representation *r, struct state_module modules[MOST_MODULES])
{
    const struct objective *o = &r->objective;
    const struct extractor *whole = o->whole ? o->whole : o->extractor;
    modules[0] = (struct state_module){"masks.", o->masks, false};
    modules[1] = (struct state_module){"full.", whole->params, false};
    return 2;
}

static void add_modules(struct stage_point *point, const struct state_module *modules, int n)
{
    for (int i = 0; i < n; i++)
        stage_point_add(point, modules[i]);
}

static enum der_status save(void *self, int epochs_done)
{
    struct representation *r = self;
    const struct learner_saver *saver = &r->learner->options.saver;
    if (!learner_saves_at(r->learner, epochs_done, r->schedule.epochs))
        return DER_OK;
    struct stage_point point = {.phase = PHASE_REPRESENTATION,
                                .epoch = epochs_done,
                                .lambda_s = r->pressure.lambda_s,
                                .size_error = r->pressure.error,
                                .start_params = r->pressure.start};
    struct state_module modules[MOST_MODULES];
    add_modules(&point, modules, list_moving(r, modules));
    if (r->objective.whole)
        add_modules(&point, modules, list_resting(r, modules));
    learner_add_trained_head(r->learner, &point);
    return saver->save(saver->user, &point);
}

static const struct stage_ops STAGE = {.program = program,
                                       .renews = renews,
                                       .epoch = epoch,
                                       .epoch_end = epoch_end,
                                       .scalars = fill_scalars,
                                       .save = save};

/* ---- before and after ---------------------------------------------------------------------------- */

/* Starting from what pruning left would make extractors ever smaller. A state overwrites all, so that a step which
 * goes on does not need the file of weights. */
static enum der_status new_extractor(struct representation *r)
{
    struct learner *learner = r->learner;
    struct extractor **extractor = &r->objective.extractor;
    struct weights_options init = {.path = learner->options.init};
    TRY(extractor_new(learner->be, &learner->options.spec, extractor));
    if (learner->last_full)
        TRY(param_set_copy((*extractor)->params, learner->last_full->params));
    else if (init.path && !learner->from)
        TRY(weights_load(&init, *extractor, NULL));
    else
        TRY(param_set_init((*extractor)->params, learner->options.config.seed,
                           stream_of(r, STREAM_EXTRACTOR)));
    return param_set_thaw((*extractor)->params);
}

static enum der_status new_heads(struct representation *r)
{
    struct learner *learner = r->learner;
    const struct config *config = &learner->options.config;
    int n_classes = learner->n_classes + r->n_new;
    int64_t own = resnet_feature_dim(&learner->options.spec);
    int64_t columns = r->objective.teacher ? own : r->desks.feature_dim;
    TRY(head_new(learner->be, "classifier.weight", n_classes, columns, INIT_LINEAR_NORMAL,
                 config->seed, stream_of(r, STREAM_HEAD), &r->objective.head));
    if (config->classifier_init == CLASSIFIER_INHERIT && learner->classifier)
        TRY(head_inherit(r->objective.head, learner_trained_head(learner)));
    if (!has_auxiliary(learner))
        return DER_OK;
    return head_new(learner->be, "auxiliary.weight", r->n_new + 1, own, INIT_LINEAR_NORMAL,
                    config->seed, stream_of(r, STREAM_AUXILIARY), &r->objective.auxiliary);
}

/* The weights that F_t starts with work together in the channels that F_{t-1} kept. */
static enum der_status new_masks(struct representation *r)
{
    struct learner *learner = r->learner;
    const struct config *config = &learner->options.config;
    const struct resnet_spec *spec = &learner->options.spec;
    r->objective.has_least =
        masks_least(spec, wanted_params(learner), config->mask_least, r->objective.least);
    TRY(masks_new(learner->be, spec, config->mask_init, config->seed, stream_of(r, STREAM_MASKS),
                  &r->objective.masks));
    if (!learner->last_masks || config->mask_inherit == 0.0)
        return DER_OK;
    return masks_lean(r->objective.masks, learner->last_masks, spec, config->mask_inherit);
}

static enum der_status open_stage(struct representation *r)
{
    struct learner *learner = r->learner;
    const struct config *config = &learner->options.config;
    r->schedule = *learner_schedule(learner);
    r->hard_epoch = config_hard_epoch(config, &r->schedule);
    r->pressure = pressure_new(config->lambda_s, wanted_params(learner));
    /* At the full rate from the first iteration on, masks would close before weights mean anything. */
    if (r->schedule.warmup_epochs == 0)
        pressure_begin_low(&r->pressure);
    r->objective.config = config;
    r->objective.n_old = learner->n_classes;
    r->objective.teacher = teacher_of(learner);
    open_desks(r, &learner->options.spec);
    TRY(new_extractor(r));
    TRY(new_heads(r));
    learner->kept_params = 0;
    if (config->prune)
        TRY(new_masks(r));
    learner->masks = r->objective.masks;
    r->n_losses = objective_losses(&r->objective, r->loss_names);
    return buffer_new(learner->be, ASSEMBLY_MAX_SCALARS * sizeof(float), &r->scalars);
}

static enum der_status restore_modules(struct state_file *from, const struct state_module *modules,
                                       int n)
{
    for (int i = 0; i < n; i++)
        TRY(state_restore(from, modules[i].name, modules[i].set, modules[i].moving));
    return DER_OK;
}

/* Puts the stage where a saved state was: everything that was initialised is overwritten. */
static enum der_status restore(struct representation *r, int *first_epoch)
{
    struct state_file *from = r->learner->from;
    const struct stage_point *point = &from->state.point;
    struct state_module modules[MOST_MODULES];
    TRY(learner_check_epoch(r->learner, r->schedule.epochs));
    if (r->objective.masks && point->epoch > r->hard_epoch) { /* they had hardened */
        TRY(restore_modules(from, modules, list_resting(r, modules)));
        TRY(cut(r));
    }
    TRY(restore_modules(from, modules, list_moving(r, modules)));
    TRY(state_check_done(from));
    r->pressure.lambda_s = point->lambda_s;
    r->pressure.error = point->size_error;
    r->pressure.start = point->start_params;
    *first_epoch = point->epoch;
    return DER_OK;
}

static void close_stage(struct representation *r)
{
    r->learner->masks = NULL;
    assembly_cache_fini(&r->assemblies);
    desks_fini(&r->desks);
    extractor_free(r->objective.extractor);
    extractor_free(r->objective.whole);
    param_set_free(r->objective.head);
    param_set_free(r->objective.auxiliary);
    param_set_free(r->objective.masks);
    buffer_free(r->scalars);
}

/* The network goes on as what it has become. */
static void retire_teacher(struct representation *r)
{
    assembly_cache_fini(&r->assemblies);
    desks_fini(&r->desks);
    learner_drop_extractors(r->learner);
    r->objective.teacher = NULL;
}

/* Hands the trained extractor over, pruned where there are masks. */
static enum der_status hand_over(struct representation *r, struct param_set **classifier)
{
    struct learner *learner = r->learner;
    struct objective *o = &r->objective;
    if (o->masks && !o->whole)
        TRY(harden(r));
    TRY(o->masks ? objective_mend(o) : extractor_copy(o->extractor, &o->whole));
    if (o->teacher)
        retire_teacher(r);
    param_set_freeze(o->extractor->params);
    param_set_freeze(o->head);
    learner->extractors[learner->n_extractors++] = o->extractor;
    o->extractor = NULL;
    extractor_free(learner->last_full);
    learner->last_full = o->whole;
    o->whole = NULL;
    param_set_free(learner->last_masks);
    learner->last_masks = o->masks;
    o->masks = NULL;
    *classifier = o->head;
    o->head = NULL;
    learner->kept_params = 0; /* nothing is in training any more */
    return DER_OK;
}

enum der_status learn_representation(struct learner *learner, const struct data_view *view,
                                     int n_new, const struct train_hooks *hooks,
                                     struct param_set **classifier)
{
    struct representation r = {.learner = learner, .n_new = n_new};
    char name[LEARNER_STAGE_NAME];
    int first_epoch = 0;
    *classifier = NULL;
    enum der_status status = learner_restore_trained_head(learner);
    if (status == DER_OK)
        status = open_stage(&r);
    if (status == DER_OK && learner->from)
        status = restore(&r, &first_epoch);
    if (status == DER_OK) {
        struct stage stage = {.name = learner_stage_name(learner, STAGE_REPRESENTATION, name),
                              .ops = &STAGE,
                              .self = &r,
                              .loss_names = r.loss_names,
                              .n_losses = r.n_losses,
                              .schedule = r.schedule,
                              .data = learner_batches(learner, view, STAGE_REPRESENTATION),
                              .be = learner->be,
                              .resident = &learner->resident};
        status = train_stage(learner->be->ctx, &stage, first_epoch, hooks);
    }
    if (status == DER_OK)
        status = hand_over(&r, classifier);
    close_stage(&r);
    return status;
}
