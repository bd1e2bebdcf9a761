/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics ──► map: family name ──► struct family ──► map: label values, joined ──► struct sample
 *
 * One lock for all: a record is two hash look-ups and an addition, and samples are few.
 */
#include "lib/observe/metrics.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"

#include <pthread.h>
#include <stdio.h>

/* Ends each label value in a key: no part of valid UTF-8, so no two lists of values give the same key. */
#define VALUE_END '\xff'

struct sample {
    struct strv values; /* one for each label of the family */
    double value;       /* the sum of a histogram */
    uint64_t count;     /* of a histogram */
    uint64_t buckets[]; /* not cumulated */
};

struct family {
    const struct metric_family *definition;
    struct map *samples;
};

struct collector {
    void (*collect)(struct metrics *metrics, void *arg);
    void *arg;
};

struct metrics {
    pthread_mutex_t lock;
    struct map *families;
    struct collector *collectors;
    size_t collector_count;
};

const double metric_buckets_default[METRIC_BUCKETS_DEFAULT_COUNT] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                                     0.5,   1,    2.5,   5,    10};
const double metric_buckets_operation[METRIC_BUCKETS_OPERATION_COUNT] = {0.1, 0.25, 0.5, 1,   2.5, 5,  10,
                                                                         15,  25,   50,  120, 300, 600};
/* Upstream multiplies by 10 step by step; bounds are compared as text, so the errors of that are part of the format. */
const double metric_buckets_queue[METRIC_BUCKETS_QUEUE_COUNT] = {
    1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1, 10};

static void free_sample(void *value)
{
    struct sample *sample = value;
    strv_free(&sample->values);
    free(sample);
}

static void free_family(void *value)
{
    struct family *family = value;
    map_free(family->samples);
    free(family);
}

struct metrics *metrics_new(void)
{
    struct metrics *metrics = mem_new(struct metrics);
    pthread_mutex_init(&metrics->lock, NULL);
    metrics->families = map_new(free_family);
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    if (metrics == NULL)
        return;
    map_free(metrics->families);
    free(metrics->collectors);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

static _Noreturn void programming_error(const struct metric_family *family, const char *what)
{
    fprintf(stderr, "metric %s %s\n", family->name, what);
    abort();
}

static struct family *add_family(struct metrics *metrics, const struct metric_family *definition)
{
    struct family *family = mem_new(struct family);
    family->definition = definition;
    family->samples = map_new(free_sample);
    map_set(metrics->families, definition->name, family);
    return family;
}

static struct family *find_family(struct metrics *metrics, const struct metric_family *definition)
{
    struct family *family = map_get(metrics->families, definition->name);
    if (family != NULL && family->definition != definition)
        programming_error(definition, "has two definitions");
    return family != NULL ? family : add_family(metrics, definition);
}

void metrics_register(struct metrics *metrics, const struct metric_family *family)
{
    pthread_mutex_lock(&metrics->lock);
    if (map_has(metrics->families, family->name))
        programming_error(family, "is registered twice");
    add_family(metrics, family);
    pthread_mutex_unlock(&metrics->lock);
}

static const char *label_value(const char *const *labels, size_t i)
{
    return labels != NULL && labels[i] != NULL ? labels[i] : "";
}

static void add_key(struct str *key, const struct metric_family *definition, const char *const *labels)
{
    str_add(key, "");
    for (size_t i = 0; definition->labels[i] != NULL; i++) {
        str_add(key, label_value(labels, i));
        str_add_char(key, VALUE_END);
    }
}

static struct sample *find_sample(const struct family *family, const char *const *labels)
{
    auto_str struct str key = {0};
    add_key(&key, family->definition, labels);
    struct sample *sample = map_get(family->samples, str_text(&key));
    if (sample != NULL)
        return sample;
    sample = mem_calloc(1, sizeof(*sample) + (family->definition->bucket_count + 1) * sizeof(sample->buckets[0]));
    for (size_t i = 0; family->definition->labels[i] != NULL; i++)
        strv_add(&sample->values, label_value(labels, i));
    map_set(family->samples, str_text(&key), sample);
    return sample;
}

/* The locked sample of a family that must not be (or must be, when `histogram`) a histogram. */
static struct sample *begin(struct metrics *metrics, const struct metric_family *definition, bool histogram,
                            const char *const *labels)
{
    if ((definition->type == METRIC_HISTOGRAM) != histogram)
        programming_error(definition, histogram ? "is no histogram" : "is a histogram");
    pthread_mutex_lock(&metrics->lock);
    return find_sample(find_family(metrics, definition), labels);
}

void metric_add(struct metrics *metrics, const struct metric_family *family, double delta, const char *const *labels)
{
    if (family->type == METRIC_COUNTER && !(delta >= 0))
        programming_error(family, "is a counter and cannot go down");
    begin(metrics, family, false, labels)->value += delta;
    pthread_mutex_unlock(&metrics->lock);
}

void metric_set(struct metrics *metrics, const struct metric_family *family, double value, const char *const *labels)
{
    begin(metrics, family, false, labels)->value = value;
    pthread_mutex_unlock(&metrics->lock);
}

void metric_observe(struct metrics *metrics, const struct metric_family *family, double value,
                    const char *const *labels)
{
    struct sample *sample = begin(metrics, family, true, labels);
    size_t bucket = 0;
    while (bucket < family->bucket_count && !(value <= family->buckets[bucket]))
        bucket++;
    sample->buckets[bucket]++;
    sample->count++;
    sample->value += value;
    pthread_mutex_unlock(&metrics->lock);
}

void metric_touch(struct metrics *metrics, const struct metric_family *family, const char *const *labels)
{
    begin(metrics, family, family->type == METRIC_HISTOGRAM, labels);
    pthread_mutex_unlock(&metrics->lock);
}

double metric_value(struct metrics *metrics, const struct metric_family *family, const char *const *labels)
{
    auto_str struct str key = {0};
    add_key(&key, family, labels);
    pthread_mutex_lock(&metrics->lock);
    const struct family *known = map_get(metrics->families, family->name);
    const struct sample *sample = known != NULL ? map_get(known->samples, str_text(&key)) : NULL;
    double value = 0;
    if (sample != NULL)
        value = family->type == METRIC_HISTOGRAM ? (double)sample->count : sample->value;
    pthread_mutex_unlock(&metrics->lock);
    return value;
}

void metric_clear(struct metrics *metrics, const struct metric_family *family)
{
    pthread_mutex_lock(&metrics->lock);
    struct family *known = map_get(metrics->families, family->name);
    if (known != NULL)
        map_clear(known->samples);
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_on_scrape(struct metrics *metrics, void (*collect)(struct metrics *metrics, void *arg), void *arg)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->collectors =
        mem_realloc_array(metrics->collectors, metrics->collector_count + 1, sizeof(*metrics->collectors));
    metrics->collectors[metrics->collector_count++] = (struct collector){.collect = collect, .arg = arg};
    pthread_mutex_unlock(&metrics->lock);
}

/* ---- the text form ---- */

/* Escapes backslash and newline, and the quote in label values. What is no UTF-8 would make the whole scrape fail. */
static void add_escaped(struct str *out, const char *text, bool quote)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len;) {
        size_t sequence = str_utf8_sequence(text + i, len - i);
        if (sequence == 0)
            str_add(out, "\xef\xbf\xbd");
        else if (text[i] == '\n')
            str_add(out, "\\n");
        else if (text[i] == '\\' || (quote && text[i] == '"'))
            str_addf(out, "\\%c", text[i]);
        else
            str_add_len(out, text + i, sequence);
        i += sequence > 0 ? sequence : 1;
    }
}

/* name<suffix>{labels,le="…"} and a space; `le` is the bound of a bucket or NULL. */
static void add_series(struct str *out, const struct metric_family *definition, const struct sample *sample,
                       const char *suffix, const double *le)
{
    str_addf(out, "%s%s", definition->name, suffix);
    char separator = '{';
    for (size_t i = 0; i < sample->values.len; i++) {
        str_addf(out, "%c%s=\"", separator, definition->labels[i]);
        add_escaped(out, sample->values.items[i], true);
        str_add_char(out, '"');
        separator = ',';
    }
    if (le != NULL) {
        str_addf(out, "%cle=\"", separator);
        str_add_double(out, *le);
        str_add_char(out, '"');
        separator = ',';
    }
    str_add(out, separator == ',' ? "} " : " ");
}

static void add_sample(struct str *out, const struct metric_family *definition, const struct sample *sample)
{
    if (definition->type != METRIC_HISTOGRAM) {
        add_series(out, definition, sample, "", NULL);
        str_add_double(out, sample->value);
        str_add_char(out, '\n');
        return;
    }
    uint64_t cumulated = 0;
    for (size_t i = 0; i <= definition->bucket_count; i++) {
        double le = i < definition->bucket_count ? definition->buckets[i] : __builtin_inf();
        cumulated += sample->buckets[i];
        add_series(out, definition, sample, "_bucket", &le);
        str_addf(out, "%llu\n", (unsigned long long)cumulated);
    }
    add_series(out, definition, sample, "_sum", NULL);
    str_add_double(out, sample->value);
    str_add_char(out, '\n');
    add_series(out, definition, sample, "_count", NULL);
    str_addf(out, "%llu\n", (unsigned long long)sample->count);
}

static int compare_samples(const void *a, const void *b)
{
    const struct strv *left = &(*(struct sample *const *)a)->values;
    const struct strv *right = &(*(struct sample *const *)b)->values;
    int order = 0;
    for (size_t i = 0; i < left->len && order == 0; i++)
        order = strcmp(left->items[i], right->items[i]);
    return order;
}

static void add_samples(struct str *out, const struct family *family)
{
    size_t count = 0;
    auto_free const struct sample **samples = mem_calloc(map_len(family->samples), sizeof(void *));
    for (struct map_iter it = {0}; map_next(family->samples, &it);)
        samples[count++] = it.value;
    qsort((void *)samples, count, sizeof(void *), compare_samples);
    for (size_t i = 0; i < count; i++)
        add_sample(out, family->definition, samples[i]);
}

static void add_family_text(struct str *out, const struct family *family)
{
    static const char *const types[] = {
        [METRIC_COUNTER] = "counter",
        [METRIC_GAUGE] = "gauge",
        [METRIC_HISTOGRAM] = "histogram",
    };
    const struct metric_family *definition = family->definition;
    str_addf(out, "# HELP %s ", definition->name);
    add_escaped(out, definition->help, false);
    str_addf(out, "\n# TYPE %s %s\n", definition->name, types[definition->type]);
    add_samples(out, family);
}

static void collect(struct metrics *metrics)
{
    /* without the lock: they record. None is ever removed, so an index is all that has to be kept. */
    for (size_t i = 0;; i++) {
        pthread_mutex_lock(&metrics->lock);
        struct collector collector = {0};
        if (i < metrics->collector_count)
            collector = metrics->collectors[i];
        pthread_mutex_unlock(&metrics->lock);
        if (collector.collect == NULL)
            return;
        collector.collect(metrics, collector.arg);
    }
}

void metrics_write(struct metrics *metrics, struct str *out)
{
    collect(metrics);
    pthread_mutex_lock(&metrics->lock);
    auto_strv struct strv names = {0};
    for (struct map_iter it = {0}; map_next(metrics->families, &it);)
        strv_add(&names, it.key);
    strv_sort(&names);
    for (size_t i = 0; i < names.len; i++) {
        const struct family *family = map_get(metrics->families, names.items[i]);
        if (map_len(family->samples) > 0)
            add_family_text(out, family);
    }
    pthread_mutex_unlock(&metrics->lock);
}
