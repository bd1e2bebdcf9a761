/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/fuse_config.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"

#include <jansson.h>

#define CONFIG_LIMIT 16384

void fuse_config_clear(struct fuse_config *config)
{
    share_location_clear(&config->where);
    free(config->sub_dir);
    *config = (struct fuse_config){0};
}

int fuse_config_write(const struct fuse_config *config, const char *path, struct err *err)
{
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:b}", "server", config->where.server,
                  "export", config->where.export, "version", config->where.version, "port", config->where.port,
                  "mountPort", config->where.mount_port, "subDir", config->sub_dir, "limit", (json_int_t)config->limit,
                  "timeout", (json_int_t)config->timeout, "usageInterval", (json_int_t)config->usage_interval, "uid",
                  (json_int_t)config->uid, "gid", (json_int_t)config->gid, "soft", config->soft);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "%s: its values are not UTF-8", path);
    char *text = json_dumps(json, JSON_INDENT(2));
    json_decref(json);
    int result = file_write_atomic(path, text, strlen(text), 0600, err);
    free(text);
    return result;
}

int fuse_config_read(const char *path, struct fuse_config *config, struct err *err)
{
    auto_free char *text = NULL;
    size_t len = 0;
    json_error_t where;
    const char *server = NULL, *export = NULL, *sub_dir = NULL;
    json_int_t limit = 0, timeout = 0, interval = 0, uid = 0, gid = 0;
    int soft = 0;
    if (file_read(path, CONFIG_LIMIT, &text, &len, err) < 0)
        return -1;
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL)
        return err_set(err, ERR_INVALID, "%s: line %d: %s", path, where.line, where.text);
    int result =
        json_unpack_ex(json, &where, 0, "{s:s, s:s, s:i, s:i, s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:b}", "server",
                       &server, "export", &export, "version", &config->where.version, "port", &config->where.port,
                       "mountPort", &config->where.mount_port, "subDir", &sub_dir, "limit", &limit, "timeout", &timeout,
                       "usageInterval", &interval, "uid", &uid, "gid", &gid, "soft", &soft);
    if (result == 0) {
        config->where.server = mem_strdup(server);
        config->where.export = mem_strdup(export);
        config->sub_dir = mem_strdup(sub_dir);
        config->limit = limit;
        config->timeout = timeout;
        config->usage_interval = interval;
        config->uid = (uint32_t)uid;
        config->gid = (uint32_t)gid;
        config->soft = soft != 0;
    }
    json_decref(json);
    return result == 0 ? 0 : err_set(err, ERR_INVALID, "%s: %s", path, where.text);
}
