/* SPDX-License-Identifier: Apache-2.0 */
/* The MOUNT protocol: NFSv3 learns an export's root handle by it. */
#include "drivers/nfs/share_private.h"

#include <errno.h>
#include <nfsc/libnfs.h>

#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw.h>

static void mount_reply(struct share_call *call, void *data)
{
    const struct mountres3 *res = data;
    call->error = share_errno_of_status((unsigned)res->fhs_status);
    const fhandle3 *handle = &res->mountres3_u.mountinfo.fhandle;
    if (call->error == 0 && !share_set_fh(call->fh, handle->fhandle3_val, handle->fhandle3_len))
        call->error = EREMOTEIO;
}

static int start_mount(struct share *share, struct share_call *call)
{
    call->reply = mount_reply;
    return rpc_mount3_mnt_async(share->rpc, share_replied, share->location.export, call) == 0 ? 0 : ENOMEM;
}

int share_mount3(struct share *share, struct err *err)
{
    if (share_connect(share, MOUNT_PROGRAM, MOUNT_V3, share->location.mount_port, err) < 0)
        return -1;
    struct share_call call = {.share = share, .fh = &share->root};
    int error = SHARE_RUN(share, &call, start_mount(share, &call));
    share_disconnect(share);
    if (error != 0)
        return share_explain(&share->location, &share->options.credential, STEP_MOUNT, error,
                             "asking its mount service for the export", NULL, err);
    return 0;
}
