/* SPDX-License-Identifier: Apache-2.0 */
/* GET /api/v1/agents: the agents that send to this server, with the report of each. */
#include <errno.h>
#include <string.h>

#include "base/vocab.h"
#include "server/api/internal.h"

static void put_counter(struct json_writer *w, const struct agent_counter *c)
{
	enum counter id = vocab_find_counter(c->name);
	bool known = id < COUNTER_N; /* not one that only newer agents have */

	json_open_object(w, NULL);
	json_put_text(w, "name", c->name);
	json_put_text(w, "loss", vocab_counter_loss(c->loss));
	json_put_text(w, "unit", known ? vocab_counter(id)->unit : "");
	json_put_text(w, "help", known ? vocab_counter(id)->help : "");
	json_put_u64(w, "count", c->count);
	json_close(w);
}

/* The label of the source's type; an event without a type of its own is its own label. */
static void put_source(struct json_writer *w, const struct agent_source *s)
{
	enum sample_type type = vocab_find_event(s->event);
	bool known = type < SAMPLE_TYPE_N && type != SAMPLE_TYPE_RAW_EVENTS;

	json_open_object(w, NULL);
	json_put_text(w, "event", s->event);
	json_put_text(w, "label", known ? vocab_sample_type(type)->label : s->event);
	json_put_u64(w, "hz", s->hz);
	json_put_u64(w, "period", s->period);
	json_close(w);
}

static void put_drop(struct json_writer *w, const struct agent_drop *d)
{
	enum export_drop id = vocab_find_export_drop(d->reason);

	json_open_object(w, NULL);
	json_put_text(w, "reason", d->reason);
	json_put_text(w, "help", id < EXPORT_DROP_N ? vocab_export_drop(id)->help : "");
	json_put_u64(w, "profiles", d->profiles);
	json_close(w);
}

static void put_agent(struct json_writer *w, const struct agent_state *s)
{
	json_open_object(w, NULL);
	json_put_text(w, "host", s->host);
	json_put_text(w, "host_id", s->id);
	json_put_text(w, "version", s->version);
	json_put_text(w, "kernel", s->kernel);
	json_put_text(w, "arch", s->arch);
	json_put_text(w, "error", s->error);
	json_put_u64(w, "started", s->started_ms);
	json_put_u64(w, "last", s->seen_ms);
	json_put_u64(w, "newest", s->newest_ms);
	json_open_array(w, "sources");
	for (u32 i = 0; i < s->n_sources; i++)
		put_source(w, &s->sources[i]);
	json_close(w);
	json_put_fixed(w, "cpu", s->cpu, 6);
	json_put_u64(w, "rss", s->memory);
	json_put_u64(w, "processes", s->processes);
	json_put_u64(w, "samples", s->samples);
	json_put_u64(w, "truncated", s->truncated);
	json_open_array(w, "counters");
	for (u32 i = 0; i < s->n_counters; i++)
		put_counter(w, &s->counters[i]);
	json_close(w);
	json_put_u64(w, "dropped", s->dropped);
	json_open_array(w, "drops");
	for (u32 i = 0; i < s->n_drops; i++)
		put_drop(w, &s->drops[i]);
	json_close(w);
	if (s->range.from_ms < s->range.to_ms) {
		json_open_object(w, "range");
		json_put_u64(w, "from", s->range.from_ms);
		json_put_u64(w, "to", s->range.to_ms);
		json_put_u64(w, "samples", s->range.samples);
		json_put_u64(w, "lost", s->range.lost);
		json_put_u64(w, "dropped", s->range.dropped);
		json_close(w);
	} else {
		json_put_null(w, "range");
	}
	json_close(w);
}

static int agents(struct api_call *c)
{
	_cleanup_free_ struct agent_state *all = NULL;
	_cleanup_query_ struct query q = {};
	size_t n = 0;
	int r = api_query(c, "", &q);

	if (r == 0)
		r = ingest_agents(c->a->o.ingest, q.from_ms, q.to_ms, &all, &n);
	if (r < 0)
		return r;
	json_open_object(&c->json, NULL);
	json_put_text(&c->json, "version", CULPRIT_VERSION);
	json_open_array(&c->json, "agents");
	for (size_t i = 0; i < n; i++)
		put_agent(&c->json, &all[i]);
	json_close(&c->json);
	json_close(&c->json);
	return 0;
}

const struct api_route api_agent_routes[] = {
	{"GET", "/api/v1/agents", NET_ROLE_READ, API_STYLE_JSON, agents},
	{},
};
