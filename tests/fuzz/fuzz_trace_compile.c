/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A script of the tracing language, compiled for a machine of tables; its first byte says which
 * features the kernel has, and its length whether it may be unsafe. What is refused must say why.
 * Of the instructions that are made, those things are checked that the verifier refuses in any
 * script: registers, jumps out of the code, writes to the frame pointer, maps that do not exist,
 * and an end that runs out of it.
 */
#include <stdint.h>

#include "../unit/trace_target.h"
#include "base/cleanup.h"

#define MAX_INSTRUCTIONS 1000000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
	if (!holds)
		abort();
}

static bool is_wide(const struct bpf_insn *i)
{
	return i->code == (BPF_LD | BPF_DW | BPF_IMM);
}

/* Where an instruction may jump to: not into the second half of a wide one. */
static void check_jump(const struct bpf_insn *code, u32 n, u32 at, s64 to)
{
	check(to >= 0 && to < n);
	check(to == 0 || !is_wide(&code[to - 1]) ||
	      (to > 1 && is_wide(&code[to - 2]) && to - 2 == at));
}

static void check_instruction(const struct trace_program *p, const struct bpf_insn *code, u32 n,
			      u32 at)
{
	const struct bpf_insn *i = &code[at];
	u8 class = BPF_CLASS(i->code);
	bool is_jump = class == BPF_JMP || class == BPF_JMP32;

	check(i->dst_reg <= 10 && (i->src_reg <= 10));
	/* r10 is the frame pointer: only stores go by it. */
	check(i->dst_reg != 10 || class == BPF_ST || class == BPF_STX || is_jump);
	if (is_wide(i)) {
		check(at + 1 < n && !code[at + 1].code);
		if (i->src_reg == BPF_PSEUDO_MAP_FD)
			check(i->imm >= 0 && (size_t)i->imm < TRACE_MAPS_OWN + p->maps.n);
	}
	if (!is_jump || BPF_OP(i->code) == BPF_EXIT || BPF_OP(i->code) == BPF_CALL)
		return;
	check_jump(code, n, at, (s64)at + 1 + i->off);
}

static void check_code(const struct trace_program *p, const struct bpf_insn *code, u32 n)
{
	u8 last;

	check(n > 0 && n < MAX_INSTRUCTIONS);
	for (u32 at = 0; at < n; at++) {
		check_instruction(p, code, n, at);
		at += is_wide(&code[at]);
	}
	last = code[n - 1].code;
	check(last == (BPF_JMP | BPF_EXIT) || last == (BPF_JMP | BPF_JA));
}

static void check_program(const struct trace_program *p)
{
	check(p->probes.n > 0 && p->codes.n > 0);
	vec_foreach (&p->probes, probe) {
		check(probe->code < p->codes.n && probe->point && probe->name);
	}
	vec_foreach (&p->codes, code) {
		check_code(p, code->first, code->n_first);
		if (code->second)
			check_code(p, code->second, code->n_second);
	}
	vec_foreach (&p->maps, map) {
		check(map->key_bytes && map->value_bytes && map->max_entries);
	}
	vec_foreach (&p->formats, format) {
		check(!format->n || (format->arguments && format->offsets));
	}
	vec_foreach (&p->prints, print) {
		check(print->map < 0 || (size_t)print->map < p->maps.n);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct btf *btf;
	_cleanup_trace_script_ struct trace_script *s = NULL;
	struct trace_program *p = NULL;
	struct trace_target target;
	struct diag d = {};

	if (!btf)
		btf = fixture_btf();
	if (!size || trace_parse("", (const char *)data + 1, size - 1, NULL, NULL, &s) < 0)
		return 0;
	target = fixture_target(btf, data[0]);
	target.is_unsafe = target.tells_errors = size & 1;
	if (trace_compile(s, &target, &d, &p) < 0) {
		check(d.text[0] && !p);
		return 0;
	}
	check_program(p);
	trace_program_destroy(p);
	return 0;
}
