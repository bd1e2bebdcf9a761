/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a list reply, in one piece and byte by byte: both ways give the same items and the same end, and what is
 * whole and good JSON is cut into what the parser finds in it. */
#include "tests/fuzz/fuzz.h"

#include "lib/base/mem.h"
#include "lib/kube/client_split.h"

#include <jansson.h>
#include <string.h>

static bool on_item(void *arg, const char *text, size_t len)
{
    struct str *seen = arg;
    str_add_len(seen, text, len);
    str_add_char(seen, '\n');
    return true;
}

static void on_metadata(void *arg, const char *text, size_t len)
{
    (void)on_item(arg, text, len);
}

static enum kube_split_result feed(const char *data, size_t size, size_t step, struct str *seen, bool *complete)
{
    struct kube_split split = {.item = on_item, .metadata = on_metadata, .arg = seen};
    enum kube_split_result result = KUBE_SPLIT_MORE;
    for (size_t at = 0; at < size && result == KUBE_SPLIT_MORE; at += step)
        result = kube_split_feed(&split, data + at, size - at < step ? size - at : step);
    *complete = kube_split_complete(&split);
    require(kube_split_problem(&split) != NULL);
    kube_split_free(&split);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_str struct str whole = {0}, bytes = {0};
    bool whole_complete, bytes_complete;
    const char *text = (const char *)data;
    enum kube_split_result result = feed(text, size, size > 0 ? size : 1, &whole, &whole_complete);
    require(feed(text, size, 1, &bytes, &bytes_complete) == result && whole_complete == bytes_complete);
    require(whole.len == bytes.len && (whole.len == 0 || memcmp(whole.data, bytes.data, whole.len) == 0));

    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (json_is_object(json)) {
        size_t index;
        json_t *item;
        require(result == KUBE_SPLIT_MORE && whole_complete);
        size_t lines = 0;
        json_array_foreach (json_object_get(json, "items"), index, item)
            lines++;
        lines += json_is_object(json_object_get(json, "metadata")) ? 1 : 0;
        size_t most = 0;
        for (size_t i = 0; i < whole.len; i++)
            most += whole.data[i] == '\n' ? 1 : 0;
        require(most >= lines); /* an item may hold line ends of its own */
    }
    json_decref(json);
    return 0;
}
