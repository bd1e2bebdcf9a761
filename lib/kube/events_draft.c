/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/events_correlate.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <inttypes.h>

static char *copy(const char *text)
{
    return mem_strdup(text != NULL ? text : "");
}

char *kube_event_name(const char *object, int64_t wall, struct rng *rng)
{
    auto_free char *name = mem_printf("%s.%" PRIx64, object, (uint64_t)wall);
    if (kube_name_is_dns_subdomain(name))
        return mem_take(name);
    char uuid[RNG_UUID_SIZE];
    return mem_strdup(rng_uuid(rng, uuid));
}

struct kube_event_draft *kube_event_draft_new(const struct kube_reference *reference, const char *type,
                                              const char *reason, char *message, int64_t wall, struct rng *rng)
{
    struct kube_event_draft *draft = mem_new(struct kube_event_draft);
    draft->involved.api_version = copy(reference->api_version);
    draft->involved.kind = copy(reference->kind);
    draft->involved.namespace_ = copy(reference->namespace_);
    draft->involved.name = copy(reference->name);
    draft->involved.uid = copy(reference->uid);
    draft->involved.resource_version = copy(reference->resource_version);
    draft->involved.field_path = copy(reference->field_path);
    draft->namespace_ = mem_strdup(str_empty(reference->namespace_) ? "default" : reference->namespace_);
    draft->name = kube_event_name(draft->involved.name, wall, rng);
    draft->type = copy(type);
    draft->reason = copy(reason);
    draft->message = message;
    draft->first = draft->last = wall;
    draft->count = 1;
    return draft;
}

void kube_event_draft_free(struct kube_event_draft *draft)
{
    if (draft == NULL)
        return;
    char *texts[] = {draft->namespace_,
                     draft->name,
                     draft->involved.api_version,
                     draft->involved.kind,
                     draft->involved.namespace_,
                     draft->involved.name,
                     draft->involved.uid,
                     draft->involved.resource_version,
                     draft->involved.field_path,
                     draft->type,
                     draft->reason,
                     draft->message};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(texts[i]);
    free(draft);
}

/* Bytes of the valid character at the start of text, 0 when there is none. */
static size_t character_len(const char *text, size_t len)
{
    for (size_t n = 1; n <= 4 && n <= len; n++)
        if (str_is_utf8(text, n))
            return n;
    return 0;
}

char *kube_event_clean_message(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    auto_str struct str out = {0};
    size_t len = strlen(text);
    for (size_t at = 0; at < len;) {
        size_t n = character_len(text + at, len - at);
        size_t add = n > 0 ? n : sizeof(replacement) - 1;
        if (out.len + add > KUBE_EVENT_MESSAGE_LIMIT)
            break;
        str_add_len(&out, n > 0 ? text + at : replacement, add);
        at += n > 0 ? n : 1;
    }
    return str_take(&out);
}

static int set_text(json_t *object, const char *key, const char *text)
{
    return str_empty(text) ? 0 : json_object_set_new(object, key, json_string(text));
}

/* References leave out what is empty, as Go's omitempty does. */
static json_t *involved_to_json(const struct kube_event_draft *draft)
{
    json_t *involved = json_object();
    int rc = set_text(involved, "kind", draft->involved.kind);
    rc |= set_text(involved, "namespace", draft->involved.namespace_);
    rc |= set_text(involved, "name", draft->involved.name);
    rc |= set_text(involved, "uid", draft->involved.uid);
    rc |= set_text(involved, "apiVersion", draft->involved.api_version);
    rc |= set_text(involved, "resourceVersion", draft->involved.resource_version);
    rc |= set_text(involved, "fieldPath", draft->involved.field_path);
    if (rc == 0)
        return involved;
    json_decref(involved);
    return NULL;
}

json_t *kube_event_to_json(const struct kube_event_draft *draft, const char *component, const char *host)
{
    char first[CLOCK_TEXT_SIZE], last[CLOCK_TEXT_SIZE];
    json_t *involved = involved_to_json(draft);
    if (involved == NULL)
        return NULL;
    return json_pack(
        "{s:s, s:s, s:{s:s, s:s}, s:o, s:s, s:s, s:{s:s, s:s*}, s:s, s:s, s:I, s:s, s:n, s:s, s:s}", "apiVersion", "v1",
        "kind", "Event", "metadata", "name", draft->name, "namespace", draft->namespace_, "involvedObject", involved,
        "reason", draft->reason, "message", draft->message, "source", "component", component, "host",
        str_empty(host) ? NULL : host, "firstTimestamp", clock_format_rfc3339(draft->first, false, first),
        "lastTimestamp", clock_format_rfc3339(draft->last, false, last), "count", (json_int_t)draft->count, "type",
        draft->type, "eventTime", "reportingComponent", component, "reportingInstance", str_empty(host) ? "" : host);
}

json_t *kube_event_to_patch(const struct kube_event_draft *draft)
{
    char last[CLOCK_TEXT_SIZE];
    return json_pack("{s:I, s:s, s:s}", "count", (json_int_t)draft->count, "lastTimestamp",
                     clock_format_rfc3339(draft->last, false, last), "message", draft->message);
}
