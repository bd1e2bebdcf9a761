/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NFSv4.0. Every call is one COMPOUND that starts from a handle. Regular files are read and written with the anonymous
 * state id, so no open state is kept; only making one needs OPEN, see nfs4_create.c.
 */
#include "drivers/nfs/nfs4.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>

#define PREFERRED_IO ((uint64_t)1 << 20)

/* ---- building ---- */

static struct nfs_argop4 *add_op(struct compound *compound, nfs_opnum4 number)
{
    struct nfs_argop4 *op = &compound->ops[compound->count++];
    *op = (struct nfs_argop4){.argop = number};
    return op;
}

static utf8string to_text(const char *text)
{
    /* the library only reads it */
    return (utf8string){.utf8string_len = (u_int)strlen(text), .utf8string_val = (char *)(uintptr_t)text};
}

static bitmap4 to_bitmap(const uint32_t words[NFS4_ATTR_WORDS])
{
    return (bitmap4){.bitmap4_len = NFS4_ATTR_WORDS, .bitmap4_val = (uint32_t *)(uintptr_t)words};
}

void compound_put_fh(struct compound *compound, const struct share_fh *fh)
{
    PUTFH4args *args = &add_op(compound, OP_PUTFH)->nfs_argop4_u.opputfh;
    args->object = (nfs_fh4){.nfs_fh4_len = fh->len, .nfs_fh4_val = (char *)(uintptr_t)fh->data};
}

void compound_get_fh(struct compound *compound)
{
    add_op(compound, OP_GETFH);
}

void compound_get_attr(struct compound *compound, const uint32_t words[NFS4_ATTR_WORDS])
{
    add_op(compound, OP_GETATTR)->nfs_argop4_u.opgetattr.attr_request = to_bitmap(words);
}

void compound_lookup(struct compound *compound, const char *name)
{
    add_op(compound, OP_LOOKUP)->nfs_argop4_u.oplookup.objname = to_text(name);
}

fattr4 compound_set(struct compound *compound, const struct share_set *set)
{
    size_t len = nfs4_set_encode(set, compound->set_bitmap, compound->set_data);
    return (fattr4){.attrmask = to_bitmap(compound->set_bitmap),
                    .attr_vals = {.attrlist4_len = (u_int)len, .attrlist4_val = compound->set_data}};
}

int compound_start(struct compound *compound, struct share *share, struct share_call *call)
{
    COMPOUND4args args = {.argarray = {.argarray_len = (u_int)compound->count, .argarray_val = compound->ops}};
    if (call->reply == NULL)
        call->reply = nfs4_reply;
    return rpc_nfs4_compound_async(share->rpc, share_replied, &args, call) == 0 ? 0 : ENOMEM;
}

/* ---- the reply: whatever is in it goes where the call wants it ---- */

static void take_attr(struct share_call *call, const fattr4 *from)
{
    struct nfs4_attrs attrs;
    if (!nfs4_attrs_decode(from->attrmask.bitmap4_val, from->attrmask.bitmap4_len, from->attr_vals.attrlist4_val,
                           from->attr_vals.attrlist4_len, &attrs)) {
        call->error = EREMOTEIO;
        return;
    }
    if (call->space != NULL)
        *call->space = attrs.space;
    if (call->attr != NULL)
        *call->attr = attrs.attr;
}

static void take_page(struct share_call *call, const READDIR4resok *ok)
{
    struct share_page *page = call->page;
    struct nfs4_attrs attrs;
    memcpy(page->verifier, ok->cookieverf, sizeof(page->verifier));
    page->eof = ok->reply.eof;
    entry4 from; /* a copy: the library does not align what it decodes */
    for (const void *at = ok->reply.entries; at != NULL; at = from.nextentry) {
        memcpy(&from, at, sizeof(from));
        page->cookie = from.cookie;
        struct share_entry *entry = share_page_add(page, from.name.utf8string_val, from.name.utf8string_len);
        if (!share_name_is_safe(entry->name) ||
            !nfs4_attrs_decode(from.attrs.attrmask.bitmap4_val, from.attrs.attrmask.bitmap4_len,
                               from.attrs.attr_vals.attrlist4_val, from.attrs.attr_vals.attrlist4_len, &attrs)) {
            call->error = EREMOTEIO;
            return;
        }
        entry->cookie = from.cookie;
        entry->fileid = attrs.attr.fileid;
        entry->has_attr = attrs.error == 0 && attrs.attr.type != 0;
        entry->attr = attrs.attr;
        entry->has_fh = attrs.error == 0 && attrs.fh.len > 0;
        entry->fh = attrs.fh;
    }
}

static void take_read(struct share_call *call, const READ4resok *ok)
{
    call->got = ok->data.data_len < call->size ? ok->data.data_len : call->size;
    call->eof = ok->eof;
    if (call->got > 0)
        memcpy(call->buffer, ok->data.data_val, call->got);
}

static void take_op(struct share_call *call, const struct nfs_resop4 *op)
{
    switch (op->resop) {
    case OP_GETFH: {
        const nfs_fh4 *fh = &op->nfs_resop4_u.opgetfh.GETFH4res_u.resok4.object;
        if (call->fh != NULL && !share_set_fh(call->fh, fh->nfs_fh4_val, fh->nfs_fh4_len))
            call->error = EREMOTEIO;
        break;
    }
    case OP_GETATTR:
        take_attr(call, &op->nfs_resop4_u.opgetattr.GETATTR4res_u.resok4.obj_attributes);
        break;
    case OP_ACCESS:
        call->access = op->nfs_resop4_u.opaccess.ACCESS4res_u.resok4.access;
        break;
    case OP_READLINK: {
        const linktext4 *link = &op->nfs_resop4_u.opreadlink.READLINK4res_u.resok4.link;
        *call->text = mem_strndup(link->utf8string_val, link->utf8string_len);
        break;
    }
    case OP_READ:
        take_read(call, &op->nfs_resop4_u.opread.READ4res_u.resok4);
        break;
    case OP_WRITE:
        call->got = op->nfs_resop4_u.opwrite.WRITE4res_u.resok4.count;
        memcpy(call->verifier, op->nfs_resop4_u.opwrite.WRITE4res_u.resok4.writeverf, sizeof(call->verifier));
        break;
    case OP_COMMIT:
        memcpy(call->verifier, op->nfs_resop4_u.opcommit.COMMIT4res_u.resok4.writeverf, sizeof(call->verifier));
        break;
    case OP_READDIR:
        take_page(call, &op->nfs_resop4_u.opreaddir.READDIR4res_u.resok4);
        break;
    default:
        break;
    }
}

struct nfs_resop4 nfs4_result(const COMPOUND4res *res, unsigned i)
{
    struct nfs_resop4 op;
    const char *at = (const char *)res->resarray.resarray_val + i * sizeof(op);
    memcpy(&op, at, sizeof(op));
    return op;
}

static int status_error(const COMPOUND4res *res)
{
    unsigned count = res->resarray.resarray_len;
    nfs_opnum4 last = count > 0 ? nfs4_result(res, count - 1).resop : 0;
    /* the checks of remove: of the wrong kind */
    if (last == OP_VERIFY && (unsigned)res->status == 10027 /* NOT_SAME */)
        return ENOTDIR;
    if (last == OP_NVERIFY && res->status == NFS4ERR_SAME)
        return EISDIR;
    return share_errno_of_status((unsigned)res->status);
}

void nfs4_reply(struct share_call *call, void *data)
{
    const COMPOUND4res *res = data;
    call->error = status_error(res);
    for (unsigned i = 0; i < res->resarray.resarray_len && call->error == 0; i++) {
        struct nfs_resop4 op = nfs4_result(res, i);
        take_op(call, &op);
    }
}

/* ---- calls ---- */

static int lookup4(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name)
{
    struct compound compound = {0};
    compound_put_fh(&compound, dir);
    compound_lookup(&compound, name);
    compound_get_fh(&compound);
    compound_get_attr(&compound, nfs4_attr_stat);
    return compound_start(&compound, share, call);
}

static int getattr4(struct share *share, struct share_call *call, const struct share_fh *fh)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    compound_get_attr(&compound, nfs4_attr_stat);
    return compound_start(&compound, share, call);
}

static int setattr4(struct share *share, struct share_call *call, const struct share_fh *fh,
                    const struct share_set *set)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    add_op(&compound, OP_SETATTR)->nfs_argop4_u.opsetattr.obj_attributes = compound_set(&compound, set);
    compound_get_attr(&compound, nfs4_attr_stat);
    return compound_start(&compound, share, call);
}

static int access4(struct share *share, struct share_call *call, const struct share_fh *fh, uint32_t bits)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    add_op(&compound, OP_ACCESS)->nfs_argop4_u.opaccess.access = bits;
    return compound_start(&compound, share, call);
}

static int readlink4(struct share *share, struct share_call *call, const struct share_fh *fh)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    add_op(&compound, OP_READLINK);
    return compound_start(&compound, share, call);
}

static int read4(struct share *share, struct share_call *call, const struct share_fh *fh, uint64_t offset)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    add_op(&compound, OP_READ)->nfs_argop4_u.opread = (READ4args){.offset = offset, .count = (count4)call->size};
    return compound_start(&compound, share, call);
}

static int write4(struct share *share, struct share_call *call, const struct share_fh *fh, uint64_t offset,
                  const void *data, size_t len, bool stable)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    add_op(&compound, OP_WRITE)->nfs_argop4_u.opwrite =
        (WRITE4args){.offset = offset,
                     .stable = stable ? FILE_SYNC4 : UNSTABLE4,
                     .data = {.data_len = (u_int)len, .data_val = (char *)(uintptr_t)data}};
    if (call->attr != NULL)
        compound_get_attr(&compound, nfs4_attr_stat);
    return compound_start(&compound, share, call);
}

static int commit4(struct share *share, struct share_call *call, const struct share_fh *fh)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    add_op(&compound, OP_COMMIT);
    if (call->attr != NULL)
        compound_get_attr(&compound, nfs4_attr_stat);
    return compound_start(&compound, share, call);
}

static int make(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                const createtype4 *type, const struct share_set *set)
{
    struct compound compound = {0};
    compound_put_fh(&compound, dir);
    CREATE4args *args = &add_op(&compound, OP_CREATE)->nfs_argop4_u.opcreate;
    args->objtype = *type;
    args->objname = to_text(name);
    args->createattrs = compound_set(&compound, set);
    compound_get_fh(&compound);
    compound_get_attr(&compound, nfs4_attr_stat);
    return compound_start(&compound, share, call);
}

static int mkdir4(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                  const struct share_set *set)
{
    return make(share, call, dir, name, &(createtype4){.type = NF4DIR}, set);
}

static int symlink4(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                    const char *target, const struct share_set *set)
{
    createtype4 what = {.type = NF4LNK};
    what.createtype4_u.linkdata = to_text(target);
    return make(share, call, dir, name, &what, set);
}

static int mknod4(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                  const struct share_attr *like, const struct share_set *set)
{
    createtype4 what = {.type = (nfs_ftype4)like->type};
    what.createtype4_u.devdata = (specdata4){like->rdev_major, like->rdev_minor};
    return make(share, call, dir, name, &what, set);
}

static int link4(struct share *share, struct share_call *call, const struct share_fh *fh, const struct share_fh *dir,
                 const char *name)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    add_op(&compound, OP_SAVEFH);
    compound_put_fh(&compound, dir);
    add_op(&compound, OP_LINK)->nfs_argop4_u.oplink.newname = to_text(name);
    return compound_start(&compound, share, call);
}

static int rename4(struct share *share, struct share_call *call, const struct share_fh *from_dir, const char *from,
                   const struct share_fh *to_dir, const char *to)
{
    struct compound compound = {0};
    compound_put_fh(&compound, from_dir);
    add_op(&compound, OP_SAVEFH);
    compound_put_fh(&compound, to_dir);
    RENAME4args *args = &add_op(&compound, OP_RENAME)->nfs_argop4_u.oprename;
    args->oldname = to_text(from);
    args->newname = to_text(to);
    return compound_start(&compound, share, call);
}

/* REMOVE takes directories and files alike: the server is asked first, in the same compound, which it is. */
static int remove4(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                   bool directory)
{
    static uint32_t type_bitmap[NFS4_ATTR_WORDS] = {1U << FATTR4_TYPE, 0};
    static char type_directory[4] = {0, 0, 0, NF4DIR};
    fattr4 is_directory = {.attrmask = to_bitmap(type_bitmap),
                           .attr_vals = {.attrlist4_len = sizeof(type_directory), .attrlist4_val = type_directory}};
    struct compound compound = {0};
    compound_put_fh(&compound, dir);
    compound_lookup(&compound, name);
    if (directory)
        add_op(&compound, OP_VERIFY)->nfs_argop4_u.opverify.obj_attributes = is_directory;
    else
        add_op(&compound, OP_NVERIFY)->nfs_argop4_u.opnverify.obj_attributes = is_directory;
    compound_put_fh(&compound, dir);
    add_op(&compound, OP_REMOVE)->nfs_argop4_u.opremove.target = to_text(name);
    return compound_start(&compound, share, call);
}

static int readdir4(struct share *share, struct share_call *call, const struct share_fh *dir, uint32_t bytes)
{
    struct compound compound = {0};
    compound_put_fh(&compound, dir);
    READDIR4args *args = &add_op(&compound, OP_READDIR)->nfs_argop4_u.opreaddir;
    *args = (READDIR4args){
        .cookie = call->page->cookie, .dircount = bytes, .maxcount = bytes, .attr_request = to_bitmap(nfs4_attr_entry)};
    memcpy(args->cookieverf, call->page->verifier, sizeof(args->cookieverf));
    return compound_start(&compound, share, call);
}

static int statfs4(struct share *share, struct share_call *call, const struct share_fh *fh)
{
    struct compound compound = {0};
    compound_put_fh(&compound, fh);
    compound_get_attr(&compound, nfs4_attr_space);
    return compound_start(&compound, share, call);
}

/* ---- the export ---- */

static int start_root(struct share *share, struct share_call *call)
{
    struct compound compound = {0};
    add_op(&compound, OP_PUTROOTFH);
    compound_get_fh(&compound);
    return compound_start(&compound, share, call);
}

struct limits {
    struct share_call call;
    struct nfs4_attrs attrs;
};

static void limits_reply(struct share_call *call, void *data)
{
    struct limits *limits = call->arg;
    const COMPOUND4res *res = data;
    call->error = share_errno_of_status((unsigned)res->status);
    if (call->error != 0 || res->resarray.resarray_len != 2)
        return;
    struct nfs_resop4 op = nfs4_result(res, 1);
    const fattr4 *from = &op.nfs_resop4_u.opgetattr.GETATTR4res_u.resok4.obj_attributes;
    if (!nfs4_attrs_decode(from->attrmask.bitmap4_val, from->attrmask.bitmap4_len, from->attr_vals.attrlist4_val,
                           from->attr_vals.attrlist4_len, &limits->attrs))
        call->error = EREMOTEIO;
}

static int start_limits(struct share *share, struct limits *limits)
{
    struct compound compound = {0};
    compound_put_fh(&compound, &share->root);
    compound_get_attr(&compound, nfs4_attr_limits);
    limits->call.reply = limits_reply;
    return compound_start(&compound, share, &limits->call);
}

static uint32_t bounded(uint64_t value, uint64_t most)
{
    if (value < 4096)
        return 4096;
    return (uint32_t)(value < most ? value : most);
}

static int find_root(struct share *share)
{
    struct share_call call = {.share = share, .fh = &share->root};
    int error = SHARE_RUN(share, &call, start_root(share, &call));
    struct share_fh at;
    if (error == 0)
        error = share_walk(share, share->location.export, &at, NULL);
    if (error == 0)
        share->root = at;
    struct limits limits = {.call = {.share = share, .arg = &limits}};
    if (error == 0)
        error = SHARE_RUN(share, &limits.call, start_limits(share, &limits));
    share->read_max = bounded(limits.attrs.read_max, PREFERRED_IO);
    share->write_max = bounded(limits.attrs.write_max, NFS4_WRITE_MAX);
    return error;
}

static int open4(struct share *share, struct err *err)
{
    if (share_connect(share, NFS4_PROGRAM, NFS_V4, share->location.port != 0 ? share->location.port : NFS4_PORT, err) <
        0)
        return -1;
    int error = find_root(share);
    if (error == 0)
        return 0;
    return share_explain(&share->location, &share->options.credential, STEP_ROOT, error, "finding the export", NULL,
                         err);
}

const struct share_protocol share_nfs4 = {
    .version = 4,
    .open = open4,
    .lookup = lookup4,
    .getattr = getattr4,
    .setattr = setattr4,
    .access = access4,
    .readlink = readlink4,
    .read = read4,
    .write = write4,
    .commit = commit4,
    .mkdir = mkdir4,
    .symlink = symlink4,
    .mknod = mknod4,
    .link = link4,
    .rename = rename4,
    .remove = remove4,
    .readdir = readdir4,
    .statfs = statfs4,
    .create = nfs4_create,
};
