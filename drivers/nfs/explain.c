/* SPDX-License-Identifier: Apache-2.0 */
/* From a step that failed and an errno to words an administrator can act on. */
#include "drivers/nfs/share_private.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/csi/method.h"

#include <errno.h>
#include <inttypes.h>

#define ANY_STEP (-1)

struct cause {
    int step; /* enum share_step_kind or ANY_STEP */
    int error;
    enum err_code code; /* ERR_RPC = RESOURCE_EXHAUSTED */
    const char *hint;   /* NULL = the error says it all */
};

/* The first that fits counts. */
static const struct cause causes[] = {
    {STEP_RESOLVE, ENOENT, ERR_INVALID, "no such host: check `server` in the storage class and the cluster's DNS"},
    {STEP_RESOLVE, ETIMEDOUT, ERR_UNAVAILABLE, "the name servers do not answer"},
    {STEP_CONNECT, ECONNREFUSED, ERR_UNAVAILABLE,
     "no NFS server of that version listens there: is it running, is the port right, is the version enabled?"},
    {STEP_CONNECT, ETIMEDOUT, ERR_TIMEOUT,
     "no answer: the server is down or hangs, the address is wrong, or a firewall drops the packets"},
    {STEP_PORT, ECONNREFUSED, ERR_UNAVAILABLE,
     "NFS version 3 needs rpcbind on the server (port 111), or `port` and `mountport` in the mount options; or the "
     "server does not offer version 3"},
    {STEP_PORT, ETIMEDOUT, ERR_TIMEOUT,
     "no answer: a firewall may let through NFS but not rpcbind (port 111) and mountd, which version 3 needs"},
    {STEP_MOUNT, EACCES, ERR_FORBIDDEN,
     "there is no such export, or not for this client: check `share` in the storage class, the export list (is our "
     "address in it?), and whether it wants a privileged source port (option `insecure`, or CAP_NET_BIND_SERVICE for "
     "this driver)"},
    {STEP_MOUNT, EPERM, ERR_FORBIDDEN,
     "there is no such export, or not for this client: check `share` in the storage class, the export list (is our "
     "address in it?), and whether it wants a privileged source port (option `insecure`, or CAP_NET_BIND_SERVICE for "
     "this driver)"},
    {STEP_MOUNT, ENOENT, ERR_INVALID, "there is no such export: check `share` in the storage class"},
    {STEP_ROOT, ENOENT, ERR_INVALID,
     "there is no such export for this client: check `share` in the storage class (version 4 paths start at the "
     "server's pseudo root) and the export list"},
    {STEP_ROOT, EACCES, ERR_FORBIDDEN, "the server does not export it to this client: check the export list"},
    {STEP_ROOT, EPERM, ERR_FORBIDDEN,
     "the server does not export it to this client with AUTH_SYS: check the export list and its `sec` option"},
    {STEP_ROOT, ELOOP, ERR_INVALID, "a part of the path is a symbolic link: name the real path in `share`"},
    {STEP_ROOT, EPROTONOSUPPORT, ERR_UNAVAILABLE,
     "the server has NFS version 4.0 switched off, the only version 4 this driver can use for provisioning: allow it, "
     "or use nfsvers=3"},
    {ANY_STEP, EACCES, ERR_FORBIDDEN,
     "the export may squash this user (root_squash, all_squash): let the squashed user write there, or run the driver "
     "with --uid of the directory's owner"},
    {ANY_STEP, EPERM, ERR_FORBIDDEN,
     "the export may squash this user (root_squash, all_squash), who then may not change owners and modes"},
    {ANY_STEP, EROFS, ERR_FORBIDDEN, "the export is read-only (option `ro`) for this client"},
    {ANY_STEP, ENOSPC, ERR_RPC, "the server's file system is full"},
    {ANY_STEP, EDQUOT, ERR_RPC, "the server's quota for this user is used up"},
    {ANY_STEP, ESTALE, ERR_IO, "the directory was removed or the export was changed on the server meanwhile"},
    {ANY_STEP, ETIMEDOUT, ERR_TIMEOUT, "the server does not answer (down, frozen, or unreachable)"},
    {ANY_STEP, ECONNRESET, ERR_UNAVAILABLE, "the connection was lost: the server stopped or was restarted"},
    {ANY_STEP, ECONNREFUSED, ERR_UNAVAILABLE, "the connection was lost: the server stopped or was restarted"},
    {ANY_STEP, EAGAIN, ERR_UNAVAILABLE, "the server asks to try later (it may be in its grace period after a restart)"},
    {ANY_STEP, EPROTO, ERR_FORBIDDEN,
     "the server refused the call itself: it may not accept AUTH_SYS (option `sec`) for this export"},
    {ANY_STEP, ECANCELED, ERR_CANCELLED, NULL},
    {ANY_STEP, ENOENT, ERR_NOT_FOUND, NULL},
    {ANY_STEP, EEXIST, ERR_EXISTS, NULL},
    {ANY_STEP, EINVAL, ERR_INVALID, NULL},
    {ANY_STEP, ENAMETOOLONG, ERR_INVALID, NULL},
};

int share_explain(const struct share_location *location, const struct share_credential *credential,
                  enum share_step_kind step, int error, const char *what, const char *detail, struct err *err)
{
    const struct cause *cause = NULL;
    for (size_t i = 0; i < ARRAY_LEN(causes) && cause == NULL; i++)
        if (causes[i].error == error && (causes[i].step == (int)step || causes[i].step == ANY_STEP))
            cause = &causes[i];
    auto_str struct str text = {0};
    str_addf(&text, "NFS server %s, export %s", location->server, location->export);
    if (location->version != 0)
        str_addf(&text, " (version %d)", location->version);
    if (step == STEP_CALL || step == STEP_ROOT || step == STEP_MOUNT)
        str_addf(&text, ", as uid %" PRIu32 " gid %" PRIu32, credential->uid, credential->gid);
    str_addf(&text, ": %s: %s", what, strerrordesc_np(error) != NULL ? strerrordesc_np(error) : "unknown error");
    if (cause != NULL && cause->hint != NULL)
        str_addf(&text, ": %s", cause->hint);
    if (cause == NULL && !str_empty(detail))
        str_addf(&text, " (%s)", detail);
    if (cause != NULL && cause->code == ERR_RPC)
        return csi_fail(err, CSI_RESOURCE_EXHAUSTED, "%s", str_text(&text));
    return err_set(err, cause != NULL ? cause->code : ERR_IO, "%s", str_text(&text));
}
