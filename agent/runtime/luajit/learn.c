/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from a binary of LuaJIT where its VM is and where global_State and jit_State have the
 * fields that the walker reads. No symbol names any of these. The VM is assembler code with one
 * frame size, which .eh_frame describes as one function of at least 10 KB. In it, three pieces of
 * code that LuaJIT's assembler always encodes alike have the offsets (vm_x64.dasc).
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/luajit/luajit.h"

#define MIN_VM_BYTES 10000
#define MAX_VM_BYTES (1u << 20)
#define MAX_OFFSET (1 << 20)

/* ---- the VM ---- */

struct vm_search {
	struct luajit_binary *b;
	bool found;
};

static bool is_vm(void *arg, const struct cfi_table *t, const struct cfi_fde *fde)
{
	struct vm_search *s = arg;
	struct unwind_rule first;

	if (fde->end - fde->start < MIN_VM_BYTES || fde->end - fde->start > MAX_VM_BYTES)
		return false;
	first = runtime_first_rule(t, fde);
	s->found = first.cfa_op == UNWIND_CFA_REG && first.cfa_reg == t->machine->sp &&
		   first.cfa_off == (s32)s->b->cframe_bytes;
	if (s->found) {
		s->b->start = fde->start;
		s->b->end = fde->end;
	}
	return s->found;
}

static bool find_vm(struct elf_file *elf, struct luajit_binary *b)
{
	struct vm_search s = {.b = b};

	return runtime_each_fde(elf, is_vm, &s) == 0 && s.found;
}

/* ---- offsets ---- */

#define ANY (-1)
#define ANY4 ANY, ANY, ANY, ANY

/* Finds code in which each byte is one of the pattern, or any. NULL: there is none. */
static const u8 *find_code(struct buf code, const s16 *pattern, size_t n)
{
	for (; buf_left(&code) >= n; (void)buf_skip(&code, 1)) {
		size_t i = 0;

		while (i < n && (pattern[i] == ANY || pattern[i] == code.pos[i]))
			i++;
		if (i == n)
			return code.pos;
	}
	return NULL;
}

static s32 displacement(const u8 *at)
{
	s32 v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static bool is_offset(s32 v)
{
	return v > 0 && v < MAX_OFFSET && !(v & 3);
}

/* r14 points to the dispatch table, behind global_State and jit_State (lj_dispatch.h). */
static bool find_offsets(struct buf code, struct luajit_binary *b)
{
	/* JLOOP: mov rcx, [r14+J.trace]; mov rax, [rcx+rax*8]; mov rax, [rax+mcode];
	 * mov rbp, [rsp+L]; mov [r14+jit_base], rdx */
	static const s16 loop[] = {0x49, 0x8b, 0x8e, ANY4, 0x48, 0x8b,
				   0x04, 0xc1, 0x48, 0x8b, 0x40, LUAJIT_TRACE_MCODE,
				   0x48, 0x8b, 0x6c, 0x24, 16,	 0x49,
				   0x89, 0x96, ANY4};
	/* vm_call: mov r14, [rbp+glref]; mov r15, [rbp+cframe]; mov [rsp+previous], r15;
	 * mov [rsp+pc], rbp; add r14, from global_State to the table; mov [rbp+cframe], rsp;
	 * mov [r14+cur_L], rbp; mov dword [r14+vmstate], ~0 */
	static const s16 call[] = {0x4c, 0x8b,
				   0x75, LUAJIT_STATE_G,
				   0x4c, 0x8b,
				   0x7d, LUAJIT_STATE_CFRAME,
				   0x4c, 0x89,
				   0x7c, 0x24,
				   32,	 0x48,
				   0x89, 0x6c,
				   0x24, 24,
				   0x49, 0x81,
				   0xc6, ANY4,
				   0x48, 0x89,
				   0x65, LUAJIT_STATE_CFRAME,
				   0x49, 0x89,
				   0xae, ANY4,
				   0x41, 0xc7,
				   0x86, ANY4,
				   0xff, 0xff,
				   0xff, 0xff};
	const u8 *at = find_code(code, call, ARRAY_SIZE(call));
	s32 table;

	if (!at)
		return false;
	table = displacement(at + 21);
	b->vmstate = table + displacement(at + 39);
	at = find_code(code, loop, ARRAY_SIZE(loop));
	if (!at)
		return false;
	b->traces = table + displacement(at + 3);
	b->jit_base = table + displacement(at + 23);
	return is_offset(table) && is_offset(b->vmstate) && is_offset(b->traces) &&
	       is_offset(b->jit_base);
}

/* "LuaJIT 2.1.0-beta3" is among the strings. */
static void find_version(struct elf_file *elf, struct luajit_learned *l)
{
	static const char mark[] = "LuaJIT 2.";
	const u8 *at;
	struct buf bytes;
	size_t n = 0;

	if (elf_file_section(elf, ".rodata", NULL, &bytes) < 0)
		return;
	at = memmem(bytes.pos, buf_left(&bytes), mark, strlen(mark));
	if (!at)
		return;
	at += strlen("LuaJIT ");
	while (n + 1 < sizeof(l->version) && at + n < bytes.end &&
	       (at[n] == '.' || at[n] == '-' || (at[n] >= '0' && at[n] <= '9') ||
		(at[n] >= 'a' && at[n] <= 'z') || (at[n] >= 'A' && at[n] <= 'Z')))
		n++;
	memcpy(l->version, at, n);
	l->version[n] = 0;
}

int luajit_learn(struct elf_file *elf, struct luajit_learned *ret, struct diag *reterr_diag)
{
	struct luajit_learned l = {
		.version = "2",
		.text_start = ~0ULL,
		/* lj_frame.h, vm_x64.dasc */
		.bpf = {.cframe_l = 16,
			.cframe_pc = 24,
			.cframe_nres = 8,
			.cframe_previous = 32,
			.cframe_bytes = 80,
			.cframe_fp = 64,
			.cframe_ra = 72,
			.reg_base = 1,
			.reg_pc = 3},
	};
	struct buf code;

	find_version(elf, &l);
	if (elf->machine != EM_X86_64)
		return diag_set(reterr_diag, -ENOTSUP, "LuaJIT %s: read on x86-64 only", l.version);
	if (!find_vm(elf, &l.bpf))
		return diag_set(reterr_diag, -ENOTSUP,
				"LuaJIT %s: .eh_frame does not describe the VM", l.version);
	if (elf_file_bytes(elf, l.bpf.start, l.bpf.end - l.bpf.start, &code) < 0 ||
	    !find_offsets(code, &l.bpf))
		return diag_set(reterr_diag, -ENOTSUP,
				"LuaJIT %s: built without LJ_GC64, or its VM has changed",
				l.version);
	for (u32 i = 0; i < elf->n_segments; i++) {
		if (!(elf->segments[i].flags & PF_X))
			continue;
		l.text_start = MIN(l.text_start, elf->segments[i].svma);
		l.text_end = MAX(l.text_end, elf->segments[i].svma + elf->segments[i].memsz);
	}
	*ret = l;
	return 0;
}
