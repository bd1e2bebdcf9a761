/* SPDX-License-Identifier: Apache-2.0 */
/* Objects for tests, from JSON that is written with ' for " to be readable in C. Anything unexpected fails the test. */
#ifndef BERTH_TESTS_OBJECT_TEXT_H
#define BERTH_TESTS_OBJECT_TEXT_H

#include "lib/kube/objects.h"

json_t *json_of_text(const char *text);
struct kube_object *object_of_text(const struct kube_kind *kind, const char *text);
struct kube_object *object_of_text_with(const struct kube_kind *kind, const char *text,
                                        const struct kube_decode_options *options);
/* The decoder refuses it with exactly this message. */
void assert_text_refused(const struct kube_kind *kind, const char *text, const char *message);
void assert_strings(const struct kube_strings *strings, const char *joined); /* by commas */

#endif
