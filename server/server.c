/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/clockwatch.h"
#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "server/events.h"

#define MAINTAIN_EVERY_S 5
#define SAVE_TIME_MS 60000

struct server {
	struct store *store;
	struct symstore *symbols; /* or NULL */
	struct tasks *tasks;
	struct policies *policies;
	struct measurements *measurements;
	struct settings *agent_settings;
	struct ingest *ingest;
	struct api *api;
	struct net *net;
	struct net_listener *listeners[SERVER_N];
	struct clock_watch clock;
	bool has_clock;
	atomic_uint clock_steps; /* that the log tells */
	struct server_events events;
	u64 saved_ms;			  /* the time in the file */
	char *settings_file, *notes_file; /* owned; NULL without a directory */
	char *clock_file; /* owned; keeps the time for the next start; NULL without a directory */
	void (*metrics)(void *userdata, struct str *out); /* the agent's, or NULL */
	int (*find_mapped)(void *userdata, const char *path, api_mapped_fn *fn, void *arg);
	void *userdata;
	struct quota_pool pool; /* of all requests */
	pthread_t maintainer;
	pthread_mutex_t lock; /* of `stopping` */
	pthread_cond_t wake;
	bool has_maintainer, stopping;
};

/* ---- the clock ---- */

/* The time when the store was last in use; 0 if nobody knows. */
static u64 last_time_in_use(const struct server *s)
{
	_cleanup_close_ int fd = -1;
	struct store_stats st = {};
	char text[32] = "";
	u64 ms;
	ssize_t n;

	if (!s->clock_file)
		return 0;
	fd = open(s->clock_file, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	text[MAX(n, 0)] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (str_to_u64(text, 10, &ms) == 0 && ms)
		return ms;
	/* An older culprit kept no file. Its newest sample may be from the future. */
	if (store_get_stats(s->store, &st, NULL) < 0)
		return 0;
	return MIN(st.last_ms, clock_epoch_ms());
}

static void save_time(struct server *s, u64 ms)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%llu\n", ms);

	if (s->clock_file && io_replace(s->clock_file, text, (size_t)n) == 0)
		s->saved_ms = ms;
}

static void say_step(struct server *s, const struct clock_times *t, bool first)
{
	bool back = t->expected_ms == t->late_ms;
	double days = (double)(t->late_ms - t->early_ms) / 86400000;

	if (first && !back && days < 1) {
		log_debug("the store was not in use for %.1f hours", days * 24);
		return;
	}
	atomic_fetch_add(&s->clock_steps, 1);
	if (first && !back)
		log_info("the store was last in use %.1f days before the time of this machine: "
			 "nothing is deleted or rounded by age until the clock has held for an "
			 "hour",
			 days);
	else
		log_warn("the clock of this machine is %.1f days %s expected: nothing is deleted "
			 "or rounded by a later time until the clock has held for an hour; check "
			 "the clock (timedatectl)",
			 days, back ? "earlier than" : "later than");
}

/*
 * Whether to maintain the store now, and from which time ages count. Of a store without a directory
 * several servers take care, and compare each other's times: it needs the real one.
 */
static bool look_at_clock(struct server *s, bool first, u64 *ret_now_ms)
{
	struct clock_pair now = clock_pair_now();
	enum clock_event e = clock_watch_look(&s->clock, now);
	struct clock_times t;

	clock_watch_times(&s->clock, now, &t);
	if (e == CLOCK_STEPPED)
		say_step(s, &t, first);
	else if (e == CLOCK_BACK)
		log_info("the clock of this machine shows the expected time again");
	else if (e == CLOCK_HELD)
		log_info("the clock of this machine has held for an hour: ages count from it");
	if (t.expected_ms < s->saved_ms || t.expected_ms - s->saved_ms >= SAVE_TIME_MS)
		save_time(s, t.expected_ms);
	*ret_now_ms = t.early_ms;
	return s->clock_file || t.early_ms == t.late_ms;
}

static int start_clock(struct server *s, const char *store)
{
	const char *dir = store_directory(store);
	u64 now_ms;

	if (dir && asprintf(&s->clock_file, "%s/clock", dir) < 0) {
		s->clock_file = NULL;
		return -ENOMEM;
	}
	if (dir && asprintf(&s->settings_file, "%s/settings.json", dir) < 0) {
		s->settings_file = NULL;
		return -ENOMEM;
	}
	if (dir && asprintf(&s->notes_file, "%s/notes.json", dir) < 0) {
		s->notes_file = NULL;
		return -ENOMEM;
	}
	clock_watch_init(&s->clock, clock_pair_now(), last_time_in_use(s));
	s->has_clock = true;
	(void)look_at_clock(s, true, &now_ms);
	return 0;
}

static void stop_clock(struct server *s)
{
	struct clock_times t;

	if (!s->has_clock)
		return;
	clock_watch_times(&s->clock, clock_pair_now(), &t);
	save_time(s, t.expected_ms);
	clock_watch_deinit(&s->clock);
}

static u64 sum_of(const u64 *counts, size_t n)
{
	u64 sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += counts[i];
	return sum;
}

static void look_for_events(struct server *s)
{
	struct net_events n;
	struct store_events d;
	struct ingest_stats i;
	struct clock_times t;

	net_count_events(s->net, &n);
	store_count_events(s->store, &d);
	ingest_stats(s->ingest, &i);
	clock_watch_times(&s->clock, clock_pair_now(), &t);

	const u64 counts[SERVER_N_EVENTS] = {
		[SERVER_EVENT_TOKENS] = n.wrong_tokens,
		[SERVER_EVENT_CONNECTIONS] = n.refused,
		[SERVER_EVENT_EVICTED] = n.evicted,
		[SERVER_EVENT_HANDSHAKES] = n.handshakes,
		[SERVER_EVENT_QUEUE] = n.queue,
		[SERVER_EVENT_MEMORY] = n.memory,
		[SERVER_EVENT_TIME] = n.time,
		[SERVER_EVENT_WRITES] = d.refused_writes,
		[SERVER_EVENT_SAMPLES] = sum_of(i.refused_samples, INGEST_REASON_N),
		[SERVER_EVENT_SPANS] = sum_of(i.refused_spans, INGEST_REASON_N),
		[SERVER_EVENT_LIMITED] = sum_of(i.limited, INGEST_LIMITS),
		[SERVER_EVENT_OLD_ROWS] = d.old_rows,
		[SERVER_EVENT_ROWS] = d.rows,
		[SERVER_EVENT_OLD_SPANS] = d.old_spans,
		[SERVER_EVENT_SPAN_ROWS] = d.spans,
		[SERVER_EVENT_CLOCK] = atomic_load(&s->clock_steps),
	};

	server_events_look(&s->events, counts, t.expected_ms);
}

static void put_events(void *userdata, struct json_writer *w)
{
	struct server *s = userdata;

	look_for_events(s);
	server_events_put(&s->events, w);
}

static void *maintain(void *arg)
{
	struct server *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stopping) {
		struct diag d = {};
		u64 now_ms;
		int r = 0;

		pthread_mutex_unlock(&s->lock);
		quota_trim();
		look_for_events(s);
		tasks_tick(s->tasks);
		policies_tick(s->policies);
		measurements_tick(s->measurements);
		if (look_at_clock(s, false, &now_ms))
			r = store_maintain(s->store, now_ms, &d);
		if (r == 0)
			r = ingest_share_agents(s->ingest, clock_epoch_ms(), &d);
		if (r < 0)
			log_warn("store: maintenance failed: %s; retrying in %d s",
				 d.text[0] ? d.text : strerror(-r), MAINTAIN_EVERY_S);
		pthread_mutex_lock(&s->lock);
		if (!s->stopping)
			(void)thread_wait(&s->wake, &s->lock, MAINTAIN_EVERY_S * 1000000000ULL);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void put_metrics(void *userdata, struct str *out)
{
	struct server *s = userdata;

	net_metrics(s->net, out);
	tasks_metrics(s->tasks, out);
	policies_metrics(s->policies, out);
	metrics_single(out, "culprit_clock_steps_total", "Steps of the clock of this machine.",
		       atomic_load(&s->clock_steps));
	if (s->metrics)
		s->metrics(s->userdata, out);
}

static int find_mapped(void *userdata, const char *path, api_mapped_fn *fn, void *arg)
{
	struct server *s = userdata;

	return s->find_mapped(s->userdata, path, fn, arg);
}

static struct net_options listener_options(const struct server_options *o, enum server_port which,
					   const char *address)
{
	const bool grpc = which != SERVER_API && which != SERVER_OTLP_HTTP;
	static const char *const names[SERVER_N] = {"api", "otlp-grpc", "otlp-grpc-old",
						    "otlp-http", "skywalking"};

	return (struct net_options){
		.name = names[which],
		.address = address,
		.socket = o->sockets[which],
		.grpc = grpc,
		.tls = o->tls.cert || o->tls.key || o->tls.client_ca ? &o->tls : NULL,
		.tokens = o->tokens,
		.clear_text = o->clear_text,
		.max_body = o->max_body,
		.max_connections = o->max_connections,
		.timeout_s = o->timeout_s,
		.handler = grpc ? api_grpc : api_http,
		.grpc_handler = which == SERVER_API ? api_grpc : NULL,
		.writes = api_writes,
		.streams = api_grpc_streams,
		.limits = {.bytes = o->request_bytes / 2,
			   .time_ns = o->query_timeout_s * 1000000000ULL,
			   .cpu_ns = o->query_cpu_s * 1000000000ULL},
		.sink = api_sink,
	};
}

struct address {
	const char *asked, *usual;
};

static struct address address_of(const struct server_options *o, enum server_port which)
{
	const struct address all[SERVER_N] = {
		[SERVER_API] = {o->api, "127.0.0.1:7788"},
		[SERVER_OTLP_GRPC] = {o->otlp_grpc, "127.0.0.1:4317"},
		[SERVER_OTLP_GRPC_OLD] = {o->otlp_grpc_old, "127.0.0.1:11000"},
		[SERVER_OTLP_HTTP] = {o->otlp_http, "127.0.0.1:4318"},
		[SERVER_SKYWALKING] = {o->skywalking, SERVER_NOWHERE},
	};

	return all[which];
}

static int bind_at(struct server_options *o, enum server_port which, struct diag *reterr_diag)
{
	const struct address a = address_of(o, which);
	const struct net_options n = listener_options(o, which, a.asked ? a.asked : a.usual);
	struct diag d = {};
	int r;

	if (!strcmp(n.address, SERVER_NOWHERE))
		return 0;
	r = net_bind(&n, &d, &o->sockets[which]);
	if (r == -EADDRINUSE && !a.asked && which != SERVER_API) {
		log_warn("%s; the server continues without this address", d.text);
		return 0;
	}
	return r < 0 ? diag_set(reterr_diag, r, "%s", d.text[0] ? d.text : strerror(-r)) : 0;
}

int server_bind(struct server_options *o, struct diag *reterr_diag)
{
	int r = 0;

	for (int i = 0; i < SERVER_N && r == 0; i++)
		r = bind_at(o, (enum server_port)i, reterr_diag);
	return r;
}

static int listen_everywhere(struct server *s, const struct server_options *o,
			     struct diag *reterr_diag)
{
	int r = 0;

	for (int i = 0; i < SERVER_N && r == 0; i++) {
		enum server_port which = (enum server_port)i;
		const struct address a = address_of(o, which);
		struct net_options n = listener_options(o, which, a.asked ? a.asked : a.usual);
		struct diag d = {};

		n.net = s->net;
		n.limits.pool = &s->pool;
		n.userdata = s->api;
		if (!n.socket)
			continue;
		r = net_listen(&n, &d, &s->listeners[i]);
		if (r < 0)
			(void)diag_set(reterr_diag, r, "%s", d.text[0] ? d.text : strerror(-r));
	}
	return r;
}

static void note_nameless(void *userdata, const struct profile *p)
{
	symstore_note(userdata, p);
}

static int start_ingest(struct server *s, const struct server_options *o, struct diag *reterr_diag)
{
	struct symstore_options symbols = o->symbols;
	struct ingest_options ingest = o->ingest;
	int r;

	symbols.store = s->store;
	ingest.clock = &s->clock;
	ingest.tasks = s->tasks;
	ingest.policies = s->policies;
	ingest.max_age_ms = store_max_age_s(&o->store_options) * 1000;
	r = symbols.dir ? symstore_create(&symbols, reterr_diag, &s->symbols) : 0;
	if (r < 0)
		return r;
	if (s->symbols) {
		ingest.written = note_nameless;
		ingest.userdata = s->symbols;
	}
	return ingest_create(s->store, &ingest, &s->ingest);
}

int server_start(const struct server_options *o, struct diag *reterr_diag, struct server **ret)
{
	struct server *s = calloc(1, sizeof(*s));
	struct api_options a = {.cost = o->cost,
				.source_roots = o->source_roots,
				.source_links = o->source_links,
				.trace_links = o->trace_links,
				.audit_log = o->audit_log,
				.metrics = put_metrics,
				.events = put_events,
				.find_mapped = o->find_mapped ? find_mapped : NULL,
				.userdata = s};
	int r;

	if (!s)
		return -ENOMEM;
	/* A client that closes its connection must not end the process. */
	signal(SIGPIPE, SIG_IGN);
	quota_start();
	s->pool.limit_bytes = o->request_bytes;
	thread_sync_init(&s->lock, &s->wake);
	pthread_mutex_init(&s->events.lock, NULL);
	s->metrics = o->metrics;
	s->find_mapped = o->find_mapped;
	s->userdata = o->userdata;
	r = net_create(o->access_log, reterr_diag, &s->net);
	if (r == 0)
		r = store_open(o->store, &o->store_options, reterr_diag, &s->store);
	if (r == 0)
		r = start_clock(s, o->store);
	if (r == 0)
		r = tasks_create(store_directory(o->store), reterr_diag, &s->tasks);
	if (r == 0)
		r = policies_create(store_directory(o->store), s->tasks, reterr_diag, &s->policies);
	if (r == 0)
		r = measurements_create(store_directory(o->store), reterr_diag, &s->measurements);
	if (r == 0)
		r = settings_create(store_directory(o->store), reterr_diag, &s->agent_settings);
	if (r == 0)
		r = start_ingest(s, o, reterr_diag);
	a.store = s->store;
	a.symbols = s->symbols;
	a.settings = s->settings_file;
	a.notes = s->notes_file;
	a.tasks = s->tasks;
	a.policies = s->policies;
	a.measurements = s->measurements;
	a.agent_settings = s->agent_settings;
	a.ingest = s->ingest;
	if (r == 0)
		r = api_create(&a, &s->api);
	if (r == 0)
		r = thread_start(&s->maintainer, "maintainer", maintain, s);
	s->has_maintainer = r == 0;
	if (r == 0)
		r = listen_everywhere(s, o, reterr_diag);
	if (r < 0) {
		server_stop(s, 0);
		return r;
	}
	*ret = s;
	return 0;
}

static u32 left_ms(u64 until_ns)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	return until_ns > now ? (u32)((until_ns - now) / 1000000) : 0;
}

void server_reload(struct server *s)
{
	bool any = false, all = true;
	struct diag log = {};

	if (net_reopen(s->net, &log) < 0)
		log_warn("%s; the old file stays in use", log.text);
	for (int i = 0; i < SERVER_N; i++) {
		struct diag d = {};
		int r = s->listeners[i] ? net_reload(s->listeners[i], &d) : -ENOENT;

		if (r == -ENOENT && !d.text[0])
			continue;
		any = true;
		if (r < 0 && all)
			log_warn("%s; the old certificates stay in effect",
				 d.text[0] ? d.text : strerror(-r));
		all &= r == 0;
	}
	if (any && all)
		log_info("certificates reloaded");
}

void server_stop(struct server *s, u32 timeout_ms)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + timeout_ms * 1000000ULL;

	if (!s)
		return;
	for (int i = 0; i < SERVER_N; i++)
		net_drain(s->listeners[i]);
	for (int i = 0; i < SERVER_N; i++)
		net_close(s->listeners[i], left_ms(until));
	if (s->has_maintainer) {
		pthread_mutex_lock(&s->lock);
		s->stopping = true;
		pthread_cond_signal(&s->wake);
		pthread_mutex_unlock(&s->lock);
		pthread_join(s->maintainer, NULL);
	}
	net_destroy(s->net);
	api_destroy(s->api);
	ingest_destroy(s->ingest);
	measurements_destroy(s->measurements);
	policies_destroy(s->policies);
	settings_destroy(s->agent_settings);
	tasks_destroy(s->tasks);
	symstore_destroy(s->symbols);
	stop_clock(s);
	if (s->store)
		store_close(s->store);
	free(s->clock_file);
	free(s->settings_file);
	free(s->notes_file);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->events.lock);
	pthread_cond_destroy(&s->wake);
	free(s);
}

struct store *server_store(struct server *s)
{
	return s->store;
}

struct ingest *server_ingest(struct server *s)
{
	return s->ingest;
}

int server_sync(struct server *s, const u8 *data, size_t n, struct str *ret,
		struct diag *reterr_diag)
{
	return api_sync(s->api, data, n, "", ret, reterr_diag);
}

u16 server_port(const struct server *s, enum server_port which)
{
	return s->listeners[which] ? net_port(s->listeners[which]) : 0;
}
