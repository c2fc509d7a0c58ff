#include "exchange/event_file.h"

#include "core/clock.h"
#include "exchange/crc32c.h"
#include "io/appender.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_START "events.out.tfevents."

/* Of ten digits: names are sorted as texts. */
static const int64_t LAST_TIME = INT64_C(9999999999);

enum { HOST_CHARS = 64, LENGTH_BYTES = 8, CRC_BYTES = 4, SESSION_START = 1, NAME_TAIL = 160 };

struct event_file {
    struct der_ctx *ctx;
    char *path;
    struct appender *appender;
    uint8_t *record; /* the latest, framed */
    size_t capacity; /* of `record` */
};

/* ---- names ----------------------------------------------------------------------------------------- */

/* The time that a name begins with; 0 for other files. */
static int64_t time_of(const char *name)
{
    size_t start = strlen(NAME_START);
    return strncmp(name, NAME_START, start) == 0 ? strtoll(name + start, NULL, 10) : 0;
}

/* A time behind those of all files in the folder: clocks are set back, and two runs may begin within a
 * second. */
static enum der_status next_time(struct der_ctx *ctx, const char *folder, int64_t *out)
{
    const struct dirent *entry;
    *out = (int64_t)clock_calendar_seconds();
    DIR *dir = opendir(folder);
    if (!dir)
        return io_fail(ctx, "cannot list folder", folder, errno);
    errno = 0;
    while ((entry = readdir(dir)) != NULL) {
        int64_t time = time_of(entry->d_name);
        if (time >= *out && time < LAST_TIME)
            *out = time + 1;
    }
    int error = errno;
    (void)closedir(dir);
    return error == 0 ? DER_OK : io_fail(ctx, "cannot list folder", folder, error);
}

static void host_name(char host[HOST_CHARS])
{
    if (gethostname(host, HOST_CHARS) != 0)
        (void)snprintf(host, HOST_CHARS, "localhost");
    host[HOST_CHARS - 1] = '\0';
    for (char *at = host; *at; at++)
        if (*at == '/')
            *at = '-';
}

static enum der_status choose_path(struct event_file *file, const char *folder)
{
    char host[HOST_CHARS];
    int64_t time;
    size_t capacity = strlen(folder) + NAME_TAIL;
    TRY(next_time(file->ctx, folder, &time));
    host_name(host);
    file->path = mem_alloc(&file->ctx->mem, capacity, 1);
    if (!file->path)
        return ctx_nomem(file->ctx);
    (void)snprintf(file->path, capacity, "%s/" NAME_START "%010" PRId64 ".%s.%ld", folder, time,
                   host, (long)getpid());
    return DER_OK;
}

/* ---- records --------------------------------------------------------------------------------------- */

static bool reserve(struct event_file *file, size_t size)
{
    if (size <= file->capacity)
        return true;
    uint8_t *record = mem_realloc(&file->ctx->mem, file->record, size, 1);
    if (!record)
        return false;
    file->record = record;
    file->capacity = size;
    return true;
}

enum der_status event_file_write(struct event_file *file, const struct proto *event)
{
    uint64_t length = event->size; /* the machine is little-endian: proto.c sees to it */
    size_t size = LENGTH_BYTES + CRC_BYTES + event->size + CRC_BYTES;
    TRY(proto_check(event, file->ctx));
    if (!reserve(file, size))
        return ctx_nomem(file->ctx);
    uint32_t length_crc = crc32c_masked(&length, LENGTH_BYTES);
    uint32_t data_crc = crc32c_masked(event->data, event->size);
    uint8_t *at = file->record;
    memcpy(at, &length, LENGTH_BYTES);
    memcpy(at + LENGTH_BYTES, &length_crc, CRC_BYTES);
    memcpy(at + LENGTH_BYTES + CRC_BYTES, event->data, event->size);
    memcpy(at + size - CRC_BYTES, &data_crc, CRC_BYTES);
    return appender_bytes(file->appender, file->record, size);
}

void event_start(struct proto *event, int64_t step)
{
    proto_clear(event);
    proto_double(event, EVENT_WALL_TIME, clock_calendar_seconds());
    proto_int(event, EVENT_STEP, step);
}

/* The version of the format, and the mark at which readers forget what comes again. */
static enum der_status write_start(struct event_file *file, int64_t first_step)
{
    struct proto event;
    proto_init(&event, &file->ctx->mem);
    event_start(&event, first_step);
    proto_text(&event, EVENT_FILE_VERSION, "brain.Event:2");
    enum der_status status = event_file_write(file, &event);
    event_start(&event, first_step);
    size_t log = proto_open(&event, EVENT_SESSION_LOG);
    proto_int(&event, SESSION_STATUS, SESSION_START);
    proto_close(&event, log);
    if (status == DER_OK)
        status = event_file_write(file, &event);
    proto_fini(&event);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------------- */

static enum der_status create(struct event_file *file, const struct io_calls *io,
                              const char *folder, int64_t first_step)
{
    TRY(choose_path(file, folder));
    TRY(appender_open(file->ctx, io, file->path, 0, &file->appender));
    return write_start(file, first_step);
}

enum der_status event_file_create(struct der_ctx *ctx, const struct io_calls *io,
                                  const char *folder, int64_t first_step, struct event_file **out)
{
    *out = NULL;
    struct event_file *file = mem_zalloc(&ctx->mem, 1, sizeof *file);
    if (!file)
        return ctx_nomem(ctx);
    file->ctx = ctx;
    enum der_status status = create(file, io, folder, first_step);
    if (status != DER_OK) {
        event_file_close(file);
        return status;
    }
    *out = file;
    return DER_OK;
}

const char *event_file_path(const struct event_file *file)
{
    return file->path;
}

void event_file_close(struct event_file *file)
{
    if (!file)
        return;
    struct mem *mem = &file->ctx->mem;
    appender_close(file->appender);
    mem_free(mem, file->record);
    mem_free(mem, file->path);
    mem_free(mem, file);
}
