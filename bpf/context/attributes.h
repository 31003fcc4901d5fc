/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Attributes of a thread or an event. Readers gather the bytes in the scratch space;
 * attributes_send() sends a set to the ring unless the set was sent lately. The host makes names
 * and texts from the bytes.
 */
#pragma once

#include "bpf/lib/scratch.h"

/*
 * The last offset at which an attribute may begin: a name and a text of maximal length fit after
 * it.
 */
#define ATTRIBUTES_LAST 511
_Static_assert(ATTRIBUTES_LAST + 2 + ATTRIBUTE_MAX_NAME + ATTRIBUTE_MAX_TEXT < ATTRIBUTES_MAX_BYTES,
	       "ATTRIBUTES_MAX_BYTES");
/* The most bytes of attributes in OpenTelemetry's record. */
#define ATTRIBUTES_NUMBERED_MAX 612

/*
 * Takes the `n` bytes of OpenTelemetry's attributes at `at` unchanged; `have` bytes are already in
 * place.
 */
static __always_inline void attributes_numbered(struct scratch *s, __u64 at, __u32 n, __u32 have)
{
	struct gathered *g = &s->gathered;

	if (n > ATTRIBUTES_NUMBERED_MAX)
		n = ATTRIBUTES_NUMBERED_MAX;
	asm volatile("" : "+r"(n));
	if (n > have && (n > ATTRIBUTES_NUMBERED_MAX ||
			 bpf_probe_read_user(g->bytes, n, (const void *)at) < 0)) {
		g->left_out++;
		return;
	}
	g->form = ATTRIBUTES_NUMBERED;
	g->n = (__u16)n;
}

/*
 * The id of the gathered set. Equal bytes of two process images get two ids, because their numbers
 * may stand for other names. The loop hashes four words in parallel, because each multiplication
 * waits for the multiplication before it.
 */
static __always_inline __u64 attributes_id(struct scratch *s, __u32 n)
{
	const __u64 *words = (const __u64 *)s->gathered.bytes;
	__u64 *behind = (__u64 *)(s->gathered.bytes + n);
	__u64 a = s->image, b = s->out.sample.pid, c = n, d = 0;

	if (s->gathered.form == ATTRIBUTES_FIELDS)
		d = 1 + config.source;

	for (__u64 i = 0; i < GATHERED_HASHED / 8; i++)
		behind[i] = 0;
	for (__u64 i = 0; i < ATTRIBUTES_MAX_BYTES / 8 && i * 8 < n; i += GATHERED_HASHED / 8) {
		a = walk_mix(a, words[i]);
		b = walk_mix(b, words[i + 1]);
		c = walk_mix(c, words[i + 2]);
		d = walk_mix(d, words[i + 3]);
	}
	a = walk_mix(walk_mix(walk_mix(a, b), c), d);
	return a ? a : 1;
}

/*
 * Sends the gathered set unless it was sent lately. Returns the set's id; 0: nothing was gathered.
 */
static __always_inline __u64 attributes_send(struct scratch *s)
{
	struct gathered *g = &s->gathered;
	__u32 n = g->n, slot;
	__u64 mark, *last;

	asm volatile("" : "+r"(n));
	if (!n || n > ATTRIBUTES_MAX_BYTES)
		return 0;
	g->head = (struct record_attributes){
		.type = RECORD_ATTRIBUTES,
		.form = g->form,
		.n = (__u16)n,
		.left_out = g->left_out,
		.pid = s->out.sample.pid,
		.source = config.source,
		.id = attributes_id(s, n),
	};
	mark = g->head.id ^ control_epoch();
	if (mark == g->last)
		return g->head.id;
	g->last = mark;
	slot = (__u32)g->head.id & (SAMPLER_SEEN_SLOTS - 1);
	last = bpf_map_lookup_elem(&seen, &slot);
	if (!last || *last == mark)
		return g->head.id;
	/*
	 * If the ring has no room, the host misses the set for each sample that names it, and
	 * counts that.
	 */
	if (bpf_ringbuf_output(&ring, &g->head, sizeof(g->head) + n, BPF_RB_NO_WAKEUP) == 0)
		*last = mark;
	else
		g->last = 0;
	return g->head.id;
}
