/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/parameters.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"

#include <strings.h>

#define KUBERNETES_PREFIX "csi.storage.k8s.io/"

static const char *const mounter_names[] = {
    [MOUNTER_AUTO] = "auto", [MOUNTER_KERNEL] = "kernel", [MOUNTER_FUSE] = "fuse"};

bool mounter_parse(const char *text, enum mounter *mounter)
{
    if (*text == '\0')
        text = mounter_names[MOUNTER_AUTO];
    for (size_t i = 0; i < ARRAY_LEN(mounter_names); i++)
        if (strcasecmp(text, mounter_names[i]) == 0) {
            *mounter = (enum mounter)i;
            return true;
        }
    return false;
}

const char *mounter_name(enum mounter mounter)
{
    return mounter_names[mounter];
}

void parameters_clear(struct parameters *parameters)
{
    share_location_clear(&parameters->where);
    free(parameters->sub_dir);
    free(parameters->mount_options);
    *parameters = (struct parameters){0};
}

struct reading {
    struct csi_map map;
    struct parameters *parameters;
    const char *server, *share, *sub_dir, *pattern, *archive;
    bool has_on_delete;
};

static int bad_value(const char *key, const char *value, const char *wanted, struct err *err)
{
    return csi_fail(err, CSI_INVALID_ARGUMENT, "parameter %s: \"%s\" is not %s", key, value, wanted);
}

static int read_mode(struct reading *reading, const char *key, const char *value, struct err *err)
{
    char *end = NULL;
    unsigned long mode = strtoul(value, &end, 8);
    if (*value == '\0' || *end != '\0' || value[0] == '-' || mode > 07777)
        return bad_value(key, value, "an octal mode such as 0750", err);
    reading->parameters->has_mode = mode != 0; /* 0 = leave it as it is */
    reading->parameters->mode = (uint32_t)mode;
    return 0;
}

static int read_id(const char *key, const char *value, bool *has, uint32_t *id, struct err *err)
{
    uint64_t number = 0;
    if (!str_parse_u64(value, &number) || number >= UINT32_MAX)
        return bad_value(key, value, "a number", err);
    *has = true;
    *id = (uint32_t)number;
    return 0;
}

static int read_uid(struct reading *reading, const char *key, const char *value, struct err *err)
{
    return read_id(key, value, &reading->parameters->has_uid, &reading->parameters->uid, err);
}

static int read_gid(struct reading *reading, const char *key, const char *value, struct err *err)
{
    return read_id(key, value, &reading->parameters->has_gid, &reading->parameters->gid, err);
}

static int read_on_delete(struct reading *reading, const char *key, const char *value, struct err *err)
{
    reading->has_on_delete = *value != '\0';
    return on_delete_parse(value, &reading->parameters->on_delete)
               ? 0
               : bad_value(key, value, "delete, retain or archive", err);
}

static int read_archive(struct reading *reading, const char *key, const char *value, struct err *err)
{
    static const char *const words[] = {"1", "t", "true", "0", "f", "false"}; /* Go's ParseBool */
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcasecmp(value, words[i]) == 0) {
            reading->archive = i < 3 ? "archive" : "delete";
            return 0;
        }
    return bad_value(key, value, "true or false", err);
}

static int read_mounter(struct reading *reading, const char *key, const char *value, struct err *err)
{
    return mounter_parse(value, &reading->parameters->mounter) ? 0 : bad_value(key, value, "auto, kernel or fuse", err);
}

static int read_mount_options(struct reading *reading, const char *key, const char *value, struct err *err)
{
    (void)key;
    free(reading->parameters->mount_options);
    reading->parameters->mount_options = mem_strdup(value);
    return parameters_read_mount_options(value, &reading->parameters->where, err);
}

#define TEXT_KEY(field)                                                                                                \
    static int read_##field(struct reading *reading, const char *key, const char *value, struct err *err)              \
    {                                                                                                                  \
        (void)key, (void)err;                                                                                          \
        reading->field = value;                                                                                        \
        return 0;                                                                                                      \
    }
TEXT_KEY(server)
TEXT_KEY(share)
TEXT_KEY(sub_dir)
TEXT_KEY(pattern)

static const struct {
    const char *key;
    int (*read)(struct reading *reading, const char *key, const char *value, struct err *err);
} keys[] = {
    {"server", read_server},
    {"share", read_share},
    {"subDir", read_sub_dir},
    {"pathPattern", read_pattern},
    {"onDelete", read_on_delete},
    {"archiveOnDelete", read_archive},
    {"mountPermissions", read_mode},
    {"mountOptions", read_mount_options},
    {"uid", read_uid},
    {"gid", read_gid},
    {"mounter", read_mounter},
};

static int read_key(struct reading *reading, const char *key, const char *value, bool is_context, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strcasecmp(key, keys[i].key) == 0)
            return keys[i].read(reading, keys[i].key, value, err);
    if (is_context || strncasecmp(key, KUBERNETES_PREFIX, strlen(KUBERNETES_PREFIX)) == 0)
        return 0;
    auto_str struct str known = {0};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        str_addf(&known, "%s%s", i > 0 ? ", " : "", keys[i].key);
    return csi_fail(err, CSI_INVALID_ARGUMENT, "unknown parameter \"%s\" (known: %s)", key, str_text(&known));
}

static int finish_place(struct reading *reading, struct err *err)
{
    struct parameters *parameters = reading->parameters;
    const char *server = reading->server != NULL ? reading->server : "";
    if (*server != '\0' &&
        handle_set_location(&parameters->where, server, reading->share != NULL ? reading->share : "/", err) < 0)
        return -1;
    if (*server != '\0' && reading->share == NULL) { /* "" and "/" name the root, nothing names nothing */
        free(parameters->where.export);
        parameters->where.export = NULL;
    }
    return 0;
}

static int finish(struct reading *reading, bool is_context, struct err *err)
{
    struct parameters *parameters = reading->parameters;
    if (finish_place(reading, err) < 0)
        return -1;
    /* onDelete wins, as there */
    if (!reading->has_on_delete && reading->archive != NULL)
        on_delete_parse(reading->archive, &parameters->on_delete);
    const char *pattern = !str_empty(reading->sub_dir) ? reading->sub_dir : reading->pattern;
    if (str_empty(pattern))
        return 0;
    /* in a context it is filled in already */
    auto_free char *filled = is_context ? mem_strdup(pattern) : template_fill(pattern, reading->map, err);
    if (filled == NULL)
        return -1;
    auto_free char *clean = handle_clean_path(filled, "subDir", err);
    if (clean == NULL)
        return -1;
    if (*clean != '\0')
        parameters->sub_dir = mem_take(clean);
    return 0;
}

static int read_keys(struct reading *reading, bool is_context, struct err *err)
{
    const char *key, *value;
    for (size_t i = 0; i < reading->map.len; i++)
        if (csi_map_at(reading->map, i, &key, &value) && read_key(reading, key, value, is_context, err) < 0)
            return -1;
    return 0;
}

int parameters_read(struct csi_map map, bool is_context, struct parameters *parameters, struct err *err)
{
    struct reading reading = {.map = map, .parameters = parameters};
    return read_keys(&reading, is_context, err) < 0 ? -1 : finish(&reading, is_context, err);
}

int parameters_read_place(struct csi_map map, struct parameters *parameters, struct err *err)
{
    struct reading reading = {.map = map, .parameters = parameters};
    return read_keys(&reading, false, err) < 0 ? -1 : finish_place(&reading, err);
}

/* ---- mount options ---- */

static int read_option(const char *option, struct share_location *where, struct err *err)
{
    const char *equals = strchr(option, '=');
    uint64_t number = 0;
    if (equals == NULL) {
        if (strcasecmp(option, "v3") == 0)
            where->version = 3;
        else if (strncasecmp(option, "v4", 2) == 0)
            where->version = 4;
        return 0;
    }
    size_t len = (size_t)(equals - option);
    const char *value = equals + 1;
    bool version =
        (len == 4 && strncasecmp(option, "vers", 4) == 0) || (len == 7 && strncasecmp(option, "nfsvers", 7) == 0);
    bool port = len == 4 && strncasecmp(option, "port", 4) == 0;
    bool mount_port = len == 9 && strncasecmp(option, "mountport", 9) == 0;
    if (version) {
        if (*value != '3' && *value != '4')
            return csi_fail(err, CSI_INVALID_ARGUMENT, "mount option %s: NFS version 3 or 4 is needed", option);
        where->version = *value - '0';
        return 0;
    }
    if (!port && !mount_port)
        return 0;
    if (!str_parse_u64(value, &number) || number > UINT16_MAX)
        return csi_fail(err, CSI_INVALID_ARGUMENT, "mount option %s: not a port", option);
    *(port ? &where->port : &where->mount_port) = (int)number;
    return 0;
}

int parameters_read_mount_options(const char *options, struct share_location *where, struct err *err)
{
    auto_strv struct strv parts = {0};
    strv_split(&parts, options, ',');
    for (size_t i = 0; i < parts.len; i++)
        if (read_option(parts.items[i], where, err) < 0)
            return -1;
    return 0;
}

int parameters_read_mount_flags(const Csi__V1__VolumeCapability *capability, struct share_location *where,
                                struct err *err)
{
    if (capability == NULL || capability->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT)
        return 0;
    for (size_t i = 0; i < capability->mount->n_mount_flags; i++)
        if (parameters_read_mount_options(capability->mount->mount_flags[i], where, err) < 0)
            return -1;
    return 0;
}
