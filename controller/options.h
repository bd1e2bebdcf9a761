/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. Names and defaults are kube-controller-manager's where it has the same flag. */
#ifndef BERTH_CONTROLLER_OPTIONS_H
#define BERTH_CONTROLLER_OPTIONS_H

#include "lib/base/flag.h"

#include <stdbool.h>
#include <stdint.h>

struct recycler_options {
    const char *template_file; /* "" = the built-in pod */
    int64_t minimum_timeout;   /* seconds */
    int64_t increment_timeout; /* seconds per GiB of capacity */
};
enum controller_mode { MODE_FULL, MODE_ANNOTATE };
struct controller_options {
    const char *kubeconfig, *master;
    double api_qps;
    int64_t api_burst;
    int64_t sync_period;
    bool dynamic_provisioning, hostpath_provisioner;
    struct recycler_options nfs, host_path;
    int64_t claim_workers, volume_workers;
    const char *mode_text;
    enum controller_mode mode;
    const char *compatibility_version; /* "" = the server's */
    bool leader_elect;
    int64_t lease_duration, renew_deadline, retry_period;
    const char *lease_name, *lease_namespace;
    const char *http_endpoint, *metrics_path;
    struct flag_log log;
};
extern const struct flag_program controller_flags;
/* What the table cannot check. */
int controller_options_check(struct controller_options *options, struct err *err);

#endif
