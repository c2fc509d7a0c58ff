#include "fetch/transfer.h"

#include "core/clock.h"
#include "core/file.h"
#include "fetch/range_header.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    REDIRECTS_MAX = 10,
    PAUSE_MAX_SECONDS = 30,
    RANGE_TEXT = 32,
    IF_RANGE_TEXT = ETAG_MAX + 16,
    HTTP_PARTIAL = 206,
    HTTP_TIMEOUT = 408,
    HTTP_RANGE_REFUSED = 416,
    HTTP_TOO_MANY = 429,
    HTTP_SERVER_ERRORS = 500,
};

/* Why our own functions ended a connection. */
enum verdict {
    VERDICT_NONE,
    VERDICT_ANEW,   /* what is in the file does not fit what is being sent */
    VERDICT_FAILED, /* `status` has the reason, with its sentence in the context */
};

/* What became of a connection. */
enum outcome { OUTCOME_DONE, OUTCOME_AGAIN, OUTCOME_FAILED };

struct transfer {
    struct der_ctx *ctx;
    const struct io_calls *io;
    int fd;
    const struct transfer_request *request;
    CURL *curl;
    struct curl_slist *headers;
    int64_t have;        /* bytes in the file */
    int64_t best;        /* the most there ever were */
    char etag[ETAG_MAX]; /* of the file, from an earlier connection; "" when not known */
    bool was_reached;    /* some connection brought a byte */
    /* Of the current connection: */
    int64_t asked_from;     /* first byte that was asked for */
    bool has_begun;         /* the response was looked at */
    enum verdict verdict;   /* on it */
    enum der_status status; /* with VERDICT_FAILED */
    double started;         /* clock at its first byte */
    int64_t started_at;     /* bytes that were there */
    char error[CURL_ERROR_SIZE];
};

/* ---- what arrives ---------------------------------------------------------------------------- */

static enum der_status set_size(struct transfer *t, int64_t size)
{
    if (io_ftruncate(t->io, t->fd, (off_t)size) != 0)
        return io_fail(t->ctx, "cannot cut", t->request->path, errno);
    t->have = size;
    return DER_OK;
}

/* A field of the latest response; NULL when it has none. */
static const char *field(struct transfer *t, const char *name)
{
    struct curl_header *header;
    if (curl_easy_header(t->curl, name, 0, CURLH_HEADER, -1, &header) != CURLHE_OK)
        return NULL;
    return header->value;
}

static long response_code(struct transfer *t)
{
    long code = 0;
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

/* Keeps the tag of the file; true when it is another one than before. */
static bool has_changed(struct transfer *t)
{
    char tag[ETAG_MAX];
    const char *text = field(t, "ETag");
    if (!text || !etag_copy(text, tag))
        return false;
    bool changed = t->etag[0] != '\0' && strcmp(tag, t->etag) != 0;
    (void)snprintf(t->etag, sizeof t->etag, "%s", tag);
    return changed;
}

/* Does a partial response begin where it was asked to, in a file of the right size? */
static bool continues(struct transfer *t)
{
    struct content_range range;
    const char *text = field(t, "Content-Range");
    int64_t size = t->request->size;
    return text && content_range_parse(text, &range) && range.first == t->asked_from &&
           (size == 0 || range.size < 0 || range.size == size);
}

/* A response that tells another size than the file has is of another file: no need to download it. */
static enum der_status check_length(struct transfer *t)
{
    curl_off_t length = -1;
    (void)curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    int64_t size = t->request->size;
    if (length < 0 || size == 0 || t->have + (int64_t)length == size)
        return DER_OK;
    return ctx_fail(t->ctx, DER_FORMAT,
                    "%s has %" PRId64 " bytes, want %" PRId64 ": it is not the wanted file",
                    t->request->url, t->have + (int64_t)length, size);
}

/* The first bytes of a body are here: what are they? A file: address has no response code. */
static enum verdict begin_body(struct transfer *t)
{
    t->has_begun = true;
    t->was_reached = true;
    t->started = clock_seconds();
    long code = response_code(t);
    bool changed = has_changed(t);
    if (code == HTTP_PARTIAL && (changed || !continues(t)))
        return VERDICT_ANEW;
    if (code != HTTP_PARTIAL && code != 0 && t->have > 0) {
        t->status = set_size(t, 0); /* the server sends all of it */
        if (t->status != DER_OK)
            return VERDICT_FAILED;
    }
    t->started_at = t->have;
    t->status = check_length(t);
    return t->status == DER_OK ? VERDICT_NONE : VERDICT_FAILED;
}

static enum der_status append(struct transfer *t, const char *data, size_t size)
{
    const struct transfer_request *request = t->request;
    if ((int64_t)size > request->size_max - t->have)
        return ctx_fail(t->ctx, DER_FORMAT,
                        "%s sends more than %" PRId64 " bytes: it is not the wanted file",
                        request->url, request->size_max);
    if (io_write_all(t->io, t->fd, data, size) != 0) {
        struct fault fault;
        enum der_status status = fault_errno(&fault, "cannot write", request->path, errno);
        return ctx_fail(t->ctx, status,
                        "%s; what came so far is kept, and the same command goes on "
                        "from there",
                        fault.text);
    }
    t->have += (int64_t)size;
    return DER_OK;
}

static size_t take_body(char *data, size_t one, size_t size, void *user)
{
    struct transfer *t = user;
    (void)one;
    if (!t->has_begun)
        t->verdict = begin_body(t);
    if (t->verdict != VERDICT_NONE)
        return 0;
    t->status = append(t, data, size);
    if (t->status == DER_OK)
        return size;
    t->verdict = VERDICT_FAILED;
    return 0;
}

static bool is_cancelled(const struct transfer *t)
{
    struct fetch_progress progress = {.stage = FETCH_DOWNLOADING,
                                      .file = t->request->name,
                                      .done = t->have,
                                      .total = t->request->size};
    double seconds = clock_seconds() - t->started;
    if (t->has_begun && seconds > 0.0)
        progress.bytes_per_second = (double)(t->have - t->started_at) / seconds;
    return watch_tick(t->request->watch, &progress);
}

static int tick(void *user, curl_off_t d_total, curl_off_t d_now, curl_off_t u_total,
                curl_off_t u_now)
{
    (void)d_total;
    (void)d_now;
    (void)u_total;
    (void)u_now;
    return is_cancelled(user) ? 1 : 0;
}

/* ---- a connection ---------------------------------------------------------------------------- */

static CURLcode set_address(struct transfer *t)
{
    const char *url = t->request->url;
    bool is_secure = strncasecmp(url, "https:", 6) == 0;
    CURLcode code = curl_easy_setopt(t->curl, CURLOPT_URL, url);
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, "http,https,file");
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_REDIR_PROTOCOLS_STR,
                                is_secure ? "https" : "http,https");
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_FOLLOWLOCATION, 1L);
    return code;
}

/* Asks for what is missing, on condition that the file is still the same. */
static CURLcode set_range(struct transfer *t)
{
    char range[RANGE_TEXT];
    char condition[IF_RANGE_TEXT];
    if (t->have == 0)
        return CURLE_OK;
    (void)snprintf(range, sizeof range, "%" PRId64 "-", t->have);
    CURLcode code = curl_easy_setopt(t->curl, CURLOPT_RANGE, range);
    if (code != CURLE_OK || t->etag[0] == '\0')
        return code;
    (void)snprintf(condition, sizeof condition, "If-Range: %s", t->etag);
    t->headers = curl_slist_append(NULL, condition);
    if (!t->headers)
        return CURLE_OUT_OF_MEMORY;
    return curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
}

static CURLcode set_manners(struct transfer *t)
{
    const struct {
        CURLoption option;
        long value;
    } numbers[] = {
        {CURLOPT_NOSIGNAL, 1}, /* a library has no business with the program's signals */
        {CURLOPT_FAILONERROR, 1},
        {CURLOPT_NOPROGRESS, 0},
        {CURLOPT_CONNECTTIMEOUT, t->request->stall_seconds},
        {CURLOPT_LOW_SPEED_LIMIT, 1}, /* bytes a second */
        {CURLOPT_LOW_SPEED_TIME, t->request->stall_seconds},
        {CURLOPT_SSL_VERIFYPEER, 1},
        {CURLOPT_SSL_VERIFYHOST, 2},
    };
    CURLcode code = CURLE_OK;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && code == CURLE_OK; i++)
        code = curl_easy_setopt(t->curl, numbers[i].option, numbers[i].value);
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_USERAGENT, "der");
    return code;
}

static CURLcode set_functions(struct transfer *t)
{
    CURLcode code = curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, t->error);
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, take_body);
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_XFERINFOFUNCTION, tick);
    if (code == CURLE_OK)
        code = curl_easy_setopt(t->curl, CURLOPT_XFERINFODATA, t);
    return code;
}

/* One connection from the first missing byte on. */
static CURLcode connect_once(struct transfer *t)
{
    t->asked_from = t->have;
    t->has_begun = false;
    t->verdict = VERDICT_NONE;
    t->status = DER_OK;
    t->error[0] = '\0';
    curl_easy_reset(t->curl); /* keeps connections and names that it knows */
    CURLcode code = set_address(t);
    if (code == CURLE_OK)
        code = set_range(t);
    if (code == CURLE_OK)
        code = set_manners(t);
    if (code == CURLE_OK)
        code = set_functions(t);
    if (code == CURLE_OK)
        code = curl_easy_perform(t->curl);
    curl_slist_free_all(t->headers);
    t->headers = NULL;
    return code;
}

/* ---- what became of it ----------------------------------------------------------------------- */

/* Failures that another attempt may not meet again. Where nothing was ever reached, it is the address or the
 * network, and waiting would only keep the message from the user. */
static bool is_passing(const struct transfer *t, CURLcode code)
{
    switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
        return t->was_reached;
    default:
        return false;
    }
}

static enum der_status fail_incomplete(struct transfer *t, const char *what)
{
    const struct transfer_request *request = t->request;
    char of[RANGE_TEXT] = "";
    if (request->size > 0)
        (void)snprintf(of, sizeof of, " of %" PRId64, request->size);
    return ctx_fail(t->ctx, DER_IO, "%s: %s after %" PRId64 "%s bytes%s", request->url, what,
                    t->have, of, t->have > 0 ? "; the same command goes on from there" : "");
}

/* What is in the file is of no use: the next connection asks for all of it. */
static enum outcome start_anew(struct transfer *t, const char *why)
{
    t->status = set_size(t, 0);
    if (t->status != DER_OK)
        return OUTCOME_FAILED;
    t->status = ctx_fail(t->ctx, DER_IO, "%s: %s", t->request->url, why);
    return OUTCOME_AGAIN;
}

static enum outcome judge_http(struct transfer *t)
{
    long code = response_code(t);
    if (code == HTTP_RANGE_REFUSED && t->asked_from > 0)
        return start_anew(t, "the file is shorter than what was downloaded before");
    t->status =
        ctx_fail(t->ctx, DER_IO, "%s: the server answers with error %ld", t->request->url, code);
    bool may_pass = code >= HTTP_SERVER_ERRORS || code == HTTP_TIMEOUT || code == HTTP_TOO_MANY;
    return may_pass ? OUTCOME_AGAIN : OUTCOME_FAILED;
}

static enum outcome judge_end(struct transfer *t)
{
    if (t->request->size == 0 || t->have == t->request->size)
        return OUTCOME_DONE;
    t->status = fail_incomplete(t, "the file ends");
    return OUTCOME_AGAIN;
}

/* Sets `status`, with a sentence in the context, unless it is done. */
static enum outcome judge(struct transfer *t, CURLcode code)
{
    if (t->verdict == VERDICT_FAILED)
        return OUTCOME_FAILED;
    if (t->verdict == VERDICT_ANEW)
        return start_anew(t, "the file changed while it was downloaded");
    if (code == CURLE_OK)
        return judge_end(t);
    if (code == CURLE_HTTP_RETURNED_ERROR)
        return judge_http(t);
    if (code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME)
        return start_anew(t, "the file cannot be continued");
    if (code == CURLE_OUT_OF_MEMORY) {
        t->status = ctx_nomem(t->ctx);
        return OUTCOME_FAILED;
    }
    const char *what = t->error[0] ? t->error : curl_easy_strerror(code);
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        (void)fail_incomplete(t, "stopped");
        t->status = DER_CANCELLED;
        return OUTCOME_FAILED;
    }
    t->status = fail_incomplete(t, what);
    return is_passing(t, code) ? OUTCOME_AGAIN : OUTCOME_FAILED;
}

/* Waits before the next attempt; false when that was cancelled. */
static bool pause_before(struct transfer *t, int attempt)
{
    static const struct timespec instant = {.tv_nsec = 50 * 1000 * 1000};
    const double most = PAUSE_MAX_SECONDS;
    double seconds = t->request->pause_seconds;
    for (int i = 1; i < attempt && seconds < most; i++)
        seconds *= 2.0;
    if (seconds > most)
        seconds = most;
    double end = clock_seconds() + seconds;
    t->has_begun = false; /* no rate while waiting */
    do {
        if (is_cancelled(t))
            return false;
        (void)nanosleep(&instant, NULL);
    } while (clock_seconds() < end);
    return true;
}

static enum der_status run(struct transfer *t, int *connections)
{
    int failed = 0;
    for (;;) {
        enum outcome outcome = judge(t, connect_once(t));
        ++*connections;
        if (outcome == OUTCOME_DONE)
            return DER_OK;
        if (outcome == OUTCOME_FAILED)
            return t->status;
        /* Progress is what was never had before: a file that changes for ever must not go on for ever. */
        failed = t->have > t->best ? 1 : failed + 1;
        t->best = t->have > t->best ? t->have : t->best;
        if (failed > t->request->retries)
            return t->status;
        if (!pause_before(t, failed)) {
            (void)fail_incomplete(t, "stopped");
            return DER_CANCELLED;
        }
    }
}

enum der_status transfer_run(struct der_ctx *ctx, const struct io_calls *io, int fd,
                             const struct transfer_request *request, int *connections)
{
    *connections = 0;
    struct stat info;
    if (io->fstat(io->user, fd, &info) != 0)
        return io_fail(ctx, "cannot examine", request->path, errno);
    struct transfer t = {.ctx = ctx,
                         .io = io,
                         .fd = fd,
                         .request = request,
                         .have = (int64_t)info.st_size,
                         .best = (int64_t)info.st_size,
                         .curl = curl_easy_init()};
    if (!t.curl)
        return ctx_nomem(ctx);
    enum der_status status = run(&t, connections);
    curl_easy_cleanup(t.curl);
    return status;
}
