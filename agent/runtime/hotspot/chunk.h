/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the HotSpot runtime: the stack of a virtual thread that no carrier runs. Its frames
 * are in StackChunk objects, as on a thread's stack, except that the links of interpreter frames
 * count words (stackChunkFrameStream.inline.hpp, frame_x86.hpp). All indices here count words from
 * the chunk's first.
 *
 *	[sp - 2] fp of the frame's caller, or a link	compiled: the caller's sp is sp + frame size
 *	[sp - 1] pc of the frame			interpreted, with fp = sp - 2 + link:
 *	[sp]	 the frame					[fp - 8] bytecode pointer
 *	…							[fp - 3] Method
 *	[bottom] arguments of the outermost frame		[fp - 1] end of the caller's frame
 */
#pragma once

#include "abi/sample.h"
#include "abi/vocab.h"
#include "agent/runtime/hotspot/hotspot.h"

#define HOTSPOT_CACHE 512

struct hotspot_chunk {
	const u64 *words; /* the chunk's words from `first` on, `n` of them */
	u32 first, n;
	u32 sp, bottom, size;
};

/* Code and methods that frames named in this look: many tasks wait at the same place. */
struct hotspot_code {
	u64 pc; /* 0: unused */
	u64 blob, start, deopt;
	u32 frame_words, orig_pc, compile_id;
	bool is_method;
};

struct hotspot_known_method {
	u64 method; /* 0: unused */
	u64 bytecodes;
	u32 cookie;
};

struct hotspot_walker {
	struct runtime_memory memory;
	struct hotspot_process process;
	struct hotspot_code code[HOTSPOT_CACHE];
	struct hotspot_known_method methods[HOTSPOT_CACHE];
	/* The frames, in words as BPF's walker sends them. */
	u32 n;
	u64 words[SAMPLE_MAX_FRAMES];
};

/* Begins a look at a process. */
void hotspot_walker_begin(struct hotspot_walker *w, const struct runtime_target *t,
			  const struct runtime_process *p);
/*
 * Adds the frames of a chunk. STOP_COMPLETE: all of them; another reason (enum stop_reason): they
 * end there; negative: the chunk is damaged, or changes.
 */
int hotspot_walk_chunk(struct hotspot_walker *w, const struct hotspot_chunk *c);
