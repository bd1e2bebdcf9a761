/* SPDX-License-Identifier: Apache-2.0 */
/* Cells of kubectl get that are more than a member of the object. `now` is the wall time for ages. */
#ifndef BERTH_DEVAPI_TABLE_CELLS_H
#define BERTH_DEVAPI_TABLE_CELLS_H

#include "lib/base/str.h"

#include <jansson.h>
#include <stdint.h>

void cell_age(const json_t *object, int64_t now, struct str *out);
void cell_none(const json_t *object, int64_t now, struct str *out);
void cell_phase(const json_t *object, int64_t now, struct str *out); /* "Terminating" while it is deleted */
void cell_node_status(const json_t *object, int64_t now, struct str *out);
void cell_volume_modes(const json_t *object, int64_t now, struct str *out);
void cell_claim_of_volume(const json_t *object, int64_t now, struct str *out);
void cell_claim_modes(const json_t *object, int64_t now, struct str *out);
void cell_claim_capacity(const json_t *object, int64_t now, struct str *out);
void cell_class(const json_t *object, int64_t now, struct str *out);
void cell_attributes_class(const json_t *object, int64_t now, struct str *out);
void cell_class_name(const json_t *object, int64_t now, struct str *out);
void cell_class_expansion(const json_t *object, int64_t now, struct str *out);
void cell_pod_ready(const json_t *object, int64_t now, struct str *out);
void cell_pod_restarts(const json_t *object, int64_t now, struct str *out);
void cell_pod_ip(const json_t *object, int64_t now, struct str *out);
void cell_pod_node(const json_t *object, int64_t now, struct str *out);
void cell_event_last(const json_t *object, int64_t now, struct str *out);
void cell_event_object(const json_t *object, int64_t now, struct str *out);
void cell_data_count(const json_t *object, int64_t now, struct str *out);
void cell_driver_count(const json_t *object, int64_t now, struct str *out);
void cell_driver_modes(const json_t *object, int64_t now, struct str *out);
/* "90s", "3m5s", "2d": the way kubectl writes ages. */
void cell_add_duration(int64_t seconds, struct str *out);

#endif
