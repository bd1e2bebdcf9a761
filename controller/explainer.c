/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/explainer.h"

#include "lib/base/log.h"
#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/slab.h"
#include "lib/base/str.h"
#include "lib/kube/leader.h"

#include <pthread.h>
#include <stdio.h>

#define FACTS_LIVE (60 * CLOCK_SECOND)
/* The correlator merges ten different texts of one object within ten minutes: a few may follow what happens at once,
 * then one text stays for a while. */
#define TEXT_WINDOW (600 * CLOCK_SECOND)
#define TEXT_HELD (150 * CLOCK_SECOND)
#define TEXT_CHANGES 4
#define TEXTS_REMEMBERED 2000 /* beyond that, old ones are looked for */

struct remembered_text {
    char *text;
    int64_t since;      /* when the window began */
    int64_t held_until; /* it does not change before */
    unsigned changes;   /* in this window */
};
struct remembered_facts {
    struct driver_facts facts;
    int64_t until;
};
struct explainer {
    const struct controller_view *view;
    struct kube_client *client;
    struct clock *clock;
    pthread_mutex_t lock;
    struct map *texts; /* uid of the claim + upstream's text → struct remembered_text */
    struct map *facts; /* provisioner → struct remembered_facts */
};

static void text_free(void *value)
{
    struct remembered_text *text = value;
    slab_free_str(text->text);
    slab_free(text, sizeof(*text));
}

struct explainer *explainer_new(const struct controller_view *view, struct kube_client *client, struct clock *clock)
{
    struct explainer *explainer = mem_new(struct explainer);
    *explainer = (struct explainer){.view = view, .client = client, .clock = clock == NULL ? clock_real() : clock};
    pthread_mutex_init(&explainer->lock, NULL);
    explainer->texts = map_new(text_free);
    explainer->facts = map_new(free);
    return explainer;
}

void explainer_free(struct explainer *explainer)
{
    if (explainer == NULL)
        return;
    map_free(explainer->texts);
    map_free(explainer->facts);
    pthread_mutex_destroy(&explainer->lock);
    free(explainer);
}

/* ---- provisioners ---- */
struct lease_search {
    struct driver_facts *facts;
    int64_t now;
};

static bool visit_lease(void *arg, struct kube_object *object)
{
    const struct lease_search *search = arg;
    const struct kube_lease *lease = (const struct kube_lease *)object;
    bool live = *lease->holder != '\0' && lease->renew_time + lease->duration_seconds * CLOCK_SECOND > search->now;
    if (!search->facts->has_lease || live)
        snprintf(search->facts->lease_namespace, sizeof(search->facts->lease_namespace), "%s", object->meta.namespace_);
    search->facts->has_lease = true;
    search->facts->lease_is_live |= live;
    return !live;
}

/* Other provisioners than CSI ones elect their leader with a lease named like them, too. */
static struct driver_facts ask(const struct explainer *explainer, const char *provisioner)
{
    struct driver_facts facts = {0};
    auto_err struct err err = {0};
    if (kube_name_is_dns_subdomain(provisioner)) {
        auto_unref struct kube_object *driver = NULL;
        if (kube_get(explainer->client, &kube_kind_csi_driver, NULL, provisioner, &driver, &err) == 0)
            facts.is_csi = true;
        else if (!err_is(&err, ERR_NOT_FOUND))
            return facts;
    }
    auto_free char *name = kube_leader_sanitize_name(provisioner);
    auto_free char *selector = mem_printf("metadata.name=%s", name);
    struct kube_list_options options = {.field_selector = selector};
    struct lease_search search = {&facts, clock_wall(explainer->clock)};
    if (kube_list(explainer->client, &kube_kind_lease, &options, visit_lease, &search, NULL, &err) == 0)
        facts.known = true;
    else
        log_v(4, "Cannot find out about the provisioner", kv_str("provisioner", provisioner), kv_err(&err));
    return facts;
}

struct driver_facts explainer_driver(struct explainer *explainer, const char *provisioner)
{
    struct driver_facts facts = {0};
    if (explainer->client == NULL)
        return facts;
    int64_t now = clock_mono(explainer->clock);
    pthread_mutex_lock(&explainer->lock);
    struct remembered_facts *remembered = map_get(explainer->facts, provisioner);
    bool fresh = remembered != NULL && remembered->until > now;
    if (fresh) {
        facts = remembered->facts;
    } else { /* whoever comes while we ask gets the old answer, or none */
        if (remembered == NULL) {
            remembered = mem_new(struct remembered_facts);
            map_set(explainer->facts, provisioner, remembered);
        }
        remembered->until = now + FACTS_LIVE;
    }
    pthread_mutex_unlock(&explainer->lock);
    if (fresh)
        return facts;
    facts = ask(explainer, provisioner);
    pthread_mutex_lock(&explainer->lock);
    remembered = map_get(explainer->facts, provisioner);
    if (remembered != NULL)
        remembered->facts = facts;
    pthread_mutex_unlock(&explainer->lock);
    return facts;
}

/* ---- texts ---- */
static void drop_old_texts(struct explainer *explainer, int64_t now)
{
    if (map_len(explainer->texts) < TEXTS_REMEMBERED)
        return;
    for (struct map_iter it = {0}; map_next(explainer->texts, &it);)
        if (now - ((const struct remembered_text *)it.value)->since > TEXT_WINDOW)
            map_remove(explainer->texts, it.key);
}

static char *compose(struct explainer *explainer, const struct kube_claim *claim, const struct claim_plan *plan)
{
    struct driver_facts facts = {0};
    if (plan->action == CLAIM_PROVISION_EXTERNAL)
        facts = explainer_driver(explainer, plan->text);
    auto_free char *explanation = explain_claim(explainer->view, claim, plan, &facts);
    return *explanation == '\0' ? mem_strdup(plan->event_text) : mem_printf("%s [%s]", plan->event_text, explanation);
}

static void remember(struct explainer *explainer, const char *key, const char *text, int64_t now)
{
    struct remembered_text *remembered = map_get(explainer->texts, key);
    if (remembered != NULL && str_eq(remembered->text, text))
        return;
    if (remembered == NULL) {
        drop_old_texts(explainer, now);
        remembered = slab_new(struct remembered_text);
        remembered->since = now;
        map_set(explainer->texts, key, remembered);
    }
    if (now - remembered->since > TEXT_WINDOW) {
        remembered->since = now;
        remembered->changes = 0;
    }
    slab_free_str(remembered->text);
    remembered->text = slab_strdup(text);
    if (++remembered->changes >= TEXT_CHANGES)
        remembered->held_until = now + TEXT_HELD;
}

char *explainer_event_text(struct explainer *explainer, const struct kube_claim *claim, const struct claim_plan *plan)
{
    int64_t now = clock_mono(explainer->clock);
    auto_free char *key = mem_printf("%s %s", claim->object.meta.uid, plan->event_text);
    pthread_mutex_lock(&explainer->lock);
    const struct remembered_text *remembered = map_get(explainer->texts, key);
    char *text = remembered != NULL && remembered->held_until > now ? mem_strdup(remembered->text) : NULL;
    pthread_mutex_unlock(&explainer->lock);
    if (text != NULL)
        return text;
    text = compose(explainer, claim, plan);
    pthread_mutex_lock(&explainer->lock);
    remember(explainer, key, text, now);
    pthread_mutex_unlock(&explainer->lock);
    return text;
}
