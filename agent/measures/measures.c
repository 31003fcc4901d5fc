/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of measures and their results are under the lock. What the thread needs to measure, it
 * has for itself (struct measures_work), and follows the list between two rounds.
 *
 *	listed ─→ look for processes ─→ begin ─→ [threshold known: begin again] ─→ end
 *	               ↑  every 2 s  │
 *	               └─────────────┘
 */
#include "agent/measures/measures.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/measures/internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "trace/trace.h"

#define LOOK_NS 2000000000ULL
#define FLUSH_NS 5000000000ULL
#define IDLE_NS 250000000ULL
#define POLL_MS 50
/* Without a threshold: so long all calls are told, and so many a second remain told. */
#define LEARN_NS 3000000000ULL
#define TOLD_PER_S 10
#define SLOW_SHARE 0.99
#define CALLS_PER_S 50

_Static_assert(MEASURE_HIST_BITS == CONTROL_HIST_BITS, "buckets are told as they are");
_Static_assert(MEASURE_MAX_ARGUMENTS <= CONTROL_MAX_ARGUMENTS, "all arguments are told");

/* ---- what the client's threads do ---- */

static void listed_deinit(struct measures_listed *l)
{
	vec_deinit(&l->calls);
}

static const struct control_measure *find_asked(const struct control_measure *all, size_t n,
						const char *id)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(all[i].id, id))
			return &all[i];
	return NULL;
}

static struct measures_listed *find_listed(struct measures *m, u32 server, const char *id)
{
	vec_foreach (&m->list, l)
		if (l->server == server && !strcmp(l->asked.id, id))
			return l;
	return NULL;
}

static void drop_others(struct measures *m, u32 server, const struct control_measure *all, size_t n)
{
	size_t left = 0;

	for (size_t i = 0; i < m->list.n; i++) {
		struct measures_listed *l = &m->list.data[i];

		if (l->server != server || find_asked(all, n, l->asked.id))
			m->list.data[left++] = *l;
		else
			listed_deinit(l);
	}
	m->list.n = left;
}

int measures_set(struct measures *m, u32 server, const struct control_measure *all, size_t n)
{
	int r;

	if (server >= MEASURES_MAX_SERVERS)
		return -EINVAL;
	n = MIN(n, (size_t)CONTROL_MAX_MEASURES);
	pthread_mutex_lock(&m->lock);
	r = vec_reserve(&m->list, m->list.n + n);
	if (r == 0)
		drop_others(m, server, all, n);
	for (size_t i = 0; i < n && r == 0; i++) {
		struct measures_listed new = {.asked = all[i], .server = server};

		if (find_listed(m, server, all[i].id))
			continue;
		new.serial = ++m->last_serial;
		new.seen.state = CONTROL_STATE_QUEUED;
		new.seen.thinned = 1;
		memcpy(new.seen.id, all[i].id, sizeof(new.seen.id));
		(void)vec_push(&m->list, new); /* there is room */
	}
	pthread_cond_broadcast(&m->wake);
	pthread_mutex_unlock(&m->lock);
	return r;
}

int measures_report(struct measures *m, u32 server, struct control_request *ret)
{
	int r = 0;

	pthread_mutex_lock(&m->lock);
	vec_foreach (&m->list, l) {
		if (l->server != server || r < 0 || ret->measured.n >= CONTROL_MAX_MEASURES)
			continue;
		r = vec_push(&ret->measured, l->seen);
		l->n_told = 0;
		while (r == 0 && l->n_told < l->calls.n && ret->calls.n < CONTROL_MAX_CALLS)
			r = vec_push(&ret->calls, l->calls.data[l->n_told++]);
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

void measures_answered(struct measures *m, u32 server)
{
	pthread_mutex_lock(&m->lock);
	vec_foreach (&m->list, l) {
		if (l->server != server || !l->n_told)
			continue;
		l->calls.n -= l->n_told;
		memmove(l->calls.data, l->calls.data + l->n_told,
			l->calls.n * sizeof(*l->calls.data));
		l->n_told = 0;
	}
	pthread_mutex_unlock(&m->lock);
}

/* ---- counts ---- */

static void add_counts(struct control_measurement *to, const struct measures_binary *b)
{
	struct measure_counts c;
	const u64 *buckets;
	u32 n;

	measure_counts(b->measure, &c);
	to->calls += c.calls;
	to->returned += c.returned;
	to->total_ns += c.total_ns;
	to->longest_ns = MAX(to->longest_ns, c.longest_ns);
	to->slow += c.slow;
	to->lost += c.lost;
	to->thinned = MIN(to->thinned, c.thinned);
	to->cost_percent += c.cost_percent;
	n = MIN(measure_histogram(b->measure, &buckets), (u32)CONTROL_MAX_BUCKETS);
	for (u32 i = 0; i < n; i++) {
		to->buckets[i] += buckets[i];
		if (buckets[i])
			to->n_buckets = MAX(to->n_buckets, i + 1);
	}
}

/* What was counted is not lost; the time until the next begin is not measured. */
static void end_measure(struct measures_work *w, struct measures_binary *b)
{
	struct control_measurement now = {.thinned = 1};

	if (!b->measure)
		return;
	add_counts(&now, b);
	w->before.calls += now.calls;
	w->before.returned += now.returned;
	w->before.total_ns += now.total_ns;
	w->before.longest_ns = MAX(w->before.longest_ns, now.longest_ns);
	w->before.lost += now.lost;
	w->before.slow += now.slow;
	w->before.thinned = MIN(w->before.thinned, now.thinned);
	for (u32 i = 0; i < now.n_buckets; i++)
		w->before.buckets[i] += now.buckets[i];
	w->before.n_buckets = MAX(w->before.n_buckets, now.n_buckets);
	measure_destroy(take_ptr(b->measure));
	w->n_measured--;
}

static void fill_state(struct measures_work *w)
{
	struct control_measurement *s = &w->seen;

	s->state = w->is_over	   ? CONTROL_STATE_ENDED
		   : w->n_measured ? CONTROL_STATE_ARMED
		   : w->refused[0] ? CONTROL_STATE_REFUSED
		   : w->binaries.n ? CONTROL_STATE_QUEUED
				   : CONTROL_STATE_ABSENT;
	if (w->is_over && !s->measured_ms)
		s->state = w->refused[0] ? CONTROL_STATE_REFUSED : CONTROL_STATE_ABSENT;
	memcpy(s->reason, w->refused, sizeof(s->reason));
}

static void fill_seen(struct measures_work *w)
{

	w->seen = w->before;
	memcpy(w->seen.id, w->asked.id, sizeof(w->seen.id));
	vec_foreach (&w->binaries, b) {
		if (!b->measure)
			continue;
		add_counts(&w->seen, b);
		w->seen.others |= !b->pid && strcmp(w->asked.service, "*") != 0;
	}
	w->seen.measured_ms = w->measured_ns / 1000000;
	w->seen.processes = (u32)w->processes.n;
	w->seen.slow_ns = w->slow_ns;
	fill_state(w);
}

/* ---- a measurement at work ---- */

/* Without "LINE:COLUMN: " of the script, which nobody has seen. */
static const char *without_place(const char *text)
{
	const char *end = text + strspn(text, "0123456789:");

	return end > text && *end == ' ' ? end + 1 : text;
}

/* The path by which the binary was opened tells people nothing: what it leads to does. */
static void refuse(struct measures_work *w, int error, const struct diag *d, const char *link)
{
	const char *text = d->text[0] ? without_place(d->text) : strerror(-error);
	const char *at = strstr(text, link);
	char target[CONTROL_TEXT_BYTES] = "";
	_cleanup_str_ struct str said = {};

	if (at && readlink(link, target, sizeof(target) - 1) > 0) {
		str_append(&said, text, (size_t)(at - text));
		str_puts(&said, target);
		text = at + strlen(link);
	}
	str_puts(&said, text);
	snprintf(w->refused, sizeof(w->refused), "%.*s", (int)sizeof(w->refused) - 1,
		 str_get(&said));
	text_clean(w->refused);
}

static void begin_measure(struct measures_work *w, struct measures_binary *b)
{
	char path[32];
	struct measure_options o = {
		.function = w->asked.function,
		.path = b->fd < 0 ? NULL : path,
		.pid = b->pid,
		.slow_ns = w->slow_ns,
		.calls_per_second = CALLS_PER_S,
		.budget_percent = w->asked.budget_percent,
		.stacks = true,
	};
	struct diag d = {};
	int r;

	/* The file that the process has mapped, whatever is at its path now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", b->fd);
	r = measure_create(&o, &d, &b->measure);
	b->was_tried = true;
	if (r < 0)
		return refuse(w, r, &d, path);
	w->refused[0] = '\0';
	if (w->n_measured++ == 0)
		w->since_ns = clock_ns(CLOCK_MONOTONIC);
	/* To load programs takes a second or two. */
	if (!w->has_begun)
		w->end_ns = w->since_ns + w->asked.duration_ms * 1000000ULL;
	w->has_begun = true;
	if (!w->asked.slow_ns && !w->slow_ns && !w->learnt_ns)
		w->learnt_ns = clock_ns(CLOCK_MONOTONIC) + LEARN_NS;
}

static void look(struct measures *m, struct measures_work *w, u64 now)
{
	int r = measures_find(m, w);

	w->look_ns = now + LOOK_NS;
	if (r < 0)
		log_warn_rarely("a function is not measured in all processes: %s", strerror(-r));
	vec_foreach (&w->binaries, b) {
		if (b->is_stale)
			end_measure(w, b);
		if (!b->measure && (b->is_stale || !b->was_tried))
			begin_measure(w, b);
		b->is_stale = false;
	}
}

/* The least value of the bucket that the slowest calls begin in. */
static u64 threshold(const struct control_measurement *s)
{
	double sum = 0, rank = SLOW_SHARE * (double)s->returned;

	for (u32 i = 0; i < s->n_buckets; i++) {
		sum += (double)s->buckets[i];
		if (sum >= rank)
			return MAX(trace_hist_low(i, CONTROL_HIST_BITS), 1ULL);
	}
	return 0;
}

/* Calls come more often than they can be told: only slow ones from now on. */
static void learn(struct measures_work *w)
{
	w->learnt_ns = 0;
	if (w->seen.returned * 1000 <= w->seen.measured_ms * TOLD_PER_S)
		return;
	w->slow_ns = threshold(&w->seen);
	vec_foreach (&w->binaries, b)
		end_measure(w, b);
	vec_foreach (&w->binaries, b)
		begin_measure(w, b);
	/* Every call was slow before. */
	w->before.slow = 0;
}

static void poll_binaries(struct measures *m, struct measures_work *w, struct control_request *to)
{
	vec_foreach (&w->binaries, b) {
		int r;

		if (!b->measure)
			continue;
		r = measure_poll(b->measure, POLL_MS / (int)w->binaries.n);
		if (r == 0)
			r = measures_take_calls(m, w, b, to);
		if (r < 0)
			log_warn_rarely("a function's calls are not told: %s", strerror(-r));
	}
}

/* Moves calls to the list as far as there is room. Under no lock. */
static void publish(struct measures *m, const struct measures_work *w,
		    const struct control_request *new)
{
	pthread_mutex_lock(&m->lock);
	vec_foreach (&m->list, l) {
		if (l->serial != w->serial)
			continue;
		l->seen = w->seen;
		vec_foreach (&new->calls, c)
			if (l->calls.n < MEASURES_MAX_PENDING)
				(void)vec_push(&l->calls, *c);
	}
	pthread_mutex_unlock(&m->lock);
}

static void finish(struct measures *m, struct measures_work *w)
{
	w->is_over = true;
	fill_seen(w);
	vec_foreach (&w->binaries, b)
		end_measure(w, b);
	measures_flush(m, w);
}

static void step(struct measures *m, struct measures_work *w)
{
	_cleanup_control_request_ struct control_request calls = {};
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (w->is_over)
		return;
	if (now >= w->look_ns)
		look(m, w, now);
	poll_binaries(m, w, &calls);
	now = clock_ns(CLOCK_MONOTONIC);
	if (w->n_measured)
		w->measured_ns += now - w->since_ns;
	w->since_ns = now;
	fill_seen(w);
	if (now >= w->end_ns)
		finish(m, w);
	else if (w->learnt_ns && now >= w->learnt_ns)
		learn(w);
	if (w->profile && now >= w->profile_ns + FLUSH_NS)
		measures_flush(m, w);
	publish(m, w, &calls);
}

/* ---- the thread ---- */

static void work_destroy(struct measures *m, struct measures_work *w)
{
	measures_flush(m, w);
	vec_foreach (&w->binaries, b) {
		measure_destroy(b->measure);
		if (b->fd >= 0)
			close(b->fd);
	}
	vec_deinit(&w->binaries);
	vec_deinit(&w->processes);
	free(w);
}

static struct measures_work *find_work(struct measures *m, u64 serial)
{
	vec_foreach (&m->work, w)
		if ((*w)->serial == serial)
			return *w;
	return NULL;
}

static u32 count_active(const struct measures *m)
{
	u32 n = 0;

	vec_foreach (&m->work, w)
		n += !(*w)->is_over;
	return n;
}

/* Under the lock. */
static void begin_work(struct measures *m, struct measures_listed *l)
{
	struct measures_work *w = calloc(1, sizeof(*w));

	if (!w)
		return; /* in the next round */
	w->asked = l->asked;
	w->serial = l->serial;
	w->is_listed = true;
	w->slow_ns = l->asked.slow_ns;
	w->before.thinned = 1;
	w->end_ns = clock_ns(CLOCK_MONOTONIC) + l->asked.duration_ms * 1000000ULL;
	if (count_active(m) >= MEASURES_MAX_ACTIVE) {
		w->is_over = true;
		l->seen.state = CONTROL_STATE_REFUSED;
		snprintf(l->seen.reason, sizeof(l->seen.reason),
			 "this agent measures %d functions already, which is the most",
			 MEASURES_MAX_ACTIVE);
	}
	if (vec_push(&m->work, w) < 0)
		free(w);
}

/* Whether the thread waits for events of probes. */
static bool is_busy(const struct measures *m)
{
	vec_foreach (&m->work, w)
		if ((*w)->n_measured)
			return true;
	return false;
}

/* Under the lock. What is to be destroyed is moved to the end: that takes long. */
static size_t follow_list(struct measures *m)
{
	size_t left = 0;

	vec_foreach (&m->work, w)
		(*w)->is_listed = false;
	vec_foreach (&m->list, l) {
		struct measures_work *w = find_work(m, l->serial);

		if (w)
			w->is_listed = true;
		else
			begin_work(m, l);
	}
	for (size_t i = 0; i < m->work.n; i++)
		if (m->work.data[i]->is_listed) {
			struct measures_work *w = m->work.data[i];

			m->work.data[i] = m->work.data[left];
			m->work.data[left++] = w;
		}
	return left;
}

static void *work(void *arg)
{
	struct measures *m = arg;

	pthread_mutex_lock(&m->lock);
	while (!m->ending) {
		size_t left = follow_list(m);

		pthread_mutex_unlock(&m->lock);
		for (size_t i = left; i < m->work.n; i++)
			work_destroy(m, m->work.data[i]);
		m->work.n = left;
		m->epoch_ns = (s64)clock_ns(CLOCK_REALTIME) - (s64)clock_ns(CLOCK_MONOTONIC);
		vec_foreach (&m->work, w)
			step(m, *w);
		pthread_mutex_lock(&m->lock);
		if (m->ending)
			break;
		if (!m->list.n && !m->work.n)
			pthread_cond_wait(&m->wake, &m->lock);
		else if (!is_busy(m))
			(void)thread_wait(&m->wake, &m->lock, IDLE_NS);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

/* ---- life ---- */

int measures_create(const struct measures_options *o, struct diag *reterr_diag,
		    struct measures **ret)
{
	_cleanup_measures_ struct measures *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->options = *o;
	thread_sync_init(&m->lock, &m->wake);
	r = thread_start(&m->thread, "measures", work, m);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot start a thread: %s", strerror(-r));
	m->started = true;
	*ret = take_ptr(m);
	return 0;
}

void measures_destroy(struct measures *m)
{
	if (!m)
		return;
	if (m->started) {
		pthread_mutex_lock(&m->lock);
		m->ending = true;
		pthread_cond_broadcast(&m->wake);
		pthread_mutex_unlock(&m->lock);
		pthread_join(m->thread, NULL);
	}
	vec_foreach (&m->work, w)
		work_destroy(m, *w);
	vec_deinit(&m->work);
	vec_foreach (&m->list, l)
		listed_deinit(l);
	vec_deinit(&m->list);
	pthread_cond_destroy(&m->wake);
	pthread_mutex_destroy(&m->lock);
	free(m);
}
