/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/spawn.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_LIMIT 4096
#define DIES_WITHIN (500 * CLOCK_MS)

extern char **environ;

int spawn_start(const struct strv *argv, bool detached, pid_t *pid, int *output, struct err *err)
{
    int pipe_fds[2];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return err_set_errno(err, errno, "starting %s", argv->items[0]);
    auto_free char **words = mem_calloc(argv->len + 1, sizeof(char *));
    memcpy(words, argv->items, argv->len * sizeof(char *));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
    if (!detached) /* a detached one goes on logging where we do */
        posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 2);
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(
        &attributes, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (detached ? POSIX_SPAWN_SETSID : 0)));
    int error = posix_spawnp(pid, words[0], &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    if (error != 0) {
        close(pipe_fds[0]);
        return err_set_errno(err, error, "starting %s", argv->items[0]);
    }
    *output = pipe_fds[0];
    return 0;
}

bool spawn_read(int output, bool line, struct clock *clock, int64_t deadline, struct str *out)
{
    char buffer[512];
    for (;;) {
        int64_t left = deadline - clock_mono(clock);
        struct pollfd fd = {.fd = output, .events = POLLIN};
        if (left <= 0)
            return false;
        if (poll(&fd, 1, left > CLOCK_SECOND ? 1000 : (int)(left / CLOCK_MS) + 1) <= 0)
            continue;
        ssize_t got = read(output, buffer, sizeof(buffer));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return true;
        if (out->len < OUTPUT_LIMIT)
            str_add_len(out, buffer, (size_t)got);
        if (line && strchr(out->data, '\n') != NULL)
            return true;
    }
}

bool spawn_wait(pid_t pid, struct clock *clock, int64_t deadline, int *status)
{
    for (int pause = 1;; pause = pause < 50 ? pause * 2 : 50) {
        pid_t result = waitpid(pid, status, WNOHANG);
        if (result == pid || (result < 0 && errno != EINTR))
            return true;
        if (clock_mono(clock) >= deadline)
            return false;
        poll(NULL, 0, pause);
    }
}

int spawn_run(const struct strv *argv, struct clock *clock, int64_t deadline, struct str *out, pid_t *stuck,
              struct err *err)
{
    auto_close int output = -1;
    pid_t pid = 0;
    int status = 0;
    *stuck = 0;
    if (spawn_start(argv, false, &pid, &output, err) < 0)
        return -1;
    bool ended = spawn_read(output, false, clock, deadline, out) && spawn_wait(pid, clock, deadline, &status);
    if (!ended) {
        kill(pid, SIGKILL);
        if (!spawn_wait(pid, clock, clock_mono(clock) + DIES_WITHIN, &status))
            *stuck = pid;
        return err_set(err, ERR_TIMEOUT, "%s did not end in time and was killed", argv->items[0]);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    while (out->len > 0 && out->data[out->len - 1] == '\n')
        out->data[--out->len] = '\0';
    return err_set(err, ERR_IO, "%s failed: %s", argv->items[0], str_text(out));
}
