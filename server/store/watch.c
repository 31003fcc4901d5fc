/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people must learn of a store: that it refuses writes, and what it deletes. Each is logged at
 * most once a minute, with the sum since the last line, and is in struct store_stats.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "server/store/private.h"

/* What was deleted, and why. */
static const struct {
	const char *what, *why;
} evictions[STORE_EVICT_N] = {
	[STORE_EVICT_AGE] = {"rows of samples", "they are older than --max-age"},
	[STORE_EVICT_SIZE] = {"rows of samples", "the store has reached --max-size"},
	[STORE_EVICT_SPANS_AGE] = {"spans", "they are older than --max-age"},
	[STORE_EVICT_SPANS_SIZE] = {"spans", "spans have reached --spans-max-size"},
	[STORE_EVICT_SPANS_THINNED] = {"spans of fast requests without errors",
				       "spans have reached --spans-max-size"},
};

/* ---- refused writes ---- */

/* Whether the store is at fault, and not the request. */
static bool is_failure(int r)
{
	static const int of_requests[] = {-EINVAL, -ERANGE,    -E2BIG,	  -EFBIG,
					  -ENOMEM, -ETIMEDOUT, -ECANCELED};

	for (size_t i = 0; i < ARRAY_SIZE(of_requests); i++)
		if (r == of_requests[i])
			return false;
	return r < 0;
}

void store_note_write(struct store *s, int r, const char *why)
{
	struct store_watch *w = &s->watch;

	if (!is_failure(r) && (r < 0 || !atomic_load(&w->fails)))
		return;
	pthread_mutex_lock(&w->lock);
	if (r < 0) {
		atomic_store(&w->fails, true);
		w->refused++;
		snprintf(w->failing, sizeof(w->failing), "%s%s",
			 r == -ENOSPC ? "disk full: " : "cannot write: ", why);
		if (log_is_due(&w->refusal_told)) {
			log_err("%llu writes refused: %s", w->refused - w->refused_told, why);
			w->refused_told = w->refused;
		}
	} else if (atomic_exchange(&w->fails, false)) {
		log_info("the store can be written again; %llu writes were refused",
			 w->refused - w->refused_before);
		w->refused_before = w->refused_told = w->refused;
		w->refusal_told = (struct log_site){};
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- evictions ---- */

void store_note_evicted(struct store *s, enum store_eviction why, u64 rows, u64 first_ms,
			u64 last_ms)
{
	struct store_watch *w = &s->watch;
	struct store_evicted *e = &w->evicted[why];

	if (!rows)
		return;
	pthread_mutex_lock(&w->lock);
	if (!e->rows || first_ms < e->first_ms)
		e->first_ms = first_ms;
	e->last_ms = MAX(e->last_ms, last_ms);
	e->rows += rows;
	w->evictions[why] += rows;
	if (why == STORE_EVICT_SIZE)
		w->evicted_to_ms = MAX(w->evicted_to_ms, last_ms);
	if (why == STORE_EVICT_SPANS_SIZE)
		w->spans_evicted_to_ms = MAX(w->spans_evicted_to_ms, last_ms);
	pthread_mutex_unlock(&w->lock);
}

static void put_time(u64 ms, char *ret, size_t n)
{
	time_t t = (time_t)(ms / 1000);
	struct tm tm;

	strftime(ret, n, "%Y-%m-%d %H:%M", gmtime_r(&t, &tm));
}

void store_tell_evictions(struct store *s)
{
	struct store_watch *w = &s->watch;

	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < STORE_EVICT_N; i++) {
		struct store_evicted *e = &w->evicted[i];
		char first[32], last[32];

		if (!e->rows || !log_is_due(&e->told))
			continue;
		put_time(e->first_ms, first, sizeof(first));
		put_time(e->last_ms, last, sizeof(last));
		log_info("deleted %llu %s from %s to %s UTC: %s", e->rows, evictions[i].what, first,
			 last, evictions[i].why);
		*e = (struct store_evicted){.told = e->told};
	}
	pthread_mutex_unlock(&w->lock);
}

void store_count_events(struct store *s, struct store_events *ret)
{
	struct store_watch *w = &s->watch;

	pthread_mutex_lock(&w->lock);
	*ret = (struct store_events){
		.refused_writes = w->refused,
		.old_rows = w->evictions[STORE_EVICT_AGE],
		.rows = w->evictions[STORE_EVICT_SIZE],
		.old_spans = w->evictions[STORE_EVICT_SPANS_AGE],
		.spans = w->evictions[STORE_EVICT_SPANS_SIZE] +
			 w->evictions[STORE_EVICT_SPANS_THINNED],
	};
	pthread_mutex_unlock(&w->lock);
}

void store_watch_stats(struct store *s, struct store_stats *ret)
{
	struct store_watch *w = &s->watch;

	pthread_mutex_lock(&w->lock);
	ret->refused_writes = w->refused;
	ret->evicted_to_ms = w->evicted_to_ms;
	ret->spans_evicted_to_ms = w->spans_evicted_to_ms;
	snprintf(ret->failing, sizeof(ret->failing), "%s",
		 atomic_load(&w->fails) ? w->failing : "");
	pthread_mutex_unlock(&w->lock);
}
