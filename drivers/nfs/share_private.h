/* SPDX-License-Identifier: Apache-2.0 */
/* Between share.c and the protocols (nfs3.c, nfs4.c). */
#ifndef BERTH_NFS_SHARE_PRIVATE_H
#define BERTH_NFS_SHARE_PRIVATE_H

#include "drivers/nfs/share.h"

/* included before libnfs-raw.h, which needs it declared */
struct rpc_context;

struct share_protocol {
    int version;
    /* Connects, and fills root, read_max and write_max. */
    int (*open)(struct share *share, struct err *err);
    /* Each queues one call; the reply goes to call->fh and so on. 0 or errno. */
    int (*lookup)(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name);
    int (*getattr)(struct share *share, struct share_call *call, const struct share_fh *fh);
    int (*setattr)(struct share *share, struct share_call *call, const struct share_fh *fh,
                   const struct share_set *set);
    int (*access)(struct share *share, struct share_call *call, const struct share_fh *fh, uint32_t bits);
    int (*readlink)(struct share *share, struct share_call *call, const struct share_fh *fh);
    int (*read)(struct share *share, struct share_call *call, const struct share_fh *fh, uint64_t offset);
    int (*write)(struct share *share, struct share_call *call, const struct share_fh *fh, uint64_t offset,
                 const void *data, size_t len, bool stable);
    int (*commit)(struct share *share, struct share_call *call, const struct share_fh *fh);
    int (*mkdir)(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                 const struct share_set *set);
    int (*symlink)(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                   const char *target, const struct share_set *set);
    int (*mknod)(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                 const struct share_attr *like, const struct share_set *set);
    int (*link)(struct share *share, struct share_call *call, const struct share_fh *fh, const struct share_fh *dir,
                const char *name);
    int (*rename)(struct share *share, struct share_call *call, const struct share_fh *from_dir, const char *from,
                  const struct share_fh *to_dir, const char *to);
    int (*remove)(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                  bool directory);
    int (*readdir)(struct share *share, struct share_call *call, const struct share_fh *dir, uint32_t bytes);
    int (*statfs)(struct share *share, struct share_call *call, const struct share_fh *fh);
    /* Not one call but several: waits itself. */
    int (*create)(struct share *share, const struct share_fh *dir, const char *name, bool exclusive,
                  const struct share_set *set, struct share_fh *fh, struct share_attr *attr);
};
extern const struct share_protocol share_nfs3, share_nfs4;

struct share_client4 { /* NFSv4: who we are, made at the first file */
    bool known;
    uint64_t id;
    uint32_t sequence; /* of the open owner */
    char owner[40];
};

struct share {
    struct share_location location;
    struct share_options options;
    char *address; /* the server's, numeric */
    struct rpc_context *rpc;
    const struct share_protocol *protocol;
    int64_t deadline;
    struct stop *cancel;
    int broken; /* errno that ended the connection */
    struct share_fh root;
    uint32_t read_max, write_max;
    struct share_client4 client4;
};

/* Connects share->rpc to a program of the server; port 0 = ask its rpcbind. */
int share_connect(struct share *share, unsigned program, unsigned version, int port, struct err *err);
void share_disconnect(struct share *share);
/* mount3.c: fills share->root by the MOUNT protocol (NFSv3). */
int share_mount3(struct share *share, struct err *err);
/* Waits until call->done; returns call->error. */
int share_finish(struct share *share, struct share_call *call);
/* Starts with `call` (an expression that gives errno), waits, and does it again while the server says "later". */
#define SHARE_RUN(share, call, start)                                                                                  \
    __extension__({                                                                                                    \
        int run_error_;                                                                                                \
        int64_t run_pause_ = 50 * CLOCK_MS;                                                                            \
        do {                                                                                                           \
            (call)->done = false;                                                                                      \
            run_error_ = (share)->broken;                                                                              \
            if (run_error_ == 0)                                                                                       \
                run_error_ = (start);                                                                                  \
            if (run_error_ == 0)                                                                                       \
                run_error_ = share_finish((share), (call));                                                            \
        } while (run_error_ == EAGAIN && share_pause((share), &run_pause_));                                           \
        run_error_;                                                                                                    \
    })
bool share_pause(struct share *share, int64_t *pause); /* false when there is no time left */
/* The callback of every RPC; private_data is the call. */
void share_replied(struct rpc_context *rpc, int status, void *data, void *private_data);
int share_errno_of_status(unsigned status); /* of NFSv3 and NFSv4, 0 for success */
bool share_set_fh(struct share_fh *fh, const char *data, size_t len);
struct share_entry *share_page_add(struct share_page *page, const char *name, size_t len);

enum share_step_kind { STEP_RESOLVE, STEP_CONNECT, STEP_PORT, STEP_MOUNT, STEP_ROOT, STEP_CALL };
/* explain.c; `what` is what was tried, `detail` (may be NULL) the library's words. */
int share_explain(const struct share_location *location, const struct share_credential *credential,
                  enum share_step_kind step, int error, const char *what, const char *detail, struct err *err);

/* resolve.c: the server's numeric address. */
int share_resolve(const char *server, struct clock *clock, int64_t deadline, char **address, int *error);

#endif
