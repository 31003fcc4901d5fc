/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "agent/procman/internal.h"

/* Executable mappings that each process may have, however many others have. */
#define LEAST_MAPPINGS 1024

/*
 * If start_ticks and the time of the fork event differ by more, the pid belongs to another process.
 */
#define START_SLACK_NS 50000000ULL
/* procman_refresh() runs at most this often, and takes at most a hundredth of the time. */
#define REFRESH_MIN_NS 100000000ULL
#define REFRESH_COST_FACTOR 100

struct process *process_create(struct procman *pm, u32 pid)
{
	struct process *p = calloc(1, sizeof(*p));

	if (!p) {
		pm->stats.out_of_memory++;
		return NULL;
	}
	p->pub.pid = pid;
	p->pub.image = pm->next_image++;
	p->pub.alive = true;
	pm->stats.processes++;
	return p;
}

static void show_set(struct process *p)
{
	p->pub.mappings = p->set ? p->set->m.data : NULL;
	p->pub.n = p->set ? (u32)p->set->m.n : 0;
	p->pub.mappings_id = p->set ? p->set->id : 0;
}

/* Takes ownership of the reference to the set. */
static void set_replace(struct procman *pm, struct process *p, struct mapping_set *set)
{
	if (set && set == p->set) {
		mapping_set_put(set);
		return;
	}
	if (p->set && p->set->refs == 1)
		pm->stats.mappings -= p->set->m.n;
	mapping_set_put(p->set);
	if (set && set->refs == 1)
		pm->stats.mappings += set->m.n;
	p->set = set;
	show_set(p);
}

static void drop_image(struct procman *pm, struct process *p)
{
	overlay_clear(&p->changes);
	set_replace(pm, p, NULL);
	if (p->anon)
		procman_binary_put(p->anon);
	p->anon = NULL;
	p->borrowed_anon = false;
}

void process_destroy(struct procman *pm, struct process *p)
{
	drop_image(pm, p);
	overlay_deinit(&p->changes);
	pm->stats.processes--;
	free(p);
}

void process_touch(struct procman *pm, struct process *p)
{
	if (p->dirty)
		return;
	if (vec_push(&pm->dirty, p) < 0) {
		pm->stats.out_of_memory++;
		return;
	}
	p->dirty = true;
}

void process_set_comm(struct procman *pm, struct process *p, const char *comm)
{
	char text[sizeof(p->pub.comm)] = "";

	memcpy(text, comm, strnlen(comm, sizeof(text) - 1));
	if (!memcmp(text, p->pub.comm, sizeof(text)))
		return;
	memcpy(p->pub.comm, text, sizeof(text));
	process_touch(pm, p);
}

/* How many a process may have: what others leave of those of all, but some in any case. */
static u32 max_mappings(const struct procman *pm, const struct process *p)
{
	u64 others = pm->stats.mappings - (p->set ? p->set->m.n : 0);
	u64 all = pm->options.max_all_mappings;
	u64 left = all > others ? all - others : 0;

	if (!all)
		return pm->options.max_mappings;
	left = MAX(left, (u64)LEAST_MAPPINGS);
	return (u32)MIN(left, (u64)pm->options.max_mappings);
}

/* Applies the changes of this batch to the set. */
static void process_flush(struct procman *pm, struct process *p)
{
	struct mapping_set *set;
	u64 n = p->set ? p->set->m.n : 0;

	if (!p->changes.n)
		return;
	if (p->set &&
	    mapping_set_change(p->set, &p->changes, pm->next_set_id++, max_mappings(pm, p))) {
		pm->stats.mappings += p->set->m.n - n;
		show_set(p);
	} else if (mapping_set_apply(p->set, &p->changes, pm->next_set_id++, max_mappings(pm, p),
				     &set, &pm->stats.mappings_dropped) == 0) {
		set_replace(pm, p, set);
	} else {
		/* Retry at the end of the next batch. */
		pm->stats.out_of_memory++;
		return;
	}
	overlay_clear(&p->changes);
}

void process_inherit(struct procman *pm, struct process *p, struct process *parent)
{
	process_flush(pm, parent);
	set_replace(pm, p, mapping_set_get(parent->set));
	memcpy(p->pub.comm, parent->pub.comm, sizeof(p->pub.comm));
	p->pub.kthread = parent->pub.kthread;
	p->pub.start_stack = parent->pub.start_stack;
	p->pub.exec_id = parent->pub.exec_id;
	p->borrowed_anon = parent->anon || parent->borrowed_anon;
}

/* After an exec start_stack must be read again. A forked child has its parent's. */
static void expect_start_stack(struct procman *pm, struct process *p)
{
	if (!p->young && vec_push(&pm->young, p) == 0)
		p->young = true;
	p->n_looks = pm->options.execs_told ? ARRAY_SIZE(exec_looks_ns) - 1 : 0;
	p->young_due_ns = p->pub.image_ns + exec_looks_ns[p->n_looks];
}

/* Starts a new image, of which nothing is known yet. */
static void begin_image(struct procman *pm, struct process *p, u64 time_ns)
{
	u64 before = p->pub.image;

	drop_image(pm, p);
	p->pub.seen_image = 0;
	p->pub.image = pm->next_image++;
	p->pub.image_ns = time_ns;
	p->pub.start_stack = p->pub.exec_id = 0;
	tell_exec(pm, p, before);
}

void process_exec(struct procman *pm, struct process *p, const struct sideband *r)
{
	u64 seen = p->pub.seen_image;

	begin_image(pm, p, r->time_ns);
	p->pub.seen_image = seen;
	process_set_comm(pm, p, r->name);
	p->pub.kthread = false;
	p->wants_maps = false;
	p->threads = p->leader_exited = false;
	expect_start_stack(pm, p);
	process_touch(pm, p);
}

static int process_anon(struct procman *pm, struct process *p)
{
	return p->anon ? 0 : binaries_add_anon(&pm->binaries, p->pub.pid, &p->anon);
}

/*
 * Converts a mapping of /proc or an event, with a reference to its binary. `tid` is a living
 * thread. -ENOENT: the mapping is ignored.
 */
static int mapping_of(struct procman *pm, struct process *p, u32 tid, const struct proc_mapping *m,
		      u64 generation, struct procman_mapping *ret)
{
	struct procman_mapping mapping = {.start = m->start, .end = m->end, .foff = m->offset};
	int r;

	if (binary_is_anon(m)) {
		r = process_anon(pm, p);
		if (r < 0)
			return r;
		mapping.binary = procman_binary_get(p->anon);
		/* The kernel shows offset 0 in maps and another one in events. */
		mapping.foff = m->start;
	} else {
		r = binaries_find(&pm->binaries, tid, m, generation, &mapping.binary);
		if (r < 0)
			return r;
		mapping.bias = binary_bias(mapping.binary, m->start, m->offset);
	}
	*ret = mapping;
	return 0;
}

/*
 * Removes the kernel's " (deleted)" from a path; `text` has room for the longest path of an event.
 */
static bool cut_deleted(const char *name, char *text, size_t cap)
{
	static const char gone[] = " (deleted)";
	size_t n = strnlen(name, cap - 1);
	bool deleted;

	memcpy(text, name, n);
	text[n] = '\0';
	deleted = n > sizeof(gone) - 1 && str_ends(text, gone);
	if (deleted)
		text[n - (sizeof(gone) - 1)] = '\0';
	return deleted;
}

void process_map(struct procman *pm, struct process *p, const struct sideband *r)
{
	char path[4352];
	struct proc_mapping m = {
		.start = r->start,
		.end = r->end,
		.offset = r->foff,
		.prot = r->prot,
		.dev_major = r->dev_major,
		.dev_minor = r->dev_minor,
		.inode = r->inode,
		.path = path,
	};
	struct procman_mapping mapping;
	int e;

	if (!(r->prot & PROT_EXEC))
		return;
	m.deleted = cut_deleted(r->name, path, sizeof(path));
	e = mapping_of(pm, p, p->leader_exited ? r->tid : r->pid, &m, r->inode_generation,
		       &mapping);
	if (e == 0)
		e = overlay_add(&p->changes, mapping);
	if (e == -ENOMEM)
		pm->stats.out_of_memory++;
	if (p->changes.n >= OVERLAY_MAX)
		process_flush(pm, p);
	process_touch(pm, p);
}

/* ---- reading /proc ---- */

static bool leader_is_dead(const struct proc_stat *st)
{
	return st->state == 'Z' || st->state == 'X';
}

static bool is_dead(const struct proc_stat *st)
{
	/* The leader of a running process is a zombie if it has exited before other threads. */
	return leader_is_dead(st) && st->n_threads <= 1;
}

static u64 ticks_to_monotonic_ns(u64 ticks)
{
	u64 mono = now_ns(), since_boot = clock_ns(CLOCK_BOOTTIME);
	u64 at = ticks * (1000000000ULL / proc_ticks_per_s());

	/* No process started before the monotonic clock. */
	return at + mono > since_boot ? at + mono - since_boot : 0;
}

/* Whether /proc describes this process. Sets its start time if that was unknown. */
static bool is_same(struct process *p, const struct proc_stat *st)
{
	u64 start_ns = ticks_to_monotonic_ns(st->start_ticks);

	if (p->pub.start_ticks)
		return p->pub.start_ticks == st->start_ticks;
	/* Known from an event after the fork: it cannot have started later than that. */
	if (p->wants_maps ? start_ns > p->pub.start_ns + START_SLACK_NS
			  : p->pub.start_ns && (start_ns > p->pub.start_ns + START_SLACK_NS ||
						start_ns + START_SLACK_NS < p->pub.start_ns))
		return false;
	p->pub.start_ticks = st->start_ticks;
	if (!p->pub.start_ns || p->wants_maps)
		p->pub.start_ns = start_ns;
	if (!p->pub.image_ns)
		p->pub.image_ns = start_ns;
	return true;
}

static int stat_of_living(struct process *p, struct proc_stat *ret)
{
	int r = proc_stat_read(p->pub.pid, ret);

	if (r < 0)
		return r;
	return is_dead(ret) || !is_same(p, ret) ? -ESRCH : 0;
}

struct reading {
	struct procman *pm;
	struct process *p;
	u32 tid;
	overlay fresh;
};

static int read_mapping(void *arg, const struct proc_mapping *m)
{
	struct reading *rd = arg;
	struct procman_mapping mapping;
	int r;

	if (rd->fresh.n >= max_mappings(rd->pm, rd->p)) {
		rd->pm->stats.mappings_dropped++;
		return 0;
	}
	r = mapping_of(rd->pm, rd->p, rd->tid, m, 0, &mapping);
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = overlay_add(&rd->fresh, mapping);
	return r;
}

static int read_maps(struct procman *pm, struct process *p, bool leader_lives)
{
	struct reading rd = {.pm = pm, .p = p, .tid = p->pub.pid};
	struct mapping_set *set = NULL;
	int r = leader_lives ? 0 : proc_living_thread(p->pub.pid, &rd.tid);

	if (r == 0)
		r = proc_maps_read(rd.tid, 0, read_mapping, &rd);
	if (r == 0)
		r = mapping_set_apply(NULL, &rd.fresh, pm->next_set_id++, max_mappings(pm, p), &set,
				      &pm->stats.mappings_dropped);
	overlay_deinit(&rd.fresh);
	if (r < 0)
		return r;
	overlay_clear(&p->changes);
	p->borrowed_anon = false;
	if (mapping_set_same(p->set, set)) {
		mapping_set_put(set);
		return 0;
	}
	set_replace(pm, p, set);
	process_touch(pm, p);
	return 0;
}

/* Whether an exec was missed. During an exec start_stack changes more than once. */
static bool is_other_image(const struct process *p, const struct proc_stat *st)
{
	return p->pub.start_stack && st->start_stack && p->pub.start_stack != st->start_stack &&
	       !p->young;
}

int process_read(struct procman *pm, struct process *p)
{
	u64 read_ns = now_ns();
	struct proc_stat st;
	int r = stat_of_living(p, &st);

	if (r < 0)
		return r;
	if (is_other_image(p, &st))
		begin_image(pm, p, read_ns);
	if (!st.kthread)
		r = read_maps(pm, p, !leader_is_dead(&st));
	if (r == -ENOMEM)
		pm->stats.out_of_memory++;
	if (r == -ESRCH || r == -ENOMEM)
		return r;
	/* A process with unreadable mappings is still known by its name. */
	if (r < 0)
		pm->stats.read_failed++;
	p->read_ns = read_ns;
	p->wants_maps = false;
	p->pub.ppid = p->pub.ppid ? p->pub.ppid : st.ppid;
	p->pub.kthread = st.kthread;
	p->threads |= st.n_threads > 1;
	process_set_comm(pm, p, st.comm);
	if (p->pub.start_stack != st.start_stack && st.start_stack) {
		p->pub.start_stack = st.start_stack;
		process_touch(pm, p);
	}
	return 0;
}

/* Reads start_stack and start_ticks of a living process. True: start_stack has changed. */
static bool read_start_stack(struct process *p)
{
	struct proc_stat st;

	if (!p->pub.alive || stat_of_living(p, &st) < 0 || st.start_stack == p->pub.start_stack)
		return false;
	p->pub.start_stack = st.start_stack;
	return true;
}

void process_grown(struct procman *pm, struct process *p)
{
	if (p->pub.exec_id || !read_start_stack(p))
		return;
	p->announce_due_ns = 0;
	process_touch(pm, p);
}

/* The child's private code, until now the parent's, becomes its own, because it may change. */
static void take_over_anon(struct procman *pm, struct process *p)
{
	struct mapping_set *set;

	if (process_anon(pm, p) < 0 ||
	    mapping_set_replace_anon(p->set, p->anon, pm->next_set_id++, &set) < 0) {
		pm->stats.out_of_memory++;
		return;
	}
	set_replace(pm, p, set);
	p->borrowed_anon = false;
}

/* Whether all threads have exited, and not only the main thread. */
static bool has_ended(const struct process *p)
{
	struct proc_stat st;

	if (p->pub.alive)
		return false;
	return p->pub.ended || !p->threads || p->replaced || proc_stat_read(p->pub.pid, &st) < 0 ||
	       is_dead(&st) || (p->pub.start_ticks && p->pub.start_ticks != st.start_ticks);
}

void process_settle(struct procman *pm, struct process *p)
{
	if (p->wants_maps && p->pub.alive)
		process_read(pm, p);
	process_flush(pm, p);
	if (p->borrowed_anon && p->pub.alive && p->set)
		take_over_anon(pm, p);
	p->pub.ended = has_ended(p);
}

int procman_refresh(struct procman *pm, struct procman_process *pub)
{
	struct process *p = process_of(pub);
	u64 now = now_ns(), cpu_ns, id = pub->mappings_id;
	int r;

	if (!pub->alive || p->replaced)
		return -ESRCH;
	if (now < p->refresh_due_ns || pub->kthread)
		return 0;
	pm->stats.refreshes++;
	cpu_ns = cpu_now_ns();
	r = process_read(pm, p);
	p->refresh_due_ns =
		now + MAX(REFRESH_MIN_NS, (cpu_now_ns() - cpu_ns) * REFRESH_COST_FACTOR);
	if (r < 0)
		return r;
	if (p->dirty)
		procman_due_now(pm);
	return pub->mappings_id != id;
}

static void learn_image(struct procman *pm, struct process *p, u64 start_stack, u64 exec_id)
{
	p->pub.start_stack = start_stack;
	p->pub.exec_id = exec_id;
	p->announce_due_ns = 0;
	process_touch(pm, p);
	procman_due_now(pm);
}

void procman_see(struct procman *pm, const struct procman_process *pub)
{
	struct procman_process *known = procman_known(pm, pub->pid);

	if (known && known->image == pub->image)
		known->seen_image = pub->image;
}

void procman_learn_image(struct procman *pm, struct procman_process *pub, u64 start_stack)
{
	struct process *p = process_of(pub);

	if (!pub->alive || p->replaced || pub->start_stack == start_stack)
		return;
	learn_image(pm, p, start_stack, pub->exec_id);
}

void procman_learn_exec(struct procman *pm, u32 pid, u64 time_ns, u64 start_stack, u64 exec_id)
{
	struct procman_process *pub = procman_known(pm, pid);
	struct process *p = pub ? process_of(pub) : NULL;

	/* It may have called exec once more, or have been read since. */
	if (!p || !pub->alive || pub->image_ns > time_ns || p->read_ns > time_ns)
		return;
	/* The known values are those of the previous program. */
	if (pub->exec_id || (pub->start_stack && !p->young)) {
		begin_image(pm, p, time_ns);
		p->wants_maps = true;
	}
	learn_image(pm, p, start_stack, exec_id);
}

const struct procman_mapping *procman_process_find(const struct procman_process *p, u64 avma)
{
	return mapping_find(p->mappings, p->n, avma);
}

void procman_announce(struct procman *pm, struct procman_process *pub)
{
	process_touch(pm, process_of(pub));
	procman_due_now(pm);
}
