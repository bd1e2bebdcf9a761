/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few controllers of a control plane without which objects would never go away: protection of volumes and claims,
 * dependents of deleted owners, contents of deleted namespaces. They run after a round of requests, as watchers of the
 * real ones would see them a moment later.
 */
#ifndef BERTH_DEVAPI_CONTROLLERS_H
#define BERTH_DEVAPI_CONTROLLERS_H

#include "tests/devapi/server.h"

struct controllers *controllers_new(void);
void controllers_free(struct controllers *controllers);
void controllers_changed(struct server *server, const struct version *now, const struct version *old);
void controllers_removed(struct server *server, const struct version *last);
/* Does what is due; returns whether anything was written. */
bool controllers_run(struct server *server);

#endif
