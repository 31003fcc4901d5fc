/* SPDX-License-Identifier: Apache-2.0 */
/* The list of policies, what agents measure for them, and what happens as time goes by. */
#include "server/policies/policies.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/quota.h"
#include "base/text.h"
#include "server/policies/internal.h"

#define SAVE_MS 2000
/* Agents ask so often while they measure. */
#define ASK_MS 2000

/* ---- one policy ---- */

void policy_info_deinit(struct policy_info *i)
{
	vec_deinit(&i->fired);
	vec_deinit(&i->seen);
	vec_deinit(&i->log);
	*i = (struct policy_info){};
}

void policy_list_deinit(struct policy_list *l)
{
	vec_foreach (&l->list, i)
		policy_info_deinit(i);
	vec_deinit(&l->list);
}

int policy_entry_create(struct policy_entry **ret)
{
	struct policy_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	/* The id 0 is that of "". */
	if (strtab_init(&e->names) < 0 || vec_push(&e->window_of, 0) < 0) {
		policy_entry_destroy(NULL, e);
		return -ENOMEM;
	}
	*ret = e;
	return 0;
}

void policy_entry_destroy(struct policies *p, struct policy_entry *e)
{
	if (!e)
		return;
	vec_foreach (&e->windows, w) {
		if (p && w->classes)
			p->tables--;
		free(w->classes);
	}
	vec_deinit(&e->windows);
	vec_deinit(&e->window_of);
	policy_info_deinit(&e->info);
	strtab_deinit(&e->names);
	regex_destroy(e->regex);
	free(e);
}

void policy_log(struct policy_entry *e, u64 now_ms, const char *host, const char *fmt, ...)
{
	struct task_log line = {.at_ms = now_ms};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line.text, sizeof(line.text), fmt, ap);
	va_end(ap);
	snprintf(line.host, sizeof(line.host), "%s", host);
	text_clean(line.text);
	text_clean(line.host);
	e->changed = true;
	if (e->info.log.n >= POLICY_MAX_LOG) {
		e->info.log.n--;
		memmove(e->info.log.data, e->info.log.data + 1,
			e->info.log.n * sizeof(*e->info.log.data));
	}
	(void)vec_push(&e->info.log, line);
}

#define COPY(to, from, list)                                                                       \
	({                                                                                         \
		int copy_r_ = vec_reserve(&(to)->list, (from)->list.n);                            \
		if (copy_r_ == 0 && (from)->list.n)                                                \
			memcpy((to)->list.data, (from)->list.data,                                 \
			       (from)->list.n * sizeof(*(from)->list.data));                       \
		(to)->list.n = copy_r_ == 0 ? (from)->list.n : 0;                                  \
		copy_r_;                                                                           \
	})

static int copy_info(const struct policy_info *from, bool full, struct policy_info *ret)
{
	struct policy_info to = *from;
	int r;

	memset(&to.fired, 0, sizeof(to.fired));
	memset(&to.seen, 0, sizeof(to.seen));
	memset(&to.log, 0, sizeof(to.log));
	r = COPY(&to, from, fired);
	if (r == 0 && full)
		r = COPY(&to, from, seen);
	if (r == 0 && full)
		r = COPY(&to, from, log);
	if (r < 0)
		policy_info_deinit(&to);
	else
		*ret = to;
	return r;
}

/* ---- all policies ---- */

int policies_create(const char *directory, struct tasks *tasks, struct diag *reterr_diag,
		    struct policies **ret)
{
	_cleanup_policies_ struct policies *p = calloc(1, sizeof(*p));
	int r = 0;

	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	p->tasks = tasks;
	p->directory = directory ? strdup(directory) : NULL;
	if (directory && !p->directory)
		return -ENOMEM;
	if (directory)
		r = policy_files_load(p, reterr_diag);
	if (r == 0)
		*ret = take_ptr(p);
	return r;
}

void policies_destroy(struct policies *p)
{
	if (!p)
		return;
	vec_foreach (&p->list, e) {
		if ((*e)->changed)
			(void)policy_file_save(p, *e, NULL);
		policy_entry_destroy(p, *e);
	}
	vec_deinit(&p->list);
	task_seen_deinit(&p->seen);
	free(p->directory);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct policy_entry *policies_find(struct policies *p, const char *id)
{
	vec_foreach (&p->list, e)
		if (!strcmp((*e)->info.id, id))
			return *e;
	return NULL;
}

static int new_entry(struct policies *p, const struct policy_spec *s, const char *by,
		     struct policy_entry **ret, struct diag *reterr_diag)
{
	struct policy_entry *e = NULL;
	u32 random;
	int r = policy_entry_create(&e);

	if (r < 0)
		return r;
	e->info.spec = *s;
	r = policy_spec_check(&e->info.spec, reterr_diag);
	if (r == 0 && s->endpoint[0] == '~')
		r = regex_create(s->endpoint + 1, true, reterr_diag, &e->regex);
	if (r < 0) {
		policy_entry_destroy(p, e);
		return r;
	}
	do {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			random = (u32)clock_ns(CLOCK_MONOTONIC);
		snprintf(e->info.id, sizeof(e->info.id), "%08x", random);
	} while (policies_find(p, e->info.id));
	e->info.created_ms = clock_epoch_ms();
	snprintf(e->info.by, sizeof(e->info.by), "%s", by);
	policy_log(e, e->info.created_ms, "", *by ? "created by %s" : "created", by);
	*ret = e;
	return 0;
}

int policies_add(struct policies *p, const struct policy_spec *s, const char *by,
		 char ret_id[CONTROL_ID_BYTES], struct diag *reterr_diag)
{
	QUOTA_PAUSED; /* the list belongs to all requests */
	struct policy_entry *e = NULL;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	if (p->list.n >= POLICIES_MAX)
		r = diag_set(reterr_diag, -E2BIG, "%d policies at most: delete one", POLICIES_MAX);
	if (r == 0)
		r = new_entry(p, s, by, &e, reterr_diag);
	if (r == 0)
		r = policy_file_save(p, e, reterr_diag);
	if (r == 0 && vec_push(&p->list, e) < 0) {
		policy_file_remove(p, e->info.id);
		r = -ENOMEM;
	}
	if (r == 0)
		memcpy(ret_id, e->info.id, CONTROL_ID_BYTES);
	else
		policy_entry_destroy(p, e);
	pthread_mutex_unlock(&p->lock);
	return r;
}

static int no_such(const char *id, struct diag *reterr_diag)
{
	return diag_set(reterr_diag, -ENOENT, "there is no policy %.40s", id);
}

int policies_delete(struct policies *p, const char *id, struct diag *reterr_diag)
{
	QUOTA_PAUSED;
	struct policy_entry *found = NULL;
	size_t left = 0;

	pthread_mutex_lock(&p->lock);
	for (size_t k = 0; k < p->list.n; k++)
		if (!strcmp(p->list.data[k]->info.id, id))
			found = p->list.data[k];
		else
			p->list.data[left++] = p->list.data[k];
	p->list.n = left;
	if (found)
		policy_file_remove(p, id);
	policy_entry_destroy(p, found);
	pthread_mutex_unlock(&p->lock);
	return found ? 0 : no_such(id, reterr_diag);
}

int policies_list(struct policies *p, struct policy_list *ret)
{
	struct policy_list out = {};
	int r = 0;

	pthread_mutex_lock(&p->lock);
	for (size_t k = p->list.n; k && r == 0; k--) {
		struct policy_info i;

		r = copy_info(&p->list.data[k - 1]->info, false, &i);
		if (r == 0 && (r = vec_push(&out.list, i)) < 0)
			policy_info_deinit(&i);
	}
	pthread_mutex_unlock(&p->lock);
	if (r < 0)
		policy_list_deinit(&out);
	else
		*ret = out;
	return r;
}

int policies_get(struct policies *p, const char *id, struct policy_info *ret,
		 struct diag *reterr_diag)
{
	struct policy_entry *e;
	int r;

	pthread_mutex_lock(&p->lock);
	e = policies_find(p, id);
	r = e ? copy_info(&e->info, true, ret) : no_such(id, reterr_diag);
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* ---- what agents measure ---- */

/* Of many agents, the one that was heard of longest ago makes room. NULL: out of memory. */
static struct policy_seen *seen_of_host(struct policy_entry *e, const char *host)
{
	struct policy_seen new = {}, *oldest = NULL;

	vec_foreach (&e->info.seen, s) {
		if (!strcmp(s->host, host))
			return s;
		if (!oldest || s->at_ms < oldest->at_ms)
			oldest = s;
	}
	snprintf(new.host, sizeof(new.host), "%s", host);
	if (e->info.seen.n < POLICY_MAX_SEEN)
		return vec_push(&e->info.seen, new) < 0 ? NULL
							: &e->info.seen.data[e->info.seen.n - 1];
	*oldest = new;
	return oldest;
}

static void take_measured(struct policy_seen *s, const struct control_measured *m)
{
	s->value = m->value;
	s->over = m->over;
	s->pid = m->pid;
	memcpy(s->comm, m->comm, sizeof(s->comm));
	memcpy(s->service, m->service, sizeof(s->service));
}

/* An agent tells again what it has told, until it knows that it was heard. */
static void note_fired(struct policies *p, struct policy_entry *e, struct policy_seen *s,
		       const struct control_watched *w, u64 now_ms)
{
	const bool any = !strcmp(e->info.spec.service, "*");
	u64 newest = s->fired_ms;

	for (u32 k = 0; k < w->n_fired; k++) {
		const struct control_measured *m = &w->fired[k];
		struct task_cause c = {.value = m->value, .at_ms = m->at_ms, .pid = m->pid};

		if (m->at_ms <= s->fired_ms || m->at_ms > now_ms + POLICY_LATE_MS ||
		    m->value < e->info.spec.threshold ||
		    (!any && strcmp(m->service, e->info.spec.service) != 0))
			continue;
		newest = MAX(newest, m->at_ms);
		take_measured(s, m);
		snprintf(c.host, sizeof(c.host), "%s", s->host);
		memcpy(c.comm, m->comm, sizeof(c.comm));
		policy_fire(p, e, s, m->service, &c, now_ms);
	}
	s->fired_ms = newest;
}

static void note_last(struct policies *p, struct policy_entry *e, struct policy_seen *s,
		      const struct control_watched *w, u64 now_ms)
{
	const struct control_measured *m = &w->last;
	_cleanup_str_ struct str who = {};
	enum policy_verdict v;

	if (!w->windows || w->windows == s->windows)
		return;
	s->at_ms = m->at_ms ? m->at_ms : now_ms;
	s->windows = w->windows;
	take_measured(s, m);
	if (m->pid)
		str_printf(&who, "process %u (%s)%s%.60s", m->pid, m->comm,
			   e->info.spec.service[0] == '*' ? " of " : "",
			   e->info.spec.service[0] == '*' ? m->service : "");
	v = m->value >= e->info.spec.threshold ? POLICY_VERDICT_OVER : POLICY_VERDICT_BELOW;
	if (v == POLICY_VERDICT_OVER && m->over >= e->info.spec.count && m->pid)
		return; /* it has fired */
	/* The load of a machine may be high without any. */
	if (!w->processes || (v == POLICY_VERDICT_OVER && !m->pid))
		v = POLICY_VERDICT_NO_PROCESS;
	policy_note(p, e, s, v, str_get(&who), now_ms);
}

static void note_watched(struct policies *p, const struct control_request *q,
			 const struct control_watched *w, u64 now_ms)
{
	struct policy_entry *e = policies_find(p, w->id);
	struct policy_seen *s;

	if (!e || !policy_is_measured(e->info.spec.cause))
		return;
	s = seen_of_host(e, q->host[0] ? q->host : q->host_id);
	if (!s)
		return;
	s->processes = w->processes;
	note_last(p, e, s, w, now_ms);
	note_fired(p, e, s, w, now_ms);
}

static int tell_watch(const struct policy_info *i, struct control_response *ret)
{
	struct control_watch w = {
		.quantity = (enum control_quantity)i->spec.cause,
		.threshold = i->spec.threshold,
		.window_ms = (u32)i->spec.window_ms,
		.count = i->spec.count,
		.of = i->spec.of,
	};

	memcpy(w.id, i->id, sizeof(w.id));
	memcpy(w.service, i->spec.service, sizeof(w.service));
	return vec_push(&ret->watches, w);
}

int policies_sync(struct policies *p, const struct control_request *q, struct control_response *ret)
{
	u64 now = clock_epoch_ms();
	int r = 0;

	pthread_mutex_lock(&p->lock);
	{
		QUOTA_PAUSED; /* the list belongs to all requests */
		vec_foreach (&q->watched, w)
			note_watched(p, q, w, now);
	}
	vec_foreach (&p->list, e)
		if (r == 0 && policy_is_measured((*e)->info.spec.cause))
			r = tell_watch(&(*e)->info, ret);
	pthread_mutex_unlock(&p->lock);
	if (ret->watches.n)
		ret->next_ms = MIN(ret->next_ms, (u32)ASK_MS);
	return r;
}

/* ---- as time goes by ---- */

void policies_tick(struct policies *p)
{
	QUOTA_PAUSED;
	u64 now = clock_epoch_ms();

	pthread_mutex_lock(&p->lock);
	vec_foreach (&p->list, at) {
		struct policy_entry *e = *at;

		policy_end_windows(p, e, now);
		policy_follow_tasks(p, e, now);
		if (e->changed && (now >= e->saved_ms + SAVE_MS || now < e->saved_ms))
			(void)policy_file_save(p, e, NULL);
	}
	pthread_mutex_unlock(&p->lock);
}

void policies_metrics(struct policies *p, struct str *out)
{
	u64 verdicts[POLICY_VERDICT_N];
	size_t n;

	pthread_mutex_lock(&p->lock);
	n = p->list.n;
	memcpy(verdicts, p->verdicts, sizeof(verdicts));
	pthread_mutex_unlock(&p->lock);
	metrics_single(out, "culprit_policies", "Policies.", (double)n);
	metrics_family(out, "culprit_policies_verdicts_total",
		       "Windows that policies judged, and times that one fired, by what came of "
		       "it.");
	for (u32 v = POLICY_VERDICT_NOTHING + 1; v < POLICY_VERDICT_N; v++)
		metrics_sample(out, "culprit_policies_verdicts_total",
			       METRICS_LABELS({"is", policy_verdict_name(v)}), (double)verdicts[v]);
}
