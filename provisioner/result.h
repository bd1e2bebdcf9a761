/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer of CreateVolume means for the claim. Pure. */
#ifndef BERTH_PROVISIONER_RESULT_H
#define BERTH_PROVISIONER_RESULT_H

#include "provisioner/config.h"

/* gRPC codes that are not final although upstream takes them so, or the other way round (--retry-codes …). */
struct result_overrides {
    const bool *background; /* 17 entries, or NULL for upstream's table */
};
/* code: gRPC status, or -1 for an error that is none. */
enum provision_state result_of_code(int code, bool topology, bool node_selected,
                                    const struct result_overrides *overrides);
bool result_is_infeasible(int code); /* InvalidArgument: retries are delayed */

/* What the worker does next. */
struct result_step {
    bool remember; /* keep (or put) the claim's copy in the in-progress map */
    bool forget;   /* take it out */
    bool retry;    /* with back-off */
    bool clear_selected_node;
};
struct result_step result_next(enum provision_state state, bool failed, bool in_progress_before, bool node_selected);

#endif
