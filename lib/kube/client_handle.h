/* SPDX-License-Identifier: Apache-2.0 */
/* Private to client_io.c and client_handle.c: the parts of a call, and how an easy handle is set up for it. */
#ifndef BERTH_KUBE_CLIENT_HANDLE_H
#define BERTH_KUBE_CLIENT_HANDLE_H

#include "lib/kube/client_io.h"

#include <curl/curl.h>

/* What all handles have in common; read-only after it was made. */
struct kube_target {
    const struct kube_config *config;
    char *base;        /* URL that paths are appended to */
    char *connect_to;  /* CURLOPT_CONNECT_TO entry when the certificate is checked for another name; NULL else */
    char *host_header; /* "Host: …" for that case */
    struct curl_slist *connect_list;
    char *user_agent;
    char *proxy; /* NULL = what the environment says, "" = none */
    long http_version;
};
int kube_target_init(struct kube_target *target, const struct kube_config *config, const char *user_agent,
                     struct err *err);
void kube_target_clear(struct kube_target *target);

struct kube_call {
    struct kube_io *io;
    struct kube_call *next, *previous; /* in the queue or among the active ones */
    struct kube_call *all_next, *all_previous;
    /* fixed by the starter */
    char *url;
    const char *method, *body;
    struct kube_auth *auth;
    struct curl_slist *headers;
    bool watch, throttle, read;
    size_t buffer_limit;
    /* the io thread's alone */
    CURL *easy;
    bool sent, vetoed, too_large;
    char error[CURL_ERROR_SIZE];
    int header_status;
    int64_t header_retry_after;
    /* under the io's mutex */
    pthread_cond_t cond;
    enum kube_call_state state;
    bool cancel;   /* wished */
    bool paused;   /* libcurl was told to stop receiving */
    bool finished; /* the io thread has let go of it */
    int status;
    int64_t retry_after;
    bool permanent;
    char reason[256];
    struct str buffer;
};

/* Header lines of the request; owned by the caller. */
struct curl_slist *kube_call_headers(const struct kube_target *target, const struct kube_call_options *options);
void kube_call_headers_free(struct curl_slist *headers); /* wipes them */
/* Everything about `easy` but the callbacks' ends below. */
void kube_call_setup(CURL *easy, struct kube_call *call, const struct kube_target *target);
/* Whether a repetition cannot help, and a sentence for people. */
bool kube_call_explain(CURLcode code, const struct kube_call *call, char *text, size_t size);

/* In client_io.c. */
void kube_call_on_header(struct kube_call *call);
/* What the write callback is to return. */
size_t kube_call_on_body(struct kube_call *call, const char *data, size_t len);

#endif
