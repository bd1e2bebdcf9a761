/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for handlers: one waits, more are started while there is work for them, those that idle for 5 s end. Light
 * jobs (answers from memory, such as Probe) come first and have a few threads beyond the limit for themselves, so that
 * hanging volume operations do not make a driver look dead. Inside lib/csi only.
 */
#ifndef BERTH_CSI_POOL_H
#define BERTH_CSI_POOL_H

#include <stdbool.h>
#include <stddef.h>

struct csi_pool;

struct csi_job { /* a member of what is to be done */
    struct csi_job *next;
    bool light;
};

/* `run` gets each job on one of the pool's threads; at most `limit` heavy jobs at once. */
struct csi_pool *csi_pool_new(int limit, void (*run)(struct csi_job *job));
/* False when more jobs wait than the pool takes (1024). */
bool csi_pool_submit(struct csi_pool *pool, struct csi_job *job);
int csi_pool_threads(struct csi_pool *pool);
/* Runs what was submitted to its end, then joins all threads. NULL is fine. */
void csi_pool_free(struct csi_pool *pool);

#endif
