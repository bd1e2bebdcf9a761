/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/holder/process.h"

#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUSE_MAJOR 10
#define FUSE_MINOR 229
#define HIGH_FD 16 /* above the numbers that the child's descriptors get */
#define STAT_LIMIT 4096
#define COMMAND_LIMIT ((size_t)256 * 1024)
#define P_PIDFD_ 3 /* P_PIDFD, newer than this libc's enum */

extern char **environ;

static int open_pid(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void join_cgroup(const char *directory, pid_t pid)
{
    auto_free char *path = mem_printf("%s/cgroup.procs", directory);
    if (mkdir(directory, 0755) != 0 && errno != EEXIST) {
        log_warn("Cannot make the control group", kv_str("path", directory), kv_int("errno", errno));
        return;
    }
    auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || dprintf(fd, "%d", (int)pid) < 0)
        log_warn("Cannot move a process to its control group", kv_str("path", path), kv_int("errno", errno));
}

/* A session of its own, default signals, and no other descriptors than those it is meant to have (all of ours close on
 * exec). */
static int spawn(const struct process_start *options, int fuse_fd, int ready_fd, pid_t *pid)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, fuse_fd, PROCESS_FUSE_FD);
    posix_spawn_file_actions_adddup2(&actions, ready_fd, PROCESS_READY_FD);
    int error = posix_spawn(pid, options->program, &actions, &attributes, options->arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error;
}

int process_start(const struct process_start *options, struct process *process, struct err *err)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0)
        return err_set_errno(err, errno, "pipe");
    auto_close int read_end = ready[0];
    auto_close int write_end = fcntl(ready[1], F_DUPFD_CLOEXEC, HIGH_FD);
    close(ready[1]);
    auto_close int fuse_fd = fcntl(options->fuse_fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (write_end < 0 || fuse_fd < 0)
        return err_set_errno(err, errno, "duplicating a descriptor");
    pid_t pid = 0;
    int error = spawn(options, fuse_fd, write_end, &pid);
    if (error != 0)
        return err_set_errno(err, error, "starting %s", options->program);
    /* our child, and nobody has waited for it yet: the number is still its own */
    int pid_fd = open_pid(pid);
    if (pid_fd < 0) {
        error = errno;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return err_set_errno(err, error, "pidfd_open");
    }
    if (options->cgroup != NULL)
        join_cgroup(options->cgroup, pid);
    *process = (struct process){
        .pid = pid, .pid_fd = pid_fd, .ready_fd = mem_take_fd(&read_end), .start = process_start_time(pid)};
    return 0;
}

bool process_has_ended(int pid_fd, int *status)
{
    struct pollfd poller = {.fd = pid_fd, .events = POLLIN};
    siginfo_t info = {0};
    *status = -1;
    if (poll(&poller, 1, 0) <= 0)
        return false;
    if (waitid((idtype_t)P_PIDFD_, (id_t)pid_fd, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0)
        *status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
    return true;
}

char *process_describe_status(int status)
{
    if (status < 0)
        return mem_strdup("ended");
    if (WIFEXITED(status))
        return mem_printf("exit status %d", WEXITSTATUS(status));
    return mem_printf("signal %d", WTERMSIG(status));
}

int process_signal(int pid_fd, int signal, struct err *err)
{
    if (syscall(SYS_pidfd_send_signal, pid_fd, signal, NULL, 0) == 0 || errno == ESRCH)
        return 0;
    return err_set_errno(err, errno, "signalling a process");
}

uint64_t process_start_time(pid_t pid)
{
    auto_free char *path = mem_printf("/proc/%d/stat", (int)pid);
    auto_free char *text = NULL;
    unsigned long long start = 0;
    if (file_read(path, STAT_LIMIT, &text, NULL, NULL) < 0)
        return 0;
    /* the name in brackets may hold anything; field 22 is the 20th after it */
    const char *field = strrchr(text, ')');
    for (int i = 0; field != NULL && i < 20; i++) {
        field = strchr(field, ' ');
        field = field != NULL ? field + 1 : NULL;
    }
    return field != NULL && sscanf(field, "%llu", &start) == 1 ? start : 0;
}

static bool has_argument(pid_t pid, const char *argument)
{
    auto_free char *path = mem_printf("/proc/%d/cmdline", (int)pid);
    auto_free char *text = NULL;
    size_t length = 0;
    if (file_read(path, COMMAND_LIMIT, &text, &length, NULL) < 0)
        return false;
    for (size_t at = 0; at < length; at += strlen(text + at) + 1)
        if (strcmp(text + at, argument) == 0)
            return true;
    return false;
}

int process_find(pid_t pid, uint64_t start, const char *argument, struct err *err)
{
    int status;
    if (pid <= 0 || start == 0)
        return err_set(err, ERR_NOT_FOUND, "it had no process");
    auto_close int pid_fd = open_pid(pid);
    if (pid_fd < 0)
        return err_set(err, ERR_NOT_FOUND, "process %d is gone", (int)pid);
    if (process_start_time(pid) != start || !has_argument(pid, argument))
        return err_set(err, ERR_NOT_FOUND, "process %d is another one now", (int)pid);
    /* alive now, so it was the process behind the pidfd that was looked at */
    if (process_has_ended(pid_fd, &status))
        return err_set(err, ERR_NOT_FOUND, "process %d has ended", (int)pid);
    return mem_take_fd(&pid_fd);
}

int process_take_fuse_fd(int pid_fd, struct err *err)
{
    struct stat st;
    auto_close int fd = (int)syscall(SYS_pidfd_getfd, pid_fd, PROCESS_FUSE_FD, 0);
    if (fd < 0)
        return err_set_errno(err, errno,
                             "taking the descriptor of /dev/fuse from its process (CAP_SYS_PTRACE is needed)");
    if (fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(FUSE_MAJOR, FUSE_MINOR))
        return err_set(err, ERR_INVALID, "descriptor %d of its process is not /dev/fuse", PROCESS_FUSE_FD);
    return mem_take_fd(&fd);
}

pid_t process_number(int pid_fd)
{
    auto_free char *path = mem_printf("/proc/self/fdinfo/%d", pid_fd);
    auto_free char *text = NULL;
    int pid = 0;
    if (file_read(path, STAT_LIMIT, &text, NULL, NULL) < 0)
        return 0;
    const char *line = strstr(text, "\nPid:");
    return line != NULL && sscanf(line, "\nPid:%d", &pid) == 1 && pid > 0 ? (pid_t)pid : 0;
}

bool process_is_connected(int fuse_fd)
{
    struct pollfd poller = {.fd = fuse_fd, .events = POLLIN};
    return poll(&poller, 1, 0) >= 0 && (poller.revents & (POLLERR | POLLNVAL)) == 0;
}
