/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/csi/support.h"

#include "lib/base/log.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

char *directory_new(void)
{
    char *path = mem_strdup("/tmp/berth-csi-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

void directory_remove(char *directory)
{
    DIR *listing = opendir(directory);
    for (struct dirent *entry = listing == NULL ? NULL : readdir(listing); entry != NULL; entry = readdir(listing)) {
        auto_free char *path = mem_printf("%s/%s", directory, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && unlink(path) < 0)
            rmdir(path);
    }
    if (listing != NULL)
        closedir(listing);
    rmdir(directory);
    free(directory);
}

static void fill_list(struct csi_arena *arena, ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    for (int i = 0; i < 2; i++) {
        if (field->type == PROTOBUF_C_TYPE_STRING) {
            csi_message_add_string(arena, message, field->name, i == 0 ? "first" : "second");
            continue;
        }
        assert_int_equal(field->type, PROTOBUF_C_TYPE_MESSAGE);
        const ProtobufCMessageDescriptor *type = field->descriptor;
        if (str_ends(type->short_name, "Entry") && strcmp(type->fields[0].name, "key") == 0)
            csi_message_map_add(arena, message, field->name, i == 0 ? "key" : "other",
                                strcmp(field->name, "secrets") == 0 ? SECRET_VALUE : "value");
        else
            message_fill(arena, csi_message_add_new(arena, message, field->name));
    }
}

void message_fill(struct csi_arena *arena, ProtobufCMessage *message)
{
    uint32_t last_oneof = 0;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        unsigned char *at = (unsigned char *)message + field->offset;
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
            if (field->quantifier_offset == last_oneof)
                continue;
            last_oneof = field->quantifier_offset;
        }
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            fill_list(arena, message, field);
        } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            message_fill(arena, csi_message_set_new(arena, message, field->name));
        } else if (field->type == PROTOBUF_C_TYPE_STRING) {
            char *text = csi_arena_printf(arena, "/%s \xc3\xbc", field->name);
            memcpy(at, &text, sizeof(text));
        } else if (field->type == PROTOBUF_C_TYPE_INT64) {
            memcpy(at, &(int64_t){INT64_C(5000000000)}, sizeof(int64_t));
        } else { /* int32, bool, enum: all of the same size */
            memcpy(at, &(int32_t){1}, sizeof(int32_t));
        }
    }
}

void messages_assert_equal(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    assert_ptr_equal(a->descriptor, b->descriptor);
    const size_t size = protobuf_c_message_get_packed_size(a);
    assert_int_equal(size, protobuf_c_message_get_packed_size(b));
    auto_free uint8_t *bytes_a = mem_alloc(size + 1);
    auto_free uint8_t *bytes_b = mem_alloc(size + 1);
    protobuf_c_message_pack(a, bytes_a);
    protobuf_c_message_pack(b, bytes_b);
    assert_memory_equal(bytes_a, bytes_b, size);
}

void gate_init(struct gate *gate)
{
    *gate = (struct gate){0};
    pthread_mutex_init(&gate->mutex, NULL);
    clock_cond_init(&gate->cond);
}

void gate_add(struct gate *gate, int n)
{
    pthread_mutex_lock(&gate->mutex);
    gate->count += n;
    pthread_cond_broadcast(&gate->cond);
    pthread_mutex_unlock(&gate->mutex);
}

void gate_wait(struct gate *gate, int at_least)
{
    const int64_t deadline = clock_mono(clock_real()) + 10 * CLOCK_SECOND;
    bool in_time = true;
    pthread_mutex_lock(&gate->mutex);
    while (in_time && gate->count < at_least)
        in_time = clock_cond_wait(clock_real(), &gate->cond, &gate->mutex, deadline);
    const int count = gate->count;
    pthread_mutex_unlock(&gate->mutex);
    assert_true(count >= at_least);
}

int gate_count(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    const int count = gate->count;
    pthread_mutex_unlock(&gate->mutex);
    return count;
}

void gate_destroy(struct gate *gate)
{
    pthread_mutex_destroy(&gate->mutex);
    pthread_cond_destroy(&gate->cond);
}

static pthread_mutex_t capture_mutex = PTHREAD_MUTEX_INITIALIZER;

static void capture(void *arg, const char *line, size_t len)
{
    pthread_mutex_lock(&capture_mutex);
    str_add_len(arg, line, len);
    pthread_mutex_unlock(&capture_mutex);
}

void log_capture_begin(struct str *lines)
{
    assert_int_equal(log_setup(&(struct log_options){.verbosity = 9}, NULL), 0);
    log_set_sink(capture, lines);
}

void log_capture_end(void)
{
    log_set_sink(NULL, NULL);
    assert_int_equal(log_setup(&(struct log_options){.verbosity = 0}, NULL), 0);
}
