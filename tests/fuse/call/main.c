/* SPDX-License-Identifier: Apache-2.0 */
/* The drivers' client of berth-holder from the command line, for tests:
 *     fuse-holder-call SOCKET HOLDER-PROGRAM|- OPERATION [ARGUMENT…] */
#include "drivers/common/holder_client.h"
#include "lib/base/mem.h"

#include <stdio.h>
#include <unistd.h>

#define TIMEOUT ((int64_t)10 * 1000000000)

struct call {
    struct holder_client *client;
    int count;
    char **arguments;
};

static int64_t number(const char *text)
{
    int64_t value = -1;
    return str_parse_i64(text, &value) ? value : -1;
}

static int do_mount(const struct call *call, struct err *err)
{
    auto_strv struct strv options = {0};
    for (int i = 4; i < call->count; i++)
        strv_add(&options, call->arguments[i]);
    const struct holder_mount mount = {.id = call->arguments[0],
                                       .directory = call->arguments[1],
                                       .target = call->arguments[2],
                                       .limit = number(call->arguments[3]),
                                       .options = &options};
    return holder_mount_volume(call->client, &mount, TIMEOUT, err);
}

static int do_unmount(const struct call *call, struct err *err)
{
    bool in_use = false;
    if (holder_unmount_volume(call->client, call->arguments[0], call->arguments[1], &in_use, TIMEOUT, err) < 0)
        return -1;
    puts(in_use ? "in use" : "not in use");
    return 0;
}

static int do_limit(const struct call *call, struct err *err)
{
    return holder_set_limit(call->client, call->arguments[0], number(call->arguments[1]), 0, TIMEOUT, err);
}

static int do_stats(const struct call *call, struct err *err)
{
    struct holder_stats stats;
    if (holder_volume_stats(call->client, call->arguments[0], &stats, TIMEOUT, err) < 0)
        return -1;
    printf("limit %lld used %lld inodes %lld of %lld\n", (long long)stats.limit, (long long)stats.used,
           (long long)stats.inodes, (long long)stats.inode_limit);
    return 0;
}

static int do_list(const struct call *call, struct err *err)
{
    auto_holder_list struct holder_list list = {0};
    if (holder_list_mounts(call->client, &list, TIMEOUT, err) < 0)
        return -1;
    for (size_t i = 0; i < list.len; i++) {
        struct holder_entry entry;
        if (holder_find_mount(call->client, list.items[i].id, &entry, TIMEOUT, err) < 0)
            return -1;
        printf("%s %s %s %lld %s\n", entry.id, entry.target, entry.serving ? "serving" : "down", (long long)entry.limit,
               entry.problem);
        holder_entry_clear(&entry);
    }
    return 0;
}

static int do_health(const struct call *call, struct err *err)
{
    struct holder_health health;
    if (holder_check_health(call->client, &health, TIMEOUT, err) < 0)
        return -1;
    printf("mounts %lld serving %lld version %s %s\n", (long long)health.mounts, (long long)health.serving,
           health.version, health.resend ? "resend" : "no resend");
    return 0;
}

static int do_restart(const struct call *call, struct err *err)
{
    return holder_restart_processes(call->client, TIMEOUT, err);
}

static const struct {
    const char *name;
    int least; /* arguments */
    int (*fn)(const struct call *call, struct err *err);
} operations[] = {
    {"mount", 4, do_mount}, {"unmount", 2, do_unmount}, {"limit", 2, do_limit},     {"stats", 1, do_stats},
    {"list", 0, do_list},   {"health", 0, do_health},   {"restart", 0, do_restart},
};

int main(int argc, char **argv)
{
    auto_err struct err err = {0};
    if (argc < 4)
        return 2;
    const struct holder_client_options options = {.socket = argv[1],
                                                  .holder_program = str_eq(argv[2], "-") ? NULL : argv[2]};
    struct call call = {.client = holder_client_new(&options), .count = argc - 4, .arguments = argv + 4};
    int result = 2;
    for (size_t i = 0; i < ARRAY_LEN(operations); i++)
        if (str_eq(argv[3], operations[i].name) && call.count >= operations[i].least)
            result = operations[i].fn(&call, &err);
    if (result < 0)
        printf("%s: %s\n", err_code_name(err.code), err_text(&err));
    holder_client_free(call.client);
    return result < 0 ? 1 : result;
}
