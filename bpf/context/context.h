/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The trace and span that the sampled thread works for. BPF reads them at the time of the sample:
 * each thread writes its own record, so the record does not change while the thread is interrupted.
 * Each line of abi/tbl/context.tbl has a reader, `bool NAME_context(s, p)`, which returns whether
 * the thread is in a trace or span. A sample has the attributes of the first reader that finds any.
 */
#pragma once

#include "bpf/lib/scratch.h"
#include "bpf/lib/task.h"

/*
 * Processes that publish contexts; process_entry.context is the index. User space fills the
 * entries. User space does not change an entry while a process_entry refers to it, and does not
 * reuse the entry soon after.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* so that the values begin at a page */
	__uint(max_entries, CONTEXT_MAX_PROCESSES);
	__type(key, __u32);
	__type(value, struct context_process);
} context_processes SEC(".maps");

static __always_inline __u64 context_word(__u64 address)
{
	__u64 word = 0;

	return bpf_probe_read_user(&word, sizeof(word), (const void *)address) < 0 ? 0 : word;
}

/* The lesser of two values below 2^63. Branchless, so that the verifier follows one path. */
static __always_inline __u64 context_less(__u64 a, __u64 b)
{
	__u64 less = a - b;

	asm volatile("" : "+r"(less));
	return b + (less & (__u64)((__s64)less >> 63));
}

/*
 * Reads at least `n` bytes, and up to `ahead` bytes if they are in the same page: a call of the
 * helper costs more than the copy, and ten times as much if the memory is not present. Returns the
 * number of bytes read; 0: none.
 */
static __always_inline __u32 context_bytes(void *to, __u32 room, __u32 n, __u64 ahead, __u64 at)
{
	__u64 page = context_less(4096 - (at & 4095), ahead);
	__u64 least = n, bytes = least + page - context_less(least, page);
	__u32 count = (__u32)bytes, checked = count;

	/*
	 * Linux 5.10 forgets the 64-bit bounds in a 32-bit move, and the bounds of spilled values:
	 * `checked` stays in a register from the check to the call, wherever `count` is.
	 */
	asm volatile("" : "+r"(checked));
	return checked <= room && bpf_probe_read_user(to, checked, (const void *)at) == 0 ? count
											  : 0;
}

/* Reads `n` words into the window's memory, which the walk does not use yet. */
static __always_inline bool context_words(struct scratch *s, __u32 n, __u64 at)
{
	asm volatile("" : "+r"(n));
	return n <= WINDOW_WORDS &&
	       bpf_probe_read_user(s->window.words, n * 8, (const void *)at) == 0;
}

/*
 * The vector's word at index `at`. Stores the vector's first word, the number of blocks, in
 * words[0].
 */
static __always_inline __u64 context_block_at(struct scratch *s, __u64 vector, __u32 at)
{
	s->window.words[0] = 0;
	if (at < WINDOW_WORDS)
		return context_words(s, at + 1, vector)
			       ? s->window.words[walk_bound(at, WINDOW_WORDS - 1)]
			       : 0;
	s->window.words[0] = context_word(vector);
	return context_word(vector + (__u64)at * 8);
}

/*
 * The address of the thread's block of a module, or 0. A thread's vector moves only when it grows
 * for a newly loaded library. So the scratch space keeps the vector's address for this very thread,
 * as long as the process has the same mappings and the vector has the same length. BPF reads the
 * vector's entries each time.
 */
static __always_inline __u64 context_block(struct scratch *s, const struct context_process *p,
					   __u32 module)
{
	struct vector_at *v = &s->vectors[walk_bound(s->out.sample.tid, VECTORS - 1)];
	__u64 tp = s->walk.regs.tls, began = task_read(task_current(), start_time);
	__u64 id = s->walk.mappings_id, block = 0, differs;
	__u32 at = (p->dtv_before + module * p->dtv_slot) / 8;

	differs = (v->began ^ began) | (v->tp ^ tp) | (v->mappings_id ^ id) |
		  (v->tid ^ s->out.sample.tid) | !id;
	if (!differs)
		block = context_block_at(s, v->at, at);
	if (differs || s->window.words[0] != v->n) {
		__u64 vector = context_word(tp + (__u64)(__s64)p->dtv_at);

		if (!vector)
			return 0;
		v->at = vector - p->dtv_before;
		block = context_block_at(s, v->at, at);
		v->n = s->window.words[0];
		v->began = began;
		v->tp = tp;
		v->mappings_id = id;
		v->tid = s->out.sample.tid;
	}
	/* glibc marks a block that is not allocated yet with all ones. */
	return module <= s->window.words[0] && block != ~0ULL ? block : 0;
}

/* The address of the thread's copy of the variable, or 0 if the thread has no copy (yet). */
static __always_inline __u64 context_tls(struct scratch *s, const struct context_process *p,
					 __u32 id)
{
	const struct context_tls *t = &p->tls[id];
	__u64 block;

	if (t->how == CONTEXT_TLS_STATIC)
		return s->walk.regs.tls + (__u64)t->offset;
	if (t->how != CONTEXT_TLS_DTV)
		return 0;
	block = context_block(s, p, t->module);
	return block ? block + (__u64)t->offset : 0;
}

#include "bpf/context/attributes.h"

#include "bpf/context/elastic.h"
#include "bpf/context/go.h"
#include "bpf/context/otel.h"

#include "bpf/context/node.h"
#include "bpf/context/obi.h"
#include "bpf/context/polar.h"

static __always_inline __u32 context_of_process(struct scratch *s)
{
	struct context_process *p = bpf_map_lookup_elem(&context_processes, &s->context);

	if (!p || p->image != s->image)
		return CONTEXT_NONE;
#define CONTEXT(id, name, ...)                                                                     \
	if (p->sources & 1U << CONTEXT_##id && name##_context(s, p))                               \
		return CONTEXT_##id;
#include "abi/tbl/context.tbl"
#undef CONTEXT
	return CONTEXT_NONE;
}

static __always_inline void context_read(struct scratch *s)
{
	const volatile struct sampler_control *c = control_get();
	__u32 source;

	if (!c || !c->context_n) /* most machines have no publisher: do not pay for readers */
		return;
	s->gathered.n = 0;
	s->gathered.left_out = 0;
	source = context_of_process(s);
#ifndef CONTEXT_NO_ATTRIBUTES
	s->out.sample.context.attributes = attributes_send(s);
#endif
	if (source == CONTEXT_NONE && config.has_obi && obi_context(s))
		source = CONTEXT_OBI;
	s->out.sample.context.source = source;
}
