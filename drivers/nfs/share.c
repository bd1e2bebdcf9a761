/* SPDX-License-Identifier: Apache-2.0 */
/* The connection, its waiting, and the calls in their blocking form. */
#include "drivers/nfs/share_private.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <nfsc/libnfs.h>
#include <poll.h>
#include <stdarg.h>
#include <unistd.h>

#include <nfsc/libnfs-raw.h> /* needs libnfs.h before it */

/* libnfs 4 has it but does not declare it */
void rpc_set_tcp_syncnt(struct rpc_context *rpc, int count);

#define RPCBIND_PORT 111

void share_location_copy(struct share_location *to, const struct share_location *from)
{
    *to = *from;
    to->server = mem_strdup(from->server);
    to->export = mem_strdup(from->export);
}

void share_location_clear(struct share_location *location)
{
    free(location->server);
    free(location->export);
    *location = (struct share_location){0};
}

bool share_location_equal(const struct share_location *a, const struct share_location *b)
{
    return str_eq(a->server, b->server) && str_eq(a->export, b->export) && a->version == b->version &&
           a->port == b->port && a->mount_port == b->mount_port;
}

/* ---- the connection ---- */

void share_disconnect(struct share *share)
{
    if (share->rpc == NULL)
        return;
    struct rpc_context *rpc = share->rpc;
    share->rpc = NULL;
    rpc_destroy_context(rpc); /* calls in flight get their callback now */
}

static void break_connection(struct share *share, int error)
{
    if (share->broken == 0)
        share->broken = error;
    share_disconnect(share);
}

static void set_auth(struct share *share)
{
    struct share_credential *who = &share->options.credential;
    if (share->rpc != NULL)
        rpc_set_auth(share->rpc,
                     libnfs_authunix_create(share->options.machine, who->uid, who->gid, who->group_count, who->groups));
}

/* Waits for the socket until `deadline` at most, then lets the library work. */
static int serve_once(struct share *share, int64_t deadline)
{
    int64_t left = deadline - clock_mono(share->options.clock);
    if (share->broken != 0)
        return share->broken;
    if (left <= 0)
        return ETIMEDOUT;
    if (share->cancel != NULL && stop_requested(share->cancel))
        return ECANCELED;
    struct pollfd fds[2] = {{.fd = rpc_get_fd(share->rpc), .events = (short)rpc_which_events(share->rpc)},
                            {.fd = share->cancel != NULL ? stop_fd(share->cancel) : -1, .events = POLLIN}};
    int timeout = left > 200 * CLOCK_MS ? 200 : (int)(left / CLOCK_MS) + 1;
    if (poll(fds, 2, timeout) < 0 && errno != EINTR)
        return errno;
    if (rpc_service(share->rpc, fds[0].revents) < 0)
        return ECONNRESET;
    return 0;
}

static int64_t call_deadline(const struct share *share)
{
    int64_t deadline = clock_mono(share->options.clock) + share->options.timeout;
    return deadline < share->deadline ? deadline : share->deadline;
}

int share_finish(struct share *share, struct share_call *call)
{
    int64_t deadline = call_deadline(share);
    while (!call->done) {
        int error = serve_once(share, deadline);
        if (error != 0)
            break_connection(share, error);
        if (error != 0 && !call->done) { /* the library dropped it without a word */
            call->done = true;
            call->error = error;
        }
    }
    return call->error;
}

int share_step(struct share *share)
{
    if (share->broken != 0)
        return share->broken;
    int64_t deadline = call_deadline(share);
    int before = rpc_queue_length(share->rpc);
    do {
        int error = serve_once(share, deadline);
        if (error != 0) {
            break_connection(share, error);
            return error;
        }
    } while (share->broken == 0 && before > 0 && rpc_queue_length(share->rpc) >= before);
    return 0;
}

bool share_pause(struct share *share, int64_t *pause)
{
    int64_t until = clock_mono(share->options.clock) + *pause;
    if (until >= share->deadline || share->broken != 0 || *pause > 10 * CLOCK_SECOND)
        return false;
    *pause *= 2;
    if (share->cancel != NULL)
        return !stop_wait_until(share->cancel, share->options.clock, until);
    poll(NULL, 0, (int)((until - clock_mono(share->options.clock)) / CLOCK_MS));
    return true;
}

void share_replied(struct rpc_context *rpc, int status, void *data, void *private_data)
{
    struct share_call *call = private_data;
    (void)rpc;
    call->error = 0;
    if (status != RPC_STATUS_SUCCESS) /* the RPC layer refused it, or the connection is gone */
        call->error = call->share->broken != 0 ? call->share->broken : EPROTO;
    else if (call->reply != NULL)
        call->reply(call, data);
    call->done = true;
    if (call->finished != NULL)
        call->finished(call);
}

/* A connect ends by the callback, or by rpc_service failing, or never (packets dropped by a firewall). */
int share_connect(struct share *share, unsigned program, unsigned version, int port, struct err *err)
{
    struct share_call call = {.share = share};
    share_disconnect(share);
    share->rpc = rpc_init_context();
    share->broken = 0;
    rpc_set_tcp_syncnt(share->rpc, 6);
    set_auth(share);
    int started =
        port != 0
            ? rpc_connect_port_async(share->rpc, share->address, port, (int)program, (int)version, share_replied, &call)
            : rpc_connect_program_async(share->rpc, share->address, (int)program, (int)version, share_replied, &call);
    int error = started != 0 ? ECONNREFUSED : share_finish(share, &call);
    if (error == 0)
        return 0;
    auto_free char *detail = share->rpc != NULL ? mem_strdup(rpc_get_error(share->rpc)) : NULL;
    /* the library does not pass errno on; its words tell a refused connection from others */
    if (error == ECONNRESET || error == EPROTO)
        error = ECONNREFUSED;
    auto_free char *what =
        port != 0 ? mem_printf("connecting to port %d", port)
                  : mem_printf("asking rpcbind (port %d) for program %u version %u", RPCBIND_PORT, program, version);
    return share_explain(&share->location, &share->options.credential, port != 0 ? STEP_CONNECT : STEP_PORT, error,
                         what, detail, err);
}

static const struct share_protocol *const protocols[] = {&share_nfs4, &share_nfs3};

static int open_any(struct share *share, struct err *err)
{
    auto_str struct str texts = {0};
    for (size_t i = 0; i < ARRAY_LEN(protocols); i++) {
        auto_err struct err failed = {0};
        if (share->location.version != 0 && share->location.version != protocols[i]->version)
            continue;
        share->protocol = protocols[i];
        if (protocols[i]->open(share, &failed) == 0)
            return 0;
        enum err_code code = failed.code;
        str_addf(&texts, "%s%s", texts.len > 0 ? "; and " : "", err_text(&failed));
        /* somebody who does not answer one version will not answer the other */
        if (share->location.version != 0 || code == ERR_TIMEOUT || code == ERR_CANCELLED || i == 1)
            return err_set(err, failed.code, "%s", str_text(&texts));
    }
    return err_set(err, ERR_INVALID, "NFS version %d is not supported (3 or 4)", share->location.version);
}

int share_open(const struct share_location *location, const struct share_options *options, int64_t deadline,
               struct stop *cancel, struct share **out, struct err *err)
{
    auto_share struct share *share = mem_new(struct share);
    int error = 0;
    share_location_copy(&share->location, location);
    share->options = *options;
    if (share->options.machine == NULL)
        share->options.machine = "berth-nfs";
    share->deadline = deadline;
    share->cancel = cancel;
    int64_t resolve_deadline = call_deadline(share);
    if (share_resolve(location->server, options->clock, resolve_deadline, &share->address, &error) < 0)
        return share_explain(location, &options->credential, STEP_RESOLVE, error, "looking up its address", NULL, err);
    if (open_any(share, err) < 0)
        return -1;
    *out = mem_take(share);
    return 0;
}

void share_close(struct share *share)
{
    if (share == NULL)
        return;
    share_disconnect(share);
    share_location_clear(&share->location);
    free(share->address);
    free(share);
}

void share_set_deadline(struct share *share, int64_t deadline)
{
    share->deadline = deadline;
}

void share_set_cancel(struct share *share, struct stop *cancel)
{
    share->cancel = cancel;
}

void share_set_credential(struct share *share, const struct share_credential *credential)
{
    struct share_credential *mine = &share->options.credential;
    bool same = mine->uid == credential->uid && mine->gid == credential->gid &&
                mine->group_count == credential->group_count &&
                memcmp(mine->groups, credential->groups, credential->group_count * sizeof(*mine->groups)) == 0;
    if (same)
        return;
    *mine = *credential;
    set_auth(share);
}

const struct share_location *share_where(const struct share *share)
{
    return &share->location;
}

int share_version(const struct share *share)
{
    return share->protocol->version;
}

bool share_broken(const struct share *share)
{
    return share->broken != 0;
}

void share_root(const struct share *share, struct share_fh *root)
{
    *root = share->root;
}

int share_fail(const struct share *share, int error, struct err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    auto_free char *what = mem_vprintf(format, args);
    va_end(args);
    return share_explain(&share->location, &share->options.credential, STEP_CALL, error, what, NULL, err);
}

/* ---- helpers of the protocols ---- */

int share_errno_of_status(unsigned status)
{
    static const struct {
        unsigned status;
        int error;
    } table[] = {
        {1, EPERM},           {2, ENOENT},          {5, EIO},
        {6, ENXIO},           {13, EACCES},         {17, EEXIST},
        {18, EXDEV},          {19, ENODEV},         {20, ENOTDIR},
        {21, EISDIR},         {22, EINVAL},         {27, EFBIG},
        {28, ENOSPC},         {30, EROFS},          {31, EMLINK},
        {63, ENAMETOOLONG},   {66, ENOTEMPTY},      {69, EDQUOT},
        {70, ESTALE},         {71, EREMOTE},        {10001, ESTALE},
        {10003, EBADMSG},     {10004, EOPNOTSUPP},  {10005, EINVAL},
        {10006, EREMOTEIO},   {10007, EOPNOTSUPP},  {10008, EAGAIN},
        {10013, EAGAIN},      {10016, EPERM},       {10011, EKEYEXPIRED},
        {10014, ESTALE},      {10019, EREMOTE},     {10021, EPROTONOSUPPORT},
        {10022, EKEYEXPIRED}, {10023, EKEYEXPIRED}, {10025, EKEYEXPIRED},
        {10026, EKEYEXPIRED}, {10029, ELOOP},       {10040, EINVAL},
        {10041, EINVAL},      {10012, EAGAIN},      {10015, EAGAIN},
        {10046, EBUSY},
    };
    if (status == 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].status == status)
            return table[i].error;
    return EREMOTEIO;
}

bool share_set_fh(struct share_fh *fh, const char *data, size_t len)
{
    if (len > sizeof(fh->data))
        return false;
    fh->len = (uint32_t)len;
    memcpy(fh->data, data, len);
    return true;
}

struct share_entry *share_page_add(struct share_page *page, const char *name, size_t len)
{
    if (page->len == page->cap) {
        page->cap = page->cap == 0 ? 64 : page->cap * 2;
        page->items = mem_realloc_array(page->items, page->cap, sizeof(*page->items));
    }
    struct share_entry *entry = &page->items[page->len++];
    *entry = (struct share_entry){.name = mem_strndup(name, len)};
    return entry;
}

static void page_drop_entries(struct share_page *page)
{
    for (size_t i = 0; i < page->len; i++)
        free(page->items[i].name);
    page->len = 0;
}

void share_page_clear(struct share_page *page)
{
    page_drop_entries(page);
    free(page->items);
    *page = (struct share_page){0};
}

bool share_name_is_safe(const char *name)
{
    return name != NULL && *name != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strchr(name, '/') == NULL && strlen(name) <= 255;
}

/* ---- the calls ---- */

#define CHECK_NAME(name)                                                                                               \
    do {                                                                                                               \
        if (!share_name_is_safe(name))                                                                                 \
            return EINVAL;                                                                                             \
    } while (0)

int share_lookup(struct share *share, const struct share_fh *dir, const char *name, struct share_fh *fh,
                 struct share_attr *attr)
{
    struct share_call call = {.share = share, .fh = fh, .attr = attr};
    CHECK_NAME(name);
    return SHARE_RUN(share, &call, share->protocol->lookup(share, &call, dir, name));
}

int share_getattr(struct share *share, const struct share_fh *fh, struct share_attr *attr)
{
    struct share_call call = {.share = share, .attr = attr};
    return SHARE_RUN(share, &call, share->protocol->getattr(share, &call, fh));
}

int share_setattr(struct share *share, const struct share_fh *fh, const struct share_set *set, struct share_attr *attr)
{
    struct share_call call = {.share = share, .attr = attr};
    return SHARE_RUN(share, &call, share->protocol->setattr(share, &call, fh, set));
}

int share_access(struct share *share, const struct share_fh *fh, int wanted)
{
    /* READ; MODIFY and EXTEND (a directory also DELETE); LOOKUP or EXECUTE: the bits are the same in both versions */
    uint32_t write = 0x0004 | 0x0008, execute = 0x0002 | 0x0020;
    uint32_t bits = ((wanted & R_OK) ? 0x0001U : 0) | ((wanted & W_OK) ? write : 0) | ((wanted & X_OK) ? execute : 0);
    struct share_call call = {.share = share};
    int error = SHARE_RUN(share, &call, share->protocol->access(share, &call, fh, bits));
    if (error != 0)
        return error;
    bool granted = (!(wanted & R_OK) || (call.access & 0x0001U)) && (!(wanted & W_OK) || (call.access & write)) &&
                   (!(wanted & X_OK) || (call.access & execute));
    return granted ? 0 : EACCES;
}

int share_readlink(struct share *share, const struct share_fh *fh, char **target)
{
    struct share_call call = {.share = share, .text = target};
    *target = NULL;
    return SHARE_RUN(share, &call, share->protocol->readlink(share, &call, fh));
}

int share_read(struct share *share, const struct share_fh *fh, uint64_t offset, void *buffer, size_t len, size_t *got,
               bool *eof)
{
    size_t size = len < share->read_max ? len : share->read_max;
    struct share_call call = {.share = share, .buffer = buffer, .size = size};
    int error = SHARE_RUN(share, &call, share->protocol->read(share, &call, fh, offset));
    *got = call.got;
    *eof = call.eof;
    return error;
}

int share_create(struct share *share, const struct share_fh *dir, const char *name, bool exclusive,
                 const struct share_set *set, struct share_fh *fh, struct share_attr *attr)
{
    CHECK_NAME(name);
    return share->protocol->create(share, dir, name, exclusive, set, fh, attr);
}

/* Servers need not return the handle of what they made; then it is looked up. */
static int complete(struct share *share, const struct share_fh *dir, const char *name, int error, struct share_fh *fh,
                    struct share_attr *attr)
{
    if (error != 0 || (fh == NULL && attr == NULL) ||
        ((fh == NULL || fh->len != 0) && (attr == NULL || attr->type != 0)))
        return error;
    return share_lookup(share, dir, name, fh, attr);
}

static void forget(struct share_fh *fh, struct share_attr *attr)
{
    if (fh != NULL)
        fh->len = 0;
    if (attr != NULL)
        *attr = (struct share_attr){0};
}

int share_mkdir(struct share *share, const struct share_fh *dir, const char *name, const struct share_set *set,
                struct share_fh *fh, struct share_attr *attr)
{
    struct share_call call = {.share = share, .fh = fh, .attr = attr};
    CHECK_NAME(name);
    forget(fh, attr);
    int error = SHARE_RUN(share, &call, share->protocol->mkdir(share, &call, dir, name, set));
    return complete(share, dir, name, error, fh, attr);
}

int share_symlink(struct share *share, const struct share_fh *dir, const char *name, const char *target,
                  const struct share_set *set, struct share_fh *fh, struct share_attr *attr)
{
    struct share_call call = {.share = share, .fh = fh, .attr = attr};
    CHECK_NAME(name);
    forget(fh, attr);
    int error = SHARE_RUN(share, &call, share->protocol->symlink(share, &call, dir, name, target, set));
    return complete(share, dir, name, error, fh, attr);
}

int share_mknod(struct share *share, const struct share_fh *dir, const char *name, const struct share_attr *like,
                const struct share_set *set, struct share_fh *fh, struct share_attr *attr)
{
    struct share_call call = {.share = share, .fh = fh, .attr = attr};
    CHECK_NAME(name);
    forget(fh, attr);
    int error = SHARE_RUN(share, &call, share->protocol->mknod(share, &call, dir, name, like, set));
    return complete(share, dir, name, error, fh, attr);
}

int share_link(struct share *share, const struct share_fh *fh, const struct share_fh *dir, const char *name)
{
    struct share_call call = {.share = share};
    CHECK_NAME(name);
    return SHARE_RUN(share, &call, share->protocol->link(share, &call, fh, dir, name));
}

int share_rename(struct share *share, const struct share_fh *from_dir, const char *from, const struct share_fh *to_dir,
                 const char *to)
{
    struct share_call call = {.share = share};
    CHECK_NAME(from);
    CHECK_NAME(to);
    return SHARE_RUN(share, &call, share->protocol->rename(share, &call, from_dir, from, to_dir, to));
}

static int remove_one(struct share *share, const struct share_fh *dir, const char *name, bool directory)
{
    struct share_call call = {.share = share};
    CHECK_NAME(name);
    return SHARE_RUN(share, &call, share->protocol->remove(share, &call, dir, name, directory));
}

int share_unlink(struct share *share, const struct share_fh *dir, const char *name)
{
    return remove_one(share, dir, name, false);
}

int share_rmdir(struct share *share, const struct share_fh *dir, const char *name)
{
    return remove_one(share, dir, name, true);
}

int share_readdir(struct share *share, const struct share_fh *dir, uint32_t bytes, struct share_page *page)
{
    struct share_call call = {.share = share, .page = page};
    page_drop_entries(page);
    return SHARE_RUN(share, &call, share->protocol->readdir(share, &call, dir, bytes));
}

int share_statfs(struct share *share, const struct share_fh *fh, struct share_space *space)
{
    struct share_call call = {.share = share, .space = space};
    return SHARE_RUN(share, &call, share->protocol->statfs(share, &call, fh));
}

int share_start_remove(struct share *share, struct share_call *call, const struct share_fh *dir, const char *name,
                       bool directory)
{
    CHECK_NAME(name);
    call->share = share;
    call->done = false;
    return share->broken != 0 ? share->broken : share->protocol->remove(share, call, dir, name, directory);
}

int share_start_readdir(struct share *share, struct share_call *call, const struct share_fh *dir, uint32_t bytes,
                        struct share_page *page)
{
    page_drop_entries(page);
    call->share = share;
    call->page = page;
    call->done = false;
    return share->broken != 0 ? share->broken : share->protocol->readdir(share, call, dir, bytes);
}
