#include "data/order.h"

#include "core/file.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum {
    PAPER_ORDERS = 3,
    PAPER_CLASSES = 100,
    FILE_BYTES_MAX = 1 << 20, /* no permutation that anybody writes is longer */
    TOKEN_SHOWN_MAX = 20      /* characters of a bad token in a message */
};

/* The orders of the paper, PODNet's options/data/cifar100_3orders.yaml. */
static const uint8_t PAPER_ORDER[PAPER_ORDERS][PAPER_CLASSES] = {
    {87, 0,  52, 58, 44, 91, 68, 97, 51, 15, 94, 92, 10, 72, 49, 78, 61, 14, 8,  86,
     84, 96, 18, 24, 32, 45, 88, 11, 4,  67, 69, 66, 77, 47, 79, 93, 29, 50, 57, 83,
     17, 81, 41, 12, 37, 59, 25, 20, 80, 73, 1,  28, 6,  46, 62, 82, 53, 9,  31, 75,
     38, 63, 33, 74, 27, 22, 36, 3,  16, 21, 60, 19, 70, 90, 89, 43, 5,  42, 65, 76,
     40, 30, 23, 85, 2,  95, 56, 48, 71, 64, 98, 13, 99, 7,  34, 55, 54, 26, 35, 39},
    {58, 30, 93, 69, 21, 77, 3,  78, 12, 71, 65, 40, 16, 49, 89, 46, 24, 66, 19, 41,
     5,  29, 15, 73, 11, 70, 90, 63, 67, 25, 59, 72, 80, 94, 54, 33, 18, 96, 2,  10,
     43, 9,  57, 81, 76, 50, 32, 6,  37, 7,  68, 91, 88, 95, 85, 4,  60, 36, 22, 27,
     39, 42, 34, 51, 55, 28, 53, 48, 38, 17, 83, 86, 56, 35, 45, 79, 99, 84, 97, 82,
     98, 26, 47, 44, 62, 13, 31, 0,  75, 14, 52, 74, 8,  20, 1,  92, 87, 23, 64, 61},
    {71, 54, 45, 32, 4,  8,  48, 66, 1,  91, 28, 82, 29, 22, 80, 27, 86, 23, 37, 47,
     55, 9,  14, 68, 25, 96, 36, 90, 58, 21, 57, 81, 12, 26, 16, 89, 79, 49, 31, 38,
     46, 20, 92, 88, 40, 39, 98, 94, 19, 95, 72, 24, 64, 18, 60, 50, 63, 61, 83, 76,
     69, 35, 0,  52, 7,  65, 42, 73, 74, 30, 41, 3,  6,  53, 13, 56, 70, 77, 34, 97,
     75, 2,  17, 93, 33, 84, 99, 51, 62, 87, 5,  15, 10, 78, 67, 44, 59, 85, 43, 11},
};

/* ---- numpy's legacy shuffle ------------------------------------------------------------------ */

enum { MT_WORDS = 624, MT_SHIFT = 397 };

/* The Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), as numpy's RandomState uses it. */
struct mt19937 {
    uint32_t word[MT_WORDS];
    int next; /* word to be handed out; MT_WORDS: make new ones first */
};

static void mt_seed(struct mt19937 *mt, uint32_t seed)
{
    mt->word[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t previous = mt->word[i - 1];
        mt->word[i] = 1812433253u * (previous ^ (previous >> 30)) + i;
    }
    mt->next = MT_WORDS;
}

static void mt_refill(struct mt19937 *mt)
{
    for (int i = 0; i < MT_WORDS; i++) {
        uint32_t joined =
            (mt->word[i] & 0x80000000u) | (mt->word[(i + 1) % MT_WORDS] & 0x7fffffffu);
        uint32_t twist = joined & 1 ? 0x9908b0dfu : 0;
        mt->word[i] = mt->word[(i + MT_SHIFT) % MT_WORDS] ^ (joined >> 1) ^ twist;
    }
    mt->next = 0;
}

static uint32_t mt_draw(struct mt19937 *mt)
{
    if (mt->next == MT_WORDS)
        mt_refill(mt);
    uint32_t y = mt->word[mt->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* Uniform in [0, max]: words are masked to the bits of max and refused while too large. */
static uint32_t mt_interval(struct mt19937 *mt, uint32_t max)
{
    uint32_t mask = max;
    for (int shift = 1; shift < 32; shift *= 2)
        mask |= mask >> shift;
    uint32_t value;
    do
        value = mt_draw(mt) & mask;
    while (value > max);
    return value;
}

static void shuffle_like_numpy(int32_t *classes, int n, uint32_t seed)
{
    struct mt19937 mt;
    mt_seed(&mt, seed);
    for (int i = 0; i < n; i++)
        classes[i] = i;
    for (int i = n - 1; i > 0; i--) {
        uint32_t j = mt_interval(&mt, (uint32_t)i);
        int32_t kept = classes[i];
        classes[i] = classes[j];
        classes[j] = kept;
    }
}

/* ---- making and checking --------------------------------------------------------------------- */

/* Fills label_of from class_of; the message names the first class that is out of range or that
 * comes twice. */
static enum der_status invert(struct class_order *order, const char *source)
{
    for (int i = 0; i < order->n; i++)
        order->label_of[i] = -1;
    for (int k = 0; k < order->n; k++) {
        int32_t class = order->class_of[k];
        if (class < 0 || class >= order->n)
            return ctx_fail(order->ctx, DER_FORMAT,
                            "class order %s: entry %d is class %d, want 0 to %d", source, k + 1,
                            (int)class, order->n - 1);
        if (order->label_of[class] >= 0)
            return ctx_fail(order->ctx, DER_FORMAT,
                            "class order %s: class %d appears twice, as entry %d and %d", source,
                            (int)class, (int)order->label_of[class] + 1, k + 1);
        order->label_of[class] = k;
    }
    return DER_OK;
}

/* An order with room for n classes and nothing in it. */
static enum der_status order_alloc(struct der_ctx *ctx, int n, struct class_order **out)
{
    struct class_order *order = mem_zalloc(&ctx->mem, 1, sizeof *order);
    *out = order;
    if (!order)
        return ctx_nomem(ctx);
    order->ctx = ctx;
    order->n = n;
    order->class_of = mem_zalloc(&ctx->mem, (size_t)n, sizeof *order->class_of);
    order->label_of = mem_zalloc(&ctx->mem, (size_t)n, sizeof *order->label_of);
    if (!order->class_of || !order->label_of) {
        order_free(order);
        *out = NULL;
        return ctx_nomem(ctx);
    }
    return DER_OK;
}

/* Hands the order over, or frees it when it is none. */
static enum der_status finish(struct class_order *order, const char *source,
                              struct class_order **out)
{
    enum der_status status = invert(order, source);
    if (status != DER_OK)
        order_free(order);
    else
        *out = order;
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool separates(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',';
}

/* A decimal number without sign; false when it is something else or has more than nine digits. */
static bool parse_number(const char *text, size_t length, int32_t *out)
{
    if (length == 0 || length > 9)
        return false;
    int32_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = 10 * value + (text[i] - '0');
    }
    *out = value;
    return true;
}

/* A token as a message may show it: shortened, and every byte that is not printable ASCII a '?'. */
static void show_token(const char *token, size_t length, char shown[TOKEN_SHOWN_MAX + 1])
{
    size_t n = length < TOKEN_SHOWN_MAX ? length : TOKEN_SHOWN_MAX;
    for (size_t i = 0; i < n; i++)
        shown[i] = (char)(token[i] >= ' ' && token[i] <= '~' ? token[i] : '?');
    shown[n] = '\0';
}

static enum der_status parse_into(struct class_order *order, const char *source, const char *text,
                                  size_t length)
{
    int n = 0;
    int line = 1;
    size_t at = 0;
    while (at < length) {
        if (separates(text[at])) {
            line += text[at++] == '\n';
            continue;
        }
        size_t end = at;
        while (end < length && !separates(text[end]))
            end++;
        int32_t class;
        if (!parse_number(text + at, end - at, &class)) {
            char shown[TOKEN_SHOWN_MAX + 1];
            show_token(text + at, end - at, shown);
            return ctx_fail(order->ctx, DER_FORMAT,
                            "class order %s, line %d: '%s' is not a class number (0 to %d)", source,
                            line, shown, order->n - 1);
        }
        if (n == order->n)
            return ctx_fail(order->ctx, DER_FORMAT, "class order %s, line %d: more than %d classes",
                            source, line, order->n);
        order->class_of[n++] = class;
        at = end;
    }
    if (n < order->n)
        return ctx_fail(order->ctx, DER_FORMAT, "class order %s: %d classes, want %d", source, n,
                        order->n);
    return DER_OK;
}

enum der_status order_parse(struct der_ctx *ctx, const char *source, const char *text,
                            size_t length, int n_classes, struct class_order **out)
{
    assert(n_classes > 0);
    *out = NULL;
    struct class_order *order;
    TRY(order_alloc(ctx, n_classes, &order));
    enum der_status status = parse_into(order, source, text, length);
    if (status != DER_OK) {
        order_free(order);
        return status;
    }
    return finish(order, source, out);
}

static enum der_status order_read(struct der_ctx *ctx, const char *path, int n_classes,
                                  struct class_order **out)
{
    struct file_bytes bytes = {0};
    struct fault fault = {{0}};
    enum der_status status = file_read(&ctx->mem, NULL, path, FILE_BYTES_MAX, &bytes, &fault);
    if (status == DER_OK)
        status = order_parse(ctx, path, (const char *)bytes.data, bytes.size, n_classes, out);
    else if (status == DER_NOMEM)
        status = ctx_nomem(ctx);
    else
        status = ctx_fail(ctx, status, "class order is none of 1, 2, 3 and seed:N; as a file: %s",
                          fault.text);
    file_bytes_free(&ctx->mem, &bytes);
    return status;
}

/* ---- by name --------------------------------------------------------------------------------- */

static enum der_status order_seeded(struct der_ctx *ctx, const char *name, const char *digits,
                                    int n_classes, struct class_order **out)
{
    uint64_t seed = 0;
    bool valid = *digits != '\0';
    for (const char *c = digits; *c && valid; c++) {
        valid = *c >= '0' && *c <= '9';
        seed = 10 * seed + (uint64_t)(*c - '0');
        valid = valid && seed <= UINT32_MAX;
    }
    if (!valid)
        return ctx_fail(ctx, DER_ARG, "class order '%s': want seed:N with N from 0 to %lu", name,
                        (unsigned long)UINT32_MAX);
    struct class_order *order;
    TRY(order_alloc(ctx, n_classes, &order));
    shuffle_like_numpy(order->class_of, n_classes, (uint32_t)seed);
    return finish(order, name, out);
}

static enum der_status order_paper(struct der_ctx *ctx, const char *name, int n_classes,
                                   struct class_order **out)
{
    if (n_classes != PAPER_CLASSES)
        return ctx_fail(ctx, DER_ARG, "class order %s is for %d classes, the data have %d", name,
                        PAPER_CLASSES, n_classes);
    struct class_order *order;
    TRY(order_alloc(ctx, n_classes, &order));
    for (int i = 0; i < n_classes; i++)
        order->class_of[i] = PAPER_ORDER[name[0] - '1'][i];
    return finish(order, name, out);
}

enum der_status order_from_array(struct der_ctx *ctx, const char *source, const int32_t *classes,
                                 int n_classes, struct class_order **out)
{
    assert(n_classes > 0);
    *out = NULL;
    struct class_order *order;
    TRY(order_alloc(ctx, n_classes, &order));
    memcpy(order->class_of, classes, (size_t)n_classes * sizeof *classes);
    return finish(order, source, out);
}

enum der_status order_new(struct der_ctx *ctx, const char *name, int n_classes,
                          struct class_order **out)
{
    static const char SEED[] = "seed:";
    assert(n_classes > 0);
    *out = NULL;
    if (strncmp(name, SEED, strlen(SEED)) == 0)
        return order_seeded(ctx, name, name + strlen(SEED), n_classes, out);
    if (name[0] >= '1' && name[0] <= '0' + PAPER_ORDERS && name[1] == '\0')
        return order_paper(ctx, name, n_classes, out);
    return order_read(ctx, name, n_classes, out);
}

void order_free(struct class_order *order)
{
    if (!order)
        return;
    mem_free(&order->ctx->mem, order->class_of);
    mem_free(&order->ctx->mem, order->label_of);
    mem_free(&order->ctx->mem, order);
}
