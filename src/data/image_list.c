#include "data/image_list.h"

#include <string.h>

enum { LINE_MAX_CHARS = 4096 };

void image_list_init(struct image_list *list, const char *name, const uint8_t *data, size_t size)
{
    *list = (struct image_list){.name = name, .at = (const char *)data};
    list->end = list->at + size;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends. */
static void trim(const char **text, size_t *length)
{
    while (*length > 0 && is_blank((*text)[*length - 1]))
        (*length)--;
    while (*length > 0 && is_blank(**text)) {
        (*text)++;
        (*length)--;
    }
}

/* Where the first word ends: at a tab if there is one, since names may hold commas and spaces, else
 * at a comma, else at a space. */
static const char *find_separator(const char *text, size_t length)
{
    const char *at = memchr(text, '\t', length);
    if (!at)
        at = memchr(text, ',', length);
    return at ? at : memchr(text, ' ', length);
}

static void split(const char *text, size_t length, struct image_list_entry *entry)
{
    *entry = (struct image_list_entry){.file = text, .file_length = length};
    const char *cut = find_separator(text, length);
    if (cut) {
        entry->file_length = (size_t)(cut - text);
        entry->label = cut + 1;
        entry->label_length = length - entry->file_length - 1;
        trim(&entry->label, &entry->label_length);
        size_t word = 0;
        while (word < entry->label_length && !is_blank(entry->label[word]) &&
               entry->label[word] != ',')
            word++;
        entry->label_length = word;
        trim(&entry->file, &entry->file_length);
    }
    /* A trailing slash belongs to a folder's name, the others to the way there. */
    while (entry->file_length > 1 && entry->file[entry->file_length - 1] == '/')
        entry->file_length--;
    for (size_t i = entry->file_length; i-- > 0;) {
        if (entry->file[i] == '/') {
            entry->file += i + 1;
            entry->file_length -= i + 1;
            break;
        }
    }
}

enum der_status image_list_next(struct der_ctx *ctx, struct image_list *list,
                                struct image_list_entry *entry, bool *found)
{
    *found = false;
    while (list->at < list->end) {
        const char *text = list->at;
        const char *stop = memchr(text, '\n', (size_t)(list->end - text));
        size_t length = (size_t)((stop ? stop : list->end) - text);
        list->at = stop ? stop + 1 : list->end;
        list->line++;
        if (length > LINE_MAX_CHARS || memchr(text, 0, length))
            return ctx_fail(ctx, DER_FORMAT,
                            "%s: line %d is not text, want a file name and a label", list->name,
                            list->line);
        trim(&text, &length);
        if (length == 0)
            continue;
        split(text, length, entry);
        *found = true;
        return DER_OK;
    }
    return DER_OK;
}

bool image_list_number(const char *text, size_t length, int64_t max, int64_t *number)
{
    int64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (text[i] - '0');
        if (value > max)
            return false;
    }
    *number = value;
    return length > 0;
}
