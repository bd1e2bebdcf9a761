/* SPDX-License-Identifier: Apache-2.0 */
/* NFSv3. Arguments are encoded by the time a start function returns, so they may live on its stack. */
#include "drivers/nfs/share_private.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <nfsc/libnfs.h>

#include <nfsc/libnfs-raw-nfs.h>
#include <nfsc/libnfs-raw.h>

#define NFS3_PREFERRED_IO (1U << 20)
#define QUEUED(expression) ((expression) == 0 ? 0 : ENOMEM)

static struct nfs_fh3 to_fh(const struct share_fh *fh)
{
    /* the library only reads it */
    return (struct nfs_fh3){.data = {.data_len = fh->len, .data_val = (char *)(uintptr_t)fh->data}};
}

static struct diropargs3 to_where(const struct share_fh *dir, const char *name)
{
    return (struct diropargs3){.dir = to_fh(dir), .name = (char *)(uintptr_t)name};
}

static void take_fattr(struct share_attr *attr, const fattr3 *from)
{
    *attr = (struct share_attr){
        .type = (enum share_type)from->type,
        .mode = from->mode & 07777,
        .nlink = from->nlink,
        .uid = from->uid,
        .gid = from->gid,
        .size = from->size,
        .used = from->used,
        .fileid = from->fileid,
        .fsid = {from->fsid, 0},
        .rdev_major = from->rdev.specdata1,
        .rdev_minor = from->rdev.specdata2,
        .atime = {.tv_sec = from->atime.seconds, .tv_nsec = from->atime.nseconds},
        .mtime = {.tv_sec = from->mtime.seconds, .tv_nsec = from->mtime.nseconds},
        .ctime = {.tv_sec = from->ctime.seconds, .tv_nsec = from->ctime.nseconds},
    };
}

static void take_attr(struct share_call *call, const post_op_attr *from)
{
    if (call->attr != NULL && from->attributes_follow)
        take_fattr(call->attr, &from->post_op_attr_u.attributes);
}

static void take_fh(struct share_call *call, const post_op_fh3 *from)
{
    const nfs_fh3 *fh = &from->post_op_fh3_u.handle;
    if (call->fh != NULL && from->handle_follows && !share_set_fh(call->fh, fh->data.data_val, fh->data.data_len))
        call->error = EREMOTEIO;
}

static sattr3 to_sattr(const struct share_set *set)
{
    sattr3 out = {0};
    if (set->mask & SHARE_SET_MODE) {
        out.mode.set_it = 1;
        out.mode.set_mode3_u.mode = set->mode;
    }
    if (set->mask & SHARE_SET_UID) {
        out.uid.set_it = 1;
        out.uid.set_uid3_u.uid = set->uid;
    }
    if (set->mask & SHARE_SET_GID) {
        out.gid.set_it = 1;
        out.gid.set_gid3_u.gid = set->gid;
    }
    if (set->mask & SHARE_SET_SIZE) {
        out.size.set_it = 1;
        out.size.set_size3_u.size = set->size;
    }
    if (set->mask & SHARE_SET_ATIME) {
        out.atime.set_it = SET_TO_CLIENT_TIME;
        out.atime.set_atime_u.atime =
            (nfstime3){.seconds = (u_int)set->atime.tv_sec, .nseconds = (u_int)set->atime.tv_nsec};
    } else if (set->mask & SHARE_SET_ATIME_NOW) {
        out.atime.set_it = SET_TO_SERVER_TIME;
    }
    if (set->mask & SHARE_SET_MTIME) {
        out.mtime.set_it = SET_TO_CLIENT_TIME;
        out.mtime.set_mtime_u.mtime =
            (nfstime3){.seconds = (u_int)set->mtime.tv_sec, .nseconds = (u_int)set->mtime.tv_nsec};
    } else if (set->mask & SHARE_SET_MTIME_NOW) {
        out.mtime.set_it = SET_TO_SERVER_TIME;
    }
    return out;
}

/* ---- replies ---- */

#define REPLY(name, Type)                                                                                              \
    static void name##_body(struct share_call *call, const struct Type##res *res);                                     \
    static void name##_reply(struct share_call *call, void *data)                                                      \
    {                                                                                                                  \
        const struct Type##res *res = data;                                                                            \
        call->error = share_errno_of_status((unsigned)res->status);                                                    \
        if (call->error == 0)                                                                                          \
            name##_body(call, res);                                                                                    \
    }                                                                                                                  \
    static void name##_body(struct share_call *call, const struct Type##res *res)

REPLY(lookup, LOOKUP3)
{
    const LOOKUP3resok *ok = &res->LOOKUP3res_u.resok;
    if (call->fh != NULL && !share_set_fh(call->fh, ok->object.data.data_val, ok->object.data.data_len))
        call->error = EREMOTEIO;
    take_attr(call, &ok->obj_attributes);
}
REPLY(getattr, GETATTR3)
{
    if (call->attr != NULL)
        take_fattr(call->attr, &res->GETATTR3res_u.resok.obj_attributes);
}
REPLY(setattr, SETATTR3)
{
    take_attr(call, &res->SETATTR3res_u.resok.obj_wcc.after);
}
REPLY(access, ACCESS3)
{
    call->access = res->ACCESS3res_u.resok.access;
}
REPLY(readlink, READLINK3)
{
    *call->text = mem_strdup(res->READLINK3res_u.resok.data);
}
REPLY(read, READ3)
{
    const READ3resok *ok = &res->READ3res_u.resok;
    call->got = ok->data.data_len < call->size ? ok->data.data_len : call->size;
    call->eof = ok->eof;
    if (call->got > 0)
        memcpy(call->buffer, ok->data.data_val, call->got);
}
REPLY(write, WRITE3)
{
    call->got = res->WRITE3res_u.resok.count;
    memcpy(call->verifier, res->WRITE3res_u.resok.verf, sizeof(call->verifier));
    take_attr(call, &res->WRITE3res_u.resok.file_wcc.after);
}
REPLY(commit, COMMIT3)
{
    memcpy(call->verifier, res->COMMIT3res_u.resok.verf, sizeof(call->verifier));
    take_attr(call, &res->COMMIT3res_u.resok.file_wcc.after);
}
REPLY(create, CREATE3)
{
    take_fh(call, &res->CREATE3res_u.resok.obj);
    take_attr(call, &res->CREATE3res_u.resok.obj_attributes);
}
REPLY(mkdir, MKDIR3)
{
    take_fh(call, &res->MKDIR3res_u.resok.obj);
    take_attr(call, &res->MKDIR3res_u.resok.obj_attributes);
}
REPLY(symlink, SYMLINK3)
{
    take_fh(call, &res->SYMLINK3res_u.resok.obj);
    take_attr(call, &res->SYMLINK3res_u.resok.obj_attributes);
}
REPLY(mknod, MKNOD3)
{
    take_fh(call, &res->MKNOD3res_u.resok.obj);
    take_attr(call, &res->MKNOD3res_u.resok.obj_attributes);
}
REPLY(link, LINK3)
{
    (void)call, (void)res;
}
REPLY(rename, RENAME3)
{
    (void)call, (void)res;
}
REPLY(remove, REMOVE3)
{
    (void)call, (void)res;
}
REPLY(rmdir, RMDIR3)
{
    (void)call, (void)res;
}
REPLY(statfs, FSSTAT3)
{
    const FSSTAT3resok *ok = &res->FSSTAT3res_u.resok;
    *call->space = (struct share_space){.total_bytes = ok->tbytes,
                                        .free_bytes = ok->fbytes,
                                        .available_bytes = ok->abytes,
                                        .total_files = ok->tfiles,
                                        .free_files = ok->ffiles};
}

static void add_entry(struct share_page *page, const entryplus3 *from)
{
    struct share_entry *entry = share_page_add(page, from->name, strlen(from->name));
    const nfs_fh3 *fh = &from->name_handle.post_op_fh3_u.handle;
    entry->cookie = from->cookie;
    entry->fileid = from->fileid;
    entry->has_attr = from->name_attributes.attributes_follow;
    if (entry->has_attr)
        take_fattr(&entry->attr, &from->name_attributes.post_op_attr_u.attributes);
    entry->has_fh = from->name_handle.handle_follows && share_set_fh(&entry->fh, fh->data.data_val, fh->data.data_len);
}

REPLY(readdir, READDIRPLUS3)
{
    const READDIRPLUS3resok *ok = &res->READDIRPLUS3res_u.resok;
    struct share_page *page = call->page;
    memcpy(page->verifier, ok->cookieverf, sizeof(page->verifier));
    page->eof = ok->reply.eof;
    entryplus3 entry; /* a copy: the library does not align what it decodes */
    for (const void *at = ok->reply.entries; at != NULL; at = entry.nextentry) {
        memcpy(&entry, at, sizeof(entry));
        page->cookie = entry.cookie;
        if (strcmp(entry.name, ".") == 0 || strcmp(entry.name, "..") == 0)
            continue;
        if (share_name_is_safe(entry.name))
            add_entry(page, &entry);
        else
            call->error = EREMOTEIO; /* a server does not send such names */
    }
}

/* ---- calls ---- */

static int lookup(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name)
{
    LOOKUP3args args = {.what = to_where(dir, name)};
    call->reply = lookup_reply;
    if (call->attr != NULL)
        *call->attr = (struct share_attr){0};
    return QUEUED(rpc_nfs3_lookup_async(share->rpc, share_replied, &args, call));
}

static int getattr(struct share *share, struct share_call *call, const struct share_fh *fh)
{
    GETATTR3args args = {.object = to_fh(fh)};
    call->reply = getattr_reply;
    return QUEUED(rpc_nfs3_getattr_async(share->rpc, share_replied, &args, call));
}

static int setattr(struct share *share, struct share_call *call, const struct share_fh *fh, const struct share_set *set)
{
    SETATTR3args args = {.object = to_fh(fh), .new_attributes = to_sattr(set)};
    call->reply = setattr_reply;
    return QUEUED(rpc_nfs3_setattr_async(share->rpc, share_replied, &args, call));
}

static int access3(struct share *share, struct share_call *call, const struct share_fh *fh, uint32_t bits)
{
    ACCESS3args args = {.object = to_fh(fh), .access = bits};
    call->reply = access_reply;
    return QUEUED(rpc_nfs3_access_async(share->rpc, share_replied, &args, call));
}

static int readlink3(struct share *share, struct share_call *call, const struct share_fh *fh)
{
    READLINK3args args = {.symlink = to_fh(fh)};
    call->reply = readlink_reply;
    return QUEUED(rpc_nfs3_readlink_async(share->rpc, share_replied, &args, call));
}

static int read3(struct share *share, struct share_call *call, const struct share_fh *fh, uint64_t offset)
{
    READ3args args = {.file = to_fh(fh), .offset = offset, .count = (count3)call->size};
    call->reply = read_reply;
    return QUEUED(rpc_nfs3_read_async(share->rpc, share_replied, &args, call));
}

static int write3(struct share *share, struct share_call *call, const struct share_fh *fh, uint64_t offset,
                  const void *data, size_t len, bool stable)
{
    WRITE3args args = {.file = to_fh(fh),
                       .offset = offset,
                       .count = (count3)len,
                       .stable = stable ? FILE_SYNC : UNSTABLE,
                       .data = {.data_len = (u_int)len, .data_val = (char *)(uintptr_t)data}};
    call->reply = write_reply;
    return QUEUED(rpc_nfs3_write_async(share->rpc, share_replied, &args, call));
}

static int commit3(struct share *share, struct share_call *call, const struct share_fh *fh)
{
    COMMIT3args args = {.file = to_fh(fh)};
    call->reply = commit_reply;
    return QUEUED(rpc_nfs3_commit_async(share->rpc, share_replied, &args, call));
}

static int mkdir3(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                  const struct share_set *set)
{
    MKDIR3args args = {.where = to_where(dir, name), .attributes = to_sattr(set)};
    call->reply = mkdir_reply;
    return QUEUED(rpc_nfs3_mkdir_async(share->rpc, share_replied, &args, call));
}

static int symlink3(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                    const char *target, const struct share_set *set)
{
    SYMLINK3args args = {.where = to_where(dir, name),
                         .symlink = {.symlink_attributes = to_sattr(set), .symlink_data = (char *)(uintptr_t)target}};
    call->reply = symlink_reply;
    return QUEUED(rpc_nfs3_symlink_async(share->rpc, share_replied, &args, call));
}

static int mknod3(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                  const struct share_attr *like, const struct share_set *set)
{
    MKNOD3args args = {.where = to_where(dir, name), .what = {.type = (ftype3)like->type}};
    devicedata3 device = {.dev_attributes = to_sattr(set), .spec = {like->rdev_major, like->rdev_minor}};
    switch (like->type) {
    case SHARE_CHARACTER:
        args.what.mknoddata3_u.chr_device = device;
        break;
    case SHARE_BLOCK:
        args.what.mknoddata3_u.blk_device = device;
        break;
    case SHARE_SOCKET:
        args.what.mknoddata3_u.sock_attributes = device.dev_attributes;
        break;
    default:
        args.what.mknoddata3_u.pipe_attributes = device.dev_attributes;
        break;
    }
    call->reply = mknod_reply;
    return QUEUED(rpc_nfs3_mknod_async(share->rpc, share_replied, &args, call));
}

static int link3(struct share *share, struct share_call *call, const struct share_fh *fh, const struct share_fh *dir,
                 const char *name)
{
    LINK3args args = {.file = to_fh(fh), .link = to_where(dir, name)};
    call->reply = link_reply;
    return QUEUED(rpc_nfs3_link_async(share->rpc, share_replied, &args, call));
}

static int rename3(struct share *share, struct share_call *call, const struct share_fh *from_dir, const char *from,
                   const struct share_fh *to_dir, const char *to)
{
    RENAME3args args = {.from = to_where(from_dir, from), .to = to_where(to_dir, to)};
    call->reply = rename_reply;
    return QUEUED(rpc_nfs3_rename_async(share->rpc, share_replied, &args, call));
}

static int remove3(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                   bool directory)
{
    if (directory) {
        RMDIR3args args = {.object = to_where(dir, name)};
        call->reply = rmdir_reply;
        return QUEUED(rpc_nfs3_rmdir_async(share->rpc, share_replied, &args, call));
    }
    REMOVE3args args = {.object = to_where(dir, name)};
    call->reply = remove_reply;
    return QUEUED(rpc_nfs3_remove_async(share->rpc, share_replied, &args, call));
}

static int readdir3(struct share *share, struct share_call *call, const struct share_fh *dir, uint32_t bytes)
{
    READDIRPLUS3args args = {.dir = to_fh(dir), .cookie = call->page->cookie, .dircount = bytes, .maxcount = bytes};
    memcpy(args.cookieverf, call->page->verifier, sizeof(args.cookieverf));
    call->reply = readdir_reply;
    return QUEUED(rpc_nfs3_readdirplus_async(share->rpc, share_replied, &args, call));
}

static int statfs3(struct share *share, struct share_call *call, const struct share_fh *fh)
{
    FSSTAT3args args = {.fsroot = to_fh(fh)};
    call->reply = statfs_reply;
    return QUEUED(rpc_nfs3_fsstat_async(share->rpc, share_replied, &args, call));
}

static int start_create(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                        bool exclusive, const struct share_set *set)
{
    CREATE3args args = {.where = to_where(dir, name), .how = {.mode = exclusive ? GUARDED : UNCHECKED}};
    args.how.createhow3_u.obj_attributes = to_sattr(set); /* the same place in both modes */
    call->reply = create_reply;
    return QUEUED(rpc_nfs3_create_async(share->rpc, share_replied, &args, call));
}

static int create3(struct share *share, const struct share_fh *dir, const char *name, bool exclusive,
                   const struct share_set *set, struct share_fh *fh, struct share_attr *attr)
{
    struct share_fh own = {0};
    struct share_attr found = {0};
    struct share_call call = {.share = share, .fh = &own, .attr = &found};
    int error = SHARE_RUN(share, &call, start_create(share, &call, dir, name, exclusive, set));
    if (error == 0 && (own.len == 0 || found.type == 0))
        error = share_lookup(share, dir, name, &own, &found);
    if (error == 0 && fh != NULL)
        *fh = own;
    if (error == 0 && attr != NULL)
        *attr = found;
    return error;
}

/* ---- the export ---- */

struct fsinfo {
    struct share_call call;
    uint32_t read_max, write_max;
};

static void fsinfo_reply(struct share_call *call, void *data)
{
    struct fsinfo *info = (struct fsinfo *)call->arg;
    const FSINFO3res *res = data;
    call->error = share_errno_of_status((unsigned)res->status);
    if (call->error != 0)
        return;
    info->read_max = res->FSINFO3res_u.resok.rtmax;
    info->write_max = res->FSINFO3res_u.resok.wtmax;
}

static int start_fsinfo(struct share *share, struct fsinfo *info)
{
    FSINFO3args args = {.fsroot = to_fh(&share->root)};
    info->call.reply = fsinfo_reply;
    return QUEUED(rpc_nfs3_fsinfo_async(share->rpc, share_replied, &args, &info->call));
}

static uint32_t bounded(uint32_t value)
{
    if (value < 4096)
        return 4096;
    return value < NFS3_PREFERRED_IO ? value : NFS3_PREFERRED_IO;
}

static int open3(struct share *share, struct err *err)
{
    if (share_mount3(share, err) < 0 || share_connect(share, NFS_PROGRAM, NFS_V3, share->location.port, err) < 0)
        return -1;
    struct fsinfo info = {.call = {.share = share, .arg = &info}};
    int error = SHARE_RUN(share, &info.call, start_fsinfo(share, &info));
    if (error != 0)
        return share_explain(&share->location, &share->options.credential, STEP_ROOT, error, "looking at its root",
                             NULL, err);
    share->read_max = bounded(info.read_max);
    share->write_max = bounded(info.write_max);
    return 0;
}

const struct share_protocol share_nfs3 = {
    .version = 3,
    .open = open3,
    .lookup = lookup,
    .getattr = getattr,
    .setattr = setattr,
    .access = access3,
    .readlink = readlink3,
    .read = read3,
    .write = write3,
    .commit = commit3,
    .mkdir = mkdir3,
    .symlink = symlink3,
    .mknod = mknod3,
    .link = link3,
    .rename = rename3,
    .remove = remove3,
    .readdir = readdir3,
    .statfs = statfs3,
    .create = create3,
};
