/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of pprof and of async-profiler for SkyWalking's agents. An agent asks for them, records for
 * the time of the task, and sends one file: first what it is, then, when the server has agreed, its
 * bytes in parts. The file is stored as profiles of the task's service, with the labels `task` and
 * service.instance.id.
 *
 * An agent runs one task of a kind at a time, and drops one that is not newer than the last that it
 * was given: so it gets them in the order of their starts, and the next one when the one before
 * was delivered. Its question says which it got last, so that an answer that was lost is given
 * again.
 *
 * A file is held in memory until it is whole: of UPLOAD_BYTES at most, all together of
 * UPLOADS_BYTES, each for UPLOAD_MS.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pb.h"
#include "base/quota.h"
#include "format/skywalking.pb-c.h"
#include "server/api/internal.h"

#define UPLOAD_BYTES (30u << 20) /* SkyWalking's own limit */
#define UPLOADS_BYTES (120u << 20)
#define UPLOAD_MS 120000
#define MESSAGE_BYTES (16u << 20) /* of memory for one message, whose parts are 1 MiB */
#define MINUTE_MS 60000

/* What an agent sends of its file, and the answer. */
enum status { STATUS_OK, STATUS_FAILED, STATUS_TOO_LARGE };

/* ---- giving tasks ---- */

/* A task that an agent may have to do with. */
struct candidate {
	struct task_info task;
	enum control_state state; /* of this agent in it; QUEUED: it has none yet */
	char reason[CONTROL_TEXT_BYTES];
};

struct candidates {
	vec(struct candidate) list; /* in the order of their starts */
};

static void candidates_deinit(struct candidates *c)
{
	vec_foreach (&c->list, e)
		task_info_deinit(&e->task);
	vec_deinit(&c->list);
}
#define _cleanup_candidates_ __attribute__((cleanup(candidates_deinit)))

static const struct task_agent *find_agent(const struct task_info *t, const char *instance)
{
	char host[CONTROL_TEXT_BYTES];

	api_skywalking_host(instance, host);
	vec_foreach (&t->agents, a)
		if (!strcmp(a->host, host) && !strcmp(a->host_id, TASKS_SKYWALKING))
			return a;
	return NULL;
}

static int compare_starts(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->task.start_ms < y->task.start_ms ? -1 : x->task.start_ms > y->task.start_ms;
}

static int find_candidates(struct api *a, enum task_kind kind,
			   const Skywalking__ProfileTaskCommandQuery *q, struct candidates *ret)
{
	_cleanup_task_list_ struct task_list all = {};
	u64 now = clock_epoch_ms();
	int r = tasks_list(a->o.tasks, &all);

	for (size_t i = 0; i < all.list.n && r == 0; i++) {
		const struct task_info *t = &all.list.data[i];
		struct candidate c = {.state = CONTROL_STATE_QUEUED};
		const struct task_agent *g;

		if (t->spec.kind != kind || task_state(t, now) != TASK_STATE_RUNNING ||
		    strcmp(t->spec.service, q->service) != 0 ||
		    tasks_get(a->o.tasks, t->id, &c.task, NULL) < 0)
			continue;
		g = find_agent(&c.task, q->service_instance);
		if (g) {
			c.state = g->state;
			memcpy(c.reason, g->reason, sizeof(c.reason));
		}
		r = vec_push(&ret->list, c);
		if (r < 0)
			task_info_deinit(&c.task);
	}
	if (ret->list.n)
		qsort(ret->list.data, ret->list.n, sizeof(*ret->list.data), compare_starts);
	return r;
}

/* What async-profiler is told beside the file's name. */
static void put_arguments(const struct task_spec *s, char *ret, size_t n)
{
	static const char *const clocks[] = {"cpu", "wall", "ctimer", "itimer"};
	int at = 0;

	ret[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(clocks); i++)
		if (task_has_event(s, clocks[i]))
			at = snprintf(ret, n, "event=%s,interval=%llu", clocks[i],
				      1000ULL * s->period_us);
	if (task_has_event(s, "alloc"))
		at += snprintf(ret + at, n - (size_t)at, "%salloc", at ? "," : "");
	if (task_has_event(s, "lock"))
		snprintf(ret + at, n - (size_t)at, "%slock", at ? "," : "");
}

static int put_pprof(const struct task_info *t, struct str *out)
{
	struct api_skywalking_arguments a = {};

	api_skywalking_put_text(&a, "SerialNumber", t->id);
	api_skywalking_put_text(&a, "TaskId", t->id);
	api_skywalking_put_text(&a, "Events", t->spec.events);
	api_skywalking_put_number(&a, "Duration", t->spec.duration_ms / MINUTE_MS);
	/* The rates: one event of a lock in so many; one in so many ns of blocking. */
	if (task_has_event(&t->spec, "mutex"))
		api_skywalking_put_number(&a, "DumpPeriod", 10);
	else if (task_has_event(&t->spec, "block"))
		api_skywalking_put_number(&a, "DumpPeriod", 1000ULL * t->spec.period_us);
	api_skywalking_put_number(&a, "CreateTime", t->start_ms);
	return api_skywalking_command(&a, "PprofTaskQuery", out);
}

static int put_async_profiler(const struct task_info *t, struct str *out)
{
	struct api_skywalking_arguments a = {};
	char arguments[96];

	put_arguments(&t->spec, arguments, sizeof(arguments));
	api_skywalking_put_text(&a, "SerialNumber", t->id);
	api_skywalking_put_text(&a, "TaskId", t->id);
	api_skywalking_put_number(&a, "Duration", t->spec.duration_ms / 1000);
	api_skywalking_put_text(&a, "ExecArgs", arguments);
	api_skywalking_put_number(&a, "CreateTime", t->start_ms);
	return api_skywalking_command(&a, "AsyncProfilerTaskQuery", out);
}

static int give(struct api *a, const Skywalking__ProfileTaskCommandQuery *q,
		const struct task_info *t, struct str *out)
{
	int r = api_skywalking_report(a, q->service_instance, t, CONTROL_STATE_ARMED, "", 0);

	if (r < 0)
		return r;
	log_info("task %s: %s given to SkyWalking's agent %.60s of %.60s", t->id,
		 task_kind_name(t->spec.kind), q->service_instance, q->service);
	return t->spec.kind == TASK_KIND_PPROF ? put_pprof(t, out) : put_async_profiler(t, out);
}

static int give_next(struct api *a, const Skywalking__ProfileTaskCommandQuery *q,
		     const struct candidates *all, struct str *out)
{
	u64 now = clock_epoch_ms(), last = q->last_command_time > 0 ? (u64)q->last_command_time : 0;
	bool busy = false;
	int r = 0;

	vec_foreach (&all->list, c) {
		const struct task_info *t = &c->task;
		const char *instance = q->service_instance;

		if (r < 0)
			break;
		if (c->state == CONTROL_STATE_ENDED || c->state == CONTROL_STATE_REFUSED)
			continue;
		if (c->state == CONTROL_STATE_ARMED && last >= t->start_ms) {
			busy = true;
			r = api_skywalking_report(a, instance, t, CONTROL_STATE_ARMED, c->reason,
						  0);
		} else if (now >= t->start_ms + TASKS_BEGIN_MS) {
			if (c->state == CONTROL_STATE_ARMED)
				r = api_skywalking_report(a, instance, t, CONTROL_STATE_REFUSED,
							  "failed: it was started again and has "
							  "forgotten the task",
							  0);
		} else if (busy) {
			r = api_skywalking_report(a, instance, t, CONTROL_STATE_QUEUED,
						  "SkyWalking's agents run one task at a time", 0);
		} else if (last >= t->start_ms) {
			r = api_skywalking_report(a, instance, t, CONTROL_STATE_REFUSED,
						  "the agent was given a later task before", 0);
		} else {
			busy = true;
			r = give(a, q, t, out);
		}
	}
	return r;
}

int api_skywalking_profile_commands(struct api *a, enum task_kind kind, const u8 *data, size_t n,
				    struct str *out, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(1u << 20);
	_cleanup_candidates_ struct candidates all = {};
	const Skywalking__ProfileTaskCommandQuery *q;
	ProtobufCMessage *m = NULL;
	int r = pb_unpack(&skywalking__profile_task_command_query__descriptor,
			  "a question for tasks of a profiler", data, n, &arena, &m, reterr_diag);

	if (r < 0 || !a->o.tasks)
		return r;
	q = (const Skywalking__ProfileTaskCommandQuery *)m;
	r = find_candidates(a, kind, q, &all);
	return r < 0 ? r : give_next(a, q, &all, out);
}

/* ---- taking files ---- */

/* A call, from its first message on. */
struct upload {
	struct api *api;
	enum task_kind kind;
	struct task_info task; /* as it was when the call began */
	char instance[CONTROL_TEXT_BYTES];
	u64 began_ms;
	u64 size; /* as the agent says; taken from the room of all */
	struct str data;
	bool begun, settled; /* settled: its end is known to the task */
};

static int settle(struct upload *u, enum control_state state, u64 samples, const char *fmt, ...)
	CULPRIT_PRINTF(4, 5);
static int settle(struct upload *u, enum control_state state, u64 samples, const char *fmt, ...)
{
	char text[CONTROL_TEXT_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	u->settled = true;
	return api_skywalking_report(u->api, u->instance, &u->task, state, text, samples);
}

static void upload_end(void *state)
{
	struct upload *u = state;
	char text[CONTROL_TEXT_BYTES];

	snprintf(text, sizeof(text), "failed: it broke off after %zu of %llu bytes", u->data.n,
		 u->size);
	if (u->begun && !u->settled)
		api_skywalking_broke_off(u->api, u->instance, &u->task, text);
	atomic_fetch_sub(&u->api->uploading, u->size);
	task_info_deinit(&u->task);
	str_deinit(&u->data);
	free(u);
}

static int upload_of(struct api *a, struct net_talk *talk, enum task_kind kind, struct upload **ret)
{
	struct upload *u = talk->state;

	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return -ENOMEM;
		u->api = a;
		u->kind = kind;
		u->began_ms = clock_epoch_ms();
		talk->state = u;
		talk->end = upload_end;
	}
	*ret = u;
	return 0;
}

/* The call ends with this error, which the task is told, too. */
static int fail(struct upload *u, int error, struct diag *reterr_diag, const char *text)
{
	(void)settle(u, CONTROL_STATE_REFUSED, 0, "failed: %s", text);
	return diag_set(reterr_diag, error, "%s", text);
}

static int answer(struct net_response *ret, enum status status)
{
	Skywalking__ProfilerResponse m = SKYWALKING__PROFILER_RESPONSE__INIT;

	m.status = status;
	ret->answers = true;
	return pb_pack(&m.base, &ret->body);
}

static bool take_room(struct upload *u, u64 size)
{
	u64 all = atomic_fetch_add(&u->api->uploading, size) + size;

	if (all > UPLOADS_BYTES) {
		atomic_fetch_sub(&u->api->uploading, size);
		return false;
	}
	u->size = size;
	return true;
}

static int begin(struct upload *u, const Skywalking__ProfilerMetaData *m, const char *error,
		 struct net_response *ret, struct diag *reterr_diag)
{
	const struct task_agent *g;
	int r = tasks_get(u->api->o.tasks, m->task_id, &u->task, reterr_diag);

	if (r < 0)
		return r;
	snprintf(u->instance, sizeof(u->instance), "%s", m->service_instance);
	g = find_agent(&u->task, m->service_instance);
	if (u->task.spec.kind != u->kind || strcmp(u->task.spec.service, m->service) != 0 || !g ||
	    g->state != CONTROL_STATE_ARMED)
		return diag_set(reterr_diag, -EACCES,
				"this agent was not given the task %.40s, or has delivered",
				u->task.id);
	u->begun = true;
	if (m->type == STATUS_TOO_LARGE ||
	    (m->type == STATUS_OK && m->content_size > (s32)UPLOAD_BYTES)) {
		r = settle(u, CONTROL_STATE_REFUSED, 0,
			   "failed: the profile has %d bytes, and this server takes %u",
			   m->content_size, UPLOAD_BYTES);
		return r < 0 ? r : answer(ret, STATUS_TOO_LARGE);
	}
	if (m->type != STATUS_OK) {
		r = settle(u, CONTROL_STATE_REFUSED, 0, "failed: %.180s",
			   *error ? error : "the agent does not say why");
		return r < 0 ? r : answer(ret, STATUS_OK);
	}
	if (m->content_size <= 0)
		return fail(u, -EINVAL, reterr_diag, "the profile is empty");
	if (!take_room(u, (u64)m->content_size))
		return fail(u, -EAGAIN, reterr_diag, "too many profiles arrive at once");
	return answer(ret, STATUS_OK);
}

static int take_message(struct upload *u, const u8 *data, size_t n, struct net_response *ret,
			struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(MESSAGE_BYTES);
	const Skywalking__ProfilerData *d;
	ProtobufCMessage *m = NULL;
	int r = pb_unpack(&skywalking__profiler_data__descriptor, "a part of a profile", data, n,
			  &arena, &m, reterr_diag);

	if (r < 0 || u->settled)
		return r;
	d = (const Skywalking__ProfilerData *)m;
	if (!u->begun && !d->meta_data)
		return diag_set(reterr_diag, -EINVAL, "a profile begins with what it is of");
	if (!u->begun)
		r = begin(u, d->meta_data, d->error_message, ret, reterr_diag);
	if (r < 0 || u->settled)
		return r;
	if (*d->error_message) {
		r = settle(u, CONTROL_STATE_REFUSED, 0, "failed: %.180s", d->error_message);
		return r;
	}
	if (u->data.n + d->content.len > u->size)
		return fail(u, -E2BIG, reterr_diag, "the profile is longer than its agent said");
	QUOTA_PAUSED; /* it has a limit of its own, and stays until the call is over */
	if (d->content.len && str_append(&u->data, d->content.data, d->content.len) < 0)
		return fail(u, -ENOMEM, reterr_diag, "the server has no memory for the profile");
	return 0;
}

/* The value of a label in quotes, which has no quotes itself. */
static void put_label(struct str *out, const char *name, const char *value)
{
	str_printf(out, "%s%s=\"", out->n ? "," : "", name);
	for (; *value; value++)
		str_putc(out, *value == '"' ? '\'' : *value);
	str_putc(out, '"');
}

/* What profiles of pprof are called whose types do not tell what they are of. */
static const char *name_of(const struct task_spec *s)
{
	static const struct {
		const char *event, *name;
	} names[] = {{"block", "block"},
		     {"mutex", "mutex"},
		     {"goroutine", "goroutines"},
		     {"threadcreate", "threadcreate"}};

	for (size_t i = 0; i < ARRAY_SIZE(names) && s->kind == TASK_KIND_PPROF; i++)
		if (task_has_event(s, names[i].event))
			return names[i].name;
	return NULL;
}

static int store(struct upload *u, const struct net_request *r, struct diag *reterr_diag)
{
	_cleanup_str_ struct str labels = {};
	u64 samples = 0, now = clock_epoch_ms();
	struct ingest_file f = {
		.format = u->kind == TASK_KIND_PPROF ? "pprof" : "jfr",
		.name = name_of(&u->task.spec),
		.host = r->host,
		.from_ms = now - MIN(now, u->task.spec.duration_ms),
		.to_ms = now,
		.ret_samples = &samples,
	};
	struct diag d = {};
	int e;

	put_label(&labels, "service.name", u->task.spec.service);
	put_label(&labels, "service.instance.id", u->instance);
	put_label(&labels, "telemetry.sdk.name", "skywalking");
	put_label(&labels, "task", u->task.id);
	f.labels = str_get(&labels);
	e = ingest_file(u->api->o.ingest, (const u8 *)str_get(&u->data), u->data.n, &f, &d);
	if (e < 0)
		return fail(u, e, reterr_diag, d.text[0] ? d.text : strerror(-e));
	return settle(u, CONTROL_STATE_ENDED, samples, "%llu samples in %zu bytes", samples,
		      u->data.n);
}

static int finish(struct upload *u, const struct net_request *r, struct diag *reterr_diag)
{
	if (!u->begun)
		return diag_set(reterr_diag, -EINVAL, "a profile without a beginning");
	if (u->settled)
		return 0;
	if (u->data.n < u->size)
		return fail(u, -EBADMSG, reterr_diag, "the profile is shorter than its agent said");
	return store(u, r, reterr_diag);
}

int api_skywalking_upload(struct api *a, enum task_kind kind, const struct net_request *r,
			  struct net_response *ret, struct diag *reterr_diag)
{
	size_t at = 0, n, plain_n;
	const u8 *data, *plain;
	const char *encoding;
	struct upload *u;
	int e;

	if (!r->talk || !a->o.tasks)
		return diag_set(reterr_diag, -ENOSYS,
				"profiles of SkyWalking's agents come by gRPC over HTTP/2");
	{
		QUOTA_PAUSED;
		e = upload_of(a, r->talk, kind, &u);
	}
	while (e == 0 && net_next_message(r, &at, &data, &n, &encoding)) {
		_cleanup_str_ struct str own = {};

		if (clock_epoch_ms() - u->began_ms > UPLOAD_MS)
			return fail(u, -ETIMEDOUT, reterr_diag, "the profile took too long");
		e = ingest_decode(a->o.ingest, data, n, encoding, &own, &plain, &plain_n,
				  reterr_diag);
		if (e == 0)
			e = take_message(u, plain, plain_n, ret, reterr_diag);
	}
	return e == 0 && r->talk->ended ? finish(u, r, reterr_diag) : e;
}
