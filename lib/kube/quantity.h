/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes quantities ("10Gi", "1.5G", "2e3", "800E"), exact: kept as whole nano-units in 128 bits, rounded up beyond
 * a nano as the API server does. Values beyond about 1.7e29 units saturate; binary-suffix values beyond 2^63-1 are
 * capped there as upstream does, decimal ones are not.
 */
#ifndef BERTH_KUBE_QUANTITY_H
#define BERTH_KUBE_QUANTITY_H

#include "lib/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct kube_quantity {
    __int128 nano;
};
/* What larger values saturate at (and, negated, smaller ones). */
#define KUBE_QUANTITY_NANO_MAX ((__int128)(((unsigned __int128)1 << 127) - 1))

int kube_quantity_parse(const char *text, struct kube_quantity *quantity, struct err *err);
/* <0, 0, >0 */
int kube_quantity_compare(const struct kube_quantity *a, const struct kube_quantity *b);
struct kube_quantity kube_quantity_from_bytes(int64_t bytes);
/* Whole units rounded up (away from what would be too little), saturated at INT64_MIN/MAX. */
int64_t kube_quantity_ceil(const struct kube_quantity *quantity);
/* As the API writes a byte count with the binary suffix: 5368709120 → "5Gi", 102400 → "100Ki", 1000 → "1000". */
#define KUBE_QUANTITY_TEXT_SIZE 48
char *kube_quantity_format_bytes(int64_t bytes, char buffer[KUBE_QUANTITY_TEXT_SIZE]);
/* For messages to people: the same, but rounded to at most three digits when nothing divides evenly ("8.2Gi"). */
char *kube_quantity_format_human(const struct kube_quantity *quantity, char buffer[KUBE_QUANTITY_TEXT_SIZE]);

#endif
