/* SPDX-License-Identifier: Apache-2.0 */
/* The agents that send here, and what each says of itself. */
#include <errno.h>
#include <string.h>

#include "base/vocab.h"
#include "server/api/internal.h"

static void put_field(struct str *out, const char *name, const char *value)
{
	api_put_text(out, name, value);
	str_putc(out, ',');
}

/* "" for a counter that only newer agents have. */
static const char *help_of(const char *name)
{
	enum counter counter = vocab_find_counter(name);

	return counter < COUNTER_N ? vocab_counter(counter)->help : "";
}

static void put_agent(struct str *out, const struct agent_state *s)
{
	str_putc(out, '{');
	put_field(out, "host", s->host);
	put_field(out, "host_id", s->id);
	put_field(out, "version", s->version);
	put_field(out, "kernel", s->kernel);
	put_field(out, "arch", s->arch);
	put_field(out, "error", s->error);
	str_printf(out,
		   "\"started\":%llu,\"last\":%llu,\"hz\":%llu,\"cpu\":%.6f,\"rss\":%llu,"
		   "\"processes\":%llu,\"samples\":%llu,\"truncated\":%llu,\"lost\":[",
		   s->started_ms, s->seen_ms, s->hz, s->cpu, s->memory, s->processes, s->samples,
		   s->truncated);
	for (u32 i = 0; i < s->n_lost; i++) {
		str_puts(out, i ? ",{" : "{");
		put_field(out, "reason", s->lost[i].name);
		put_field(out, "help", help_of(s->lost[i].name));
		str_printf(out, "\"count\":%llu}", s->lost[i].count);
	}
	str_puts(out, "],\"range\":");
	if (s->range.from_ms < s->range.to_ms)
		str_printf(out, "{\"from\":%llu,\"to\":%llu,\"samples\":%llu,\"lost\":%llu}}",
			   s->range.from_ms, s->range.to_ms, s->range.samples, s->range.lost);
	else
		str_puts(out, "null}");
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
	str_puts(c->out, "{\"version\":\"" CULPRIT_VERSION "\",\"agents\":[");
	for (size_t i = 0; i < n; i++) {
		if (i)
			str_putc(c->out, ',');
		put_agent(c->out, &all[i]);
	}
	str_puts(c->out, "]}");
	return 0;
}

const struct api_route api_agent_routes[] = {
	{"GET", "/api/v1/agents", NET_ROLE_READ, API_STYLE_JSON, agents},
	{},
};
