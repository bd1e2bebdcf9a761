/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   add ─────────────────────────────► ready (list, first in first out) ──get──► running ──done──► gone
 *   add_after ──► delayed (heap by time) ──┘ when due          ▲                    │ added again meanwhile
 *                                                              └────────────────────┘
 *
 * One `struct item` per key holds all of this; it goes away when it is nowhere and has no failures to remember. No
 * thread waits for the delayed ones: one of the idle workers ("the timer") waits with the earliest deadline, the others
 * without any. Whoever takes a key hands the timer's role to the next idle worker, so an event never wakes a herd.
 */
#include "lib/kube/queue.h"

#include "lib/base/map.h"
#include "lib/base/mem.h"
#include "lib/base/stop.h"
#include "lib/base/str.h"

#include <stddef.h>

#define DEFAULT_BASE_DELAY (5 * CLOCK_MS)
#define DEFAULT_MAX_DELAY (1000 * CLOCK_SECOND)
#define NOT_DELAYED SIZE_MAX

struct item {
    struct item *next; /* in the ready or in the running list */
    int64_t due;       /* while delayed */
    int64_t added;     /* when it became dirty */
    int64_t started;   /* while running */
    size_t heap_at;    /* NOT_DELAYED or its place in the heap */
    uint32_t failures; /* in a row, saturating */
    bool dirty;        /* somebody wants it worked on: in the ready list, or will be once it is done */
    bool running;      /* a worker has it */
    char key[];        /* what workers get */
};

struct item_list {
    struct item *first, *last;
};

struct kube_queue {
    struct clock *clock;
    struct kube_queue_observer observer;
    int64_t base_delay, max_delay;

    pthread_mutex_t lock;
    pthread_cond_t idle;  /* workers that wait for any key */
    pthread_cond_t timer; /* the one that also waits for the earliest delayed key */
    size_t idle_count;
    bool has_timer;
    bool shut_down;

    struct map *items;
    struct item_list ready, running;
    size_t ready_len;
    struct item **heap;
    size_t heap_len, heap_cap;

    double bucket_qps, bucket_burst, bucket_tokens;
    int64_t bucket_time;
};

/* ---- the heap of delayed items, earliest first ---- */

static void heap_place(struct kube_queue *queue, struct item *item, size_t at)
{
    queue->heap[at] = item;
    item->heap_at = at;
}

static void heap_up(struct kube_queue *queue, struct item *item, size_t at)
{
    while (at > 0 && queue->heap[(at - 1) / 2]->due > item->due) {
        heap_place(queue, queue->heap[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    heap_place(queue, item, at);
}

static void heap_down(struct kube_queue *queue, struct item *item, size_t at)
{
    for (size_t child = 2 * at + 1; child < queue->heap_len; child = 2 * at + 1) {
        if (child + 1 < queue->heap_len && queue->heap[child + 1]->due < queue->heap[child]->due)
            child++;
        if (queue->heap[child]->due >= item->due)
            break;
        heap_place(queue, queue->heap[child], at);
        at = child;
    }
    heap_place(queue, item, at);
}

static void heap_add(struct kube_queue *queue, struct item *item)
{
    if (queue->heap_len == queue->heap_cap) {
        queue->heap_cap = queue->heap_cap == 0 ? 16 : queue->heap_cap * 2;
        queue->heap = mem_realloc_array(queue->heap, queue->heap_cap, sizeof(struct item *));
    }
    queue->heap_len++;
    heap_up(queue, item, queue->heap_len - 1);
}

static struct item *heap_take_first(struct kube_queue *queue)
{
    struct item *first = queue->heap[0];
    struct item *last = queue->heap[--queue->heap_len];
    if (queue->heap_len > 0)
        heap_down(queue, last, 0);
    first->heap_at = NOT_DELAYED;
    return first;
}

/* ---- items ---- */

static void list_append(struct item_list *list, struct item *item)
{
    item->next = NULL;
    if (list->last != NULL)
        list->last->next = item;
    else
        list->first = item;
    list->last = item;
}

static struct item *list_take_first(struct item_list *list)
{
    struct item *item = list->first;
    list->first = item->next;
    if (list->first == NULL)
        list->last = NULL;
    return item;
}

/* The running list is as long as there are workers. */
static void list_remove(struct item_list *list, const struct item *item)
{
    struct item *before = NULL;
    for (struct item **at = &list->first; *at != NULL; at = &(*at)->next) {
        if (*at == item) {
            *at = item->next;
            if (list->last == item)
                list->last = before;
            return;
        }
        before = *at;
    }
}

static struct item *item_get(struct kube_queue *queue, const char *key)
{
    struct item *item = map_get(queue->items, key);
    if (item != NULL)
        return item;
    size_t len = strlen(key) + 1;
    item = mem_calloc(1, sizeof(struct item) + len);
    memcpy(item->key, key, len);
    item->heap_at = NOT_DELAYED;
    map_set(queue->items, key, item);
    return item;
}

static void item_drop_if_unused(struct kube_queue *queue, const struct item *item)
{
    if (!item->dirty && !item->running && item->heap_at == NOT_DELAYED && item->failures == 0)
        map_remove(queue->items, item->key);
}

static void observe_depth(const struct kube_queue *queue)
{
    if (queue->observer.depth != NULL)
        queue->observer.depth(queue->observer.arg, queue->ready_len);
}

static void observe_seconds(const struct kube_queue *queue, void (*observe)(void *arg, double seconds), int64_t ns)
{
    if (observe != NULL)
        observe(queue->observer.arg, (double)ns / (double)CLOCK_SECOND);
}

static void make_ready(struct kube_queue *queue, struct item *item)
{
    list_append(&queue->ready, item);
    queue->ready_len++;
    observe_depth(queue);
}

static void make_dirty(struct kube_queue *queue, struct item *item)
{
    if (item->dirty)
        return;
    item->dirty = true;
    item->added = clock_mono(queue->clock);
    if (queue->observer.added != NULL)
        queue->observer.added(queue->observer.arg);
    if (!item->running)
        make_ready(queue, item);
}

static void promote_due(struct kube_queue *queue)
{
    if (queue->heap_len == 0)
        return;
    int64_t now = clock_mono(queue->clock);
    while (queue->heap_len > 0 && queue->heap[0]->due <= now)
        make_dirty(queue, heap_take_first(queue));
}

static void wake_one(struct kube_queue *queue)
{
    if (queue->idle_count > 0)
        pthread_cond_signal(&queue->idle);
    else if (queue->has_timer)
        pthread_cond_signal(&queue->timer);
}

/* The earliest deadline changed: whoever waits for it has to look again. */
static void wake_timer(struct kube_queue *queue)
{
    if (queue->has_timer)
        pthread_cond_signal(&queue->timer);
    else if (queue->idle_count > 0)
        pthread_cond_signal(&queue->idle);
}

/* ---- delays ---- */

static int64_t delay_of_failures(const struct kube_queue *queue, uint32_t failures)
{
    if (failures >= 62 || queue->base_delay > queue->max_delay >> failures)
        return queue->max_delay;
    return queue->base_delay << failures;
}

/* Takes a token, on credit if need be, and tells when the credit is paid back: everybody queues up behind it. */
static int64_t delay_of_bucket(struct kube_queue *queue, int64_t now)
{
    if (queue->bucket_qps <= 0)
        return 0;
    double elapsed = (double)(now - queue->bucket_time) / (double)CLOCK_SECOND;
    queue->bucket_time = now;
    queue->bucket_tokens += elapsed * queue->bucket_qps;
    if (queue->bucket_tokens > queue->bucket_burst)
        queue->bucket_tokens = queue->bucket_burst;
    queue->bucket_tokens -= 1;
    if (queue->bucket_tokens >= 0)
        return 0;
    double seconds = -queue->bucket_tokens / queue->bucket_qps;
    double limit = (double)(CLOCK_NEVER / CLOCK_SECOND / 4);
    return seconds < limit ? (int64_t)(seconds * (double)CLOCK_SECOND) : CLOCK_NEVER / 4;
}

static void delay_item(struct kube_queue *queue, struct item *item, int64_t now, int64_t delay)
{
    if (queue->observer.retried != NULL)
        queue->observer.retried(queue->observer.arg);
    if (delay <= 0) {
        make_dirty(queue, item);
        wake_one(queue);
        return;
    }
    int64_t due = delay < CLOCK_NEVER - now ? now + delay : CLOCK_NEVER - 1;
    if (item->heap_at == NOT_DELAYED) {
        item->due = due;
        heap_add(queue, item);
    } else if (due < item->due) {
        item->due = due;
        heap_up(queue, item, item->heap_at);
    } else {
        return;
    }
    if (item->heap_at == 0)
        wake_timer(queue);
}

/* ---- the public functions ---- */

struct kube_queue *kube_queue_new(const struct kube_queue_options *options)
{
    struct kube_queue *queue = mem_new(struct kube_queue);
    queue->clock = options->clock != NULL ? options->clock : clock_real();
    queue->observer = options->observer;
    queue->base_delay = options->base_delay > 0 ? options->base_delay : DEFAULT_BASE_DELAY;
    queue->max_delay = options->max_delay > 0 ? options->max_delay : DEFAULT_MAX_DELAY;
    queue->bucket_qps = options->bucket_qps;
    queue->bucket_burst = options->bucket_burst > 0 ? (double)options->bucket_burst : 1;
    queue->bucket_tokens = queue->bucket_burst;
    queue->bucket_time = clock_mono(queue->clock);
    queue->items = map_new(free);
    pthread_mutex_init(&queue->lock, NULL);
    clock_cond_init(&queue->idle);
    clock_cond_init(&queue->timer);
    return queue;
}

void kube_queue_free(struct kube_queue *queue)
{
    if (queue == NULL)
        return;
    map_free(queue->items);
    free(queue->heap);
    pthread_cond_destroy(&queue->idle);
    pthread_cond_destroy(&queue->timer);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

void kube_queue_add(struct kube_queue *queue, const char *key)
{
    pthread_mutex_lock(&queue->lock);
    if (!queue->shut_down) {
        make_dirty(queue, item_get(queue, key));
        wake_one(queue);
    }
    pthread_mutex_unlock(&queue->lock);
}

void kube_queue_add_after(struct kube_queue *queue, const char *key, int64_t delay)
{
    pthread_mutex_lock(&queue->lock);
    if (!queue->shut_down)
        delay_item(queue, item_get(queue, key), clock_mono(queue->clock), delay);
    pthread_mutex_unlock(&queue->lock);
}

void kube_queue_add_limited(struct kube_queue *queue, const char *key)
{
    pthread_mutex_lock(&queue->lock);
    if (!queue->shut_down) {
        struct item *item = item_get(queue, key);
        int64_t now = clock_mono(queue->clock);
        int64_t by_item = delay_of_failures(queue, item->failures);
        int64_t by_bucket = delay_of_bucket(queue, now);
        if (item->failures < UINT32_MAX)
            item->failures++;
        delay_item(queue, item, now, by_item > by_bucket ? by_item : by_bucket);
    }
    pthread_mutex_unlock(&queue->lock);
}

void kube_queue_forget(struct kube_queue *queue, const char *key)
{
    pthread_mutex_lock(&queue->lock);
    struct item *item = map_get(queue->items, key);
    if (item != NULL) {
        item->failures = 0;
        item_drop_if_unused(queue, item);
    }
    pthread_mutex_unlock(&queue->lock);
}

size_t kube_queue_failures(struct kube_queue *queue, const char *key)
{
    pthread_mutex_lock(&queue->lock);
    const struct item *item = map_get(queue->items, key);
    size_t failures = item != NULL ? item->failures : 0;
    pthread_mutex_unlock(&queue->lock);
    return failures;
}

/* Until there is a ready key or the queue is shut down. */
static void wait_for_key(struct kube_queue *queue)
{
    for (;;) {
        if (queue->shut_down)
            return;
        promote_due(queue);
        if (queue->ready.first != NULL)
            return;
        if (queue->heap_len > 0 && !queue->has_timer) {
            queue->has_timer = true;
            clock_cond_wait(queue->clock, &queue->timer, &queue->lock, queue->heap[0]->due);
            queue->has_timer = false;
        } else {
            queue->idle_count++;
            clock_cond_wait(queue->clock, &queue->idle, &queue->lock, CLOCK_NEVER);
            queue->idle_count--;
        }
    }
}

char *kube_queue_get(struct kube_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    wait_for_key(queue);
    if (queue->shut_down) {
        pthread_mutex_unlock(&queue->lock);
        return NULL;
    }
    struct item *item = list_take_first(&queue->ready);
    queue->ready_len--;
    item->dirty = false;
    item->running = true;
    item->started = clock_mono(queue->clock);
    list_append(&queue->running, item);
    observe_depth(queue);
    observe_seconds(queue, queue->observer.waited, item->started - item->added);
    /* pass on what is left: further ready keys, or the timer's role */
    if (queue->ready.first != NULL)
        wake_one(queue);
    else if (queue->heap_len > 0 && !queue->has_timer && queue->idle_count > 0)
        pthread_cond_signal(&queue->idle);
    pthread_mutex_unlock(&queue->lock);
    return item->key;
}

void kube_queue_done(struct kube_queue *queue, char *key)
{
    if (key == NULL)
        return;
    pthread_mutex_lock(&queue->lock);
    /* what kube_queue_get returned is the item's own copy, which stays until here */
    struct item *item = (struct item *)(void *)(key - offsetof(struct item, key));
    list_remove(&queue->running, item);
    item->running = false;
    observe_seconds(queue, queue->observer.worked, clock_mono(queue->clock) - item->started);
    if (item->dirty) {
        make_ready(queue, item);
        wake_one(queue);
    } else {
        item_drop_if_unused(queue, item);
    }
    pthread_mutex_unlock(&queue->lock);
}

size_t kube_queue_len(struct kube_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    promote_due(queue);
    size_t len = queue->ready_len;
    pthread_mutex_unlock(&queue->lock);
    return len;
}

void kube_queue_running(struct kube_queue *queue, double *unfinished_seconds, double *longest_seconds)
{
    *unfinished_seconds = 0;
    *longest_seconds = 0;
    pthread_mutex_lock(&queue->lock);
    int64_t now = clock_mono(queue->clock);
    for (const struct item *item = queue->running.first; item != NULL; item = item->next) {
        double seconds = (double)(now - item->started) / (double)CLOCK_SECOND;
        *unfinished_seconds += seconds;
        if (seconds > *longest_seconds)
            *longest_seconds = seconds;
    }
    pthread_mutex_unlock(&queue->lock);
}

void kube_queue_shut_down(struct kube_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->shut_down = true;
    pthread_cond_broadcast(&queue->idle);
    pthread_cond_broadcast(&queue->timer);
    pthread_mutex_unlock(&queue->lock);
}
