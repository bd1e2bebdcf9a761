/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/hostpath/capacity.h"
#include "drivers/hostpath/dispatch.h"
#include "drivers/hostpath/telemetry.h"
#include "drivers/hostpath/usage.h"

#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/csi/client.h"
#include "lib/observe/http.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define STOP_GRACE (10 * CLOCK_SECOND)
#define STATE_PATIENCE (30 * CLOCK_SECOND) /* for the driver that this one replaces; a pod stops sooner */
#define STATE_RETRY (100 * CLOCK_MS)

struct program {
    const struct hostpath_flags *flags;
    struct stop *stop;
    struct hostpath driver;
    struct telemetry *telemetry;
    struct csi_handlers handlers;
    struct csi_server *server;
    struct csi_registration *registration;
};

/* Kubelet does not want us: a new start tries again. */
static void on_registration(void *arg, bool registered, const char *error)
{
    const struct program *program = arg;
    (void)error;
    if (!registered)
        stop_request(program->stop);
}

static int add_registration(struct program *program, struct err *err)
{
    const struct hostpath_flags *flags = program->flags;
    if (str_empty(flags->registration_directory))
        return 0;
    auto_free char *own_path = csi_address_path(flags->endpoint, err);
    if (own_path == NULL)
        return -1;
    const struct csi_registration_options options = {
        .registry_dir = flags->registration_directory,
        .driver_name = flags->driver_name,
        .kubelet_endpoint = str_empty(flags->kubelet_path) ? own_path : flags->kubelet_path,
        .on_status = on_registration,
        .arg = program};
    program->registration = csi_registration_new(program->server, &options, err);
    return program->registration != NULL ? 0 : -1;
}

static int serve(struct program *program, struct err *err)
{
    const struct csi_server_options options = {
        .endpoint = program->flags->endpoint, .on_finished = telemetry_call_finished, .arg = program->telemetry};
    program->server = csi_server_new(&options, err);
    if (program->server == NULL)
        return -1;
    program->handlers = dispatch_handlers();
    csi_server_add(program->server, &program->handlers, &program->driver);
    if (add_registration(program, err) < 0 || csi_server_start(program->server, err) < 0)
        return -1;
    log_info("Listening", kv_str("endpoint", program->flags->endpoint), kv_str("driver", program->flags->driver_name),
             kv_str("backend", volume_backend_name(program->driver.options.default_backend)),
             kv_str("version", berth_version()));
    stop_wait_until(program->stop, program->driver.clock, CLOCK_NEVER);
    /* copies end now; what they have made so far goes at the next start */
    jobs_stop(program->driver.jobs);
    return csi_server_stop(program->server, STOP_GRACE, err);
}

static int empty_trash(void *state, struct stop *stop, struct err *err)
{
    (void)stop;
    return state_empty_trash(state, err);
}

/* The path of --holder-program; NULL = the holder is not ours to start. */
static char *find_holder_program(const struct hostpath_flags *flags)
{
    char self[PATH_MAX];
    if (!str_eq(flags->holder_program, HOSTPATH_HOLDER_AUTO))
        return str_empty(flags->holder_program) ? NULL : mem_strdup(flags->holder_program);
    const ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[len > 0 ? len : 0] = '\0';
    const char *slash = strrchr(self, '/');
    if (slash == NULL)
        return NULL;
    auto_free char *path = mem_printf("%.*s/berth-holder", (int)(slash - self), self);
    return access(path, X_OK) == 0 ? mem_take(path) : NULL;
}

static void make_holder_client(struct program *program, bool fuse_present)
{
    const struct hostpath_flags *flags = program->flags;
    auto_free char *holder_program = find_holder_program(flags);
    const struct holder_client_options options = {.socket = flags->holder_socket,
                                                  .holder_program = holder_program,
                                                  .fuse_program =
                                                      str_empty(flags->fuse_program) ? NULL : flags->fuse_program};
    if (fuse_present)
        program->driver.holder = holder_client_new(&options);
}

/* In a rolling update the old driver may still be ending. */
static int open_state(const struct program *program, struct clock *clock, struct state **state, struct err *err)
{
    const char *directory = program->flags->state_directory;
    const int64_t deadline = clock_mono(clock) + STATE_PATIENCE;
    for (bool told = false; state_open(directory, state, err) < 0; told = true) {
        if (!err_is(err, ERR_EXISTS) || clock_mono(clock) >= deadline)
            return -1;
        if (!told)
            log_info("Another driver uses the state directory: waiting for it to end", kv_str("directory", directory),
                     kv_duration("atMost", STATE_PATIENCE));
        if (stop_sleep(program->stop, clock, STATE_RETRY))
            return -1;
        err_clear(err);
    }
    return 0;
}

static int open_driver(struct program *program, struct err *err)
{
    struct hostpath *driver = &program->driver;
    const bool fuse_present = access("/dev/fuse", F_OK) == 0;
    *driver = (struct hostpath){.clock = clock_real(), .rng = rng_real()};
    if (hostpath_options_read(program->flags, fuse_present, &driver->options, err) < 0 ||
        open_state(program, driver->clock, &driver->state, err) < 0)
        return -1;
    if (driver->options.fuse_missing)
        log_warn("This node has no /dev/fuse: volumes without a backend get the fallback",
                 kv_str("backend", volume_backend_name(driver->options.default_backend)));
    driver->locks = keylock_new();
    driver->jobs = jobs_new();
    driver->capacity = capacity_new();
    driver->usage = usage_cache_new();
    make_holder_client(program, fuse_present);
    hostpath_recover(driver);
    jobs_start(driver->jobs, "emptying the trash", empty_trash, driver->state);
    program->telemetry = telemetry_new(driver, program->flags->http_endpoint, err);
    return program->telemetry != NULL ? 0 : -1;
}

static void close_driver(struct program *program)
{
    struct hostpath *driver = &program->driver;
    csi_server_free(program->server);
    csi_registration_free(program->registration);
    telemetry_free(program->telemetry);
    jobs_free(driver->jobs);
    holder_client_free(driver->holder);
    usage_cache_free(driver->usage);
    capacity_free(driver->capacity);
    keylock_free(driver->locks);
    state_close(driver->state);
    hostpath_options_free(&driver->options);
}

static int run(const struct hostpath_flags *flags, struct stop *stop, struct err *err)
{
    struct program program = {.flags = flags, .stop = stop};
    int result = open_driver(&program, err);
    if (result == 0)
        result = serve(&program, err);
    /* a thread that hangs in a dead file system may still use it all: the process ends without cleaning up then */
    if (err_is(err, ERR_TIMEOUT) || (program.driver.locks != NULL && keylock_any_held(program.driver.locks)))
        return result;
    close_driver(&program);
    return result;
}

int main(int argc, char **argv)
{
    thread_limit_memory(argv);
    observe_drop_tls();
    struct hostpath_flags flags = {0};
    enum flag_result parsed = flag_parse(&hostpath_program, argc, argv, &flags, NULL);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    auto_err struct err err = {0};
    file_raise_limit(65536); /* deep trees are copied with two descriptors a level */
    struct stop *stop = stop_new();
    stop_on_signals(stop);
    int result = run(&flags, stop, &err);
    if (result < 0)
        log_error("Stopped", kv_err(&err));
    stop_free(stop);
    flag_free(&hostpath_program, &flags);
    return result < 0 ? 1 : 0;
}
