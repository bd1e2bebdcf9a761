/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a list reply into its items while the bytes arrive, so that a page is never parsed as a whole. Follows the JSON
 * only as far as needed: strings, escapes, nesting; what is inside an item is left to the real parser.
 */
#ifndef BERTH_KUBE_CLIENT_SPLIT_H
#define BERTH_KUBE_CLIENT_SPLIT_H

#include "lib/base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define KUBE_SPLIT_ITEM_LIMIT ((size_t)32 << 20)

struct kube_split {
    /* Called for the text of every item of the top-level "items"; false stops. */
    bool (*item)(void *arg, const char *text, size_t len);
    /* Called for the text of the top-level "metadata", wherever it stands. */
    void (*metadata)(void *arg, const char *text, size_t len);
    void *arg;
    /* private */
    unsigned state;
    int depth; /* of the value being read */
    bool in_string, escaped;
    unsigned capture; /* what is being read: see client_split.c */
    struct str key, text;
    const char *problem;
};
enum kube_split_result { KUBE_SPLIT_MORE, KUBE_SPLIT_STOPPED, KUBE_SPLIT_BROKEN };
enum kube_split_result kube_split_feed(struct kube_split *split, const char *data, size_t len);
bool kube_split_complete(const struct kube_split *split); /* the outermost object was closed */
const char *kube_split_problem(const struct kube_split *split);
void kube_split_free(struct kube_split *split);

#endif
