/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of lib/csi share: a directory for sockets, gates between threads, messages with every field set. */
#ifndef BERTH_TESTS_UNIT_CSI_SUPPORT_H
#define BERTH_TESTS_UNIT_CSI_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs those before it */

#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"
#include "lib/csi/client.h"
#include "lib/csi/server.h"

#define SECRET_VALUE "S3CRET-value"

/* A new empty directory; removed with all that is in it (one level) by directory_remove. */
char *directory_new(void);
void directory_remove(char *directory);

/* Sets every field of a message: two elements in lists and maps, the first member of a oneof, SECRET_VALUE in the
 * secrets. */
void message_fill(struct csi_arena *arena, ProtobufCMessage *message);
/* Fails the test when the two differ on the wire. */
void messages_assert_equal(const ProtobufCMessage *a, const ProtobufCMessage *b);

/* A counter that threads wait for (10 s at most, then the test fails). */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int count;
};
void gate_init(struct gate *gate);
void gate_add(struct gate *gate, int n);
void gate_wait(struct gate *gate, int at_least);
int gate_count(struct gate *gate);
void gate_destroy(struct gate *gate);

/* Collects log lines until log_capture_end. */
void log_capture_begin(struct str *lines);
void log_capture_end(void);

#endif
