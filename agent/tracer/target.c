/* SPDX-License-Identifier: Apache-2.0 */
/* The machine: what the kernel can do, and the answers of struct trace_target. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "agent/tracer/internal.h"
#include "base/cleanup.h"
#include "elf/elf.h"

#define MAX_POINTS 4096
#ifdef __aarch64__
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_X86_64
#endif

/* ---- features: each is tried ---- */

#define R(n) BPF_REG_##n
#define CALL(f)                                                                                    \
	{                                                                                          \
		.code = BPF_JMP | BPF_CALL, .imm = (f)                                             \
	}
#define MOVE(to, n)                                                                                \
	{                                                                                          \
		.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = (to), .imm = (n)                   \
	}
#define EXIT                                                                                       \
	{                                                                                          \
		.code = BPF_JMP | BPF_EXIT                                                         \
	}

static int loads(enum bpf_prog_type type, u32 attach_type, const struct bpf_insn *insns, size_t n)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = attach_type);
	int fd = bpf_prog_load(type, "culprit_probe", "GPL", insns, n, &o);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

/* Whether a helper that takes the context, or nothing, can be called. */
static bool has_call(u32 helper)
{
	const struct bpf_insn insns[] = {CALL(helper), MOVE(R(0), 0), EXIT};

	return loads(BPF_PROG_TYPE_KPROBE, 0, insns, ARRAY_SIZE(insns)) == 0;
}

/*
 * A helper that takes a callback: the verifier refuses a call without arguments with EINVAL if it
 * knows the helper ("R1 !read_ok" or the like), and if it does not; libbpf reads the reason.
 */
static bool has_helper(u32 helper)
{
	return libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, (enum bpf_func_id)helper, NULL) == 1;
}

/* An addition that returns the old value: Linux 5.12. */
static bool has_fetch(void)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = R(10), .off = -8},
		MOVE(R(1), 1),
		{.code = BPF_STX | BPF_ATOMIC | BPF_DW,
		 .dst_reg = R(10),
		 .src_reg = R(1),
		 .off = -8,
		 .imm = BPF_ADD | BPF_FETCH},
		MOVE(R(0), 0),
		EXIT};

	return loads(BPF_PROG_TYPE_KPROBE, 0, insns, ARRAY_SIZE(insns)) == 0;
}

/* The number of the initial PID namespace (include/linux/proc_ns.h). */
#define INITIAL_PID_NAMESPACE 0xeffffffcU

static bool is_in_pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino != INITIAL_PID_NAMESPACE;
}

/* Whether a key of a map may have more than 512 bytes. */
static bool has_large_keys(void)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_HASH, "culprit_probe", 1024, 8, 1, NULL);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/*
 * Many points in one link: the attach types of 5.18 and 6.6. A program is loaded whatever its
 * attach type is, so the kernel's BTF is asked.
 */
static bool has_attach_type(const struct btf *btf, const char *name)
{
	s32 id = btf ? btf__find_by_name_kind(btf, "bpf_attach_type", BTF_KIND_ENUM) : 0;
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (u32)id) : NULL;

	for (u32 i = 0; t && i < btf_vlen(t); i++)
		if (strcmp(btf__str_by_offset(btf, btf_enum(t)[i].name_off), name) == 0)
			return true;
	return false;
}

/* ---- answers ---- */

static int answer_fields(void *arg, const struct trace_point *p, struct arena *a,
			 struct trace_field **ret, u32 *ret_n, struct diag *d)
{
	(void)arg;
	if (p->n_parts != 2)
		return diag_set(d, -EINVAL, "a tracepoint is tracepoint:CATEGORY:NAME");
	return tracer_event_fields(p->parts[0], p->parts[1], a, ret, ret_n, d);
}

static int find_svma(void *arg, const char *name, u64 *ret)
{
	return tracer_file_symbol(arg, name, ret);
}

static int answer_usdt(void *arg, const struct trace_point *p, struct arena *a,
		       struct trace_usdt_argument **ret, u32 *ret_n, struct diag *d)
{
	struct trace_usdt_argument found[USDT_MAX_ARGUMENTS], *copy;
	const struct usdt_probe *probe;
	struct tracer_file *f;
	int r = tracer_find_usdt(arg, p, &probe, d);
	u32 n;

	if (r == 0)
		r = tracer_machine_file(arg, p->parts[0], d, &f);
	if (r < 0)
		return r;
	n = usdt_arguments(probe, f->elf->machine, find_svma, f, found);
	copy = arena_calloc(a, MAX(n, 1u), sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, found, n * sizeof(*copy));
	*ret = copy;
	*ret_n = n;
	return 0;
}

static int answer_signature(void *arg, const struct trace_point *p, const struct signature **ret,
			    struct diag *d)
{
	const struct tracer_function *fn;
	struct tracer_file *f;
	int r = tracer_machine_file(arg, p->parts[0], d, &f);

	if (r == 0)
		r = tracer_file_functions(f, d);
	if (r < 0)
		return r;
	fn = tracer_point_function(f, p);
	if (!fn)
		return diag_set(d, -ENOENT, "it is not at the beginning of a function");
	return tracer_file_signature(f, fn, ret, d);
}

static int answer_symbol(void *arg, const char *name, u64 *ret)
{
	(void)arg;
	return tracer_kernel_symbol(name, ret, NULL);
}

static int answer_user_symbol(void *arg, const char *path, const char *name, u64 *ret)
{
	struct tracer_machine *m = arg;
	_cleanup_free_ char *full = NULL;
	struct tracer_file *f;
	int r = tracer_find_program(path, m->pid, NULL, &full);

	if (r == 0)
		r = tracer_machine_file(m, full, NULL, &f);
	if (r == 0)
		r = tracer_file_symbol(f, name, ret);
	return r;
}

/* The id of a cgroup of v2 is the inode number of its folder. */
static int answer_cgroup(void *arg, const char *path, u64 *ret)
{
	struct stat st;

	(void)arg;
	if (stat(path, &st) < 0)
		return -errno;
	*ret = st.st_ino;
	return 0;
}

/* ---- the machine ---- */

int tracer_machine_create(u32 pid, struct diag *reterr_diag, struct tracer_machine **ret)
{
	struct tracer_machine *m = calloc(1, sizeof(*m));
	int cpus = libbpf_num_possible_cpus();

	if (!m)
		return -ENOMEM;
	m->pid = pid;
	m->max_points = MAX_POINTS;
	m->btf = btf__load_vmlinux_btf();
	if (!m->btf) {
		tracer_machine_destroy(m);
		return probe_require(reterr_diag) < 0
			       ? -ENOTSUP
			       : diag_set(reterr_diag, -ENOTSUP, "cannot read the kernel's BTF");
	}
	m->has_kprobe_multi = has_attach_type(m->btf, "BPF_TRACE_KPROBE_MULTI") &&
			      access("/sys/bus/event_source/devices/kprobe", F_OK) == 0;
	m->has_uprobe_multi = has_attach_type(m->btf, "BPF_TRACE_UPROBE_MULTI");
	m->links_uprobes = m->has_uprobe_multi && !probe_may_open_uprobes();
	m->target = (struct trace_target){
		.arg = m,
		.btf = m->btf,
		.cpus = (u32)MAX(cpus, 1),
		.has_loop = has_helper(BPF_FUNC_loop),
		.has_task_btf = has_call(BPF_FUNC_get_current_task_btf),
		.has_fetch = has_fetch(),
		.has_ktime_boot = has_call(BPF_FUNC_ktime_get_boot_ns),
		.has_for_each = has_helper(BPF_FUNC_for_each_map_elem),
		.has_func_ip = has_call(BPF_FUNC_get_func_ip),
		.has_lookup_percpu = has_helper(BPF_FUNC_map_lookup_percpu_elem),
		.machine = MACHINE,
		.is_in_pid_namespace = is_in_pid_namespace(),
		.has_small_keys = !has_large_keys(),
		.has_cookie = has_call(BPF_FUNC_get_attach_cookie),
		.expand = tracer_expand,
		.fields = answer_fields,
		.usdt = answer_usdt,
		.signature = answer_signature,
		.symbol = answer_symbol,
		.user_symbol = answer_user_symbol,
		.cgroup = answer_cgroup,
	};
	*ret = m;
	return 0;
}

void tracer_machine_destroy(struct tracer_machine *m)
{
	if (!m)
		return;
	vec_foreach (&m->files, f)
		tracer_file_destroy(*f);
	vec_deinit(&m->files);
	strtab_deinit(&m->functions);
	str_deinit(&m->missing);
	btf__free(m->btf);
	free(m);
}

bool tracer_machine_describes(struct tracer_machine *m, const char *name)
{
	u32 id;

	if (!m->has_functions && strtab_init(&m->functions) == 0) {
		for (u32 i = 1; i < btf__type_cnt(m->btf); i++) {
			const struct btf_type *t = btf__type_by_id(m->btf, i);
			const char *text = btf__str_by_offset(m->btf, t->name_off);

			if (btf_is_func(t))
				(void)strtab_add(&m->functions, text, strlen(text), &id);
		}
		m->has_functions = true;
	}
	return m->has_functions && *name && strtab_find(&m->functions, name, strlen(name), &id);
}

int tracer_machine_file(struct tracer_machine *m, const char *path, struct diag *reterr_diag,
			struct tracer_file **ret)
{
	struct tracer_file *f;
	int r;

	vec_foreach (&m->files, have)
		if (strcmp((*have)->path, path) == 0) {
			*ret = *have;
			return 0;
		}
	r = tracer_file_open(path, reterr_diag, &f);
	if (r < 0)
		return r;
	r = vec_push(&m->files, f);
	if (r < 0) {
		tracer_file_destroy(f);
		return r;
	}
	*ret = f;
	return 0;
}
