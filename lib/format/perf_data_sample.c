/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the records of perf.data to samples. Processes begin with a fork, which copies the mappings
 * of the parent, and lose them when those of the next program come; a mapping replaces older ones
 * at its addresses. A frame in a mapping is an offset in its file (PROFILE_FRAME_OFFSET); one of
 * the kernel is its address, and the mapping's start is where the kernel was loaded.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quota.h"
#include "base/text.h"
#include "format/perf_data.h"

#define KERNEL_PID (~0u)
#define KERNEL_NAME "[kernel.kallsyms]"
#define UNWOUND_NOTE "[truncated: perf.data has a copy of the stack here]"
#define CONTEXT_MAX ((u64)-4095) /* callchains: from here on no addresses, but marks */
#define CONTEXT_KERNEL ((u64)-128)
#define CONTEXT_USER ((u64)-512)
#define MISC_CPUMODE 7
#define MISC_KERNEL 1
#define MISC_GUEST_KERNEL 4
#define MISC_GUEST_USER 5
#define MISC_COMM_EXEC (1 << 13)
#define MISC_MMAP_BUILD_ID (1 << 14)
#define PROT_EXECUTE 4
/* Mappings of all processes: a fork copies them. */
#define MAX_MAPPINGS (1u << 22)

struct perf_mapping {
	u64 start, end, offset;
	u32 id; /* in the profile */
	u8 kind;
};

struct perf_process {
	vec(struct perf_mapping) mappings; /* the latest last */
	struct map frames;		   /* ip → frame, as long as no mapping comes */
	bool replaced; /* by exec: the first mapping that comes is of another program */
};

struct replay {
	struct perf_data *f;
	vec(struct perf_process) processes;
	struct map by_pid; /* → index */
	struct map comms;  /* tid → string id */
	u64 n_mappings;
	vec(u32) ids; /* of the stack at hand, leaf first */
	u64 first_ns, last_ns;
};

static void replay_deinit(struct replay *r)
{
	vec_foreach (&r->processes, p) {
		vec_deinit(&p->mappings);
		map_deinit(&p->frames);
	}
	vec_deinit(&r->processes);
	map_deinit(&r->by_pid);
	map_deinit(&r->comms);
	vec_deinit(&r->ids);
}

/* Borrowed until the next call that adds one. */
static int get_process(struct replay *r, u32 pid, struct perf_process **ret)
{
	u64 *known = map_get(&r->by_pid, pid);
	struct perf_process new = {};
	int err = 0;

	if (!known) {
		err = vec_push(&r->processes, new);
		if (err == 0)
			err = map_put(&r->by_pid, pid, r->processes.n - 1);
	}
	if (err < 0)
		return err;
	*ret = &r->processes.data[known ? *known : r->processes.n - 1];
	return 0;
}

static void forget_mappings(struct replay *r, struct perf_process *p)
{
	r->n_mappings -= p->mappings.n;
	vec_clear(&p->mappings);
	map_clear(&p->frames);
}

/* ---- mappings ---- */

static struct buf text_of(struct buf b)
{
	b.end = b.pos + strnlen((const char *)b.pos, buf_left(&b));
	return b;
}

static bool starts(struct buf b, const char *with)
{
	return buf_left(&b) >= strlen(with) && !memcmp(b.pos, with, strlen(with));
}

static u8 kind_of(u32 pid, struct buf path)
{
	if (pid == KERNEL_PID)
		return FRAME_KERNEL;
	/* Memory that a program has filled: a JIT compiler, or a part of the program. */
	return starts(path, "//anon") || starts(path, "/memfd:") || starts(path, "/SYSV") ||
			       starts(path, "[anon")
		       ? FRAME_JIT
		       : FRAME_NATIVE;
}

/* The kernel's own mapping has a symbol at its end: "[kernel.kallsyms]_text". */
static int add_file(struct replay *r, u32 pid, struct buf path, const char *build_id, u64 start,
		    struct perf_mapping *m)
{
	_cleanup_str_ struct str name = {};
	struct profile_mapping row = {};
	struct profile *p = r->f->p;
	u64 *known;
	int err;

	m->kind = kind_of(pid, path);
	if (m->kind == FRAME_JIT)
		str_printf(&name, "/tmp/perf-%u.map", pid); /* where its names are */
	else if (starts(path, KERNEL_NAME))
		str_puts(&name, KERNEL_NAME);
	else
		str_append(&name, path.pos, buf_left(&path));
	if (m->kind == FRAME_KERNEL)
		row.start = start;
	err = profile_add_string(p, str_get(&name), name.n, &row.path);
	if (err < 0)
		return err;
	known = map_get(&r->f->build_ids, row.path);
	if (*build_id)
		err = profile_add_string(p, build_id, strlen(build_id), &row.build_id);
	else if (known)
		row.build_id = (u32)*known;
	return err < 0 ? err : profile_add_mapping(p, &row, &m->id);
}

static int put_mapping(struct replay *r, u32 pid, const struct perf_mapping *m)
{
	struct perf_process *p;
	int err = get_process(r, pid, &p);

	if (err < 0)
		return err;
	if (r->n_mappings == MAX_MAPPINGS)
		return diag_set(r->f->diag, -EFBIG, "perf.data: too many mappings in it");
	if (p->replaced)
		forget_mappings(r, p);
	p->replaced = false;
	r->n_mappings++;
	map_clear(&p->frames);
	return vec_push(&p->mappings, *m);
}

static int read_mmap(struct replay *r, u32 type, u16 misc, struct buf b)
{
	struct perf_mapping m = {};
	char build_id[2 * 20 + 1] = "";
	struct buf ids, path;
	u32 pid, tid, prot = PROT_EXECUTE;
	u64 length, kernel_start = 0;
	int err;

	if (!buf_u32(&b, &pid) || !buf_u32(&b, &tid) || !buf_u64(&b, &m.start) ||
	    !buf_u64(&b, &length) || !buf_u64(&b, &m.offset))
		return 0;
	if (type == PERF_MMAP2) {
		if (!buf_take(&b, 24, &ids) || !buf_u32(&b, &prot) || !buf_skip(&b, 4))
			return 0;
		if (misc & MISC_MMAP_BUILD_ID)
			text_hex(ids.pos + 4, MIN(ids.pos[0], (u8)20), build_id);
	}
	/* perf does not tell the protection of the kernel. */
	if ((!(prot & PROT_EXECUTE) && (misc & MISC_CPUMODE) != MISC_KERNEL) ||
	    (misc & MISC_CPUMODE) == MISC_GUEST_KERNEL || (misc & MISC_CPUMODE) == MISC_GUEST_USER)
		return 0;
	if ((misc & MISC_CPUMODE) == MISC_KERNEL)
		pid = KERNEL_PID;
	path = text_of(b);
	m.end = m.start + length < m.start ? ~0ULL : m.start + length;
	if (pid == KERNEL_PID && starts(path, KERNEL_NAME))
		kernel_start = m.offset; /* of the symbol behind the name */
	err = add_file(r, pid, path, build_id, kernel_start, &m);
	return err < 0 ? err : put_mapping(r, pid, &m);
}

static const struct perf_mapping *find_mapping(const struct perf_process *p, u64 address)
{
	for (size_t i = p->mappings.n; i > 0; i--) {
		const struct perf_mapping *m = &p->mappings.data[i - 1];

		if (address >= m->start && address < m->end)
			return m;
	}
	return NULL;
}

/* ---- processes ---- */

static int read_comm(struct replay *r, u16 misc, struct buf b)
{
	struct perf_process *p;
	u32 pid, tid, id;
	int err;

	if (!buf_u32(&b, &pid) || !buf_u32(&b, &tid))
		return 0;
	b = text_of(b);
	err = profile_add_string(r->f->p, (const char *)b.pos, buf_left(&b), &id);
	if (err == 0)
		err = map_put(&r->comms, tid, id);
	if (err < 0 || !(misc & MISC_COMM_EXEC))
		return err;
	err = get_process(r, pid, &p);
	if (err == 0)
		p->replaced = true;
	return err;
}

static int copy_mappings(struct replay *r, u32 from, u32 to)
{
	struct perf_process *parent, *child;
	int err = get_process(r, from, &parent);

	if (err == 0)
		err = get_process(r, to, &child);
	if (err == 0)
		err = get_process(r, from, &parent); /* it may have moved */
	if (err < 0)
		return err;
	forget_mappings(r, child);
	if (parent->mappings.n > MAX_MAPPINGS - r->n_mappings)
		return diag_set(r->f->diag, -EFBIG, "perf.data: too many mappings in it");
	err = vec_reserve(&child->mappings, parent->mappings.n);
	if (err < 0 || !parent->mappings.n)
		return err;
	memcpy(child->mappings.data, parent->mappings.data,
	       parent->mappings.n * sizeof(*parent->mappings.data));
	child->mappings.n = parent->mappings.n;
	r->n_mappings += child->mappings.n;
	return 0;
}

static int read_fork(struct replay *r, struct buf b)
{
	u32 pid, parent, tid, parent_tid;
	u64 *comm;
	int err = 0;

	if (!buf_u32(&b, &pid) || !buf_u32(&b, &parent) || !buf_u32(&b, &tid) ||
	    !buf_u32(&b, &parent_tid))
		return 0;
	comm = map_get(&r->comms, parent_tid);
	if (comm)
		err = map_put(&r->comms, tid, *comm);
	return err < 0 || pid == parent ? err : copy_mappings(r, parent, pid);
}

static int get_thread(struct replay *r, u32 pid, u32 tid, u32 *ret)
{
	struct profile_thread t = {.pid = pid, .tid = tid};
	u64 *comm = map_get(&r->comms, tid);
	const char *comm_text;
	char name[16];
	int err = 0;

	if (comm) {
		t.comm = (u32)*comm;
	} else {
		snprintf(name, sizeof(name), ":%u", tid);
		comm_text = pid ? name : "swapper";
		err = profile_add_string(r->f->p, comm_text, strlen(comm_text), &t.comm);
	}
	t.thread_name = t.comm;
	return err < 0 ? err : profile_add_thread(r->f->p, &t, ret);
}

/* ---- stacks ---- */

static int make_frame(struct replay *r, const struct perf_process *p, u64 ip, bool kernel, u32 *ret)
{
	struct profile_frame frame = {.address = ip,
				      .mapping = PROFILE_NONE,
				      .function = PROFILE_NONE,
				      .kind = kernel ? FRAME_KERNEL : FRAME_UNKNOWN};
	const struct perf_mapping *m = find_mapping(p, ip);
	struct profile_mapping row = {};
	int err = 0;

	if (!m && kernel) {
		err = profile_add_string(r->f->p, KERNEL_NAME, strlen(KERNEL_NAME), &row.path);
		if (err == 0)
			err = profile_add_mapping(r->f->p, &row, &frame.mapping);
	}
	if (m) {
		frame.kind = m->kind;
		frame.mapping = m->id;
	}
	if (m && m->kind == FRAME_NATIVE) {
		frame.address = ip - m->start + m->offset;
		frame.flags = PROFILE_FRAME_OFFSET;
	}
	return err < 0 ? err : profile_add_frame(r->f->p, &frame, ret);
}

/* `call`: the address is the one behind a call. */
static int push_frame(struct replay *r, u32 pid, u64 ip, bool kernel, bool call)
{
	struct perf_process *p;
	u64 *known, at = ip - (call && ip);
	u32 id;
	int err = get_process(r, kernel ? KERNEL_PID : pid, &p);

	if (err < 0 || at >= MAP_GONE_KEY)
		return err;
	known = map_get(&p->frames, at);
	if (known)
		return vec_push(&r->ids, (u32)*known);
	err = make_frame(r, p, at, kernel, &id);
	if (err == 0)
		err = map_put(&p->frames, at, id);
	return err < 0 ? err : vec_push(&r->ids, id);
}

static int read_chain(struct replay *r, const struct perf_sample *s, bool kernel)
{
	struct buf chain = s->chain;
	bool first = true, other = false; /* other: of a guest or hypervisor */
	u64 ip;
	int err = 0;

	vec_clear(&r->ids);
	if (!buf_left(&chain))
		return push_frame(r, s->pid, s->ip, kernel, false);
	while (err == 0 && buf_u64(&chain, &ip)) {
		if (ip >= CONTEXT_MAX) {
			kernel = ip == CONTEXT_KERNEL;
			other = !kernel && ip != CONTEXT_USER;
			/* The user's part begins with the instruction that entered the kernel. */
			first = true;
			continue;
		}
		if (!other)
			err = push_frame(r, s->pid, ip, kernel, !first);
		first = false;
	}
	return err;
}

static int note_unwound(struct replay *r)
{
	u32 id;
	int err;

	r->f->unwound++;
	err = profile_add_note(r->f->p, UNWOUND_NOTE, &id);
	return err < 0 ? err : vec_push(&r->ids, id);
}

static int read_sample(struct replay *r, u16 misc, struct buf b)
{
	const struct perf_attr *a = perf_attr_of_sample(r->f, b);
	s64 values[PROFILE_MAX_TYPES] = {};
	struct perf_sample s;
	u32 thread, stack;
	int err;

	if (!a || a->type == PROFILE_NONE || !perf_sample_read(a, b, &s))
		return 0; /* counted when it was found */
	if (s.period > INT64_MAX)
		return diag_set(r->f->diag, -EBADMSG, "perf.data: a period that cannot be");
	values[0] = a->type == 1;
	values[a->type] = (s64)s.period;
	r->first_ns = r->first_ns ? r->first_ns : s.time_ns;
	r->last_ns = s.time_ns;
	err = get_thread(r, s.pid, s.tid, &thread);
	if (err == 0)
		err = read_chain(r, &s, (misc & MISC_CPUMODE) == MISC_KERNEL);
	if (err == 0 && s.has_stack)
		err = note_unwound(r);
	if (err == 0)
		err = profile_add_stack(r->f->p, r->ids.data, r->ids.n, &stack);
	if (err == 0)
		err = profile_add_sample(r->f->p, 0, thread, stack, values);
	return err == -ERANGE
		       ? diag_set(r->f->diag, err, "perf.data: periods add up to more than 63 bits")
		       : err;
}

int perf_data_replay(struct perf_data *f)
{
	__attribute__((cleanup(replay_deinit))) struct replay r = {.f = f};
	int err = 0;

	for (size_t i = 0; i < f->records.n && err == 0; i++) {
		u32 type = 0;
		u16 misc = 0;
		struct buf b = perf_record_body(f, f->records.data[i].offset, &type, &misc);

		if (type == PERF_SAMPLE)
			err = read_sample(&r, misc, b);
		else if (type == PERF_COMM)
			err = read_comm(&r, misc, b);
		else if (type == PERF_FORK)
			err = read_fork(&r, b);
		else
			err = read_mmap(&r, type, misc, b);
		if (err == 0)
			err = quota_check(f->diag);
	}
	/* A damaged file may have any time. */
	if (r.last_ns > r.first_ns && r.last_ns - r.first_ns <= INT64_MAX)
		f->p->duration_ns = r.last_ns - r.first_ns;
	return err;
}
