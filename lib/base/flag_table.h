/* SPDX-License-Identifier: Apache-2.0 */
/* What the parser and the help of flag.h share; nothing else includes it. */
#ifndef BERTH_BASE_FLAG_TABLE_H
#define BERTH_BASE_FLAG_TABLE_H

#include "lib/base/flag.h"

/* The flags that every program has besides its own: --help, --help-markdown, --version. */
extern const struct flag flag_builtins[];
extern const size_t flag_builtin_count;

/* Equal but for '_' and '-'. The first name has `len` characters. */
bool flag_name_is(const char *name, size_t len, const char *other);
/* The known name, not hidden, that is most like `name`; NULL when none is near. Borrowed from the table. */
const char *flag_nearest(const struct flag_program *program, const char *name);
/* Whether it takes no separate value on the command line. */
bool flag_stands_alone(const struct flag *flag);

#endif
