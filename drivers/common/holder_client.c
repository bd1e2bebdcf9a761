/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/holder_client.h"

#include "drivers/common/holder_packet.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RETRY_PAUSE (50 * CLOCK_MS)
#define CONNECT_PATIENCE (5 * CLOCK_SECOND) /* for a holder that is being replaced */
/* Who calls while somebody has just waited this long in vain does not wait as well: a driver with a hundred volumes
 * would stand still for as many times five seconds. */
#define VAIN_WAIT CLOCK_SECOND
#define ANSWER_MARGIN (500 * CLOCK_MS) /* the holder's deadline comes first, so that its reason reaches the caller */

extern char **environ;

struct holder_client {
    char *socket, *holder_program, *fuse_program;
    struct stop *never;           /* only to sleep on */
    atomic_int_least64_t gave_up; /* when a call last waited in vain; 0 = somebody has answered since */
};

struct holder_client *holder_client_new(const struct holder_client_options *options)
{
    struct holder_client *client = mem_new(struct holder_client);
    client->socket = mem_strdup(options->socket != NULL ? options->socket : HOLDER_DEFAULT_SOCKET);
    client->holder_program = mem_strdup(options->holder_program);
    client->fuse_program = mem_strdup(options->fuse_program);
    client->never = stop_new();
    return client;
}

void holder_client_free(struct holder_client *client)
{
    if (client == NULL)
        return;
    free(client->socket);
    free(client->holder_program);
    free(client->fuse_program);
    stop_free(client->never);
    free(client);
}

/* ---- starting a holder ---- */

/* The directory of the socket, with its parents. */
static char *make_directory(const struct holder_client *client, struct err *err)
{
    auto_free char *path = mem_strdup(client->socket);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool last = strchr(slash + 1, '/') == NULL;
        if (mkdir(path, last ? 0700 : 0755) != 0 && errno != EEXIST) {
            err_set_errno(err, errno, "making %s", path);
            return NULL;
        }
        *slash = '/';
    }
    *strrchr(path, '/') = '\0';
    return mem_take(path);
}

static int run_holder(const struct holder_client *client, const char *directory, struct err *err)
{
    auto_free char *socket_flag = mem_printf("--socket=%s", client->socket);
    auto_free char *log_flag = mem_printf("--log-file=%s/holder.log", directory);
    auto_free char *fuse_flag =
        client->fuse_program != NULL ? mem_printf("--fuse-program=%s", client->fuse_program) : NULL;
    char *arguments[] = {client->holder_program, socket_flag, log_flag, (char[]){"--daemonize"}, fuse_flag, NULL};
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid = 0;
    int status = 0;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    int error = posix_spawn(&pid, client->holder_program, NULL, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    if (error != 0)
        return err_set_errno(err, error, "starting %s", client->holder_program);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s did not start: see %s/holder.log", client->holder_program, directory);
    return 0;
}

/* Starts one unless somebody else has done so meanwhile. */
static int start_holder(const struct holder_client *client, struct err *err)
{
    auto_free char *directory = make_directory(client, err);
    if (directory == NULL)
        return -1;
    auto_free char *path = mem_printf("%s/start.lock", directory);
    auto_close int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0)
        return err_set_errno(err, errno, "opening %s", path);
    while (flock(lock, LOCK_EX) != 0)
        if (errno != EINTR)
            return err_set_errno(err, errno, "locking %s", path);
    auto_close int fd = holder_packet_connect(client->socket, NULL);
    return fd >= 0 ? 0 : run_holder(client, directory, err);
}

/* ---- calls ---- */

static int connect_until(struct holder_client *client, int64_t deadline, struct err *err)
{
    bool started = false;
    const int64_t start = clock_mono(clock_real()), gave_up = atomic_load(&client->gave_up);
    const int64_t patience = gave_up != 0 && start - gave_up < CONNECT_PATIENCE ? 0 : CONNECT_PATIENCE;
    deadline = deadline < start + patience ? deadline : start + patience;
    for (;;) {
        int fd = holder_packet_connect(client->socket, err);
        if (fd >= 0)
            atomic_store(&client->gave_up, 0);
        if (fd >= 0 || !err_is(err, ERR_UNAVAILABLE))
            return fd;
        if (client->holder_program != NULL && !started) {
            err_clear(err);
            if (start_holder(client, err) < 0)
                return -1;
            started = true;
            continue;
        }
        const int64_t now = clock_mono(clock_real());
        if (now + RETRY_PAUSE >= deadline) {
            if (now - start >= VAIN_WAIT)
                atomic_store(&client->gave_up, now);
            return -1;
        }
        err_clear(err);
        stop_sleep(client->never, clock_real(), RETRY_PAUSE); /* a new one may be about to take its place */
    }
}

static int call_once(struct holder_client *client, json_t *request, json_t **answer, int64_t deadline, struct err *err)
{
    auto_packet struct holder_packet packet = {0};
    auto_close int fd = connect_until(client, deadline, err);
    if (fd < 0)
        return -1;
    int64_t left = deadline - clock_mono(clock_real()) - ANSWER_MARGIN;
    json_object_set_new(request, "timeoutMs", json_integer(left > CLOCK_MS ? left / CLOCK_MS : 1));
    if (holder_packet_send(fd, request, NULL, 0, deadline, err) < 0 ||
        holder_packet_receive(fd, &packet, deadline, err) < 0)
        return -1;
    if (packet.body == NULL)
        return err_set(err, ERR_UNAVAILABLE, "the holder went away");
    if (holder_packet_check(packet.body, err) < 0)
        return -1;
    *answer = json_incref(packet.body);
    return 0;
}

/* Takes the request. The answer is a new reference; may be NULL when nobody needs it. All calls are idempotent, so one
 * whose holder went away before it answered is simply made again. */
static int call(struct holder_client *client, json_t *request, json_t **answer, int64_t timeout_ns, struct err *err)
{
    int64_t deadline = clock_mono(clock_real()) + timeout_ns;
    json_t *own = NULL;
    int result = -1;
    if (request == NULL)
        return err_set(err, ERR_INVALID, "an argument is missing or no UTF-8 text");
    for (bool first = true; result < 0; first = false) {
        auto_err struct err one = {0};
        result = call_once(client, request, &own, deadline, &one);
        if (result == 0)
            break;
        bool moved =
            one.code == ERR_GONE || (one.code == ERR_UNAVAILABLE && str_eq(one.message, "the holder went away"));
        if (!moved || (!first && clock_mono(clock_real()) + RETRY_PAUSE >= deadline)) {
            err_move(err, &one);
            break;
        }
        stop_sleep(client->never, clock_real(), RETRY_PAUSE);
    }
    json_decref(request);
    if (result == 0 && answer != NULL)
        *answer = json_incref(own);
    json_decref(own);
    return result;
}

int holder_mount_volume(struct holder_client *client, const struct holder_mount *mount, int64_t timeout_ns,
                        struct err *err)
{
    json_t *options = json_array();
    for (size_t i = 0; mount->options != NULL && i < mount->options->len; i++)
        json_array_append_new(options, json_string(mount->options->items[i]));
    json_t *request =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:b, s:o}", "op", "mount", "id", mount->id, "directory",
                  mount->directory, "target", mount->target, "limit", (json_int_t)mount->limit, "inodeLimit",
                  (json_int_t)mount->inode_limit, "readOnly", mount->read_only, "options", options);
    return call(client, request, NULL, timeout_ns, err);
}

int holder_unmount_volume(struct holder_client *client, const char *id, const char *target, bool *in_use,
                          int64_t timeout_ns, struct err *err)
{
    json_t *request = json_pack("{s:s, s:s, s:s?}", "op", "unmount", "id", id, "target", target);
    json_t *answer = NULL;
    if (call(client, request, &answer, timeout_ns, err) < 0)
        return -1;
    if (in_use != NULL)
        *in_use = json_is_true(json_object_get(answer, "inUse"));
    json_decref(answer);
    return 0;
}

int holder_set_limit(struct holder_client *client, const char *id, int64_t limit, int64_t inode_limit,
                     int64_t timeout_ns, struct err *err)
{
    json_t *request = json_pack("{s:s, s:s, s:I, s:I}", "op", "set-limit", "id", id, "limit", (json_int_t)limit,
                                "inodeLimit", (json_int_t)inode_limit);
    return call(client, request, NULL, timeout_ns, err);
}

int holder_volume_stats(struct holder_client *client, const char *id, struct holder_stats *stats, int64_t timeout_ns,
                        struct err *err)
{
    json_t *answer = NULL;
    if (call(client, json_pack("{s:s, s:s}", "op", "stats", "id", id), &answer, timeout_ns, err) < 0)
        return -1;
    *stats = (struct holder_stats){.limit = json_integer_value(json_object_get(answer, "limit")),
                                   .used = json_integer_value(json_object_get(answer, "used")),
                                   .inode_limit = json_integer_value(json_object_get(answer, "inodeLimit")),
                                   .inodes = json_integer_value(json_object_get(answer, "inodes"))};
    json_decref(answer);
    return 0;
}

/* ---- lists ---- */

static char *take_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return mem_strdup(value != NULL ? value : "");
}

static void read_entry(const json_t *object, struct holder_entry *entry)
{
    *entry = (struct holder_entry){.id = take_text(object, "id"),
                                   .directory = take_text(object, "directory"),
                                   .target = take_text(object, "target"),
                                   .limit = json_integer_value(json_object_get(object, "limit")),
                                   .read_only = json_is_true(json_object_get(object, "readOnly")),
                                   .serving = json_is_true(json_object_get(object, "serving")),
                                   .detached = json_is_true(json_object_get(object, "detached")),
                                   .pid = json_integer_value(json_object_get(object, "pid")),
                                   .restarts = json_integer_value(json_object_get(object, "restarts")),
                                   .problem = take_text(object, "problem")};
}

void holder_entry_clear(struct holder_entry *entry)
{
    free(entry->id);
    free(entry->directory);
    free(entry->target);
    free(entry->problem);
    *entry = (struct holder_entry){0};
}

void holder_list_free(struct holder_list *list)
{
    for (size_t i = 0; i < list->len; i++)
        holder_entry_clear(&list->items[i]);
    free(list->items);
    *list = (struct holder_list){0};
}

static void add_page(struct holder_list *list, const json_t *entries)
{
    size_t index;
    json_t *entry;
    list->items = mem_realloc_array(list->items, list->len + json_array_size(entries) + 1, sizeof(*list->items));
    json_array_foreach (entries, index, entry)
        read_entry(entry, &list->items[list->len++]);
}

int holder_list_mounts(struct holder_client *client, struct holder_list *list, int64_t timeout_ns, struct err *err)
{
    int64_t deadline = clock_mono(clock_real()) + timeout_ns;
    bool more = true;
    *list = (struct holder_list){0};
    while (more) {
        const char *after = list->len > 0 ? list->items[list->len - 1].id : NULL;
        json_t *answer = NULL;
        if (call(client, json_pack("{s:s, s:s?}", "op", "list", "after", after), &answer,
                 deadline - clock_mono(clock_real()), err) < 0) {
            holder_list_free(list);
            return -1;
        }
        const json_t *entries = json_object_get(answer, "mounts");
        more = json_is_true(json_object_get(answer, "more")) && json_array_size(entries) > 0;
        add_page(list, entries);
        json_decref(answer);
    }
    return 0;
}

int holder_find_mount(struct holder_client *client, const char *id, struct holder_entry *entry, int64_t timeout_ns,
                      struct err *err)
{
    json_t *answer = NULL;
    *entry = (struct holder_entry){0};
    if (call(client, json_pack("{s:s, s:s}", "op", "list", "id", id), &answer, timeout_ns, err) < 0)
        return -1;
    const json_t *found = json_array_get(json_object_get(answer, "mounts"), 0);
    if (found != NULL)
        read_entry(found, entry);
    json_decref(answer);
    return found != NULL ? 0 : err_set(err, ERR_NOT_FOUND, "volume %s is not mounted", id);
}

int holder_check_health(struct holder_client *client, struct holder_health *health, int64_t timeout_ns, struct err *err)
{
    json_t *answer = NULL;
    if (call(client, json_pack("{s:s}", "op", "health"), &answer, timeout_ns, err) < 0)
        return -1;
    *health = (struct holder_health){.mounts = json_integer_value(json_object_get(answer, "mounts")),
                                     .serving = json_integer_value(json_object_get(answer, "serving")),
                                     .resend = json_is_true(json_object_get(answer, "resend"))};
    auto_free char *version = take_text(answer, "version");
    snprintf(health->version, sizeof(health->version), "%s", version);
    json_decref(answer);
    return 0;
}

int holder_restart_processes(struct holder_client *client, int64_t timeout_ns, struct err *err)
{
    return call(client, json_pack("{s:s}", "op", "restart"), NULL, timeout_ns, err);
}
