/* SPDX-License-Identifier: Apache-2.0 */
#include "provisioner/topology.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A term: one topology segment, its pairs sorted by key. Strings and arrays live in the arena the term was made in. */
struct term {
    struct kube_pair *pairs;
    size_t len;
};
struct terms {
    struct term *items;
    size_t len, cap;
};

/* The finished requirement itself is remembered, so a repeated call cannot differ. */
struct topology_memory {
    struct csi_arena arena;
    bool valid;
    const char *selected_node; /* in the arena; NULL = immediate */
    Csi__V1__TopologyRequirement *requirement;
};

struct topology_memory *topology_memory_new(void)
{
    return mem_new(struct topology_memory);
}

void topology_memory_free(struct topology_memory *memory)
{
    if (memory == NULL)
        return;
    csi_arena_free(&memory->arena);
    free(memory);
}

static int compare_pairs(const void *a, const void *b)
{
    const struct kube_pair *left = a, *right = b;
    int order = strcmp(left->key, right->key);
    return order != 0 ? order : strcmp(left->value, right->value);
}

static int compare_terms(const void *a, const void *b)
{
    const struct term *left = a, *right = b;
    if (left->len != right->len)
        return left->len < right->len ? -1 : 1;
    for (size_t i = 0; i < left->len; i++) {
        int order = compare_pairs(&left->pairs[i], &right->pairs[i]);
        if (order != 0)
            return order;
    }
    return 0;
}

static void terms_free(struct terms *terms)
{
    free(terms->items);
}
#define auto_terms __attribute__((cleanup(terms_free)))

static struct term *terms_add(struct terms *terms, struct csi_arena *arena, size_t len)
{
    if (terms->len == terms->cap) {
        terms->cap = terms->cap ? terms->cap * 2 : 8;
        terms->items = mem_realloc_array(terms->items, terms->cap, sizeof(*terms->items));
    }
    struct term *term = &terms->items[terms->len++];
    term->len = len;
    term->pairs = csi_arena_alloc(arena, (len ? len : 1) * sizeof(*term->pairs));
    return term;
}

static void terms_sort(struct terms *terms)
{
    if (terms->len == 0)
        return;
    for (size_t i = 0; i < terms->len; i++)
        qsort(terms->items[i].pairs, terms->items[i].len, sizeof(struct kube_pair), compare_pairs);
    qsort(terms->items, terms->len, sizeof(struct term), compare_terms);
    size_t kept = 1;
    for (size_t i = 1; i < terms->len; i++)
        if (compare_terms(&terms->items[i], &terms->items[kept - 1]) != 0)
            terms->items[kept++] = terms->items[i];
    terms->len = kept;
}

static bool term_is_subset(const struct term *term, const struct term *of)
{
    struct kube_pairs pairs = {.items = of->pairs, .len = (uint32_t)of->len};
    for (size_t i = 0; i < term->len; i++)
        if (!str_eq(kube_pairs_get(&pairs, term->pairs[i].key), term->pairs[i].value))
            return false;
    return true;
}

static void term_print(const struct term *term, struct str *out)
{
    str_add(out, "{");
    for (size_t i = 0; i < term->len; i++)
        str_addf(out, "%s%s: %s", i ? ", " : "", term->pairs[i].key, term->pairs[i].value);
    str_add(out, "}");
}

static char *terms_text(const struct terms *terms)
{
    struct str out = {0};
    for (size_t i = 0; i < terms->len && i < 16; i++) {
        str_add(&out, i ? " " : "");
        term_print(&terms->items[i], &out);
    }
    if (terms->len > 16)
        str_addf(&out, " and %zu more", terms->len - 16);
    return str_take(&out);
}

static char *keys_text(const struct kube_strings *keys)
{
    struct str out = {0};
    for (uint32_t i = 0; i < keys->len; i++)
        str_addf(&out, "%s%s", i ? " " : "", keys->items[i]);
    return str_take(&out);
}

/* allowedTopologies: each term is an AND of keys with several values; it stands for the cross product of them. */
static int flatten(const struct kube_class *class_, struct csi_arena *arena, struct terms *terms, struct err *err)
{
    for (uint32_t t = 0; t < class_->allowed_topology_count; t++) {
        const struct kube_topology_term *allowed = &class_->allowed_topologies[t];
        size_t count = allowed->len > 0 ? 1 : 0;
        for (uint32_t k = 0; k < allowed->len; k++) {
            count *= allowed->items[k].values.len;
            if (count > 10000)
                return err_set(err, ERR_INVALID,
                               "allowedTopologies of StorageClass \"%s\" stand for more than 10000 segments",
                               class_->object.meta.name);
        }
        for (size_t n = 0; n < count; n++) {
            struct term *term = terms_add(terms, arena, allowed->len);
            size_t rest = n;
            for (uint32_t k = 0; k < allowed->len; k++) {
                const struct kube_topology_requirement *requirement = &allowed->items[k];
                term->pairs[k].key = csi_arena_strdup(arena, requirement->key);
                term->pairs[k].value =
                    csi_arena_strdup(arena, requirement->values.items[rest % requirement->values.len]);
                rest /= requirement->values.len;
            }
        }
    }
    terms_sort(terms);
    return 0;
}

static const struct kube_strings *driver_keys(const struct provision_config *config, const struct kube_csi_node *node)
{
    for (uint32_t i = 0; i < node->driver_count; i++)
        if (str_eq(node->drivers[i].name, config->driver_name))
            return &node->drivers[i].topology_keys;
    return NULL;
}

/* False when the node lacks one of the labels. */
static bool node_term(const struct kube_pairs *labels, const struct kube_strings *keys, struct csi_arena *arena,
                      struct term *term)
{
    for (uint32_t i = 0; i < keys->len; i++) {
        const char *value = kube_pairs_get(labels, keys->items[i]);
        if (value == NULL)
            return false;
        term->pairs[i].key = csi_arena_strdup(arena, keys->items[i]);
        term->pairs[i].value = csi_arena_strdup(arena, value);
    }
    qsort(term->pairs, term->len, sizeof(struct kube_pair), compare_pairs);
    return true;
}

static int aggregate(const struct provision_lookup *lookup, const struct kube_strings *keys, struct csi_arena *arena,
                     struct terms *terms, struct err *err)
{
    auto_objects struct kube_object_list nodes = {0};
    if (lookup->nodes(lookup->arg, &nodes, err) < 0) {
        err_wrap(err, "error listing nodes");
        return -1;
    }
    for (size_t i = 0; i < nodes.len; i++) {
        struct term *term = terms_add(terms, arena, keys->len);
        if (!node_term(&nodes.items[i]->meta.labels, keys, arena, term))
            terms->len--;
    }
    if (terms->len == 0) {
        auto_free char *text = keys_text(keys);
        return err_set(err, ERR_NOT_FOUND, "no available topology found: no node has labels for all topology keys [%s]",
                       text);
    }
    terms_sort(terms);
    return 0;
}

/* The selected node's own segment; its keys stay valid as long as *csi_node. */
static int selected_term(const struct provision_config *config, const struct provision_lookup *lookup, const char *name,
                         struct csi_arena *arena, struct kube_csi_node **csi_node, const struct kube_strings **keys,
                         struct terms *out, enum provision_state *state, struct err *err)
{
    auto_unref struct kube_node *node = NULL;
    if (lookup->csi_node(lookup->arg, name, csi_node, err) < 0 || lookup->node(lookup->arg, name, &node, err) < 0) {
        /* a node that is gone will not come back for this pod: let the scheduler choose another */
        *state = err_is(err, ERR_NOT_FOUND) ? PROVISION_RESCHEDULE : PROVISION_NO_CHANGE;
        err_wrap(err, "error getting the selected node \"%s\"", name);
        return -1;
    }
    *keys = driver_keys(config, *csi_node);
    if (*keys == NULL || (*keys)->len == 0)
        return err_set(err, ERR_NOT_FOUND, "no topology key found on CSINode %s", name);
    struct term *term = terms_add(out, arena, (*keys)->len);
    if (!node_term(&node->object.meta.labels, *keys, arena, term)) {
        auto_free char *text = keys_text(*keys);
        return err_set(err, ERR_NOT_FOUND,
                       "topology labels of the selected node \"%s\" do not have all topology keys [%s]", name, text);
    }
    return 0;
}

/* The key set for immediate binding: of some node that has the driver. The first by name, so that it is stable. */
static int cluster_keys(const struct provision_config *config, const struct provision_lookup *lookup,
                        struct kube_object_list *csi_nodes, const struct kube_strings **keys, struct err *err)
{
    if (lookup->csi_nodes(lookup->arg, csi_nodes, err) < 0) {
        err_wrap(err, "error listing CSINodes");
        return -1;
    }
    const char *best = NULL;
    for (size_t i = 0; i < csi_nodes->len; i++) {
        const struct kube_strings *found = driver_keys(config, (const struct kube_csi_node *)csi_nodes->items[i]);
        const char *name = csi_nodes->items[i]->meta.name;
        if (found != NULL && found->len > 0 && (best == NULL || strcmp(name, best) < 0)) {
            best = name;
            *keys = found;
        }
    }
    if (best == NULL)
        return err_set(err, ERR_NOT_FOUND, "no available topology found");
    return 0;
}

static void add_topology(struct csi_arena *arena, Csi__V1__Topology *topology, const struct term *term)
{
    for (size_t i = 0; i < term->len; i++)
        CSI_MAP_ADD(arena, topology, segments, term->pairs[i].key, term->pairs[i].value);
}

static Csi__V1__TopologyRequirement *build_requirement(struct csi_arena *arena, const struct terms *requisite,
                                                       size_t preferred_first)
{
    Csi__V1__TopologyRequirement *requirement = csi_arena_alloc(arena, sizeof(*requirement));
    csi__v1__topology_requirement__init(requirement);
    for (size_t i = 0; i < requisite->len; i++)
        add_topology(arena, CSI_ADD(arena, requirement, requisite), &requisite->items[i]);
    for (size_t i = 0; i < requisite->len; i++)
        add_topology(arena, CSI_ADD(arena, requirement, preferred),
                     &requisite->items[(preferred_first + i) % requisite->len]);
    return requirement;
}

static int require_selected(const struct provision_config *config, const struct provision_lookup *lookup,
                            struct provision_request *request, struct csi_arena *arena,
                            Csi__V1__TopologyRequirement **requirement, enum provision_state *state, struct err *err)
{
    const char *name = request->selected_node;
    auto_unref struct kube_csi_node *csi_node = NULL;
    const struct kube_strings *keys = NULL;
    auto_terms struct terms selected = {0}, allowed = {0}, cluster = {0};
    if (selected_term(config, lookup, name, arena, &csi_node, &keys, &selected, state, err) < 0 ||
        flatten(request->class_, arena, &allowed, err) < 0)
        return -1;
    const struct term *own = &selected.items[0];
    if (config->strict_topology) {
        bool fits = allowed.len == 0;
        for (size_t i = 0; i < allowed.len && !fits; i++)
            fits = term_is_subset(&allowed.items[i], own);
        if (!fits) {
            auto_free char *own_text = terms_text(&selected), *allowed_text = terms_text(&allowed);
            return err_set(err, ERR_INVALID, "selected node '\"%s\"' topology '%s' is not in allowed topologies: %s",
                           name, own_text, allowed_text);
        }
        *requirement = build_requirement(arena, &selected, 0);
        return 0;
    }
    const struct terms *requisite = &allowed;
    if (allowed.len == 0) {
        if (aggregate(lookup, keys, arena, &cluster, err) < 0)
            return -1;
        requisite = &cluster;
    }
    for (size_t i = 0; i < requisite->len; i++)
        if (term_is_subset(&requisite->items[i], own)) {
            *requirement = build_requirement(arena, requisite, i);
            return 0;
        }
    auto_free char *own_text = terms_text(&selected), *text = terms_text(requisite);
    return err_set(err, ERR_INVALID, "topology '%s' from selected node '\"%s\"' is not in requisite: %s", own_text,
                   name, text);
}

static int require_immediate(const struct provision_config *config, const struct provision_lookup *lookup,
                             struct provision_request *request, struct csi_arena *arena,
                             Csi__V1__TopologyRequirement **requirement, struct err *err)
{
    auto_terms struct terms requisite = {0};
    if (flatten(request->class_, arena, &requisite, err) < 0)
        return -1;
    if (requisite.len == 0) {
        if (!config->immediate_topology)
            return 0;
        auto_objects struct kube_object_list csi_nodes = {0};
        const struct kube_strings *keys = NULL;
        if (cluster_keys(config, lookup, &csi_nodes, &keys, err) < 0 || keys == NULL ||
            aggregate(lookup, keys, arena, &requisite, err) < 0 || requisite.len == 0)
            return -1;
    }
    size_t first = topology_spread_offset(request->claim->object.meta.name) % requisite.len;
    *requirement = build_requirement(arena, &requisite, first);
    return 0;
}

int topology_require(const struct provision_config *config, const struct provision_lookup *lookup,
                     struct topology_memory *memory, struct provision_request *request, enum provision_state *state,
                     struct err *err)
{
    *state = PROVISION_NO_CHANGE;
    if (memory != NULL && memory->valid && str_eq(memory->selected_node, request->selected_node)) {
        request->csi.accessibility_requirements = memory->requirement;
        return 0;
    }
    if (memory != NULL) {
        csi_arena_free(&memory->arena);
        *memory = (struct topology_memory){0};
    }
    struct csi_arena *arena = memory != NULL ? &memory->arena : &request->arena;
    Csi__V1__TopologyRequirement *requirement = NULL;
    int result = request->selected_node != NULL
                     ? require_selected(config, lookup, request, arena, &requirement, state, err)
                     : require_immediate(config, lookup, request, arena, &requirement, err);
    if (result < 0)
        return err_wrap(err, "error generating accessibility requirements");
    if (memory != NULL) {
        memory->valid = true;
        memory->selected_node = request->selected_node != NULL ? csi_arena_strdup(arena, request->selected_node) : NULL;
        memory->requirement = requirement;
    }
    request->csi.accessibility_requirements = requirement;
    return 0;
}

uint32_t topology_spread_offset(const char *claim_name)
{
    const char *dash = strrchr(claim_name, '-');
    uint64_t ordinal = 0;
    if (dash == NULL || !str_parse_u64(dash + 1, &ordinal) || ordinal > UINT32_MAX)
        return str_fnv1(claim_name);
    /* <template>-<set>-<ordinal>: hash the set's name alone, so that all its claims start at the same place */
    auto_free char *base = mem_strndup(claim_name, (size_t)(dash - claim_name));
    const char *inner = strrchr(base, '-');
    return str_fnv1(inner != NULL ? inner + 1 : base) + (uint32_t)ordinal;
}

json_t *topology_node_affinity(Csi__V1__Topology *const *topologies, size_t count)
{
    json_t *terms = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *expressions = json_array();
        struct csi_map segments = CSI_MAP(topologies[i], segments);
        auto_strv struct strv keys = {0};
        const char *key, *value;
        for (size_t s = 0; s < segments.len; s++)
            if (csi_map_at(segments, s, &key, &value))
                strv_add(&keys, key);
        strv_sort(&keys);
        for (size_t s = 0; s < keys.len; s++)
            json_array_append_new(expressions, json_pack("{s:s, s:s, s:[s]}", "key", keys.items[s], "operator", "In",
                                                         "values", csi_map_get(segments, keys.items[s])));
        if (keys.len > 0)
            json_array_append_new(terms, json_pack("{s:o}", "matchExpressions", expressions));
        else
            json_decref(expressions);
    }
    if (json_array_size(terms) > 0)
        return json_pack("{s:{s:o}}", "required", "nodeSelectorTerms", terms);
    json_decref(terms);
    return NULL;
}

static json_t *term_to_json(const struct term *term)
{
    json_t *labels = json_object();
    for (size_t i = 0; i < term->len; i++)
        json_object_set_new(labels, term->pairs[i].key, json_string(term->pairs[i].value));
    return labels;
}

json_t *topology_segments(const struct provision_config *config, const struct kube_object_list *nodes,
                          const struct kube_object_list *csi_nodes)
{
    auto_csi_arena struct csi_arena arena = {0};
    auto_terms struct terms terms = {0};
    if (config->node_deployment) {
        struct term *term = terms_add(&terms, &arena, config->node_topology.len);
        for (uint32_t i = 0; i < config->node_topology.len; i++)
            term->pairs[i] = config->node_topology.items[i];
    }
    auto_map struct map *by_name = map_new(NULL);
    for (size_t i = 0; i < nodes->len; i++)
        map_set(by_name, nodes->items[i]->meta.name, nodes->items[i]);
    for (size_t i = 0; !config->node_deployment && i < csi_nodes->len; i++) {
        const struct kube_strings *keys = driver_keys(config, (const struct kube_csi_node *)csi_nodes->items[i]);
        const struct kube_object *node = map_get(by_name, csi_nodes->items[i]->meta.name);
        if (keys == NULL || node == NULL)
            continue;
        struct term *term = terms_add(&terms, &arena, keys->len);
        if (!node_term(&node->meta.labels, keys, &arena, term))
            terms.len--;
    }
    terms_sort(&terms);
    json_t *out = json_array();
    for (size_t i = 0; i < terms.len; i++)
        json_array_append_new(out, term_to_json(&terms.items[i]));
    return out;
}

bool topology_volume_is_local(const struct provision_config *config, const struct kube_volume *volume)
{
    return !volume->has_node_affinity ||
           kube_node_selector_matches(&volume->node_affinity, config->node_name, &config->node_topology);
}
