/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/devapi/render.h"

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "tests/devapi/tree.h"

#include <string.h>

void rendering_init(struct rendering *rendering, const struct catalog *catalog, const struct request *request)
{
    *rendering =
        (struct rendering){.kind = request->kind, .minor = catalog->minor, .events_group = request->events_group};
    const char *stored = catalog_storage_version(catalog, request->kind);
    rendering->shown_version =
        *request->group != '\0' ? mem_printf("%s/%s", request->group, request->version) : mem_strdup(request->version);
    if (stored != NULL && (strcmp(stored, request->version) != 0 || request->events_group))
        rendering->api_version = mem_strdup(rendering->shown_version);
    const char *accept = request->accept != NULL ? request->accept : "";
    if (strstr(accept, "as=Table") != NULL)
        rendering->as = RENDER_TABLE;
    else if (strstr(accept, "as=PartialObjectMetadata") != NULL)
        rendering->as = RENDER_METADATA;
    rendering->whole_objects = str_eq(request_query(request, "includeObject"), "Object");
}

void rendering_free(struct rendering *rendering)
{
    free(rendering->api_version);
    free(rendering->shown_version);
    *rendering = (struct rendering){0};
}

bool rendering_is_plain(const struct rendering *rendering)
{
    return rendering->as == RENDER_OBJECT && rendering->api_version == NULL;
}

static void add_json(struct str *out, const json_t *value)
{
    auto_free char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    str_add(out, text != NULL ? text : "null");
}

static json_t *convert(const struct rendering *rendering, const struct version *version)
{
    json_t *object = version_parse(version);
    if (rendering->events_group)
        events_from_core(object);
    if (rendering->api_version != NULL)
        tree_set_text(object, "apiVersion", rendering->api_version);
    return object;
}

void render_object(const struct rendering *rendering, const struct version *version, struct str *out)
{
    if (rendering_is_plain(rendering)) {
        str_add_len(out, version->json, version->json_len);
        return;
    }
    auto_json json_t *object = convert(rendering, version);
    if (rendering->as == RENDER_TABLE) {
        const char *resource_version = tree_text(object, "metadata.resourceVersion");
        table_head(rendering->kind, rendering->minor, resource_version, NULL, out);
        table_row(rendering->kind, rendering->minor, object, rendering->whole_objects, clock_wall(clock_real()), out);
        str_add(out, "]}");
    } else if (rendering->as == RENDER_METADATA) {
        auto_json json_t *partial = json_pack("{s:s, s:s, s:O}", "kind", "PartialObjectMetadata", "apiVersion",
                                              "meta.k8s.io/v1", "metadata", json_object_get(object, "metadata"));
        add_json(out, partial);
    } else {
        add_json(out, object);
    }
}

void render_item(const struct rendering *rendering, const struct version *version, struct str *out)
{
    if (rendering->as == RENDER_TABLE) {
        auto_json json_t *object = convert(rendering, version);
        table_row(rendering->kind, rendering->minor, object, rendering->whole_objects, clock_wall(clock_real()), out);
    } else if (rendering_is_plain(rendering) && !kind_has(rendering->kind, KIND_CUSTOM) && version->list_offset > 0) {
        str_add_char(out, '{');
        str_add_len(out, version->json + version->list_offset, version->json_len - version->list_offset);
    } else {
        render_object(rendering, version, out);
    }
}
