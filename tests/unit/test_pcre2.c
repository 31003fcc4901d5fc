/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walker of PCRE2's JIT (bpf/unwind/pcre2.h), compiled for the host, in a process whose memory
 * the test makes: the code of a pattern, its frame at each instruction, and remains of other calls.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/types.h"
#include "tests/host/walkers.h"

#define CODE 0x710000000000ULL
#define STACK 0x7ffd00000000ULL
#define STACK_BYTES 0x20000
#define HEAP 0x555500000000ULL
#define BIAS 0x7f0000000000ULL
/* In the library. */
#define MATCH 0x52000ULL
#define MATCH_SITE 0x520d3ULL
#define MACHINE 0x1e320ULL
#define MACHINE_SITE 0x1e36aULL

#define RETURN (STACK + 0x8000) /* where the pattern's caller left its return address */
#define PATTERN (HEAP + 0x100)
#define FUNCTIONS (HEAP + 0x200)
#define SAVED_FP 0x123456780ULL
#define OTHER_FP 0x777000ULL
#define SAVED_BYTES 40
#define LOCALS 0x38
#define BODY 19

static const u8 code[] = {
	0xf3, 0x0f, 0x1e, 0xfa,		/* 0 endbr64 */
	0x53, 0x41, 0x57, 0x41,	  0x56, /* 4 push rbx, 5 r15, 7 r14 */
	0x41, 0x55, 0x55,		/* 9 r13, 11 rbp */
	0x48, 0x89, 0xfb,		/* 12 mov rbx, rdi */
	0x48, 0x83, 0xec, LOCALS,	/* 15 sub rsp, LOCALS */
	0x90, 0x90, 0x90, 0x90,	  0x90, /* 19 */
	0x48, 0x83, 0xc4, LOCALS,	/* 24 add rsp, LOCALS */
	0x5d, 0x41, 0x5d, 0x41,	  0x5e, /* 28 pop rbp, 29 r13, 31 r14 */
	0x41, 0x5f, 0x5b, 0xc3,		/* 33 r15, 35 rbx, 36 ret */
	0x58, 0x90, 0x90, 0x50,	  0xc3,
	0x90, /* 37 a function within: pop rax … 40 push rax, 41 ret */
};

static struct {
	u8 code[128];
	u64 stack[STACK_BYTES / 8];
	u64 heap[128];
} memory;

static bool copy_of(void *to, u32 n, u64 avma, u64 start, const void *from, size_t size)
{
	if (avma < start || avma - start > size || n > size - (avma - start))
		return false;
	memcpy(to, (const u8 *)from + (avma - start), n);
	return true;
}

static long host_read(void *to, __u32 n, __u64 avma)
{
	if (copy_of(to, n, avma, CODE, memory.code, sizeof(memory.code)) ||
	    copy_of(to, n, avma, STACK, memory.stack, sizeof(memory.stack)) ||
	    copy_of(to, n, avma, HEAP, memory.heap, sizeof(memory.heap)))
		return 0;
	memset(to, 0, n); /* as the kernel does */
	return -EFAULT;
}

static void put(u64 avma, u64 word)
{
	if (avma >= STACK)
		memory.stack[(avma - STACK) / 8] = word;
	else
		memory.heap[(avma - HEAP) / 8] = word;
}

/* A pattern whose code for partial matches is the one above, and a call of it. */
static void prepare(void)
{
	struct pcre2_binary *b = (struct pcre2_binary *)host_binary.room;

	memset(&memory, 0, sizeof(memory));
	memcpy(memory.code, code, sizeof(code));
	put(PATTERN + 32, FUNCTIONS);
	put(FUNCTIONS, CODE + 0x10000);
	put(FUNCTIONS + 8, CODE);
	put(FUNCTIONS + 48, 64);
	put(FUNCTIONS + 56, sizeof(code));
	put(RETURN, BIAS + MATCH_SITE);
	put(RETURN - 24, PATTERN);
	put(RETURN - 40, SAVED_FP);
	memset(&host_binary, 0, sizeof(host_binary));
	*b = (struct pcre2_binary){
		.match = {MATCH, MATCH + 0x300},
		.machine = {MACHINE, MACHINE + 0x70},
		.sites = {MATCH_SITE, MACHINE_SITE},
		.n_sites = 2,
	};
	host_process = (struct runtime_process){.image = 1, .bias = BIAS};
}

static int walk(u64 off, u64 below, bool exact, struct scratch **ret)
{
	struct walk_regs regs = {
		.pc = CODE + off,
		.sp = RETURN - below,
		.fp = OTHER_FP,
		.exact = exact,
		.full = exact,
	};
	struct scratch *s = host_begin(RUNTIME_PCRE2, &regs);

	s->walk.mapping.file = UNWIND_MAPPING_FP;
	*ret = s;
	return runtime_walk(RUNTIME_PCRE2);
}

static void finds(u64 off, u64 below, bool exact, u64 pc, u64 fp)
{
	struct scratch *s;
	int r = walk(off, below, exact, &s);

	cr_assert(r == WALK_GO, "at %llu: %d", off, r);
	cr_assert(s->walk.regs.pc == pc && s->walk.regs.sp == RETURN + 8 && s->walk.regs.fp == fp,
		  "at %llu: pc %llx, sp %llx, fp %llx", off, s->walk.regs.pc, s->walk.regs.sp,
		  s->walk.regs.fp);
	cr_assert(s->walk.n == 2);
	cr_assert(s->user.frames[0] ==
		  (WORD_RUNTIME | (u64)RUNTIME_PCRE2 << WORD_RUNTIME_SHIFT | CODE));
}

static void ends(u64 off, u64 below, bool exact, int how)
{
	struct scratch *s;
	int r = walk(off, below, exact, &s);

	cr_assert(r == how, "at %llu: %d", off, r);
	cr_assert(s->walk.n == 0);
}

Test(pcre2, at_each_instruction)
{
	static const struct {
		u32 off, below;
		bool saved;
	} at[] = {
		{0, 0, false},	 {4, 0, false},	 {5, 8, false},	  {7, 16, false},  {9, 24, false},
		{11, 32, false}, {12, 40, true}, {15, 40, true},  {19, 96, true},  {23, 96, true},
		{24, 96, true},	 {28, 40, true}, {29, 32, false}, {31, 24, false}, {33, 16, false},
		{35, 8, false},	 {36, 0, false}, {38, 96, true},
	};

	prepare();
	for (u32 i = 0; i < ARRAY_SIZE(at); i++)
		finds(at[i].off, at[i].below, true, BIAS + MATCH_SITE,
		      at[i].saved ? SAVED_FP : OTHER_FP);
}

Test(pcre2, calls_within_the_code)
{
	prepare();
	put(RETURN - 104, CODE + 22);
	finds(37, 104, true, BIAS + MATCH_SITE, SAVED_FP); /* the return address is on the stack */
	finds(41, 104, true, BIAS + MATCH_SITE, SAVED_FP);
	/* Something else is there: sp cannot differ. */
	put(RETURN - 104, HEAP);
	ends(37, 104, true, STOP_NO_TABLE);
	/* Not in a frame that has called C. */
	put(RETURN - 104, CODE + 22);
	ends(37, 104, false, STOP_NO_TABLE);
}

Test(pcre2, has_called_c)
{
	prepare();
	finds(21, 96, false, BIAS + MATCH_SITE, SAVED_FP);
}

Test(pcre2, backtracks_in_the_frame_of_the_library)
{
	prepare();
	put(RETURN, BIAS + MACHINE_SITE);
	put(RETURN - 24, 0);
	put(RETURN + 32768 + 0x90, PATTERN);
	finds(21, 96, true, BIAS + MACHINE_SITE, SAVED_FP);
}

Test(pcre2, remains_of_other_calls)
{
	prepare();
	/* In local variables: return addresses, the pattern itself, and one that is not running. */
	put(RETURN - 88, BIAS + MATCH_SITE);
	put(RETURN - 80, PATTERN);
	put(RETURN - 72, BIAS + MACHINE_SITE);
	put(RETURN - 64, HEAP + 0x300);
	put(HEAP + 0x320, FUNCTIONS + 0x80);
	put(FUNCTIONS + 0x80, CODE + 0x20000);
	put(FUNCTIONS + 0x80 + 48, 4096);
	finds(21, 96, true, BIAS + MATCH_SITE, SAVED_FP);
	/* A pattern that was freed, and whose code was where other code is now. */
	put(RETURN - 8, HEAP + 0x300);
	put(FUNCTIONS + 0x80, CODE - 32);
	finds(21, 96, true, BIAS + MATCH_SITE, SAVED_FP);
	/* And above the frame: an outer call. */
	put(RETURN + 200, BIAS + MATCH_SITE);
	finds(21, 96, true, BIAS + MATCH_SITE, SAVED_FP);
}

Test(pcre2, a_frame_larger_than_the_search)
{
	struct walk_regs regs = {.pc = CODE + BODY + 3, .exact = 1, .full = 1};
	struct scratch *s;

	prepare();
	memcpy(memory.code + 15, "\x48\x81\xec\x00\x40\x00\x00", 7);
	regs.sp = RETURN - SAVED_BYTES - 0x4000;
	regs.fp = RETURN + 0x60; /* the arguments */
	s = host_begin(RUNTIME_PCRE2, &regs);
	s->walk.mapping.file = UNWIND_MAPPING_FP;
	cr_assert(runtime_walk(RUNTIME_PCRE2) == WALK_GO);
	cr_assert(s->walk.regs.sp == RETURN + 8 && s->walk.regs.fp == SAVED_FP);
	/* The code has not moved their address to the other register yet. */
	regs.fp = 0;
	regs.r[3] = RETURN + 0x60;
	s = host_begin(RUNTIME_PCRE2, &regs);
	s->walk.mapping.file = UNWIND_MAPPING_FP;
	cr_assert(runtime_walk(RUNTIME_PCRE2) == WALK_GO);
	cr_assert(s->walk.regs.sp == RETURN + 8 && s->walk.regs.fp == SAVED_FP);
	/* By the description of the stack for backtracking. */
	put(RETURN, BIAS + MACHINE_SITE);
	put(RETURN - 24, 0);
	put(RETURN + 32768 + 0x90, PATTERN);
	put(RETURN + 0x9000, RETURN + 0x20);
	regs.fp = RETURN + 0x9000;
	s = host_begin(RUNTIME_PCRE2, &regs);
	s->walk.mapping.file = UNWIND_MAPPING_FP;
	cr_assert(runtime_walk(RUNTIME_PCRE2) == WALK_GO);
	cr_assert(s->walk.regs.sp == RETURN + 8);
}

Test(pcre2, without_proof)
{
	prepare();
	ends(21, 88, true, STOP_NO_TABLE); /* sp is not where the code has it */
	ends(21, 120, true, STOP_NO_TABLE);
	/* Not after a call of a pattern. */
	put(RETURN, BIAS + MATCH_SITE + 1);
	ends(21, 96, true, STOP_NO_TABLE);
	/* No pattern, or one whose code is elsewhere or too large. */
	prepare();
	put(RETURN - 24, 0);
	ends(21, 96, true, STOP_NO_TABLE);
	prepare();
	put(FUNCTIONS + 56, 20);
	ends(21, 96, true, STOP_NO_TABLE);
	prepare();
	put(FUNCTIONS + 56, 1ULL << 40);
	ends(21, 96, true, STOP_NO_TABLE);
	/* Another prologue: mov rsp, rbx; push, then something else. */
	prepare();
	memcpy(memory.code + 12, "\x48\x89\xdc", 3);
	ends(21, 96, true, STOP_NO_TABLE);
	prepare();
	memory.code[12] = 0xe8;
	ends(21, 96, true, STOP_NO_TABLE);
	/* The middle of an instruction. */
	prepare();
	ends(6, 16, true, STOP_NO_TABLE);
}

Test(pcre2, code_of_others)
{
	struct walk_regs regs = {.pc = CODE, .sp = RETURN - 96, .exact = 1, .full = 1};
	struct scratch *s;

	prepare();
	put(RETURN, 0);
	ends(21, 96, true, RUNTIME_NATIVE);
	s = host_begin(RUNTIME_PCRE2, &regs);
	s->walk.mapping.file = UNWIND_MAPPING_FP | UNWIND_MAPPING_UNKNOWN;
	cr_assert(runtime_walk(RUNTIME_PCRE2) == STOP_NO_MAPPING);
	/* The stack cannot be read. */
	regs.sp = HEAP + 0x100000;
	s = host_begin(RUNTIME_PCRE2, &regs);
	s->walk.mapping.file = UNWIND_MAPPING_FP;
	cr_assert(runtime_walk(RUNTIME_PCRE2) == RUNTIME_NATIVE);
}
