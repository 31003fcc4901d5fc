/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the frames in a StackChunk, as bpf/unwind/hotspot.h walks those of a thread. */
#include "agent/runtime/hotspot/chunk.h"

#include <errno.h>
#include <string.h>

#define MAX_HOPS 32 /* in the segment map */
#define MAX_FRAME_WORDS (1u << 17)
#define MAX_BCI 0xffff
#define FRAME_FP 2 /* words before a frame's sp */
#define FRAME_PC 1
/* Words from an interpreter frame's fp. */
#define FP_BYTECODE (-8)
#define FP_METHOD (-3)
#define FP_SENDER (-1)
#define FP_CALLER 2

void hotspot_walker_begin(struct hotspot_walker *w, const struct runtime_target *t,
			  const struct runtime_process *p)
{
	w->memory = t->memory;
	memcpy(&w->process, p->room, sizeof(w->process));
	memset(w->code, 0, sizeof(w->code));
	memset(w->methods, 0, sizeof(w->methods));
}

/* 0, STOP_COPY_END, or -EINVAL: it is not in the chunk. */
static int word_at(const struct hotspot_chunk *c, s64 index, u64 *ret)
{
	if (index < 0 || index >= (s64)c->size || index < (s64)c->first)
		return -EINVAL;
	if (index - (s64)c->first >= (s64)c->n)
		return STOP_COPY_END;
	*ret = c->words[index - (s64)c->first];
	return 0;
}

static int push(struct hotspot_walker *w, u32 kind, u64 address, u32 position, u32 cookie)
{
	if (w->n + 2 > SAMPLE_MAX_FRAMES)
		return STOP_TOO_DEEP;
	w->words[w->n++] = WORD_RUNTIME | (u64)RUNTIME_HOTSPOT << WORD_RUNTIME_SHIFT |
			   (address & WORD_RUNTIME_ADDRESS);
	w->words[w->n++] = (u64)kind << HOTSPOT_KIND_SHIFT |
			   (u64)(position & HOTSPOT_NO_POSITION) << HOTSPOT_POSITION_SHIFT | cookie;
	return 0;
}

static u32 slot_of(u64 key)
{
	return (u32)(hotspot_mix(0, key) % HOTSPOT_CACHE);
}

/* ---- interpreted methods ---- */

static bool mix_symbol(const struct hotspot_walker *w, u64 at, u64 *hash)
{
	bool failed = false;
	u64 symbol = runtime_u64(&w->memory, at, &failed) & ~1ULL, word;

	word = failed ? 0 : runtime_u64(&w->memory, symbol, &failed);
	if (!failed)
		*hash = hotspot_mix_symbol(*hash, symbol, word,
					   (w->process.flags & HOTSPOT_COUNT) >> 3);
	return !failed;
}

/* hotspot_cookie() of a method. */
static u32 cookie_of(const struct hotspot_walker *w, u64 const_method, u64 names)
{
	const struct hotspot_process *p = &w->process;
	u64 hash = hotspot_mix(hotspot_mix(0, const_method), names), pool, class;
	bool failed = !(p->flags & HOTSPOT_TELLS_CLASSES);

	pool = failed ? 0 : runtime_u64(&w->memory, const_method + p->constants, &failed);
	class = failed ? 0 : runtime_u64(&w->memory, pool + p->holder, &failed);
	if (failed || !mix_symbol(w, class + p->class_name, &hash))
		return hotspot_cookie(hash, 0);
	if (!mix_symbol(w, pool + p->pool_size + (names & 0xffff) * 8, &hash))
		return hotspot_cookie(hash, 1);
	return hotspot_cookie(hash, 2);
}

/* Borrowed until the next call. NULL: the method is not readable. */
static const struct hotspot_known_method *find_method(struct hotspot_walker *w, u64 method)
{
	struct hotspot_known_method *k = &w->methods[slot_of(method)];
	bool failed = false;
	u64 const_method, names;

	if (method && k->method == method)
		return k;
	const_method = runtime_u64(&w->memory, method + w->process.const_method, &failed);
	names = failed ? 0 : runtime_u64(&w->memory, const_method + w->process.names, &failed);
	if (failed || !method)
		return NULL;
	*k = (struct hotspot_known_method){
		.method = method,
		.bytecodes = const_method + w->process.const_method_size,
		.cookie = cookie_of(w, const_method, names),
	};
	return k;
}

struct place {
	s64 sp;	 /* of the frame */
	s64 end; /* where its own words begin: above sp, if the callee was interpreted */
};

static int walk_interpreted(struct hotspot_walker *w, const struct hotspot_chunk *c,
			    struct place *at)
{
	const struct hotspot_known_method *k;
	u64 link, method, bytecode, sender;
	int r = word_at(c, at->sp - FRAME_FP, &link);
	s64 fp;

	if (r)
		return r;
	if (link < FP_CALLER || link > MAX_FRAME_WORDS)
		return -EINVAL;
	fp = at->sp - FRAME_FP + (s64)link;
	r = word_at(c, fp + FP_METHOD, &method);
	if (r == 0)
		r = word_at(c, fp + FP_BYTECODE, &bytecode);
	if (r == 0)
		r = word_at(c, fp + FP_SENDER, &sender);
	if (r)
		return r;
	k = find_method(w, method);
	if (!k || sender < FP_CALLER || sender > MAX_FRAME_WORDS)
		return -EINVAL;
	bytecode -= k->bytecodes;
	r = push(w, HOTSPOT_INTERPRETED, method,
		 bytecode < MAX_BCI ? (u32)bytecode : HOTSPOT_NO_POSITION, k->cookie);
	at->sp = fp + FP_CALLER;
	at->end = fp + (s64)sender;
	return r;
}

/* ---- compiled methods and stubs ---- */

static u64 find_blob(const struct hotspot_walker *w, u64 pc)
{
	const struct hotspot_process *p = &w->process;
	u64 segment, start;
	u8 back;

	for (u32 i = 0; i < HOTSPOT_MAX_HEAPS; i++) {
		const struct hotspot_heap *heap = &p->heaps[i];

		if (pc - p->base < heap->start || pc - p->base >= heap->end)
			continue;
		start = p->base + heap->start;
		segment = (pc - start) >> p->segment_shift;
		for (u32 k = 0; k < MAX_HOPS; k++) {
			if (runtime_read(&w->memory, heap->segmap + segment, &back, 1) < 0 ||
			    back == 0xff || back > segment)
				return 0;
			if (!back)
				return start + (segment << p->segment_shift) + p->block_header;
			segment -= back;
		}
	}
	return 0;
}

static u32 header_u32(const u8 *header, u32 offset)
{
	u32 v = 0;

	if (offset + sizeof(v) <= HOTSPOT_HEADER_BYTES)
		memcpy(&v, header + offset, sizeof(v));
	return v;
}

static u64 header_u64(const u8 *header, u32 offset)
{
	return header_u32(header, offset) | (u64)header_u32(header, offset + 4) << 32;
}

static int read_code(const struct hotspot_walker *w, u64 pc, struct hotspot_code *ret)
{
	const struct hotspot_process *p = &w->process;
	u8 header[HOTSPOT_HEADER_BYTES];
	struct hotspot_code c = {.pc = pc, .blob = find_blob(w, pc)};
	char name[16];
	u64 end;

	if (!c.blob || runtime_read(&w->memory, c.blob, header, sizeof(header)) < 0 ||
	    runtime_read(&w->memory, header_u64(header, p->name), name, sizeof(name)) < 0)
		return -EINVAL;
	if (p->flags & HOTSPOT_CODE_OFFSETS) {
		c.start = c.blob + header_u32(header, p->code);
		end = c.blob + header_u32(header, p->code_end);
		c.deopt = c.blob + header_u32(header, p->deopt);
	} else {
		c.start = header_u64(header, p->code);
		end = header_u64(header, p->code_end);
		c.deopt = header_u64(header, p->deopt);
	}
	c.frame_words = header_u32(header, p->frame_size);
	c.orig_pc = header_u32(header, p->orig_pc);
	c.compile_id = header_u32(header, p->compile_id);
	c.is_method = !memcmp(name, "nmethod", 8) || !memcmp(name, "native nmethod", 15);
	if (pc < c.start || pc >= end || !c.frame_words || c.frame_words > MAX_FRAME_WORDS)
		return -EINVAL;
	*ret = c;
	return 0;
}

static int push_code(struct hotspot_walker *w, const struct hotspot_chunk *c,
		     const struct place *at, const struct hotspot_code *k)
{
	u64 pc = k->pc, orig;

	if (!k->is_method)
		return push(w, HOTSPOT_STUB, k->blob, (u32)(pc - k->start), (u32)pc);
	/* A deoptimised frame keeps its own pc at another place. */
	if (pc == k->deopt && word_at(c, at->end + k->orig_pc / 8, &orig) == 0 &&
	    orig - k->start < 1u << 28)
		pc = orig;
	return push(w, HOTSPOT_COMPILED, k->blob, (u32)(pc - k->start), k->compile_id);
}

static int walk_compiled(struct hotspot_walker *w, const struct hotspot_chunk *c, u64 pc,
			 struct place *at)
{
	struct hotspot_code *k = &w->code[slot_of(pc)];
	int r = pc && k->pc == pc ? 0 : read_code(w, pc, k);

	if (r == 0)
		r = push_code(w, c, at, k);
	if (r)
		return r;
	at->end += k->frame_words;
	at->sp = at->end;
	return 0;
}

int hotspot_walk_chunk(struct hotspot_walker *w, const struct hotspot_chunk *c)
{
	const struct hotspot_process *p = &w->process;
	struct place at = {c->sp, c->sp};
	u64 pc;
	int r;

	/* The outermost frame ends where its arguments begin, or two words before. */
	while (at.end < (s64)c->bottom - FRAME_FP) {
		s64 before = at.end;

		r = word_at(c, at.sp - FRAME_PC, &pc);
		if (r)
			return r;
		r = pc - p->base >= p->interpreter && pc - p->base < p->interpreter_end
			    ? walk_interpreted(w, c, &at)
			    : walk_compiled(w, c, pc, &at);
		if (r)
			return r;
		if (at.end <= before || at.sp > (s64)c->size)
			return -EINVAL;
	}
	return at.end > (s64)c->size ? -EINVAL : STOP_COMPLETE;
}
