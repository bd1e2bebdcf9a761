/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads that are started when there is work for them: --worker-threads is 100 by default, twice, and on most
 * nodes one or two of those ever run at once. The rules are those of kube_workers.
 */
#ifndef BERTH_PROVISIONER_WORKERS_H
#define BERTH_PROVISIONER_WORKERS_H

#include "lib/kube/queue.h"

struct workers;
/* work returns 0 (the key's failures are forgotten) or -1 (again with back-off). The name must stay valid. */
struct workers *workers_start(struct kube_queue *queue, size_t max, const char *name,
                              int (*work)(void *arg, const char *key), void *arg);
size_t workers_count(struct workers *workers); /* threads started so far */
void workers_join(struct workers *workers);    /* after kube_queue_shut_down; frees; NULL is fine */

#endif
