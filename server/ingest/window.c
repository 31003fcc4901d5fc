/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is refused although it can be read: samples and spans from times that the store does not
 * keep, and negative values. A sample from the future would outlive all others, and one that is
 * older than --max-age would be deleted within seconds; in both cases a clock is probably wrong.
 */
#include <errno.h>

#include "base/log.h"
#include "base/text.h"
#include "server/ingest/internal.h"

#define MS_PER_HOUR 3600000.0

static const char *const reasons[INGEST_REASON_N] = {
	[INGEST_OLD] = "old", [INGEST_FUTURE] = "future", [INGEST_NEGATIVE] = "negative"};

const char *ingest_reason(enum ingest_reason r)
{
	return reasons[r];
}

/* Times that are accepted, both inclusive. */
struct window {
	u64 from_ms, to_ms;
	struct clock_times now;
};

static struct window window_now(struct ingest *i)
{
	struct window w = {.to_ms = ~0ULL};

	if (!i->o.clock)
		return w;
	clock_watch_times(i->o.clock, clock_pair_now(), &w.now);
	w.from_ms = w.now.early_ms - MIN(w.now.early_ms, i->o.max_age_ms);
	w.to_ms = w.now.late_ms + i->o.max_ahead_ms;
	return w;
}

static enum ingest_reason reason_of(const struct window *w, u64 time_ms)
{
	if (time_ms < w->from_ms)
		return INGEST_OLD;
	return time_ms > w->to_ms ? INGEST_FUTURE : INGEST_REASON_N;
}

/* Describes the refusal, logs it at most once a minute, and returns the error. */
static int refuse(const struct window *w, enum ingest_reason reason, const char *what,
		  const char *service, u64 time_ms, struct diag *reterr_diag)
{
	_cleanup_str_ struct str name = {};
	struct diag d = {};
	int r;

	text_append_cut(&name, service, 80);
	if (reason == INGEST_NEGATIVE)
		r = diag_set(&d, -EINVAL, "'%s' sent samples with negative values", str_get(&name));
	else if (reason == INGEST_OLD)
		r = diag_set(&d, -ERANGE,
			     "'%s' sent %s that are %.1f hours old, which is more than --max-age: "
			     "check the clock of the sender",
			     str_get(&name), what,
			     (double)(w->now.early_ms - time_ms) / MS_PER_HOUR);
	else
		r = diag_set(&d, -ERANGE,
			     "'%s' sent %s that are %.1f hours ahead of the server's time, which "
			     "is more than --max-ahead: check the clock of the sender",
			     str_get(&name), what,
			     (double)(time_ms - w->now.late_ms) / MS_PER_HOUR);
	log_warn_rarely("refused: %s", d.text);
	return diag_set(reterr_diag, r, "%s", d.text);
}

int ingest_check_batch(struct ingest *i, const struct store_batch *b, struct diag *reterr_diag)
{
	struct window w = window_now(i);
	const struct store_sample *first = NULL;
	enum ingest_reason why = INGEST_REASON_N;

	for (size_t k = 0; k < b->samples.n && why == INGEST_REASON_N; k++) {
		first = &b->samples.data[k];
		why = first->value < 0 ? INGEST_NEGATIVE : reason_of(&w, first->time_ms);
	}
	if (why == INGEST_REASON_N)
		return 0;
	atomic_fetch_add(&i->refused_samples[why], b->samples.n);
	return refuse(&w, why, "samples",
		      profile_string(b->profile, b->series.data[first->series].service),
		      first->time_ms, reterr_diag);
}

int ingest_drop_spans(struct ingest *i, struct spans *s, u64 *ret_dropped, struct diag *ret_why)
{
	struct window w = window_now(i);
	size_t kept = 0;
	u64 dropped = 0;
	int r = 0;

	for (size_t k = 0; k < s->spans.n; k++) {
		const struct span *e = &s->spans.data[k];
		u64 time_ms = e->start_ns / 1000000;
		enum ingest_reason reason = reason_of(&w, time_ms);

		if (reason == INGEST_REASON_N) {
			s->spans.data[kept++] = *e;
			continue;
		}
		atomic_fetch_add(&i->refused_spans[reason], 1);
		if (!dropped++)
			r = refuse(&w, reason, "spans", spans_string(s, e->service), time_ms,
				   ret_why);
	}
	s->spans.n = kept;
	*ret_dropped = dropped;
	return r;
}
