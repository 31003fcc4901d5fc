/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from a beam.smp: the addresses of its variables and of some functions, from its symbols,
 * and two facts from its code:
 *
 *	erts_get_scheduler_data		returns pthread_getspecific(key): where the key is
 *	the call of process_main	where a scheduler's loop would return to
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "agent/runtime/beam/beam.h"
#include "agent/runtime/binary.h"
#include "disasm/exec.h"

#define CALL_BYTES 5
#define MAX_FUNCTION 65536   /* bytes of a function, up to a call in it */
#define MAX_CALLS (1u << 24) /* bytes of code that are searched for a call */

struct wanted {
	const char *name;
	u16 svma; /* offset in struct beam_learned */
};

#define WANTED(name, member)                                                                       \
	{                                                                                          \
		name, offsetof(struct beam_learned, member)                                        \
	}

static const struct wanted variables[] = {
	WANTED("the_active_code_index", code_index),
	WANTED("erts_atom_table", atom_table),
	WANTED("erts_aligned_scheduler_data", schedulers[0]),
	WANTED("erts_aligned_dirty_cpu_scheduler_data", schedulers[1]),
	WANTED("erts_aligned_dirty_io_scheduler_data", schedulers[2]),
	WANTED("beam_normal_exit", normal_exit),
	/* In the same file as the static variable with the ranges of modules. */
	WANTED("erts_dump_lit_areas", near_ranges),
};

static int find_variables(struct elf_file *elf, struct beam_learned *l, struct diag *d)
{
	for (u32 i = 0; i < ARRAY_SIZE(variables); i++)
		if (!runtime_symbol(elf, variables[i].name, (u64 *)((u8 *)l + variables[i].svma),
				    NULL))
			return diag_set(d, -ENOTSUP, "%s is not among its symbols",
					variables[i].name);
	if (!runtime_symbol(elf, "erts_proc", &l->processes, &l->processes_size))
		return diag_set(d, -ENOTSUP, "erts_proc is not among its symbols");
	/* Builds without frame pointers have no such variable. */
	(void)runtime_symbol(elf, "erts_frame_layout", &l->frame_layout, NULL);
	return 0;
}

static void find_part(struct elf_file *elf, const char *symbol, struct beam_part *ret)
{
	struct runtime_range range;

	if (runtime_symbol_range(elf, symbol, &range) && range.end <= UINT32_MAX)
		*ret = (struct beam_part){(u32)range.start, (u32)range.end};
}

static void find_parts(struct elf_file *elf, struct beam_code *c)
{
	/* beam_jit_call_bif() and beam_jit_call_nif() are C++. */
	static const char *const calls[BEAM_MAX_CALLS] = {
		"_Z17beam_jit_call_bifP7processPmPKvPFmS0_S1_S3_Em",
		"_Z17beam_jit_call_nifP7processPKvPmPFmP18enif_environment_tiS3_EP14erl_module_nif",
		"erts_call_dirty_bif",
		"erts_call_dirty_nif",
	};

	find_part(elf, "erts_dirty_process_main", &c->dirty);
	find_part(elf, "erts_schedule", &c->schedule);
	for (u32 i = 0; i < BEAM_MAX_CALLS; i++)
		find_part(elf, calls[i], &c->calls[i]);
}

static void read_text(struct elf_file *elf, const char *symbol, char *ret, size_t n)
{
	ssize_t got;
	u64 at;

	*ret = 0;
	if (!runtime_symbol(elf, symbol, &at, NULL))
		return;
	got = elf_file_copy(elf, at, n - 1, ret);
	ret[MAX(got, 0)] = 0;
	for (char *p = ret; *p; p++)
		if ((*p < '0' || *p > '9') && *p != '.')
			*p = 0;
}

/* ---- the key ---- */

struct key_reader {
	struct runtime_code code;
	struct runtime_tls tls;
};

static bool on_event(void *arg, const struct exec *x, enum exec_event event,
		     const struct exec_value *value)
{
	struct key_reader *r = arg;

	return event == EXEC_CALLS && runtime_is_key(x, value, &r->tls);
}

int beam_find_key(struct elf_file *elf, u64 svma, struct beam_learned *l, struct diag *d)
{
	struct key_reader r = {.code.elf = elf};
	struct exec_program p = {.code = runtime_code_at, .event = on_event, .arg = &r};

	if (!svma || exec_run(&p, elf->machine, svma) < 0 || !r.tls.kind)
		return diag_set(d, -ENOTSUP,
				"the code of erts_get_scheduler_data is not understood");
	l->scheduler = r.tls;
	return 0;
}

/* ---- the caller of a scheduler's loop ---- */

/* The return address of the only call of process_main(); 0: there is none, or several. */
static u32 find_caller(struct elf_file *elf)
{
	struct elf_section text;
	u64 main, found = 0;
	struct buf code;
	s32 to;

	if (!runtime_symbol(elf, "process_main", &main, NULL) ||
	    elf_file_section(elf, ".text", &text, &code) < 0)
		return 0;
	for (u64 i = 0; i + CALL_BYTES <= MIN(buf_left(&code), (size_t)MAX_CALLS); i++) {
		if (code.pos[i] != 0xe8)
			continue;
		memcpy(&to, code.pos + i + 1, sizeof(to));
		if (text.svma + i + CALL_BYTES + (u64)(s64)to != main)
			continue;
		if (found)
			return 0;
		found = text.svma + i + CALL_BYTES;
	}
	return found <= UINT32_MAX ? (u32)found : 0;
}

struct prologue {
	u64 until;  /* svma */
	s32 pushed; /* bytes below the frame pointer; -1: there is no frame pointer yet */
};

static bool prologue_insn(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	struct prologue *p = arg;

	(void)bytes;
	for (u32 i = 0; i < insn->n; i++) {
		const struct disasm_effect *e = &insn->effects[i];

		if (e->op == DISASM_SET && e->reg == DISASM_FP && e->base == DISASM_SP)
			p->pushed = -e->off;
		else if (e->op == DISASM_SET && e->reg == DISASM_SP && e->base == DISASM_SP &&
			 p->pushed >= 0)
			p->pushed -= e->off;
	}
	return svma >= p->until || insn->flow != DISASM_NEXT;
}

/* The loop saves no register, so its caller's frame pointer follows from the caller's code. */
u16 beam_caller_fp(struct elf_file *elf, const struct runtime_functions *functions, u64 caller)
{
	struct prologue p = {.until = caller, .pushed = -1};
	const struct runtime_range *range = runtime_function_at(functions, caller - 1);

	if (!range || caller - range->start > MAX_FUNCTION ||
	    runtime_sweep(elf, range, prologue_insn, &p) < 0)
		return 0;
	return p.pushed > 0 && p.pushed < 4096 ? (u16)p.pushed : 0;
}

static void find_code(struct elf_file *elf, struct beam_code *c)
{
	struct runtime_functions functions;

	find_parts(elf, c);
	c->caller = find_caller(elf);
	if (!c->caller || runtime_functions_init(elf, &functions) < 0)
		return;
	c->caller_fp = beam_caller_fp(elf, &functions, c->caller);
	runtime_functions_deinit(&functions);
}

int beam_learn(struct elf_file *elf, const char *path, struct beam_learned *ret,
	       struct diag *reterr_diag)
{
	u64 at, key = 0;
	u32 jit = 0;
	int r;

	for (u32 i = 0; i < elf->n_segments; i++)
		ret->end = MAX(ret->end, elf->segments[i].svma + elf->segments[i].memsz);
	read_text(elf, "etp_otp_release", ret->release, sizeof(ret->release));
	read_text(elf, "etp_erts_version", ret->version, sizeof(ret->version));
	if (!runtime_symbol(elf, "etp_beamasm", &at, NULL))
		return beam_learn_bare(elf, path, ret, reterr_diag);
	if (elf->machine != EM_X86_64)
		return diag_set(reterr_diag, -ENOTSUP,
				"Erlang/OTP %s: only x86-64 is understood yet", ret->release);
	if (elf_file_copy(elf, at, sizeof(jit), &jit) != (ssize_t)sizeof(jit) || !jit)
		return diag_set(reterr_diag, -ENOTSUP,
				"Erlang/OTP %s without JIT is not understood yet", ret->release);
	r = find_variables(elf, ret, reterr_diag);
	(void)runtime_symbol(elf, "erts_get_scheduler_data", &key, NULL);
	if (r == 0)
		r = beam_find_key(elf, key, ret, reterr_diag);
	if (r < 0)
		return r;
	find_code(elf, &ret->code);
	return 0;
}
