/* SPDX-License-Identifier: Apache-2.0 */
/* The berth-fuse processes: starting them, and finding again one that another holder started. Processes are named by
 * pidfds only: a number alone is never signalled. */
#ifndef BERTH_HOLDER_PROCESS_H
#define BERTH_HOLDER_PROCESS_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_FUSE_FD 3 /* the number of /dev/fuse in each berth-fuse: a later holder finds it by that */
#define PROCESS_READY_FD 4

struct process_start {
    const char *program;
    char *const *arguments; /* NULL at the end; [0] = name */
    int fuse_fd;
    const char *cgroup; /* directory to put it into; NULL = stays in the holder's */
};
struct process {
    pid_t pid;
    int pid_fd;
    int ready_fd; /* gets a byte when it serves */
    uint64_t start;
};
int process_start(const struct process_start *options, struct process *process, struct err *err);

/* Has ended (also when it is somebody else's child); reaps it if it is ours. *status as of waitpid, -1 = not known. */
bool process_has_ended(int pid_fd, int *status);
/* In words: "exit status 1", "signal 9". */
char *process_describe_status(int status); /* owned by the caller */
int process_signal(int pid_fd, int signal, struct err *err);

/* Start time of a process, 0 when there is none. */
uint64_t process_start_time(pid_t pid);
/* The process of that number, if it started then and its command line has `argument` in it; a pidfd or -1. */
int process_find(pid_t pid, uint64_t start, const char *argument, struct err *err);
/* Its descriptor of /dev/fuse. */
int process_take_fuse_fd(int pid_fd, struct err *err);
/* The process's number as seen from here; 0 when it cannot be seen. */
pid_t process_number(int pid_fd);

/* Whether the file system of this descriptor is mounted somewhere still. */
bool process_is_connected(int fuse_fd);

#endif
