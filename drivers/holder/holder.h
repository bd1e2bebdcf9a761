/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the holder does. One lock guards the table; it is never held while something may block. A client's call marks
 * the mount it is at work on as busy; the supervisor's thread alone reacts to the ends of processes and starts their
 * successors.
 *
 *     new ──► starting ──► serving ──► (process ends) ──► waiting ──► starting …
 *                             └──► stopping (replaced on request) ──┘
 *     any ──► gone: the connection is dead, nothing is mounted any more
 */
#ifndef BERTH_HOLDER_HOLDER_H
#define BERTH_HOLDER_HOLDER_H

#include "drivers/holder/table.h"
#include "lib/base/clock.h"
#include "lib/base/stop.h"

#include <pthread.h>

struct holder_options {
    const char *state_directory; /* table, and each mount's socket and INIT file */
    const char *fuse_program;
    const char *cgroup; /* NULL = none */
    int64_t threads;    /* of each berth-fuse */
    int64_t verbosity;
};
struct holder {
    struct holder_options options;
    struct clock *clock;
    struct stop *stop;
    char *boot_id;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* any state, or busy */
    struct table table;
    int wake_fd;   /* eventfd: the supervisor shall look again */
    bool quiet;    /* being handed over: nothing is started or removed; the supervisor waits */
    bool finished; /* handed over: leave everything alone */
    bool has_supervisor;
    pthread_t supervisor;
};
/* Makes the directory if need be. */
int holder_open(struct holder *holder, const struct holder_options *options, struct stop *stop, struct err *err);
/* Takes back what an earlier holder's table names and whose processes live; says what is lost. */
int holder_recover(struct holder *holder, struct err *err);
void holder_start(struct holder *holder); /* the supervisor */
/* Leaves all mounts and processes alone. */
void holder_close(struct holder *holder);

/* lock held */
void holder_changed(struct holder *holder); /* wakes whoever waits, and the supervisor */
int holder_save(struct holder *holder, struct err *err);
/* Starts its process; in states new and waiting. */
int holder_start_process(struct holder *holder, struct held *held, struct err *err);
char *holder_file(const struct holder *holder, const struct held *held, const char *suffix); /* SLOT.suffix */
/* Waits while another call is at work on this id, then marks it; NULL with err empty: there is no such mount.
 * ERR_GONE: handed over, the client has to ask the new holder. */
struct held *holder_claim(struct holder *holder, const char *id, int64_t deadline, struct err *err);
void holder_release(struct holder *holder, struct held *held);
void holder_forget(struct holder *holder, struct held *held); /* closes, removes its files and the entry */

/* The calls of clients; all of them as in holder_client.h. */
struct holder_mount_request {
    const char *id, *directory, *target;
    int64_t limit, inode_limit;
    bool read_only;
    struct strv options;
};
int holder_do_mount(struct holder *holder, const struct holder_mount_request *request, int64_t deadline,
                    struct err *err);
int holder_do_unmount(struct holder *holder, const char *id, const char *target, int64_t deadline, bool *in_use,
                      struct err *err);
int holder_do_set_limit(struct holder *holder, const char *id, int64_t limit, int64_t inode_limit, int64_t deadline,
                        struct err *err);
struct fuse_control_answer;
int holder_do_stats(struct holder *holder, const char *id, int64_t deadline, struct fuse_control_answer *answer,
                    struct err *err);
int holder_do_restart(struct holder *holder, int64_t deadline, struct err *err);

/* Hand-over. The giving side serves it on a client's connection and returns 0 when all is the other's; the taking side
 * gets the table and the listening socket. ERR_UNAVAILABLE: nobody there to take over from. */
int holder_give(struct holder *holder, int connection, int listen_fd, struct err *err);
int holder_take(struct holder *holder, const char *socket_path, int *listen_fd, struct err *err);

#endif
