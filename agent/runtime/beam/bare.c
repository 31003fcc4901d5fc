/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A beam.smp that exports the functions for NIFs and nothing else, as since Erlang/OTP 29. Three of
 * these functions show the first variables:
 *
 *	enif_thread_type()	calls erts_get_scheduler_data(); the type in ErtsSchedulerData_
 *	enif_is_process_alive()	the table of processes
 *	enif_get_atom_length()	the table of atoms
 *
 * The JIT's code shows the rest, because it has the addresses of the emulator's functions and
 * variables, and the same instructions around them in all releases:
 *
 *	call F; mov r13, rax			in the loop: F is erts_schedule()
 *	mov rdi, V; mov esi, 3; mov r12d, [rdi]; cmovne r12, rsi
 *						in the loop: V is the_active_code_index
 *	mov rcx, [rsi + …]; mov r8, [rsi + …]; (mov r9, [rsi + …];) call F
 *						F is beam_jit_call_nif()
 *	movzx r8d, [rsi + 16]; …; call F	F is beam_jit_call_bif()
 *
 * The binary's code tells who calls erts_schedule(): the loop of the dirty schedulers only, of
 * whose calls two have a fourth argument: those of BIFs and of NIFs. Who calls the loop, is on the
 * C stack of the first scheduler. What is there twice, or not at all, is refused.
 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/beam/beam.h"
#include "agent/runtime/binary.h"
#include "base/cleanup.h"

#define LOOP_BYTES 1024 /* of the loop's code that are searched */
#define CALL_BYTES 5
#define MAX_TEXT (1u << 24)
#define MAX_DATA (4u << 20)
#define MAX_FIELD 4096
#define MAX_INSNS_APART 10 /* instructions between a fourth argument and the call */
#define MAX_BRANCHES 16
#define TABLE_BYTES 32	   /* of the table of processes that are looked at */
#define TABLE_SEGMENTS 120 /* IndexTable, as in name.c */
#define SCHEDULER_ALIGNMENT 64
#define MAX_FUNCTION 65536 /* bytes of a function that is read whole */
#define MAX_TRIES 1024	   /* words that may be a scheduler's address, and places in code */
#define PADDING_WORDS 8	   /* above what the loop reserves on the C stack */

/* ---- the file ---- */

/* erts-17.1.1/bin/beam.smp; the release's number is that of ERTS + 12. */
static void find_version(const char *path, struct beam_learned *l)
{
	const char *at = strstr(path, "/erts-");
	u32 major = 0;
	size_t n;

	if (!at)
		return;
	at += strlen("/erts-");
	n = strspn(at, "0123456789.");
	if (at[n] != '/' || n >= sizeof(l->version) || sscanf(at, "%3u", &major) != 1)
		return;
	memcpy(l->version, at, n);
	l->version[n] = 0;
	snprintf(l->release, sizeof(l->release), "%u", major + 12);
}

static bool first_call(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	u64 *target = arg;

	(void)svma;
	(void)bytes;
	if (insn->flow == DISASM_CALL)
		*target = insn->target;
	return insn->flow != DISASM_NEXT;
}

/* What a function shows about a variable. */
struct seen {
	struct runtime_code code;
	u64 variable; /* svma of the first variable of 8 bytes that it reads */
	u64 field;    /* it returns 1 + 4 bytes at this offset from the result of a call */
};

static bool on_event(void *arg, const struct exec *x, enum exec_event event,
		     const struct exec_value *value)
{
	const struct exec_symbol *s;
	struct seen *r = arg;
	u64 at;

	for (u32 i = 0; i < x->n_symbols && !r->variable; i++)
		if (x->symbols[i].kind == EXEC_LOAD && x->symbols[i].size == 8 &&
		    exec_is_constant(&x->symbols[i].at, &at))
			r->variable = at;
	if (event != EXEC_RETURNS || !value->known || value->n != 1 || value->constant != 1 ||
	    value->terms[0].factor != 1)
		return false;
	s = &x->symbols[value->terms[0].symbol];
	if (s->kind == EXEC_LOAD && s->size == 4 && s->at.n == 1 &&
	    exec_factor(x, &s->at, EXEC_RESULT, NULL) == 1 && s->at.constant < MAX_FIELD)
		r->field = s->at.constant;
	return false;
}

static bool look_at(struct elf_file *elf, const char *name, struct seen *ret)
{
	struct exec_program p = {.code = runtime_code_at, .event = on_event, .arg = ret};
	u64 at;

	*ret = (struct seen){.code.elf = elf};
	return runtime_symbol(elf, name, &at, NULL) && exec_run(&p, elf->machine, at) == 0;
}

static bool is_data(const struct beam_learned *l, u64 svma, u64 n)
{
	return !(svma & 7) && runtime_in(&l->data, svma) && l->data.end - svma >= n;
}

/* What the program can write to: one range, of which all is searched. */
static bool find_data(struct elf_file *elf, struct beam_learned *l)
{
	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];

		if (!(s->flags & PF_W) || !s->memsz)
			continue;
		if (!l->data.end)
			l->data.start = (s->svma + 7) & ~7ULL;
		l->data.end = s->svma + s->memsz;
	}
	return l->data.end > l->data.start && l->data.end - l->data.start <= MAX_DATA &&
	       l->end <= UINT32_MAX;
}

static bool find_type(struct elf_file *elf, struct beam_learned *l, u64 *ret_get)
{
	struct runtime_range range;
	struct seen s;

	*ret_get = 0;
	if (!runtime_symbol_range(elf, "enif_thread_type", &range) ||
	    range.end - range.start > MAX_FUNCTION ||
	    runtime_sweep(elf, &range, first_call, ret_get) < 0 || *ret_get == ~0ULL ||
	    !look_at(elf, "enif_thread_type", &s) || s.field < 8 || s.field & 7)
		return false;
	l->current = (u16)(s.field - 8);
	return true;
}

static bool find_tables(struct elf_file *elf, struct beam_learned *l, const char **ret_failed)
{
	struct seen s;

	*ret_failed = "enif_is_process_alive";
	if (!look_at(elf, *ret_failed, &s) || !is_data(l, s.variable, TABLE_BYTES))
		return false;
	l->processes = s.variable;
	l->processes_size = TABLE_BYTES;
	*ret_failed = "enif_get_atom_length";
	if (!look_at(elf, *ret_failed, &s) || !is_data(l, s.variable, 8))
		return false;
	l->atom_table = s.variable - TABLE_SEGMENTS;
	return true;
}

int beam_learn_bare(struct elf_file *elf, const char *path, struct beam_learned *ret,
		    struct diag *reterr_diag)
{
	const char *failed = "enif_thread_type";
	u64 get;

	ret->bare = true;
	find_version(path, ret);
	if (elf->machine != EM_X86_64)
		return diag_set(reterr_diag, -ENOTSUP,
				"Erlang/OTP %s: only x86-64 is understood yet", ret->release);
	if (!find_data(elf, ret))
		return diag_set(reterr_diag, -ENOTSUP,
				"the emulator exports only the functions for NIFs, and it is too "
				"large, or has no data");
	if (!find_type(elf, ret, &get) || !find_tables(elf, ret, &failed))
		return diag_set(reterr_diag, -ENOTSUP,
				"the emulator exports only the functions for NIFs, and the code "
				"of %s is not understood",
				failed);
	return beam_find_key(elf, get, ret, reterr_diag);
}

/* ---- a process ---- */

/* Code of the JIT, and what it tells. */
struct jit {
	const struct beam_memory *m;
	const u8 *code;
	size_t n;
	u64 avma; /* of the code */
	struct runtime_functions functions;
};

/* The function that the call at `at` leads to, as an svma; 0: there is no call of a function. */
static u64 called(const struct jit *j, size_t at)
{
	s32 offset;
	u64 to;

	if (at + 6 > j->n)
		return 0;
	if (j->code[at] == 0xe8) {
		memcpy(&offset, j->code + at + 1, sizeof(offset));
		to = j->avma + at + 5 + (u64)(s64)offset;
	} else if (j->code[at] == 0xff && j->code[at + 1] == 0x15) {
		memcpy(&offset, j->code + at + 2, sizeof(offset));
		to = at + 6 + (u64)(s64)offset;
		if (to > j->n || j->n - to < 8)
			return 0;
		memcpy(&to, j->code + to, sizeof(to));
	} else {
		return 0;
	}
	return to - j->m->bias;
}

static bool is_at(const struct jit *j, size_t at, const void *bytes, size_t n)
{
	return at <= j->n && j->n - at >= n && !memcmp(j->code + at, bytes, n);
}

static bool take_part(const struct jit *j, u64 svma, struct beam_part *ret)
{
	const struct runtime_range *f = svma ? runtime_function_at(&j->functions, svma) : NULL;

	if (!f || f->start != svma || f->end > UINT32_MAX)
		return false;
	*ret = (struct beam_part){(u32)f->start, (u32)f->end};
	return true;
}

/* erts_schedule(): the loop keeps its result, which is the next process. */
static bool find_schedule(const struct jit *j, size_t loop, struct beam_part *ret)
{
	static const u8 keeps[] = {0x49, 0x89, 0xc5};

	for (size_t i = loop; i < loop + LOOP_BYTES && i + 9 <= j->n; i++) {
		size_t length = j->code[i] == 0xe8 ? 5 : 6;

		if (called(j, i) && is_at(j, i + length, keeps, sizeof(keeps)))
			return take_part(j, called(j, i), ret);
	}
	return false;
}

/* the_active_code_index: of a process that is traced, or 3 for one that is not. */
static bool find_index(const struct jit *j, size_t loop, u64 *ret)
{
	static const u8 loads[] = {0xbe, 3, 0, 0, 0, 0x44, 0x8b, 0x27, 0x4c, 0x0f, 0x45, 0xe6};
	bool failed = false;
	u64 at = 0;

	for (size_t i = loop; i < loop + LOOP_BYTES && i < j->n; i++) {
		if (!is_at(j, i, loads, sizeof(loads)) || i < 10)
			continue;
		if (j->code[i - 10] == 0x48 && j->code[i - 9] == 0xbf)
			memcpy(&at, j->code + i - 8, 8); /* mov rdi, imm64 */
		else if (j->code[i - 5] == 0xbf)
			memcpy(&at, j->code + i - 4, 4); /* mov edi, imm32 */
		break;
	}
	if (!at || !runtime_in(&j->m->l->data, at - j->m->bias) ||
	    runtime_u32(j->m->memory, at, &failed) > 2 || failed)
		return false;
	*ret = at - j->m->bias;
	return true;
}

/* beam_jit_call_nif(): the arguments 4 and 5 are words of the code that the second points to. */
static bool find_nif(const struct jit *j, struct beam_part *ret)
{
	u64 found = 0;

	for (size_t i = 0; i + 18 <= j->n; i++) {
		const u8 *c = j->code + i;
		size_t at = i + 8;

		if (c[0] != 0x48 || c[1] != 0x8b || c[2] != 0x4e || c[4] != 0x4c || c[5] != 0x8b ||
		    c[6] != 0x46)
			continue;
		if (c[8] == 0x4c && c[9] == 0x8b && c[10] == 0x4e)
			at += 4;
		if (!called(j, at))
			continue;
		if (found)
			return false;
		found = called(j, at);
	}
	return take_part(j, found, ret);
}

/* beam_jit_call_bif(): the code before the call notes the arity of the function. */
static bool find_bif(const struct jit *j, struct beam_part *ret)
{
	static const u8 arity[] = {0x44, 0x0f, 0xb6, 0x46, 0x10};
	u32 tries = 0;
	u64 found = 0;

	for (size_t i = 0; i < j->n; i++) {
		if (!is_at(j, i, arity, sizeof(arity)))
			continue;
		if (++tries > MAX_TRIES)
			return false;
		for (size_t k = i; k < i + 80 && k < j->n; k++) {
			if (!is_at(j, k, "\xff\x15", 2) || !called(j, k))
				continue;
			if (found)
				return false;
			found = called(j, k);
			break;
		}
	}
	return take_part(j, found, ret);
}

/* The loop of the dirty schedulers: the only function that calls erts_schedule(). */
static bool find_dirty(const struct jit *j, struct elf_file *elf, u64 schedule,
		       struct runtime_range *ret)
{
	const struct runtime_range *found = NULL, *f;
	struct elf_section text;
	struct buf code;
	s32 to;

	if (elf_file_section(elf, ".text", &text, &code) < 0)
		return false;
	for (u64 i = 0; i + CALL_BYTES <= MIN(buf_left(&code), (size_t)MAX_TEXT); i++) {
		if (code.pos[i] != 0xe8)
			continue;
		memcpy(&to, code.pos + i + 1, sizeof(to));
		if (text.svma + i + CALL_BYTES + (u64)(s64)to != schedule)
			continue;
		f = runtime_function_at(&j->functions, text.svma + i);
		if (!f || (found && f != found))
			return false;
		found = f;
	}
	if (!found || found->end - found->start > MAX_FUNCTION)
		return false;
	*ret = *found;
	return true;
}

struct dirty_calls {
	u64 to[BEAM_MAX_CALLS];
	u32 n;
	u32 since;		    /* instructions since the fourth argument was set */
	u64 branches[MAX_BRANCHES]; /* targets of branches with the fourth argument set */
	u32 n_branches;
};
#define NOT_SET (~0u - 1)

static bool is_fourth_argument(const u8 *b)
{
	/* mov rcx, REG; mov rcx, [REG…]; lea rcx, […] */
	return ((b[0] == 0x48 || b[0] == 0x4c) && b[1] == 0x89 && (b[2] & 0xc7) == 0xc1) ||
	       ((b[0] == 0x48 || b[0] == 0x49) && (b[1] == 0x8b || b[1] == 0x8d) &&
		(b[2] & 0x38) == 0x08);
}

static void note_dirty_call(struct dirty_calls *c, u64 target)
{
	for (u32 i = 0; i < c->n; i++)
		if (c->to[i] == target)
			return;
	c->to[c->n++] = target;
}

static bool on_dirty(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	struct dirty_calls *c = arg;

	for (u32 i = 0; i < c->n_branches; i++)
		if (svma == c->branches[i])
			c->since = 0;
	switch (insn->flow) {
	case DISASM_NEXT:
		c->since = insn->length >= 3 && is_fourth_argument(bytes) ? 0 : c->since + 1;
		break;
	case DISASM_BRANCH:
		if (++c->since < MAX_INSNS_APART && c->n_branches < MAX_BRANCHES)
			c->branches[c->n_branches++] = insn->target;
		break;
	case DISASM_CALL:
		if (c->since < MAX_INSNS_APART && insn->target != ~0ULL)
			note_dirty_call(c, insn->target);
		c->since = NOT_SET;
		break;
	default:
		c->since = NOT_SET;
	}
	if (c->since > NOT_SET)
		c->since = NOT_SET;
	return c->n == BEAM_MAX_CALLS;
}

/* The functions that the loop of the dirty schedulers calls for a BIF and for a NIF. */
static bool find_dirty_calls(const struct jit *j, struct elf_file *elf,
			     const struct runtime_range *dirty, struct beam_part *ret)
{
	struct dirty_calls c = {.since = NOT_SET};

	return runtime_sweep(elf, dirty, on_dirty, &c) == 0 && c.n == 2 &&
	       take_part(j, c.to[0], &ret[0]) && take_part(j, c.to[1], &ret[1]);
}

/* Whether the first normal scheduler's data is at an avma. */
static bool is_scheduler(const struct beam_memory *m, u64 at, u64 *ret_stack)
{
	u64 words[3];

	return runtime_read(m->memory, at + m->l->current + 8, words, sizeof(words)) == 0 &&
	       !(u32)words[0] && words[1] == 1 && !words[2] &&
	       runtime_read(m->memory, at, ret_stack, 8) == 0 && *ret_stack &&
	       !(*ret_stack & (SCHEDULER_ALIGNMENT - 1));
}

static bool on_jump(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	bool *jumps = arg;

	(void)svma;
	(void)bytes;
	*jumps |= insn->flow == DISASM_INDIRECT && !insn->table;
	return *jumps;
}

/* Whether the function before a return address can be process_main(): it jumps to the loop. */
static bool is_main(const struct jit *j, struct elf_file *elf, u64 caller)
{
	const struct runtime_range *f;
	u8 call[CALL_BYTES];
	bool jumps = false;
	s32 to;

	if (caller < CALL_BYTES || caller > j->m->l->end ||
	    elf_file_copy(elf, caller - CALL_BYTES, sizeof(call), call) != CALL_BYTES ||
	    call[0] != 0xe8)
		return false;
	memcpy(&to, call + 1, sizeof(to));
	f = runtime_function_at(&j->functions, caller + (u64)(s64)to);
	return f && f->start == caller + (u64)(s64)to && f->end - f->start <= MAX_FUNCTION &&
	       runtime_sweep(elf, f, on_jump, &jumps) == 0 && jumps;
}

/* The return address of the loop whose C stack is `stack`, as an svma; 0: it is not clear. */
static u32 caller_on(const struct jit *j, struct elf_file *elf, const struct beam_process *p,
		     u64 stack)
{
	u64 words[PADDING_WORDS], found = 0;

	if (runtime_read(j->m->memory, stack + p->registers, words, sizeof(words)) < 0)
		return 0;
	/* The words below it are padding, in which anything may be. */
	for (u32 i = 1; i < PADDING_WORDS; i += 2) {
		if (!is_main(j, elf, words[i] - j->m->bias))
			continue;
		if (found)
			return 0;
		found = words[i] - j->m->bias;
	}
	return (u32)found;
}

/* A scheduler's ErtsSchedulerData_ begins with the stack pointer of the loop. */
static u32 find_caller(const struct jit *j, struct elf_file *elf, const struct beam_process *p)
{
	const struct runtime_range *data = &j->m->l->data;
	size_t n = (data->end - data->start) / 8;
	_cleanup_free_ u64 *words = malloc(8 * n + 8);
	u32 tries = 0;
	u64 stack;

	if (!words || runtime_read(j->m->memory, j->m->bias + data->start, words, 8 * n) < 0)
		return 0;
	for (size_t i = 0; i < n && tries < MAX_TRIES; i++) {
		u32 caller;

		/* It is allocated memory, not a part of the binary. */
		if (!words[i] || words[i] & (SCHEDULER_ALIGNMENT - 1) || words[i] >> 47 ||
		    words[i] - j->m->bias < j->m->l->end)
			continue;
		tries++;
		if (!is_scheduler(j->m, words[i], &stack))
			continue;
		caller = caller_on(j, elf, p, stack);
		if (caller)
			return caller;
	}
	return 0;
}

static int find_all(const struct jit *j, struct elf_file *elf, const struct beam_process *p,
		    size_t loop, struct beam_layout *l)
{
	struct beam_code *c = &l->code;
	struct runtime_range dirty;

	if (!find_schedule(j, loop, &c->schedule) || !find_index(j, loop, &l->code_index) ||
	    !find_bif(j, &c->calls[0]) || !find_nif(j, &c->calls[1]) ||
	    !find_dirty(j, elf, c->schedule.start, &dirty) || dirty.end > UINT32_MAX ||
	    !find_dirty_calls(j, elf, &dirty, &c->calls[2]))
		return -ENOTSUP;
	c->dirty = (struct beam_part){(u32)dirty.start, (u32)dirty.end};
	c->caller = find_caller(j, elf, p);
	if (!c->caller)
		return -EAGAIN; /* the first scheduler has not started */
	c->caller_fp = beam_caller_fp(elf, &j->functions, c->caller);
	return 0;
}

int beam_find_code(const struct beam_memory *m, struct elf_file *elf, const struct beam_process *p,
		   const u8 *code, size_t n, size_t loop, struct beam_layout *ret)
{
	struct jit j = {.m = m, .code = code, .n = n, .avma = p->shared.start};
	struct beam_layout l = *ret;
	int r = runtime_functions_init(elf, &j.functions);

	if (r < 0)
		return r;
	r = find_all(&j, elf, p, loop, &l);
	runtime_functions_deinit(&j.functions);
	if (r < 0)
		return r;
	l.known_code = true;
	*ret = l;
	return 0;
}
