/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/match.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct search {
    const struct controller_view *view;
    const struct kube_claim *claim;
    struct mode_set wanted;
    struct kube_volume *found; /* borrowed while the index is locked */
    bool blocked;
};

static bool is_taken(struct search *search, const struct kube_volume *volume)
{
    const struct controller_view *view = search->view;
    if (view->is_taken == NULL || !view->is_taken(view->taken_arg, volume, search->claim))
        return false;
    search->blocked = true;
    return true;
}

/* Negative when a's set of access modes is searched before b's. */
static int modes_order(const struct mode_set *a, const struct mode_set *b)
{
    size_t len_a = mode_set_len(a), len_b = mode_set_len(b);
    if (len_a != len_b)
        return len_a < len_b ? -1 : 1;
    auto_free char *text_a = mode_set_text(a);
    auto_free char *text_b = mode_set_text(b);
    return strcmp(text_a, text_b);
}

/* Phase, class, selector and further access modes of a reserved volume do not matter: somebody has already chosen. */
static bool visit_reserved(void *arg, struct kube_volume *volume)
{
    struct search *search = arg;
    const struct kube_claim *claim = search->claim;
    if (!volume_refers_to(volume, claim) || volume_is_too_small(volume, claim) || volume_modes_differ(volume, claim) ||
        attributes_classes_differ(volume, claim) || volume->object.meta.deleting)
        return true;
    struct mode_set modes;
    mode_set_init(&modes, &volume->access_modes);
    bool fits = mode_set_contains(&modes, &search->wanted);
    if (fits && search->found != NULL) {
        struct mode_set best;
        mode_set_init(&best, &search->found->access_modes);
        int order = modes_order(&modes, &best);
        fits = order < 0 || (order == 0 && strcmp(volume->object.meta.name, search->found->object.meta.name) < 0);
        mode_set_clear(&best);
    }
    mode_set_clear(&modes);
    if (fits && !is_taken(search, volume))
        search->found = volume;
    return true;
}

static bool visit_free(void *arg, struct kube_volume *volume)
{
    struct search *search = arg;
    const struct kube_claim *claim = search->claim;
    if (volume_modes_differ(volume, claim) ||
        (claim->has_selector && !kube_selector_matches(&claim->selector, &volume->object.meta.labels)) ||
        is_taken(search, volume) || view_is_emptied(search->view, volume))
        return true;
    search->found = volume;
    return false;
}

static void search_groups(struct search *search, const struct kube_volume *reserved)
{
    const struct kube_claim *claim = search->claim;
    struct mode_set reserved_modes = {0};
    if (reserved != NULL)
        mode_set_init(&reserved_modes, &reserved->access_modes);
    size_t len;
    struct volume_group *const *groups = volume_index_groups(search->view->index, &len);
    for (size_t i = 0; i < len && search->found == NULL; i++) {
        if (reserved != NULL && modes_order(&groups[i]->modes, &reserved_modes) >= 0)
            break; /* the reserved one's own set: it wins there */
        if (!mode_set_contains(&groups[i]->modes, &search->wanted))
            continue;
        const struct volume_bucket *bucket =
            volume_group_bucket(groups[i], BUCKET_FREE, is_block(claim->volume_mode), kube_claim_class(claim),
                                claim->attributes_class == NULL ? "" : claim->attributes_class);
        if (bucket != NULL)
            volume_bucket_walk(bucket, &claim->request, visit_free, search);
    }
    mode_set_clear(&reserved_modes);
}

int match_find(const struct controller_view *view, const struct kube_claim *claim, bool delayed, struct match *match,
               struct err *err)
{
    *match = (struct match){0};
    if (claim->has_selector && kube_selector_validate(&claim->selector, err) != 0) {
        auto_free char *key = kube_object_key(&claim->object);
        return err_wrap(err, "error creating internal label selector for claim: %s", key);
    }
    struct search search = {.view = view, .claim = claim};
    mode_set_init(&search.wanted, &claim->access_modes);
    volume_index_lock(view->index);
    volume_index_walk_claim(view->index, claim->object.meta.namespace_, claim->object.meta.name, visit_reserved,
                            &search);
    struct kube_volume *reserved = search.found;
    if (!delayed) {
        search.found = NULL;
        search_groups(&search, reserved);
    }
    match->volume = search.found != NULL ? search.found : reserved;
    if (match->volume != NULL)
        kube_object_ref(&match->volume->object);
    else
        match->blocked = search.blocked;
    volume_index_unlock(view->index);
    mode_set_clear(&search.wanted);
    return 0;
}
