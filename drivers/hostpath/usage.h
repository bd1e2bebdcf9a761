/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the host's disk a volume takes. Images tell by one look; trees are counted, and the count is kept for a
 * while. */
#ifndef BERTH_HOSTPATH_USAGE_H
#define BERTH_HOSTPATH_USAGE_H

#include "drivers/hostpath/driver.h"

#define USAGE_FRESH (30 * CLOCK_SECOND)  /* for what a user looks at */
#define USAGE_ROUGH (300 * CLOCK_SECOND) /* for sums over all volumes */

struct usage_cache;
struct usage_cache *usage_cache_new(void);
void usage_cache_free(struct usage_cache *cache);
void usage_forget(struct usage_cache *cache, const char *id);
void usage_note(struct usage_cache *cache, const char *id, int64_t bytes, int64_t inodes, int64_t now);

/* Of a volume whose contents are a directory: as counted at most max_age ago, or counted now, for 3 s at most; then an
 * older count is better than none, and without one it is ERR_TIMEOUT. */
int usage_of_tree(struct hostpath *driver, const struct volume *volume, int64_t max_age, int64_t *bytes,
                  int64_t *inodes, struct err *err);
/* Bytes on the host's disk of any volume; 0 when that cannot be told in time (`deadline`, monotonic). */
int64_t usage_on_disk(struct hostpath *driver, const struct volume *volume, int64_t deadline);

#endif
