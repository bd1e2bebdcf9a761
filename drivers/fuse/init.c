/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/fuse/init.h"

#include "lib/base/file.h"
#include "lib/base/mem.h"

#include <linux/fuse.h>
#include <stdint.h>
#include <string.h>

#define FORMAT 1

struct file_head {
    char magic[8];
    uint32_t format, request_length, answer_length, reserved;
};
static const char magic[8] = "berthini";

bool init_is_request(const void *message, size_t length)
{
    const struct fuse_in_header *header = message;
    return length >= sizeof(*header) + 16 && length <= INIT_MESSAGE_MAX && header->opcode == FUSE_INIT &&
           header->len == length;
}

int init_set_request(struct init_exchange *exchange, const void *request, size_t length, struct err *err)
{
    if (!init_is_request(request, length))
        return err_set(err, ERR_INVALID, "the kernel's first call is no INIT call");
    memcpy(exchange->request, request, length);
    exchange->request_length = length;
    return 0;
}

int init_set_answer(struct init_exchange *exchange, const struct iovec *parts, int count, struct err *err)
{
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > sizeof(exchange->answer) - length)
            return err_set(err, ERR_INTERNAL, "the answer to INIT is too long");
        memcpy(exchange->answer + length, parts[i].iov_base, parts[i].iov_len);
        length += parts[i].iov_len;
    }
    const struct fuse_init_in *asked = (const void *)(exchange->request + sizeof(struct fuse_in_header));
    const struct fuse_out_header *header = (const void *)exchange->answer;
    struct fuse_init_out *answer = (void *)(exchange->answer + sizeof(*header));
    if (length < sizeof(*header) + offsetof(struct fuse_init_out, max_background) || header->error != 0)
        return err_set(err, ERR_INTERNAL, "libfuse refused the kernel's INIT call (error %d)",
                       length >= sizeof(*header) ? -header->error : 0);
    answer->flags |= asked->flags & FUSE_HANDLE_KILLPRIV_V2;
    exchange->answer_length = length;
    return 0;
}

bool init_same_answer(const struct init_exchange *a, const struct init_exchange *b)
{
    /* the header holds the number of the call, which may differ */
    const size_t head = sizeof(struct fuse_out_header);
    return a->answer_length == b->answer_length && a->answer_length > head &&
           memcmp(a->answer + head, b->answer + head, a->answer_length - head) == 0;
}

int init_save(const struct init_exchange *exchange, const char *path, struct err *err)
{
    unsigned char data[sizeof(struct file_head) + 2 * (size_t)INIT_MESSAGE_MAX];
    struct file_head head = {.format = FORMAT,
                             .request_length = (uint32_t)exchange->request_length,
                             .answer_length = (uint32_t)exchange->answer_length};
    memcpy(head.magic, magic, sizeof(magic));
    memcpy(data, &head, sizeof(head));
    memcpy(data + sizeof(head), exchange->request, exchange->request_length);
    memcpy(data + sizeof(head) + exchange->request_length, exchange->answer, exchange->answer_length);
    return file_write_atomic(path, data, sizeof(head) + exchange->request_length + exchange->answer_length, 0600, err);
}

int init_load(struct init_exchange *exchange, const char *path, struct err *err)
{
    auto_free char *data = NULL;
    size_t length = 0;
    struct file_head head;
    if (file_read(path, sizeof(head) + 2 * (size_t)INIT_MESSAGE_MAX, &data, &length, err) < 0)
        return -1;
    if (length < sizeof(head))
        return err_set(err, ERR_INVALID, "%s is too short", path);
    memcpy(&head, data, sizeof(head));
    if (memcmp(head.magic, magic, sizeof(magic)) != 0 || head.format != FORMAT)
        return err_set(err, ERR_INVALID, "%s is not of the format this version knows", path);
    if (head.request_length > INIT_MESSAGE_MAX || head.answer_length > INIT_MESSAGE_MAX ||
        length != sizeof(head) + head.request_length + head.answer_length)
        return err_set(err, ERR_INVALID, "%s is damaged", path);
    memcpy(exchange->request, data + sizeof(head), head.request_length);
    memcpy(exchange->answer, data + sizeof(head) + head.request_length, head.answer_length);
    exchange->request_length = head.request_length;
    exchange->answer_length = head.answer_length;
    if (!init_is_request(exchange->request, exchange->request_length))
        return err_set(err, ERR_INVALID, "%s holds no INIT call", path);
    return 0;
}
