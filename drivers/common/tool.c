/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/tool.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAID_MAX ((size_t)1024)

static char *find_program(const char *name)
{
    static const char *const usual[] = {"/usr/sbin", "/sbin", "/usr/bin", "/bin"};
    auto_strv struct strv places = {0};
    const char *path = getenv("PATH");
    if (path != NULL)
        strv_split(&places, path, ':');
    for (size_t i = 0; i < ARRAY_LEN(usual); i++)
        strv_add(&places, usual[i]);
    for (size_t i = 0; i < places.len; i++) {
        auto_free char *file = mem_printf("%s/%s", places.items[i], name);
        if (places.items[i][0] == '/' && access(file, X_OK) == 0)
            return mem_take(file);
    }
    return NULL;
}

static int spawn(const char *program, const char *const *argv, int said, pid_t *pid)
{
    static char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, said, 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int error = posix_spawn(pid, program, &actions, &attributes, (char *const *)argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Reads what the program says until it closes its end; 0, or the reason to kill it. */
static enum err_code listen_to(int said, int64_t deadline, struct stop *stop, struct str *text)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = said, .events = POLLIN},
                               {.fd = stop != NULL ? stop_fd(stop) : -1, .events = POLLIN}};
        int64_t left = deadline == CLOCK_NEVER ? CLOCK_SECOND : (deadline - clock_mono(clock_real()));
        if (left <= 0)
            return ERR_TIMEOUT;
        int ready = poll(fds, 2, (int)(left > CLOCK_SECOND ? 1000 : left / CLOCK_MS + 1));
        if (ready < 0 && errno != EINTR)
            return ERR_IO;
        if (ready > 0 && fds[1].revents != 0)
            return ERR_CANCELLED;
        if (ready <= 0 || fds[0].revents == 0)
            continue;
        char buffer[512];
        ssize_t got = read(said, buffer, sizeof(buffer));
        if (got == 0)
            return ERR_NONE;
        if (got > 0)
            str_add_len(text, buffer, (size_t)got);
        if (text->len > 2 * SAID_MAX)
            str_consume(text, text->len - SAID_MAX);
    }
}

static void one_line(struct str *text)
{
    while (text->len > 0 && (text->data[text->len - 1] == '\n' || text->data[text->len - 1] == ' '))
        text->data[--text->len] = '\0';
    for (size_t i = 0; i < text->len; i++)
        if ((unsigned char)text->data[i] < 0x20)
            text->data[i] = ' ';
    if (!str_is_utf8(str_text(text), text->len))
        str_reset(text);
}

int tool_run(const char *const *argv, int max_status, int64_t timeout_ns, struct stop *stop, struct err *err)
{
    auto_free char *program = find_program(argv[0]);
    auto_str struct str text = {0};
    int ends[2], status = 0;
    pid_t pid;
    if (program == NULL)
        return err_set(err, ERR_NOT_FOUND, "%s is not installed", argv[0]);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return err_set_errno(err, errno, "running %s", argv[0]);
    int error = spawn(program, argv, ends[1], &pid);
    close(ends[1]);
    auto_close int said = ends[0];
    if (error != 0)
        return err_set_errno(err, error, "running %s", program);
    int64_t deadline = timeout_ns == CLOCK_NEVER ? CLOCK_NEVER : clock_mono(clock_real()) + timeout_ns;
    enum err_code end = listen_to(said, deadline, stop, &text);
    if (end != ERR_NONE)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    one_line(&text);
    if (end != ERR_NONE)
        return err_set(err, end, "%s was ended: %s", argv[0], end == ERR_TIMEOUT ? "it took too long" : "stopped");
    if (WIFSIGNALED(status))
        return err_set(err, ERR_IO, "%s was ended by signal %d: %s", argv[0], WTERMSIG(status), str_text(&text));
    if (WEXITSTATUS(status) > max_status)
        return err_set(err, ERR_IO, "%s failed with status %d: %s", argv[0], WEXITSTATUS(status), str_text(&text));
    return 0;
}
