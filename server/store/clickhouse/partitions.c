/* SPDX-License-Identifier: Apache-2.0 */
/* The states of partitions. clickhouse.h explains them; round.c and maintain.c change them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "server/store/clickhouse/clickhouse.h"

#define STATE_MS 30000ULL /* how long a copy of the table is used */

void ch_partitions_deinit(struct ch_partitions *p)
{
	vec_deinit(&p->list);
}

static int copy_partitions(const struct ch_partitions *from, struct ch_partitions *ret)
{
	struct ch_partitions copy = {};

	if (vec_reserve(&copy.list, from->list.n + 1) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < from->list.n; i++)
		copy.list.data[copy.list.n++] = from->list.data[i];
	*ret = copy;
	return 0;
}

int ch_read_partitions(const struct str *answer, struct ch_partitions *ret,
		       struct diag *reterr_diag)
{
	struct buf b = buf_of(str_get(answer), answer->n);

	while (buf_left(&b)) {
		struct ch_partition e;

		if (!buf_u32(&b, &e.day) || !buf_u32(&b, &e.resolution) || !buf_u32(&b, &e.run) ||
		    !buf_u8(&b, &e.state) || !buf_u64(&b, &e.at_ms))
			return ch_damaged_answer(reterr_diag);
		if (vec_push(&ret->list, e) < 0)
			return diag_set(reterr_diag, -ENOMEM, "out of memory");
	}
	return 0;
}

int ch_partitions_get(struct ch *s, bool fresh, struct ch_partitions *ret, struct diag *reterr_diag)
{
	u64 now = clock_ns(CLOCK_MONOTONIC) / 1000000;
	_cleanup_str_ struct str answer = {};
	struct ch_partitions p = {};
	int r = 0;

	pthread_mutex_lock(&s->state_lock);
	if (!fresh && s->partitions_ms &&
	    now - s->partitions_ms < MIN(s->config.grace_ms / 4, STATE_MS)) {
		r = copy_partitions(&s->partitions, ret);
		pthread_mutex_unlock(&s->state_lock);
		return r < 0 ? diag_set(reterr_diag, r, "out of memory") : 0;
	}
	pthread_mutex_unlock(&s->state_lock);
	r = ch_select(s,
		      "SELECT day, resolution, run, max(state), argMax(at_ms, state) FROM "
		      "partitions GROUP BY day, resolution, run ORDER BY day, resolution, run "
		      "FORMAT RowBinary",
		      &answer, reterr_diag);
	if (r == 0)
		r = ch_read_partitions(&answer, &p, reterr_diag);
	if (r == 0 && copy_partitions(&p, ret) < 0)
		r = diag_set(reterr_diag, -ENOMEM, "out of memory");
	if (r < 0) {
		ch_partitions_deinit(&p);
		return r;
	}
	pthread_mutex_lock(&s->state_lock);
	ch_partitions_deinit(&s->partitions);
	s->partitions = p;
	s->partitions_ms = now ? now : 1;
	pthread_mutex_unlock(&s->state_lock);
	return 0;
}

static int compare_opened(const struct ch_partition *a, const struct ch_partition *b)
{
	if (a->at_ms != b->at_ms)
		return a->at_ms < b->at_ms ? -1 : 1;
	return a->run < b->run ? -1 : a->run > b->run;
}

bool ch_is_hidden(const struct ch_partitions *p, const struct ch_partition *e)
{
	/* Late samples in a raw day that was dropped count; late rows of a dropped run do not. */
	if (e->state == CH_MAKING || e->state == CH_SUPERSEDED)
		return true;
	if (e->state == CH_GONE)
		return e->run;
	if (e->state != CH_OPEN || !e->run)
		return false;
	for (size_t i = 0; i < p->list.n; i++) {
		const struct ch_partition *o = &p->list.data[i];

		if (o->day == e->day && o->resolution == e->resolution &&
		    (o->state == CH_OPEN || o->state == CH_CLOSING) && compare_opened(o, e) < 0)
			return true;
	}
	return false;
}

static u32 next_day(u32 day)
{
	return ch_day_of(ch_day_begin_ms(day) + 86400000);
}

const struct ch_partition *ch_find_partition(const struct ch_partitions *p, u32 day, u32 resolution,
					     u32 run)
{
	for (size_t i = 0; i < p->list.n; i++) {
		const struct ch_partition *e = &p->list.data[i];

		if (e->day == day && e->resolution == resolution && e->run == run)
			return e;
	}
	return NULL;
}

u32 ch_open_day(const struct ch_partitions *p, u32 day)
{
	const struct ch_partition *e;

	while ((e = ch_find_partition(p, day, CH_RAW, 0)) && e->state >= CH_CLOSING)
		day = next_day(day);
	return day;
}

void ch_partitions_forget(struct ch *s)
{
	pthread_mutex_lock(&s->state_lock);
	s->partitions_ms = 0;
	pthread_mutex_unlock(&s->state_lock);
}
