/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's side of the FUSE mounter. */
#include "drivers/nfs/mounts.h"

#include "drivers/common/mount.h"
#include "drivers/nfs/fuse_config.h"
#include "drivers/nfs/spawn.h"
#include "lib/base/mem.h"

#include <signal.h>
#include <sys/wait.h>

int fuse_write_config(const struct nfs_driver *driver, const struct nfs_mount *mount, struct err *err)
{
    struct fuse_config config = {.where = mount->where,
                                 .sub_dir = (char *)(uintptr_t)mount->sub_dir,
                                 .limit = mount->limit,
                                 .timeout = driver->options.timeout,
                                 .usage_interval = driver->options.usage_interval,
                                 .uid = driver->options.credential.uid,
                                 .gid = driver->options.credential.gid};
    config.soft = driver->options.soft;
    auto_strv struct strv options = {0};
    strv_split(&options, mount->options, ',');
    for (size_t i = 0; i < options.len; i++) {
        if (str_eq(options.items[i], "soft"))
            config.soft = true;
        else if (str_eq(options.items[i], "hard"))
            config.soft = false;
    }
    return fuse_config_write(&config, mount->config, err);
}

int fuse_mount_volume(const struct nfs_driver *driver, const struct nfs_mount *mount, const char *target,
                      int64_t deadline, struct err *err)
{
    auto_strv struct strv argv = {0};
    auto_str struct str out = {0};
    auto_close int output = -1;
    pid_t pid = 0;
    int status = 0;
    if (fuse_write_config(driver, mount, err) < 0)
        return -1;
    strv_add(&argv, driver->options.program);
    strv_add(&argv, "mount-fuse");
    strv_add(&argv, mount->config);
    strv_add(&argv, target);
    if (spawn_start(&argv, true, &pid, &output, err) < 0)
        return -1;
    bool in_time = spawn_read(output, true, driver->clock, deadline, &out);
    if (in_time && str_eq(str_text(&out), "mounted\n"))
        return 0;
    kill(pid, SIGKILL);
    spawn_wait(pid, driver->clock, clock_mono(driver->clock) + 2 * CLOCK_SECOND, &status);
    auto_err struct err ignored = {0};
    mount_remove(target, &ignored);
    while (out.len > 0 && out.data[out.len - 1] == '\n')
        out.data[--out.len] = '\0';
    if (!in_time)
        return csi_fail(err, CSI_DEADLINE_EXCEEDED, "the FUSE mounter was not ready in time");
    return csi_fail(err, CSI_INTERNAL, "%s", out.len > 0 ? out.data : "the FUSE mounter ended without a word");
}
