/* SPDX-License-Identifier: Apache-2.0 */
/* The list of tasks: adding, cancelling, copies for readers, and what happens as time goes by. */
#include "server/tasks/tasks.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/quota.h"
#include "base/text.h"
#include "server/tasks/internal.h"

#define MAX_ASKERS 10000

const char *task_count_name(enum task_count c)
{
	static const char *const names[] = {
#define X(id, name, help) name,
		TASK_COUNTS(X)
#undef X
	};

	return c < TASK_COUNT_N ? names[c] : "";
}

const char *task_state_name(enum task_state s)
{
	static const char *const names[] = {
#define X(id, name, help) name,
		TASK_STATES(X)
#undef X
	};

	return s < TASK_STATE_N ? names[s] : "";
}

const char *task_outcome_name(u32 o)
{
	return o < CONTROL_OUTCOME_N	   ? control_outcome_name((enum control_outcome)o)
	       : o == TASK_OUTCOME_WAITING ? "waiting"
	       : o == TASK_OUTCOME_NOBODY  ? "nobody"
					   : "";
}

/* ---- one task ---- */

void task_info_deinit(struct task_info *t)
{
	vec_deinit(&t->log);
	vec_deinit(&t->agents);
	vec_deinit(&t->endpoints);
	vec_deinit(&t->requests);
	*t = (struct task_info){};
}

void task_list_deinit(struct task_list *l)
{
	vec_foreach (&l->list, t)
		task_info_deinit(t);
	vec_deinit(&l->list);
}

int task_entry_create(struct task_entry **ret)
{
	struct task_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	if (strtab_init(&e->names) < 0) {
		free(e);
		return -ENOMEM;
	}
	*ret = e;
	return 0;
}

void task_entry_destroy(struct task_entry *e)
{
	if (!e)
		return;
	task_info_deinit(&e->info);
	strtab_deinit(&e->names);
	map_deinit(&e->agents);
	regex_destroy(e->regex);
	vec_foreach (&e->windows, w)
		free(*w);
	vec_deinit(&e->windows);
	free(e);
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

static int copy_info(const struct task_info *from, bool full, struct task_info *ret)
{
	struct task_info to = *from;
	int r;

	memset(&to.log, 0, sizeof(to.log));
	memset(&to.agents, 0, sizeof(to.agents));
	memset(&to.endpoints, 0, sizeof(to.endpoints));
	memset(&to.requests, 0, sizeof(to.requests));
	r = full ? COPY(&to, from, agents) : 0;
	if (r == 0 && full)
		r = COPY(&to, from, endpoints);
	if (r == 0 && full)
		r = COPY(&to, from, log);
	if (r == 0 && full)
		r = COPY(&to, from, requests);
	if (r < 0)
		task_info_deinit(&to);
	else
		*ret = to;
	return r;
}

void task_log(struct task_entry *e, u64 now_ms, const char *host, const char *fmt, ...)
{
	struct task_log line = {.at_ms = now_ms};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line.text, sizeof(line.text), fmt, ap);
	va_end(ap);
	snprintf(line.host, sizeof(line.host), "%s", host);
	text_clean(line.text);
	text_clean(line.host);
	e->changed = e->urgent = true;
	if (e->info.log.n >= TASKS_MAX_LOG) {
		e->info.log.n--;
		memmove(e->info.log.data, e->info.log.data + 1,
			e->info.log.n * sizeof(*e->info.log.data));
	}
	(void)vec_push(&e->info.log, line);
}

/* ---- states ---- */

static bool has_enough(const struct task_info *i)
{
	const u32 max = i->spec.max_requests;
	u64 done = i->outcomes[CONTROL_OUTCOME_KEPT] + i->outcomes[CONTROL_OUTCOME_PARTLY] -
		   i->control_outcomes[CONTROL_OUTCOME_KEPT] -
		   i->control_outcomes[CONTROL_OUTCOME_PARTLY];

	return max && done >= max;
}

/* Of another kind than requests: whether each agent that began has delivered, or failed. */
static bool has_all(const struct task_info *i, u64 now_ms)
{
	if (i->spec.kind == TASK_KIND_REQUESTS || !i->agents.n ||
	    now_ms < i->start_ms + TASKS_BEGIN_MS)
		return false;
	vec_foreach (&i->agents, a)
		if (a->state == CONTROL_STATE_ARMED)
			return false;
	return true;
}

enum task_state task_state(const struct task_info *i, u64 now_ms)
{
	if (i->cancelled_ms)
		return TASK_STATE_CANCELLED;
	if (i->end_ms && now_ms >= i->end_ms)
		return TASK_STATE_ENDED;
	return now_ms < i->start_ms ? TASK_STATE_QUEUED : TASK_STATE_RUNNING;
}

bool task_lingers(const struct task_info *i, u64 now_ms)
{
	return i->end_ms && now_ms >= i->end_ms && now_ms - i->end_ms < TASKS_LINGER_MS;
}

/* Of another kind than requests: says of each agent that has not delivered why it will not. */
static void give_up_agents(struct task_entry *e, u64 now_ms)
{
	vec_foreach (&e->info.agents, a) {
		bool began = a->state == CONTROL_STATE_ARMED;

		if (!began && a->state != CONTROL_STATE_QUEUED)
			continue;
		a->state = CONTROL_STATE_REFUSED;
		snprintf(a->reason, sizeof(a->reason), "%s",
			 began ? "failed: it has delivered nothing"
			       : "it was busy with another task for the first minute");
		task_log(e, now_ms, a->host, "%s", a->reason);
	}
}

void task_update_state(struct task_entry *e, u64 now_ms)
{
	struct task_info *i = &e->info;
	enum task_state s = task_state(i, now_ms);

	if (s == TASK_STATE_RUNNING && (has_enough(i) || has_all(i, now_ms))) {
		i->end_ms = now_ms;
		i->revision++;
		s = TASK_STATE_ENDED;
	}
	if (s == i->said)
		return;
	/* A cancellation has a line with the name of who did it. */
	if (s == TASK_STATE_RUNNING)
		task_log(e, now_ms, "", "started");
	else if (s == TASK_STATE_ENDED && has_enough(i))
		task_log(e, now_ms, "", "ended: has its %u requests", i->spec.max_requests);
	else if (s == TASK_STATE_ENDED && has_all(i, now_ms))
		task_log(e, now_ms, "", "ended: no agent runs it any more");
	else if (s == TASK_STATE_ENDED)
		task_log(e, now_ms, "", "ended: its time is over");
	if (s == TASK_STATE_ENDED && i->spec.kind != TASK_KIND_REQUESTS)
		give_up_agents(e, now_ms);
	i->said = s;
}

/* ---- all tasks ---- */

u64 tasks_random(struct tasks *t)
{
	t->random += 0x9e3779b97f4a7c15ULL;
	return hash_u64(t->random);
}

int tasks_create(const char *directory, struct diag *reterr_diag, struct tasks **ret)
{
	struct tasks *t = calloc(1, sizeof(*t));
	int r = 0;

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->save_lock, NULL);
	if (getrandom(&t->random, sizeof(t->random), 0) != sizeof(t->random))
		r = diag_set(reterr_diag, -EIO, "no random numbers");
	if (r == 0)
		r = strtab_init(&t->services);
	if (r == 0 && directory) {
		t->directory = strdup(directory);
		r = t->directory ? task_files_load(t, reterr_diag) : -ENOMEM;
	}
	/* Above all numbers of earlier runs, also of tasks that were deleted. */
	t->number = MAX(t->number, clock_epoch_ms() * 1000);
	if (r < 0) {
		tasks_destroy(t);
		return r;
	}
	*ret = t;
	return 0;
}

void tasks_destroy(struct tasks *t)
{
	if (!t)
		return;
	vec_foreach (&t->list, e) {
		if ((*e)->changed)
			(*e)->urgent = true;
	}
	(void)task_files_save(t, NULL);
	vec_foreach (&t->list, e)
		task_entry_destroy(*e);
	vec_deinit(&t->list);
	task_seen_deinit(&t->seen);
	map_deinit(&t->askers);
	strtab_deinit(&t->services);
	pthread_mutex_destroy(&t->lock);
	pthread_mutex_destroy(&t->save_lock);
	free(t->directory);
	free(t);
}

struct task_entry *tasks_find(struct tasks *t, const char *id)
{
	vec_foreach (&t->list, e) {
		if (!strcmp((*e)->info.id, id))
			return *e;
	}
	return NULL;
}

static size_t position(const struct tasks *t, const struct task_entry *e)
{
	size_t i = 0;

	while (i < t->list.n && t->list.data[i] != e)
		i++;
	return i;
}

static void take_out(struct tasks *t, size_t at)
{
	t->list.n--;
	memmove(t->list.data + at, t->list.data + at + 1, (t->list.n - at) * sizeof(*t->list.data));
}

/* Takes the task out that ended first, if there are too many. The caller holds both locks. */
static int make_room(struct tasks *t, u64 now_ms, struct diag *reterr_diag)
{
	struct task_entry *oldest = NULL;
	size_t live = 0;

	vec_foreach (&t->list, e) {
		const struct task_info *i = &(*e)->info;

		if (!i->end_ms || now_ms < i->end_ms)
			live++;
		else if (!oldest || i->end_ms < oldest->info.end_ms)
			oldest = *e;
	}
	if (live >= TASKS_MAX_LIVE)
		return diag_set(reterr_diag, -E2BIG,
				"%d tasks run or wait for their start: cancel one", TASKS_MAX_LIVE);
	if (t->list.n < TASKS_MAX || !oldest)
		return 0;
	task_file_remove(t, oldest->info.id);
	take_out(t, position(t, oldest));
	task_entry_destroy(oldest);
	return 0;
}

/*
 * A task of another kind than requests begins at a moment of its own, by which agents tell whether
 * they have run it, and leaves agents time to begin and to deliver.
 */
static void set_times(struct tasks *t, struct task_info *i, u64 now_ms)
{
	bool again = i->spec.kind != TASK_KIND_REQUESTS;

	i->created_ms = now_ms;
	i->start_ms = MAX(i->spec.start_ms, now_ms);
	i->end_ms = i->spec.duration_ms ? i->start_ms + i->spec.duration_ms : 0;
	if (!again)
		return;
	while (again) {
		again = false;
		vec_foreach (&t->list, e)
			again |= (*e)->info.spec.kind == i->spec.kind &&
				 (*e)->info.start_ms == i->start_ms;
		i->start_ms += again;
	}
	i->end_ms = i->start_ms + TASKS_BEGIN_MS + i->spec.duration_ms + TASKS_UPLOAD_MS;
}

static int new_entry(struct tasks *t, const struct task_spec *s, const char *by,
		     const struct task_cause *cause, struct task_entry **ret,
		     struct diag *reterr_diag)
{
	_cleanup_task_entry_ struct task_entry *e = NULL;
	u64 now = clock_epoch_ms();
	int r = task_entry_create(&e);

	if (r < 0)
		return r;
	e->info.spec = *s;
	r = task_spec_check(&e->info.spec, reterr_diag);
	if (r == 0 && s->endpoint[0] == '~')
		r = regex_create(s->endpoint + 1, true, reterr_diag, &e->regex);
	if (r < 0)
		return r;
	do
		snprintf(e->info.id, sizeof(e->info.id), "%08x", (u32)tasks_random(t));
	while (tasks_find(t, e->info.id));
	e->info.revision = 1;
	set_times(t, &e->info, now);
	snprintf(e->info.by, sizeof(e->info.by), "%s", by);
	e->info.said = TASK_STATE_QUEUED;
	if (cause) {
		e->info.cause = *cause;
		task_log(e, now, "", "created by policy %s: %.140s", cause->policy, cause->text);
	} else {
		task_log(e, now, "", *by ? "created by %s" : "created", by);
	}
	task_update_state(e, now);
	*ret = take_ptr(e);
	return 0;
}

int tasks_add_for(struct tasks *t, const struct task_spec *s, const char *by,
		  const struct task_cause *cause, char ret_id[CONTROL_ID_BYTES],
		  struct diag *reterr_diag)
{
	QUOTA_PAUSED; /* the list belongs to all requests */
	struct task_entry *e = NULL;
	char id[CONTROL_ID_BYTES];
	int r;

	pthread_mutex_lock(&t->save_lock);
	pthread_mutex_lock(&t->lock);
	r = make_room(t, clock_epoch_ms(), reterr_diag);
	if (r == 0)
		r = new_entry(t, s, by, cause, &e, reterr_diag);
	if (r == 0)
		memcpy(id, e->info.id, sizeof(id));
	if (r == 0 && vec_push(&t->list, e) < 0) {
		task_entry_destroy(e);
		r = -ENOMEM;
	}
	pthread_mutex_unlock(&t->lock);
	pthread_mutex_unlock(&t->save_lock);
	if (r == 0) {
		r = task_files_save(t, reterr_diag);
		if (r < 0)
			(void)tasks_delete(t, id, NULL);
		else
			memcpy(ret_id, id, sizeof(id));
	}
	return r;
}

int tasks_add(struct tasks *t, const struct task_spec *s, const char *by,
	      char ret_id[CONTROL_ID_BYTES], struct diag *reterr_diag)
{
	return tasks_add_for(t, s, by, NULL, ret_id, reterr_diag);
}

static int no_such(const char *id, struct diag *reterr_diag)
{
	return diag_set(reterr_diag, -ENOENT, "there is no task %.40s", id);
}

int tasks_cancel(struct tasks *t, const char *id, const char *by, struct diag *reterr_diag)
{
	QUOTA_PAUSED;
	u64 now = clock_epoch_ms();
	struct task_entry *e;
	int r = 0;

	pthread_mutex_lock(&t->lock);
	e = tasks_find(t, id);
	if (!e) {
		r = no_such(id, reterr_diag);
	} else if (!e->info.end_ms || now < e->info.end_ms) {
		e->info.end_ms = e->info.cancelled_ms = now;
		e->info.revision++;
		task_log(e, now, "", *by ? "cancelled by %s" : "cancelled", by);
		e->info.said = TASK_STATE_CANCELLED;
	}
	pthread_mutex_unlock(&t->lock);
	return r < 0 ? r : task_files_save(t, reterr_diag);
}

int tasks_delete(struct tasks *t, const char *id, struct diag *reterr_diag)
{
	QUOTA_PAUSED;
	struct task_entry *e;

	pthread_mutex_lock(&t->save_lock);
	pthread_mutex_lock(&t->lock);
	e = tasks_find(t, id);
	if (e) {
		take_out(t, position(t, e));
		task_file_remove(t, e->info.id);
		task_entry_destroy(e);
	}
	pthread_mutex_unlock(&t->lock);
	pthread_mutex_unlock(&t->save_lock);
	return e ? 0 : no_such(id, reterr_diag);
}

int tasks_list(struct tasks *t, struct task_list *ret)
{
	struct task_list out = {};
	int r = 0;

	pthread_mutex_lock(&t->lock);
	for (size_t k = t->list.n; k && r == 0; k--) {
		struct task_info i;

		r = copy_info(&t->list.data[k - 1]->info, false, &i);
		if (r == 0 && (r = vec_push(&out.list, i)) < 0)
			task_info_deinit(&i);
	}
	pthread_mutex_unlock(&t->lock);
	if (r < 0)
		task_list_deinit(&out);
	else
		*ret = out;
	return r;
}

int tasks_get(struct tasks *t, const char *id, struct task_info *ret, struct diag *reterr_diag)
{
	struct task_entry *e;
	int r;

	pthread_mutex_lock(&t->lock);
	e = tasks_find(t, id);
	r = e ? copy_info(&e->info, true, ret) : no_such(id, reterr_diag);
	pthread_mutex_unlock(&t->lock);
	return r;
}

bool tasks_glance(struct tasks *t, const char *id, struct task_glance *ret)
{
	struct task_glance out = {};
	struct task_entry *e;

	pthread_mutex_lock(&t->lock);
	e = tasks_find(t, id);
	if (e) {
		out.state = task_state(&e->info, clock_epoch_ms());
		vec_foreach (&e->info.agents, a)
			if (a->state == CONTROL_STATE_SILENT)
				snprintf(out.silent, sizeof(out.silent), "%s", a->host);
		*ret = out;
	}
	pthread_mutex_unlock(&t->lock);
	return e;
}

/* ---- as time goes by ---- */

static void settle_old(struct tasks *t, struct task_entry *e, u64 now_ms)
{
	vec_foreach (&e->info.requests, q) {
		if (q->outcome == TASK_OUTCOME_WAITING && now_ms >= q->decided_ms + TASKS_NOBODY_MS)
			(void)task_settle(t, e, q, TASK_OUTCOME_NOBODY, now_ms);
	}
}

static void forget_askers(struct tasks *t, u64 now_ms)
{
	if (t->askers.n <= MAX_ASKERS)
		return;
	map_foreach (&t->askers, slot) {
		if (now_ms - slot->value > TASKS_AWAY_MS)
			(void)map_del(&t->askers, slot->key, NULL);
	}
	if (t->askers.n > MAX_ASKERS)
		map_clear(&t->askers);
}

void tasks_tick(struct tasks *t)
{
	QUOTA_PAUSED;
	u64 now = clock_epoch_ms();

	pthread_mutex_lock(&t->lock);
	vec_foreach (&t->list, e) {
		settle_old(t, *e, now);
		task_update_state(*e, now);
	}
	forget_askers(t, now);
	pthread_mutex_unlock(&t->lock);
	(void)task_files_save(t, NULL);
}

void tasks_metrics(struct tasks *t, struct str *out)
{
	u64 states[TASK_STATE_N] = {}, now = clock_epoch_ms(), counts[TASK_COUNT_N],
	    outcomes[TASK_OUTCOME_N], questions, askers = 0;

	pthread_mutex_lock(&t->lock);
	vec_foreach (&t->list, e)
		states[task_state(&(*e)->info, now)]++;
	map_foreach (&t->askers, slot) {
		if (now < slot->value + TASKS_AWAY_MS)
			askers++;
	}
	memcpy(counts, t->counts, sizeof(counts));
	memcpy(outcomes, t->outcomes, sizeof(outcomes));
	questions = t->questions;
	pthread_mutex_unlock(&t->lock);
	metrics_family(out, "culprit_tasks", "Tasks by state.");
	for (u32 s = 0; s < TASK_STATE_N; s++)
		metrics_sample(out, "culprit_tasks", METRICS_LABELS({"state", task_state_name(s)}),
			       (double)states[s]);
	metrics_single(out, "culprit_tasks_agents", "Agents that asked for tasks lately.",
		       (double)askers);
	metrics_single(out, "culprit_tasks_questions_total", "Questions of agents.",
		       (double)questions);
	metrics_family(out, "culprit_tasks_requests_total",
		       "Spans that tasks looked at, by what became of each, once for each task.");
	for (u32 k = 0; k < TASK_COUNT_N; k++)
		metrics_sample(out, "culprit_tasks_requests_total",
			       METRICS_LABELS({"is", task_count_name(k)}), (double)counts[k]);
	metrics_family(out, "culprit_tasks_kept_total",
		       "Requests that were to be kept, by what became of each.");
	for (u32 k = 0; k < TASK_OUTCOME_N; k++)
		if (k != TASK_OUTCOME_WAITING)
			metrics_sample(out, "culprit_tasks_kept_total",
				       METRICS_LABELS({"outcome", task_outcome_name(k)}),
				       (double)outcomes[k]);
}
