/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the client share: a scripted server, a client of it, and one claim. */
#ifndef BERTH_TESTS_KUBE_CLIENT_SCENE_H
#define BERTH_TESTS_KUBE_CLIENT_SCENE_H

#include "lib/base/mem.h"
#include "lib/kube/client.h"
#include "tests/unit/kube/raw_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

/* A server, a client of it, and what they need; made by begin, taken down by end. */
struct scene {
    struct raw_server *server;
    struct kube_config config;
    char *url;
    struct kube_client *client;
    struct clock *clock; /* a fake one or NULL */
    struct stop *stop;
    struct rng *rng;
};

static inline void begin(struct scene *scene, const struct raw_step *steps, size_t count,
                         const struct kube_client_options *options)
{
    struct kube_client_options own = options != NULL ? *options : (struct kube_client_options){0};
    auto_err struct err err = {0};
    scene->server = raw_server_start(NULL, own.clock, steps, count);
    scene->url = mem_printf("http://127.0.0.1:%d", raw_server_port(scene->server));
    scene->config.server = scene->url;
    scene->stop = stop_new();
    scene->rng = rng_seeded_new(1);
    own.stop = scene->stop;
    own.rng = scene->rng;
    if (own.user_agent == NULL)
        own.user_agent = "tester/v1";
    if (kube_client_new(&scene->config, &own, &scene->client, &err) != 0)
        fail_msg("%s", err_text(&err));
}

static inline void end(struct scene *scene)
{
    kube_client_free(scene->client);
    raw_server_stop(scene->server);
    stop_free(scene->stop);
    rng_free(scene->rng);
    free(scene->url);
}

#define BEGIN(scene, options, ...)                                                                                     \
    static const struct raw_step steps_[] = {__VA_ARGS__};                                                             \
    struct scene scene = {0};                                                                                          \
    begin(&(scene), steps_, ARRAY_LEN(steps_), (options))

#define CLAIM(version)                                                                                                 \
    "{\"apiVersion\":\"v1\",\"kind\":\"PersistentVolumeClaim\",\"metadata\":{\"name\":\"data\",\"namespace\":"         \
    "\"default\",\"uid\":\"11111111-1111-1111-1111-111111111111\",\"resourceVersion\":\"" version                      \
    "\"},\"spec\":{\"accessModes\":[\"ReadWriteOnce\"],\"resources\":{\"requests\":{\"storage\":\"1Gi\"}}}}"
#define STATUS(code, reason, message)                                                                                  \
    "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"code\":" code ",\"reason\":\"" reason         \
    "\",\"message\":\"" message "\"}"
#define NOT_FOUND_BODY STATUS("404", "NotFound", "persistentvolumeclaims \\\"data\\\" not found")
static inline int get_claim(struct scene *scene, struct err *err)
{
    struct kube_object *object = NULL;
    int result = kube_get(scene->client, &kube_kind_claim, "default", "data", &object, err);
    kube_object_unref(object);
    return result;
}

#endif
