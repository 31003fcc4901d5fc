/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a thread says of its work besides ids: readers gather bytes in the scratch space, and what
 * was not sent lately goes to the ring. Names and texts are made of it by the host.
 */
#pragma once

#include "bpf/lib/maps.h"

/* Where the last attribute may begin: a name and a text of most bytes have room behind it. */
#define ATTRIBUTES_LAST 511
_Static_assert(ATTRIBUTES_LAST + 2 + ATTRIBUTE_MAX_NAME + ATTRIBUTE_MAX_TEXT < ATTRIBUTES_MAX_BYTES,
	       "ATTRIBUTES_MAX_BYTES");
/* Of OpenTelemetry's record. */
#define ATTRIBUTES_NUMBERED_MAX 612

/* All of OpenTelemetry's, as they are. */
static __always_inline void attributes_numbered(struct scratch *s, const void *at, __u32 n)
{
	struct record_attributes *head = &s->attributes.head;

	if (!n || head->n)
		return;
	if (n > ATTRIBUTES_NUMBERED_MAX)
		n = ATTRIBUTES_NUMBERED_MAX;
	asm volatile("" : "+r"(n));
	if (n > ATTRIBUTES_NUMBERED_MAX || bpf_probe_read_user(s->attributes.bytes, n, at) < 0) {
		head->left_out++;
		return;
	}
	head->form = ATTRIBUTES_NUMBERED;
	head->n = (__u16)n;
}

/* One more with its name. */
static __always_inline void attributes_named(struct scratch *s, __u64 name, __u64 n_name,
					     __u64 text, __u64 n_text)
{
	struct record_attributes *head = &s->attributes.head;
	__u32 at = head->n, n = (__u32)n_name, m = (__u32)n_text;
	__u8 *to;

	if (!n_name || n_name > ATTRIBUTE_MAX_NAME || at > ATTRIBUTES_LAST) {
		head->left_out++;
		return;
	}
	if (n_text > ATTRIBUTE_MAX_TEXT)
		m = ATTRIBUTE_MAX_TEXT;
	/* Masks that the compiler would know to change nothing tell the verifier. */
	asm volatile("" : "+r"(at), "+r"(n), "+r"(m));
	at &= ATTRIBUTES_LAST;
	n &= ATTRIBUTE_MAX_NAME;
	m &= ATTRIBUTE_MAX_TEXT;
	to = s->attributes.bytes + at;
	to[0] = (__u8)n;
	to[1] = (__u8)(m | (n_text > ATTRIBUTE_MAX_TEXT ? ATTRIBUTE_CUT : 0));
	if (bpf_probe_read_user(to + 2, n, (const void *)name) < 0 ||
	    bpf_probe_read_user(to + 2 + n, m, (const void *)text) < 0) {
		head->left_out++;
		return;
	}
	head->form = ATTRIBUTES_NAMED;
	head->n = (__u16)(at + 2 + n + m);
}

/* The bytes' id; equal ones of two images are two, as their numbers may name other things. */
static __always_inline __u64 attributes_id(struct scratch *s, __u32 n)
{
	const __u64 *words = (const __u64 *)s->attributes.bytes;
	__u64 id = walk_mix(s->out.sample.start_stack, (__u64)s->out.sample.pid << 32 | n);

	for (__u32 i = 0; i < ATTRIBUTES_MAX_BYTES / 8 - 1 && i < n / 8; i++)
		id = walk_mix(id, words[i]);
	/* Behind the end is what was there before. */
	id = walk_mix(id, words[walk_bound(n / 8, 127)] & ((1ULL << n % 8 * 8) - 1));
	return id ? id : 1;
}

/* Gives the sample the id of what was gathered. A global function: the verifier looks at it once.
 */
__noinline int attributes_send(void)
{
	struct scratch *s = scratch_get();
	struct record_attributes *head;
	__u64 mark, *last;
	__u32 n, slot;

	if (!s)
		return 0;
	head = &s->attributes.head;
	n = head->n;
	asm volatile("" : "+r"(n));
	if (n > ATTRIBUTES_MAX_BYTES)
		return 0;
	head->type = RECORD_ATTRIBUTES;
	head->pid = s->out.sample.pid;
	head->id = attributes_id(s, n);
	s->out.sample.context.attributes = head->id;
	slot = (__u32)head->id & (SAMPLER_SEEN_SLOTS - 1);
	mark = head->id ^ epoch;
	last = bpf_map_lookup_elem(&seen, &slot);
	if (!last || *last == mark)
		return 0;
	/* One that is lost is asked for in vain by its samples, which is counted there. */
	if (bpf_ringbuf_output(&ring, head, sizeof(*head) + n, BPF_RB_NO_WAKEUP) == 0)
		*last = mark;
	return 0;
}
