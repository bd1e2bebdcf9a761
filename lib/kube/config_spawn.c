/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running an exec plugin: standard output into memory with a limit, standard error stays the program's (it asks people
 * to log in there), a time limit, and an end when the program stops. Time is the machine's here, not the injected
 * clock's: the plugin is a real process.
 */
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/config_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_LIMIT ((size_t)1 << 20)
#define TIME_LIMIT (60 * CLOCK_SECOND)
#define DRAIN_LIMIT CLOCK_SECOND /* for a pipe that a child of the plugin still holds */

static char *exec_info(const struct kube_exec *exec, bool interactive)
{
    json_t *spec = json_pack("{s:b}", "interactive", interactive);
    if (exec->cluster != NULL)
        json_object_set_new(spec, "cluster", json_loads(exec->cluster, 0, NULL));
    json_t *root = json_pack("{s:s,s:s,s:o}", "kind", "ExecCredential", "apiVersion", exec->api_version, "spec", spec);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

static bool same_variable(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");
    return strncmp(a, b, len) == 0 && b[len] == '=';
}

/* Our environment, replaced or extended by the configured variables and KUBERNETES_EXEC_INFO. Only the array is new. */
static char **make_env(const struct kube_exec *exec, char *info)
{
    size_t count = 0, len = 0;
    while (environ[count] != NULL)
        count++;
    char **env = mem_calloc(count + exec->env.len + 2, sizeof(*env));
    for (size_t i = 0; i < count; i++) {
        bool replaced = same_variable(info, environ[i]);
        for (size_t k = 0; k < exec->env.len && !replaced; k++)
            replaced = same_variable(exec->env.items[k], environ[i]);
        if (!replaced)
            env[len++] = environ[i];
    }
    for (size_t i = 0; i < exec->env.len; i++)
        env[len++] = exec->env.items[i];
    env[len] = info;
    return env;
}

static int spawn(const struct kube_exec *exec, char **env, bool interactive, int output, pid_t *pid)
{
    char **argv = mem_calloc(exec->args.len + 2, sizeof(*argv));
    argv[0] = exec->command;
    for (size_t i = 0; i < exec->args.len; i++)
        argv[i + 1] = exec->args.items[i];

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (!interactive)
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);

    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    /* a group of its own so that its children can be ended too; not on a terminal, where it could not read any more */
    if (!interactive)
        flags |= POSIX_SPAWN_SETPGROUP;
    posix_spawnattr_setflags(&attributes, flags);

    int error = posix_spawnp(pid, exec->command, &actions, &attributes, argv, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(argv);
    return error;
}

struct running {
    const struct kube_exec *exec;
    int pipe, process, stop; /* descriptors; -1 = not waited for any more */
    int64_t deadline;
    struct str output;
};

static bool read_output(struct running *run, struct err *err)
{
    char buffer[4096];
    ssize_t n = read(run->pipe, buffer, sizeof(buffer));
    if (n > 0 && run->output.len + (size_t)n > OUTPUT_LIMIT) {
        err_set(err, ERR_UNAUTHORIZED, "exec plugin %s printed more than %zu bytes", run->exec->command, OUTPUT_LIMIT);
        n = -1;
    } else if (n > 0) {
        str_reserve(&run->output, OUTPUT_LIMIT / 16); /* few moves: a moved buffer leaves copies of the secret */
        str_add_len(&run->output, buffer, (size_t)n);
    } else if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        n = 1;
    } else if (n < 0) {
        err_set_errno(err, errno, "exec plugin %s: read its output", run->exec->command);
    }
    mem_wipe(buffer, sizeof(buffer));
    if (n == 0)
        run->pipe = -1;
    return n >= 0;
}

/* Until the process has ended and its output is read, or something goes wrong. */
static int wait_for(struct running *run, struct err *err)
{
    while (run->pipe >= 0 || run->process >= 0) {
        struct pollfd fds[] = {{.fd = run->pipe, .events = POLLIN},
                               {.fd = run->process, .events = POLLIN},
                               {.fd = run->stop, .events = POLLIN}};
        int64_t left = run->deadline - clock_mono(clock_real());
        if (left <= 0 && run->process < 0)
            return 0; /* it is gone, only somebody it left behind holds the pipe */
        if (left <= 0)
            return err_set(err, ERR_TIMEOUT, "exec plugin %s did not end within %d s", run->exec->command,
                           (int)(TIME_LIMIT / CLOCK_SECOND));
        int ready = poll(fds, ARRAY_LEN(fds), (int)(left / CLOCK_MS) + 1);
        if (ready < 0 && errno != EINTR)
            return err_set_errno(err, errno, "exec plugin %s: poll", run->exec->command);
        if (ready <= 0)
            continue;
        if (fds[2].revents != 0)
            return err_set(err, ERR_CANCELLED, "exec plugin %s: the program stops", run->exec->command);
        if (fds[0].revents != 0 && !read_output(run, err))
            return -1;
        if (fds[1].revents != 0) {
            run->process = -1;
            run->deadline = clock_mono(clock_real()) + DRAIN_LIMIT;
        }
    }
    return 0;
}

static int reap(const struct kube_exec *exec, pid_t pid, bool group, bool end_it, struct err *err)
{
    if (end_it)
        kill(group ? -pid : pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (end_it)
        return -1;
    if (WIFSIGNALED(status))
        return err_set(err, ERR_UNAUTHORIZED, "exec plugin %s was ended by signal %d", exec->command, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return err_set(err, ERR_UNAUTHORIZED, "exec plugin %s ended with exit status %d", exec->command,
                       WEXITSTATUS(status));
    return 0;
}

static int run_process(const struct kube_exec *exec, struct stop *stop, char **env, bool interactive,
                       struct str *output, struct err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return err_set_errno(err, errno, "exec plugin %s: pipe", exec->command);
    auto_close int from = fds[0];
    pid_t pid = -1;
    int error = spawn(exec, env, interactive, fds[1], &pid);
    close(fds[1]);
    if (error != 0)
        return err_set(err, ERR_UNAUTHORIZED, "exec plugin %s cannot be started: %s%s%s", exec->command,
                       strerrordesc_np(error), exec->install_hint != NULL ? ": " : "",
                       exec->install_hint != NULL ? exec->install_hint : "");
    auto_close int process = pidfd_open(pid, 0);
    struct running run = {.exec = exec,
                          .pipe = from,
                          .process = process,
                          .stop = stop != NULL ? stop_fd(stop) : -1,
                          .deadline = clock_mono(clock_real()) + TIME_LIMIT};
    int result = wait_for(&run, err);
    *output = run.output;
    if (reap(exec, pid, !interactive, result != 0, err) != 0)
        result = -1;
    return result;
}

int kube_exec_run(const struct kube_exec *exec, struct stop *stop, struct kube_credential *credential, int64_t *expires,
                  struct err *err)
{
    bool terminal = isatty(STDIN_FILENO) == 1;
    if (exec->mode == KUBE_EXEC_ALWAYS && !terminal)
        return err_set(err, ERR_UNAUTHORIZED,
                       "exec plugin %s wants a terminal (interactiveMode: Always) and there is none", exec->command);
    bool interactive = terminal && exec->mode != KUBE_EXEC_NEVER;
    auto_free char *info = exec_info(exec, interactive);
    auto_free char *variable = mem_printf("KUBERNETES_EXEC_INFO=%s", info);
    auto_free char **env = make_env(exec, variable);
    struct str output = {0};
    log_v(4, "Running exec credential plugin", kv_str("command", exec->command));
    int result = run_process(exec, stop, env, interactive, &output, err);
    if (result == 0)
        result = kube_exec_parse_output(exec, str_text(&output), output.len, credential, expires, err);
    if (output.data != NULL)
        mem_wipe(output.data, output.cap);
    str_free(&output);
    return result;
}
