/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/flag.h"
#include "lib/base/mem.h"
#include "tests/fakecsi/fake.h"

#include <stdio.h>

#define TEXT(flag_name, field, default_, help_)                                                                        \
    {                                                                                                                  \
        .name = flag_name, .type = FLAG_STRING, .default_value = default_, .group = "Driver", .help = help_,           \
        .offset = offsetof(struct options, fake.field)                                                                 \
    }

struct options {
    struct fake_options fake;
    struct flag_log log;
};

static const struct flag flags[] = {
    TEXT("endpoint", endpoint, "unix:///tmp/csi.sock", "Where to serve CSI."),
    TEXT("control", control, NULL, "Unix socket for the test's commands."),
    TEXT("state", state, "fakecsi.json", "File of volumes."),
    TEXT("name", name, "fake.csi.berth", "The driver's name."),
    TEXT("capabilities", capabilities, "CONTROLLER_SERVICE,CREATE_DELETE_VOLUME",
         "Comma-separated capabilities, of the plugin and of the controller."),
    TEXT("node-id", node_id, "node1", "For NodeGetInfo."),
    TEXT("topology", topology, NULL, "key=value,… for NodeGetInfo."),
    {.name = "recycle",
     .type = FLAG_BOOL,
     .group = "Driver",
     .help = "Advertise the Recycler service.",
     .offset = offsetof(struct options, fake.recycle)},
    LOG_FLAGS(struct options, log),
};
static const struct flag_program program = {.name = "berth-fakecsi",
                                            .summary = "A CSI driver that does what a test tells it.",
                                            .usage = "[flags]",
                                            .flags = flags,
                                            .count = ARRAY_LEN(flags)};

static int run(struct fake *fake, struct err *err)
{
    pthread_t control;
    if (fake_load(fake, err) < 0)
        return -1;
    struct csi_server *server =
        csi_server_new(&(struct csi_server_options){.endpoint = fake->options->endpoint, .max_workers = 128}, err);
    if (server == NULL)
        return -1;
    csi_server_add(server, &fake_handlers, fake);
    if (fake_control_start(fake, &control, err) < 0)
        return -1;
    int result = csi_server_start(server, err);
    if (result == 0)
        stop_wait_until(fake->stop, clock_real(), CLOCK_NEVER);
    stop_request(fake->stop);
    csi_server_free(server);
    thread_join(control);
    return result;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    auto_err struct err err = {0};
    thread_limit_arenas();
    enum flag_result parsed = flag_parse(&program, argc, argv, &options, NULL);
    if (parsed != FLAG_OK)
        return parsed == FLAG_EXIT ? 0 : 2;
    struct fake fake = {.options = &options.fake,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .steps = json_object(),
                        .calls = json_array(),
                        .capacity = (int64_t)1 << 40,
                        .maximum = -1,
                        .stop = stop_new()};
    stop_on_signals(fake.stop);
    int status = run(&fake, &err) < 0;
    if (status != 0)
        fprintf(stderr, "berth-fakecsi: %s\n", err_text(&err));
    json_decref(fake.steps);
    json_decref(fake.calls);
    json_decref(fake.volumes);
    stop_free(fake.stop);
    return status;
}
