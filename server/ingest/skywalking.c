/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ingest of what SkyWalking's agents send (format/skywalking.h).
 *
 * A snapshot names its segment, and only the segment, which its agent sends when the request has
 * ended, says of which trace they are. Snapshots are stored when they arrive, as samples of a trace
 * of the segment's own. When the segment arrives, the links of these samples are written again, for
 * its trace; snapshots that come even later are written for that trace at once. Which segments have
 * snapshots and no trace yet, or were seen lately, is kept in memory, in two generations. A server
 * that starts between snapshots and segment does not know it: then an analysis finds the samples
 * under the segment's own trace (server/api/analysis.c), the waterfall shows none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "format/skywalking.h"
#include "server/ingest/internal.h"

#define MAX_SEGMENTS 16384 /* of one generation */
#define SERVICE_BYTES 256
#define INSTANCE_BYTES 128
#define TASK_BYTES 64
#define MAX_GAP_NS (600 * 1000000000ULL) /* the longest that agents watch a segment */
#define PERIOD_NS 10000000		 /* the shortest between snapshots, and the usual */

struct segment {
	u8 trace_id[16];
	u8 span_id[8];
	u64 last_ns; /* of its last snapshot; 0: there was none */
	u64 samples;
	bool waits;   /* has snapshots, but no trace yet */
	bool touched; /* has got snapshots that kept() was not told of */
	char task[TASK_BYTES], service[SERVICE_BYTES], instance[INSTANCE_BYTES];
};

struct generation {
	struct map by_id; /* the segment's first span → index */
	vec(struct segment) list;
};

struct ingest_segments {
	pthread_mutex_t lock; /* of all; held while snapshots and their links are written */
	struct generation now, before;
};

static void generation_clear(struct generation *g)
{
	map_deinit(&g->by_id);
	vec_deinit(&g->list);
	*g = (struct generation){};
}

int ingest_segments_create(struct ingest_segments **ret)
{
	struct ingest_segments *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	*ret = s;
	return 0;
}

void ingest_segments_destroy(struct ingest_segments *s)
{
	if (!s)
		return;
	generation_clear(&s->now);
	generation_clear(&s->before);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static u64 key_of(const u8 span_id[8])
{
	u64 key;

	memcpy(&key, span_id, sizeof(key));
	return key < MAP_GONE_KEY ? key : 1;
}

static struct segment *find_in(struct generation *g, u64 key)
{
	u64 *at = map_get(&g->by_id, key);

	return at ? &g->list.data[*at] : NULL;
}

/* Finds the segment or adds it. Valid until the next call; NULL: out of memory. */
static struct segment *segment_of(struct ingest_segments *s, const u8 span_id[8], bool *ret_new)
{
	u64 key = key_of(span_id);
	struct segment *old = find_in(&s->now, key), copy = {};
	QUOTA_PAUSED; /* it outlives the request */

	*ret_new = false;
	if (old)
		return old;
	old = find_in(&s->before, key);
	if (old)
		copy = *old;
	*ret_new = !old;
	if (s->now.list.n >= MAX_SEGMENTS) {
		generation_clear(&s->before);
		s->before = s->now;
		s->now = (struct generation){};
	}
	memcpy(copy.span_id, span_id, sizeof(copy.span_id));
	if (map_put(&s->now.by_id, key, s->now.list.n) < 0 || vec_push(&s->now.list, copy) < 0)
		return NULL;
	return &s->now.list.data[s->now.list.n - 1];
}

/* ---- segments ---- */

/* Writes the links of the segment's samples again, as those of its trace. */
static int adopt_links(struct ingest *i, const struct skywalking_segment *s,
		       struct diag *reterr_diag)
{
	const struct store_link_filter f = {
		.to_ms = 1ULL << 62, .traces = &s->own_trace_id, .n_traces = 1};
	_cleanup_profile_ struct profile *none = profile_create();
	struct store_batch b = {.profile = none};
	u8 token[16];
	int r = none ? 0 : -ENOMEM;

	if (r == 0)
		r = store_find_links(i->store, &f, &b.links, reterr_diag);
	vec_foreach (&b.links.links, l)
		memcpy(l->link.trace_id, s->trace_id, sizeof(s->trace_id));
	ingest_token(s->own_trace_id, sizeof(s->own_trace_id), "links", b.links.links.n, token);
	if (r == 0 && b.links.links.n)
		r = store_write(i->store, &b, token, reterr_diag);
	store_links_deinit(&b.links);
	return r;
}

static void tell_kept(const struct ingest_skywalking *q, struct segment *e)
{
	const struct ingest_skywalking_kept k = {.task = e->task,
						 .instance = e->instance,
						 .trace_id = e->trace_id,
						 .span_id = e->span_id,
						 .samples = e->samples};

	e->touched = false;
	if (q->kept && e->samples && !e->waits)
		q->kept(q->userdata, &k);
}

/* Learns the segment's trace. */
static int know_segment(struct ingest *i, const struct ingest_skywalking *q,
			const struct spans *spans, const struct skywalking_segment *s,
			struct diag *reterr_diag)
{
	int r = 0;
	bool new;
	struct segment *e = segment_of(i->segments, s->span_id, &new);

	if (!e)
		return -ENOMEM;
	memcpy(e->trace_id, s->trace_id, sizeof(e->trace_id));
	snprintf(e->service, sizeof(e->service), "%s", spans_string(spans, s->service));
	snprintf(e->instance, sizeof(e->instance), "%s", spans_string(spans, s->instance));
	if (e->waits)
		r = adopt_links(i, s, reterr_diag);
	e->waits = false;
	tell_kept(q, e);
	return r;
}

static int know_segments(struct ingest *i, const struct ingest_skywalking *q,
			 const struct spans *spans, const struct skywalking_segments *all,
			 struct diag *reterr_diag)
{
	int r = 0;

	pthread_mutex_lock(&i->segments->lock);
	for (size_t k = 0; k < all->list.n && r == 0; k++)
		r = know_segment(i, q, spans, &all->list.data[k], reterr_diag);
	pthread_mutex_unlock(&i->segments->lock);
	return r;
}

static int read_segments(struct ingest *i, const struct ingest_skywalking *q, struct spans *spans,
			 struct skywalking_segments *all, struct diag *reterr_diag)
{
	u64 max = ingest_decoded_bytes(i);
	const char *encoding;
	const u8 *data;
	size_t n;
	int r = 0;

	while (r == 0 && q->next(q->userdata, &data, &n, &encoding)) {
		_cleanup_str_ struct str own = {};

		r = ingest_decode(i, data, n, encoding, &own, &data, &n, reterr_diag);
		if (r == 0)
			r = (q->what == INGEST_SKYWALKING_SEGMENT_LIST ? skywalking_read_segments
								       : skywalking_read_segment)(
				data, n, max, spans, all, reterr_diag);
		if (r == 0)
			r = quota_check(reterr_diag);
	}
	return r;
}

static int segments(struct ingest *i, const struct ingest_skywalking *q, struct diag *reterr_diag)
{
	_cleanup_spans_ struct spans spans = {};
	struct skywalking_segments all = {};
	u64 dropped;
	int r = spans_init(&spans);

	if (r == 0)
		r = read_segments(i, q, &spans, &all, reterr_diag);
	if (r == 0) {
		if (all.refused)
			log_warn_rarely("refused: %llu spans of SkyWalking: %s", all.refused,
					all.why.text);
		(void)ingest_drop_spans(i, &spans, &dropped, &all.why);
		r = ingest_write_spans(i, &spans, NULL, q->host, reterr_diag);
	}
	if (r == 0)
		r = know_segments(i, q, &spans, &all, reterr_diag);
	vec_deinit(&all.list);
	return r;
}

/* ---- snapshots ---- */

struct snapshots {
	struct ingest *i;
	const struct ingest_skywalking *q;
	struct profile *p;
	char task_id[128];
	struct ingest_skywalking_task task; /* of this id */
};

static int add_label(struct profile *p, const char *name, const char *value,
		     struct profile_label *to, size_t *n)
{
	int r = *value ? profile_add_string(p, name, strlen(name), &to[*n].name) : 0;

	if (r == 0 && *value)
		r = profile_add_string(p, value, strlen(value), &to[(*n)++].value);
	return r;
}

/* The thread of all snapshots of a task in a service. */
static int thread_of(struct snapshots *s, const char *task, const char *service, u32 *ret)
{
	struct profile_thread t = {};
	struct profile_label l[2];
	size_t n = 0;
	int r = add_label(s->p, "service.name", *service ? service : "unknown_service", l, &n);

	if (r == 0)
		r = add_label(s->p, "telemetry.sdk.name", "skywalking", l, &n);
	if (r == 0)
		r = profile_add_resource(s->p, l, n, &t.resource);
	n = 0;
	if (r == 0)
		r = add_label(s->p, "task", task, l, &n);
	if (r == 0)
		r = profile_add_resource(s->p, l, n, &t.attributes);
	return r < 0 ? r : profile_add_thread(s->p, &t, ret);
}

/* What is known of a task; snapshots of one task come together. */
static const struct ingest_skywalking_task *find_task(struct snapshots *s, const char *id)
{
	if (s->task.period_ns && !strcmp(s->task_id, id))
		return &s->task;
	snprintf(s->task_id, sizeof(s->task_id), "%s", id);
	s->task = (struct ingest_skywalking_task){.period_ns = PERIOD_NS};
	if (s->q->find_task)
		s->q->find_task(s->q->userdata, id, &s->task);
	return &s->task;
}

static int add_snapshot(struct snapshots *s, const struct skywalking_snapshot *e)
{
	struct profile_link link = {};
	const struct ingest_skywalking_task *task = find_task(s, e->task);
	u32 thread = 0, at = 0;
	s64 values[2] = {0, (s64)e->sequence + 1};
	bool new;
	struct segment *segment = segment_of(s->i->segments, e->span_id, &new);
	int r;

	if (!segment)
		return -ENOMEM;
	segment->waits |= new;
	if (!*segment->service)
		snprintf(segment->service, sizeof(segment->service), "%s", task->service);
	/* A snapshot stands for the time since the one before. */
	values[0] = (s64)task->period_ns;
	if (segment->last_ns && e->time_ns > segment->last_ns &&
	    e->time_ns - segment->last_ns < MAX_GAP_NS)
		values[0] = (s64)(e->time_ns - segment->last_ns);
	segment->last_ns = MAX(segment->last_ns, e->time_ns);
	segment->samples++;
	segment->touched = true;
	snprintf(segment->task, sizeof(segment->task), "%.*s", TASK_BYTES - 1, e->task);
	memcpy(link.trace_id, segment->waits ? e->own_trace_id : segment->trace_id,
	       sizeof(link.trace_id));
	memcpy(link.span_id, e->span_id, sizeof(link.span_id));
	r = thread_of(s, e->task, *task->service ? task->service : segment->service, &thread);
	if (r == 0)
		r = profile_add_link(s->p, &link, &at);
	return r < 0 ? r
		     : profile_add_linked_sample(s->p, e->time_ns, thread, e->stack, at, values);
}

static int add_types(struct profile *p)
{
	const enum sample_type types[] = {SAMPLE_TYPE_REQUEST_WALL, SAMPLE_TYPE_REQUEST_SEQUENCE};
	const struct vocab_sample_type *wall = vocab_sample_type(types[0]);
	int r = 0;

	for (size_t k = 0; k < ARRAY_SIZE(types) && r == 0; k++)
		r = profile_add_table_type(p, types[k]);
	if (r == 0)
		r = profile_add_string(p, wall->profile, strlen(wall->profile), &p->period_name);
	if (r == 0)
		r = profile_add_string(p, wall->unit, strlen(wall->unit), &p->period_unit);
	return r;
}

static int read_snapshots(struct snapshots *s, struct diag *reterr_diag)
{
	const struct ingest_skywalking *q = s->q;
	u64 max = ingest_decoded_bytes(s->i);
	const char *encoding;
	const u8 *data;
	size_t n;
	int r = 0;

	while (r == 0 && q->next(q->userdata, &data, &n, &encoding)) {
		_cleanup_str_ struct str own = {};
		struct skywalking_snapshot e;

		r = ingest_decode(s->i, data, n, encoding, &own, &data, &n, reterr_diag);
		if (r == 0)
			r = skywalking_read_snapshot(data, n, max, s->p, &e, reterr_diag);
		if (r == 0 && s->p->stacks.data[e.stack].n)
			r = add_snapshot(s, &e);
		if (r == 0)
			r = quota_check(reterr_diag);
	}
	return r;
}

static int write_snapshots(struct ingest *i, struct profile *p, const char *host,
			   struct diag *reterr_diag)
{
	const struct ingest_labels none = {};
	struct diag warning = {};
	int r;

	if (!p->n_samples)
		return 0;
	r = ingest_complete(i, p, &none, &warning);
	if (r == 0)
		r = ingest_set_host(p, host, reterr_diag);
	if (r == 0)
		r = ingest_write(i, p, vocab_sample_type(SAMPLE_TYPE_REQUEST_WALL)->profile, NULL,
				 reterr_diag);
	return ingest_warn(r, &warning, reterr_diag);
}

static int snapshots(struct ingest *i, const struct ingest_skywalking *q, struct diag *reterr_diag)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct snapshots s = {.i = i, .q = q, .p = p};
	int r = p ? add_types(p) : -ENOMEM;

	if (r < 0)
		return r;
	/* Nobody may adopt links that are not written yet. */
	pthread_mutex_lock(&i->segments->lock);
	r = read_snapshots(&s, reterr_diag);
	if (r == 0)
		r = write_snapshots(i, p, q->host, reterr_diag);
	if (r == 0)
		vec_foreach (&i->segments->now.list, e)
			if (e->touched)
				tell_kept(q, e);
	pthread_mutex_unlock(&i->segments->lock);
	return r;
}

int ingest_skywalking(struct ingest *i, const struct ingest_skywalking *q, size_t n,
		      struct diag *reterr_diag)
{
	int r = q->what == INGEST_SKYWALKING_SNAPSHOTS ? snapshots(i, q, reterr_diag)
						       : segments(i, q, reterr_diag);

	return ingest_done(i, n, r);
}
