/*
 * decimal_comma RUN: a program whose numbers are written in the way of its user's country, as those with a window
 * are, trains a little into RUN. Prints the decimal point it has.
 */
#include <der/der.h>

#include <locale.h>
#include <stdio.h>

static enum der_status train(struct der_ctx *ctx, const char *run)
{
    const char *const assignments[] = {"network=resnet18-cifar", "width=0.125", "epochs=2",
                                       "batch=8", "lr=0.05"};
    struct der_settings *settings = NULL;
    enum der_status status = der_settings_new(ctx, "custom", "der", assignments, 5, &settings);
    if (status != DER_OK)
        return status;
    struct der_train_options options = {
        .settings = settings, .data = "synth:classes=2,train=8,test=4,size=12,seed=1", .out = run};
    struct der_train_result result;
    status = der_train(ctx, &options, &result);
    if (status == DER_OK) { /* what it has written, it reads */
        options = (struct der_train_options){.out = run, .resume = true};
        status = der_train(ctx, &options, &result);
    }
    der_settings_free(settings);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 2 || !setlocale(LC_ALL, ""))
        return 2;
    struct der_ctx *ctx = NULL;
    enum der_status status = der_ctx_new(NULL, &ctx);
    if (status == DER_OK)
        status = train(ctx, argv[1]);
    if (status != DER_OK)
        fprintf(stderr, "decimal_comma: %s\n", der_ctx_error(ctx));
    der_ctx_free(ctx);
    printf("%s\n", localeconv()->decimal_point);
    return status == DER_OK ? 0 : 1;
}
