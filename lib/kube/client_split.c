/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/client_split.h"

#include "lib/base/mem.h"

#include <jansson.h>
#include <string.h>

/*
 *   START {   KEY "metadata"   COLON :   VALUE { … }   NEXT ,   KEY "items"  COLON :  VALUE_START [
 *       ITEM { … }  ITEM_NEXT ,  ITEM { … }  ITEM_NEXT ]   NEXT }   DONE
 */
enum state {
    STATE_START,
    STATE_KEY_OR_END, /* after { */
    STATE_KEY_START,  /* after , */
    STATE_KEY,
    STATE_COLON,
    STATE_VALUE_START,
    STATE_VALUE,
    STATE_NEXT,
    STATE_ITEM_OR_END, /* after [ */
    STATE_ITEM_START,  /* after , */
    STATE_ITEM,
    STATE_ITEM_NEXT,
    STATE_DONE,
};
enum capture { CAPTURE_NOTHING, CAPTURE_METADATA, CAPTURE_ITEM };

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static enum kube_split_result broken(struct kube_split *split, const char *problem)
{
    split->problem = problem;
    return KUBE_SPLIT_BROKEN;
}

/* Reads on in the value that has begun: how many of the bytes belong to it, and whether it is complete. */
static size_t scan_value(struct kube_split *split, const char *data, size_t len, bool *complete)
{
    *complete = false;
    for (size_t i = 0; i < len; i++) {
        char c = data[i];
        if (split->in_string) {
            if (split->escaped)
                split->escaped = false;
            else if (c == '\\')
                split->escaped = true;
            else if (c == '"')
                split->in_string = false;
            else
                continue;
            *complete = !split->in_string && split->depth == 0;
        } else if (c == '"') {
            split->in_string = true;
        } else if (c == '{' || c == '[') {
            split->depth++;
        } else if (c == '}' || c == ']') {
            if (split->depth == 0) { /* a number or word ends before it */
                *complete = true;
                return i;
            }
            *complete = --split->depth == 0;
        } else if (split->depth == 0 && (c == ',' || is_blank(c))) {
            *complete = true;
            return i;
        }
        if (*complete)
            return i + 1;
    }
    return len;
}

static void begin_value(struct kube_split *split, enum capture capture)
{
    split->depth = 0;
    split->in_string = split->escaped = false;
    split->capture = capture;
    str_reset(&split->text);
}

/* The key without its quotes; one with escapes is left to the real parser. */
static bool key_is(struct kube_split *split, const char *name)
{
    const char *key = str_text(&split->key);
    if (memchr(key, '\\', split->key.len) == NULL)
        return split->key.len == strlen(name) + 2 && memcmp(key + 1, name, strlen(name)) == 0;
    json_t *decoded = json_loadb(key, split->key.len, JSON_DECODE_ANY, NULL);
    bool same = str_eq(json_string_value(decoded), name);
    json_decref(decoded);
    return same;
}

static bool deliver(struct kube_split *split)
{
    if (split->capture == CAPTURE_METADATA)
        split->metadata(split->arg, str_text(&split->text), split->text.len);
    if (split->capture == CAPTURE_ITEM)
        return split->item(split->arg, str_text(&split->text), split->text.len);
    return true;
}

/* STATE_VALUE, STATE_ITEM and STATE_KEY: takes a run of bytes. */
static enum kube_split_result take_run(struct kube_split *split, const char *data, size_t len, size_t *used)
{
    bool complete;
    *used = scan_value(split, data, len, &complete);
    struct str *text = split->state == STATE_KEY ? &split->key : &split->text;
    if (split->state == STATE_KEY || split->capture != CAPTURE_NOTHING) {
        if (text->len + *used > KUBE_SPLIT_ITEM_LIMIT)
            return broken(split, "an item is too large");
        str_add_len(text, data, *used);
    }
    if (!complete)
        return KUBE_SPLIT_MORE;
    bool go_on = split->state == STATE_KEY || deliver(split);
    split->state = split->state == STATE_KEY ? STATE_COLON : split->state == STATE_ITEM ? STATE_ITEM_NEXT : STATE_NEXT;
    return go_on ? KUBE_SPLIT_MORE : KUBE_SPLIT_STOPPED;
}

/* The value of the key just read begins with c. True when c was used up. */
static bool start_member(struct kube_split *split, char c)
{
    if (c == '[' && key_is(split, "items")) {
        split->state = STATE_ITEM_OR_END;
        return true;
    }
    begin_value(split, c == '{' && key_is(split, "metadata") ? CAPTURE_METADATA : CAPTURE_NOTHING);
    split->state = STATE_VALUE;
    return false;
}

static enum kube_split_result start_key(struct kube_split *split, char c, size_t *used)
{
    if (c != '"')
        return broken(split, "a key is missing");
    begin_value(split, CAPTURE_NOTHING);
    str_reset(&split->key);
    split->state = STATE_KEY;
    *used = 0;
    return KUBE_SPLIT_MORE;
}

static enum kube_split_result start_item(struct kube_split *split, char c, size_t *used)
{
    if (c == ',' || c == ']' || c == '}' || c == ':')
        return broken(split, "an item is missing");
    begin_value(split, CAPTURE_ITEM);
    split->state = STATE_ITEM;
    *used = 0;
    return KUBE_SPLIT_MORE;
}

/* One byte between values; *used becomes 0 when the next state is to see it again. */
static enum kube_split_result take_byte(struct kube_split *split, char c, size_t *used)
{
    *used = 1;
    if (is_blank(c))
        return KUBE_SPLIT_MORE;
    switch ((enum state)split->state) {
    case STATE_START:
        split->state = STATE_KEY_OR_END;
        return c == '{' ? KUBE_SPLIT_MORE : broken(split, "this is no JSON object");
    case STATE_KEY_OR_END:
    case STATE_KEY_START:
        if (c != '}' || split->state == STATE_KEY_START)
            return start_key(split, c, used);
        split->state = STATE_DONE;
        return KUBE_SPLIT_MORE;
    case STATE_COLON:
        split->state = STATE_VALUE_START;
        return c == ':' ? KUBE_SPLIT_MORE : broken(split, "a colon is missing");
    case STATE_VALUE_START:
        if (c == ',' || c == '}' || c == ']' || c == ':')
            return broken(split, "a value is missing");
        *used = start_member(split, c) ? 1 : 0;
        return KUBE_SPLIT_MORE;
    case STATE_NEXT:
        split->state = c == ',' ? STATE_KEY_START : STATE_DONE;
        return c == ',' || c == '}' ? KUBE_SPLIT_MORE : broken(split, "a comma is missing");
    case STATE_ITEM_OR_END:
    case STATE_ITEM_START:
        if (c != ']' || split->state == STATE_ITEM_START)
            return start_item(split, c, used);
        split->state = STATE_NEXT;
        return KUBE_SPLIT_MORE;
    case STATE_ITEM_NEXT:
        split->state = c == ',' ? STATE_ITEM_START : STATE_NEXT;
        return c == ',' || c == ']' ? KUBE_SPLIT_MORE : broken(split, "a comma between items is missing");
    default:
        return broken(split, "there is something after the end");
    }
}

enum kube_split_result kube_split_feed(struct kube_split *split, const char *data, size_t len)
{
    for (size_t at = 0, used; at < len; at += used) {
        bool in_value = split->state == STATE_KEY || split->state == STATE_VALUE || split->state == STATE_ITEM;
        enum kube_split_result result =
            in_value ? take_run(split, data + at, len - at, &used) : take_byte(split, data[at], &used);
        if (result != KUBE_SPLIT_MORE)
            return result;
    }
    return KUBE_SPLIT_MORE;
}

bool kube_split_complete(const struct kube_split *split)
{
    return split->state == STATE_DONE;
}

const char *kube_split_problem(const struct kube_split *split)
{
    return split->problem != NULL ? split->problem : "it ends in the middle";
}

void kube_split_free(struct kube_split *split)
{
    str_free(&split->key);
    str_free(&split->text);
}
