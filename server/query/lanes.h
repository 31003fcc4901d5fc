/* SPDX-License-Identifier: Apache-2.0 */
/* What each thread did in each part of a range: it ran, or waited for something. */
#pragma once

#include "abi/vocab.h"
#include "server/query/query.h"

struct query_lane {
	char *service, *thread, *id, *process; /* owned; "" is unknown */
	s64 sums[WAIT_N];		       /* in the range; by enum wait */
	s64 *columns[WAIT_N];		       /* owned; NULL: nothing of it */
	/* The end of the last wait that goes on in the column, ms since the epoch; 0: none. Owned. */
	u64 *until;
	bool used; /* it has samples */
};

struct query_lanes {
	vec(struct query_lane) lanes; /* who waited longest first, without waits for work */
	size_t n_threads;	      /* how many there are */
	size_t n_found;		      /* and with the text in their names */
	u64 column_ms;
	size_t n_columns;
	bool damaged;
	u32 limited; /* of enum profile_limited */
};

/*
 * A lane for each thread, which is a series' service.name, thread.name and thread.id; of a sum of
 * two types, both (struct query.also). Threads of one name without ids are one lane, which is that
 * of the thread with an id if only one has the name. A wait is stored with the time at which it ended: here it is
 * where it was, so the scan goes beyond the range for waits that end later. `find`: a text in a
 * name or id of the thread or its service, NULL = any. At most `max` lanes.
 */
int query_lanes(struct store *s, const struct query *q, u64 column_ms, const char *find, size_t max,
		struct query_lanes *ret, struct diag *reterr_diag);
void query_lanes_deinit(struct query_lanes *l);
