/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kube/object_text.h"

#include "lib/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

json_t *json_of_text(const char *text)
{
    auto_free char *copy = mem_strdup(text);
    for (char *p = copy; *p != '\0'; p++) {
        if (*p == '\'')
            *p = '"';
    }
    json_error_t error;
    json_t *json = json_loads(copy, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (json == NULL)
        fail_msg("%s at %d: %s", error.text, error.position, copy);
    return json;
}

struct kube_object *object_of_text_with(const struct kube_kind *kind, const char *text,
                                        const struct kube_decode_options *options)
{
    json_t *json = json_of_text(text);
    auto_err struct err err = {0};
    struct kube_object *object = kube_object_decode(kind, json, options, &err);
    if (object == NULL) {
        fail_msg("%s", err_text(&err));
        return NULL; /* not reached, but analysers do not know */
    }
    /* nothing may point into the JSON */
    json_decref(json);
    assert_ptr_equal(object->kind, kind);
    return object;
}

struct kube_object *object_of_text(const struct kube_kind *kind, const char *text)
{
    return object_of_text_with(kind, text, NULL);
}

void assert_text_refused(const struct kube_kind *kind, const char *text, const char *message)
{
    json_t *json = json_of_text(text);
    auto_err struct err err = {0};
    struct kube_object *object = kube_object_decode(kind, json, NULL, &err);
    assert_null(object);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.message, message);
    assert_null(kube_object_decode(kind, json, NULL, NULL));
    json_decref(json);
}

void assert_strings(const struct kube_strings *strings, const char *joined)
{
    auto_strv struct strv list = {0};
    for (uint32_t i = 0; i < strings->len; i++)
        strv_add(&list, strings->items[i]);
    auto_free char *text = strv_join(&list, ",");
    assert_string_equal(text, joined);
}
