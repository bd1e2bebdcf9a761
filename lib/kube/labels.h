/* SPDX-License-Identifier: Apache-2.0 */
/* Label selectors of objects (matchLabels and matchExpressions), and node selectors' terms. */
#ifndef BERTH_KUBE_LABELS_H
#define BERTH_KUBE_LABELS_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Key/value pairs, sorted by key; the memory belongs to the object they came from. */
struct kube_pair {
    const char *key;
    const char *value;
};
struct kube_pairs {
    const struct kube_pair *items;
    uint32_t len;
};
const char *kube_pairs_get(const struct kube_pairs *pairs, const char *key); /* NULL when absent; "" is a value */
bool kube_pairs_equal(const struct kube_pairs *a, const struct kube_pairs *b);

struct kube_strings {
    const char *const *items;
    uint32_t len;
};
bool kube_strings_contain(const struct kube_strings *strings, const char *text);
bool kube_strings_equal(const struct kube_strings *a, const struct kube_strings *b); /* same order */

enum kube_operator {
    KUBE_OP_IN,
    KUBE_OP_NOT_IN,
    KUBE_OP_EXISTS,
    KUBE_OP_DOES_NOT_EXIST,
    KUBE_OP_GT,
    KUBE_OP_LT,
    KUBE_OP_UNKNOWN, /* a newer server's: matching with it is an error */
};
struct kube_requirement {
    const char *key;
    const char *operator_text; /* as it came, for messages */
    enum kube_operator operator_;
    struct kube_strings values;
};
/* All requirements must hold (matchLabels come as In with one value). No requirement = matches everything. */
struct kube_selector {
    const struct kube_requirement *items;
    uint32_t len;
};
/* Checks operators, value counts and label syntax as the API machinery does when it builds a selector; the message is
 * upstream's (`"x" is not a valid label selector operator` …) so that users can search for it. */
int kube_selector_validate(const struct kube_selector *selector, struct err *err);
bool kube_selector_matches(const struct kube_selector *selector, const struct kube_pairs *labels);

/* One term of a node selector: expressions over labels and over fields (metadata.name). */
struct kube_node_term {
    struct kube_selector expressions;
    struct kube_selector fields;
};
/* Terms are ORed; a term without any expression matches nothing; Gt and Lt compare integers. */
struct kube_node_selector {
    const struct kube_node_term *terms;
    uint32_t len;
};
bool kube_node_selector_matches(const struct kube_node_selector *selector, const char *node_name,
                                const struct kube_pairs *labels);

/* RFC 1123 names as the API server checks them. */
bool kube_name_is_dns_label(const char *name);
bool kube_name_is_dns_subdomain(const char *name);

#endif
