/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A measurement at work: the script of agent/measure/script.c in a tracing session with a recording
 * for stacks. Numbers are read from the script's maps; slow calls arrive as values of its printf().
 *
 * The budget: what a call costs is estimated, because most of it is the kernel's trap and not the
 * program. Once the calls of a window cost more than the budget allows, probes are detached until
 * the cost of all time since then is within it again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/measure/measure.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/vec.h"

#define MAX_WAITING 4096 /* slow calls that nobody has taken */
#define MAX_BUCKETS 512
#define DEFAULT_BUDGET 5.0
#define WINDOW_NS 100000000ULL
/* Two traps and two programs: 1.5 to 3 us for a uprobe with its return; 0.2 to 0.6 for the kernel's
 * functions. */
#define USER_CALL_NS 2500
#define KERNEL_CALL_NS 500

struct measure {
	struct str script;
	struct tracing *tracing; /* owned */
	struct measure_counts counts;
	u64 histogram[MAX_BUCKETS];
	vec(struct waiting { struct measure_call call; }) waiting;
	u64 not_told; /* slow calls for which there was no room */
	u64 call_ns;  /* cost of a call, estimated */
	double budget;
	/* Thinning: the current window, and how long probes were attached at all. */
	u64 window_ns, window_calls, started_ns, paused_ns, off_since_ns, off_until_ns;
};

/* ---- slow calls ---- */

/* As C writes it. */
static void put_value(const struct tracer_session *s, const struct trace_type *t, const u8 *value,
		      char ret[MEASURE_TEXT_BYTES])
{
	bool is_text = t->kind == TRACE_STRING;
	_cleanup_str_ struct str text = {};

	if (is_text)
		str_putc(&text, '"');
	tracer_session_text(s, t, value, &text);
	if (is_text)
		str_putc(&text, '"');
	snprintf(ret, MEASURE_TEXT_BYTES, "%s", str_get(&text));
}

/* The next "name=%…" of a format. */
static void next_name(const char **format, char ret[MEASURE_TEXT_BYTES])
{
	const char *end = strstr(*format, "=%"), *begin = end;

	if (!end) {
		ret[0] = '\0';
		return;
	}
	while (begin > *format && begin[-1] != ' ')
		begin--;
	snprintf(ret, MEASURE_TEXT_BYTES, "%.*s", (int)(end - begin), begin);
	*format = end + 2;
}

static u64 word_at(const u8 *value)
{
	u64 w;

	memcpy(&w, value, sizeof(w));
	return w;
}

static void take_value(struct measure *m, struct measure_call *call, const char *name,
		       const struct trace_type *t, const u8 *value)
{
	const struct tracer_session *s = tracing_session(m->tracing);
	struct measure_argument *a;

	if (strncmp(name, MEASURE_ARGUMENT, strlen(MEASURE_ARGUMENT)) == 0) {
		if (call->n_arguments == MEASURE_MAX_ARGUMENTS)
			return;
		a = &call->arguments[call->n_arguments++];
		snprintf(a->name, sizeof(a->name), "%s", name + strlen(MEASURE_ARGUMENT));
		put_value(s, t, value, a->value);
	} else if (strcmp(name, "end") == 0) {
		call->end_ns = word_at(value);
	} else if (strcmp(name, "ns") == 0) {
		call->ns = word_at(value);
	} else if (strcmp(name, "pid") == 0) {
		call->pid = (u32)word_at(value);
	} else if (strcmp(name, "tid") == 0) {
		call->tid = (u32)word_at(value);
	} else if (strcmp(name, "comm") == 0) {
		snprintf(call->comm, sizeof(call->comm), "%.15s", (const char *)value);
	} else if (t->kind == TRACE_TRACE_ID) {
		memcpy(call->trace_id, value, sizeof(call->trace_id));
	} else if (t->kind == TRACE_SPAN_ID) {
		memcpy(call->span_id, value, sizeof(call->span_id));
	} else if (t->kind == TRACE_USTACK || t->kind == TRACE_KSTACK) {
		call->stack = word_at(value);
	} else if (strcmp(name, "result") == 0) {
		put_value(s, t, value, call->result);
	}
}

static void take_call(void *arg, const struct trace_format *f, const u8 *values)
{
	struct measure *m = arg;
	struct waiting w = {};
	const char *format = f->text.data;
	char name[MEASURE_TEXT_BYTES];

	for (u32 i = 0; i < f->n; i++) {
		next_name(&format, name);
		take_value(m, &w.call, name, &f->arguments[i], values + f->offsets[i]);
	}
	if (m->waiting.n >= MAX_WAITING || vec_push(&m->waiting, w) < 0)
		m->not_told++;
}

u32 measure_take(struct measure *m, struct measure_call *ret, u32 max)
{
	u32 n = (u32)MIN(m->waiting.n, (size_t)max);

	for (u32 i = 0; i < n; i++)
		ret[i] = m->waiting.data[i].call;
	memmove(m->waiting.data, m->waiting.data + n,
		(m->waiting.n - n) * sizeof(*m->waiting.data));
	m->waiting.n -= n;
	return n;
}

const struct profile *measure_stack(struct measure *m, const struct measure_call *call,
				    u32 *ret_stack)
{
	return call->stack ? tracing_stack(m->tracing, call->stack, call->pid, ret_stack) : NULL;
}

int measure_profile(struct measure *m, struct profile **ret, struct diag *reterr_diag)
{
	return tracing_profile(m->tracing, ret, reterr_diag);
}

/* ---- numbers ---- */

static void read_counts(struct measure *m)
{
	struct tracer_session *s = tracing_session(m->tracing);
	u64 lost[TRACE_LOSS_N] = {}, time[2] = {};
	struct measure_counts *c = &m->counts;

	(void)tracer_session_read(s, "calls", &c->calls, 1);
	(void)tracer_session_read(s, "slow", &c->slow, 1);
	(void)tracer_session_read(s, "longest", &c->longest_ns, 1);
	(void)tracer_session_read(s, "time", time, 2);
	c->total_ns = time[0];
	c->returned = time[1];
	tracing_losses(m->tracing, lost);
	c->lost = m->not_told;
	for (u32 i = 0; i < TRACE_LOSS_N; i++)
		c->lost += lost[i];
}

void measure_counts(const struct measure *m, struct measure_counts *ret)
{
	*ret = m->counts;
}

u32 measure_histogram(const struct measure *m, const u64 **ret)
{
	*ret = m->histogram;
	return trace_hist_buckets(MEASURE_HIST_BITS);
}

/* ---- the budget ---- */

static bool is_off(const struct measure *m)
{
	return m->off_since_ns != 0;
}

/*
 * Calls that had begun when probes were detached are forgotten: their returns may have been missed,
 * and the return of a later call with the same key would be taken for theirs.
 */
static void go_on(struct measure *m, u64 now)
{
	struct tracer_session *s = tracing_session(m->tracing);
	struct diag ignored = {};

	if (tracer_session_clear(s, "begun") < 0)
		return;
	m->paused_ns += now - m->off_since_ns;
	m->off_since_ns = 0;
	m->window_ns = now;
	m->window_calls = m->counts.calls;
	if (tracer_session_resume(s, &ignored) < 0)
		m->off_since_ns = now;
}

/* The cost of the window that ends now, spread over as much time as the budget asks for. */
static void look_at_cost(struct measure *m, u64 now)
{
	u64 cost = (m->counts.calls - m->window_calls) * m->call_ns;
	u64 wanted = (u64)((double)cost * 100 / m->budget);

	m->counts.cost_percent = 100.0 * (double)cost / (double)MAX(wanted, now - m->window_ns);
	if (wanted > 2 * (now - m->window_ns)) {
		m->off_since_ns = now;
		m->off_until_ns = m->window_ns + MIN(wanted, 10000000000ULL);
		tracer_session_pause(tracing_session(m->tracing));
	}
	m->window_ns = now;
	m->window_calls = m->counts.calls;
}

static void keep_budget(struct measure *m)
{
	u64 now = clock_ns(CLOCK_MONOTONIC), off;

	if (is_off(m) && now >= m->off_until_ns)
		go_on(m, now);
	else if (!is_off(m) && now - m->window_ns >= WINDOW_NS)
		look_at_cost(m, now);
	off = m->paused_ns + (is_off(m) ? now - m->off_since_ns : 0);
	m->counts.thinned =
		now > m->started_ns ? 1 - (double)off / (double)(now - m->started_ns) : 1;
}

/* ---- life ---- */

int measure_create(const struct measure_options *o, struct diag *reterr_diag, struct measure **ret)
{
	struct measure *m = calloc(1, sizeof(*m));
	struct tracer_session_options session = {
		.file = "", .pid = o->pid, .no_maps = true, .take = take_call, .arg = m};
	int r;

	if (!m)
		return -ENOMEM;
	m->call_ns = o->path ? USER_CALL_NS : KERNEL_CALL_NS;
	m->budget = o->budget_percent > 0 ? o->budget_percent : DEFAULT_BUDGET;
	r = measure_script(o, &m->script, reterr_diag);
	session.text = str_get(&m->script);
	session.n = m->script.n;
	if (r == 0)
		r = tracing_create(&session, reterr_diag, &m->tracing);
	if (r == 0)
		r = tracing_start(m->tracing, reterr_diag);
	if (r < 0) {
		measure_destroy(m);
		return r;
	}
	m->started_ns = m->window_ns = clock_ns(CLOCK_MONOTONIC);
	m->counts.thinned = 1;
	*ret = m;
	return 0;
}

int measure_poll(struct measure *m, int wait_ms)
{
	int r = tracing_poll(m->tracing, wait_ms);

	if (r < 0)
		return r;
	read_counts(m);
	(void)tracer_session_read(tracing_session(m->tracing), "latency", m->histogram,
				  trace_hist_buckets(MEASURE_HIST_BITS));
	keep_budget(m);
	return 0;
}

void measure_destroy(struct measure *m)
{
	if (!m)
		return;
	tracing_destroy(m->tracing);
	vec_deinit(&m->waiting);
	str_deinit(&m->script);
	free(m);
}
