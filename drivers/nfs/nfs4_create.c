/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NFSv4 makes regular files by OPEN only: SETCLIENTID and SETCLIENTID_CONFIRM once per connection, then OPEN,
 * OPEN_CONFIRM when asked for, CLOSE. The client's name is new for each connection: two connections of one process with
 * the same name (the library's own name has the process and the second in it) would throw away each other's state.
 */
#include "drivers/nfs/nfs4.h"

#include "lib/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct exchange {
    struct share_call call;
    nfsstat4 status;
    uint64_t client_id;
    verifier4 confirm;
    stateid4 state;
    uint32_t flags;
};

static void exchange_reply(struct share_call *call, void *data)
{
    struct exchange *exchange = call->arg;
    const COMPOUND4res *res = data;
    nfs4_reply(call, data);
    exchange->status = res->status;
    for (unsigned i = 0; i < res->resarray.resarray_len; i++) {
        const struct nfs_resop4 op = nfs4_result(res, i);
        if (op.resop == OP_SETCLIENTID && op.nfs_resop4_u.opsetclientid.status == NFS4_OK) {
            const SETCLIENTID4resok *ok = &op.nfs_resop4_u.opsetclientid.SETCLIENTID4res_u.resok4;
            exchange->client_id = ok->clientid;
            memcpy(exchange->confirm, ok->setclientid_confirm, sizeof(exchange->confirm));
        } else if (op.resop == OP_OPEN && op.nfs_resop4_u.opopen.status == NFS4_OK) {
            exchange->state = op.nfs_resop4_u.opopen.OPEN4res_u.resok4.stateid;
            exchange->flags = op.nfs_resop4_u.opopen.OPEN4res_u.resok4.rflags;
        } else if (op.resop == OP_OPEN_CONFIRM && op.nfs_resop4_u.opopen_confirm.status == NFS4_OK) {
            exchange->state = op.nfs_resop4_u.opopen_confirm.OPEN_CONFIRM4res_u.resok4.open_stateid;
        }
    }
}

static int run(struct share *share, struct compound *compound, struct exchange *exchange)
{
    exchange->call.share = share;
    exchange->call.arg = exchange;
    exchange->call.reply = exchange_reply;
    return SHARE_RUN(share, &exchange->call, compound_start(compound, share, &exchange->call));
}

static struct nfs_argop4 *add(struct compound *compound, nfs_opnum4 number)
{
    struct nfs_argop4 *op = &compound->ops[compound->count++];
    *op = (struct nfs_argop4){.argop = number};
    return op;
}

static int introduce(struct share *share)
{
    struct share_client4 *client = &share->client4;
    char netid[] = "tcp", address[] = "0.0.0.0.0.0", uuid[RNG_UUID_SIZE], name[64];
    struct exchange exchange = {0};
    struct compound compound = {0};
    snprintf(name, sizeof(name), "berth-nfs %s", rng_uuid(rng_real(), uuid));
    snprintf(client->owner, sizeof(client->owner), "%s", uuid);
    client->sequence = 0;
    SETCLIENTID4args *args = &add(&compound, OP_SETCLIENTID)->nfs_argop4_u.opsetclientid;
    uint64_t verifier = rng_u64(rng_real());
    memcpy(args->client.verifier, &verifier, sizeof(args->client.verifier));
    args->client.id.id_len = (u_int)strlen(name);
    args->client.id.id_val = name;
    /* nobody listens there, so the server gives no delegations */
    args->callback = (cb_client4){.cb_program = NFS4_CALLBACK, .cb_location = {.r_netid = netid, .r_addr = address}};
    int error = run(share, &compound, &exchange);
    if (error != 0)
        return error;
    struct compound second = {0};
    SETCLIENTID_CONFIRM4args *confirm = &add(&second, OP_SETCLIENTID_CONFIRM)->nfs_argop4_u.opsetclientid_confirm;
    confirm->clientid = exchange.client_id;
    memcpy(confirm->setclientid_confirm, exchange.confirm, sizeof(confirm->setclientid_confirm));
    client->id = exchange.client_id;
    error = run(share, &second, &exchange);
    client->known = error == 0;
    return error;
}

/* The server counts a call in the owner's sequence unless it failed for one of these (RFC 7530, 9.1.7). */
static bool counts(nfsstat4 status)
{
    switch ((unsigned)status) {
    case 10022: /* STALE_CLIENTID */
    case 10023: /* STALE_STATEID */
    case 10025: /* BAD_STATEID */
    case 10026: /* BAD_SEQID */
    case 10036: /* BADXDR */
    case 10018: /* RESOURCE */
    case 10020: /* NOFILEHANDLE */
        return false;
    default:
        return true;
    }
}

struct file {
    struct share_fh fh;
    struct share_attr attr;
    stateid4 state;
};

static int open_file(struct share *share, const struct share_fh *dir, const char *name, bool exclusive,
                     const struct share_set *set, struct file *file, uint32_t *flags)
{
    struct share_client4 *client = &share->client4;
    struct exchange exchange = {.call = {.fh = &file->fh, .attr = &file->attr}};
    struct compound compound = {0};
    compound_put_fh(&compound, dir);
    OPEN4args *args = &add(&compound, OP_OPEN)->nfs_argop4_u.opopen;
    args->seqid = client->sequence;
    args->share_access = OPEN4_SHARE_ACCESS_WRITE;
    args->share_deny = OPEN4_SHARE_DENY_NONE;
    args->owner.clientid = client->id;
    args->owner.owner.owner_len = (u_int)strlen(client->owner);
    args->owner.owner.owner_val = client->owner;
    args->openhow.opentype = OPEN4_CREATE;
    args->openhow.openflag4_u.how.mode = exclusive ? GUARDED4 : UNCHECKED4;
    args->openhow.openflag4_u.how.createhow4_u.createattrs = compound_set(&compound, set);
    args->claim.claim = CLAIM_NULL;
    args->claim.open_claim4_u.file =
        (component4){.utf8string_len = (u_int)strlen(name), .utf8string_val = (char *)(uintptr_t)name};
    compound_get_fh(&compound);
    compound_get_attr(&compound, nfs4_attr_stat);
    int error = run(share, &compound, &exchange);
    if (counts(exchange.status))
        client->sequence++;
    file->state = exchange.state;
    *flags = exchange.flags;
    return error;
}

static int confirm_file(struct share *share, struct file *file)
{
    struct exchange exchange = {0};
    struct compound compound = {0};
    compound_put_fh(&compound, &file->fh);
    OPEN_CONFIRM4args *args = &add(&compound, OP_OPEN_CONFIRM)->nfs_argop4_u.opopen_confirm;
    args->open_stateid = file->state;
    args->seqid = share->client4.sequence;
    int error = run(share, &compound, &exchange);
    if (counts(exchange.status))
        share->client4.sequence++;
    file->state = exchange.state;
    return error;
}

static int close_file(struct share *share, struct file *file)
{
    struct exchange exchange = {0};
    struct compound compound = {0};
    compound_put_fh(&compound, &file->fh);
    CLOSE4args *args = &add(&compound, OP_CLOSE)->nfs_argop4_u.opclose;
    args->open_stateid = file->state;
    args->seqid = share->client4.sequence;
    int error = run(share, &compound, &exchange);
    if (counts(exchange.status))
        share->client4.sequence++;
    return error;
}

static int create_once(struct share *share, const struct share_fh *dir, const char *name, bool exclusive,
                       const struct share_set *set, struct file *file)
{
    uint32_t flags = 0;
    int error = share->client4.known ? 0 : introduce(share);
    if (error == 0)
        error = open_file(share, dir, name, exclusive, set, file, &flags);
    if (error == 0 && (flags & OPEN4_RESULT_CONFIRM) != 0)
        error = confirm_file(share, file);
    if (error == 0) {
        error = close_file(share, file);
        if (error == EKEYEXPIRED) { /* the file is made, and the state is gone anyway */
            share->client4.known = false;
            error = 0;
        }
    }
    return error;
}

int nfs4_create(struct share *share, const struct share_fh *dir, const char *name, bool exclusive,
                const struct share_set *set, struct share_fh *fh, struct share_attr *attr)
{
    struct file file = {0};
    int error = create_once(share, dir, name, exclusive, set, &file);
    if (error == EKEYEXPIRED) { /* the lease ran out while the connection was idle, or the server forgot us */
        share->client4.known = false;
        error = create_once(share, dir, name, exclusive, set, &file);
    }
    if (error != 0)
        return error;
    if (fh != NULL)
        *fh = file.fh;
    if (attr != NULL)
        *attr = file.attr;
    return 0;
}
