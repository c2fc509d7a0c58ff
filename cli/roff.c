#include "roff.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LINE_WIDTH = 78 };

/* ---- pieces of lines --------------------------------------------------------------------------------- */

/* In bold and italic a hyphen is what people type, a minus sign to roff. */
static void put_char(FILE *file, char c, bool is_typed)
{
    if (c == '\\')
        (void)fputs("\\e", file);
    else if (c == '-' && is_typed)
        (void)fputs("\\-", file);
    else
        (void)fputc(c, file);
}

void roff_piece(FILE *file, char font, const char *text, size_t length)
{
    fprintf(file, "\\f%c", font);
    for (size_t i = 0; i < length; i++)
        put_char(file, text[i], font != 'R');
    (void)fputs("\\fR", file);
}

static bool is_typed_char(char c)
{
    return islower((unsigned char)c) || isdigit((unsigned char)c) || c == '-';
}

static bool is_placeholder_char(char c)
{
    return isupper((unsigned char)c) || c == '=';
}

void roff_usage(FILE *file, const char *usage, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t n = 0;
        bool is_typed = is_typed_char(usage[i]);
        bool is_placeholder = is_placeholder_char(usage[i]);
        while (i + n < length && ((is_typed && is_typed_char(usage[i + n])) ||
                                  (is_placeholder && is_placeholder_char(usage[i + n]))))
            n++;
        if (n > 0)
            roff_piece(file, is_typed ? 'B' : 'I', usage + i, n);
        else
            (void)fputc(usage[i], file);
        i += n > 0 ? n : 1;
    }
}

/* ---- paragraphs -------------------------------------------------------------------------------------- */

/* A text on its way to the page, word by word. */
struct filler {
    FILE *file;
    size_t column;
    bool is_bold;
    bool is_first; /* its first letter becomes a capital */
};

static bool ends_sentence(const char *word, size_t length)
{
    while (length > 1 && strchr(")`'", word[length - 1]))
        length--;
    return strchr(".?!", word[length - 1]) != NULL;
}

/* Bytes that put_char and changes of the font will make of it. */
static size_t written_length(const struct filler *f, const char *word, size_t length)
{
    bool is_bold = f->is_bold;
    size_t n = length;
    for (size_t i = 0; i < length; i++) {
        if (word[i] == '`') {
            is_bold = !is_bold;
            n += sizeof "\\fB" - 1 - 1;
        }
        n += word[i] == '\\' || (word[i] == '-' && is_bold);
    }
    return n;
}

static void put_word(struct filler *f, const char *word, size_t length)
{
    size_t written = written_length(f, word, length);
    if (f->column > 0 && f->column + 1 + written > LINE_WIDTH) {
        (void)fputc('\n', f->file);
        f->column = 0;
    }
    if (f->column > 0)
        (void)fputc(' ', f->file);
    if (f->column == 0 && (word[0] == '.' || word[0] == '\''))
        (void)fputs("\\&", f->file); /* no request of roff's */
    for (size_t i = 0; i < length; i++) {
        char c = word[i];
        if (c == '`') {
            f->is_bold = !f->is_bold;
            (void)fputs(f->is_bold ? "\\fB" : "\\fR", f->file);
        } else {
            put_char(f->file, f->is_first ? (char)toupper((unsigned char)c) : c, f->is_bold);
        }
        f->is_first = false;
    }
    f->column += written + 1;
}

static void end_line(struct filler *f)
{
    if (f->column > 0)
        (void)fputc('\n', f->file);
    f->column = 0;
}

static void put_paragraph(struct filler *f, const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t n = 0;
        while (i + n < length && text[i + n] != ' ')
            n++;
        if (n > 0)
            put_word(f, text + i, n);
        if (n > 0 && ends_sentence(text + i, n))
            end_line(f);
        i += n + 1;
    }
}

static void put_text(struct filler *f, const char *text)
{
    for (;;) {
        size_t length = strcspn(text, "\n");
        put_paragraph(f, text, length);
        if (!text[length])
            return;
        end_line(f);
        (void)fputs(".PP\n", f->file);
        text += length + 1;
    }
}

void roff_text(FILE *file, const char *text)
{
    struct filler f = {.file = file};
    put_text(&f, text);
    end_line(&f);
}

void roff_sentence(FILE *file, const char *text)
{
    struct filler f = {.file = file, .is_first = true};
    const char *last_space = strrchr(text, ' ');
    const char *last = last_space ? last_space + 1 : text;
    char word[LINE_WIDTH];
    put_paragraph(&f, text, (size_t)(last - text));
    (void)snprintf(word, sizeof word, "%s%s", last, ends_sentence(last, strlen(last)) ? "" : ".");
    put_paragraph(&f, word, strlen(word));
    end_line(&f);
}
