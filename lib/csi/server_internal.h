/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by server.c (life of the server) and serve.c (life of one call). */
#ifndef BERTH_CSI_SERVER_INTERNAL_H
#define BERTH_CSI_SERVER_INTERNAL_H

#include "lib/csi/listen.h"
#include "lib/csi/pool.h"
#include "lib/csi/runtime.h"
#include "lib/csi/server.h"

#include <grpc/grpc.h>
#include <stdatomic.h>

enum server_state { SERVER_NEW, SERVER_RUNNING, SERVER_DRAINING, SERVER_CANCELLING, SERVER_STOPPED };

struct service {
    const struct csi_handlers *handlers;
    void *driver;
};

struct csi_server {
    struct csi_server_options options;
    enum server_state state; /* of the owner's thread */
    struct csi_listener *listeners;
    size_t n_listeners;
    struct service *services;
    size_t n_services;
    grpc_server *core;
    grpc_completion_queue *queue;
    struct csi_pool *pool;
    int wake_fd; /* ends the accepting thread */
    pthread_t accepting;
    pthread_t serving;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool draining;          /* new calls are refused */
    bool core_stopped;      /* the core has let go of all connections */
    size_t in_flight;       /* calls that arrived and are not gone yet */
    struct csi_call *calls; /* all that exist, those still to arrive too */
};

/* What the completion queue brings back. */
struct tag {
    void (*done)(struct tag *tag, bool ok);
    struct csi_call *call;
};

/* Arms the server for one more call. Nothing happens when it is stopping. */
void csi_serve_arm(struct csi_server *server);
void csi_serve_job(struct csi_job *job);
/* Method names of the calls that handlers still work on, for messages; owned by the caller, "" when there is none. */
char *csi_serve_running(struct csi_server *server);

#endif
