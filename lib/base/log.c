/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/log.h"

#include "lib/base/clock.h"
#include "lib/base/log_format.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

struct pattern {
    char *glob;
    int verbosity;
};

/* The verbosity of one source file, keyed by the address of its __FILE__ string: found with a few loads and no lock. */
struct cached {
    _Atomic(const char *) file; /* written last */
    _Atomic int verbosity;
};

#define CACHE_SIZE 256 /* a power of two, a few times the number of source files of a program */

/* The logger is the one piece of state that belongs to the process: passing it along would put it into every signature.
 */
static struct {
    pthread_mutex_t lock; /* sink, stderr, and all writes to what follows */
    void (*sink)(void *arg, const char *line, size_t len);
    void *sink_arg;
    _Atomic int format;
    _Atomic int verbosity;
    _Atomic bool has_patterns;
    struct pattern *patterns;
    size_t pattern_count;
    struct cached cache[CACHE_SIZE];
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void free_patterns(struct pattern *patterns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(patterns[i].glob);
    free(patterns);
}

static int parse_pattern(const char *text, struct pattern *pattern, struct err *err)
{
    const char *equals = strchr(text, '=');
    int64_t verbosity = 0;
    if (equals == NULL || equals == text || !str_parse_i64(equals + 1, &verbosity) || verbosity < 0 ||
        verbosity > INT_MAX)
        return err_set(err, ERR_INVALID, "vmodule: \"%s\" is not of the form pattern=N", text);
    *pattern = (struct pattern){.glob = mem_strndup(text, (size_t)(equals - text)), .verbosity = (int)verbosity};
    return 0;
}

int log_setup(const struct log_options *options, struct err *err)
{
    auto_strv struct strv parts = {0};
    if (!str_empty(options->vmodule))
        strv_split(&parts, options->vmodule, ',');
    struct pattern *patterns = mem_calloc(parts.len, sizeof(*patterns));
    size_t count = 0;
    for (size_t i = 0; i < parts.len; i++) {
        if (*parts.items[i] == '\0') /* a trailing comma */
            continue;
        if (parse_pattern(parts.items[i], &patterns[count], err) != 0) {
            free_patterns(patterns, count);
            return -1;
        }
        count++;
    }
    pthread_mutex_lock(&logger.lock);
    free_patterns(logger.patterns, logger.pattern_count);
    logger.patterns = count > 0 ? patterns : NULL;
    logger.pattern_count = count;
    for (size_t i = 0; i < CACHE_SIZE; i++)
        atomic_store(&logger.cache[i].file, NULL);
    atomic_store(&logger.has_patterns, count > 0);
    atomic_store(&logger.verbosity, options->verbosity);
    atomic_store(&logger.format, (int)options->format);
    pthread_mutex_unlock(&logger.lock);
    if (count == 0)
        free(patterns);
    return 0;
}

/* As klog: the last path element without its extension is matched, or the whole path when the pattern has a slash. */
static int match_patterns(const char *file)
{
    const char *slash = strrchr(file, '/');
    const char *base = slash != NULL ? slash + 1 : file;
    size_t base_len = strlen(base) - (str_ends(base, ".c") ? 2 : 0);
    size_t len = (size_t)(base - file) + base_len;
    auto_free char *path = mem_strndup(file, len);
    for (size_t i = 0; i < logger.pattern_count; i++) {
        const char *glob = logger.patterns[i].glob;
        if (fnmatch(glob, strchr(glob, '/') != NULL ? path : path + len - base_len, 0) == 0)
            return logger.patterns[i].verbosity;
    }
    return atomic_load(&logger.verbosity);
}

static size_t cache_slot(const char *file)
{
    uintptr_t address = (uintptr_t)file;
    return (size_t)((address * 0x9e3779b97f4a7c15ULL) >> 40) % CACHE_SIZE;
}

static int file_verbosity(const char *file)
{
    size_t slot = cache_slot(file);
    for (size_t i = 0; i < CACHE_SIZE; i++, slot = (slot + 1) % CACHE_SIZE) {
        const char *cached = atomic_load_explicit(&logger.cache[slot].file, memory_order_acquire);
        if (cached == file)
            return atomic_load_explicit(&logger.cache[slot].verbosity, memory_order_relaxed);
        if (cached == NULL)
            break;
    }
    pthread_mutex_lock(&logger.lock);
    int verbosity = match_patterns(file);
    for (size_t i = 0; i < CACHE_SIZE; i++, slot = (slot + 1) % CACHE_SIZE) {
        const char *cached = atomic_load(&logger.cache[slot].file);
        if (cached == file) /* another thread was faster */
            break;
        if (cached == NULL) {
            atomic_store_explicit(&logger.cache[slot].verbosity, verbosity, memory_order_relaxed);
            atomic_store_explicit(&logger.cache[slot].file, file, memory_order_release);
            break;
        }
    }
    pthread_mutex_unlock(&logger.lock);
    return verbosity;
}

bool log_enabled(int verbosity, const char *file)
{
    /* a pattern may also lower the verbosity of a file */
    if (!atomic_load_explicit(&logger.has_patterns, memory_order_relaxed))
        return verbosity <= atomic_load_explicit(&logger.verbosity, memory_order_relaxed);
    return verbosity <= file_verbosity(file);
}

static void write_all(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t written = write(STDERR_FILENO, data, len);
        if (written >= 0) {
            data += written;
            len -= (size_t)written;
        } else if (errno == EAGAIN) { /* somebody made stderr non-blocking: it may be shared */
            poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, 1000);
        } else if (errno != EINTR) {
            return; /* where should it be told? */
        }
    }
}

static void emit(struct log_record *record)
{
    int saved = errno;
    record->wall_ns = clock_wall(clock_real());
    record->pid = (int)getpid();
    auto_str struct str line = {0};
    if (atomic_load(&logger.format) == LOG_FORMAT_JSON)
        log_format_json(&line, record);
    else
        log_format_text(&line, record);
    pthread_mutex_lock(&logger.lock);
    if (logger.sink != NULL)
        logger.sink(logger.sink_arg, line.data, line.len);
    else
        write_all(line.data, line.len);
    pthread_mutex_unlock(&logger.lock);
    errno = saved;
}

void log_write(enum log_level level, const char *file, int line, const char *message, const struct log_kv *pairs)
{
    emit(&(struct log_record){.level = level, .file = file, .line = line, .message = message, .pairs = pairs});
}

void log_write_v(int verbosity, const char *file, int line, const char *message, const struct log_kv *pairs)
{
    emit(&(struct log_record){.level = LOG_LEVEL_INFO,
                              .verbosity = verbosity,
                              .file = file,
                              .line = line,
                              .message = message,
                              .pairs = pairs});
}

void log_set_sink(void (*sink)(void *arg, const char *line, size_t len), void *arg)
{
    pthread_mutex_lock(&logger.lock);
    logger.sink = sink;
    logger.sink_arg = arg;
    pthread_mutex_unlock(&logger.lock);
}
