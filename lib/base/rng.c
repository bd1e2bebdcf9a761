/* SPDX-License-Identifier: Apache-2.0 */
/* The random numbers of clock.h. */
#include "lib/base/clock.h"
#include "lib/base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/random.h>

struct rng {
    bool seeded;
    _Atomic uint64_t state;
};

struct rng *rng_real(void)
{
    static struct rng real;
    return &real;
}

struct rng *rng_seeded_new(uint64_t seed)
{
    struct rng *rng = mem_new(struct rng);
    rng->seeded = true;
    atomic_init(&rng->state, seed);
    return rng;
}

void rng_free(struct rng *rng)
{
    if (rng != NULL && rng->seeded)
        free(rng);
}

uint64_t rng_u64(struct rng *rng)
{
    uint64_t value = 0;
    if (!rng->seeded) {
        while (getrandom(&value, sizeof(value), 0) != (ssize_t)sizeof(value)) {
            if (errno != EINTR)
                abort(); /* no kernel we run on lacks it, and predictable names would be worse than none */
        }
        return value;
    }
    /* splitmix64: its state is a counter, so one atomic addition makes it thread-safe */
    const uint64_t step = 0x9e3779b97f4a7c15ULL;
    value = atomic_fetch_add(&rng->state, step) + step;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

uint64_t rng_below(struct rng *rng, uint64_t limit)
{
    if (limit < 2)
        return 0;
    /* values below 2^64 mod limit would make the small results likelier: drawn again */
    uint64_t skip = (UINT64_MAX % limit + 1) % limit;
    uint64_t value = rng_u64(rng);
    while (value < skip)
        value = rng_u64(rng);
    return value % limit;
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_u64(rng) >> 11) * 0x1p-53;
}

int64_t rng_jitter(struct rng *rng, int64_t ns, double factor)
{
    if (factor <= 0)
        return ns;
    double more = (double)ns * factor * rng_unit(rng);
    /* (double)INT64_MAX rounds up to 2^63, so the sum is compared with >= */
    if ((double)ns + more >= (double)INT64_MAX)
        return INT64_MAX;
    return ns + (int64_t)more;
}

char *rng_uuid(struct rng *rng, char buffer[RNG_UUID_SIZE])
{
    uint64_t high = (rng_u64(rng) & ~0xf000ULL) | 0x4000ULL;
    uint64_t low = (rng_u64(rng) & ~(3ULL << 62)) | (2ULL << 62);
    snprintf(buffer, RNG_UUID_SIZE, "%08x-%04x-%04x-%04x-%04x%08x", (unsigned)(high >> 32),
             (unsigned)(high >> 16) & 0xffffU, (unsigned)high & 0xffffU, (unsigned)(low >> 48),
             (unsigned)(low >> 32) & 0xffffU, (unsigned)(low & 0xffffffffU));
    return buffer;
}
