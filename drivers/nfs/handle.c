/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/handle.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/csi/method.h"

#include <ctype.h>
#include <strings.h>

#define PATH_BYTES 1024
#define ELEMENT_BYTES 200 /* room for what is put before and after: archived-…, time stamps */
#define ID_BYTES 64
#define OUR_MARK "b"
#define HASH_PREFIX "x-" /* of ids made from names that are no file names */

static const char *const on_delete_names[] = {
    [ON_DELETE_DEFAULT] = "",
    [ON_DELETE_DELETE] = "delete",
    [ON_DELETE_RETAIN] = "retain",
    [ON_DELETE_ARCHIVE] = "archive",
};

bool on_delete_parse(const char *text, enum on_delete *policy)
{
    for (size_t i = 0; i < ARRAY_LEN(on_delete_names); i++)
        if (strcasecmp(text, on_delete_names[i]) == 0) {
            *policy = (enum on_delete)i;
            return true;
        }
    return false;
}

const char *on_delete_name(enum on_delete policy)
{
    return on_delete_names[policy];
}

void handle_clear(struct handle *handle)
{
    share_location_clear(&handle->where);
    free(handle->sub_dir);
    free(handle->id);
    free(handle->source);
    *handle = (struct handle){0};
}

char *handle_clean_path(const char *path, const char *what, struct err *err)
{
    auto_str struct str out = {0};
    if (strlen(path) > PATH_BYTES) {
        csi_fail(err, CSI_INVALID_ARGUMENT, "%s is longer than %d bytes", what, PATH_BYTES);
        return NULL;
    }
    for (const char *p = path; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '#') {
            csi_fail(err, CSI_INVALID_ARGUMENT, "%s may not hold '#' or control characters", what);
            return NULL;
        }
    auto_strv struct strv parts = {0};
    strv_split(&parts, path, '/');
    for (size_t i = 0; i < parts.len; i++) {
        const char *part = parts.items[i];
        if (*part == '\0')
            continue;
        if (strcmp(part, "..") == 0 || strcmp(part, ".") == 0) {
            csi_fail(err, CSI_INVALID_ARGUMENT, "%s \"%s\" may not have \"%s\" in it", what, path, part);
            return NULL;
        }
        if (strlen(part) > ELEMENT_BYTES) {
            csi_fail(err, CSI_INVALID_ARGUMENT, "%s has an element of more than %d bytes", what, ELEMENT_BYTES);
            return NULL;
        }
        /* on any level: an export may lie below another one */
        if (strcmp(part, RESERVED_DIRECTORY) == 0) {
            csi_fail(err, CSI_INVALID_ARGUMENT, "%s may not be in %s, the driver's own directory", what,
                     RESERVED_DIRECTORY);
            return NULL;
        }
        str_addf(&out, "%s%s", out.len > 0 ? "/" : "", part);
    }
    return str_take(&out);
}

static bool is_plain(const char *name)
{
    bool plain = *name != '\0' && strlen(name) <= ID_BYTES && name[0] != '.';
    for (const char *p = name; plain && *p != '\0'; p++)
        plain = isalnum((unsigned char)*p) || *p == '-' || *p == '_' || *p == '.';
    return plain;
}

char *handle_id_of_name(const char *name)
{
    if (is_plain(name) && !str_starts(name, HASH_PREFIX))
        return mem_strdup(name);
    auto_free char *hash = str_sha256_hex(name, strlen(name));
    return mem_printf(HASH_PREFIX "%.40s", hash);
}

int handle_set_location(struct share_location *where, const char *server, const char *share, struct err *err)
{
    size_t len = strlen(server);
    if (len > 2 && server[0] == '[' && server[len - 1] == ']') {
        server++;
        len -= 2;
    }
    if (len == 0 || len > 253)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "server must be a host name or address");
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)server[i]) && strchr(".-_:%", server[i]) == NULL)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "server \"%.*s\" is not a host name or address", (int)len,
                            server);
    auto_free char *path = handle_clean_path(share, "share", err);
    if (path == NULL)
        return -1;
    free(where->server);
    free(where->export);
    where->server = mem_strndup(server, len);
    where->export = mem_printf("/%s", path);
    return 0;
}

/* ---- parsing ---- */

/* "b,v4,p2049,m20048" */
static int parse_options(const char *text, struct handle *handle, struct err *err)
{
    auto_strv struct strv parts = {0};
    strv_split(&parts, text, ',');
    if (!str_eq(parts.items[0], OUR_MARK))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "its sixth element is not ours");
    handle->ours = true;
    for (size_t i = 1; i < parts.len; i++) {
        const char *part = parts.items[i];
        uint64_t number = 0;
        if (*part == '\0' || !str_parse_u64(part + 1, &number) || number == 0 || number > UINT16_MAX)
            return csi_fail(err, CSI_INVALID_ARGUMENT, "its sixth element has an unknown part \"%s\"", part);
        if (*part == 'v' && (number == 3 || number == 4))
            handle->where.version = (int)number;
        else if (*part == 'p')
            handle->where.port = (int)number;
        else if (*part == 'm')
            handle->where.mount_port = (int)number;
        else
            return csi_fail(err, CSI_INVALID_ARGUMENT, "its sixth element has an unknown part \"%s\"", part);
    }
    return 0;
}

static const char *element(const struct strv *parts, size_t i)
{
    return i < parts->len ? parts->items[i] : "";
}

static int parse_elements(const struct strv *parts, struct handle *handle, struct err *err)
{
    if (parts->len < 3 || parts->len > 6)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "it has %zu elements", parts->len);
    if (handle_set_location(&handle->where, parts->items[0], parts->items[1], err) < 0 ||
        (parts->len == 6 && parse_options(parts->items[5], handle, err) < 0))
        return -1;
    handle->sub_dir = handle_clean_path(parts->items[2], "subDir", err);
    if (handle->sub_dir == NULL)
        return -1;
    const char *id = *element(parts, 3) != '\0' ? element(parts, 3) : handle->sub_dir;
    /* ours holds the id itself, which may be a hash already */
    handle->id = handle->ours && is_plain(id) ? mem_strdup(id) : handle_id_of_name(id);
    return 0;
}

static int parse_volume(const char *text, struct handle *handle, struct err *err)
{
    auto_strv struct strv parts = {0};
    strv_split(&parts, text, '#');
    if (parts.len > 1) {
        if (parse_elements(&parts, handle, err) < 0)
            return -1;
        if (!on_delete_parse(element(&parts, 4), &handle->on_delete))
            return csi_fail(err, CSI_INVALID_ARGUMENT, "its policy \"%s\" is unknown", element(&parts, 4));
        if (*handle->sub_dir != '\0')
            return 0;
        /* only ours has a record to ask */
        if (!handle->ours || *element(&parts, 3) == '\0')
            return csi_fail(err, CSI_INVALID_ARGUMENT, "it names the whole share");
        free(handle->sub_dir);
        handle->sub_dir = NULL;
        return 0;
    }
    /* server/share…/subDir */
    const char *first = strchr(text, '/'), *last = strrchr(text, '/');
    if (first == NULL || first == last)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "it does not name server, share and directory");
    auto_free char *server = mem_strndup(text, (size_t)(first - text));
    auto_free char *share = mem_strndup(first + 1, (size_t)(last - first - 1));
    handle->sub_dir = handle_clean_path(last + 1, "subDir", err);
    if (handle->sub_dir == NULL || handle_set_location(&handle->where, server, share, err) < 0)
        return -1;
    if (*handle->sub_dir == '\0')
        return csi_fail(err, CSI_INVALID_ARGUMENT, "it names the whole share");
    handle->id = handle_id_of_name(handle->sub_dir);
    return 0;
}

int handle_parse(const char *text, struct handle *handle, struct err *err)
{
    if (strlen(text) <= HANDLE_FOREIGN_BYTES && parse_volume(text, handle, err) == 0)
        return 0;
    handle_clear(handle);
    if (err != NULL && err->code == ERR_NONE)
        csi_fail(err, CSI_INVALID_ARGUMENT, "it is longer than %d bytes", HANDLE_FOREIGN_BYTES);
    return err_wrap(err, "volume id \"%.200s\"", text);
}

static int parse_snapshot(const char *text, struct handle *handle, struct err *err)
{
    auto_strv struct strv parts = {0};
    strv_split(&parts, text, '#');
    if (parts.len < 5)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "it does not name server, share, snapshot and source");
    if (parse_elements(&parts, handle, err) < 0)
        return -1;
    if (strchr(handle->sub_dir, '/') != NULL || *handle->sub_dir == '\0')
        return csi_fail(err, CSI_INVALID_ARGUMENT, "it names no snapshot");
    if (!handle->ours && (*element(&parts, 3) == '\0' || *element(&parts, 4) == '\0'))
        return csi_fail(err, CSI_INVALID_ARGUMENT, "it names no source");
    handle->source = *element(&parts, 4) != '\0' ? mem_strdup(element(&parts, 4)) : NULL;
    return 0;
}

int handle_parse_snapshot(const char *text, struct handle *handle, struct err *err)
{
    if (strlen(text) <= HANDLE_FOREIGN_BYTES && parse_snapshot(text, handle, err) == 0)
        return 0;
    handle_clear(handle);
    if (err != NULL && err->code == ERR_NONE)
        csi_fail(err, CSI_INVALID_ARGUMENT, "it is longer than %d bytes", HANDLE_FOREIGN_BYTES);
    return err_wrap(err, "snapshot id \"%.200s\"", text);
}

/* ---- building ---- */

static void add_options(struct str *out, const struct share_location *where)
{
    str_add(out, "#" OUR_MARK);
    if (where->version != 0)
        str_addf(out, ",v%d", where->version);
    if (where->port != 0)
        str_addf(out, ",p%d", where->port);
    if (where->mount_port != 0)
        str_addf(out, ",m%d", where->mount_port);
}

static char *build_volume(const struct handle *handle, const char *sub_dir)
{
    struct str out = {0};
    const char *id = str_eq(handle->id, sub_dir) ? "" : handle->id;
    str_addf(&out, "%s#%s#%s#%s#%s", handle->where.server, handle->where.export + 1, sub_dir, id,
             on_delete_name(handle->on_delete));
    add_options(&out, &handle->where);
    return str_take(&out);
}

static char *check_length(char *text, struct err *err)
{
    if (strlen(text) <= HANDLE_BYTES)
        return text;
    csi_fail(err, CSI_INVALID_ARGUMENT, "the names of server and share are too long for an id of %d bytes: \"%s\"",
             HANDLE_BYTES, text);
    free(text);
    return NULL;
}

char *handle_build(const struct handle *handle, struct err *err)
{
    char *text = build_volume(handle, handle->sub_dir);
    if (strlen(text) <= HANDLE_BYTES)
        return text;
    free(text);
    return check_length(build_volume(handle, ""), err);
}

static char *build_snapshot(const struct handle *handle, const char *source)
{
    struct str out = {0};
    str_addf(&out, "%s#%s#%s##%s", handle->where.server, handle->where.export + 1, handle->id, source);
    add_options(&out, &handle->where);
    return str_take(&out);
}

char *handle_build_snapshot(const struct handle *handle, struct err *err)
{
    char *text = build_snapshot(handle, handle->source);
    if (strlen(text) <= HANDLE_BYTES)
        return text;
    free(text);
    return check_length(build_snapshot(handle, ""), err);
}
