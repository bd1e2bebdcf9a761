/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the API server is and who we are: kubeconfig files as kubectl reads them (several in $KUBECONFIG are merged,
 * first one wins per entry), or the Pod's service account. Malformed files give one line: file, line and what is wrong.
 */
#ifndef BERTH_KUBE_CONFIG_H
#define BERTH_KUBE_CONFIG_H

#include "lib/base/clock.h"
#include "lib/base/err.h"
#include "lib/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kube_config_options {
    const char *kubeconfig; /* --kubeconfig: one path, or a ':' list; NULL/"" = see below */
    const char *master;     /* --master: replaces the server's URL; NULL/"" = none */
    const char *context;    /* NULL/"" = current-context */
    bool env_wins;          /* $KUBECONFIG is preferred to `kubeconfig` (csi-provisioner's rule) instead of ignored */
    const char *service_account_dir; /* tests; NULL = /var/run/secrets/kubernetes.io/serviceaccount */
};
/* Everything owned by the config; NULL when not given. Paths are absolute (relative ones are relative to their file).
 */
struct kube_config {
    char *server; /* "https://10.0.0.1:443", no trailing slash; IPv6 hosts in brackets */
    char *source; /* for messages: the file, or "in-cluster" */
    char *ca_file, *ca_data;
    bool insecure;
    char *tls_server_name, *proxy_url;
    char *client_certificate_file, *client_certificate_data, *client_key_file, *client_key_data;
    char *token, *token_file; /* a token file is read again when it changes (rotating service account tokens) */
    char *username, *password;
    char *impersonate_user;
    struct strv impersonate_headers;      /* as-groups, as-uid, as-user-extra as lines: "Impersonate-Group: auditors" */
    char *namespace_;                     /* of the context, or of the service account; "default" when none is given */
    struct kube_exec *exec;               /* exec credential plugin, NULL when none */
    struct kube_credentials *credentials; /* what kube_config_credential remembers; NULL in a config made by hand, which
                                             then may only have a fixed token, token file or certificate */
};
/* No kubeconfig given anywhere: in-cluster (KUBERNETES_SERVICE_HOST/PORT and the service account files). */
int kube_config_load(const struct kube_config_options *options, struct kube_config **config, struct err *err);
void kube_config_free(struct kube_config *config); /* wipes secrets */

/* What a request is authenticated with right now. Re-reads token files (at most once a second when the file's mtime,
 * size or inode changed, and once a minute at least), runs the exec plugin when its credential is absent, expired (with
 * 30 s to spare), or `force` says the server answered 401. Thread-safe. The strings are owned by the caller. */
struct kube_credential {
    char *token;                     /* bearer token or NULL */
    char *certificate_pem, *key_pem; /* client certificate as data or NULL */
    uint64_t generation;             /* changes when the content changed: connections are renewed then */
};
int kube_config_credential(struct kube_config *config, struct clock *clock, bool force,
                           struct kube_credential *credential, struct err *err);
void kube_credential_clear(struct kube_credential *credential);

#endif
