#include "words.h"

#include <der/data_tools.h>
#include <der/network.h>
#include <der/reproduce.h>
#include <der/settings.h>
#include <der/version.h>

#include <stdio.h>
#include <string.h>

enum { COLOUR_CHANNELS = 3 };

static void visit_presets(struct der_ctx *ctx, words_visit *visit, void *user)
{
    struct der_preset_info info;
    for (int i = 0; i < der_preset_count(); i++)
        if (der_preset_describe(ctx, i, &info) == DER_OK)
            visit(user, info.name, info.summary);
}

static void visit_settings(struct der_ctx *ctx, words_visit *visit, void *user)
{
    struct der_setting_info info;
    for (int i = 0; i < der_setting_count(); i++)
        if (der_setting_describe(ctx, i, &info) == DER_OK)
            visit(user, info.key, info.help);
}

static void visit_networks(struct der_ctx *ctx, words_visit *visit, void *user)
{
    struct der_network_info info;
    for (int i = 0; i < der_network_count(); i++)
        if (der_network_describe(ctx, i, COLOUR_CHANNELS, &info) == DER_OK)
            visit(user, info.name, info.summary);
}

static void visit_downloads(struct der_ctx *ctx, words_visit *visit, void *user)
{
    struct der_data_offer offer;
    for (int i = 0; i < der_data_offer_count(); i++)
        if (der_data_offer_describe(ctx, i, &offer) == DER_OK)
            visit(user, offer.name, offer.title);
}

/* "cpu, ref" */
static void visit_devices(words_visit *visit, void *user)
{
    const char *names = der_build_info()->back_ends;
    while (*names) {
        char name[32];
        size_t length = strcspn(names, ", ");
        (void)snprintf(name, sizeof name, "%.*s", (int)length, names);
        visit(user, name, "");
        names += length;
        names += strspn(names, ", ");
    }
}

static void visit_tables(struct der_ctx *ctx, words_visit *visit, void *user)
{
    struct der_paper_table table;
    for (int i = 0; i < der_paper_table_count(); i++)
        if (der_paper_table_describe(ctx, i, &table) == DER_OK)
            visit(user, table.name, table.title);
}

/* The paper's name of row `index`, or its label; "" for one that an earlier row has told. */
static const char *row_word(struct der_ctx *ctx, int table, int index)
{
    struct der_paper_row row;
    struct der_paper_row earlier;
    if (der_paper_row_describe(ctx, table, index, &row) != DER_OK)
        return "";
    for (int i = 0; i < index && row.name; i++)
        if (der_paper_row_describe(ctx, table, i, &earlier) == DER_OK && earlier.name &&
            strcmp(earlier.name, row.name) == 0)
            return "";
    return row.name ? row.name : row.label;
}

static void visit_rows(struct der_ctx *ctx, const char *name, words_visit *visit, void *user)
{
    struct der_paper_table table;
    for (int i = 0; i < der_paper_table_count(); i++) {
        if (der_paper_table_describe(ctx, i, &table) != DER_OK || strcmp(table.name, name) != 0)
            continue;
        for (int k = 0; k < table.n_rows; k++) {
            const char *word = row_word(ctx, i, k);
            if (word[0])
                visit(user, word, "");
        }
    }
}

static void visit_commands(const char *first, words_visit *visit, void *user)
{
    const struct command *above = first[0] ? command_find(first) : NULL;
    const struct command *const *list = above ? above->parts : commands;
    for (int i = 0; list && list[i]; i++)
        visit(user, command_word(list[i]), list[i]->summary);
    if (!first[0])
        visit(user, "settings", "everything that --set can change");
}

void words_of_kind(struct der_ctx *ctx, enum value_kind kind, const char *first, words_visit *visit,
                   void *user)
{
    switch (kind) {
    case KIND_PRESET:
        visit_presets(ctx, visit, user);
        return;
    case KIND_SETTING:
        visit_settings(ctx, visit, user);
        return;
    case KIND_DEVICE:
        visit_devices(visit, user);
        return;
    case KIND_NETWORK:
        visit_networks(ctx, visit, user);
        return;
    case KIND_TABLE:
        visit_tables(ctx, visit, user);
        return;
    case KIND_ROW:
        visit_rows(ctx, first, visit, user);
        return;
    case KIND_DOWNLOAD:
        visit_downloads(ctx, visit, user);
        return;
    case KIND_COMMAND:
        visit_commands(first, visit, user);
        return;
    case KIND_TEXT:
    case KIND_FILE:
    case KIND_FOLDER:
        return;
    }
}
