/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a mount that may hang for ever: a process of its own does it, which is killed, and if even that does not
 * help, left behind; there is never more than one per mount. */
#include "drivers/nfs/monitor.h"

#include "drivers/nfs/spawn.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

int probe_main(int argc, char **argv)
{
    struct statvfs st;
    if (argc != 2) {
        fprintf(stderr, "usage: berth-nfs probe PATH\n");
        return 2;
    }
    if (statvfs(argv[1], &st) != 0) {
        printf("%d\n", errno);
        return 0;
    }
    uint64_t unit = st.f_frsize;
    printf("0 %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", st.f_blocks * unit, st.f_bfree * unit,
           st.f_bavail * unit, (uint64_t)st.f_files, (uint64_t)st.f_ffree);
    return 0;
}

/* True while an earlier helper for this path still hangs. */
static bool still_hangs(struct nfs_driver *driver, const char *key)
{
    int status;
    pid_t pid = (pid_t)monitor_stuck(driver->monitor, key);
    if (pid == 0)
        return false;
    if (!spawn_wait(pid, driver->clock, 0, &status))
        return true;
    monitor_set_stuck(driver->monitor, key, 0);
    return false;
}

int monitor_probe(struct nfs_driver *driver, const char *path, int64_t timeout, struct mount_space *space)
{
    auto_strv struct strv argv = {0};
    auto_str struct str out = {0};
    auto_err struct err err = {0};
    auto_keylock struct keylock_hold hold = {0};
    pid_t stuck = 0;
    int error = EIO;
    /* somebody who asks about the same mount at the same time would wait for the same server */
    if (keylock_exclusive(driver->locks, "probe", path, &hold, &err) < 0 || still_hangs(driver, path))
        return ETIMEDOUT;
    strv_add(&argv, driver->options.program);
    strv_add(&argv, "probe");
    strv_add(&argv, path);
    if (spawn_run(&argv, driver->clock, clock_mono(driver->clock) + timeout, &out, &stuck, &err) < 0) {
        if (stuck != 0)
            monitor_set_stuck(driver->monitor, path, stuck);
        return err.code == ERR_TIMEOUT ? ETIMEDOUT : EIO;
    }
    int fields = sscanf(str_text(&out), "%d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &error,
                        &space->total, &space->free, &space->available, &space->files, &space->free_files);
    return fields == 6 || (fields == 1 && error != 0) ? error : EIO;
}
