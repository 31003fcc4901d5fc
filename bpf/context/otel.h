/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * OpenTelemetry's thread context (OTEP 4947): a thread-local pointer to a record. The thread is
 * stopped while BPF reads the record, so the writer's order of stores is enough to see a consistent
 * record.
 */
#pragma once

/*
 * How much of a record BPF reads at once: as much as the longest record of the process so far, but
 * at most OTEL_AHEAD bytes, unless the record that BPF read last was longer.
 */
#define OTEL_AHEAD 132
#define OTEL_MOST (sizeof(struct context_otel_record) + ATTRIBUTES_NUMBERED_MAX)

/* Takes a record at `at` in the thread's memory, of which BPF has read `n` bytes. */
static __always_inline bool otel_keep(struct scratch *s, struct context_process *p,
				      const struct context_otel_record *r, __u32 n, __u64 at)
{
	struct sample_context *c = &s->out.sample.context;
	__u32 used;

	if (r->valid != 1)
		return false;
	__builtin_memcpy(c->trace_id, r->trace_id, sizeof(c->trace_id));
	__builtin_memcpy(&c->span_id, r->span_id, sizeof(c->span_id));
	c->flags = r->flags;
	if (r->n_attributes && !s->gathered.n)
		attributes_numbered(s, at + sizeof(*r), r->n_attributes, n - sizeof(*r));
	used = s->gathered.n + sizeof(*r);
	s->gathered.ahead = (__u16)used;
	if (used > p->otel_ahead)
		p->otel_ahead = used < OTEL_AHEAD ? used : OTEL_AHEAD;
	return c->trace_id[0] || c->trace_id[1];
}

static __always_inline bool otel_take(struct scratch *s, struct context_process *p, __u64 at)
{
	struct context_otel_record *r = &s->gathered.otel;
	__u64 ahead = p->otel_ahead;
	__u32 n;

	/* Another publisher's attributes are in `bytes`. */
	if (s->gathered.n)
		r = (struct context_otel_record *)s->window.words;
	else if (s->gathered.ahead > OTEL_AHEAD)
		ahead = s->gathered.ahead;
	n = at ? context_bytes(r, OTEL_MOST, sizeof(*r), ahead, at) : 0;
	return n && otel_keep(s, p, r, n, at);
}

/*
 * Reads the variable and, in processes whose records follow the variable, the bytes after the
 * variable. The bytes go to where readers gather attributes: this reader is the first, so no
 * attributes are there yet.
 */
_Static_assert(CONTEXT_OTEL == CONTEXT_NONE + 1, "the first of context.tbl");
static __always_inline bool otel_context(struct scratch *s, struct context_process *p)
{
	__u64 slot = context_tls(s, p, CONTEXT_OTEL), at;
	struct gathered *g = &s->gathered;
	__u32 n;
	bool behind;

	if (!slot)
		return false;
	n = context_bytes(&g->otel_at, CONTEXT_OTEL_BEHIND + OTEL_MOST, sizeof(g->otel_at),
			  p->otel_behind ? CONTEXT_OTEL_BEHIND + p->otel_ahead : sizeof(g->otel_at),
			  slot);
	at = n ? g->otel_at : 0;
	if (!at)
		return false;
	behind = at == slot + CONTEXT_OTEL_BEHIND;
	if (behind && !p->otel_behind)
		p->otel_behind = 1;
	if (behind && n >= CONTEXT_OTEL_BEHIND + sizeof(g->otel))
		return otel_keep(s, p, &g->otel, n - CONTEXT_OTEL_BEHIND, at);
	return otel_take(s, p, at);
}
