/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request with its repeats:
 *
 *     what happened                         read            write
 *     connection refused, TLS not set up    repeat          repeat (it surely did not happen)
 *     broke after it was sent               repeat          ERR_UNKNOWN_OUTCOME
 *     429, 503 with Retry-After             repeat          repeat
 *     503 without                           repeat          final
 *     401, and the credential can be renewed repeat once    repeat once
 *     certificate refused, reply too large  error           error / ERR_UNKNOWN_OUTCOME when it was sent
 *     any other status                      final           final
 *
 * Repeats come after Retry-After or a growing delay, and only when that ends before the deadline.
 */
#include "lib/kube/client_private.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/config_private.h"

#include <string.h>

#define FIRST_DELAY (100 * CLOCK_MS)
#define LONGEST_DELAY (5 * CLOCK_SECOND)
#define BODY_LOG_LIMIT 1024
#define THROTTLE_LOG_LIMIT CLOCK_SECOND
#define STREAM_LIMIT ((size_t)256 << 20)

enum verdict {
    VERDICT_FINAL,  /* a reply for the caller */
    VERDICT_ERROR,  /* an error for the caller */
    VERDICT_REPEAT, /* reply or error, but try again if there is time */
};

struct progress {
    struct kube_client *client;
    const struct kube_run *run;
    bool read;
    bool renewed;     /* the credential, after a 401 */
    uint64_t refused; /* generation that was answered 401; 0 = none */
    int64_t delay;    /* before the next repeat, when the server names none */
    int64_t hint;     /* the server's Retry-After; -1 = none */
    bool have_reply;  /* the last try ended with one */
};

int64_t kube_client_deadline(struct kube_client *client)
{
    return clock_mono(client->clock) + client->request_timeout;
}

void kube_reply_clear(struct kube_reply *reply)
{
    if (reply->body.data != NULL)
        mem_wipe(reply->body.data, reply->body.len);
    str_free(&reply->body);
    kube_call_free(reply->call);
    *reply = (struct kube_reply){0};
}

/* ---- before a try ---- */

static struct kube_auth *get_auth(struct kube_client *client, uint64_t refused, struct err *err)
{
    struct kube_credential credential;
    if (kube_config_credential_renew(client->config, client->clock, client->stop, refused, &credential, err) != 0)
        return NULL;
    if (client->config->credentials == NULL) /* nothing tells whether it has changed */
        return kube_auth_new(client->config, &credential);
    pthread_mutex_lock(&client->auth_mutex);
    if (client->auth == NULL || client->auth->generation != credential.generation) {
        kube_auth_unref(client->auth);
        client->auth = kube_auth_new(client->config, &credential);
    }
    struct kube_auth *auth = kube_auth_ref(client->auth);
    pthread_mutex_unlock(&client->auth_mutex);
    kube_credential_clear(&credential);
    return auth;
}

static int wait_for_turn(struct kube_client *client, const struct kube_run *run, struct err *err)
{
    if (kube_io_cancelled(client->io))
        return err_set(err, ERR_CANCELLED, "the program stops");
    if (run->unlimited || run->watch)
        return 0;
    int64_t now = clock_mono(client->clock);
    int64_t turn = kube_limiter_reserve(&client->limiter, now, run->deadline);
    if (turn < 0)
        return err_set(err, ERR_TIMEOUT, "the limit of %g requests a second leaves no time for this one",
                       client->limiter.qps);
    if (turn - now > THROTTLE_LOG_LIMIT)
        log_v(3, "Waiting for the client-side rate limit", kv_str("method", run->method), kv_str("path", run->path),
              kv_duration("delay", turn - now));
    if (turn > now && kube_io_sleep(client->io, turn))
        return err_set(err, ERR_CANCELLED, "the program stops");
    return 0;
}

/* ---- logging ---- */

static void log_body(const struct kube_run *run, const char *what, const char *body, size_t len)
{
    if (body == NULL || !log_enabled(8, __FILE__))
        return;
    if (kube_path_is_secret(run->path)) {
        log_info(what, kv_str("path", run->path), kv_str("body", "(secret)"));
        return;
    }
    auto_free char *cut = mem_strndup(body, len < BODY_LOG_LIMIT ? len : BODY_LOG_LIMIT);
    log_info(what, kv_str("path", run->path), kv_uint("bytes", len), kv_str("body", cut));
}

static void log_end(const struct progress *progress, int64_t started, int status, const char *problem)
{
    const struct kube_run *run = progress->run;
    int64_t took = clock_mono(progress->client->clock) - started;
    if (problem != NULL)
        log_v(4, "API request failed", kv_str("method", run->method), kv_str("path", run->path),
              kv_str("reason", problem), kv_duration("took", took));
    else
        log_v(6, "API request", kv_str("method", run->method), kv_str("path", run->path), kv_int("status", status),
              kv_duration("took", took));
}

/* ---- after a try ---- */

static enum verdict judge_status(struct progress *progress, const struct kube_reply *reply)
{
    progress->have_reply = true;
    progress->hint = reply->retry_after;
    if (reply->status == 401 && !progress->renewed) {
        progress->renewed = true;
        return VERDICT_REPEAT; /* with another credential, if there is one: see renew() */
    }
    if (reply->status == 429 || (reply->status == 503 && (progress->read || reply->retry_after >= 0)))
        return VERDICT_REPEAT;
    return VERDICT_FINAL;
}

static enum verdict judge_failure(struct progress *progress, const struct kube_call_status *status, bool timed_out,
                                  struct err *err)
{
    struct kube_client *client = progress->client;
    char text[CLOCK_TEXT_SIZE];
    const char *server = client->config->server;
    if (status->state == KUBE_CALL_CANCELLED && !timed_out) {
        err_set(err, ERR_CANCELLED, "the program stops");
        return VERDICT_ERROR;
    }
    auto_free char *reason =
        timed_out ? mem_printf("no answer within %s", clock_format_duration(client->request_timeout, text))
                  : mem_strdup(status->reason);
    if (status->sent && !progress->read) {
        err_set(err, ERR_UNKNOWN_OUTCOME, "%s: %s; whether the write happened is unknown", server, reason);
        return VERDICT_ERROR;
    }
    err_set(err, timed_out ? ERR_TIMEOUT : ERR_UNAVAILABLE, "%s: %s", server, reason);
    return timed_out || status->permanent ? VERDICT_ERROR : VERDICT_REPEAT;
}

/* Waits for the header, and for the whole body unless it is a stream that is handed out. */
static enum verdict receive(struct progress *progress, struct kube_call *call, struct kube_reply *reply,
                            struct err *err)
{
    const struct kube_run *run = progress->run;
    struct kube_call_status status;
    bool in_time = kube_call_wait_header(call, run->deadline, &status);
    /* also when the body has broken off already: how much of it is of use is the reader's business */
    bool hand_out =
        in_time && run->stream && status.status >= 200 && status.status < 300 && status.state != KUBE_CALL_CANCELLED;
    if (in_time && status.state == KUBE_CALL_RUNNING && !hand_out)
        in_time = kube_call_wait_end(call, run->deadline, &status);
    bool timed_out = false;
    if (!in_time) {
        kube_call_abort(call, &status);
        timed_out = status.state != KUBE_CALL_COMPLETE && !kube_io_cancelled(progress->client->io);
    } else if (status.state == KUBE_CALL_FAILED && !hand_out) {
        kube_call_abort(call, &status); /* it is over: now `sent` is exact */
    }
    if (!hand_out && status.state != KUBE_CALL_COMPLETE)
        return judge_failure(progress, &status, timed_out, err);
    reply->status = status.status;
    reply->retry_after = status.retry_after;
    if (hand_out)
        return VERDICT_FINAL;
    kube_call_read(call, &reply->body);
    return judge_status(progress, reply);
}

static enum verdict try_once(struct progress *progress, struct kube_reply *reply, struct err *err)
{
    struct kube_client *client = progress->client;
    const struct kube_run *run = progress->run;
    progress->have_reply = false;
    progress->hint = -1;
    struct kube_io *io = client->io;
    if (wait_for_turn(client, run, err) != 0 || (run->watch && kube_client_watch_io(client, &io, err) != 0))
        return VERDICT_ERROR;
    struct kube_auth *auth = get_auth(client, 0, err);
    if (auth == NULL)
        return VERDICT_ERROR;
    progress->refused = auth->generation;
    int64_t started = clock_mono(client->clock);
    struct kube_call_options options = {
        .method = run->method,
        .path = run->path,
        .content_type = run->content_type,
        .body = run->body,
        .auth = auth,
        .watch = run->watch,
        .throttle = run->stream && !run->watch,
        .read = progress->read,
        .buffer_limit = run->stream ? STREAM_LIMIT : KUBE_REPLY_LIMIT,
    };
    log_body(run, "API request body", run->body, run->body != NULL ? strlen(run->body) : 0);
    struct kube_call *call = kube_call_start(io, &options);
    enum verdict verdict = receive(progress, call, reply, err);
    log_end(progress, started, reply->status, reply->status == 0 ? err_text(err) : NULL);
    log_body(run, "API reply body", str_text(&reply->body), reply->body.len);
    if (verdict == VERDICT_FINAL && run->stream && !progress->have_reply)
        reply->call = mem_take(call);
    kube_call_free(call);
    kube_auth_unref(auth);
    return verdict;
}

/* After a 401: true when there is another credential now. */
static bool renew(struct progress *progress)
{
    auto_err struct err problem = {0};
    uint64_t refused = progress->refused;
    struct kube_auth *auth = get_auth(progress->client, refused, &problem);
    if (auth == NULL)
        log_warn("Credentials were refused and cannot be renewed", kv_err(&problem));
    bool changed = auth != NULL && auth->generation != refused;
    kube_auth_unref(auth);
    return changed;
}

/* Waits before a repeat; false when there is no time or sense for one. */
static bool pause_before_repeat(struct progress *progress, const struct kube_reply *reply)
{
    struct kube_client *client = progress->client;
    if (progress->have_reply && reply->status == 401)
        return renew(progress);
    int64_t delay = rng_jitter(client->rng, progress->delay, 0.5);
    if (progress->hint > delay)
        delay = progress->hint;
    progress->delay = progress->delay * 2 < LONGEST_DELAY ? progress->delay * 2 : LONGEST_DELAY;
    int64_t until = clock_mono(client->clock) + delay;
    return until < progress->run->deadline && !kube_io_sleep(client->io, until);
}

int kube_run(struct kube_client *client, const struct kube_run *run, struct kube_reply *reply, struct err *err)
{
    struct progress progress = {
        .client = client, .run = run, .read = strcmp(run->method, "GET") == 0, .delay = FIRST_DELAY};
    for (;;) {
        auto_err struct err problem = {0};
        kube_reply_clear(reply);
        enum verdict verdict = try_once(&progress, reply, &problem);
        if (verdict == VERDICT_REPEAT && pause_before_repeat(&progress, reply))
            continue;
        if (kube_io_cancelled(client->io) && verdict == VERDICT_REPEAT)
            return err_set(err, ERR_CANCELLED, "the program stops");
        if (verdict == VERDICT_FINAL || progress.have_reply)
            return 0;
        return err_move(err, &problem);
    }
}
