/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * HotSpot's code that is no method: adapters between calling conventions, stubs with and without a
 * frame, and the stubs by which virtual threads continue. Included by bpf/unwind/hotspot.h.
 */
#pragma once

#if UNWIND_REG_FP == 6
/*
 * A garbage collector's barrier in an adapter may call the VM, and puts registers on the stack for
 * the call:
 *
 *	sub rsp, n; mov [rsp], rax; …; call; …; add rsp, n
 *
 * Returns the bytes that these registers take now; 0: none. The same instruction may also make room
 * for arguments: then mov r13, rsp or pop rax is before it. Overwrites h->code.
 */
__noinline int hotspot_spills(__u64 pc)
{
	struct hotspot_scratch *h = hotspot_get();

	/*
	 * The window ends one byte after the executed code: the loop reads eight bytes, sub rsp has
	 * seven.
	 */
	if (!h || bpf_probe_read_user(h->code, HOTSPOT_CODE_BYTES,
				      (const void *)(pc + 1 - HOTSPOT_CODE_BYTES)) < 0)
		return 0;
	h->length = 0;
	h->at = 0;
	for (__u32 i = 4; i <= HOTSPOT_CODE_BYTES - 8; i++) {
		__u64 code = *(const __u64 *)&h->code[i];
		__u32 before = *(const __u32 *)&h->code[i - 4];

		if ((code & 0xffffff) == 0xc48148) /* add rsp */
			h->length = 0;
		if ((code & 0xffffff) != 0xec8148 || before >> 24 == 0x58 ||
		    (before >> 8 & 0xffffff) == 0xec8b4c)
			continue;
		h->length = (__u32)(code >> 24);
		h->at = i;
	}
	if (pc - h->start < HOTSPOT_CODE_BYTES - 1 - h->at || h->length >= 1 << 12)
		return 0;
	return (int)h->length;
}

/*
 * hotspot_spills() where sub rsp is too far away, because vectors take up much code, and add rsp
 * comes next.
 */
__noinline int hotspot_unspills(__u64 pc)
{
	struct hotspot_scratch *h = hotspot_get();

	if (!h || bpf_probe_read_user(h->code, HOTSPOT_CODE_BYTES, (const void *)pc) < 0)
		return 0;
	for (__u32 i = 0; i <= HOTSPOT_CODE_BYTES - 8; i++) {
		__u64 code = *(const __u64 *)&h->code[i];

		if ((code & 0xffffff) == 0xec8148 || pc + i >= h->end) /* sub rsp */
			break;
		if ((code & 0xffffff) == 0xc48148)
			return code >> 24 < 1 << 12 ? (int)(code >> 24) : 0;
	}
	return 0;
}

/*
 * Moves to the caller of an adapter while the adapter's registers are on the stack; RUNTIME_NATIVE:
 * no registers are there.
 */
static __always_inline int hotspot_below_spilled(struct scratch *s, struct hotspot_scratch *h)
{
	__u32 bytes = (__u32)hotspot_spills(s->walk.regs.pc);
	__u64 at, word;

	if (!bytes)
		bytes = (__u32)hotspot_unspills(s->walk.regs.pc);
	at = s->walk.regs.sp + bytes;
	/* 8 bytes more if the adapter has aligned the stack for the call. */
	for (__u32 i = 0; at != s->walk.regs.sp && i < 2; i++, at += 8)
		if (bpf_probe_read_user(&word, 8, (const void *)at) == 0 &&
		    hotspot_heap(&h->process, word - 1) && hotspot_is_call(word))
			return runtime_return(s, word, at + 8, s->walk.regs.fp);
	return RUNTIME_NATIVE;
}

/*
 * Whether an adapter still checks that the call is allowed. If the call is not allowed, the adapter
 * jumps away; if a collector decides, the adapter puts registers on the stack.
 */
__noinline int hotspot_looks(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u32 last;

	if (!s || !h)
		return 0;
	if ((hotspot_s32(h, HOTSPOT_BEFORE) & 0xffffff) == 0xec8148) /* sub rsp */
		return 1;
	if (hotspot_run_ahead() != HOTSPOT_UNKNOWN || h->stored ||
	    h->r[HOTSPOT_SP] != s->walk.regs.sp)
		return 0;
	last = hotspot_byte(h, h->at - 1);
	return last == 0xe9 || (last & 0xf8) == 0x50; /* jmp, push */
}

/*
 * Walks an interrupted adapter between calling conventions. An adapter to the interpreter may ask
 * the VM to fix the call first, and then makes room for the arguments below the caller's frame,
 * whose end it keeps in r13:
 *
 *	…; je; mov r13, rsp; and rsp, -16; …; mov rsp, r13
 *	pop rax; mov r13, rsp; sub rsp, n; mov [rsp], rax; …
 *
 * Before both, r13 is the caller's. The caller of an adapter to compiled code is the interpreter,
 * which keeps its own stack pointer.
 */
__noinline int hotspot_adapter(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	const struct hotspot_process *p;
	__u64 sp, sender, top = 0, mended;
	struct walk_regs *g;
	int stop;

	if (!s || !h)
		return STOP_NO_TABLE;
	stop = hotspot_below_spilled(s, h);
	if (stop != RUNTIME_NATIVE)
		return stop;
	if (!hotspot_read_code(s, h))
		return STOP_NO_TABLE;
	p = &h->process;
	g = &s->walk.regs;
	sp = g->sp;
	bpf_probe_read_user(&top, 8, (const void *)sp);
	if (hotspot_in_interpreter(p, top))
		return runtime_return(s, top, sp + 8, g->fp);
	if (hotspot_in_interpreter(p, g->r[HOTSPOT_RAX]))
		return runtime_return(s, g->r[HOTSPOT_RAX], sp, g->fp);
	sender = g->r[HOTSPOT_R13];
	mended = 0;
	if (sender - sp < 1 << 16)
		bpf_probe_read_user(&mended, 8, (const void *)sender);
	switch (hotspot_find_adapter()) {
	case HOTSPOT_POPPED:
		return hotspot_heap(p, g->r[HOTSPOT_RAX] - 1)
			       ? runtime_return(s, g->r[HOTSPOT_RAX], sp, g->fp)
			       : STOP_NO_TABLE;
	case HOTSPOT_MAKES_ROOM:
		if (sender - sp >= 1 << 16)
			return STOP_NO_TABLE;
		/* mov [rsp], rax or push rax is next, or the sub rsp before it */
		if (h->code[HOTSPOT_BEFORE] == 0x50 ||
		    (h->code[HOTSPOT_BEFORE] == 0x48 &&
		     (h->code[HOTSPOT_BEFORE + 2] == 0xec || h->code[HOTSPOT_BEFORE + 2] == 4)))
			top = g->r[HOTSPOT_RAX];
		return hotspot_heap(p, top - 1) ? runtime_return(s, top, sender, g->fp)
						: STOP_NO_TABLE;
	case HOTSPOT_MENDS:
		return hotspot_heap(p, mended - 1) ? runtime_return(s, mended, sender + 8, g->fp)
						   : STOP_NO_TABLE;
	case HOTSPOT_BEGINS:
		return hotspot_heap(p, top - 1) ? runtime_return(s, top, sp + 8, g->fp)
						: STOP_NO_TABLE;
	}
	if (hotspot_heap(p, top - 1) && hotspot_looks())
		return runtime_return(s, top, sp + 8, g->fp);
	/* Native code calls compiled code by a stub, which has a frame pointer. */
	if (hotspot_read_blob(top - 1) && hotspot_classify(p, h) == HOTSPOT_IS_STUB)
		return runtime_return(s, top, sp + 8, g->fp);
	top = g->r[HOTSPOT_RAX];
	if (hotspot_read_blob(top - 1) && hotspot_classify(p, h) == HOTSPOT_IS_STUB)
		return runtime_return(s, top, sp, g->fp);
	return STOP_NO_TABLE;
}
#endif

#if UNWIND_REG_FP == 6
/*
 * Walks the end of a poll's stub. The stub has restored the registers, rbp included, and drops its
 * frame. The return address is known; search it in the order of the pushes: return address, rbp,
 * flags, a word of padding, 16 registers, the other registers.
 */
__noinline int hotspot_poll_ends(__u64 pc)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 saved[2] = {}, off = 0;

	for (__u32 i = 0; s && h && i < 6; i++) {
		off = i < 4 ? i * 8 : i == 4 ? 24 + 128 : h->frame_bytes - 8;
		if (bpf_probe_read_user(saved, 16, (const void *)(s->walk.regs.sp + off - 8)) ==
			    0 &&
		    saved[1] - pc < 16)
			return runtime_return(s, saved[1], s->walk.regs.sp + off + 8,
					      off ? saved[0] : s->walk.regs.fp);
	}
	return STOP_NO_TABLE;
}

/*
 * Walks the stub of a poll within a method. The stub begins with push rbx, which makes room for the
 * return address, and fills the slot after it has saved all registers. Until then the return
 * address is in the thread, and the slot holds anything. RUNTIME_NATIVE: pc is not in such a stub.
 */
__noinline int hotspot_poll(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 pc, saved[2] = {}, at;
	struct walk_regs *g;
	__u8 first = 0;

	if (!s || !h)
		return RUNTIME_NATIVE;
	g = &s->walk.regs;
	if (!h->process.saved_pc || !g->full || g->pc - h->start >= 4096 ||
	    (h->name[0] != HOTSPOT_NAME('p', 'o', 'l', 'l', 'i', 'n', 'g', '_') &&
	     h->name[0] != HOTSPOT_NAME('S', 'a', 'f', 'e', 'p', 'o', 'i', 'n')) ||
	    bpf_probe_read_user(&first, 1, (const void *)h->start) < 0 || first != 0x53 ||
	    bpf_probe_read_user(&pc, 8, (const void *)(g->r[15] + h->process.saved_pc)) < 0 ||
	    !hotspot_heap(&h->process, pc))
		return RUNTIME_NATIVE;
	if (g->pc == h->start)
		return runtime_return(s, pc, g->sp, g->fp);
	if (g->pc == h->start + 1)
		return runtime_return(s, pc, g->sp + 8, g->fp);
	if (g->pc - h->start > (h->end - h->start) / 2)
		return hotspot_poll_ends(pc);
	at = g->pc < h->start + 5 ? g->sp : g->fp; /* push rbp; mov rbp, rsp */
	if (at < g->sp || at - g->sp > h->frame_bytes ||
	    bpf_probe_read_user(saved, 16, (const void *)at) < 0)
		return RUNTIME_NATIVE;
	/* HotSpot may move the return address in the slot past the poll. */
	if (saved[1] - pc < 16)
		pc = saved[1];
	return runtime_return(s, pc, at + 16, saved[0]);
}
#endif

#if UNWIND_REG_FP == 6
/*
 * Walks C2's exception stubs while they make their frames. A method jumps to the first stub with
 * its own frame in place and the throwing pc in rdx. The second stub copies its return address:
 *
 *	ExceptionBlob	push rdx; sub rsp, 8; …
 *	rethrow		sub rsp, n; …; push [rsp + n]; pop [rsp]; …
 *
 * RUNTIME_NATIVE: pc is not in these instructions.
 */
__noinline int hotspot_throws(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u32 i = HOTSPOT_BEFORE;
	struct walk_regs *g;

	if (!s || !h)
		return RUNTIME_NATIVE;
	g = &s->walk.regs;
	if (h->name[0] == HOTSPOT_NAME('E', 'x', 'c', 'e', 'p', 't', 'i', 'o')) {
		if (g->pc == h->start && h->code[i] == 0x52 &&
		    hotspot_heap(&h->process, g->r[HOTSPOT_RDX] - 1))
			return runtime_return(s, g->r[HOTSPOT_RDX], g->sp, g->fp);
		if (g->pc == h->start + 1 && h->code[i - 1] == 0x52)
			return hotspot_return(s, 0, false);
	}
	if (h->code[i] == 0x48)
		i++;
	if (h->frame_bytes >= 16 && h->code[i] == 0x8f && h->code[i + 1] == 0x04 &&
	    h->code[i + 2] == 0x24 && hotspot_returns_to_java(&h->process, g->sp + h->frame_bytes))
		return hotspot_return(s, h->frame_bytes, true);
	return RUNTIME_NATIVE;
}

/* Whether the call before a return address calls the interrupted code. */
static __always_inline bool hotspot_calls(struct hotspot_scratch *h, __u64 pc)
{
	__u8 b[16];
	__u64 to;

	if (bpf_probe_read_user(b, 16, (const void *)(pc - 16)) < 0)
		return false;
	if (b[11] == 0xe8) {
		to = pc + (__u64)(__s64)(__s32)(b[12] | (__u32)b[13] << 8 | (__u32)b[14] << 16 |
						(__u32)b[15] << 24);
	} else if (b[3] == 0x49 && b[4] == 0xba && b[13] == 0x41 && b[14] == 0xff &&
		   b[15] == 0xd2) {
		/* mov r10, imm64; call r10 */
		__builtin_memcpy(&to, b + 5, 8);
	} else {
		return false;
	}
	return to >= h->start && to < h->end;
}

/*
 * Whether the frame pointer is the stub's own, by the first instructions of a blob with a single
 * stub.
 */
static __always_inline bool hotspot_has_entered(struct scratch *s, const struct hotspot_scratch *h)
{
	__u32 code = 0;

	return h->name[0] != HOTSPOT_NAME('S', 't', 'u', 'b', 'R', 'o', 'u', 't') &&
	       s->walk.regs.pc - h->start >= 4 &&
	       bpf_probe_read_user(&code, 4, (const void *)h->start) == 0 &&
	       code == 0xec8b4855; /* push rbp; mov rbp, rsp */
}

/*
 * Walks a stub that uses rbp for its work (SHA-512 with AVX2). The stub keeps the frame pointer
 * among the words on its stack, next to the stack pointer from before the stub made room for these
 * words; that stack pointer is at most 64 bytes below the frame pointer. RUNTIME_NATIVE: there is
 * no such pair.
 */
__noinline int hotspot_keeps_fp(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 at, saved[2];

	if (!s || !h)
		return RUNTIME_NATIVE;
	at = s->walk.regs.sp;
	if (bpf_probe_read_user(h->frame, sizeof(h->frame), (const void *)at) < 0)
		return RUNTIME_NATIVE;
	h->to = 0;
	for (__u32 i = 0; i < 9; i++)
		if (h->frame[i] - at < 256 && h->frame[i + 1] - h->frame[i] <= 64)
			h->to = h->frame[i + 1];
	if (h->to - at > 512 || h->to & 7 ||
	    bpf_probe_read_user(saved, 16, (const void *)h->to) < 0 ||
	    !hotspot_heap(&h->process, saved[1] - 1) || !hotspot_calls(h, saved[1]))
		return RUNTIME_NATIVE;
	return runtime_return(s, saved[1], h->to + 16, saved[0]);
}

/*
 * Walks a stub without a frame of its own, or not yet with one: the frame pointer may belong to a
 * frame far up the stack. The return address is among the first words, above the words that the
 * stub may have pushed. RUNTIME_NATIVE: no word looks like a return address; STOP_NO_TABLE: a word
 * does, but no call confirms it.
 */
__noinline int hotspot_frameless(void)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	int found = RUNTIME_NATIVE;
	__u64 word, at;

	if (!s || !h)
		return STOP_NO_TABLE;
	/*
	 * The throwing method's frame is gone before the jump here; sub rsp, 8 surrounds a call of
	 * the VM.
	 */
	if (h->name[0] == HOTSPOT_NAME('u', 'n', 'w', 'i', 'n', 'd', '_', 'e') ||
	    h->name[1] == HOTSPOT_NAME('m', 'e', ' ', 'u', 'n', 'w', 'i', 'n')) { /* C1 Runti… */
		at = hotspot_s32(h, HOTSPOT_BEFORE - 4) == 0x08ec8348 ||
				     hotspot_s32(h, HOTSPOT_BEFORE) == 0x08c48348
			     ? 8
			     : 0;
		return hotspot_returns_to_java(&h->process, s->walk.regs.sp + at)
			       ? hotspot_return(s, at, false)
			       : STOP_NO_TABLE;
	}
	for (__u32 i = 0; i < 12; i++) {
		at = s->walk.regs.sp + i * 8;
		if (s->walk.regs.fp >= s->walk.regs.sp && at > s->walk.regs.fp)
			break;
		if (bpf_probe_read_user(&word, 8, (const void *)at) < 0 || !hotspot_is_call(word))
			continue;
		if (hotspot_calls(h, word))
			return hotspot_return(s, i * 8, false);
		if (hotspot_heap(&h->process, word - 1))
			found = STOP_NO_TABLE;
	}
	return found;
}
#endif

static __always_inline int hotspot_stub(struct scratch *s, const struct hotspot_process *p,
					struct hotspot_scratch *h)
{
	struct walk_regs *g = &s->walk.regs;
	__u64 saved[2] = {};
	int stop;

	/* Only an interrupted stub does work of its own, such as copying an array. */
	if (!g->exact && !runtime_push_own(s, RUNTIME_HOTSPOT))
		return STOP_TOO_DEEP;
	if (!hotspot_push(s, HOTSPOT_STUB, h->blob, (__u32)(g->pc - h->start), (__u32)g->pc))
		return STOP_TOO_DEEP;
#if UNWIND_REG_FP == 6
	if (g->exact) {
		stop = hotspot_poll();
		if (stop != RUNTIME_NATIVE)
			return stop;
		stop = hotspot_to_end(s, h);
		if (stop == RUNTIME_NATIVE && g->full)
			stop = hotspot_throws();
		if (stop != RUNTIME_NATIVE)
			return stop;
	}
#endif
	if (g->exact && g->pc == h->start &&
	    bpf_probe_read_user(saved, 8, (const void *)g->sp) == 0 &&
	    (hotspot_heap(p, saved[0] - 1) || hotspot_is_call(saved[0])))
		return hotspot_return(s, 0, false);
#if UNWIND_REG_FP == 6
	/* push rbp */
	if (g->exact && g->pc - h->start == 1 &&
	    bpf_probe_read_user(saved, 1, (const void *)h->start) == 0 && (__u8)saved[0] == 0x55)
		return hotspot_return(s, 8, true);
	/*
	 * A frame pointer whose return address belongs to a call of this stub is right, however
	 * much of its frame the stub has made. Until the frame is made, the word at the frame size
	 * may be another function's return address.
	 */
	if (g->exact && hotspot_by_fp(s, saved) == WALK_GO && hotspot_heap(p, saved[1] - 1) &&
	    (hotspot_has_entered(s, h) || hotspot_calls(h, saved[1])))
		return runtime_return(s, saved[1], g->fp + 16, saved[0]);
	/*
	 * If the header does not say when the frame is complete, a return address of a call of this
	 * stub is better than the frame size. Many stubs in one blob have no frame, and old words
	 * on the stack may be of calls of another stub of the blob.
	 */
	if (g->exact && h->complete < 0 && h->frame_bytes >= 16) {
		stop = hotspot_frameless();
		if (stop != RUNTIME_NATIVE && stop != STOP_NO_TABLE)
			return stop;
	}
#endif
	if (h->frame_bytes >= 16 && (!g->exact || (__s64)(g->pc - h->start) >= h->complete)) {
		if (!g->exact || hotspot_returns_to_java(p, g->sp + h->frame_bytes - 8))
			return hotspot_return(s, h->frame_bytes - 8, true);
	}
#if UNWIND_REG_FP == 6
	if (g->exact && hotspot_read_code(s, h)) {
		__u8 last = h->code[HOTSPOT_BEFORE - 1];

		/* push -1, in the barrier at the entry of methods (from JDK 18 on) */
		if (h->code[HOTSPOT_BEFORE] == 0x68 && h->code[HOTSPOT_BEFORE + 5] == 0x55)
			return hotspot_return(s, 0, false);
		/* push rbp; mov rbp, rsp */
		if (h->code[HOTSPOT_BEFORE] == 0x55)
			return hotspot_return(s, h->code[HOTSPOT_BEFORE - 5] == 0x68 ? 8 : 0,
					      false);
		if (last == 0x55 && h->code[HOTSPOT_BEFORE] == 0x48 &&
		    h->code[HOTSPOT_BEFORE + 2] == 0xec) {
			if (h->code[HOTSPOT_BEFORE - 6] != 0x68)
				return hotspot_return(s, 8, true);
			bpf_probe_read_user(saved, 8, (const void *)g->sp);
			if (bpf_probe_read_user(&saved[1], 8, (const void *)(g->sp + 16)) == 0)
				return runtime_return(s, saved[1], g->sp + 24, saved[0]);
		}
	}
#endif
	stop = hotspot_by_fp(s, saved);
	/*
	 * The barrier at the entry of methods (from JDK 18 on) pushes -1 below the return address.
	 */
	if (stop == WALK_GO && saved[1] == ~0ULL &&
	    bpf_probe_read_user(&saved[1], 8, (const void *)(g->fp + 16)) == 0)
		return runtime_return(s, saved[1], g->fp + 24, saved[0]);
#if UNWIND_REG_FP == 6
	if (g->exact &&
	    (stop != WALK_GO || (!hotspot_has_entered(s, h) && !hotspot_calls(h, saved[1])))) {
		int other = hotspot_keeps_fp();

		if (other == RUNTIME_NATIVE)
			other = hotspot_frameless();
		if (other != RUNTIME_NATIVE)
			return other;
	}
#endif
	if (stop == WALK_GO &&
	    (!g->exact || (hotspot_heap(p, saved[1] - 1) || hotspot_is_call(saved[1]))))
		return runtime_return(s, saved[1], g->fp + 16, saved[0]);
	return hotspot_thin();
}

/*
 * If a ContinuationEntry is at an address, for frames that end at sp, moves to the frame that
 * entered the continuation; else RUNTIME_NATIVE. The ContinuationEntry is the lower part of
 * enterSpecial's frame:
 *
 *	 8 │ the continuation around this one, further up the stack, or 0
 *	16 │ the Continuation, an object
 *	32 │ u32 flags: 0 or 1; u32: words of the arguments of the outermost method, which
 *	   │ are below the ContinuationEntry
 *	   │ …
 *	 n │ caller's rbp, return address
 */
__noinline int hotspot_entry_at(__u64 at)
{
	struct hotspot_scratch *h = hotspot_get();
	struct scratch *s = scratch_get();
	__u64 *words, below;

	if (!s || !h)
		return RUNTIME_NATIVE;
	words = h->frame;
	if (bpf_probe_read_user(words, 40, (const void *)at) < 0)
		return STOP_BAD_READ;
	below = at - s->walk.regs.sp - (words[4] >> 32) * 8;
	/*
	 * Up to 64 bytes: frames are aligned, and the stub that thaws may have saved a returned
	 * value.
	 */
	if ((words[4] & 0xffffffff) > 1 || below > 64 || !words[2] ||
	    (words[1] && (words[1] <= at || words[1] - at > 1 << 24)))
		return RUNTIME_NATIVE;
	if (bpf_probe_read_user(words, 16, (const void *)(at + h->process.entry_words * 8ULL)) < 0)
		return STOP_BAD_READ;
	if (!hotspot_heap(&h->process, words[1] - 1) || !hotspot_is_return(&h->process, words[1]))
		return RUNTIME_NATIVE;
	return runtime_return(s, words[1], at + h->process.entry_words * 8ULL + 16, words[0]);
}

/*
 * Walks the outermost method of a virtual thread on this stack, which returns to the continuation
 * stubs; the method's callers are still in the heap. The frame that entered the continuation is
 * above the method's arguments.
 */
static __always_inline int hotspot_barrier(struct scratch *s)
{
	__u64 at = (s->walk.regs.sp + 15) & ~15ULL;
	int stop = RUNTIME_NATIVE;

	/*
	 * Unrolled: Linux 5.10 and 6.1 refuse a loop whose last block falls through to its first,
	 * which is a back-edge for them.
	 */
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < HOTSPOT_MAX_BARRIER; i++) {
		stop = hotspot_entry_at(at + i * 16);
		if (stop != RUNTIME_NATIVE)
			return stop;
	}
	return STOP_NO_TABLE;
}
