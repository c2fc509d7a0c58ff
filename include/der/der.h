/*
 * The public interface of the library, all of it.
 *
 *     struct der_ctx_options options = {.threads = 4, .seed = 1};
 *     struct der_ctx *ctx = NULL;
 *
 *     enum der_status status = der_ctx_new(&options, &ctx);
 *     if (status != DER_OK)
 *         return report(der_status_text(status));
 *     ...
 *     der_ctx_free(ctx);
 */
#ifndef DER_DER_H
#define DER_DER_H

#include <der/context.h>
#include <der/data.h>
#include <der/data_tools.h>
#include <der/exchange.h>
#include <der/export.h>
#include <der/inspect.h>
#include <der/learn.h>
#include <der/model.h>
#include <der/network.h>
#include <der/report.h>
#include <der/reproduce.h>
#include <der/settings.h>
#include <der/status.h>
#include <der/suggest.h>
#include <der/train.h>
#include <der/version.h>

#endif
