/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of lib/kube/config*.c share: YAML access with line numbers, the exec plugin, the credential cache. */
#ifndef BERTH_KUBE_CONFIG_PRIVATE_H
#define BERTH_KUBE_CONFIG_PRIVATE_H

#include "lib/base/stop.h"
#include "lib/base/str.h"
#include "lib/kube/config.h"

#include <jansson.h>
#include <yaml.h>

/* ---- one kubeconfig file ---- */
struct kube_yaml {
    char *path;      /* as the user named it: for messages */
    char *directory; /* absolute: relative paths in the file start here */
    yaml_document_t document;
    bool loaded;
};
int kube_yaml_load(struct kube_yaml *file, const char *path, struct err *err);
void kube_yaml_free(struct kube_yaml *file);
yaml_node_t *kube_yaml_root(struct kube_yaml *file); /* a mapping; NULL for an empty file */
/* "FILE:LINE: …"; returns -1. */
int kube_yaml_error(const struct kube_yaml *file, const yaml_node_t *node, struct err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The value of a key; NULL when absent or null. */
yaml_node_t *kube_yaml_get(struct kube_yaml *file, const yaml_node_t *mapping, const char *key);
/* The same with a check of the type; *node is NULL when absent. */
int kube_yaml_get_mapping(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, yaml_node_t **node,
                          struct err *err);
int kube_yaml_get_sequence(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, yaml_node_t **node,
                           struct err *err);
size_t kube_yaml_len(const yaml_node_t *sequence); /* 0 for NULL */
yaml_node_t *kube_yaml_item(struct kube_yaml *file, const yaml_node_t *sequence, size_t index);
/* Scalars. *value stays as it is when the key is absent, else it is replaced and owned by the caller. Control
 * characters are refused, since most of these values end up in headers and URLs. */
int kube_yaml_get_string(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, char **value,
                         struct err *err);
int kube_yaml_get_path(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, char **value,
                       struct err *err);
int kube_yaml_get_data(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, char **value,
                       struct err *err);
int kube_yaml_get_bool(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, bool *value,
                       struct err *err);
/* Any value as JSON: for the cluster's "config" extension, which exec plugins get. */
json_t *kube_yaml_to_json(struct kube_yaml *file, const yaml_node_t *node, struct err *err);

/* ---- exec plugin ---- */
enum kube_exec_mode { KUBE_EXEC_NEVER, KUBE_EXEC_IF_AVAILABLE, KUBE_EXEC_ALWAYS };
struct kube_exec {
    char *api_version; /* client.authentication.k8s.io/v1 or v1beta1 */
    char *command;
    struct strv args;
    struct strv env; /* NAME=VALUE, added to our environment */
    enum kube_exec_mode mode;
    char *install_hint;
    char *cluster; /* spec.cluster as JSON text when provideClusterInfo is set; NULL else */
};
int kube_exec_parse(struct kube_yaml *file, const yaml_node_t *node, struct kube_exec **exec, struct err *err);
/* spec.cluster for the plugin; `node` is the cluster's mapping of `file`. */
int kube_exec_set_cluster(struct kube_exec *exec, const struct kube_config *config, struct kube_yaml *file,
                          const yaml_node_t *node, struct err *err);
void kube_exec_free(struct kube_exec *exec);
/* Runs the plugin. *expires is wall ns, 0 when it does not expire. Never puts the plugin's output into a message. */
int kube_exec_run(const struct kube_exec *exec, struct stop *stop, struct kube_credential *credential, int64_t *expires,
                  struct err *err);
/* The JSON that a plugin printed, with the same result; apart for tests. */
int kube_exec_parse_output(const struct kube_exec *exec, const char *text, size_t len,
                           struct kube_credential *credential, int64_t *expires, struct err *err);

/* ---- credentials ---- */
struct kube_credentials *kube_credentials_new(void);
void kube_credentials_free(struct kube_credentials *credentials);
/* kube_config_credential for the client: `refused` is the generation the server answered 401 to (0 = none); the
 * credential is renewed only when it is still that one, so that a hundred refused requests renew it once. `stop` ends a
 * running plugin. */
int kube_config_credential_renew(struct kube_config *config, struct clock *clock, struct stop *stop, uint64_t refused,
                                 struct kube_credential *credential, struct err *err);
/* NULL and wiped. */
void kube_wipe_string(char **text);

#endif
