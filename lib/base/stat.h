/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of what a module counts: which u64 of its struct of statistics is called what, so that
 * one loop prints the counters of all modules.
 *
 *	const struct stat_field foo_stat_fields[] = {
 *		STAT_COUNTER(struct foo_stats, opened, "Files opened."),
 *		STAT_GAUGE(struct foo_stats, open, "Files open now."),
 *		{},
 *	};
 */
#pragma once

#include <stddef.h>
#include <string.h>

#include "base/types.h"

struct stat_field {
	const char *name; /* as the member; NULL: the end of the table */
	const char *help; /* one sentence */
	size_t offset;
	bool gauge; /* may become less */
};

#define STAT_COUNTER(type, member, help)                                                           \
	{                                                                                          \
#member, help, offsetof(type, member), false                                       \
	}
#define STAT_GAUGE(type, member, help)                                                             \
	{                                                                                          \
#member, help, offsetof(type, member), true                                        \
	}

static inline u64 stat_value(const struct stat_field *f, const void *stats)
{
	u64 v;

	memcpy(&v, (const char *)stats + f->offset, sizeof(v));
	return v;
}
