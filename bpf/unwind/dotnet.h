/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Managed frames of .NET (abi/runtime_dotnet.h): finds the method around a pc as CoreCLR does, in
 * the memory of the process, and unwinds the frame by the method's unwind codes.
 *
 * The codes describe the prologue, the last instruction first: a code holds from the offset behind
 * its instruction on. Epilogues have no codes: the instructions at a leaf's pc tell whether the
 * leaf is in one (pops, then a return or a jump out of the function).
 *
 * Other code of the runtime's executable memory are stubs, which jump on without a frame.
 */
#pragma once

#include "abi/runtime_dotnet.h"
#include "bpf/unwind/runtime.h"

#define DOTNET_MAX_CODES 32
/* The array of an image's functions, or of a method's funclets, has fewer than 2^n entries. */
#define DOTNET_SEARCH_STEPS 22
#define DOTNET_EPILOG_BYTES 24
#define DOTNET_MAX_POPS 8
/* The search for a method's start reads 16 KiB of code per step, so methods have up to 512 KiB. */
#define DOTNET_NIBBLE_WORDS 64
#define DOTNET_NIBBLE_STEPS 32
#define DOTNET_FRAMES_PER_CALL 4

/* UNWIND_CODE of Windows x64; the last is CoreCLR's own. */
enum dotnet_op {
	DOTNET_PUSH,
	DOTNET_ALLOC_LARGE,
	DOTNET_ALLOC_SMALL,
	DOTNET_SET_FP,
	DOTNET_SAVE,
	DOTNET_SAVE_FAR,
	DOTNET_SAVE_XMM = 8,
	DOTNET_SAVE_XMM_FAR,
	DOTNET_SET_FP_LARGE = 11,
};
#define DOTNET_RBP 5 /* in Windows' numbering, which is the processor's */

struct dotnet_section {
	__u64 begin, end; /* end 0: unused */
	__u64 nibbles;	  /* 0: an image */
	__u64 map_base;
	__u64 functions;
	__u32 n_functions;
	__u32 pad;
};

struct dotnet_scratch {
	struct dotnet_process process; /* a copy */
	/* The sections of the frames before: mostly a heap and an image. */
	struct dotnet_section sections[2];
	__u32 last; /* index of the section used last */
	volatile __u32 lo, hi;
	__u64 range[DOTNET_SECTION_BYTES / 8];
	/* What is known about the method. */
	__u64 start; /* of the method's code or, in an image, of the function */
	__u64 base;  /* that offsets in `function` count from */
	__u32 kind;  /* enum dotnet_kind */
	__u32 cookie;
	struct dotnet_function function;
	__u32 n_codes;
	struct {
		__u64 method;
		__u32 n;
		struct dotnet_function first;
	} header;
	__u32 nibbles[DOTNET_NIBBLE_WORDS];
	__u16 codes[DOTNET_MAX_CODES + 2];
	__u8 epilog[DOTNET_EPILOG_BYTES + 8];
	/*
	 * Of the caller: its sp, and where its fp is saved (0: in fp). Like indices of loops, they
	 * are in memory and not in registers, so that the verifier sees one state per iteration.
	 */
	volatile __u64 sp, fp_at;
	volatile __u32 i, pops;
};
_Static_assert(__builtin_offsetof(struct dotnet_scratch, header.first) -
			       __builtin_offsetof(struct dotnet_scratch, header.method) ==
		       DOTNET_HEADER_FUNCTIONS - DOTNET_HEADER_METHOD,
	       "header");

/* One entry for each level. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct dotnet_scratch);
} dotnet_scratch SEC(".maps");

/* Global functions, which the verifier checks once, find their arguments here. */
static __always_inline struct dotnet_scratch *dotnet_get(void)
{
	__u32 level = scratch_level();

	return bpf_map_lookup_elem(&dotnet_scratch, &level);
}

/* ---- range sections ---- */

/* The range section at pc, by the tree; 0: there is none. */
static __always_inline __u64 dotnet_find_in_tree(struct dotnet_scratch *h, __u64 pc)
{
	__u64 at = h->process.ranges, fragment[4];

	for (__u64 i = 0; i < DOTNET_LEVELS; i++) {
		__u64 shift = DOTNET_LEAF_BITS + DOTNET_LEVEL_BITS * (DOTNET_LEVELS - 1 - i);

		at = runtime_word(at + (pc >> shift & ((1 << DOTNET_LEVEL_BITS) - 1)) * 8) & ~1ULL;
		if (!at)
			return 0;
	}
	/* {next, begin, end, section} */
	for (__u64 i = 0; i < DOTNET_MAX_FRAGMENTS && at; i++) {
		if (bpf_probe_read_user(fragment, sizeof(fragment), (const void *)at) < 0)
			return 0;
		if (pc >= fragment[1] && pc < fragment[2])
			return fragment[3];
		at = fragment[0] & ~1ULL;
	}
	return 0;
}

/* Reads the range section at pc to h->range; false: there is none. */
static __always_inline bool dotnet_read_range(struct dotnet_scratch *h, __u64 pc)
{
	__u64 at;

	if (!(h->process.flags & DOTNET_LIST)) {
		at = dotnet_find_in_tree(h, pc);
		return at && bpf_probe_read_user(h->range, sizeof(h->range), (const void *)at) == 0;
	}
	at = runtime_word(h->process.ranges);
	for (__u64 i = 0; i < DOTNET_MAX_LIST && at; i++) {
		if (bpf_probe_read_user(h->range, sizeof(h->range), (const void *)at) < 0)
			return false;
		if (pc >= h->range[0] && pc < h->range[1])
			return true;
		at = h->range[walk_bound(h->process.next / 8, 7)];
	}
	return false;
}

/* Fills a section from h->range; false: it has no managed code. */
static __always_inline bool dotnet_read_section(struct dotnet_scratch *h, struct dotnet_section *to)
{
	const struct dotnet_process *p = &h->process;
	__u32 flags = (__u32)h->range[walk_bound(p->section_flags / 8, 7)];
	__u64 info, words[2];

	if (flags & DOTNET_SECTION_CODE_HEAP) {
		info = h->range[walk_bound(p->heap / 8, 7)];
		if (bpf_probe_read_user(words, sizeof(words),
					(const void *)(info + DOTNET_HEAP_MAP_BASE)) < 0)
			return false;
		to->map_base = words[0];
		to->nibbles = words[1];
	} else {
		if (p->flags & DOTNET_LIST && !(flags & DOTNET_SECTION_READY_LIST))
			return false;
		info = h->range[walk_bound(p->module / 8, 7)];
		if (!info || !p->info)
			return false;
		info = runtime_word(info + p->info);
		if (p->composite)
			info = runtime_word(info + p->composite);
		to->nibbles = 0;
		to->functions = runtime_word(info + p->functions);
		to->n_functions = (__u32)runtime_word(info + p->n_functions);
		if (!to->functions || to->n_functions >= 1U << DOTNET_SEARCH_STEPS)
			return false;
	}
	to->begin = h->range[0];
	to->end = h->range[1];
	return true;
}

/* Selects the section at pc, h->last. 0: pc is in no managed code. */
__noinline int dotnet_find_section(__u64 pc)
{
	struct dotnet_scratch *h = dotnet_get();
	__u32 i;

	if (!h)
		return 0;
	for (i = 0; i < 2; i++) {
		if (pc >= h->sections[i].begin && pc < h->sections[i].end) {
			h->last = i;
			return 1;
		}
	}
	i = !h->last;
	h->sections[i].end = 0;
	if (!dotnet_read_range(h, pc) || !dotnet_read_section(h, &h->sections[i]))
		return 0;
	h->last = i;
	return 1;
}

/* ---- methods ---- */

/*
 * The start of the method, as an offset from the map's base, by one word of the nibble map: a
 * nibble for each 32 bytes of code, the first in the highest bits; 0 if no method starts there,
 * else 1 plus a quarter of the method's offset in them. -1: no method starts in the word.
 */
static __always_inline __s64 dotnet_in_word(__u32 word, __u64 index, __u32 first)
{
	for (__u64 i = 0; i < 8; i++) {
		__u32 nibble = word >> (28 - 4 * (7 - i)) & 15;

		if (7 - i <= first && nibble)
			return (__s64)(index * 256 + (7 - i) * 32 + (nibble - 1) * 4);
	}
	return -1;
}

/*
 * Searches the words of the nibble map up to word `index` for the last start of a method. 1: sets
 * h->start; 0: no method starts there.
 */
__noinline int dotnet_search_back(__u64 map_base, __u64 nibbles, __u64 index)
{
	struct dotnet_scratch *h = dotnet_get();
	__u32 last = index < DOTNET_NIBBLE_WORDS ? (__u32)index : DOTNET_NIBBLE_WORDS - 1, word;
	__s64 at;

	if (!h || bpf_probe_read_user(h->nibbles, walk_bound(last, DOTNET_NIBBLE_WORDS - 1) * 4 + 4,
				      (const void *)(nibbles + (index - last) * 4)) < 0)
		return 0;
	for (__u64 k = 0; k < DOTNET_NIBBLE_WORDS; k++) {
		if (k > last)
			break;
		word = h->nibbles[walk_bound(last - (__u32)k, DOTNET_NIBBLE_WORDS - 1)];
		if (!word)
			continue;
		at = dotnet_in_word(word, index - k, 7);
		h->start = map_base + (__u64)at;
		return at >= 0;
	}
	return 0;
}

/* Whether a word of the nibble map is a pointer. */
static __always_inline bool dotnet_is_pointer(const struct dotnet_scratch *h, __u32 word)
{
	return h->process.flags & DOTNET_POINTERS && (word & 15) > 8;
}

/* Sets h->start to the start of the method at pc, in a heap. 0: there is none. */
__noinline int dotnet_find_start(__u64 pc)
{
	struct dotnet_scratch *h = dotnet_get();
	const struct dotnet_section *c;
	__u64 delta, index;
	__u32 word, first, nibble;
	__s64 at;

	if (!h)
		return 0;
	c = &h->sections[walk_bound(h->last, 1)];
	delta = pc - c->map_base;
	index = delta >> 8;
	first = delta >> 5 & 7;
	if (bpf_probe_read_user(&word, sizeof(word), (const void *)(c->nibbles + index * 4)) < 0)
		return 0;
	if (!dotnet_is_pointer(h, word)) {
		nibble = word >> (28 - 4 * first) & 15;
		/* A method starts in the 32 bytes of pc, but behind pc. */
		if (nibble && (nibble - 1) * 4 > (delta & 31))
			word &= ~(15U << (28 - 4 * first));
		at = dotnet_in_word(word, index, first);
		if (at >= 0) {
			h->start = c->map_base + (__u64)at;
			return 1;
		}
		if (!index)
			return 0;
		index--;
		if (h->process.flags & DOTNET_POINTERS &&
		    bpf_probe_read_user(&word, sizeof(word),
					(const void *)(c->nibbles + index * 4)) < 0)
			return 0;
	}
	if (dotnet_is_pointer(h, word)) {
		h->start = c->map_base + (word & ~15U) + ((word & 15) - 9) * 4;
		return 1;
	}
	for (__u64 i = 0; i < DOTNET_NIBBLE_STEPS; i++) {
		if (dotnet_search_back(c->map_base, c->nibbles, index))
			return 1;
		if (index < DOTNET_NIBBLE_WORDS)
			return 0;
		index -= DOTNET_NIBBLE_WORDS;
	}
	return 0;
}

/*
 * Reads the function at an offset from the base, of a sorted array, to h->function. 0: there is
 * none.
 */
__noinline int dotnet_find_function(__u64 array, __u32 n, __u32 offset)
{
	struct dotnet_scratch *h = dotnet_get();
	__u32 mid, begin;

	if (!h)
		return 0;
	h->lo = 0;
	h->hi = n;
	for (__u64 i = 0; i < DOTNET_SEARCH_STEPS; i++) {
		mid = h->lo;
		if (mid >= h->hi)
			break;
		mid = mid + (h->hi - mid) / 2;
		if (bpf_probe_read_user(&begin, sizeof(begin),
					(const void *)(array + (__u64)mid * 12)) < 0)
			return 0;
		if (begin <= offset)
			h->lo = mid + 1;
		else
			h->hi = mid;
	}
	mid = h->lo;
	if (!mid)
		return 0;
	array += (__u64)(mid - 1) * sizeof(h->function);
	return bpf_probe_read_user(&h->function, sizeof(h->function), (const void *)array) == 0 &&
	       offset >= h->function.begin && offset < h->function.end;
}

/* Finds the method at pc in the current section: false if there is none. */
static __always_inline bool dotnet_find_method(struct dotnet_scratch *h, __u64 pc)
{
	const struct dotnet_section *c = &h->sections[walk_bound(h->last, 1)];
	__u64 header;

	if (!c->nibbles) {
		h->base = c->begin;
		h->kind = DOTNET_READY;
		h->cookie = dotnet_cookie(c->functions, c->begin);
		if (!dotnet_find_function(c->functions, c->n_functions, (__u32)(pc - c->begin)))
			return false;
		h->start = h->base + h->function.begin;
		return true;
	}
	if (!dotnet_find_start(pc))
		return false;
	header = runtime_word(h->start - 8);
	if (header < DOTNET_STUB_HEADERS ||
	    bpf_probe_read_user(&h->header, sizeof(h->header),
				(const void *)(header + DOTNET_HEADER_METHOD)) < 0)
		return false;
	h->kind = DOTNET_COMPILED;
	h->cookie = dotnet_cookie(h->header.method, header);
	h->base = h->start - h->header.first.begin;
	h->function = h->header.first;
	if (!h->header.n || h->header.n >= 1U << DOTNET_SEARCH_STEPS)
		return false;
	if (pc - h->base >= h->function.end)
		return dotnet_find_function(header + DOTNET_HEADER_FUNCTIONS, h->header.n,
					    (__u32)(pc - h->base));
	return true;
}

/* ---- unwinding ---- */

/*
 * Whether the leaf at pc is about to return, by the instructions at pc: sets h->sp to where the
 * return address is, and h->fp_at.
 */
__noinline int dotnet_in_epilog(void)
{
	struct dotnet_scratch *h = dotnet_get();
	struct scratch *s = scratch_get();
	__u64 pc, to;
	__u8 op, next;
	__u32 i;

	if (!s || !h)
		return 0;
	pc = s->walk.regs.pc;
	if (bpf_probe_read_user(h->epilog, DOTNET_EPILOG_BYTES, (const void *)pc) < 0)
		return 0;
	h->sp = s->walk.regs.sp;
	h->fp_at = 0;
	h->i = h->pops = 0;
	for (__u64 k = 0; k < DOTNET_MAX_POPS; k++) {
		i = h->i;
		op = h->epilog[walk_bound(i, 15)];
		next = h->epilog[walk_bound(i + 1, 15)];
		if (op == 0x58 + DOTNET_RBP)
			h->fp_at = h->sp;
		if (op == 0x41 && (next & 0xf8) == 0x58)
			h->i = i + 2;
		else if ((op & 0xf8) == 0x58)
			h->i = i + 1;
		else
			break;
		h->sp += 8;
		h->pops++;
	}
	i = h->i;
	op = h->epilog[walk_bound(i, 15)];
	next = h->epilog[walk_bound(i + 1, 15)];
	/* ret; rep ret; rex.W jmp, which only ends functions */
	if (op == 0xc3 || (op == 0xf3 && next == 0xc3) ||
	    (op == 0x48 && next == 0xff && (h->epilog[walk_bound(i + 2, 31)] & 0x38) == 0x20))
		return 1;
	if (op == 0xff && next == 0x25)
		return 1;
	if (op != 0xe9)
		return 0;
	to = pc + i + 5 + (__u64)(__s64) * (__s32 *)&h->epilog[walk_bound(i + 1, 15)] - h->base;
	return h->pops || to < h->function.begin || to >= h->function.end;
}

/* Applies the codes of the prologue: sets h->sp and h->fp_at. A stop reason, or WALK_GO. */
__noinline int dotnet_apply_codes(__u32 offset)
{
	struct dotnet_scratch *h = dotnet_get();
	struct scratch *s = scratch_get();
	__u32 head, n;
	__u64 at, fp;

	if (!s || !h)
		return STOP_NO_TABLE;
	at = h->base + h->function.unwind;
	/* u8 version and flags, u8 size of the prologue, u8 number of codes, u8 frame register */
	if (bpf_probe_read_user(&head, sizeof(head), (const void *)at) < 0)
		return STOP_BAD_READ;
	n = head >> 16 & 0xff;
	if ((head & 7) != 1 || n > DOTNET_MAX_CODES)
		return STOP_UNSUPPORTED;
	if (n && bpf_probe_read_user(h->codes, walk_bound(n - 1, DOTNET_MAX_CODES - 1) * 2 + 2,
				     (const void *)(at + 4)) < 0)
		return STOP_BAD_READ;
	fp = s->walk.regs.fp;
	h->sp = s->walk.regs.sp;
	h->fp_at = 0;
	h->i = 0;
	for (__u64 k = 0; k < DOTNET_MAX_CODES; k++) {
		__u32 i = h->i, code, op, info, slots = 1, size;
		bool done;

		if (i >= n)
			break;
		code = h->codes[walk_bound(i, DOTNET_MAX_CODES - 1)];
		size = h->codes[walk_bound(i + 1, DOTNET_MAX_CODES - 1)];
		done = offset >= (code & 0xff);
		op = code >> 8 & 15;
		info = code >> 12;
		if (op == DOTNET_SET_FP_LARGE || op == DOTNET_SAVE_FAR ||
		    op == DOTNET_SAVE_XMM_FAR || (op == DOTNET_ALLOC_LARGE && info)) {
			slots = 3;
			size |= (__u32)h->codes[walk_bound(i + 2, DOTNET_MAX_CODES - 1)] << 16;
		} else if (op == DOTNET_ALLOC_LARGE || op == DOTNET_SAVE || op == DOTNET_SAVE_XMM) {
			slots = 2;
			size *= 8;
		}
		h->i = i + slots;
		if (!done)
			continue;
		switch (op) {
		case DOTNET_PUSH:
			if (info == DOTNET_RBP)
				h->fp_at = h->sp;
			h->sp += 8;
			break;
		case DOTNET_ALLOC_LARGE:
			h->sp += size;
			break;
		case DOTNET_ALLOC_SMALL:
			h->sp += info * 8 + 8;
			break;
		case DOTNET_SET_FP:
			h->sp = fp - (head >> 28) * 16;
			break;
		case DOTNET_SET_FP_LARGE:
			h->sp = fp - (__u64)size * 16;
			break;
		case DOTNET_SAVE:
		case DOTNET_SAVE_FAR:
			if (info == DOTNET_RBP)
				h->fp_at = h->sp + size;
			break;
		case DOTNET_SAVE_XMM:
		case DOTNET_SAVE_XMM_FAR:
			break;
		default:
			return STOP_UNSUPPORTED;
		}
	}
	return h->sp < s->walk.regs.sp ? STOP_NO_PROGRESS : WALK_GO;
}

/* Moves to the caller, whose return address is at h->sp. */
static __always_inline int dotnet_return(struct scratch *s, const struct dotnet_scratch *h)
{
	struct walk_env env = {s, NULL}; /* walk_read() looks up no row */
	__u64 words[2], fp = s->walk.regs.fp;

	if (h->fp_at && h->fp_at == h->sp - 8) {
		if (walk_read(&env, words, sizeof(words), h->fp_at) < 0)
			return STOP_BAD_READ;
		return runtime_return(s, words[1], h->sp + 8, words[0]);
	}
	if (walk_read(&env, &words[1], 8, h->sp) < 0 ||
	    (h->fp_at && walk_read(&env, &fp, 8, h->fp_at) < 0))
		return STOP_BAD_READ;
	return runtime_return(s, words[1], h->sp + 8, fp);
}

/*
 * A stub has no frame: it is a leaf, shown only with --runtime-frames, and its caller's address is
 * on top of the stack.
 */
static __always_inline int dotnet_stub(struct scratch *s, struct dotnet_scratch *h)
{
	if (!s->walk.regs.exact)
		return RUNTIME_NATIVE;
	if (!runtime_push_own(s, RUNTIME_DOTNET) || s->walk.n >= SAMPLE_MAX_FRAMES)
		return STOP_TOO_DEEP;
	native_push(s, WORD_RAW | s->walk.regs.pc);
	h->sp = s->walk.regs.sp;
	h->fp_at = 0;
	return dotnet_return(s, h);
}

__noinline int dotnet_one(void)
{
	struct dotnet_scratch *h = dotnet_get();
	struct scratch *s = scratch_get();
	__u32 position;
	__u64 pc;
	int stop;

	if (!s || !h)
		return RUNTIME_NATIVE;
	pc = walk_pc(&s->walk.regs);
	if (!dotnet_find_section(pc) || !dotnet_find_method(h, pc))
		return dotnet_stub(s, h);
	position = (__u32)(pc - h->start) & DOTNET_POSITION_MASK;
	if (!runtime_push(s, RUNTIME_DOTNET, h->start,
			  (__u64)h->kind << DOTNET_KIND_SHIFT |
				  (__u64)position << DOTNET_POSITION_SHIFT | h->cookie))
		return STOP_TOO_DEEP;
	if (s->walk.regs.exact && dotnet_in_epilog())
		return dotnet_return(s, h);
	stop = dotnet_apply_codes((__u32)(s->walk.regs.pc - h->base - h->function.begin));
	return stop == WALK_GO ? dotnet_return(s, h) : stop;
}

/* Copies the data about the process to the scratch space, once for each sample. */
static __always_inline bool dotnet_begin(struct scratch *s, struct dotnet_scratch *h)
{
	struct runtime_walk *state = runtime_state(s, RUNTIME_DOTNET);
	const struct runtime_process *process;

	if (state->room[0])
		return true;
	process = runtime_process(s, RUNTIME_DOTNET);
	if (!process)
		return false;
	__builtin_memcpy(&h->process, process->room, sizeof(h->process));
	h->sections[0].end = 0;
	h->sections[1].end = 0;
	state->room[0] = 1;
	return true;
}

/* Walks up to DOTNET_FRAMES_PER_CALL frames: managed frames are mostly neighbours. */
__noinline int dotnet_walk(void)
{
	struct dotnet_scratch *h = dotnet_get();
	struct scratch *s = scratch_get();
	int stop;

	if (!s || !h || !dotnet_begin(s, h))
		return RUNTIME_NATIVE;
	stop = dotnet_one();
	for (__u64 i = 1; i < DOTNET_FRAMES_PER_CALL && stop == WALK_GO; i++) {
		if (!dotnet_find_section(walk_pc(&s->walk.regs)))
			break;
		stop = dotnet_one();
	}
	return stop;
}
