/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that may take longer than a call lasts, such as the copy of a volume. It runs on a thread of its own; the call
 * waits for it, and when the caller gives up, the work goes on. Meanwhile the locks it holds answer repeated calls with
 * 10 ABORTED, and afterwards they find what it made.
 */
#ifndef BERTH_DRIVERS_JOB_H
#define BERTH_DRIVERS_JOB_H

#include "lib/base/err.h"
#include "lib/base/stop.h"
#include "lib/csi/server.h"

struct jobs;
struct jobs *jobs_new(void);
/* Requests the stop of all jobs and waits for their ends; new ones are refused with 14. Idempotent. */
void jobs_stop(struct jobs *jobs);
void jobs_free(struct jobs *jobs); /* stops them first; NULL is fine */
int jobs_running(struct jobs *jobs);

/* Runs run(arg) on a new thread and waits until it returns (0 or -1, err as it set it) or the call is cancelled (then
 * -1, 10 ABORTED). `call` may be NULL: no end to the waiting. arg belongs to the job: free_arg is called once nobody
 * needs it any more, so what run puts into it for the caller stays valid until job_release. run gets the stop of all
 * jobs. *job is set also on failure; release it. */
struct job;
int jobs_run(struct jobs *jobs, struct csi_call *call, const char *what,
             int (*run)(void *arg, struct stop *stop, struct err *err), void (*free_arg)(void *arg), void *arg,
             struct job **job, struct err *err);
/* The same without waiting; nobody hears of the result but the log. arg outlives the job. */
void jobs_start(struct jobs *jobs, const char *what, int (*run)(void *arg, struct stop *stop, struct err *err),
                void *arg);
void job_release(struct job **job);
#define auto_job __attribute__((cleanup(job_release)))

#endif
