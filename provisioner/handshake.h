/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the driver at the start: is it ready, who is it, what can it do, where does it run. */
#ifndef BERTH_PROVISIONER_HANDSHAKE_H
#define BERTH_PROVISIONER_HANDSHAKE_H

#include "lib/base/stop.h"
#include "lib/csi/client.h"
#include "provisioner/config.h"

struct handshake {
    char *driver_name;
    struct driver_capabilities capabilities;
    struct kube_pair *node_topology; /* of NodeGetInfo, sorted by key; strings owned */
    uint32_t node_topology_len;
};
/* Waits for the connection (30 s, as upstream), probes until the driver is ready (a deadline or "not ready" is tried
 * again each second, any other error is final), then asks; every call has `timeout` ns. */
int handshake_run(struct csi_client *driver, int64_t timeout, bool node_info, struct stop *stop,
                  struct handshake *handshake, struct err *err);
/* The parts of it, for the time after a reconnect. */
int handshake_probe(struct csi_client *driver, int64_t timeout, struct stop *stop, struct err *err);
int handshake_ask(struct csi_client *driver, int64_t timeout, bool node_info, struct stop *stop,
                  struct handshake *handshake, struct err *err);
bool handshake_equal(const struct handshake *a, const struct handshake *b);
void handshake_clear(struct handshake *handshake);

#endif
