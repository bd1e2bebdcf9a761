/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One holder gives all to the next:
 *
 *     new: {"op":"hand-over"}          old: {"ok":true,"count":N} + the listening socket
 *                                      old: N times {entry} + /dev/fuse + pidfd (if it has a process)
 *     new: {"op":"hand-over-done"}     old: {"ok":true}, and ends
 *
 * From the first message on the old one starts and removes nothing. If the new one goes away before the last, the old
 * one carries on as if nothing had been.
 */
#include "drivers/common/holder_packet.h"
#include "drivers/holder/holder.h"
#include "drivers/holder/process.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define PATIENCE (10 * CLOCK_SECOND)

/* Until no call is at work and no process is between two states. */
static int wait_settled(struct holder *holder, int64_t deadline, struct err *err)
{
    for (;;) {
        bool settled = true;
        for (size_t i = 0; i < holder->table.len; i++)
            settled = settled && !holder->table.items[i]->busy &&
                      (holder->table.items[i]->state == HELD_SERVING || holder->table.items[i]->state == HELD_WAITING);
        if (settled)
            return 0;
        if (!clock_cond_wait(holder->clock, &holder->changed, &holder->lock, deadline))
            return err_set(err, ERR_TIMEOUT, "some mount is being changed for too long");
    }
}

static int give_all(struct holder *holder, int connection, int listen_fd, int64_t deadline, struct err *err)
{
    json_t *head = json_pack("{s:b, s:I}", "ok", 1, "count", (json_int_t)holder->table.len);
    int result = holder_packet_send(connection, head, &listen_fd, 1, deadline, err);
    json_decref(head);
    for (size_t i = 0; i < holder->table.len && result == 0; i++) {
        const struct held *held = holder->table.items[i];
        const int fds[] = {held->fuse_fd, held->pid_fd};
        json_t *entry = table_entry_to_json(held);
        result = holder_packet_send(connection, entry, fds, held->pid_fd >= 0 ? 2 : 1, deadline, err);
        json_decref(entry);
    }
    if (result < 0)
        return -1;
    auto_packet struct holder_packet done = {0};
    if (holder_packet_receive(connection, &done, deadline, err) < 0)
        return -1;
    if (!str_eq(json_string_value(json_object_get(done.body, "op")), "hand-over-done"))
        return err_set(err, ERR_UNAVAILABLE, "the new holder went away");
    return 0;
}

int holder_give(struct holder *holder, int connection, int listen_fd, struct err *err)
{
    int64_t deadline = clock_mono(holder->clock) + PATIENCE;
    pthread_mutex_lock(&holder->lock);
    int result = wait_settled(holder, deadline, err);
    holder->quiet = true;
    if (result == 0)
        result = give_all(holder, connection, listen_fd, deadline, err);
    holder->quiet = false;
    if (result == 0) {
        holder->quiet = holder->finished = true;
        json_t *answer = json_pack("{s:b}", "ok", 1);
        holder_packet_send(connection, answer, NULL, 0, deadline, NULL);
        json_decref(answer);
        log_info("Handed all mounts over", kv_int("mounts", (int64_t)holder->table.len));
    }
    holder_changed(holder);
    pthread_mutex_unlock(&holder->lock);
    if (result == 0)
        stop_request(holder->stop);
    return result;
}

static int take_entry(struct holder *holder, int connection, int64_t deadline, struct err *err)
{
    auto_packet struct holder_packet packet = {0};
    if (holder_packet_receive(connection, &packet, deadline, err) < 0)
        return -1;
    if (packet.body == NULL || packet.fd_count < 1)
        return err_set(err, ERR_UNAVAILABLE, "the old holder went away");
    struct held *held = table_entry_from_json(packet.body, err);
    if (held == NULL)
        return -1;
    held->fuse_fd = mem_take_fd(&packet.fds[0]);
    held_move(held, HELD_STARTING); /* as a later process's life begins */
    if (packet.fd_count > 1) {
        held->pid_fd = mem_take_fd(&packet.fds[1]);
        held->pid = process_number(held->pid_fd); /* its number in this namespace */
        held->pid_start = held->pid > 0 ? process_start_time(held->pid) : 0;
        held_move(held, HELD_SERVING);
    } else {
        held->pid = 0;
        held->pid_start = 0;
        held_move(held, HELD_WAITING);
    }
    table_add(&holder->table, held);
    return 0;
}

int holder_take(struct holder *holder, const char *socket_path, int *listen_fd, struct err *err)
{
    int64_t deadline = clock_mono(holder->clock) + 2 * PATIENCE;
    auto_close int connection = holder_packet_connect(socket_path, err);
    if (connection < 0)
        return -1;
    json_t *request = json_pack("{s:s}", "op", "hand-over");
    int result = holder_packet_send(connection, request, NULL, 0, deadline, err);
    json_decref(request);
    auto_packet struct holder_packet head = {0};
    if (result < 0 || holder_packet_receive(connection, &head, deadline, err) < 0)
        return -1;
    if (head.body == NULL)
        return err_set(err, ERR_UNAVAILABLE, "the old holder went away");
    if (holder_packet_check(head.body, err) < 0)
        return err_wrap(err, "the old holder refuses");
    if (head.fd_count != 1)
        return err_set(err, ERR_INVALID, "the old holder gave no socket");
    json_int_t count = json_integer_value(json_object_get(head.body, "count"));
    for (json_int_t i = 0; i < count && result == 0; i++)
        result = take_entry(holder, connection, deadline, err);
    /* durable before the old one lets go: from then on this table is the only one */
    if (result < 0 || holder_save(holder, err) < 0)
        return -1;
    json_t *done = json_pack("{s:s}", "op", "hand-over-done");
    result = holder_packet_send(connection, done, NULL, 0, deadline, err);
    json_decref(done);
    auto_packet struct holder_packet last = {0};
    if (result < 0 || holder_packet_receive(connection, &last, deadline, err) < 0)
        return -1;
    *listen_fd = mem_take_fd(&head.fds[0]);
    log_info("Took all mounts over from another holder", kv_int("mounts", (int64_t)holder->table.len));
    return 0;
}
