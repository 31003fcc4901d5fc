/* SPDX-License-Identifier: Apache-2.0 */
/* The maps of a script, read and emptied by user space. Functions return 0 or a negative errno. */
#pragma once

#include "base/vec.h"
#include "trace/trace.h"

/* As struct trace_entries has them. */
struct tracer_entries {
	vec(u8) keys, values;
	size_t n; /* of entries */
};

/* The map may change meanwhile: an entry that comes or goes may be missing or not. */
int tracer_entries_read(int fd, const struct trace_map *m, u32 cpus, struct tracer_entries *ret);
void tracer_entries_deinit(struct tracer_entries *e);
int tracer_map_clear(int fd, const struct trace_map *m, u32 cpus);
int tracer_map_zero(int fd, const struct trace_map *m, u32 cpus);
