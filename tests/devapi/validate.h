/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's checks: names and metadata of everything, and the rules of single kinds that controllers rely on
 * (immutable fields, required ones, sizes). Errors are collected as the real server does, one 422 lists them all.
 */
#ifndef BERTH_DEVAPI_VALIDATE_H
#define BERTH_DEVAPI_VALIDATE_H

#include "tests/devapi/reply.h"

struct errors {
    json_t *causes;
    struct str text;
    size_t count;
};
void errors_free(struct errors *errors);
#define auto_errors __attribute__((cleanup(errors_free)))

enum error_type { ERROR_REQUIRED, ERROR_INVALID, ERROR_NOT_SUPPORTED, ERROR_FORBIDDEN, ERROR_TOO_LONG };
/* `value` (NULL = none) is shown in the message. */
void errors_add(struct errors *errors, enum error_type type, const char *field, const json_t *value,
                const char *detail);
/* NULL-ended list of allowed texts; nothing happens when the field is absent. */
void errors_check_enum(struct errors *errors, const json_t *object, const char *field, const char *const *allowed);
void errors_require(struct errors *errors, const json_t *object, const char *field);
/* "is immutable" unless both objects have the same there. */
void errors_check_immutable(struct errors *errors, const json_t *object, const json_t *old, const char *field);
/* The 422 out of what was collected: -1, or 0 when there is nothing. */
int errors_reply(struct errors *errors, struct reply *reply, const struct kind *kind, const char *name);

/* NULL when good, else what is wrong with it. */
const char *name_problem(enum kind_name_rule rule, const char *name);

void validate_metadata(const struct kind *kind, const json_t *object, struct errors *errors);
void validate_metadata_update(const json_t *object, const json_t *old, struct errors *errors);

void validate_volume(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_volume_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors);
void validate_claim(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_claim_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors);
void validate_class(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_class_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors);
void validate_attributes_class(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_attributes_class_update(const json_t *object, const json_t *old, const struct rules *rules,
                                      struct errors *errors);
void validate_pod(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_pod_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors);
void validate_event(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_secret_update(const json_t *object, const json_t *old, const struct rules *rules, struct errors *errors);
void validate_lease(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_capacity(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_capacity_update(const json_t *object, const json_t *old, const struct rules *rules,
                              struct errors *errors);
void validate_attachment(const json_t *object, const struct rules *rules, struct errors *errors);
void validate_attachment_update(const json_t *object, const json_t *old, const struct rules *rules,
                                struct errors *errors);

#endif
