/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "lib/kube/config_private.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define FILE_LIMIT ((size_t)8 << 20)
#define NODE_LIMIT ((size_t)10000)
#define DEPTH_LIMIT 64 /* aliases can make a document refer to itself */

static char *directory_of(const char *path)
{
    auto_free char *copy = mem_strdup(path);
    const char *directory = dirname(copy);
    if (directory[0] == '/')
        return mem_strdup(directory);
    auto_free char *here = getcwd(NULL, 0);
    if (here == NULL)
        return mem_strdup(directory);
    return mem_printf("%s/%s", here, directory);
}

static int parse(struct kube_yaml *file, const char *data, size_t len, struct err *err)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return err_set(err, ERR_INTERNAL, "%s: the YAML parser cannot start", file->path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)data, len);
    int result = 0;
    if (yaml_parser_load(&parser, &file->document)) {
        file->loaded = true;
    } else {
        const char *problem = parser.problem != NULL ? parser.problem : "malformed YAML";
        /* the context tells where the broken thing began, which is where people must look */
        if (parser.context != NULL)
            result = err_set(err, ERR_INVALID, "%s:%zu: %s (%s at line %zu)", file->path, parser.problem_mark.line + 1,
                             problem, parser.context, parser.context_mark.line + 1);
        else
            result = err_set(err, ERR_INVALID, "%s:%zu: %s", file->path, parser.problem_mark.line + 1, problem);
    }
    yaml_parser_delete(&parser);
    return result;
}

int kube_yaml_load(struct kube_yaml *file, const char *path, struct err *err)
{
    *file = (struct kube_yaml){.path = mem_strdup(path), .directory = directory_of(path)};
    char *data = NULL;
    size_t len = 0;
    if (file_read(path, FILE_LIMIT, &data, &len, err) != 0)
        return -1;
    int result = parse(file, data, len, err);
    mem_wipe(data, len);
    free(data);
    if (result != 0)
        return -1;
    yaml_node_t *root = yaml_document_get_root_node(&file->document);
    bool empty = root == NULL || (root->type == YAML_SCALAR_NODE && root->data.scalar.length == 0);
    if (!empty && root->type != YAML_MAPPING_NODE)
        return kube_yaml_error(file, root, err, "this is no kubeconfig: a mapping is wanted");
    return 0;
}

void kube_yaml_free(struct kube_yaml *file)
{
    if (file->loaded) {
        /* keys and tokens are in there */
        for (yaml_node_t *node = file->document.nodes.start; node < file->document.nodes.top; node++)
            if (node->type == YAML_SCALAR_NODE)
                mem_wipe(node->data.scalar.value, node->data.scalar.length);
        yaml_document_delete(&file->document);
    }
    free(file->path);
    free(file->directory);
    *file = (struct kube_yaml){0};
}

yaml_node_t *kube_yaml_root(struct kube_yaml *file)
{
    yaml_node_t *root = file->loaded ? yaml_document_get_root_node(&file->document) : NULL;
    return root != NULL && root->type == YAML_MAPPING_NODE ? root : NULL;
}

int kube_yaml_error(const struct kube_yaml *file, const yaml_node_t *node, struct err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    auto_free char *text = mem_vprintf(format, args);
    va_end(args);
    if (node == NULL)
        return err_set(err, ERR_INVALID, "%s: %s", file->path, text);
    return err_set(err, ERR_INVALID, "%s:%zu: %s", file->path, node->start_mark.line + 1, text);
}

static bool is_null(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    const char *text = (const char *)node->data.scalar.value;
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 || strcmp(text, "Null") == 0 ||
           strcmp(text, "NULL") == 0;
}

yaml_node_t *kube_yaml_get(struct kube_yaml *file, const yaml_node_t *mapping, const char *key)
{
    if (mapping == NULL || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *name = yaml_document_get_node(&file->document, pair->key);
        if (name == NULL || name->type != YAML_SCALAR_NODE || strcmp((const char *)name->data.scalar.value, key) != 0)
            continue;
        yaml_node_t *value = yaml_document_get_node(&file->document, pair->value);
        return value == NULL || is_null(value) ? NULL : value;
    }
    return NULL;
}

static int get_typed(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, yaml_node_type_t type,
                     const char *wanted, yaml_node_t **node, struct err *err)
{
    *node = kube_yaml_get(file, mapping, key);
    if (*node == NULL || (*node)->type == type)
        return 0;
    return kube_yaml_error(file, *node, err, "\"%s\" must be %s", key, wanted);
}

int kube_yaml_get_mapping(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, yaml_node_t **node,
                          struct err *err)
{
    return get_typed(file, mapping, key, YAML_MAPPING_NODE, "a mapping", node, err);
}

int kube_yaml_get_sequence(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, yaml_node_t **node,
                           struct err *err)
{
    return get_typed(file, mapping, key, YAML_SEQUENCE_NODE, "a list", node, err);
}

size_t kube_yaml_len(const yaml_node_t *sequence)
{
    if (sequence == NULL)
        return 0;
    return (size_t)(sequence->data.sequence.items.top - sequence->data.sequence.items.start);
}

yaml_node_t *kube_yaml_item(struct kube_yaml *file, const yaml_node_t *sequence, size_t index)
{
    return yaml_document_get_node(&file->document, sequence->data.sequence.items.start[index]);
}

int kube_yaml_get_string(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, char **value,
                         struct err *err)
{
    yaml_node_t *node;
    if (get_typed(file, mapping, key, YAML_SCALAR_NODE, "a string", &node, err) != 0)
        return -1;
    if (node == NULL)
        return 0;
    for (size_t i = 0; i < node->data.scalar.length; i++) {
        unsigned char c = node->data.scalar.value[i];
        if (c < 0x20 || c == 0x7f)
            return kube_yaml_error(file, node, err, "\"%s\" contains a line break or another control character", key);
    }
    kube_wipe_string(value);
    *value = mem_strndup((const char *)node->data.scalar.value, node->data.scalar.length);
    return 0;
}

int kube_yaml_get_path(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, char **value,
                       struct err *err)
{
    auto_free char *path = NULL;
    if (kube_yaml_get_string(file, mapping, key, &path, err) != 0)
        return -1;
    if (str_empty(path))
        return 0;
    free(*value);
    *value = path[0] == '/' ? mem_take(path) : mem_printf("%s/%s", file->directory, path);
    return 0;
}

int kube_yaml_get_data(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, char **value,
                       struct err *err)
{
    yaml_node_t *node;
    if (get_typed(file, mapping, key, YAML_SCALAR_NODE, "base64 text", &node, err) != 0)
        return -1;
    if (node == NULL || node->data.scalar.length == 0)
        return 0;
    auto_free char *packed = mem_alloc(node->data.scalar.length + 1);
    size_t len = 0;
    for (size_t i = 0; i < node->data.scalar.length; i++) {
        char c = (char)node->data.scalar.value[i];
        if (c != '\n' && c != '\r' && c != ' ')
            packed[len++] = c;
    }
    size_t decoded_len = 0;
    char *decoded = (char *)str_base64_decode(packed, len, &decoded_len);
    mem_wipe(packed, len);
    if (decoded == NULL)
        return kube_yaml_error(file, node, err, "\"%s\" is not valid base64", key);
    if (memchr(decoded, '\0', decoded_len) != NULL) {
        mem_wipe(decoded, decoded_len);
        free(decoded);
        return kube_yaml_error(file, node, err, "\"%s\" must be PEM text in base64", key);
    }
    kube_wipe_string(value);
    *value = decoded;
    return 0;
}

static int bool_of(const char *text)
{
    static const char *const words[2][4] = {{"false", "False", "FALSE", "no"}, {"true", "True", "TRUE", "yes"}};
    for (int value = 0; value < 2; value++)
        for (size_t i = 0; i < ARRAY_LEN(words[value]); i++)
            if (strcmp(text, words[value][i]) == 0)
                return value;
    return -1;
}

int kube_yaml_get_bool(struct kube_yaml *file, const yaml_node_t *mapping, const char *key, bool *value,
                       struct err *err)
{
    yaml_node_t *node;
    if (get_typed(file, mapping, key, YAML_SCALAR_NODE, "true or false", &node, err) != 0)
        return -1;
    if (node == NULL)
        return 0;
    int parsed = bool_of((const char *)node->data.scalar.value);
    if (parsed < 0)
        return kube_yaml_error(file, node, err, "\"%s\" must be true or false", key);
    *value = parsed == 1;
    return 0;
}

static json_t *scalar_to_json(const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    if (is_null(node))
        return json_null();
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        int64_t integer;
        int parsed = bool_of(text);
        if (parsed >= 0)
            return json_boolean(parsed);
        if (str_parse_i64(text, &integer))
            return json_integer(integer);
        char *end;
        double real = strtod(text, &end);
        if (*end == '\0' && isfinite(real))
            return json_real(real);
    }
    return json_stringn(text, node->data.scalar.length);
}

/* `budget` counts nodes: a few lines of nested aliases can stand for millions. */
static json_t *to_json(struct kube_yaml *file, const yaml_node_t *node, int depth, size_t *budget, struct err *err);

static json_t *sequence_to_json(struct kube_yaml *file, const yaml_node_t *node, int depth, size_t *budget,
                                struct err *err)
{
    json_t *array = json_array();
    for (size_t i = 0; i < kube_yaml_len(node); i++) {
        json_t *item = to_json(file, kube_yaml_item(file, node, i), depth + 1, budget, err);
        if (item == NULL || json_array_append_new(array, item) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *mapping_to_json(struct kube_yaml *file, const yaml_node_t *node, int depth, size_t *budget,
                               struct err *err)
{
    json_t *object = json_object();
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&file->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(&file->document, pair->value);
        json_t *item = NULL;
        if (key->type != YAML_SCALAR_NODE)
            kube_yaml_error(file, key, err, "a key must be a string");
        else
            item = to_json(file, value, depth + 1, budget, err);
        if (item == NULL || json_object_set_new(object, (const char *)key->data.scalar.value, item) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *to_json(struct kube_yaml *file, const yaml_node_t *node, int depth, size_t *budget, struct err *err)
{
    if (depth > DEPTH_LIMIT || *budget == 0) {
        kube_yaml_error(file, node, err, "too large or nested too deeply");
        return NULL;
    }
    (*budget)--;
    if (node->type == YAML_SEQUENCE_NODE)
        return sequence_to_json(file, node, depth, budget, err);
    if (node->type == YAML_MAPPING_NODE)
        return mapping_to_json(file, node, depth, budget, err);
    json_t *scalar = scalar_to_json(node);
    if (scalar == NULL)
        kube_yaml_error(file, node, err, "this text cannot be written as JSON");
    return scalar;
}

json_t *kube_yaml_to_json(struct kube_yaml *file, const yaml_node_t *node, struct err *err)
{
    size_t budget = NODE_LIMIT;
    return to_json(file, node, 0, &budget, err);
}
