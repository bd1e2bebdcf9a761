/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/nfs4_attr.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <arpa/inet.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>

#define NOBODY 65534U

enum number { /* RFC 7530, section 5 */
              TYPE = 1,
              SIZE = 4,
              FSID = 8,
              RDATTR_ERROR = 11,
              FILEHANDLE = 19,
              FILEID = 20,
              FILES_AVAIL = 21,
              FILES_FREE = 22,
              FILES_TOTAL = 23,
              MAXREAD = 30,
              MAXWRITE = 31,
              MODE = 33,
              NUMLINKS = 35,
              OWNER = 36,
              OWNER_GROUP = 37,
              RAWDEV = 41,
              SPACE_AVAIL = 42,
              SPACE_FREE = 43,
              SPACE_TOTAL = 44,
              SPACE_USED = 45,
              TIME_ACCESS = 47,
              TIME_ACCESS_SET = 48,
              TIME_METADATA = 52,
              TIME_MODIFY = 53,
              TIME_MODIFY_SET = 54,
};
#define LOW(n) (1U << (n))
#define HIGH(n) (1U << ((n)-32))

#define STAT_LOW (LOW(TYPE) | LOW(SIZE) | LOW(FSID) | LOW(FILEID))
#define STAT_HIGH                                                                                                      \
    (HIGH(MODE) | HIGH(NUMLINKS) | HIGH(OWNER) | HIGH(OWNER_GROUP) | HIGH(RAWDEV) | HIGH(SPACE_USED) |                 \
     HIGH(TIME_ACCESS) | HIGH(TIME_METADATA) | HIGH(TIME_MODIFY))
const uint32_t nfs4_attr_stat[NFS4_ATTR_WORDS] = {STAT_LOW, STAT_HIGH};
const uint32_t nfs4_attr_entry[NFS4_ATTR_WORDS] = {STAT_LOW | LOW(RDATTR_ERROR) | LOW(FILEHANDLE), STAT_HIGH};
const uint32_t nfs4_attr_space[NFS4_ATTR_WORDS] = {LOW(FILES_FREE) | LOW(FILES_TOTAL),
                                                   HIGH(SPACE_AVAIL) | HIGH(SPACE_FREE) | HIGH(SPACE_TOTAL)};
const uint32_t nfs4_attr_limits[NFS4_ATTR_WORDS] = {LOW(MAXREAD) | LOW(MAXWRITE), 0};

/* ---- decoding ---- */

struct reader {
    const char *at;
    size_t left;
    bool bad;
};

static uint32_t get32(struct reader *reader)
{
    uint32_t value;
    if (reader->left < 4) {
        reader->bad = true;
        return 0;
    }
    memcpy(&value, reader->at, 4);
    reader->at += 4;
    reader->left -= 4;
    return ntohl(value);
}

static uint64_t get64(struct reader *reader)
{
    uint64_t high = get32(reader);
    return high << 32 | get32(reader);
}

static const char *get_bytes(struct reader *reader, uint32_t *len)
{
    *len = get32(reader);
    size_t padded = ((size_t)*len + 3) & ~(size_t)3;
    const char *at = reader->at;
    if (reader->bad || padded > reader->left) {
        reader->bad = true;
        *len = 0;
        return "";
    }
    reader->at += padded;
    reader->left -= padded;
    return at;
}

static struct timespec get_time(struct reader *reader)
{
    int64_t seconds = (int64_t)get64(reader);
    return (struct timespec){.tv_sec = seconds, .tv_nsec = get32(reader)};
}

uint32_t nfs4_owner_id(const char *text, size_t len, bool group)
{
    char name[256], buffer[4096];
    const char *at = memchr(text, '@', len);
    size_t part = at != NULL ? (size_t)(at - text) : len;
    uint64_t number;
    if (part == 0 || part >= sizeof(name))
        return NOBODY;
    memcpy(name, text, part);
    name[part] = '\0';
    if (str_parse_u64(name, &number))
        return number <= UINT32_MAX ? (uint32_t)number : NOBODY;
    if (group) {
        struct group entry, *found = NULL;
        return getgrnam_r(name, &entry, buffer, sizeof(buffer), &found) == 0 && found != NULL ? entry.gr_gid : NOBODY;
    }
    struct passwd entry, *found = NULL;
    return getpwnam_r(name, &entry, buffer, sizeof(buffer), &found) == 0 && found != NULL ? entry.pw_uid : NOBODY;
}

static void decode_one(struct reader *reader, unsigned number, struct nfs4_attrs *out)
{
    uint32_t len;
    const char *bytes;
    switch (number) {
    case TYPE:
        out->attr.type = (enum share_type)get32(reader);
        break;
    case SIZE:
        out->attr.size = get64(reader);
        break;
    case FSID:
        out->attr.fsid[0] = get64(reader);
        out->attr.fsid[1] = get64(reader);
        break;
    case RDATTR_ERROR:
        out->error = get32(reader);
        break;
    case FILEHANDLE:
        bytes = get_bytes(reader, &len);
        if (len <= sizeof(out->fh.data)) {
            out->fh.len = len;
            memcpy(out->fh.data, bytes, len);
        }
        break;
    case FILEID:
        out->attr.fileid = get64(reader);
        break;
    case FILES_FREE:
        out->space.free_files = get64(reader);
        break;
    case FILES_TOTAL:
        out->space.total_files = get64(reader);
        break;
    case MAXREAD:
        out->read_max = get64(reader);
        break;
    case MAXWRITE:
        out->write_max = get64(reader);
        break;
    case MODE:
        out->attr.mode = get32(reader) & 07777;
        break;
    case NUMLINKS:
        out->attr.nlink = get32(reader);
        break;
    case OWNER:
        bytes = get_bytes(reader, &len);
        out->attr.uid = nfs4_owner_id(bytes, len, false);
        break;
    case OWNER_GROUP:
        bytes = get_bytes(reader, &len);
        out->attr.gid = nfs4_owner_id(bytes, len, true);
        break;
    case RAWDEV:
        out->attr.rdev_major = get32(reader);
        out->attr.rdev_minor = get32(reader);
        break;
    case SPACE_AVAIL:
        out->space.available_bytes = get64(reader);
        break;
    case SPACE_FREE:
        out->space.free_bytes = get64(reader);
        break;
    case SPACE_TOTAL:
        out->space.total_bytes = get64(reader);
        break;
    case SPACE_USED:
        out->attr.used = get64(reader);
        break;
    case TIME_ACCESS:
        out->attr.atime = get_time(reader);
        break;
    case TIME_METADATA:
        out->attr.ctime = get_time(reader);
        break;
    case TIME_MODIFY:
        out->attr.mtime = get_time(reader);
        break;
    default: /* of unknown length: nothing after it can be read */
        reader->bad = true;
        break;
    }
}

bool nfs4_attrs_decode(const uint32_t *bitmap, uint32_t words, const char *data, size_t len, struct nfs4_attrs *out)
{
    struct reader reader = {.at = data, .left = len};
    *out = (struct nfs4_attrs){0};
    for (unsigned number = 0; number < words * 32 && !reader.bad; number++) {
        if ((bitmap[number / 32] & 1U << number % 32) == 0)
            continue;
        if (number >= 64)
            return false;
        out->mask |= (uint64_t)1 << number;
        decode_one(&reader, number, out);
    }
    /* servers without the attribute: take the size */
    if ((out->mask & (uint64_t)1 << SPACE_USED) == 0)
        out->attr.used = out->attr.size;
    return !reader.bad;
}

/* ---- encoding ---- */

struct writer {
    char *at;
    size_t len;
};

static void put32(struct writer *writer, uint32_t value)
{
    uint32_t wire = htonl(value);
    memcpy(writer->at + writer->len, &wire, 4);
    writer->len += 4;
}

static void put64(struct writer *writer, uint64_t value)
{
    put32(writer, (uint32_t)(value >> 32));
    put32(writer, (uint32_t)value);
}

static void put_id(struct writer *writer, uint32_t id)
{
    char text[16] = {0}; /* at most ten digits, padded with zeros to a multiple of four */
    uint32_t len = (uint32_t)snprintf(text, sizeof(text), "%u", id);
    put32(writer, len);
    memcpy(writer->at + writer->len, text, (len + 3) & ~3U);
    writer->len += (len + 3) & ~3U;
}

static void put_time(struct writer *writer, const struct timespec *time, bool now)
{
    put32(writer, now ? 0 : 1);
    if (now)
        return;
    put64(writer, (uint64_t)time->tv_sec);
    put32(writer, (uint32_t)time->tv_nsec);
}

size_t nfs4_set_encode(const struct share_set *set, uint32_t bitmap[NFS4_ATTR_WORDS], char data[NFS4_SET_SIZE])
{
    struct writer writer = {.at = data};
    bitmap[0] = 0;
    bitmap[1] = 0;
    if (set->mask & SHARE_SET_SIZE) {
        bitmap[0] |= LOW(SIZE);
        put64(&writer, set->size);
    }
    if (set->mask & SHARE_SET_MODE) {
        bitmap[1] |= HIGH(MODE);
        put32(&writer, set->mode & 07777);
    }
    if (set->mask & SHARE_SET_UID) {
        bitmap[1] |= HIGH(OWNER);
        put_id(&writer, set->uid);
    }
    if (set->mask & SHARE_SET_GID) {
        bitmap[1] |= HIGH(OWNER_GROUP);
        put_id(&writer, set->gid);
    }
    if (set->mask & (SHARE_SET_ATIME | SHARE_SET_ATIME_NOW)) {
        bitmap[1] |= HIGH(TIME_ACCESS_SET);
        put_time(&writer, &set->atime, !(set->mask & SHARE_SET_ATIME));
    }
    if (set->mask & (SHARE_SET_MTIME | SHARE_SET_MTIME_NOW)) {
        bitmap[1] |= HIGH(TIME_MODIFY_SET);
        put_time(&writer, &set->mtime, !(set->mask & SHARE_SET_MTIME));
    }
    return writer.len;
}
