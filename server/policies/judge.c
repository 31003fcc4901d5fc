/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy does about what was measured, and what it says about that. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/policies/internal.h"

/* Between two lines about one agent or endpoint, unless a task was to be added. */
#define SAY_MS 60000

static const char *verdict_text(enum policy_verdict v)
{
	static const char *const texts[] = {
#define X(id, name, help) help,
		POLICY_VERDICTS(X)
#undef X
	};

	return v < POLICY_VERDICT_N ? texts[v] : "";
}

void policy_put_value(struct str *out, enum policy_cause c, double v)
{
	switch (c) {
	case POLICY_CAUSE_THREADS:
		str_printf(out, "%.0f threads", v);
		break;
	case POLICY_CAUSE_LOAD:
		str_printf(out, "a load of %.2f for each CPU", v);
		break;
	case POLICY_CAUSE_LATENCY:
		str_printf(out, "%.3f ms", v);
		break;
	default:
		str_printf(out, "%.1f %s", v, policy_cause_unit(c));
	}
}

void policy_note(struct policies *p, struct policy_entry *e, struct policy_seen *s,
		 enum policy_verdict v, const char *why, u64 now_ms)
{
	const struct policy_spec *spec = &e->info.spec;
	_cleanup_str_ struct str value = {};
	bool fired = v >= POLICY_VERDICT_LATE;

	e->info.verdicts[v]++;
	p->verdicts[v]++;
	s->verdict = v;
	e->changed = true;
	if (v == s->said ? v != POLICY_VERDICT_FIRED
			 : !fired && s->said_ms && now_ms < s->said_ms + SAY_MS)
		return;
	s->said = v;
	s->said_ms = now_ms;
	if (s->windows && v != POLICY_VERDICT_NO_PROCESS && v != POLICY_VERDICT_FEW) {
		policy_put_value(&value, spec->cause, s->value);
		str_puts(&value, ", threshold ");
		policy_put_value(&value, spec->cause, spec->threshold);
		str_puts(&value, ": ");
	}
	policy_log(e, now_ms, s->host, "%s%s%s%s%s%s", s->endpoint[0] ? s->endpoint : "",
		   s->endpoint[0] ? ": " : "", str_get(&value), verdict_text(v),
		   why && *why ? ": " : "", why ? why : "");
}

/* ---- a firing as a sentence ---- */

static void describe_windows(const struct policy_spec *s, u32 over, struct str *out)
{
	if (s->of > 1)
		str_printf(out, " in %u of %u windows of %g s", over, s->of,
			   (double)s->window_ms / 1e3);
	else
		str_printf(out, " within %g s", (double)s->window_ms / 1e3);
}

static void describe(const struct policy_spec *s, const char *service, u32 over, u32 requests,
		     struct task_cause *c)
{
	_cleanup_str_ struct str out = {};

	if (s->cause == POLICY_CAUSE_LOAD)
		str_printf(&out, "%s had ", c->host);
	else if (policy_is_measured(s->cause))
		str_printf(&out, "process %u (%s) of %s on %s %s ", c->pid, c->comm, service,
			   c->host, s->cause == POLICY_CAUSE_CPU ? "used" : "had");
	else if (s->cause == POLICY_CAUSE_ERRORS)
		str_printf(&out, "of %u requests to %s of %s, there failed ", requests, c->endpoint,
			   service);
	else if (s->percentile > 0)
		str_printf(&out, "p%g of %u requests to %s of %s took ", s->percentile, requests,
			   c->endpoint, service);
	else
		str_printf(&out, "%u requests to %s of %s took on average ", requests, c->endpoint,
			   service);
	policy_put_value(&out, s->cause, c->value);
	str_puts(&out, ", and at least ");
	policy_put_value(&out, s->cause, s->threshold);
	describe_windows(s, over, &out);
	if (s->cause == POLICY_CAUSE_LOAD)
		str_printf(&out, "; process %u (%s) of %s used most CPU time", c->pid, c->comm,
			   service);
	snprintf(c->text, sizeof(c->text), "%s", str_get(&out));
}

/* ---- whether a task is added ---- */

static bool is_of(const struct policy_firing *f, const char *service, const char *endpoint)
{
	return !strcmp(f->service, service) && !strcmp(f->cause.endpoint, endpoint);
}

/* The reason against a task, with a sentence; FIRED: there is none. */
static enum policy_verdict find_objection(struct policies *p, const struct policy_entry *e,
					  const char *service, const struct task_cause *c,
					  u64 now_ms, char ret[128])
{
	const struct policy_spec *s = &e->info.spec;
	enum policy_verdict found = POLICY_VERDICT_FIRED;
	u32 today = 0;

	if (c->at_ms + POLICY_LATE_MS < now_ms)
		return POLICY_VERDICT_LATE;
	vec_foreach (&e->info.fired, f) {
		struct task_glance g;

		today += f->cause.at_ms + POLICY_DAY_MS > now_ms;
		if (!is_of(f, service, c->endpoint))
			continue;
		if (f->cause.at_ms + s->silence_ms > now_ms) {
			snprintf(ret, 128, "task %s; silent for %llu s more", f->task,
				 (f->cause.at_ms + s->silence_ms - now_ms + 999) / 1000);
			found = POLICY_VERDICT_SILENCE;
		} else if (found == POLICY_VERDICT_FIRED && tasks_glance(p->tasks, f->task, &g) &&
			   g.state <= TASK_STATE_RUNNING) {
			snprintf(ret, 128, "task %s", f->task);
			found = POLICY_VERDICT_RUNNING;
		}
	}
	if (found == POLICY_VERDICT_FIRED && s->max_per_day && today >= s->max_per_day) {
		snprintf(ret, 128, "%u", today);
		found = POLICY_VERDICT_BUDGET;
	}
	return found;
}

static void remember(struct policy_entry *e, const char *service, const char *task,
		     const struct task_cause *c)
{
	struct policy_firing f = {.cause = *c};

	snprintf(f.service, sizeof(f.service), "%s", service);
	snprintf(f.task, sizeof(f.task), "%s", task);
	if (e->info.fired.n >= POLICY_MAX_FIRED) {
		e->info.fired.n--;
		memmove(e->info.fired.data, e->info.fired.data + 1,
			e->info.fired.n * sizeof(*e->info.fired.data));
	}
	(void)vec_push(&e->info.fired, f);
}

static int add_task(struct policies *p, const struct policy_entry *e, const char *service,
		    const struct task_cause *c, char ret_id[CONTROL_ID_BYTES], struct diag *d)
{
	struct task_spec t = e->info.spec.task;
	char by[64];

	snprintf(t.service, sizeof(t.service), "%s", service);
	/* A name that would be read as an expression: the policy's pattern has it, too. */
	snprintf(t.endpoint, sizeof(t.endpoint), "%s",
		 c->endpoint[0] == '~' ? e->info.spec.endpoint : c->endpoint);
	snprintf(by, sizeof(by), "policy %s", e->info.id);
	return tasks_add_for(p->tasks, &t, by, c, ret_id, d);
}

void policy_fire(struct policies *p, struct policy_entry *e, struct policy_seen *s,
		 const char *service, struct task_cause *cause, u64 now_ms)
{
	char why[128] = "", id[CONTROL_ID_BYTES];
	enum policy_verdict v;
	struct diag d = {};

	snprintf(cause->policy, sizeof(cause->policy), "%s", e->info.id);
	snprintf(cause->cause, sizeof(cause->cause), "%s", policy_cause_name(e->info.spec.cause));
	snprintf(cause->unit, sizeof(cause->unit), "%s", policy_cause_unit(e->info.spec.cause));
	cause->threshold = e->info.spec.threshold;
	describe(&e->info.spec, service, s->over, s->requests, cause);
	v = find_objection(p, e, service, cause, now_ms, why);
	if (v == POLICY_VERDICT_FIRED) {
		if (add_task(p, e, service, cause, id, &d) < 0) {
			v = POLICY_VERDICT_REFUSED;
			snprintf(why, sizeof(why), "%.120s", d.text);
		} else {
			remember(e, service, id, cause);
			snprintf(why, sizeof(why), "%s", id);
		}
	}
	policy_note(p, e, s, v, why, now_ms);
	if (v == POLICY_VERDICT_FIRED)
		policy_log(e, now_ms, "", "task %s: %.150s", id, cause->text);
	if (v == POLICY_VERDICT_FIRED)
		(void)policy_file_save(p, e, NULL);
}

void policy_follow_tasks(struct policies *p, struct policy_entry *e, u64 now_ms)
{
	vec_foreach (&e->info.fired, f) {
		struct task_glance g;

		if (f->silent_told || !tasks_glance(p->tasks, f->task, &g) || !g.silent[0])
			continue;
		f->silent_told = true;
		policy_log(e, now_ms, g.silent,
			   "the processes of %.60s publish no trace context, so that task %s keeps "
			   "no requests of them; their samples are in the always-on profile",
			   f->service, f->task);
	}
}
