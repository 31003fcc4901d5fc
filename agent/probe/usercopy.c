/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether BPF programs may read the memory of processes in an interrupt.
 *
 * From Linux 5.18 on, the check of a copy's bounds (CONFIG_HARDENED_USERCOPY) looks the kernel's
 * buffer up in the list of vmalloc areas, and takes the list's lock (commit 0aef499f3172).
 * copy_from_user_nofault(), which bpf_probe_read_user() calls, includes that check. An interrupt
 * that hits a CPU while the CPU holds the lock then waits for it forever. Linux 6.4, 6.1.36 and
 * 6.3.10 leave the search out where page faults are disabled (commit d319f344561d);
 * distributions' kernels have versions of their own. So this reads the code of a running kernel
 * before 6.4: the function that searches must read task_struct.pagefault_disabled. That takes
 * 60 ms, most of them to read the kernel's symbols.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "agent/probe/internal.h"
#include "agent/probe/probe.h"
#include "base/cleanup.h"

#define MAX_CODE 4096 /* bytes of a function; the largest here has about 700 */
#ifdef __x86_64__
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

enum {
	COPY,  /* calls CHECK, or does not */
	CHECK, /* calls LOOK_UP itself or through HEAP, which compilers may inline */
	HEAP,
	LOOK_UP,
	N_FUNCTIONS
};

bool probe_code_calls(u16 machine, const u8 *code, size_t n, u64 address, u64 target)
{
	for (size_t i = 0; machine == EM_X86_64 && i + 5 <= n; i++) {
		s32 to;

		memcpy(&to, code + i + 1, sizeof(to));
		if ((code[i] == 0xe8 || code[i] == 0xe9) &&
		    address + i + 5 + (u64)(s64)to == target)
			return true;
	}
	for (size_t i = 0; machine == EM_AARCH64 && i + 4 <= n; i += 4) {
		u32 word;

		memcpy(&word, code + i, sizeof(word));
		/* B and BL: 26 bits of words, with a sign */
		if ((word & 0x7c000000) == 0x14000000 &&
		    address + i + (u64)((s64)(s32)(word << 6) >> 4) == target)
			return true;
	}
	return false;
}

bool probe_code_reads(u16 machine, const u8 *code, size_t n, u32 offset)
{
	for (size_t i = 0; machine == EM_X86_64 && i + 4 <= n; i++)
		if (memcmp(code + i, &offset, sizeof(offset)) == 0)
			return true;
	for (size_t i = 0; machine == EM_AARCH64 && i + 4 <= n; i += 4) {
		u32 word;

		memcpy(&word, code + i, sizeof(word));
		/* LDR of 32 bits: the offset in words is bits 10 to 21 */
		if ((word & 0xffc00000) == 0xb9400000 && (word >> 10 & 0xfff) * 4 == offset)
			return true;
	}
	return false;
}

/* Reads the kernel's memory by a program that the kernel runs once. */
static int read_code(u64 address, u8 code[MAX_CODE], u32 n)
{
	LIBBPF_OPTS(bpf_test_run_opts, run);
	_cleanup_close_ int map =
		bpf_map_create(BPF_MAP_TYPE_ARRAY, "culprit_probe", 4, MAX_CODE, 1, NULL);
	_cleanup_close_ int program = -1;
	struct bpf_insn insns[] = {
		PROBE_LOOK_UP_0(map),
		/* r1 = the value */
		{.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 1, .src_reg = 0},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 1},
		{.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = 1, .imm = 0, .off = 4},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .imm = (s32)n},
		{.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 3, .imm = (s32)address},
		{.imm = (s32)(address >> 32)},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_probe_read_kernel},
		{.code = BPF_JMP | BPF_EXIT},
	};
	u32 key = 0;

	if (map < 0)
		return -errno;
	program = bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "culprit_probe", "GPL", insns,
				ARRAY_SIZE(insns), NULL);
	if (program < 0 || bpf_prog_test_run_opts(program, &run) < 0)
		return -errno;
	if (run.retval)
		return -EFAULT;
	return bpf_map_lookup_elem(map, &key, code) < 0 ? -errno : 0;
}

/* Where a task_struct has the member; negative: it has none. */
static int offset_in_task(const char *name)
{
	struct btf *btf = btf__load_vmlinux_btf();
	const struct btf_type *task = NULL;
	s32 id = btf ? btf__find_by_name_kind(btf, "task_struct", BTF_KIND_STRUCT) : -ENOENT;
	int r = -ENOENT;

	if (id > 0)
		task = btf__type_by_id(btf, (u32)id);
	for (u16 i = 0; task && i < btf_vlen(task); i++) {
		const char *member = btf__name_by_offset(btf, btf_members(task)[i].name_off);

		if (member && strcmp(member, name) == 0)
			r = (int)(btf_member_bit_offset(task, i) / 8);
	}
	btf__free(btf);
	return r;
}

/* The code of a function, from its start on; how many bytes, or a negative errno. */
static int read_function(const struct probe_function *f, u8 code[MAX_CODE])
{
	u32 n = (u32)MIN(f->end - f->start, (u64)MAX_CODE);
	int r = f->start && f->end ? read_code(f->start, code, n) : -ENOENT;

	return r < 0 ? r : (int)n;
}

/* Does it call `target`? 1, 0, or a negative errno. */
static int has_call_to(const struct probe_function *f, const struct probe_function *target)
{
	u8 code[MAX_CODE];
	int n = read_function(f, code);

	return n < 0 ? n : probe_code_calls(MACHINE, code, (size_t)n, f->start, target->start);
}

/* Does it search without regard to page faults that are disabled? 1, 0, or a negative errno. */
static int searches_unchecked(const struct probe_function *f, const struct probe_function *look_up)
{
	u8 code[MAX_CODE];
	int n = read_function(f, code), offset;

	if (n < 0)
		return n;
	if (!probe_code_calls(MACHINE, code, (size_t)n, f->start, look_up->start))
		return 0;
	offset = offset_in_task("pagefault_disabled");
	return offset < 0 ? offset : !probe_code_reads(MACHINE, code, (size_t)n, (u32)offset);
}

/* Whether the kernel is made from Linux 6.4 or a later one. */
static bool is_mended(void)
{
	struct utsname name;
	u32 major, minor;

	return uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 4));
}

static int read_kernel(void)
{
	struct probe_function f[N_FUNCTIONS] = {
		[COPY] = {.name = "copy_from_user_nofault"},
		[CHECK] = {.name = "__check_object_size"},
		[HEAP] = {.name = "check_heap_object"},
		[LOOK_UP] = {.name = "find_vmap_area"},
	};
	int r;

	if (is_mended())
		return 0;
	r = probe_functions(f, N_FUNCTIONS);
	if (r < 0)
		return r;
	if (!f[COPY].start)
		return -ENOENT; /* kallsyms hides addresses */
	if (!f[CHECK].start || !f[LOOK_UP].start)
		return 0;
	r = has_call_to(&f[COPY], &f[CHECK]);
	if (r <= 0)
		return r;
	r = searches_unchecked(&f[CHECK], &f[LOOK_UP]);
	if (r == 0 && f[HEAP].start)
		r = searches_unchecked(&f[HEAP], &f[LOOK_UP]);
	return r > 0 ? -EDEADLK : r;
}

int probe_user_reads(void)
{
	static int known = 1; /* atomic; 1: the kernel has not been read yet */
	int r = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (r == 1) {
		r = read_kernel();
		__atomic_store_n(&known, r, __ATOMIC_RELAXED);
	}
	return r;
}
