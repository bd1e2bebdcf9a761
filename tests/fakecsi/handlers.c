/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/flag.h"
#include "lib/base/mem.h"
#include "tests/fakecsi/fake.h"

static void json_cleanup(json_t **json)
{
    json_decref(*json);
}
#define auto_json __attribute__((cleanup(json_cleanup)))

static bool capable(const struct fake *fake, const char *name)
{
    auto_strv struct strv list = {0};
    strv_split(&list, fake->options->capabilities, ',');
    return strv_contains(&list, name);
}

static int get_plugin_info(void *driver, const Csi__V1__GetPluginInfoRequest *request,
                           Csi__V1__GetPluginInfoResponse *reply, struct csi_call *call, struct err *err)
{
    (void)request;
    struct fake *fake = driver;
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), "", NULL);
    reply->name = csi_arena_strdup(csi_call_arena(call), fake->options->name);
    reply->vendor_version = csi_arena_strdup(csi_call_arena(call), berth_version());
    if (fake->options->recycle)
        CSI_MAP_ADD(csi_call_arena(call), reply, manifest, "berth.recycle", "true");
    return fake_end(fake, step, call, err);
}

static int get_plugin_capabilities(void *driver, const Csi__V1__GetPluginCapabilitiesRequest *request,
                                   Csi__V1__GetPluginCapabilitiesResponse *reply, struct csi_call *call,
                                   struct err *err)
{
    (void)request;
    struct fake *fake = driver;
    struct csi_arena *arena = csi_call_arena(call);
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), "", NULL);
    static const struct {
        const char *name;
        Csi__V1__PluginCapability__Service__Type type;
    } services[] = {
        {"CONTROLLER_SERVICE", CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE},
        {"VOLUME_ACCESSIBILITY_CONSTRAINTS",
         CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__VOLUME_ACCESSIBILITY_CONSTRAINTS},
    };
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        if (capable(fake, services[i].name)) {
            Csi__V1__PluginCapability *capability = CSI_ADD(arena, reply, capabilities);
            CSI_NEW(arena, capability, service)->type = services[i].type;
        }
    return fake_end(fake, step, call, err);
}

static int controller_get_capabilities(void *driver, const Csi__V1__ControllerGetCapabilitiesRequest *request,
                                       Csi__V1__ControllerGetCapabilitiesResponse *reply, struct csi_call *call,
                                       struct err *err)
{
    (void)request;
    struct fake *fake = driver;
    struct csi_arena *arena = csi_call_arena(call);
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), "", NULL);
    const ProtobufCEnumDescriptor *types = &csi__v1__controller_service_capability__rpc__type__descriptor;
    for (unsigned i = 0; i < types->n_values; i++)
        if (types->values[i].value != 0 && capable(fake, types->values[i].name)) {
            Csi__V1__ControllerServiceCapability *capability = CSI_ADD(arena, reply, capabilities);
            CSI_NEW(arena, capability, rpc)->type =
                (Csi__V1__ControllerServiceCapability__RPC__Type)types->values[i].value;
        }
    return fake_end(fake, step, call, err);
}

static int probe(void *driver, const Csi__V1__ProbeRequest *request, Csi__V1__ProbeResponse *reply,
                 struct csi_call *call, struct err *err)
{
    (void)request;
    struct fake *fake = driver;
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), "", NULL);
    CSI_NEW(csi_call_arena(call), reply, ready)->value = !json_is_true(json_object_get(step, "not_ready"));
    return fake_end(fake, step, call, err);
}

static void add_segments(struct csi_arena *arena, Csi__V1__Topology *topology, json_t *segments)
{
    const char *key;
    json_t *value;
    json_object_foreach (segments, key, value)
        CSI_MAP_ADD(arena, topology, segments, key, json_string_value(value));
}

static json_t *terms_to_json(Csi__V1__Topology *const *terms, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, fake_map_to_json(CSI_MAP(terms[i], segments)));
    return list;
}

/* What tests look at in a request; unlike in logs, secrets are shown: they are the test's own. */
static json_t *describe_create(const Csi__V1__CreateVolumeRequest *request)
{
    auto_str struct str text = {0};
    csi_message_print(&request->base, &text);
    json_t *details = json_pack(
        "{s:s, s:o, s:o, s:o, s:I}", "text", str_text(&text), "parameters",
        fake_map_to_json(CSI_MAP(request, parameters)), "secrets", fake_map_to_json(CSI_MAP(request, secrets)),
        "mutable_parameters", fake_map_to_json(CSI_MAP(request, mutable_parameters)), "bytes",
        (json_int_t)(request->capacity_range != NULL ? request->capacity_range->required_bytes : 0));
    const Csi__V1__TopologyRequirement *topology = request->accessibility_requirements;
    if (topology != NULL) {
        json_object_set_new(details, "requisite", terms_to_json(topology->requisite, topology->n_requisite));
        json_object_set_new(details, "preferred", terms_to_json(topology->preferred, topology->n_preferred));
    }
    return details;
}

static json_t *find_by_name(const struct fake *fake, const char *name)
{
    const char *id;
    json_t *record;
    json_object_foreach (fake->volumes, id, record) {
        if (str_eq(json_string_value(json_object_get(record, "name")), name))
            return record;
    }
    return NULL;
}

static json_t *make_volume(struct fake *fake, const json_t *step, const Csi__V1__CreateVolumeRequest *request)
{
    json_t *record = find_by_name(fake, request->name);
    if (record != NULL)
        return record;
    const char *wanted = json_string_value(json_object_get(step, "id"));
    char uuid[RNG_UUID_SIZE];
    auto_free char *id = wanted != NULL ? mem_strdup(wanted) : mem_printf("vol-%s", rng_uuid(rng_real(), uuid));
    record = json_pack("{s:s, s:s, s:I}", "id", id, "name", request->name, "bytes",
                       (json_int_t)(request->capacity_range != NULL ? request->capacity_range->required_bytes : 0));
    json_object_set_new(fake->volumes, id, record);
    fake_save(fake);
    return record;
}

static void answer_topology(struct fake *fake, const json_t *step, const Csi__V1__CreateVolumeRequest *request,
                            struct csi_arena *arena, Csi__V1__Volume *volume)
{
    json_t *told = json_object_get(step, "topology"), *term;
    size_t i;
    json_array_foreach (told, i, term)
        add_segments(arena, CSI_ADD(arena, volume, accessible_topology), term);
    const Csi__V1__TopologyRequirement *asked = request->accessibility_requirements;
    if (told != NULL || asked == NULL || asked->n_preferred == 0 || !capable(fake, "VOLUME_ACCESSIBILITY_CONSTRAINTS"))
        return;
    Csi__V1__Topology *topology = CSI_ADD(arena, volume, accessible_topology);
    CSI_MAP_ADD_ALL(arena, topology, segments, CSI_MAP(asked->preferred[0], segments));
}

static void add_padding(const json_t *step, struct csi_arena *arena, Csi__V1__Volume *volume)
{
    size_t len = (size_t)json_integer_value(json_object_get(step, "context_bytes"));
    if (len == 0)
        return;
    auto_free char *text = mem_alloc(len + 1);
    memset(text, 'x', len);
    text[len] = '\0';
    CSI_MAP_ADD(arena, volume, volume_context, "padding", text);
}

static int create_volume(void *driver, const Csi__V1__CreateVolumeRequest *request,
                         Csi__V1__CreateVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    struct fake *fake = driver;
    struct csi_arena *arena = csi_call_arena(call);
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), request->name, describe_create(request));
    const json_t *size = json_object_get(step, "size");
    Csi__V1__Volume *volume = CSI_NEW(arena, reply, volume);
    if (fake_does_work(step)) {
        pthread_mutex_lock(&fake->lock);
        json_t *record = make_volume(fake, step, request);
        const char *id = json_string_value(json_object_get(record, "id"));
        volume->volume_id = csi_arena_strdup(arena, json_is_true(json_object_get(step, "no_id")) ? "" : id);
        volume->capacity_bytes = json_integer_value(json_object_get(record, "bytes"));
        pthread_mutex_unlock(&fake->lock);
    }
    if (size != NULL)
        volume->capacity_bytes = json_integer_value(size);
    CSI_MAP_ADD(arena, volume, volume_context, "made-by", "fake");
    add_padding(step, arena, volume);
    if (!json_is_true(json_object_get(step, "no_source")))
        volume->content_source = request->volume_content_source;
    answer_topology(fake, step, request, arena, volume);
    return fake_end(fake, step, call, err);
}

static int delete_volume(void *driver, const Csi__V1__DeleteVolumeRequest *request,
                         Csi__V1__DeleteVolumeResponse *reply, struct csi_call *call, struct err *err)
{
    (void)reply;
    struct fake *fake = driver;
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), request->volume_id,
                                        json_pack("{s:o}", "secrets", fake_map_to_json(CSI_MAP(request, secrets))));
    if (fake_does_work(step)) {
        pthread_mutex_lock(&fake->lock);
        if (json_object_del(fake->volumes, request->volume_id) == 0)
            fake_save(fake);
        pthread_mutex_unlock(&fake->lock);
    }
    return fake_end(fake, step, call, err);
}

static int get_capacity(void *driver, const Csi__V1__GetCapacityRequest *request, Csi__V1__GetCapacityResponse *reply,
                        struct csi_call *call, struct err *err)
{
    struct fake *fake = driver;
    json_t *details = json_pack("{s:o}", "parameters", fake_map_to_json(CSI_MAP(request, parameters)));
    if (request->accessible_topology != NULL)
        json_object_set_new(details, "topology", fake_map_to_json(CSI_MAP(request->accessible_topology, segments)));
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), "", details);
    pthread_mutex_lock(&fake->lock);
    reply->available_capacity = fake->capacity;
    if (fake->maximum >= 0)
        CSI_NEW(csi_call_arena(call), reply, maximum_volume_size)->value = fake->maximum;
    pthread_mutex_unlock(&fake->lock);
    return fake_end(fake, step, call, err);
}

static int node_get_info(void *driver, const Csi__V1__NodeGetInfoRequest *request, Csi__V1__NodeGetInfoResponse *reply,
                         struct csi_call *call, struct err *err)
{
    (void)request;
    struct fake *fake = driver;
    struct csi_arena *arena = csi_call_arena(call);
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), "", NULL);
    reply->node_id = csi_arena_strdup(arena, fake->options->node_id);
    auto_strv struct strv pairs = {0};
    if (!str_empty(fake->options->topology))
        strv_split(&pairs, fake->options->topology, ',');
    Csi__V1__Topology *topology = pairs.len > 0 ? CSI_NEW(arena, reply, accessible_topology) : NULL;
    for (size_t i = 0; i < pairs.len; i++) {
        char *equals = strchr(pairs.items[i], '=');
        if (equals == NULL)
            continue;
        *equals = '\0';
        CSI_MAP_ADD(arena, topology, segments, pairs.items[i], equals + 1);
    }
    return fake_end(fake, step, call, err);
}

static int scrub(void *driver, const Berth__V1__ScrubRequest *request, Berth__V1__ScrubResponse *reply,
                 struct csi_call *call, struct err *err)
{
    struct fake *fake = driver;
    auto_json json_t *step = fake_begin(fake, csi_call_method(call), request->volume_id, NULL);
    reply->removed_entries = fake_does_work(step) ? 3 : 0;
    return fake_end(fake, step, call, err);
}

const struct csi_handlers fake_handlers = {
    .get_plugin_info = get_plugin_info,
    .get_plugin_capabilities = get_plugin_capabilities,
    .probe = probe,
    .controller_get_capabilities = controller_get_capabilities,
    .create_volume = create_volume,
    .delete_volume = delete_volume,
    .get_capacity = get_capacity,
    .node_get_info = node_get_info,
    .scrub = scrub,
};
