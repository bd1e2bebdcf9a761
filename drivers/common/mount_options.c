/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/common/mount_options.h"

#include "lib/base/mem.h"

#include <inttypes.h>
#include <sys/mount.h>

/* Options that the kernel takes as flags; `set` false takes the flag away again. */
static const struct {
    const char *name;
    unsigned long flag;
    bool set;
} known[] = {
    {"ro", MS_RDONLY, true},
    {"rw", MS_RDONLY, false},
    {"nosuid", MS_NOSUID, true},
    {"suid", MS_NOSUID, false},
    {"nodev", MS_NODEV, true},
    {"dev", MS_NODEV, false},
    {"noexec", MS_NOEXEC, true},
    {"exec", MS_NOEXEC, false},
    {"noatime", MS_NOATIME, true},
    {"atime", MS_NOATIME, false},
    {"nodiratime", MS_NODIRATIME, true},
    {"diratime", MS_NODIRATIME, false},
    {"relatime", MS_RELATIME, true},
    {"norelatime", MS_RELATIME, false},
    {"strictatime", MS_STRICTATIME, true},
    {"nostrictatime", MS_STRICTATIME, false},
    {"sync", MS_SYNCHRONOUS, true},
    {"async", MS_SYNCHRONOUS, false},
    {"dirsync", MS_DIRSYNC, true},
    {"lazytime", MS_LAZYTIME, true},
    {"nolazytime", MS_LAZYTIME, false},
    {"nosymfollow", MS_NOSYMFOLLOW, true},
    {"defaults", 0, true},
    {"silent", MS_SILENT, true},
    {"loud", MS_SILENT, false},
};

static bool is_printable(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        if (*c < 0x20 || *c == 0x7f)
            return false;
    return true;
}

static void add_option(struct mount_options *options, const char *option)
{
    strv_add(&options->list, option);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (!str_eq(option, known[i].name))
            continue;
        options->flags = known[i].set ? options->flags | known[i].flag : options->flags & ~known[i].flag;
        return;
    }
    str_addf(&options->data, "%s%s", options->data.len > 0 ? "," : "", option);
}

int mount_options_parse(char *const *items, size_t count, struct mount_options *options, struct err *err)
{
    *options = (struct mount_options){0};
    for (size_t i = 0; i < count; i++) {
        if (!is_printable(items[i])) {
            mount_options_free(options);
            return err_set(err, ERR_INVALID, "mount option %zu holds a control character", i + 1);
        }
        /* a comma within quotes (context="…:c1,c2") does not end an option */
        auto_str struct str option = {0};
        bool quoted = false;
        for (const char *c = items[i];; c++) {
            quoted = *c == '"' ? !quoted : quoted;
            if (*c != '\0' && (*c != ',' || quoted)) {
                str_add_char(&option, *c);
                continue;
            }
            if (option.len > 0)
                add_option(options, str_text(&option));
            str_reset(&option);
            if (*c == '\0')
                break;
        }
    }
    options->read_only = (options->flags & MS_RDONLY) != 0;
    return 0;
}

void mount_options_free(struct mount_options *options)
{
    str_free(&options->data);
    strv_free(&options->list);
    *options = (struct mount_options){0};
}

int mount_options_only_flags(const struct mount_options *options, struct err *err)
{
    if (options->data.len == 0)
        return 0;
    size_t len = strcspn(options->data.data, "=,");
    return err_set(err, ERR_INVALID,
                   "mount option \"%.*s\" is unknown: a volume of this backend takes ro, rw, nosuid, nodev, noexec, "
                   "noatime, nodiratime, relatime, strictatime and nosymfollow",
                   (int)(len > 64 ? 64 : len), options->data.data);
}

char *mount_options_digest(char *const *items, size_t count)
{
    /* FNV-1a with 64 bits: to tell lists apart that an orchestrator sends, not to withstand somebody who forges them */
    uint64_t hash = 0xcbf29ce484222325;
    if (count == 0)
        return mem_strdup("");
    for (size_t i = 0; i < count; i++)
        for (const unsigned char *c = (const unsigned char *)items[i];; c++) {
            hash = (hash ^ *c) * 0x100000001b3;
            if (*c == '\0')
                break;
        }
    return mem_printf("%016" PRIx64, hash);
}
