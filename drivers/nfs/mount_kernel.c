/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/mounts.h"

#include "drivers/nfs/spawn.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <strings.h>
#include <sys/mount.h>

bool kernel_has_nfs(const char *path)
{
    /* without options this cannot succeed: the kernel either does not know the type or misses the options */
    return mount("none", path, "nfs", 0, NULL) != 0 && errno != ENODEV && errno != EPERM;
}

static bool has_option(const struct strv *options, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < options->len; i++)
        if (strncasecmp(options->items[i], name, len) == 0 &&
            (options->items[i][len] == '=' || options->items[i][len] == '\0'))
            return true;
    return false;
}

/* Only what NFS itself knows: an option like helper=… or x-systemd.… would mean something else to mount. */
static int check_option(const char *option, struct err *err)
{
    static const char *const refused[] = {"bind", "rbind", "move", "remount", "helper", "loop", "uhelper", "defaults,"};
    size_t len = strcspn(option, "=");
    if (strncmp(option, "x-", 2) == 0 || strncmp(option, "X-", 2) == 0)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "mount option \"%s\" may not be used", option);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (strlen(refused[i]) == len && strncasecmp(option, refused[i], len) == 0)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "mount option \"%s\" may not be used", option);
    for (const char *p = option; *p != '\0'; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "mount option \"%s\" holds blanks", option);
    return 0;
}

static int collect_options(const struct nfs_mount *mount, struct strv *options, struct err *err)
{
    auto_strv struct strv given = {0};
    strv_split(&given, mount->options, ',');
    for (size_t i = 0; i < given.len; i++) {
        if (given.items[i][0] == '\0')
            continue;
        if (check_option(given.items[i], err) < 0)
            return -1;
        strv_add(options, given.items[i]);
    }
    const struct share_location *where = &mount->where;
    if (where->version != 0 && !has_option(options, "vers") && !has_option(options, "nfsvers") &&
        !has_option(options, "v3") && !has_option(options, "v4"))
        strv_add_take(options, mem_printf("nfsvers=%d", where->version));
    if (where->port != 0 && !has_option(options, "port"))
        strv_add_take(options, mem_printf("port=%d", where->port));
    if (where->mount_port != 0 && !has_option(options, "mountport"))
        strv_add_take(options, mem_printf("mountport=%d", where->mount_port));
    return 0;
}

int kernel_mount_command(const struct nfs_mount *mount, const char *target, struct strv *argv, struct err *err)
{
    auto_strv struct strv options = {0};
    if (collect_options(mount, &options, err) < 0)
        return -1;
    auto_free char *text = strv_join(&options, ",");
    const char *export = strcmp(mount->where.export, "/") == 0 && *mount->sub_dir != '\0' ? "" : mount->where.export;
    bool colons = strchr(mount->where.server, ':') != NULL;
    strv_add(argv, "mount");
    strv_add(argv, "-t");
    strv_add(argv, "nfs");
    if (options.len > 0) {
        strv_add(argv, "-o");
        strv_add(argv, text);
    }
    strv_add(argv, "--");
    strv_add_take(argv, mem_printf("%s%s%s:%s%s%s", colons ? "[" : "", mount->where.server, colons ? "]" : "", export,
                                   *mount->sub_dir != '\0' ? "/" : "", mount->sub_dir));
    strv_add(argv, target);
    return 0;
}

int kernel_mount(const struct nfs_driver *driver, const struct nfs_mount *mount, const char *target, int64_t deadline,
                 struct err *err)
{
    auto_strv struct strv argv = {0};
    auto_str struct str out = {0};
    auto_err struct err failed = {0};
    pid_t stuck = 0;
    if (kernel_mount_command(mount, target, &argv, err) < 0)
        return -1;
    if (spawn_run(&argv, driver->clock, deadline, &out, &stuck, &failed) == 0)
        return 0;
    const char *text = err_text(&failed);
    int code = CSI_INTERNAL;
    const char *hint = "";
    if (failed.code == ERR_TIMEOUT) {
        code = CSI_DEADLINE_EXCEEDED;
        hint = ": the server does not answer, or a firewall drops the packets";
    } else if (strstr(text, "ermission denied") != NULL || strstr(text, "access denied") != NULL) {
        code = CSI_PERMISSION_DENIED;
        hint = ": check the export list of the server";
    } else if (strstr(text, "nvalid argument") != NULL) {
        code = CSI_INVALID_ARGUMENT;
        hint = ": check the mount options";
    } else if (strstr(text, "rotocol not supported") != NULL) {
        hint = ": the server does not offer that NFS version";
    }
    return csi_fail(err, code, "mounting %s from NFS server %s: %s%s", argv.items[argv.len - 2], mount->where.server,
                    text, hint);
}
