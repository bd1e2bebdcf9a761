/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects for the tests of the pure decisions, written as JSON with ' for ", and look-ups that find them.
 */
#ifndef BERTH_TEST_PROVISIONER_FIXTURE_H
#define BERTH_TEST_PROVISIONER_FIXTURE_H

/* cmocka wants these before its own header */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "provisioner/config.h"
#include "provisioner/request.h"

struct fixture {
    struct provision_config config; /* a driver "d" that can do everything but topology; all defaults of the flags */
    struct provision_lookup lookup;
    struct kube_object_list objects;
    enum err_code failing; /* every look-up fails with it, unless ERR_NONE */
};
void fixture_init(struct fixture *fixture);
void fixture_free(struct fixture *fixture);
#define auto_fixture __attribute__((cleanup(fixture_free)))

/* Replaces an object of the same kind, namespace and name. The result is borrowed. */
void *fixture_add(struct fixture *fixture, const struct kube_kind *kind, const char *json, ...)
    __attribute__((format(printf, 3, 4)));
json_t *fixture_json(const char *json); /* ' → " */
/* The same for a claim "default/c" with uid "u-1", 1Gi, ReadWriteOnce, class "fast", annotated for driver "d"; `extra`
 * are members of spec, "" = none. */
struct kube_claim *fixture_claim(struct fixture *fixture, const char *extra_spec, const char *extra_annotations);
/* Class "fast" of driver "d" with these parameters ("" = none) and further members. */
struct kube_class *fixture_class(struct fixture *fixture, const char *parameters, const char *extra);

void expect_error(const struct err *err, const char *part); /* the message contains `part` */
/* "k=v,k=v" in key order. Owned by the caller. */
char *fixture_map_text(struct csi_map map);

#endif
