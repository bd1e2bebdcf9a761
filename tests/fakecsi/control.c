/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "tests/fakecsi/fake.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static json_t *do_script(struct fake *fake, const json_t *command)
{
    const char *method = json_string_value(json_object_get(command, "method"));
    json_t *steps = json_object_get(command, "steps");
    if (method == NULL || !json_is_array(steps))
        return json_pack("{s:s}", "error", "script needs a method and steps");
    json_t *list = json_object_get(fake->steps, method);
    if (list == NULL) {
        list = json_array();
        json_object_set_new(fake->steps, method, list);
    }
    json_array_extend(list, steps);
    return json_pack("{s:i}", "steps", (int)json_array_size(list));
}

static json_t *do_calls(struct fake *fake, const json_t *command)
{
    (void)command;
    return json_pack("{s:O}", "calls", fake->calls);
}

static json_t *do_volumes(struct fake *fake, const json_t *command)
{
    (void)command;
    return json_pack("{s:O}", "volumes", fake->volumes);
}

static json_t *do_reset(struct fake *fake, const json_t *command)
{
    (void)command;
    json_object_clear(fake->steps);
    json_array_clear(fake->calls);
    return json_object();
}

static json_t *do_forget(struct fake *fake, const json_t *command)
{
    (void)command;
    json_object_clear(fake->volumes);
    fake_save(fake);
    return json_object();
}

static json_t *do_capacity(struct fake *fake, const json_t *command)
{
    fake->capacity = json_integer_value(json_object_get(command, "bytes"));
    const json_t *maximum = json_object_get(command, "maximum");
    fake->maximum = maximum != NULL ? json_integer_value(maximum) : -1;
    return json_object();
}

static const struct {
    const char *name;
    json_t *(*run)(struct fake *fake, const json_t *command);
} commands[] = {{"script", do_script}, {"calls", do_calls},   {"volumes", do_volumes},
                {"reset", do_reset},   {"forget", do_forget}, {"capacity", do_capacity}};

static json_t *run_command(struct fake *fake, const char *line)
{
    json_error_t where;
    json_t *command = json_loads(line, 0, &where), *reply = NULL;
    const char *name = json_string_value(json_object_get(command, "cmd"));
    pthread_mutex_lock(&fake->lock);
    for (size_t i = 0; i < ARRAY_LEN(commands) && reply == NULL; i++)
        if (str_eq(commands[i].name, name))
            reply = commands[i].run(fake, command);
    if (reply == NULL)
        reply = json_pack("{s:s}", "error", command == NULL ? where.text : "unknown command");
    json_t *copy = json_deep_copy(reply); /* what it refers to may change once the lock is free */
    json_decref(reply);
    pthread_mutex_unlock(&fake->lock);
    json_decref(command);
    return copy;
}

static void serve(struct fake *fake, int fd)
{
    FILE *stream = fdopen(fd, "r+");
    if (stream == NULL) {
        close(fd);
        return;
    }
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stream) > 0) {
        json_t *reply = run_command(fake, line);
        json_dumpf(reply, stream, JSON_COMPACT);
        json_decref(reply);
        fputc('\n', stream);
        fflush(stream);
    }
    free(line);
    fclose(stream);
}

struct control {
    struct fake *fake;
    int fd;
};

static void *control_main(void *arg)
{
    struct control *control = arg;
    struct pollfd fds[] = {{.fd = control->fd, .events = POLLIN},
                           {.fd = stop_fd(control->fake->stop), .events = POLLIN}};
    while (!stop_requested(control->fake->stop)) {
        if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
            break;
        if ((fds[0].revents & POLLIN) != 0) {
            int fd = accept(control->fd, NULL, NULL);
            if (fd >= 0)
                serve(control->fake, fd);
        }
    }
    close(control->fd);
    free(control);
    return NULL;
}

static int listen_at(const char *path, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(err, ERR_INVALID, "%s: the path is too long for a socket", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(path);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 16) == 0)
        return fd;
    err_set_errno(err, errno, "%s", path);
    if (fd >= 0)
        close(fd);
    return -1;
}

int fake_control_start(struct fake *fake, pthread_t *thread, struct err *err)
{
    int fd = listen_at(fake->options->control, err);
    if (fd < 0)
        return -1;
    struct control *control = mem_new(struct control);
    *control = (struct control){.fake = fake, .fd = fd};
    *thread = thread_start("control", control_main, control);
    return 0;
}
