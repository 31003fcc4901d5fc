/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC services that SkyWalking's agents call: they announce themselves, send segments,
 * snapshots and profiles, and ask for tasks. What this server has no use for (metrics, logs,
 * events) is taken and dropped, because agents complain about it otherwise.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/pb.h"
#include "format/skywalking.pb-c.h"
#include "server/api/internal.h"

#define V3 "/skywalking.v3."
#define V10 "/skywalking.v10."

struct skywalking_call {
	struct api *a;
	const struct net_request *r;
	struct net_response *ret;
	struct diag d;
	size_t at; /* in a framed body */
};

struct method {
	const char *path;
	enum net_stream stream;
	/* Appends the answer, whose empty form is the empty message; NULL: none. */
	int (*fn)(struct skywalking_call *c);
};

/* ---- spans and snapshots ---- */

static bool next_of_stream(void *userdata, const u8 **ret, size_t *ret_n, const char **ret_encoding)
{
	struct skywalking_call *c = userdata;

	return net_next_message(c->r, &c->at, ret, ret_n, ret_encoding);
}

static bool next_of_one(void *userdata, const u8 **ret, size_t *ret_n, const char **ret_encoding)
{
	struct skywalking_call *c = userdata;

	if (c->at++)
		return false;
	*ret = c->r->body;
	*ret_n = c->r->n_body;
	*ret_encoding = c->r->content_encoding;
	return true;
}

static void find_task(void *userdata, const char *id, struct ingest_skywalking_task *ret)
{
	struct skywalking_call *c = userdata;

	api_skywalking_find_task(c->a, id, ret);
}

static void note_kept(void *userdata, const struct ingest_skywalking_kept *k)
{
	struct skywalking_call *c = userdata;

	api_skywalking_kept(c->a, k);
}

static int store(struct skywalking_call *c, enum ingest_skywalking_what what)
{
	const struct ingest_skywalking q = {.what = what,
					    .next = c->r->framed ? next_of_stream : next_of_one,
					    .find_task = find_task,
					    .kept = note_kept,
					    .userdata = c,
					    .host = c->r->host};

	return ingest_skywalking(c->a->o.ingest, &q, c->r->n_body, &c->d);
}

static int collect_segments(struct skywalking_call *c)
{
	return store(c, INGEST_SKYWALKING_SEGMENTS);
}

static int collect_segment_list(struct skywalking_call *c)
{
	return store(c, INGEST_SKYWALKING_SEGMENT_LIST);
}

static int collect_snapshots(struct skywalking_call *c)
{
	return store(c, INGEST_SKYWALKING_SNAPSHOTS);
}

/* ---- tasks ---- */

/* Messages of these calls are small: a compressed one is refused. */
static int plain(struct skywalking_call *c)
{
	return c->r->content_encoding
		       ? diag_set(&c->d, -ENOTSUP, "send this message without compression")
		       : 0;
}

static int give_commands(struct skywalking_call *c)
{
	int r = plain(c);

	return r < 0 ? r
		     : api_skywalking_commands(c->a, c->r->body, c->r->n_body, &c->ret->body,
					       &c->d);
}

static int give_profile_commands(struct skywalking_call *c, enum task_kind kind)
{
	int r = plain(c);

	return r < 0 ? r
		     : api_skywalking_profile_commands(c->a, kind, c->r->body, c->r->n_body,
						       &c->ret->body, &c->d);
}

static int give_pprof(struct skywalking_call *c)
{
	return give_profile_commands(c, TASK_KIND_PPROF);
}

static int give_async_profiler(struct skywalking_call *c)
{
	return give_profile_commands(c, TASK_KIND_ASYNC_PROFILER);
}

static int take_pprof(struct skywalking_call *c)
{
	return api_skywalking_upload(c->a, TASK_KIND_PPROF, c->r, c->ret, &c->d);
}

static int take_jfr(struct skywalking_call *c)
{
	return api_skywalking_upload(c->a, TASK_KIND_ASYNC_PROFILER, c->r, c->ret, &c->d);
}

static int note_end(struct skywalking_call *c)
{
	int r = plain(c);

	return r < 0 ? r : api_skywalking_finished(c->a, c->r->body, c->r->n_body, &c->d);
}

/* ---- methods ---- */

static const struct method methods[] = {
	{V3 "ManagementService/reportInstanceProperties", NET_STREAM_NONE, NULL},
	{V3 "ManagementService/keepAlive", NET_STREAM_NONE, NULL},
	{V3 "TraceSegmentReportService/collect", NET_STREAM_COLLECTS, collect_segments},
	{V3 "TraceSegmentReportService/collectInSync", NET_STREAM_NONE, collect_segment_list},
	{V3 "ProfileTask/getProfileTaskCommands", NET_STREAM_NONE, give_commands},
	{V3 "ProfileTask/collectSnapshot", NET_STREAM_COLLECTS, collect_snapshots},
	{V3 "ProfileTask/reportTaskFinish", NET_STREAM_NONE, note_end},
	{V3 "ConfigurationDiscoveryService/fetchConfigurations", NET_STREAM_NONE, NULL},
	{V3 "JVMMetricReportService/collect", NET_STREAM_NONE, NULL},
	{V3 "CLRMetricReportService/collect", NET_STREAM_NONE, NULL},
	{V3 "MeterReportService/collect", NET_STREAM_COLLECTS, NULL},
	{V3 "MeterReportService/collectBatch", NET_STREAM_COLLECTS, NULL},
	{V3 "LogReportService/collect", NET_STREAM_COLLECTS, NULL},
	{V3 "EventService/collect", NET_STREAM_COLLECTS, NULL},
	{V3 "SpanAttachedEventReportService/collect", NET_STREAM_COLLECTS, NULL},
	{V10 "PprofTask/getPprofTaskCommands", NET_STREAM_NONE, give_pprof},
	{V10 "PprofTask/collect", NET_STREAM_TALKS, take_pprof},
	{V10 "AsyncProfilerTask/getAsyncProfilerTaskCommands", NET_STREAM_NONE,
	 give_async_profiler},
	{V10 "AsyncProfilerTask/collect", NET_STREAM_TALKS, take_jfr},
};

static const struct method *find_method(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (!strcmp(methods[i].path, path))
			return &methods[i];
	return NULL;
}

bool api_is_skywalking(const char *path)
{
	return str_starts(path, V3) || str_starts(path, V10);
}

enum net_stream api_skywalking_stream(const char *path)
{
	const struct method *m = find_method(path);

	return m ? m->stream : NET_STREAM_NONE;
}

static const char refused[] = "of SkyWalking's services this server has those that take segments, "
			      "snapshots and profiles, and give tasks";
static const char rover_refused[] =
	"culprit's agents take the place of SkyWalking's rover: see doc/server.md";

/* What rover calls: tasks, policies and profiles by eBPF, the processes that it sees. */
static bool is_of_rover(const char *path)
{
	return str_starts(path, V3 "EBPF") || str_starts(path, V10 "EBPF") ||
	       str_starts(path, V3 "ContinuousProfilingService/");
}

int api_skywalking(struct api *a, const struct net_request *r, struct net_response *ret,
		   struct diag *reterr_diag)
{
	struct skywalking_call c = {.a = a, .r = r, .ret = ret};
	const struct method *m = find_method(r->path);
	int e;

	if (!m)
		return diag_set(reterr_diag, -ENOSYS, "%s",
				is_of_rover(r->path) ? rover_refused : refused);
	if (!(r->role & NET_ROLE_WRITE))
		return diag_set(reterr_diag, -EACCES, "this token may not write");
	e = m->fn ? m->fn(&c) : 0;
	return e < 0 ? diag_set(reterr_diag, api_reason(e, true, &c.d), "%s",
				c.d.text[0] ? c.d.text : strerror(-e))
		     : 0;
}
