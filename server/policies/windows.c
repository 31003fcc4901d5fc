/* SPDX-License-Identifier: Apache-2.0 */
/* Error rates and latencies of endpoints, by the spans that arrive in each window. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quota.h"
#include "server/policies/internal.h"

#define SEPARATOR '\x1f'
/* Of percentiles, with 3 KiB each; then values are told less exactly, and compared as before. */
#define MAX_TABLES 2048

/* ---- finding the window of an endpoint ---- */

static int add_window(struct policies *p, struct policy_entry *e, const char *service,
		      const char *endpoint)
{
	struct policy_window w = {};
	struct policy_seen s = {};
	int r;

	snprintf(s.service, sizeof(s.service), "%s", service);
	snprintf(s.endpoint, sizeof(s.endpoint), "%s", endpoint);
	if (e->info.spec.percentile > 0 && p->tables < MAX_TABLES)
		w.classes = calloc(TASK_CLASSES, sizeof(*w.classes));
	r = vec_push(&e->windows, w);
	if (r == 0 && (r = vec_push(&e->info.seen, s)) < 0)
		e->windows.n--;
	if (r < 0)
		free(w.classes);
	else
		p->tables += w.classes != NULL;
	return r;
}

/* The names that a policy has looked at are as many as its endpoints; it tells of further ones. */
static struct policy_window *add_name(struct policies *p, struct policy_entry *e, const char *key,
				      const char *service, const char *endpoint)
{
	u32 id, index = 0;
	int matches;

	if (e->names.n > POLICY_MAX_SEEN) {
		if (!e->full_told)
			policy_log(e, clock_epoch_ms(), "",
				   "looks at %d endpoints, and at no further ones",
				   POLICY_MAX_SEEN);
		e->full_told = true;
		return NULL;
	}
	matches = task_pattern_match(e->info.spec.endpoint, e->regex, endpoint);
	/* Each id has its place in window_of, or the name is not added. */
	if (matches < 0 || vec_reserve(&e->window_of, e->names.n + 1) < 0)
		return NULL;
	if (matches && add_window(p, e, service, endpoint) == 0)
		index = (u32)e->windows.n;
	else if (matches)
		return NULL;
	if (strtab_add(&e->names, key, strlen(key), &id) < 0)
		return NULL;
	while (e->window_of.n < id)
		e->window_of.data[e->window_of.n++] = 0;
	e->window_of.data[e->window_of.n++] = index;
	return index ? &e->windows.data[index - 1] : NULL;
}

static struct policy_window *find_window(struct policies *p, struct policy_entry *e,
					 const char *service, const char *endpoint)
{
	char key[2 * CONTROL_TEXT_BYTES];
	u32 id;

	if (strlen(service) >= CONTROL_TEXT_BYTES || strlen(endpoint) >= CONTROL_TEXT_BYTES ||
	    !*endpoint)
		return NULL;
	snprintf(key, sizeof(key), "%s%c%s", service, SEPARATOR, endpoint);
	if (!strtab_find(&e->names, key, strlen(key), &id))
		return add_name(p, e, key, service, endpoint);
	return e->window_of.data[id] ? &e->windows.data[e->window_of.data[id] - 1] : NULL;
}

/* ---- the end of a window ---- */

/* By what is known of the durations next to the threshold, the estimate is on the right side. */
static double percentile_ms(const struct policy_spec *s, const struct policy_window *w,
			    bool is_over)
{
	u64 below = 0, ns = is_over ? w->least_over_ns : w->most_below_ns;

	for (u32 c = 0; w->classes && c < TASK_CLASSES; c++) {
		below += w->classes[c];
		if ((double)below * 100 < s->percentile * w->n)
			continue;
		ns = is_over ? MAX(task_class_end(c), w->least_over_ns)
			     : MIN(task_class_end(c), w->most_below_ns);
		break;
	}
	return (double)ns / 1e6;
}

/* Exact: fewer than the percentile's share of the requests took less than the threshold. */
static bool is_percentile_over(const struct policy_spec *s, const struct policy_window *w)
{
	return (double)(w->n - w->over) * 100 < s->percentile * w->n;
}

static bool measure(const struct policy_spec *s, const struct policy_window *w, double *ret)
{
	if (s->cause == POLICY_CAUSE_ERRORS) {
		*ret = 100.0 * w->errors / w->n;
	} else if (s->percentile > 0) {
		bool is_over = is_percentile_over(s, w);

		*ret = percentile_ms(s, w, is_over);
		return is_over;
	} else {
		*ret = (double)w->sum_ns / 1e6 / w->n;
	}
	return *ret >= s->threshold;
}

static void shift(struct policy_window *w, u32 of, u64 by, bool over)
{
	w->hits = by < 64 ? w->hits << by : 0;
	w->hits = (w->hits | over) & ((1ULL << of) - 1);
}

static void empty(struct policy_window *w, u64 number)
{
	w->number = number;
	w->n = w->errors = w->over = 0;
	w->sum_ns = w->most_below_ns = w->least_over_ns = 0;
	if (w->classes)
		memset(w->classes, 0, TASK_CLASSES * sizeof(*w->classes));
}

static void judge(struct policies *p, struct policy_entry *e, struct policy_window *w,
		  struct policy_seen *s, u64 now_ms)
{
	const struct policy_spec *spec = &e->info.spec;
	struct task_cause cause = {.at_ms = now_ms};
	bool over;

	s->at_ms = now_ms;
	s->requests = w->n;
	if (w->n < spec->min_requests) {
		char why[64];

		snprintf(why, sizeof(why), "%u, and it takes %u", w->n, spec->min_requests);
		shift(w, spec->of, 1, false);
		s->over = (u32)__builtin_popcountll(w->hits);
		policy_note(p, e, s, POLICY_VERDICT_FEW, why, now_ms);
		return;
	}
	s->windows = ++w->windows;
	over = measure(spec, w, &s->value);
	shift(w, spec->of, 1, over);
	s->over = (u32)__builtin_popcountll(w->hits);
	if (!over || s->over < spec->count) {
		policy_note(p, e, s, over ? POLICY_VERDICT_OVER : POLICY_VERDICT_BELOW, NULL,
			    now_ms);
		return;
	}
	w->hits = 0;
	cause.value = s->value;
	snprintf(cause.endpoint, sizeof(cause.endpoint), "%s", s->endpoint);
	policy_fire(p, e, s, s->service, &cause, now_ms);
}

static void end_window(struct policies *p, struct policy_entry *e, size_t k, u64 now_ms)
{
	const u64 number = now_ms / e->info.spec.window_ms;
	struct policy_window *w = &e->windows.data[k];

	if (w->number == number)
		return;
	if (w->number) {
		judge(p, e, w, &e->info.seen.data[k], now_ms);
		/* Those in which nothing came; or the clock was set. */
		if (number > w->number + 1)
			shift(w, e->info.spec.of, number - w->number - 1, false);
	}
	empty(w, number);
}

void policy_end_windows(struct policies *p, struct policy_entry *e, u64 now_ms)
{
	for (size_t k = 0; k < e->windows.n; k++)
		end_window(p, e, k, now_ms);
}

/* ---- spans ---- */

static void count(struct policy_window *w, const struct policy_spec *s, const struct span *span)
{
	const u64 threshold_ns = (u64)(s->threshold * 1e6);

	w->n++;
	w->errors += span->status == SPAN_ERROR;
	w->sum_ns += span->duration_ns;
	if (span->duration_ns >= threshold_ns) {
		w->over++;
		if (!w->least_over_ns || span->duration_ns < w->least_over_ns)
			w->least_over_ns = span->duration_ns;
	} else {
		w->most_below_ns = MAX(w->most_below_ns, span->duration_ns);
	}
	if (w->classes)
		w->classes[task_class_of(span->duration_ns)]++;
}

static bool concerns(const struct policy_entry *e, const char *service)
{
	return !policy_is_measured(e->info.spec.cause) &&
	       (!strcmp(e->info.spec.service, "*") || !strcmp(e->info.spec.service, service));
}

static void see_span(struct policies *p, const struct spans *s, const struct span *span, u64 now_ms)
{
	const char *service = spans_string(s, span->service);
	const char *endpoint = spans_string(s, span->endpoint);
	bool asked = false;

	vec_foreach (&p->list, at) {
		struct policy_entry *e = *at;
		struct policy_window *w;

		if (!concerns(e, service))
			continue;
		if (!asked && task_was_seen(&p->seen, span, now_ms))
			return;
		asked = true;
		if ((span->start_ns + span->duration_ns) / 1000000 + POLICY_LATE_MS < now_ms) {
			e->info.late++;
			continue;
		}
		w = find_window(p, e, service, endpoint);
		if (!w)
			continue;
		end_window(p, e, (size_t)(w - e->windows.data), now_ms);
		count(w, &e->info.spec, span);
	}
}

void policies_see_spans(struct policies *p, const struct spans *s)
{
	QUOTA_PAUSED; /* what is remembered belongs to all requests */
	u64 now = clock_epoch_ms();

	pthread_mutex_lock(&p->lock);
	for (size_t k = 0; p->list.n && k < s->spans.n; k++)
		if (s->spans.data[k].flags & SPAN_ROOT)
			see_span(p, s, &s->spans.data[k], now);
	pthread_mutex_unlock(&p->lock);
}
