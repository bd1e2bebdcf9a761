/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CSI driver that does what a test tells it: answer any code, work slowly, die, forget, report odd sizes and
 * topologies, or end somebody else's process at an exact moment. Its volumes are records in one JSON file, so that they
 * outlive it.
 *
 * A test speaks to it over a unix socket, one JSON object a line, one line back:
 *     {"cmd": "script", "method": "CreateVolume", "steps": [{"code": 4, "effect": true}, {}]}
 *     {"cmd": "calls"}   {"cmd": "volumes"}   {"cmd": "reset"}   {"cmd": "forget"}   {"cmd": "capacity", "bytes": 5}
 *
 * A call takes the first step of its method that fits; without one it succeeds. Members of a step, all optional:
 *     match     only calls whose name or volume id contains this
 *     request   only calls of CreateVolume whose request, as text, contains this
 *     times     how many calls it serves (1); -1 = all
 *     code, message  the gRPC answer
 *     effect    whether the work is really done (default: when code is 0)
 *     delay_ms  wait after the work, before the answer (not longer than the caller waits)
 *     kill_pid, kill  "before" or "after" the work: SIGKILL to that process
 *     die       "before" or "after" the work: the driver ends itself
 *     size, id, topology, no_source, no_id   parts of CreateVolume's answer to change
 *     context_bytes   length of an attribute that CreateVolume's answer has in addition
 */
#ifndef BERTH_FAKECSI_FAKE_H
#define BERTH_FAKECSI_FAKE_H

#include "lib/base/stop.h"
#include "lib/csi/server.h"

#include <jansson.h>
#include <pthread.h>

struct fake_options {
    const char *endpoint, *control, *state, *name, *capabilities, *node_id, *topology;
    bool recycle;
};
struct fake {
    const struct fake_options *options;
    pthread_mutex_t lock; /* for all below */
    json_t *steps;        /* method → array */
    json_t *calls;        /* array, newest last */
    json_t *volumes;      /* id → record */
    int64_t capacity, maximum;
    struct stop *stop;
};

extern const struct csi_handlers fake_handlers; /* their `driver` is a struct fake */

/* script.c: notes the call, takes its step (a new reference, or NULL) and does what the step wants before the work. */
json_t *fake_begin(struct fake *fake, const struct csi_method *method, const char *subject, json_t *details);
bool fake_does_work(const json_t *step);
/* After the work: kills, waits; 0, or -1 with the step's code. */
int fake_end(struct fake *fake, const json_t *step, struct csi_call *call, struct err *err);
json_t *fake_map_to_json(struct csi_map map);

/* Reads and writes the file of volumes; the lock is held. */
int fake_load(struct fake *fake, struct err *err);
void fake_save(struct fake *fake);

/* control.c: serves the control socket in a thread of its own until fake->stop. */
int fake_control_start(struct fake *fake, pthread_t *thread, struct err *err);

#endif
