/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tracer/load.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "base/cleanup.h"

#define RING_BYTES (4u << 20)
#define LOG_BYTES (1u << 20)

static int create_map(enum bpf_map_type type, const char *name, u32 key_bytes, u32 value_bytes,
		      u32 n, struct diag *d)
{
	int fd = bpf_map_create(type, name, key_bytes, value_bytes, n, NULL);

	if (fd < 0)
		return diag_set(d, -errno, "cannot create a map of %u entries of %u bytes: %s", n,
				key_bytes + value_bytes, strerror(errno));
	return fd;
}

static int create_fixed_maps(struct tracer_loaded *l, struct diag *d)
{
	const struct trace_program *p = l->program;
	const struct {
		enum bpf_map_type type;
		u32 key_bytes, value_bytes, n;
		const char *name;
	} maps[TRACE_MAPS_OWN] = {
		[TRACE_MAP_RING] = {BPF_MAP_TYPE_RINGBUF, 0, 0, RING_BYTES, "trace_ring"},
		[TRACE_MAP_SCRATCH] = {BPF_MAP_TYPE_ARRAY, 4, MAX(p->scratch_bytes, 8u),
				       l->cpus * TRACE_LEVELS, "trace_scratch"},
		[TRACE_MAP_STACKS] = {BPF_MAP_TYPE_ARRAY, 4, sizeof(struct trace_stacks),
				      l->cpus * TRACE_LEVELS, "trace_stacks"},
		[TRACE_MAP_LOST] = {BPF_MAP_TYPE_ARRAY, 4, 8, TRACE_LOSS_N * l->cpus, "trace_lost"},
	};

	for (u32 i = 0; i < TRACE_MAPS_OWN; i++) {
		if (!maps[i].name || (i == TRACE_MAP_STACKS && l->walk))
			continue;
		l->fixed[i] = create_map(maps[i].type, maps[i].name, maps[i].key_bytes,
					 maps[i].value_bytes, maps[i].n, d);
		if (l->fixed[i] < 0)
			return l->fixed[i];
	}
	return 0;
}

static int create_own_map(struct tracer_loaded *l, const struct trace_map *m, struct diag *d)
{
	enum bpf_map_type type =
		m->is_scalar ? m->per_cpu ? BPF_MAP_TYPE_PERCPU_ARRAY : BPF_MAP_TYPE_ARRAY
		: m->per_cpu ? m->is_lru ? BPF_MAP_TYPE_LRU_PERCPU_HASH : BPF_MAP_TYPE_PERCPU_HASH
		: m->is_lru  ? BPF_MAP_TYPE_LRU_HASH
			     : BPF_MAP_TYPE_HASH;
	int fd, r;

	/* The kernel accepts letters, digits, '_' and '.' in a name; scripts have no others. */
	fd = create_map(type, "trace", m->is_scalar ? 4 : m->key_bytes, m->value_bytes,
			m->is_scalar ? 1 : m->max_entries, d);
	if (fd < 0)
		return fd;
	r = vec_push(&l->own, fd);
	if (r < 0)
		close(fd);
	return r;
}

int tracer_loaded_init(struct tracer_loaded *l, const struct trace_program *p,
		       const struct tracer_walk *walk, u32 cpus, struct diag *reterr_diag)
{
	bool verbose = l->verbose;
	int r;

	*l = (struct tracer_loaded){.program = p, .walk = walk, .cpus = cpus, .verbose = verbose};
	for (u32 i = 0; i < TRACE_MAPS_OWN; i++)
		l->fixed[i] = -1;
	r = create_fixed_maps(l, reterr_diag);
	for (size_t i = 0; i < p->maps.n && r == 0; i++)
		r = create_own_map(l, &p->maps.data[i], reterr_diag);
	return r;
}

void tracer_loaded_deinit(struct tracer_loaded *l)
{
	vec_foreach (&l->programs, p)
		close(p->fd);
	vec_deinit(&l->programs);
	vec_foreach (&l->own, fd)
		close(*fd);
	vec_deinit(&l->own);
	for (u32 i = 0; i < TRACE_MAPS_OWN; i++) {
		if (l->program && l->fixed[i] >= 0)
			close(l->fixed[i]);
		l->fixed[i] = -1;
	}
}

/* The prog arrays of a type. NULL: stacks of such programs cannot be walked. */
static const struct tracer_walk_entry *entry_of(const struct tracer_loaded *l,
						enum bpf_prog_type type)
{
	for (size_t i = 0; l->walk && i < l->walk->entries.n; i++)
		if (l->walk->entries.data[i].type == type)
			return &l->walk->entries.data[i];
	return NULL;
}

/* The descriptor of a map by its number in a program, or a negative errno. */
static int map_of(const struct tracer_loaded *l, enum bpf_prog_type type, u32 map)
{
	const struct tracer_walk_entry *e = entry_of(l, type);

	if (map == TRACE_MAP_ENTER)
		return e ? e->enter : -ENOTSUP;
	if (map == TRACE_MAP_STACKS && l->walk)
		return l->walk->stacks;
	if (map < TRACE_MAPS_OWN)
		return l->fixed[map];
	return map - TRACE_MAPS_OWN < l->own.n ? l->own.data[map - TRACE_MAPS_OWN] : -EINVAL;
}

/* ---- instructions ---- */

static bool is_wide_load(const struct bpf_insn *i)
{
	return i->code == (BPF_LD | BPF_IMM | BPF_DW);
}

/* Puts descriptors in the place of the numbers of maps. */
static int place_maps(const struct tracer_loaded *l, enum bpf_prog_type type,
		      struct bpf_insn *insns, u32 n, struct diag *d)
{
	for (u32 i = 0; i < n; i++) {
		int fd;

		if (!is_wide_load(&insns[i]))
			continue;
		if (insns[i].src_reg == BPF_PSEUDO_MAP_FD ||
		    insns[i].src_reg == BPF_PSEUDO_MAP_VALUE) {
			fd = map_of(l, type, (u32)insns[i].imm);
			if (fd == -ENOTSUP)
				return diag_set(d, fd,
						"stacks are not taken at this kind of probe");
			if (fd < 0)
				return diag_set(d, fd,
						"instruction %u names map %d, which does "
						"not exist",
						i, insns[i].imm);
			insns[i].imm = fd;
		}
		i++; /* the other half */
	}
	return 0;
}

/* Where the function begins that an instruction calls or takes the address of; 0: it does not. */
static u32 function_of(const struct bpf_insn *insns, u32 i, u32 n)
{
	const struct bpf_insn *at = &insns[i];
	bool names = (at->code == (BPF_JMP | BPF_CALL) && at->src_reg == BPF_PSEUDO_CALL) ||
		     (is_wide_load(at) && at->src_reg == BPF_PSEUDO_FUNC);
	s64 target = (s64)i + at->imm + 1;

	return names && target > 0 && target < (s64)n ? (u32)target : 0;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct bpf_func_info *x = a, *y = b;

	return x->insn_off < y->insn_off ? -1 : x->insn_off > y->insn_off;
}

/*
 * The BTF that the kernel wants of a program whose functions are called back: each is a static
 * function, whose arguments the verifier finds out itself.
 */
struct functions {
	struct btf *btf; /* owned */
	int fd;		 /* owned */
	vec(struct bpf_func_info) info;
};
#define FUNCTIONS_NONE ((struct functions){.fd = -1})

static void functions_deinit(struct functions *f)
{
	if (f->fd >= 0)
		close(f->fd);
	btf__free(f->btf);
	vec_deinit(&f->info);
}

static int add_function(struct functions *f, u32 offset)
{
	vec_foreach (&f->info, i)
		if (i->insn_off == offset)
			return 0;
	return vec_push(&f->info, (struct bpf_func_info){.insn_off = offset});
}

static int functions_describe(struct functions *f, const struct bpf_insn *insns, u32 n)
{
	const void *raw;
	int proto, r = 0;
	u32 bytes;

	for (u32 i = 0; i < n && r == 0; i++)
		if (function_of(insns, i, n))
			r = add_function(f, function_of(insns, i, n));
	if (r < 0 || !f->info.n)
		return r;
	r = add_function(f, 0);
	f->btf = btf__new_empty();
	if (r < 0 || !f->btf)
		return -ENOMEM;
	qsort(f->info.data, f->info.n, sizeof(*f->info.data), compare_offsets);
	proto = btf__add_func_proto(f->btf, btf__add_int(f->btf, "int", 4, BTF_INT_SIGNED));
	vec_foreach (&f->info, i) {
		char name[32];
		int id;

		snprintf(name, sizeof(name), "trace_%u", i->insn_off);
		id = btf__add_func(f->btf, name, BTF_FUNC_STATIC, proto);
		if (id < 0)
			return id;
		i->type_id = (u32)id;
	}
	raw = btf__raw_data(f->btf, &bytes);
	f->fd = raw ? bpf_btf_load(raw, bytes, NULL) : -ENOMEM;
	return f->fd < 0 ? f->fd : 0;
}

/* ---- the verifier ---- */

/*
 * The verifier's own sentence: the last line that is neither a statistic nor an instruction.
 * `log` is cut in place; static text if there is none.
 */
static const char *reason_of(char *log)
{
	size_t n = strlen(log);

	while (n) {
		char *line;

		while (n && log[n - 1] == '\n')
			log[--n] = '\0';
		line = strrchr(log, '\n');
		line = line ? line + 1 : log;
		if (*line && strncmp(line, "processed ", 10) != 0 &&
		    strncmp(line, "verification time", 17) != 0 &&
		    strncmp(line, "stack depth", 11) != 0)
			return line;
		n = (size_t)(line - log);
		log[n] = '\0';
	}
	return "the kernel gives no reason";
}

static int load_once(const struct tracer_loaded_program *want, const struct bpf_insn *insns, u32 n,
		     const struct functions *f, char *log, u32 log_bytes)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = want->attach_type,
		    .attach_btf_id = want->btf_id, .log_buf = log, .log_size = log_bytes,
		    .log_level = log ? 1 : 0);
	int fd;

	if (want->btf_id && want->btf_fd)
		o.attach_btf_obj_fd = (u32)want->btf_fd;
	if (f->info.n) {
		o.prog_btf_fd = (u32)f->fd;
		o.func_info = f->info.data;
		o.func_info_cnt = (u32)f->info.n;
		o.func_info_rec_size = sizeof(*f->info.data);
	}
	fd = bpf_prog_load(want->type, "culprit_trace", "GPL", insns, n, &o);
	return fd < 0 ? -errno : fd;
}

static int explain_refusal(const struct tracer_loaded *l, const struct tracer_loaded_program *want,
			   const struct bpf_insn *insns, u32 n, const struct functions *f,
			   const char *name, struct diag *d)
{
	_cleanup_free_ char *log = calloc(1, LOG_BYTES);
	int fd;

	if (!log)
		return -ENOMEM;
	fd = load_once(want, insns, n, f, log, LOG_BYTES);
	if (fd >= 0)
		return fd;
	if (fd == -EPERM && !*log) {
		int missing = probe_require(d);

		if (missing < 0)
			return missing;
		return diag_set(d, fd, "this kernel does not allow a program for %s", name);
	}
	if (l->verbose)
		fprintf(stderr, "%s", log);
	return diag_set(d, fd, "the kernel refuses the program for %s: %s%s (%s)", name,
			reason_of(log), l->verbose ? "" : "; -v shows all that it says",
			strerror(-fd));
}

/* Loads instructions. The descriptor, which the caller owns, or a negative errno. */
static int load_insns(struct tracer_loaded *l, const struct tracer_loaded_program *want,
		      const struct bpf_insn *from, u32 n, const char *name, struct diag *d)
{
	_cleanup_free_ struct bpf_insn *insns = calloc(MAX(n, 1u), sizeof(*insns));
	struct functions f = FUNCTIONS_NONE;
	int r;

	if (!insns)
		return -ENOMEM;
	memcpy(insns, from, n * sizeof(*insns));
	r = place_maps(l, want->type, insns, n, d);
	if (r == 0)
		r = functions_describe(&f, insns, n);
	if (r == 0)
		r = load_once(want, insns, n, &f, NULL, 0);
	if (r < 0)
		r = explain_refusal(l, want, insns, n, &f, name, d);
	functions_deinit(&f);
	return r;
}

/* Loads the second half of a code, and puts it where the walk jumps to. */
static int load_second(struct tracer_loaded *l, const struct tracer_loaded_program *want,
		       const char *name, struct diag *d)
{
	const struct trace_code *code = &l->program->codes.data[want->code];
	const struct tracer_walk_entry *e = entry_of(l, want->type);
	_cleanup_close_ int fd = load_insns(l, want, code->second, code->n_second, name, d);
	u32 slot = 1 + want->code;

	if (fd < 0)
		return fd;
	if (!e || bpf_map_update_elem(e->enter, &slot, &fd, BPF_ANY) < 0)
		return diag_set(d, -errno, "cannot enter the second half of an action: %s",
				strerror(errno));
	return 0;
}

int tracer_load(struct tracer_loaded *l, struct tracer_loaded_program want, const char *name,
		struct diag *reterr_diag)
{
	const struct trace_code *code = &l->program->codes.data[want.code];
	int r;

	vec_foreach (&l->programs, p)
		if (p->code == want.code && p->type == want.type &&
		    p->attach_type == want.attach_type && p->btf_id == want.btf_id &&
		    p->btf_fd == want.btf_fd)
			return p->fd;
	want.fd = load_insns(l, &want, code->first, code->n_first, name, reterr_diag);
	if (want.fd < 0)
		return want.fd;
	r = vec_push(&l->programs, want);
	if (r < 0)
		close(want.fd);
	else if (code->second)
		r = load_second(l, &want, name, reterr_diag);
	return r < 0 ? r : want.fd;
}
