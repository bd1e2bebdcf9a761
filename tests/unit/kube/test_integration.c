/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client, reflector, store, queue, events and leader together against the embedded API server (berth-devapi of the same
 * build; without it the tests are skipped). Real time, so everything here is a matter of seconds.
 */
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/events.h"
#include "lib/kube/leader.h"
#include "lib/kube/queue.h"
#include "lib/kube/reflector.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CLAIMS 200
#define PATIENCE (60 * CLOCK_SECOND)
#define MARK "volume.kubernetes.io/storage-provisioner"

extern char **environ;

struct fixture {
    char *program; /* NULL: not built */
    char dir[64];
    char *kubeconfig, *listen;
    pid_t server;
    struct kube_config *config;
    struct kube_client *client;
};

/* ---- the server ---- */

static char *find_program(void)
{
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len <= 0)
        return NULL;
    self[len] = '\0';
    for (int i = 0; i < 4; i++) { /* <output>/tests/unit/kube/test_integration */
        char *slash = strrchr(self, '/');
        if (slash == NULL)
            return NULL;
        *slash = '\0';
    }
    auto_free char *program = mem_printf("%s/berth-devapi", self);
    return access(program, X_OK) == 0 ? mem_take(program) : NULL;
}

/* A condition of the world outside this process is looked at every 10 ms. */
static bool eventually(bool (*holds)(void *arg), void *arg)
{
    int64_t deadline = clock_mono(clock_real()) + PATIENCE;
    while (!holds(arg)) {
        if (clock_mono(clock_real()) > deadline)
            return false;
        usleep(10000);
    }
    return true;
}

static bool has_kubeconfig(void *arg)
{
    return access(((struct fixture *)arg)->kubeconfig, R_OK) == 0;
}

static void start_server(struct fixture *f)
{
    auto_free char *kubeconfig_flag = mem_printf("--kubeconfig-out=%s", f->kubeconfig);
    auto_free char *listen_flag = mem_printf("--listen=%s", f->listen);
    auto_free char *log_path = mem_printf("%s/log", f->dir);
    char *args[] = {f->program, kubeconfig_flag, listen_flag, NULL};
    unlink(f->kubeconfig);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_int_equal(posix_spawn(&f->server, f->program, &actions, NULL, args, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    assert_true(eventually(has_kubeconfig, f));
}

static void kill_server(struct fixture *f)
{
    if (f->server <= 0)
        return;
    kill(f->server, SIGKILL);
    waitpid(f->server, NULL, 0);
    f->server = 0;
}

static struct kube_client *new_client(struct fixture *f)
{
    struct kube_client *client = NULL;
    auto_err struct err err = {0};
    struct kube_client_options options = {.user_agent = "integration", .request_timeout = 10 * CLOCK_SECOND};
    assert_int_equal(kube_client_new(f->config, &options, &client, &err), 0);
    return client;
}

static int setup(void **state)
{
    struct fixture *f = mem_new(struct fixture);
    *state = f;
    f->program = find_program();
    if (f->program == NULL)
        return 0;
    snprintf(f->dir, sizeof(f->dir), "/tmp/berth-integration-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->kubeconfig = mem_printf("%s/kubeconfig", f->dir);
    f->listen = mem_strdup("127.0.0.1:0");
    start_server(f);
    auto_err struct err err = {0};
    assert_int_equal(kube_config_load(&(struct kube_config_options){.kubeconfig = f->kubeconfig}, &f->config, &err), 0);
    free(f->listen); /* from now on it comes back at the same address */
    f->listen = mem_strdup(f->config->server + strlen("http://"));
    f->client = new_client(f);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    kube_client_free(f->client);
    kube_config_free(f->config);
    kill_server(f);
    if (f->kubeconfig != NULL) {
        auto_free char *log_path = mem_printf("%s/log", f->dir);
        unlink(f->kubeconfig);
        unlink(log_path);
        rmdir(f->dir);
    }
    free(f->kubeconfig);
    free(f->listen);
    free(f->program);
    free(f);
    return 0;
}

static void skip_without_server(const struct fixture *f)
{
    if (f->program != NULL)
        return;
    print_message("skipped: berth-devapi is not built (make builds it)\n");
    skip();
}

/* A request to the server's control API. */
static void control(struct fixture *f, const char *path, const char *body)
{
    auto_err struct err err = {0};
    struct kube_response response = {0};
    int rc = kube_request(f->client, "POST", path, "application/json", body, &response, &err);
    int status = response.status;
    kube_response_clear(&response);
    assert_int_equal(rc, 0);
    assert_int_equal(status, 200);
}

/* ---- claims ---- */

static void create_claim(struct fixture *f, const char *prefix, int number)
{
    auto_err struct err err = {0};
    auto_free char *name = mem_printf("%s-%03d", prefix, number);
    json_t *json =
        json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:[s], s:{s:{s:s}}}}", "apiVersion", "v1", "kind",
                  "PersistentVolumeClaim", "metadata", "name", name, "namespace", "default", "spec", "storageClassName",
                  "fast", "accessModes", "ReadWriteOnce", "resources", "requests", "storage", "1Gi");
    int rc = kube_create(f->client, &kube_kind_claim, "default", json, NULL, &err);
    json_decref(json);
    if (rc != 0)
        print_error("%s\n", err_text(&err));
    assert_int_equal(rc, 0);
}

/* A small controller: marks every claim once. */
struct marker {
    struct kube_client *client;
    struct kube_store *store;
    struct kube_queue *queue;
    struct kube_reflector *reflector;
    struct kube_workers *workers;
    atomic_int marked, conflicts;
    size_t wanted;
};

static void on_claim(void *arg, const struct kube_object *old, const struct kube_object *new_)
{
    struct marker *marker = arg;
    auto_free char *key = kube_object_key(new_ != NULL ? new_ : old);
    kube_queue_add(marker->queue, key);
}

static int mark(void *arg, const char *key)
{
    struct marker *marker = arg;
    auto_unref struct kube_object *claim = kube_store_get_key(marker->store, key);
    if (claim == NULL || kube_annotation(claim, MARK) != NULL)
        return 0;
    auto_err struct err err = {0};
    auto_unref struct kube_object *reply = NULL;
    auto_free char *version = mem_printf("%llu", (unsigned long long)claim->meta.resource_version);
    json_t *patch = json_pack("{s:{s:s, s:{s:s}}}", "metadata", "resourceVersion", version, "annotations", MARK, "x");
    int rc = kube_patch(marker->client, &kube_kind_claim, claim->meta.namespace_, claim->meta.name, NULL,
                        KUBE_PATCH_MERGE, patch, &reply, &err);
    json_decref(patch);
    if (rc == 0) {
        atomic_fetch_add(&marker->marked, 1);
        kube_store_put_reply(marker->store, reply);
    } else if (err_is(&err, ERR_CONFLICT)) {
        atomic_fetch_add(&marker->conflicts, 1);
    }
    return rc;
}

static void start_marker(struct fixture *f, struct marker *marker)
{
    marker->client = f->client;
    marker->store = kube_store_new(&kube_kind_claim);
    marker->queue = kube_queue_new(&(struct kube_queue_options){.name = "claims"});
    kube_store_listen(marker->store, on_claim, marker);
    marker->reflector =
        kube_reflector_start(&(struct kube_reflector_options){.client = f->client, .store = marker->store});
    marker->workers = kube_workers_start(marker->queue, 4, "mark", mark, marker);
    assert_int_equal(kube_reflector_wait_synced(marker->reflector, NULL, NULL), 0);
}

static void end_marker(struct marker *marker)
{
    kube_reflector_free(marker->reflector);
    kube_queue_shut_down(marker->queue);
    kube_workers_join(marker->workers);
    kube_queue_free(marker->queue);
    kube_store_free(marker->store);
}

static bool is_marked(void *arg, const struct kube_object *object)
{
    size_t *count = arg;
    *count += kube_annotation(object, MARK) != NULL ? 1 : 0;
    return true;
}

static bool all_marked(void *arg)
{
    struct marker *marker = arg;
    size_t count = 0;
    kube_store_each(marker->store, is_marked, &count);
    return count == marker->wanted && kube_store_len(marker->store) == marker->wanted;
}

static bool collect(void *arg, struct kube_object *object)
{
    kube_object_list_add(arg, kube_object_ref(object));
    return true;
}

/* The store has what the server has, to the version. */
static void assert_equal_to_server(struct fixture *f, struct marker *marker)
{
    auto_err struct err err = {0};
    auto_objects struct kube_object_list list = {0};
    struct kube_list_options options = {0};
    assert_int_equal(kube_list(f->client, &kube_kind_claim, &options, collect, &list, NULL, &err), 0);
    assert_int_equal(list.len, kube_store_len(marker->store));
    for (size_t i = 0; i < list.len; i++) {
        const struct kube_meta *meta = &list.items[i]->meta;
        auto_unref struct kube_object *stored = kube_store_get(marker->store, meta->namespace_, meta->name);
        assert_non_null(stored);
        assert_string_equal(stored->meta.uid, meta->uid);
        assert_int_equal(stored->meta.resource_version, meta->resource_version);
    }
}

static void test_no_claim_is_missed(void **state)
{
    struct fixture *f = *state;
    skip_without_server(f);
    struct marker marker = {.wanted = CLAIMS};
    for (int i = 0; i < CLAIMS / 4; i++)
        create_claim(f, "early", i);
    start_marker(f, &marker);
    for (int i = 0; i < CLAIMS / 4; i++)
        create_claim(f, "calm", i);
    /* watches die, and what they missed is compacted away; some writes are refused for now */
    control(f, "/devapi/faults", "{\"verb\":\"patch\",\"action\":\"status\",\"code\":500,\"skip\":3,\"times\":5}");
    control(f, "/devapi/watches", "{\"resource\":\"persistentvolumeclaims\",\"action\":\"watch-drop\"}");
    for (int i = 0; i < CLAIMS / 4; i++)
        create_claim(f, "dropped", i);
    control(f, "/devapi/compact", "");
    control(f, "/devapi/watches", "{\"resource\":\"persistentvolumeclaims\",\"action\":\"watch-gone\"}");
    for (int i = 0; i < CLAIMS / 4; i++)
        create_claim(f, "gone", i);
    bool done = eventually(all_marked, &marker);
    assert_true(done);
    assert_int_equal(atomic_load(&marker.marked), CLAIMS);
    assert_equal_to_server(f, &marker);
    struct kube_reflector_stats stats;
    kube_reflector_get_stats(marker.reflector, &stats);
    assert_in_range(stats.lists, 1, 3); /* no storm */
    assert_in_range(stats.watches, 2, 6);
    end_marker(&marker);
}

/* The server comes back empty: its history starts again, with other objects under the same names. */
static void test_server_with_a_new_history(void **state)
{
    struct fixture *f = *state;
    skip_without_server(f);
    struct marker marker = {.wanted = 60};
    for (int i = 0; i < 60; i++)
        create_claim(f, "c", i);
    start_marker(f, &marker);
    assert_true(eventually(all_marked, &marker));
    kill_server(f);
    start_server(f);
    for (int i = 40; i < 50; i++)
        create_claim(f, "c", i);
    marker.wanted = 10;
    assert_true(eventually(all_marked, &marker));
    assert_equal_to_server(f, &marker);
    assert_int_equal(atomic_load(&marker.marked), 70);
    end_marker(&marker);
}

static bool collect_event(void *arg, struct kube_object *object)
{
    const struct kube_event *event = (const struct kube_event *)object;
    str_addf(arg, "%s %s x%lld: %s\n", event->involved.name, event->reason, (long long)event->count, event->message);
    return true;
}

static void test_events_on_a_server(void **state)
{
    struct fixture *f = *state;
    skip_without_server(f);
    struct kube_events *events =
        kube_events_new(&(struct kube_events_options){.client = f->client, .component = "integration"});
    struct kube_reference claim = {
        .api_version = "v1", .kind = "PersistentVolumeClaim", .namespace_ = "default", .name = "c-1", .uid = "u-1"};
    struct kube_reference volume = {.api_version = "v1", .kind = "PersistentVolume", .name = "pv-1", .uid = "u-2"};
    for (int i = 0; i < 7; i++)
        kube_event_reference(events, &claim, KUBE_EVENT_NORMAL, "Waiting", "wait");
    for (int i = 0; i < 12; i++)
        kube_event_reference(events, &volume, KUBE_EVENT_WARNING, "Failed", "try %d", i);
    kube_events_free(events, 10 * CLOCK_SECOND);
    auto_err struct err err = {0};
    auto_str struct str all = {0};
    struct kube_list_options options = {.namespace_ = "default"};
    assert_int_equal(kube_list(f->client, &kube_kind_event, &options, collect_event, &all, NULL, &err), 0);
    assert_non_null(strstr(str_text(&all), "c-1 Waiting x7: wait\n"));
    assert_non_null(strstr(str_text(&all), "pv-1 Failed x1: try 8\n"));
    assert_non_null(strstr(str_text(&all), "pv-1 Failed x3: (combined from similar events): try 11\n"));
    assert_null(strstr(str_text(&all), "x1: try 9\n"));
}

static bool leads(void *arg)
{
    return kube_leader_leading(arg);
}

static void test_leaders_take_turns(void **state)
{
    struct fixture *f = *state;
    skip_without_server(f);
    auto_err struct err err = {0};
    struct kube_leader *first = NULL, *second = NULL;
    struct kube_client *clients[] = {new_client(f), new_client(f)};
    struct kube_leader_options options = {.client = clients[0],
                                          .namespace_ = "default",
                                          .name = "integration",
                                          .identity = "first",
                                          .lease_duration = 2 * CLOCK_SECOND,
                                          .renew_deadline = 1500 * CLOCK_MS,
                                          .retry_period = 200 * CLOCK_MS,
                                          .release_on_stop = true};
    assert_int_equal(kube_leader_start(&options, &first, &err), 0);
    assert_int_equal(kube_leader_wait(first, NULL, &err), 0);
    options.client = clients[1];
    options.identity = "second";
    options.release_on_stop = false;
    assert_int_equal(kube_leader_start(&options, &second, &err), 0);
    usleep(2500000); /* longer than the lease: renewals keep it */
    assert_true(kube_leader_valid(first));
    assert_false(kube_leader_leading(second));
    int64_t start = clock_mono(clock_real());
    kube_leader_free(first);
    assert_true(eventually(leads, second));
    assert_true(clock_mono(clock_real()) - start < 1500 * CLOCK_MS); /* it was released: no wait for the expiry */
    kube_leader_free(second);                                        /* without a release */
    options.identity = "third";
    start = clock_mono(clock_real());
    assert_int_equal(kube_leader_start(&options, &first, &err), 0);
    assert_int_equal(kube_leader_wait(first, NULL, &err), 0);
    assert_true(clock_mono(clock_real()) - start >= 2 * CLOCK_SECOND); /* only then */
    auto_unref struct kube_object *object = NULL;
    assert_int_equal(kube_get(f->client, &kube_kind_lease, "default", "integration", &object, &err), 0);
    const struct kube_lease *lease = (const struct kube_lease *)object;
    assert_string_equal(lease->holder, "third");
    assert_int_equal(lease->transitions, 2);
    kube_leader_free(first);
    kube_client_free(clients[0]);
    kube_client_free(clients[1]);
}

static void discard(void *arg, const char *line, size_t len)
{
    (void)arg;
    (void)line;
    (void)len;
}

int main(void)
{
    log_set_sink(discard, NULL);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_no_claim_is_missed),
        TEST(test_server_with_a_new_history),
        TEST(test_events_on_a_server),
        TEST(test_leaders_take_turns),
    };
    return cmocka_run_group_tests_name("integration", tests, NULL, NULL);
}
