/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small cluster in memory for the tests of decisions. Objects are written as differences (merge patches, with single
 * quotes) from an ordinary one:
 *
 *     volume   pv-NAME, 5Gi, ReadWriteOnce, nfs, Retain, no class, phase Available
 *     claim    default/NAME, 1Gi, ReadWriteOnce, storageClassName "", phase Pending, uid "uid-NAME"
 *     class    provisioner ext.example.com, Immediate
 *     pod      default/NAME without claims, Pending
 */
#ifndef BERTH_TESTS_CONTROLLER_SUPPORT_H
#define BERTH_TESTS_CONTROLLER_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "controller/view.h"

#include <jansson.h>

struct world {
    struct controller_view view;
    uint64_t version;
};
void world_init(struct world *world, int minor);
void world_clear(struct world *world);
/* Each puts the object into its store and returns a reference that the world keeps alive; NULL = no differences. */
const struct kube_volume *world_volume(struct world *world, const char *name, const char *differences);
const struct kube_claim *world_claim(struct world *world, const char *name, const char *differences);
const struct kube_class *world_class(struct world *world, const char *name, const char *differences);
const struct kube_pod *world_pod(struct world *world, const char *name, const char *differences);
/* Decoded only; the caller unrefs. */
struct kube_object *make_object(const struct kube_kind *kind, const char *name, const char *differences,
                                uint64_t version);
/* 'x' → "x", parsed; fails the test when malformed. */
json_t *json_of(const char *text);
/* Fails the test with both texts when they differ. Takes over `got`. */
void assert_json(json_t *got, const char *want);

#endif
