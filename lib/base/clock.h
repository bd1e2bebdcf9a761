/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time and randomness come through here, so that tests drive them: nothing else calls clock_gettime, sleeps or draws
 * random numbers. All times are nanoseconds (int64_t). Monotonic times are for deadlines, wall times for what users
 * see.
 */
#ifndef BERTH_BASE_CLOCK_H
#define BERTH_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define CLOCK_MS ((int64_t)1000000)
#define CLOCK_SECOND ((int64_t)1000000000)
#define CLOCK_NEVER INT64_MAX

struct clock; /* thread-safe */

struct clock *clock_real(void); /* shared, never freed */

/* A clock that moves only when told to; waits on it end when it is advanced past their deadline or when they are
 * signalled. Starts at mono 1 s and the given wall time. */
struct clock *clock_fake_new(int64_t wall_ns);
void clock_fake_advance(struct clock *clock, int64_t ns);
/* Waits (real time, at most 10 s) until `waiters` threads wait on this clock with a deadline; false on time-out. */
bool clock_fake_wait_for_waiters(struct clock *clock, int waiters);
void clock_free(struct clock *clock); /* fake ones only; NULL and the real one are ignored */

int64_t clock_mono(struct clock *clock);
int64_t clock_wall(struct clock *clock);

/* A condition variable that may be used with clock_cond_wait: must be initialised by this. */
void clock_cond_init(pthread_cond_t *cond);
/* Waits for `cond` (mutex held) until `deadline` of the monotonic time; CLOCK_NEVER waits without limit.
 * False when the deadline passed. As always with condition variables: check the condition again. */
bool clock_cond_wait(struct clock *clock, pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline);

/* RFC 3339 as Kubernetes writes it: "2006-01-02T15:04:05Z", micro: "2006-01-02T15:04:05.000000Z". */
#define CLOCK_TEXT_SIZE 40
char *clock_format_rfc3339(int64_t wall_ns, bool micro, char buffer[CLOCK_TEXT_SIZE]);
bool clock_parse_rfc3339(const char *text, int64_t *wall_ns);
/* Durations in Go's syntax: "15s", "1h30m", "500ms", "0". Negative ones are accepted by the parser. */
bool clock_parse_duration(const char *text, int64_t *ns);
char *clock_format_duration(int64_t ns, char buffer[CLOCK_TEXT_SIZE]);

/* Random numbers. The real source is the kernel's; a seeded one repeats the same series. Thread-safe. */
struct rng;
struct rng *rng_real(void); /* shared, never freed */
struct rng *rng_seeded_new(uint64_t seed);
void rng_free(struct rng *rng); /* seeded ones; NULL and the real one are ignored */
uint64_t rng_u64(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t limit);            /* 0 … limit-1, uniform */
double rng_unit(struct rng *rng);                               /* [0, 1) */
int64_t rng_jitter(struct rng *rng, int64_t ns, double factor); /* ns … ns * (1 + factor) */
#define RNG_UUID_SIZE 37
char *rng_uuid(struct rng *rng, char buffer[RNG_UUID_SIZE]); /* version 4, lower case */

#endif
