#include "support/learner_data.h"

#include "config/override.h"
#include "config/preset.h"
#include "data/defaults.h"
#include "support/test_ctx.h"

enum { MOST_CLASSES = 16 };

static void open_views(struct learner_data *d)
{
    const int n = d->set->n_classes;
    int32_t natural[MOST_CLASSES];
    assert_true(n <= MOST_CLASSES);
    for (int i = 0; i < n; i++)
        natural[i] = i;
    assert_ok(d->ctx, order_from_array(d->ctx, "test", natural, n, &d->order));
    assert_ok(d->ctx, view_classes(d->ctx, &d->set->part[DATA_TRAIN], d->order, 0, n, &d->train));
    assert_ok(d->ctx, view_classes(d->ctx, &d->set->part[DATA_TEST], d->order, 0, n, &d->test));
}

void learner_data_open(struct learner_data *data, const char *backend, const char *set,
                       double width)
{
    struct learner_options *options = &data->options;
    *data = (struct learner_data){.ctx = test_ctx_new(1)};
    assert_ok(data->ctx, backend_open(data->ctx, backend, NULL, &data->be));
    assert_ok(data->ctx, dataset_open(data->ctx, set, &data->set));
    open_views(data);
    *options = (struct learner_options){.set = data->set,
                                        .train = data->train,
                                        .test = data->test,
                                        .test_split = DATA_TEST,
                                        .n_classes = data->set->n_classes,
                                        .loader_threads = 1};
    assert_ok(data->ctx,
              resnet_spec_init(data->ctx, &options->spec, "resnet18-cifar", data->set->channels,
                               data->set->height, data->set->width, width));
    assert_ok(data->ctx, augment_defaults(data->set, true, &options->train_augment));
    assert_ok(data->ctx, augment_defaults(data->set, false, &options->test_augment));
}

void learner_data_close(struct learner_data *data)
{
    view_free(data->train);
    view_free(data->test);
    order_free(data->order);
    dataset_free(data->set);
    backend_close(data->be);
    test_ctx_free(data->ctx);
}

void learner_data_configure(struct learner_data *data, enum method method,
                            const char *const *settings, int n)
{
    struct config *config = &data->options.config;
    assert_ok(data->ctx, config_from_preset(data->ctx, "custom", method, config));
    assert_ok(data->ctx, config_apply(data->ctx, config, settings, n));
}
