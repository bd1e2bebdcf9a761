/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/client_io.h"

#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/kube/client_handle.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_CONNECTIONS 6
#define IDLE_HANDLES 4 /* kept for reuse; each holds some 5 KiB */
#define PAUSE_AT ((size_t)1 << 20)
#define KEPT_BUFFER ((size_t)8 << 10)
#define POLL_LIMIT 600000   /* ms; wake-ups and libcurl's own timers end a poll earlier */
#define QUIET_TIME 1000     /* ms without anything to do, after which a burst's memory goes back to the system */
#define SPARE_CONNECTIONS 8 /* watches that libcurl's cache makes room for */

struct call_list {
    struct kube_call *first, *last;
};

struct kube_io {
    struct kube_target target;
    struct clock *clock;
    size_t max_connections;
    CURLM *multi;
    pthread_t thread;
    /* the io thread's alone */
    struct call_list active;
    size_t short_active; /* active ones that count */
    CURL *idle[IDLE_HANDLES];
    size_t idle_len;
    bool busy; /* calls ran since memory was given back */
    /* under the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t sleepers;
    struct kube_call *all;   /* every call that was not freed */
    struct call_list queue;  /* not yet taken by the io thread's multi handle */
    size_t cancels, resumes; /* wishes the io thread has not seen */
    bool cancelled, quit;
};

static void list_add(struct call_list *list, struct kube_call *call)
{
    call->next = NULL;
    call->previous = list->last;
    *(list->last != NULL ? &list->last->next : &list->first) = call;
    list->last = call;
}

static void list_remove(struct call_list *list, struct kube_call *call)
{
    *(call->previous != NULL ? &call->previous->next : &list->first) = call->next;
    *(call->next != NULL ? &call->next->previous : &list->last) = call->previous;
    call->next = call->previous = NULL;
}

/* ---- io thread ---- */

void kube_call_on_header(struct kube_call *call)
{
    pthread_mutex_lock(&call->io->mutex);
    call->status = call->header_status;
    call->retry_after = call->header_retry_after;
    if (call->state == KUBE_CALL_WAITING)
        call->state = KUBE_CALL_RUNNING;
    pthread_cond_broadcast(&call->cond);
    pthread_mutex_unlock(&call->io->mutex);
}

size_t kube_call_on_body(struct kube_call *call, const char *data, size_t len)
{
    size_t result = len;
    pthread_mutex_lock(&call->io->mutex);
    if (call->throttle && call->buffer.len >= PAUSE_AT) {
        call->paused = true;
        result = CURL_WRITEFUNC_PAUSE; /* these bytes come again */
    } else if (len > call->buffer_limit || call->buffer.len > call->buffer_limit - len) {
        call->too_large = true;
        result = 0;
    } else {
        str_add_len(&call->buffer, data, len);
        pthread_cond_broadcast(&call->cond);
    }
    pthread_mutex_unlock(&call->io->mutex);
    return result;
}

static void keep_handle(struct kube_io *io, CURL *easy)
{
    if (io->idle_len == IDLE_HANDLES) {
        curl_easy_cleanup(easy);
        return;
    }
    curl_easy_reset(easy);
    io->idle[io->idle_len++] = easy;
}

/* The call is the caller's again when this returns: it must not be touched. */
static void finish(struct kube_io *io, struct kube_call *call, enum kube_call_state state, CURLcode code)
{
    char reason[sizeof(call->reason)] = "";
    bool permanent = false;
    if (state == KUBE_CALL_FAILED)
        permanent = kube_call_explain(code, call, reason, sizeof(reason));
    if (call->easy != NULL) {
        curl_multi_remove_handle(io->multi, call->easy);
        list_remove(&io->active, call);
        if (!call->watch)
            io->short_active--;
        keep_handle(io, mem_take(call->easy));
    }
    pthread_mutex_lock(&io->mutex);
    call->state = state;
    call->permanent = permanent;
    memcpy(call->reason, reason, sizeof(reason));
    call->finished = true;
    pthread_cond_broadcast(&call->cond);
    pthread_mutex_unlock(&io->mutex);
}

static void start(struct kube_io *io, struct kube_call *call)
{
    call->easy = io->idle_len > 0 ? io->idle[--io->idle_len] : curl_easy_init();
    if (call->easy == NULL)
        abort();
    kube_call_setup(call->easy, call, &io->target);
    list_add(&io->active, call);
    if (!call->watch)
        io->short_active++;
    if (curl_multi_add_handle(io->multi, call->easy) != CURLM_OK)
        finish(io, call, KUBE_CALL_FAILED, CURLE_FAILED_INIT);
}

/* The next queued call that may start now. A short one that has to wait does not hold up a watch behind it. */
static struct kube_call *take_queued(struct kube_io *io, bool *cancelled)
{
    pthread_mutex_lock(&io->mutex);
    struct kube_call *call = io->queue.first;
    while (call != NULL && !call->cancel && !call->watch && io->short_active >= io->max_connections)
        call = call->next;
    if (call != NULL) {
        list_remove(&io->queue, call);
        *cancelled = call->cancel;
    }
    pthread_mutex_unlock(&io->mutex);
    return call;
}

static void start_queued(struct kube_io *io)
{
    struct kube_call *call;
    bool cancelled = false;
    while ((call = take_queued(io, &cancelled)) != NULL) {
        if (cancelled)
            finish(io, call, KUBE_CALL_CANCELLED, CURLE_OK);
        else
            start(io, call);
    }
}

static void drop_cancelled(struct kube_io *io)
{
    pthread_mutex_lock(&io->mutex);
    bool any = io->cancels > 0;
    io->cancels = 0;
    pthread_mutex_unlock(&io->mutex);
    for (struct kube_call *call = any ? io->active.first : NULL, *next; call != NULL; call = next) {
        next = call->next;
        pthread_mutex_lock(&io->mutex);
        bool cancel = call->cancel;
        pthread_mutex_unlock(&io->mutex);
        if (cancel)
            finish(io, call, KUBE_CALL_CANCELLED, CURLE_OK);
    }
}

static void resume_paused(struct kube_io *io)
{
    pthread_mutex_lock(&io->mutex);
    bool any = io->resumes > 0;
    io->resumes = 0;
    pthread_mutex_unlock(&io->mutex);
    for (struct kube_call *call = any ? io->active.first : NULL; call != NULL; call = call->next) {
        pthread_mutex_lock(&io->mutex);
        bool resume = call->paused && call->buffer.len < PAUSE_AT;
        if (resume)
            call->paused = false;
        pthread_mutex_unlock(&io->mutex);
        if (resume)
            curl_easy_pause(call->easy, CURLPAUSE_CONT); /* calls the write callback, which may pause again */
    }
}

static void finish_done(struct kube_io *io)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(io->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        struct kube_call *call = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        CURLcode code = message->data.result;
        finish(io, call, code == CURLE_OK ? KUBE_CALL_COMPLETE : KUBE_CALL_FAILED, code);
    }
}

static bool work_queued(struct kube_io *io)
{
    pthread_mutex_lock(&io->mutex);
    bool queued = io->queue.first != NULL;
    pthread_mutex_unlock(&io->mutex);
    return queued;
}

static bool quit_wanted(struct kube_io *io)
{
    pthread_mutex_lock(&io->mutex);
    bool quit = io->quit;
    pthread_mutex_unlock(&io->mutex);
    return quit;
}

/* The multi handle that owns all connections. Only the io thread replaces it, under the mutex, since others wake it. */
static CURLM *new_multi(const struct kube_io *io)
{
    CURLM *multi = curl_multi_init();
    if (multi == NULL)
        abort();
    curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, 0L); /* a limit stalls after a GOAWAY */
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)(io->max_connections + SPARE_CONNECTIONS));
    return multi;
}

static void drop_idle_handles(struct kube_io *io)
{
    while (io->idle_len > 0)
        curl_easy_cleanup(io->idle[--io->idle_len]);
}

/* After a burst: each kept TLS connection holds some 60 KiB, each handle its buffers, and the heap the holes of the
 * replies that were decoded. libcurl cannot close kept connections, so the handle they belong to goes. */
static void give_memory_back(struct kube_io *io)
{
    drop_idle_handles(io);
    pthread_mutex_lock(&io->mutex);
    bool quiet = io->queue.first == NULL;
    CURLM *old = io->multi;
    if (quiet)
        io->multi = new_multi(io);
    pthread_mutex_unlock(&io->mutex);
    if (quiet)
        curl_multi_cleanup(old);
    mem_trim();
    io->busy = !quiet;
}

static void wait_for_work(struct kube_io *io)
{
    int events = 0;
    if (io->active.first != NULL)
        io->busy = true;
    bool idle = io->busy && io->active.first == NULL;
    curl_multi_poll(io->multi, NULL, 0, idle ? QUIET_TIME : POLL_LIMIT, &events);
    if (idle && events == 0 && !work_queued(io))
        give_memory_back(io);
}

static void *io_thread(void *arg)
{
    struct kube_io *io = arg;
    while (!quit_wanted(io)) {
        int running;
        start_queued(io);
        drop_cancelled(io);
        resume_paused(io);
        curl_multi_perform(io->multi, &running);
        finish_done(io);
        start_queued(io); /* in the places that have become free */
        wait_for_work(io);
    }
    return NULL;
}

/* ---- life ---- */

int kube_io_new(const struct kube_config *config, const struct kube_io_options *options, struct kube_io **result,
                struct err *err)
{
    struct kube_target target;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, ERR_INTERNAL, "libcurl cannot start");
    if (kube_target_init(&target, config, options->user_agent, err) != 0) {
        curl_global_cleanup();
        return -1;
    }
    struct kube_io *io = mem_new(struct kube_io);
    io->target = target;
    io->clock = options->clock;
    io->max_connections = options->max_connections != 0 ? options->max_connections : DEFAULT_CONNECTIONS;
    io->multi = new_multi(io);
    pthread_mutex_init(&io->mutex, NULL);
    clock_cond_init(&io->sleepers);
    io->thread = thread_start("kube-io", io_thread, io);
    *result = io;
    return 0;
}

void kube_io_free(struct kube_io *io)
{
    if (io == NULL)
        return;
    pthread_mutex_lock(&io->mutex);
    io->quit = true;
    curl_multi_wakeup(io->multi);
    pthread_mutex_unlock(&io->mutex);
    thread_join(io->thread);
    drop_idle_handles(io);
    curl_multi_cleanup(io->multi);
    kube_target_clear(&io->target);
    pthread_cond_destroy(&io->sleepers);
    pthread_mutex_destroy(&io->mutex);
    free(io);
    curl_global_cleanup();
}

void kube_io_cancel_all(struct kube_io *io)
{
    pthread_mutex_lock(&io->mutex);
    io->cancelled = true;
    pthread_cond_broadcast(&io->sleepers);
    for (struct kube_call *call = io->all; call != NULL; call = call->all_next) {
        call->cancel = true;
        pthread_cond_broadcast(&call->cond);
    }
    io->cancels++;
    curl_multi_wakeup(io->multi);
    pthread_mutex_unlock(&io->mutex);
}

bool kube_io_cancelled(struct kube_io *io)
{
    pthread_mutex_lock(&io->mutex);
    bool cancelled = io->cancelled;
    pthread_mutex_unlock(&io->mutex);
    return cancelled;
}

bool kube_io_sleep(struct kube_io *io, int64_t deadline)
{
    pthread_mutex_lock(&io->mutex);
    bool in_time = true;
    while (!io->cancelled && in_time)
        in_time = clock_cond_wait(io->clock, &io->sleepers, &io->mutex, deadline);
    bool cancelled = io->cancelled;
    pthread_mutex_unlock(&io->mutex);
    return cancelled;
}

/* ---- calls ---- */

struct kube_call *kube_call_start(struct kube_io *io, const struct kube_call_options *options)
{
    struct kube_call *call = mem_new(struct kube_call);
    call->io = io;
    call->url = mem_printf("%s%s", io->target.base, options->path);
    call->method = options->method;
    call->body = options->body;
    call->auth = kube_auth_ref(options->auth);
    call->headers = kube_call_headers(&io->target, options);
    call->watch = options->watch;
    call->throttle = options->throttle && io->target.http_version == CURL_HTTP_VERSION_1_1;
    call->read = options->read;
    call->buffer_limit = options->buffer_limit;
    call->retry_after = call->header_retry_after = -1;
    clock_cond_init(&call->cond);
    pthread_mutex_lock(&io->mutex);
    list_add(&io->queue, call);
    call->all_next = io->all;
    call->all_previous = NULL;
    if (io->all != NULL)
        io->all->all_previous = call;
    io->all = call;
    call->cancel = io->cancelled;
    curl_multi_wakeup(io->multi);
    pthread_mutex_unlock(&io->mutex);
    return call;
}

/* With the mutex held. A wish to cancel counts at once, whatever the io thread is doing. */
static enum kube_call_state state_of(const struct kube_call *call)
{
    bool open = call->state == KUBE_CALL_WAITING || call->state == KUBE_CALL_RUNNING;
    return open && call->cancel ? KUBE_CALL_CANCELLED : call->state;
}

static void report(const struct kube_call *call, struct kube_call_status *status)
{
    *status = (struct kube_call_status){
        .state = state_of(call),
        .status = call->status,
        .retry_after = call->retry_after,
        .unread = call->buffer.len,
        /* written by the io thread alone and read only after it has let go of the call */
        .sent = call->finished ? call->sent : true,
        .permanent = call->permanent,
    };
    memcpy(status->reason, call->reason, sizeof(status->reason));
}

enum goal { GOAL_HEADER, GOAL_END, GOAL_BYTES };

static bool reached(const struct kube_call *call, enum goal goal)
{
    enum kube_call_state state = state_of(call);
    if (state != KUBE_CALL_WAITING && state != KUBE_CALL_RUNNING)
        return true;
    return (goal == GOAL_HEADER && state == KUBE_CALL_RUNNING) || (goal == GOAL_BYTES && call->buffer.len > 0);
}

static bool wait_for(struct kube_call *call, enum goal goal, int64_t deadline, struct kube_call_status *status)
{
    struct kube_io *io = call->io;
    pthread_mutex_lock(&io->mutex);
    bool in_time = true;
    while (!reached(call, goal) && in_time)
        in_time = clock_cond_wait(io->clock, &call->cond, &io->mutex, deadline);
    bool result = reached(call, goal);
    report(call, status);
    pthread_mutex_unlock(&io->mutex);
    return result;
}

bool kube_call_wait_header(struct kube_call *call, int64_t deadline, struct kube_call_status *status)
{
    return wait_for(call, GOAL_HEADER, deadline, status);
}

bool kube_call_wait_end(struct kube_call *call, int64_t deadline, struct kube_call_status *status)
{
    return wait_for(call, GOAL_END, deadline, status);
}

bool kube_call_wait_bytes(struct kube_call *call, int64_t deadline, struct kube_call_status *status)
{
    return wait_for(call, GOAL_BYTES, deadline, status);
}

void kube_call_read(struct kube_call *call, struct str *to)
{
    pthread_mutex_lock(&call->io->mutex);
    if (to->len == 0) {
        /* swap: no copy, and the emptied memory of the reader serves the next bytes */
        struct str swap = *to;
        *to = call->buffer;
        call->buffer = swap;
        str_reset(&call->buffer);
        if (call->buffer.cap > KEPT_BUFFER)
            str_free(&call->buffer);
    } else if (call->buffer.len > 0) {
        str_add_len(to, call->buffer.data, call->buffer.len);
        str_reset(&call->buffer);
    }
    bool resume = call->paused;
    if (resume) {
        call->io->resumes++;
        curl_multi_wakeup(call->io->multi);
    }
    pthread_mutex_unlock(&call->io->mutex);
}

static void cancel_locked(struct kube_call *call)
{
    if (call->cancel || call->finished)
        return;
    call->cancel = true;
    call->io->cancels++;
    pthread_cond_broadcast(&call->cond);
}

void kube_call_cancel(struct kube_call *call)
{
    pthread_mutex_lock(&call->io->mutex);
    cancel_locked(call);
    curl_multi_wakeup(call->io->multi);
    pthread_mutex_unlock(&call->io->mutex);
}

/* With the mutex held: cancels, and waits until the io thread has let go of the call, which it does at once. */
static void settle_locked(struct kube_call *call)
{
    if (!call->finished) {
        cancel_locked(call);
        curl_multi_wakeup(call->io->multi);
    }
    while (!call->finished)
        pthread_cond_wait(&call->cond, &call->io->mutex);
}

void kube_call_abort(struct kube_call *call, struct kube_call_status *status)
{
    pthread_mutex_lock(&call->io->mutex);
    settle_locked(call);
    report(call, status);
    pthread_mutex_unlock(&call->io->mutex);
}

void kube_call_free(struct kube_call *call)
{
    if (call == NULL)
        return;
    struct kube_io *io = call->io;
    pthread_mutex_lock(&io->mutex);
    settle_locked(call); /* the strings are borrowed */
    *(call->all_previous != NULL ? &call->all_previous->all_next : &io->all) = call->all_next;
    if (call->all_next != NULL)
        call->all_next->all_previous = call->all_previous;
    pthread_mutex_unlock(&io->mutex);
    pthread_cond_destroy(&call->cond);
    kube_call_headers_free(call->headers);
    kube_auth_unref(call->auth);
    free(call->url);
    str_free(&call->buffer);
    free(call);
}
