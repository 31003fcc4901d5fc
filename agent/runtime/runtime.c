/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracks which process runs which runtime. Each binary is classified once. An image of a process is
 * attached when it maps a runtime's binary. If the runtime has not started far enough, attaching is
 * retried.
 */
#include "agent/runtime/internal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "proc/proc.h"

/*
 * Attaching is retried EARLY_TRIES times after a change of the process, then once in LATE_ROUNDS
 * calls of runtimes_retry(): a program may load a runtime long before it starts it.
 */
#define EARLY_TRIES 64
#define LATE_ROUNDS 20
/* The interval if BPF's map has no room for the process. */
#define ROOM_ROUNDS 200

/* How often a binary that did not fit in memory is learned again: for a minute or more. */
#define MAX_ASKED 100

const struct runtime_row runtime_table[RUNTIME_N] = {
	[RUNTIME_NONE] = {.name = "none"},
#define RUNTIME(id, name, kind, ...) [RUNTIME_##id] = {#name, FRAME_##kind, &runtime_##name},
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
};

const struct native_runtime native_runtimes[] = {
#define RUNTIME(...)
#define NATIVE_RUNTIME(name, ...) {#name, &native_runtime_##name},
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	{},
};

/* ---- binaries ---- */

static int update_bpf_map(int fd, const void *key, const void *value)
{
	return fd < 0 ? 0 : bpf_map_update_elem(fd, key, value, BPF_ANY);
}

static int find_slot(struct runtimes *r, u32 *ret_slot, struct diag *reterr_diag)
{
	for (u32 i = 0; i < RUNTIME_MAX_BINARIES; i++) {
		if (r->used[i])
			continue;
		*ret_slot = i;
		return 0;
	}
	return diag_set(reterr_diag, -ENOSPC, "more than %u binaries of runtimes",
			RUNTIME_MAX_BINARIES);
}

/* Takes the learner's result. */
static int accept_learned(struct runtimes *r, struct known_binary *k, struct learn_job *job)
{
	u32 slot;
	int e = job->error;

	k->why = job->why;
	if (e < 0)
		return e;
	e = find_slot(r, &slot, &k->why);
	if (e == 0 && update_bpf_map(r->options.binaries_fd, &slot, &job->info) < 0)
		e = -errno;
	if (e < 0) {
		job->ops->forget(job->learned);
		return e;
	}
	r->used[slot] = true;
	k->slot = slot;
	k->learned = job->learned;
	k->runtime = k->claimed;
	return 0;
}

static void known_binary_free(struct runtimes *r, struct known_binary *k)
{
	if (k->runtime) {
		runtime_table[k->runtime].ops->forget(k->learned);
		r->used[k->slot] = false;
	}
	if (k->tasks)
		k->native->tasks->forget(k->tasks);
	if (k->heap)
		k->native->heap->forget(k->heap);
	free(k);
}

static void log_failure(struct runtimes *r, const struct known_binary *k, const char *path)
{
	r->stats.learn_failed[k->claimed]++;
	log_warn("%s: frames of %s are not shown: %s", path, runtime_table[k->claimed].name,
		 k->why.text[0] ? k->why.text : "its layout could not be learned");
}

/* Memory was short. Returns true if learning is retried later. */
static bool learn_again(struct runtimes *r, struct known_binary *k, const struct learn_job *job)
{
	return ++k->n_asked < MAX_ASKED && learner_ask(r->learner, job->ops, &job->binary, k) == 0;
}

u32 runtimes_take(struct runtimes *r, bool wait)
{
	struct learn_job *job;
	u32 n = 0;

	while ((job = learner_take(r->learner, wait))) {
		struct known_binary *k = job->user;

		if (job->error == -ENOBUFS && !k->gone && learn_again(r, k, job)) {
			learn_job_free(job);
			continue;
		}
		n++;
		k->learning = false;
		r->jits_of = 0;
		log_debug("%s: %s learned in %.1f ms", job->binary.path,
			  runtime_table[k->claimed].name, job->ms);
		if (k->gone) {
			if (job->error >= 0)
				job->ops->forget(job->learned);
			map_del(&r->gone, (u64)k, NULL);
			known_binary_free(r, k);
		} else if (accept_learned(r, k, job) < 0) {
			log_failure(r, k, job->binary.path);
			if (r->options.unmark)
				r->options.unmark(r->options.arg, k->file_id);
		}
		learn_job_free(job);
	}
	return n;
}

struct known_binary *runtimes_binary(struct runtimes *r, const struct procman_binary *b)
{
	u64 *known = map_get(&r->binaries, b->file_id);
	struct known_binary *k;

	if (known)
		return (struct known_binary *)*known;
	if (!b->file_id)
		return NULL;
	k = calloc(1, sizeof(*k));
	if (!k || map_put(&r->binaries, b->file_id, (u64)k) < 0) {
		free(k);
		return NULL;
	}
	k->file_id = b->file_id;
	for (u32 i = 1; b->elf && i < RUNTIME_N && !k->claimed; i++)
		if (runtime_table[i].ops->is_runtime(b))
			k->claimed = i;
	for (size_t i = 0; b->elf && native_runtimes[i].ops && !k->claimed; i++)
		if (native_runtimes[i].ops->is_runtime(b))
			k->native = native_runtimes[i].ops;
	/* What a runtime's file has is learned through another handle. */
	if (b->elf)
		elf_file_forget(b->elf);
	if (!k->claimed)
		return k;
	k->learning = learner_ask(r->learner, runtime_table[k->claimed].ops, b, k) == 0;
	if (!k->learning)
		log_failure(r, k, b->path);
	return k;
}

/* The learner may still use the binary; it is then freed later. */
static void known_binary_drop(struct runtimes *r, struct known_binary *k)
{
	if (!k->learning) {
		known_binary_free(r, k);
		return;
	}
	k->gone = true;
	(void)map_put(&r->gone, (u64)k, (u64)k);
}

/* The runtime that mappings are marked with, already while learning: an early mark costs little. */
static u32 marked_runtime(const struct known_binary *k)
{
	return k && (k->runtime || k->learning) ? k->claimed : RUNTIME_NONE;
}

/* Whether a mapping is of a segment of an ELF file. The file can have more behind its segments. */
static bool is_segment(const struct procman_mapping *m)
{
	const struct elf_file *elf = m->binary->elf;

	for (u32 i = 0; elf && i < elf->n_segments; i++)
		if (m->foff + (m->end - m->start) > elf->segments[i].foff &&
		    m->foff < elf->segments[i].foff + elf->segments[i].filesz)
			return true;
	return false;
}

/* The memory, as a JIT uses it, of a mapping that is not a segment; JIT_MEMORY_N: of no JIT. */
static enum jit_memory jit_memory_of(const struct procman_mapping *m)
{
	const struct procman_binary *b = m->binary;

	if (b->kind == PROCMAN_ANON)
		return JIT_MEMORY_ANON;
	if (procman_binary_is_jit(b))
		return JIT_MEMORY_SHARED;
	return b->elf || (b->kind == PROCMAN_FILE && b->error == -ENOEXEC) ? JIT_MEMORY_FILES
									   : JIT_MEMORY_N;
}

/* Finds the runtimes with a JIT in the process, by the memory that each writes code to. */
static void find_jits(struct runtimes *r, const struct procman_process *p)
{
	memset(r->jits, 0, sizeof(r->jits));
	for (u32 i = 0; i < p->n; i++) {
		const struct runtime_ops *ops;
		u32 runtime;

		if (!is_segment(&p->mappings[i]))
			continue;
		runtime = marked_runtime(runtimes_binary(r, p->mappings[i].binary));
		ops = runtime_table[runtime].ops;
		for (u32 k = 0; runtime && k < JIT_MEMORY_N; k++)
			if (ops->jit_memory & 1u << k &&
			    (!r->jits[k] ||
			     (!ops->library && runtime_table[r->jits[k]].ops->library)))
				r->jits[k] = runtime;
	}
}

u32 runtimes_of_mapping(struct runtimes *r, const struct procman_process *p,
			const struct procman_mapping *m)
{
	enum jit_memory memory;
	u32 own;

	if (RUNTIME_N == 1)
		return RUNTIME_NONE;
	if (is_segment(m)) {
		own = marked_runtime(runtimes_binary(r, m->binary));
		return own && runtime_table[own].ops->native_text ? RUNTIME_NONE : own;
	}
	memory = jit_memory_of(m);
	if (memory == JIT_MEMORY_N)
		return RUNTIME_NONE;
	/* A JIT has hundreds of such mappings, and the caller asks about one after the other. */
	if (r->jits_of != p->mappings_id) {
		find_jits(r, p);
		r->jits_of = p->mappings_id;
	}
	return r->jits[memory];
}

/* ---- processes ---- */

/* Whether the memory that the JIT has reserved is determined by the process's mappings. */
static bool has_anonymous_jit(u32 runtime)
{
	const struct runtime_ops *ops = runtime_table[runtime].ops;

	return ops->jit_memory & 1u << JIT_MEMORY_ANON && !ops->library;
}

static u64 key_of(u64 image, u32 runtime)
{
	return image << 4 | runtime;
}

/* Tries again after so many rounds of runtimes_retry(). */
static void wait_rounds(struct runtimes *r, const struct procman_process *p, u32 runtime,
			u32 rounds)
{
	(void)map_put(&r->waiting, key_of(p->image, runtime), (u64)p->pid << 32 | rounds);
}

static void wait_no_more(struct runtimes *r, u64 image, u32 runtime)
{
	map_del(&r->waiting, key_of(image, runtime), NULL);
}

/* Adjacent mappings, and whether one of them contains code of a JIT. */
struct reserved {
	struct runtime_process *process;
	u64 start, end;
	u32 n;
	bool code;
};

static void reserved_end(struct reserved *v)
{
	if (v->code && v->n < RUNTIME_MAX_RESERVED) {
		v->process->reserved[v->n].start = v->start;
		v->process->reserved[v->n].end = v->end;
		v->n++;
	}
	v->code = false;
}

/*
 * Executable files between them belong to the JIT, too: V8 maps its builtins again near its code.
 */
static int reserved_add(void *arg, const struct proc_mapping *m)
{
	struct reserved *v = arg;
	bool anonymous = !m->inode && !*m->path;

	if (m->start != v->end || (!anonymous && !(m->inode && m->prot & PROT_EXEC))) {
		reserved_end(v);
		v->start = m->start;
	}
	v->end = m->end;
	v->code |= anonymous && m->prot & PROT_EXEC;
	return 0;
}

static void find_reserved(u32 pid, struct runtime_process *ret)
{
	struct reserved v = {.process = ret};

	(void)proc_maps_read(pid, PROC_MAPS_ALL, reserved_add, &v);
	reserved_end(&v);
}

static void write_entry(struct runtimes *r, const struct procman_process *p, struct attached *a)
{
	struct runtime_key key = {p->pid, a->binary->runtime};

	a->in_map = update_bpf_map(r->options.processes_fd, &key, &a->process) == 0;
	if (a->in_map) {
		wait_no_more(r, p->image, key.runtime);
		return;
	}
	r->stats.no_room++;
	wait_rounds(r, p, key.runtime, ROOM_ROUNDS);
	log_warn_rarely("pid %u: BPF has no room for one more process that runs %s: its frames are "
			"not shown until others end",
			key.pid, runtime_table[key.runtime].name);
}

/* 1: the runtime may show its locks later. */
static int attach_locks(struct runtimes *r, const struct runtime_target *t, struct attached *a)
{
	const struct runtime_ops *ops = runtime_table[a->binary->runtime].ops;
	struct runtime_key key = {a->pid, a->binary->runtime};
	struct runtime_lock lock = {.image = a->image};
	int e = ops->attach_locks ? ops->attach_locks(t, a->binary->learned, &lock) : -ENOTSUP;

	/* Without room for it the owners are not known, which is all that can be said. */
	if (e == 0)
		(void)update_bpf_map(r->options.locks_fd, &key, &lock);
	return e == 1;
}

static void wait_for_more(struct runtimes *r, const struct procman_process *p, struct attached *a)
{
	a->n_tries = MIN(a->n_tries + 1, (u32)EARLY_TRIES);
	wait_rounds(r, p, a->binary->runtime, a->n_tries < EARLY_TRIES ? 1 : LATE_ROUNDS);
}

static void attach_try(struct runtimes *r, const struct procman_process *p,
		       const struct procman_mapping *m, struct attached *a)
{
	u32 runtime = a->binary->runtime;
	const struct runtime_ops *ops = runtime_table[runtime].ops;
	struct runtime_target t = {
		.memory.pid = p->pid,
		.process = p,
		.elf = m->binary->elf,
		.bias = m->bias,
	};
	struct runtime_process info = {
		.image = p->image,
		.bias = m->bias,
		.binary = a->binary->slot,
	};
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	int e = ops->attach(&t, a->binary->learned, &info);

	if (e < 0 && a->done)
		return;
	if (has_anonymous_jit(runtime) && !info.reserved[0].end)
		find_reserved(p->pid, &info);
	a->mappings_id = p->mappings_id;
	a->process = info;
	a->error = e;
	if (e == -EAGAIN) {
		wait_for_more(r, p, a);
		return;
	}
	wait_no_more(r, p->image, runtime);
	if (e < 0) {
		r->stats.attach_failed[runtime]++;
		log_debug("pid %u: %s not attached: %s", p->pid, runtime_table[runtime].name,
			  strerror(-e));
		return;
	}
	a->done = true;
	a->again = attach_locks(r, &t, a) || e > 0;
	write_entry(r, p, a);
	if (a->again && a->in_map)
		wait_for_more(r, p, a);
	log_debug("pid %u: %s attached in %.2f ms", p->pid, runtime_table[runtime].name,
		  (double)(clock_ns(CLOCK_MONOTONIC) - begin) / 1e6);
}

struct attached *runtimes_attached(const struct runtimes *r, u64 image, u32 runtime)
{
	u64 *v = map_get(&r->attached, key_of(image, runtime));

	return v ? (struct attached *)*v : NULL;
}

static void end_walks(struct runtimes *r, struct attached *a, u32 runtime)
{
	struct runtime_key key = {a->pid, runtime};

	if (a->in_map)
		bpf_map_delete_elem(r->options.processes_fd, &key);
	if (a->in_map && r->options.locks_fd >= 0)
		bpf_map_delete_elem(r->options.locks_fd, &key);
	a->in_map = false;
}

static void detach(struct runtimes *r, u64 image, u32 runtime)
{
	u64 v;

	wait_no_more(r, image, runtime);
	if (!map_del(&r->attached, key_of(image, runtime), &v))
		return;
	end_walks(r, (struct attached *)v, runtime);
	runtimes_drop_tasks((struct attached *)v, runtime);
	free((struct attached *)v);
}

static void attach_process(struct runtimes *r, const struct procman_process *p,
			   const struct procman_mapping *m, const struct known_binary *k)
{
	struct attached *a = runtimes_attached(r, p->image, k->runtime);

	if (a && a->file_id != m->binary->file_id) {
		detach(r, p->image, k->runtime);
		a = NULL;
	}
	if (a && a->done && !a->in_map)
		write_entry(r, p, a);
	/* When mappings change, the memory that a JIT has reserved is determined again. */
	if (a && a->done && !a->again &&
	    (!has_anonymous_jit(k->runtime) || a->mappings_id == p->mappings_id))
		return;
	if (!a) {
		a = calloc(1, sizeof(*a));
		if (!a || map_put(&r->attached, key_of(p->image, k->runtime), (u64)a) < 0) {
			free(a);
			return;
		}
		a->image = p->image;
		a->pid = p->pid;
		a->binary = k;
		a->file_id = m->binary->file_id;
	}
	attach_try(r, p, m, a);
}

void runtimes_follow(struct runtimes *r, const struct procman_process *p)
{
	u32 seen = 0; /* one bit per runtime: the first mapping of each is its text */

	for (u32 i = 0; RUNTIME_N > 1 && i < p->n; i++) {
		const struct known_binary *k;

		if (!is_segment(&p->mappings[i]))
			continue;
		k = runtimes_binary(r, p->mappings[i].binary);
		if (!k || !k->claimed || seen & 1u << k->claimed)
			continue;
		seen |= 1u << k->claimed;
		if (k->runtime)
			attach_process(r, p, &p->mappings[i], k);
		else if (k->learning)
			wait_rounds(r, p, k->claimed, 1);
		else
			wait_no_more(r, p->image, k->claimed);
	}
}

/* Returns the first mapping whose binary is of a native runtime; NULL: none. */
static const struct procman_mapping *find_native(struct runtimes *r,
						 const struct procman_process *p,
						 const struct native_runtime_ops **ret_ops)
{
	for (u32 i = 0; i < p->n; i++) {
		const struct known_binary *k = p->mappings[i].binary->elf
						       ? runtimes_binary(r, p->mappings[i].binary)
						       : NULL;

		if (!k || !k->native)
			continue;
		*ret_ops = k->native;
		return &p->mappings[i];
	}
	return NULL;
}

u32 runtimes_claimed(const struct runtimes *r)
{
	u32 bits = 0;

	map_foreach (&r->binaries, slot)
		bits |= 1u << marked_runtime((const struct known_binary *)slot->value);
	return bits;
}

bool runtimes_in_process(struct runtimes *r, const struct procman_process *p)
{
	const struct native_runtime_ops *native;

	for (u32 i = 1; i < RUNTIME_N; i++)
		if (!runtime_table[i].ops->library && (runtimes_attached(r, p->image, i) ||
						       map_get(&r->waiting, key_of(p->image, i))))
			return true;
	return find_native(r, p, &native);
}

int runtimes_flag(struct runtimes *r, const struct procman_process *p, const char *name,
		  u64 *ret_avma)
{
	for (u32 i = 0; i < p->n; i++) {
		const struct procman_mapping *m = &p->mappings[i];
		const struct known_binary *k = is_segment(m) ? runtimes_binary(r, m->binary) : NULL;
		const struct runtime_ops *ops = k ? runtime_table[k->claimed].ops : NULL;
		const struct runtime_target t = {
			.memory.pid = p->pid, .process = p, .elf = m->binary->elf, .bias = m->bias};

		if (!ops || !ops->flag)
			continue;
		if (k->learning)
			return -EAGAIN;
		return k->runtime ? ops->flag(&t, k->learned, name, ret_avma) : -ENOTSUP;
	}
	return -ESRCH;
}

static void identify_native(struct runtimes *r, const struct procman_process *p,
			    struct runtime_identity *ret)
{
	const struct native_runtime_ops *ops;
	const struct procman_mapping *m = find_native(r, p, &ops);

	if (!m)
		return;
	ret->name = ops->otel_name;
	(void)ops->otel_version(m->binary->elf, ret->version, sizeof(ret->version));
}

bool runtimes_identify(struct runtimes *r, const struct procman_process *p,
		       struct runtime_identity *ret)
{
	*ret = (struct runtime_identity){};
	for (u32 i = 0; i < p->n && !ret->name; i++) {
		const struct known_binary *k = p->mappings[i].binary->elf
						       ? runtimes_binary(r, p->mappings[i].binary)
						       : NULL;
		const struct runtime_ops *ops =
			k && k->claimed ? runtime_table[k->claimed].ops : NULL;

		if (!ops || ops->library)
			continue;
		ret->name = ops->otel_name;
		if (k->runtime && ops->otel_version)
			ops->otel_version(k->learned, ret->version, sizeof(ret->version));
	}
	if (!ret->name)
		identify_native(r, p, ret);
	return ret->name;
}

void runtimes_retry(struct runtimes *r, struct procman *pm)
{
	vec(struct map_slot) due = {};

	map_foreach (&r->waiting, slot) {
		if ((u32)slot->value > 1)
			slot->value--;
		else
			(void)vec_push(&due, *slot);
	}
	vec_foreach (&due, slot) {
		const struct procman_process *p = procman_find(pm, (u32)(slot->value >> 32));

		if (p && p->alive && p->image == slot->key >> 4)
			runtimes_follow(r, p);
		else
			wait_no_more(r, slot->key >> 4, slot->key & 15);
	}
	vec_deinit(&due);
}

static void process_changed(void *arg, const struct procman_process *p)
{
	if (procman_can_be_sampled(p))
		runtimes_follow(arg, p);
}

static void detach_all(struct runtimes *r, u64 image)
{
	for (u32 i = 1; i < RUNTIME_N; i++)
		detach(r, image, i);
}

static void process_exec(void *arg, const struct procman_process *p, u64 before)
{
	(void)p;
	detach_all(arg, before);
}

static void process_ended(void *arg, const struct procman_process *p)
{
	for (u32 i = 1; i < RUNTIME_N; i++) {
		struct attached *a = runtimes_attached(arg, p->image, i);

		if (a)
			end_walks(arg, a, i);
	}
}

static void process_gone(void *arg, const struct procman_process *p)
{
	detach_all(arg, p->image);
}

static void binary_gone(void *arg, struct procman_binary *b)
{
	struct runtimes *r = arg;
	u64 v;

	if (!map_get(&r->binaries, b->file_id))
		return;
	/* Attachments of processes that mapped the binary are stale. */
	map_foreach (&r->attached, slot) {
		struct attached *a = (struct attached *)slot->value;

		if (a->file_id == b->file_id)
			detach(r, a->image, (u32)slot->key & 15);
	}
	if (!map_del(&r->binaries, b->file_id, &v))
		return;
	known_binary_drop(r, (struct known_binary *)v);
}

const struct procman_listener runtimes_listener = {
	.process_changed = process_changed,
	.process_exec = process_exec,
	.process_ended = process_ended,
	.process_gone = process_gone,
	.binary_gone = binary_gone,
};

void runtimes_trim(struct runtimes *r)
{
	map_foreach (&r->binaries, slot) {
		const struct known_binary *k = (const struct known_binary *)slot->value;

		if (k->runtime && runtime_table[k->runtime].ops->trim)
			runtime_table[k->runtime].ops->trim(k->learned);
	}
}

bool runtimes_cover(struct runtimes *r, const struct procman_process *p, u32 runtime, u64 avma)
{
	const struct attached *a = runtimes_attached(r, p->image, runtime);

	return a && a->done && runtime < RUNTIME_N &&
	       runtime_table[runtime].ops->covers(a->binary->learned, &a->process, avma);
}

void runtimes_get_stats(const struct runtimes *r, struct runtimes_stats *ret)
{
	*ret = r->stats;
	ret->attached = 0;
	map_foreach (&r->attached, slot)
		ret->attached += ((const struct attached *)slot->value)->in_map;
}

#define COUNTER(member, help) STAT_COUNTER(struct runtimes_stats, member, help)
const struct stat_field runtimes_stat_fields[] = {
	STAT_GAUGE(struct runtimes_stats, attached, "Runtimes in processes that are walked."),
	COUNTER(no_room, "Times that a process with a runtime had no room in BPF's map."),
	COUNTER(unnamed, "Frames of runtimes without a name for lack of memory."),
#define RUNTIME(id, name, ...)                                                                     \
	{#name "_learn_failed", "Binaries of " #name " that are not understood.",                  \
	 offsetof(struct runtimes_stats, learn_failed[RUNTIME_##id]), false},                      \
		{#name "_attach_failed", "Processes in which " #name "'s state was not found.",    \
		 offsetof(struct runtimes_stats, attach_failed[RUNTIME_##id]), false},             \
		{#name "_stale", "Frames of " #name " that had changed before they were named.",   \
		 offsetof(struct runtimes_stats, stale[RUNTIME_##id]), false},
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	{},
};
#undef COUNTER

/* ---- life ---- */

int runtimes_create(const struct runtimes_options *o, struct runtimes **ret)
{
	struct runtimes *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	r->options = *o;
	r->answers.arena = (struct arena)ARENA_INIT(runtimes_names_limit(r));
	e = learner_create(o->budget, &r->learner);
	if (e < 0) {
		runtimes_destroy(r);
		return e;
	}
	*ret = r;
	return 0;
}

int runtimes_fd(const struct runtimes *r)
{
	return learner_fd(r->learner);
}

bool runtimes_busy(const struct runtimes *r)
{
	return learner_busy(r->learner);
}

void runtimes_destroy(struct runtimes *r)
{
	if (!r)
		return;
	learner_destroy(r->learner);
	map_foreach (&r->gone, slot)
		free((struct known_binary *)slot->value);
	map_deinit(&r->gone);
	map_foreach (&r->attached, slot) {
		runtimes_drop_tasks((struct attached *)slot->value, slot->key & 15);
		free((struct attached *)slot->value);
	}
	map_foreach (&r->binaries, slot)
		known_binary_free(r, (struct known_binary *)slot->value);
	map_deinit(&r->attached);
	map_deinit(&r->waiting);
	map_deinit(&r->binaries);
	runtime_answers_deinit(&r->answers);
	free(r);
}
