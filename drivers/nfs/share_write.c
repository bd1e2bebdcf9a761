/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing. What fits into one call is written stable at once. More is sent in pieces, several in flight, and committed
 * at the end; when the server lost its memory in between (the verifiers differ), everything is written again, stable.
 */
#include "drivers/nfs/share_private.h"

#include <errno.h>
#include <string.h>

#define IN_FLIGHT 32

static int write_stable(struct share *share, const struct share_fh *fh, uint64_t offset, const char *data, size_t len,
                        struct share_attr *attr)
{
    while (len > 0) {
        size_t size = len < share->write_max ? len : share->write_max;
        struct share_call call = {.share = share, .attr = attr};
        int error = SHARE_RUN(share, &call, share->protocol->write(share, &call, fh, offset, data, size, true));
        if (error != 0)
            return error;
        if (call.got == 0 || call.got > size)
            return EIO;
        data += call.got;
        offset += call.got;
        len -= call.got;
    }
    return 0;
}

struct pieces {
    struct share_call calls[IN_FLIGHT];
    size_t sizes[IN_FLIGHT];
    bool busy[IN_FLIGHT];
    unsigned in_flight;
    int error;
    bool again; /* short, delayed, or the server forgot: the slow way is the right one */
    bool have_verifier;
    char verifier[8];
};

static void check_verifier(struct pieces *pieces, const char *verifier)
{
    if (pieces->have_verifier && memcmp(pieces->verifier, verifier, sizeof(pieces->verifier)) != 0)
        pieces->again = true;
    memcpy(pieces->verifier, verifier, sizeof(pieces->verifier));
    pieces->have_verifier = true;
}

static void piece_finished(struct share_call *call)
{
    struct pieces *pieces = call->arg;
    size_t slot = (size_t)(call - pieces->calls);
    pieces->busy[slot] = false;
    pieces->in_flight--;
    if (call->error == EAGAIN || (call->error == 0 && call->got != pieces->sizes[slot]))
        pieces->again = true;
    else if (call->error != 0)
        pieces->error = call->error;
    else
        check_verifier(pieces, call->verifier);
}

static int send_piece(struct share *share, struct pieces *pieces, const struct share_fh *fh, uint64_t offset,
                      const char *data, size_t size)
{
    size_t slot = 0;
    while (pieces->busy[slot])
        slot++;
    struct share_call *call = &pieces->calls[slot];
    *call = (struct share_call){.share = share, .finished = piece_finished, .arg = pieces};
    pieces->sizes[slot] = size;
    int error = share->protocol->write(share, call, fh, offset, data, size, false);
    if (error != 0)
        return error;
    pieces->busy[slot] = true;
    pieces->in_flight++;
    return 0;
}

static int write_pieces(struct share *share, struct pieces *pieces, const struct share_fh *fh, uint64_t offset,
                        const char *data, size_t len)
{
    while ((len > 0 && pieces->error == 0 && !pieces->again) || pieces->in_flight > 0) {
        while (len > 0 && pieces->error == 0 && !pieces->again && pieces->in_flight < IN_FLIGHT) {
            size_t size = len < share->write_max ? len : share->write_max;
            pieces->error = send_piece(share, pieces, fh, offset, data, size);
            data += size;
            offset += size;
            len -= size;
        }
        if (pieces->in_flight == 0)
            break;
        int error = share_step(share);
        if (error != 0) /* all calls have ended by now */
            return error;
    }
    return pieces->error;
}

int share_write(struct share *share, const struct share_fh *fh, uint64_t offset, const void *data, size_t len,
                struct share_attr *attr)
{
    if (len <= share->write_max || share->broken != 0)
        return share->broken != 0 ? share->broken : write_stable(share, fh, offset, data, len, attr);
    struct pieces pieces = {0};
    int error = write_pieces(share, &pieces, fh, offset, data, len);
    if (error != 0)
        return error;
    struct share_call commit = {.share = share, .attr = attr};
    if (!pieces.again) {
        error = SHARE_RUN(share, &commit, share->protocol->commit(share, &commit, fh));
        if (error != 0)
            return error;
        check_verifier(&pieces, commit.verifier);
    }
    return pieces.again ? write_stable(share, fh, offset, data, len, attr) : 0;
}
