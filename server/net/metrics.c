/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"
#include "server/net/internal.h"

struct family {
	const char *name, *help;
	size_t offset; /* of an atomic_ullong in struct net_counters */
};

#define C(member) offsetof(struct net_counters, member)
static const struct family families[] = {
	{"culprit_net_connections_open", "Connections that are open.", C(open)},
	{"culprit_net_connections_total", "Connections that were accepted.", C(connections)},
	{"culprit_net_requests_total", "Requests, by their headers.", C(requests)},
	{"culprit_net_unauthorized_total",
	 "Requests without a valid token or certificate, or of another site.", C(unauthorized)},
	{"culprit_net_wrong_tokens_total", "Of these, with a token that is not known.",
	 C(bad_tokens)},
	{"culprit_net_too_large_total", "Requests that are too large.", C(too_large)},
	{"culprit_net_timed_out_total", "Requests and connections that took too long.",
	 C(timed_out)},
	{"culprit_net_broken_total", "Requests whose client went away, or broke the protocol.",
	 C(broken)},
	{"culprit_net_queue_full_total", "Requests that were refused because too many waited.",
	 C(stopped[NET_STOP_QUEUE])},
	{"culprit_net_received_bytes_total", "Bytes received, after TLS.", C(received)},
	{"culprit_net_sent_bytes_total", "Bytes sent, before TLS.", C(sent)},
};

static double value_of(const struct net_listener *l, size_t offset)
{
	return (double)atomic_load(
		(const atomic_ullong *)(const void *)((const char *)&l->counters + offset));
}

/* Those of the queue have a family of their own. */
static void put_stops(struct net *n, struct str *out)
{
	static const char *const reasons[] = {
#define X(id, name, text) [NET_STOP_##id] = (name),
		NET_STOPS(X)
#undef X
	};
	const char *name = "culprit_net_stopped_total";

	metrics_family(out, name, "Requests that a limit stopped, by reason: doc/server.md.");
	for (u32 i = 0; i < NET_MAX_LISTENERS; i++)
		for (u32 k = NET_STOP_MEMORY; n->listeners[i] && k < NET_N_STOPS; k++)
			metrics_sample(out, name,
				       METRICS_LABELS({"listener", n->listeners[i]->name},
						      {"reason", reasons[k]}),
				       (double)atomic_load(&n->listeners[i]->counters.stopped[k]));
}

static void put_ends(struct net *n, struct str *out)
{
	static const char *const reasons[] = {
#define X(id, name, text) [NET_END_##id] = (name),
		NET_ENDS(X)
#undef X
	};
	const char *name = "culprit_net_connections_ended_total";

	metrics_family(out, name,
		       "Connections that this server refused or ended, by reason: doc/server.md.");
	for (u32 i = 0; i < NET_MAX_LISTENERS; i++)
		for (u32 k = 0; n->listeners[i] && k < NET_N_ENDS; k++)
			metrics_sample(out, name,
				       METRICS_LABELS({"listener", n->listeners[i]->name},
						      {"reason", reasons[k]}),
				       (double)atomic_load(&n->listeners[i]->counters.ended[k]));
}

static void put_answers(struct net *n, struct str *out)
{
	const char *name = "culprit_net_answers_total";

	metrics_family(out, name, "Answers by class of their status; 499: the client was gone.");
	for (u32 i = 0; i < NET_MAX_LISTENERS; i++)
		for (u32 k = 2; n->listeners[i] && k < 6; k++) {
			char status[] = {(char)('0' + k), 'x', 'x', '\0'};

			metrics_sample(out, name,
				       METRICS_LABELS({"listener", n->listeners[i]->name},
						      {"status", status}),
				       (double)atomic_load(&n->listeners[i]->counters.answers[k]));
		}
}

static void put_workers(struct net *n, struct str *out)
{
	static const char *const classes[POOL_CLASSES] = {"question", "write"};
	struct pool_stats s[POOL_CLASSES];

	for (int i = 0; i < POOL_CLASSES; i++)
		pool_stats(n->pool, (enum pool_class)i, &s[i]);
#define FAMILY(name, help, member)                                                                 \
	metrics_family(out, name, help);                                                           \
	for (int i = 0; i < POOL_CLASSES; i++)                                                     \
	metrics_sample(out, name, METRICS_LABELS({"class", classes[i]}), s[i].member)
	FAMILY("culprit_net_threads", "Threads for requests.", threads);
	FAMILY("culprit_net_threads_busy", "Threads that work on a request.", busy);
	FAMILY("culprit_net_queue_length", "Requests that wait for a thread.", queued);
#undef FAMILY
}

static void sum_up(struct net_listener *l, struct net_events *sum)
{
	static const enum net_end refusals[] = {NET_END_FULL, NET_END_SHARE, NET_END_FILES};
	struct net_counters *c = &l->counters;

	sum->wrong_tokens += atomic_load(&c->bad_tokens);
	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		sum->refused += atomic_load(&c->ended[refusals[i]]);
	sum->evicted += atomic_load(&c->ended[NET_END_EVICTED]);
	sum->handshakes += atomic_load(&c->ended[NET_END_TLS]);
	sum->queue += atomic_load(&c->stopped[NET_STOP_QUEUE]);
	sum->memory += atomic_load(&c->stopped[NET_STOP_MEMORY]) +
		       atomic_load(&c->stopped[NET_STOP_ALL_MEMORY]);
	sum->time += atomic_load(&c->stopped[NET_STOP_TIME]);
}

void net_count_events(struct net *n, struct net_events *ret)
{
	struct net_events sum = {};

	pthread_mutex_lock(&n->lock);
	for (u32 i = 0; i < NET_MAX_LISTENERS; i++)
		if (n->listeners[i])
			sum_up(n->listeners[i], &sum);
	pthread_mutex_unlock(&n->lock);
	*ret = sum;
}

void net_metrics(struct net *n, struct str *out)
{
	pthread_mutex_lock(&n->lock);
	for (size_t f = 0; f < ARRAY_SIZE(families); f++) {
		metrics_family(out, families[f].name, families[f].help);
		for (u32 i = 0; i < NET_MAX_LISTENERS; i++)
			if (n->listeners[i])
				metrics_sample(out, families[f].name,
					       METRICS_LABELS({"listener", n->listeners[i]->name}),
					       value_of(n->listeners[i], families[f].offset));
	}
	put_stops(n, out);
	put_ends(n, out);
	put_answers(n, out);
	pthread_mutex_unlock(&n->lock);
	put_workers(n, out);
}
