/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/result.h"

#include "lib/base/mem.h"
#include "lib/csi/method.h"

const char *provision_state_name(enum provision_state state)
{
    static const char *const names[] = {
        [PROVISION_FINISHED] = "Finished",
        [PROVISION_NO_CHANGE] = "NoChange",
        [PROVISION_IN_BACKGROUND] = "InBackground",
        [PROVISION_RESCHEDULE] = "Reschedule",
        [PROVISION_IGNORED] = "Ignored",
    };
    return names[state];
}

/* Codes after which the volume may exist or come to exist: the call has to be repeated until the driver says a final
 * word. */
static const bool upstream_background[17] = {
    [CSI_CANCELED] = true,
    [CSI_DEADLINE_EXCEEDED] = true,
    [CSI_ABORTED] = true,
    [CSI_UNAVAILABLE] = true,
};

enum provision_state result_of_code(int code, bool topology, bool node_selected,
                                    const struct result_overrides *overrides)
{
    const bool *background =
        overrides != NULL && overrides->background != NULL ? overrides->background : upstream_background;
    if (code < 0 || code >= (int)ARRAY_LEN(upstream_background))
        return PROVISION_IN_BACKGROUND; /* no gRPC status: nobody knows what the driver did */
    if (code == CSI_RESOURCE_EXHAUSTED && topology && node_selected)
        return PROVISION_RESCHEDULE;
    return background[code] ? PROVISION_IN_BACKGROUND : PROVISION_FINISHED;
}

bool result_is_infeasible(int code)
{
    return code == CSI_INVALID_ARGUMENT;
}

struct result_step result_next(enum provision_state state, bool failed, bool in_progress_before, bool node_selected)
{
    switch (state) {
    case PROVISION_FINISHED:
        return (struct result_step){.forget = true, .retry = failed};
    case PROVISION_IN_BACKGROUND:
        return (struct result_step){.remember = true, .retry = true};
    case PROVISION_NO_CHANGE:
        return (struct result_step){.remember = in_progress_before, .retry = true};
    case PROVISION_RESCHEDULE:
        /* without a selected node there is nothing to give back: an ordinary final error */
        return (struct result_step){.forget = true, .retry = !node_selected, .clear_selected_node = node_selected};
    case PROVISION_IGNORED:
        break;
    }
    return (struct result_step){.forget = true};
}
