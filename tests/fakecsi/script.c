/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/file.h"
#include "lib/base/mem.h"
#include "tests/fakecsi/fake.h"

#include <signal.h>
#include <unistd.h>

json_t *fake_map_to_json(struct csi_map map)
{
    json_t *object = json_object();
    const char *key, *value;
    for (size_t i = 0; i < map.len; i++)
        if (csi_map_at(map, i, &key, &value))
            json_object_set_new(object, key, json_string(value));
    return object;
}

static bool step_fits(const json_t *step, const char *subject, const json_t *details)
{
    const char *match = json_string_value(json_object_get(step, "match"));
    const char *wanted = json_string_value(json_object_get(step, "request"));
    const char *text = json_string_value(json_object_get(details, "text"));
    return (match == NULL || strstr(subject, match) != NULL) &&
           (wanted == NULL || (text != NULL && strstr(text, wanted) != NULL));
}

/* The first step that fits; one that served its last call leaves the list. */
static json_t *take_step(json_t *steps, const char *subject, const json_t *details)
{
    for (size_t i = 0; i < json_array_size(steps); i++) {
        json_t *step = json_array_get(steps, i);
        if (!step_fits(step, subject, details))
            continue;
        json_t *times = json_object_get(step, "times");
        json_int_t left = times != NULL ? json_integer_value(times) : 1;
        json_incref(step);
        if (left > 1)
            json_object_set_new(step, "times", json_integer(left - 1));
        else if (left >= 0)
            json_array_remove(steps, i);
        return step;
    }
    return NULL;
}

static void act(const json_t *step, const char *moment)
{
    if (str_eq(json_string_value(json_object_get(step, "kill")), moment))
        kill((pid_t)json_integer_value(json_object_get(step, "kill_pid")), SIGKILL);
    if (str_eq(json_string_value(json_object_get(step, "die")), moment))
        _exit(3);
}

json_t *fake_begin(struct fake *fake, const struct csi_method *method, const char *subject, json_t *details)
{
    json_t *call = json_pack("{s:s, s:s, s:f, s:o}", "method", method->name, "subject", subject, "time",
                             (double)clock_wall(clock_real()) / 1e9, "details", details ? details : json_object());
    pthread_mutex_lock(&fake->lock);
    json_t *step = take_step(json_object_get(fake->steps, method->name), subject, json_object_get(call, "details"));
    if (step != NULL && json_object_get(step, "code") != NULL)
        json_object_set(call, "code", json_object_get(step, "code"));
    json_array_append_new(fake->calls, call);
    pthread_mutex_unlock(&fake->lock);
    if (step != NULL)
        act(step, "before");
    return step;
}

bool fake_does_work(const json_t *step)
{
    const json_t *effect = json_object_get(step, "effect");
    return effect != NULL ? json_is_true(effect) : json_integer_value(json_object_get(step, "code")) == 0;
}

int fake_end(struct fake *fake, const json_t *step, struct csi_call *call, struct err *err)
{
    (void)fake;
    if (step == NULL)
        return 0;
    act(step, "after");
    int64_t delay = json_integer_value(json_object_get(step, "delay_ms"));
    if (delay > 0)
        stop_sleep(csi_call_stop(call), clock_real(), delay * CLOCK_MS);
    int code = (int)json_integer_value(json_object_get(step, "code"));
    if (code == 0)
        return 0;
    const char *message = json_string_value(json_object_get(step, "message"));
    return csi_fail(err, code, "%s", message != NULL ? message : "told to fail");
}

int fake_load(struct fake *fake, struct err *err)
{
    json_error_t where;
    fake->volumes =
        access(fake->options->state, F_OK) == 0 ? json_load_file(fake->options->state, 0, &where) : json_object();
    if (!json_is_object(fake->volumes))
        return err_set(err, ERR_INVALID, "%s: not a file of volumes", fake->options->state);
    return 0;
}

void fake_save(struct fake *fake)
{
    auto_free char *temporary = mem_printf("%s.new", fake->options->state);
    if (json_dump_file(fake->volumes, temporary, JSON_SORT_KEYS | JSON_INDENT(1)) != 0 ||
        rename(temporary, fake->options->state) != 0)
        abort(); /* a test driver that loses its records would make every test lie */
}
