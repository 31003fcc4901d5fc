/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Java's virtual threads that wait. While no carrier runs one, its frames are in StackChunks:
 *
 *	VirtualThread: state, tid, cont → Continuation: tail → StackChunk: frames, parent → …
 *
 * They are found as `jcmd Thread.dump_to_file` finds them, in sets of the JDK:
 *
 *	TrackingRootContainer.VTHREADS				those started by themselves
 *	ThreadContainers.CONTAINER_REGISTRY → executor → set	those of executors
 *	a set: KeySetView: map → ConcurrentHashMap: table → Node: key, next → Node
 *
 * A set's bins are drawn, and all threads of a drawn bin are looked at. A thread's bin follows from
 * its identity hash, which is random, so that each window of the bins has a fair share.
 *
 * Nothing moves an object but a collector that has stopped all threads: it counts its collections,
 * and the count is the same before and after all reads of a thread. The thread's state and its
 * innermost chunk are compared, too: if they have changed, it did not wait all the time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/hotspot/chunk.h"
#include "agent/runtime/hotspot/objects.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/vec.h"

#define MAX_SETS 4096
#define MAX_REGISTRY (1u << 16) /* bins */
#define WINDOW (1u << 16)	/* bins that a look draws from */
#define MAX_CHAIN 64
#define MAX_CHUNKS 64
#define MAX_CHUNK_WORDS (1u << 27)
#define MAX_WAITS (JF_SUSPENDED - JF_PARKED)
#define CLOCK_EACH 8
#define DOCTOR_NS 2000000000ULL

struct set {
	u64 first; /* avma of the table's first element */
	u32 bins;
};

struct virtual_state {
	struct hotspot_objects objects;
	bool begun, known;
	int refused;	 /* the error of all looks; 0: none */
	u32 chunk_bytes; /* of a StackChunk's fields; the frames follow */
	u32 n_waits, waits[MAX_WAITS], suspended;
	/* Of a look that has ended early: the draws that are left, and its results. */
	u32 left, n_tasks, n_drawn;
	struct hotspot_walker walker;
	vec(struct set) sets;
	vec(u64) bins; /* avma of the first node of those in the window that are not empty */
};

struct look {
	const struct hotspot_vm *vm;
	const struct runtime_target *t;
	struct virtual_state *v;
	struct runtime_scan *s;
	u32 gc; /* the count of collections */
};

static void drop(void *state)
{
	struct virtual_state *v = state;

	if (!v)
		return;
	vec_deinit(&v->sets);
	vec_deinit(&v->bins);
	free(v);
}

/* ---- what a JVM is like ---- */

static bool has_classes(const struct hotspot_objects *o)
{
	static const enum java_class needed[] = {JC_VIRTUAL,	JC_THREAD, JC_CONTINUATION,
						 JC_CHUNK,	JC_VIEW,   JC_MAP,
						 JC_CONTAINERS, JC_NODE,   JC_REFERENCE};

	for (u32 i = 0; i < ARRAY_SIZE(needed); i++)
		if (!o->classes[needed[i]])
			return false;
	return true;
}

static int read_int(const struct look *l, enum java_field field, u32 *ret)
{
	u64 at;
	int r = java_static(&l->v->objects, l->t, JC_VIRTUAL, field, &at);

	return r < 0 ? r : runtime_read(&l->t->memory, at, ret, sizeof(*ret));
}

/* The numbers of states are VirtualThread's constants. */
static int learn_states(const struct look *l)
{
	struct virtual_state *v = l->v;
	int r = read_int(l, JF_SUSPENDED, &v->suspended);

	if (r < 0)
		return r;
	v->n_waits = 0;
	for (enum java_field f = JF_PARKED; f <= JF_TIMED_WAIT; f++) {
		u32 state = 0;

		if (v->objects.fields[f] == HOTSPOT_NONE)
			continue;
		r = read_int(l, f, &state);
		if (r < 0)
			return r;
		if (!state)
			return -EAGAIN;
		v->waits[v->n_waits++] = state;
	}
	return java_size(&v->objects, l->t, JC_CHUNK, &v->chunk_bytes);
}

/* 0: threads can be read; 1: there are none yet; -EAGAIN, -ENOTSUP or an error of reading. */
static int prepare(const struct look *l)
{
	struct virtual_state *v = l->v;
	const char *why;
	int r;

	if (!v->begun) {
		r = hotspot_objects_init(l->vm, l->t, &v->objects, &why);
		if (r < 0)
			return r;
		v->begun = true;
	}
	r = hotspot_objects_follow(l->vm, l->t, &v->objects, l->s->until_ns);
	if (r < 0)
		return r;
	if (!has_classes(&v->objects))
		return 1;
	if (!v->known) {
		r = learn_states(l);
		v->known = r == 0;
	}
	return r;
}

/* ---- sets ---- */

/* Passes the table of a set to add_set(); 0 also if the set has none yet. */
static int find_table(const struct look *l, u64 field, struct set *ret)
{
	const struct hotspot_objects *o = &l->v->objects;
	u8 map[JAVA_OBJECT_BYTES];
	u64 view, at, table;
	int r = java_read_reference(o, l->t, field, &view);

	*ret = (struct set){};
	if (r < 0 || !view)
		return r;
	r = java_read_reference(o, l->t, view + o->fields[JF_VIEWED], &at);
	if (r == 0)
		r = java_read_object(o, l->t, at, JC_MAP, map, o->fields[JF_TABLE] + 8);
	if (r < 0)
		return r;
	table = java_reference(o, map + o->fields[JF_TABLE]);
	return table ? java_read_array(o, l->t, table, &ret->first, &ret->bins) : 0;
}

static int add_set(const struct look *l, u64 field)
{
	struct set set;
	int r = find_table(l, field, &set);

	if (r < 0 || !set.bins)
		return r;
	return l->v->sets.n < MAX_SETS ? vec_push(&l->v->sets, set) : -E2BIG;
}

struct node {
	u64 key, next;
};

static int read_node(const struct look *l, u64 at, struct node *ret)
{
	const struct hotspot_objects *o = &l->v->objects;
	u32 n = MAX(o->fields[JF_KEY], o->fields[JF_NEXT]) + 8;
	u8 node[JAVA_OBJECT_BYTES];
	int r = java_read_object(o, l->t, at, JC_NODE, node, MAX(n, 16u));

	if (r < 0)
		return r;
	ret->key = java_reference(o, node + o->fields[JF_KEY]);
	ret->next = java_reference(o, node + o->fields[JF_NEXT]);
	return 0;
}

/* `weak` refers to a container of threads. */
static int add_container(const struct look *l, u64 weak)
{
	const struct hotspot_objects *o = &l->v->objects;
	u8 header[16];
	u64 at, class;
	int r = java_read_reference(o, l->t, weak + o->fields[JF_REFERENT], &at);

	if (r < 0 || !at)
		return r;
	r = runtime_read(&l->t->memory, at, header, sizeof(header));
	if (r < 0)
		return r;
	class = java_class_of(o, header);
	if (class == o->classes[JC_PER_TASK])
		return add_set(l, at + o->fields[JF_PER_TASK]);
	if (class == o->classes[JC_SHARED])
		return add_set(l, at + o->fields[JF_SHARED]);
	return 0;
}

static void add_containers(const struct look *l, u64 node)
{
	for (u32 i = 0; node && i < MAX_CHAIN; i++) {
		struct node n;
		int r = read_node(l, node, &n);

		if (r == 0)
			r = add_container(l, n.key);
		l->s->n_unread += r < 0;
		if (r < 0)
			break;
		node = n.next;
	}
}

/* Adds the bins [first, first + n) of a table to v->bins. */
static int take_bins(const struct look *l, const struct set *set, u32 first, u32 n)
{
	struct virtual_state *v = l->v;
	u32 bytes = java_reference_bytes(&v->objects), most = RUNTIME_TASK_BYTES / bytes;

	for (u32 part; n; first += part, n -= part) {
		int r;

		part = MIN(n, most);
		r = runtime_read(&l->t->memory, set->first + (u64)first * bytes, l->s->stack,
				 (size_t)part * bytes);
		for (u32 i = 0; r == 0 && i < part; i++) {
			u64 node = java_reference(&v->objects, l->s->stack + (size_t)i * bytes);

			if (node)
				r = vec_push(&v->bins, node);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int find_sets(const struct look *l)
{
	const struct hotspot_objects *o = &l->v->objects;
	struct virtual_state *v = l->v;
	struct set registry;
	u64 field;
	int r = java_static(o, l->t, JC_CONTAINERS, JF_REGISTRY, &field);

	vec_clear(&v->sets);
	vec_clear(&v->bins);
	if (r == 0)
		r = find_table(l, field, &registry);
	if (r == 0)
		r = take_bins(l, &registry, 0, MIN(registry.bins, MAX_REGISTRY));
	for (size_t i = 0; r == 0 && i < v->bins.n; i++) {
		if (i % CLOCK_EACH == 0 && clock_ns(CLOCK_MONOTONIC) > l->s->until_ns)
			return -ETIME;
		add_containers(l, v->bins.data[i]);
	}
	if (r == 0 && java_static(o, l->t, JC_TRACKING, JF_TRACKED, &field) == 0)
		r = add_set(l, field);
	vec_clear(&v->bins);
	return r;
}

/*
 * Takes the bins of a window of all tables, laid end to end, that begins anywhere. Sets how many
 * bins there would be without the window, and how many of them are drawn.
 */
static int draw_bins(const struct look *l)
{
	struct virtual_state *v = l->v;
	u64 all = 0, window, begin, at = 0;
	int r = 0;

	for (size_t i = 0; i < v->sets.n; i++)
		all += v->sets.data[i].bins;
	if (!all)
		return 0;
	window = MIN(all, (u64)WINDOW);
	begin = runtime_random(l->s->random) % all;
	for (size_t i = 0; r == 0 && i < v->sets.n; i++) {
		const struct set *set = &v->sets.data[i];

		/* The window may go on at the begin of the first table. */
		for (u64 turn = 0; r == 0 && turn < 2; turn++) {
			u64 low = MAX(at + turn * all, begin);
			u64 high = MIN(at + turn * all + set->bins, begin + window);

			if (low < high)
				r = take_bins(l, set, (u32)(low - at - turn * all),
					      (u32)(high - low));
		}
		at += set->bins;
	}
	l->s->n_tasks = (u32)MIN(v->bins.n * all / window, (u64)~0u);
	l->s->n_drawn = (u32)MIN(v->bins.n, (size_t)l->s->max);
	return r;
}

/* ---- threads ---- */

struct thread {
	u64 continuation, id;
	u32 state;
};

static int read_thread(const struct look *l, u64 at, struct thread *ret)
{
	const struct hotspot_objects *o = &l->v->objects;
	const u32 *f = o->fields;
	u8 bytes[JAVA_OBJECT_BYTES];
	u32 last = MAX(f[JF_STATE], f[JF_CONT]);
	int r;

	last = MAX(last, f[JF_ID]);
	r = java_read_object(o, l->t, at, JC_VIRTUAL, bytes, MAX(last + 8, 16u));

	if (r < 0)
		return r;
	ret->continuation = java_reference(o, bytes + f[JF_CONT]);
	memcpy(&ret->id, bytes + f[JF_ID], sizeof(ret->id));
	memcpy(&ret->state, bytes + f[JF_STATE], sizeof(ret->state));
	return 0;
}

static bool waits(const struct virtual_state *v, const struct thread *thread)
{
	u32 state = thread->state & ~v->suspended;

	for (u32 i = 0; i < v->n_waits; i++)
		if (v->waits[i] == state)
			return true;
	return false;
}

struct chunk {
	u64 address, parent;
	u32 sp, bottom, size;
};

static int read_chunk(const struct look *l, u64 at, struct chunk *ret)
{
	const struct hotspot_objects *o = &l->v->objects;
	const u32 *f = o->fields;
	u8 bytes[JAVA_OBJECT_BYTES];
	int r = java_read_object(o, l->t, at, JC_CHUNK, bytes, l->v->chunk_bytes);

	if (r < 0)
		return r;
	for (enum java_field i = JF_PARENT; i <= JF_BOTTOM; i++)
		if (f[i] + 8 > JAVA_OBJECT_BYTES)
			return -EINVAL;
	*ret = (struct chunk){.address = at, .parent = java_reference(o, bytes + f[JF_PARENT])};
	memcpy(&ret->sp, bytes + f[JF_SP], sizeof(ret->sp));
	memcpy(&ret->bottom, bytes + f[JF_BOTTOM], sizeof(ret->bottom));
	memcpy(&ret->size, bytes + f[JF_SIZE], sizeof(ret->size));
	return ret->size <= MAX_CHUNK_WORDS && ret->bottom <= ret->size && ret->sp >= 2 &&
			       ret->sp <= ret->bottom
		       ? 0
		       : -EINVAL;
}

static bool is_same_chunk(const struct chunk *a, const struct chunk *b)
{
	return a->address == b->address && a->parent == b->parent && a->sp == b->sp &&
	       a->bottom == b->bottom && a->size == b->size;
}

/* The chunk of the innermost frames. */
static int read_tail(const struct look *l, const struct thread *thread, struct chunk *ret)
{
	const struct hotspot_objects *o = &l->v->objects;
	u64 at;
	int r = thread->continuation
			? java_read_reference(o, l->t, thread->continuation + o->fields[JF_TAIL],
					      &at)
			: -EINVAL;

	return r < 0 ? r : read_chunk(l, at, ret);
}

/* Copies frames of a chunk, as many as there is room for, and walks them. */
static int walk_frames(const struct look *l, const struct chunk *c, u32 *room)
{
	struct hotspot_chunk h = {.words = (const u64 *)(const void *)l->s->stack,
				  .first = c->sp - 2,
				  .sp = c->sp,
				  .bottom = c->bottom,
				  .size = c->size};
	int r;

	h.n = MIN(c->size - h.first, *room);
	if (!h.n)
		return STOP_COPY_END;
	r = runtime_read(&l->t->memory, c->address + l->v->chunk_bytes + 8ULL * h.first,
			 l->s->stack, 8ULL * h.n);
	*room -= h.n;
	return r < 0 ? r : hotspot_walk_chunk(&l->v->walker, &h);
}

/* An enum stop_reason, or a negative errno. */
static int walk_stack(const struct look *l, struct chunk c)
{
	u32 room = RUNTIME_TASK_BYTES / 8;

	l->v->walker.n = 0;
	for (u32 i = 0; i < MAX_CHUNKS; i++) {
		int r = c.sp < c.bottom ? walk_frames(l, &c, &room) : 0;

		if (r)
			return r;
		if (!c.parent)
			return l->v->walker.n ? STOP_COMPLETE : -EINVAL;
		r = read_chunk(l, c.parent, &c);
		if (r < 0)
			return r;
	}
	return STOP_COPY_END;
}

/* -ECANCELED: the collector may have moved objects. */
static int check_gc(const struct look *l)
{
	u32 now;
	int r = hotspot_gc_read(l->vm, &l->v->objects, l->t, &now);

	if (r < 0)
		return r == -EBUSY ? -ECANCELED : r;
	return now == l->gc ? 0 : -ECANCELED;
}

/* 0: it has waited since it was read before. */
static int check_thread(const struct look *l, u64 at, const struct thread *before,
			const struct chunk *tail)
{
	struct thread thread;
	struct chunk chunk;
	int r = read_thread(l, at, &thread);

	if (r == 0)
		r = read_tail(l, &thread, &chunk);
	if (r < 0)
		return r;
	return thread.state == before->state && thread.id == before->id &&
			       thread.continuation == before->continuation &&
			       is_same_chunk(&chunk, tail)
		       ? 0
		       : -EAGAIN;
}

/* 1: it does not wait. */
static int look_at(const struct look *l, u64 at)
{
	struct runtime_task task = {};
	struct thread thread;
	struct chunk tail;
	int stop, r = read_thread(l, at, &thread);

	if (r < 0)
		return r;
	if (!waits(l->v, &thread))
		return 1;
	r = read_tail(l, &thread, &tail);
	if (r < 0)
		return r;
	stop = walk_stack(l, tail);
	r = check_thread(l, at, &thread, &tail);
	if (r == 0)
		r = check_gc(l);
	if (r < 0 || stop < 0)
		return r < 0 ? r : stop;
	task.id = thread.id;
	task.words = l->v->walker.words;
	task.n_words = l->v->walker.n;
	task.stop = (u32)stop;
	l->s->task(l->s->arg, l->s, &task);
	return 0;
}

/* Looks at the threads of a bin. An error: of all reads. */
static int look_at_bin(const struct look *l, u64 node)
{
	for (u32 i = 0; node && i < MAX_CHAIN; i++) {
		struct node n;
		int r = read_node(l, node, &n);

		if (r == 0) {
			node = n.next;
			r = look_at(l, n.key);
		} else {
			node = 0;
		}
		if (r >= 0)
			continue;
		if (r == -ESRCH || check_gc(l) < 0)
			return r == -ESRCH ? r : -ECANCELED;
		l->s->n_unread++;
	}
	return 0;
}

/*
 * If the collector or the time ends a look, the next call makes the draws that are left, with the
 * weights of the first call: looks that end early are no fewer samples.
 */
static int look_at_all(const struct look *l)
{
	struct virtual_state *v = l->v;
	struct runtime_scan *s = l->s;
	u32 n = (u32)v->bins.n, draws = v->left ? v->left : s->n_drawn;

	if (v->left) {
		s->n_tasks = v->n_tasks;
		s->n_drawn = v->n_drawn;
	}
	v->left = 0;
	for (u32 i = 0; n && i < draws; i++) {
		u64 index = ((u64)i * n + runtime_random(s->random) % n) / draws;
		int r = i % CLOCK_EACH == 0 && clock_ns(CLOCK_MONOTONIC) > s->until_ns
				? -ETIME
				: look_at_bin(l, v->bins.data[index]);

		if (r == -ESRCH)
			return r;
		if (r < 0) {
			v->left = draws - i;
			v->n_tasks = s->n_tasks;
			v->n_drawn = s->n_drawn;
			return -EBUSY;
		}
	}
	return 0;
}

static int scan(const struct runtime_target *t, const void *learned,
		const struct runtime_process *process, void **state, struct runtime_scan *s)
{
	struct look l = {.vm = learned, .t = t, .s = s};
	int r;

	if (!*state)
		*state = calloc(1, sizeof(struct virtual_state));
	if (!*state)
		return -ENOMEM;
	l.v = *state;
	if (l.v->refused)
		return l.v->refused;
	r = prepare(&l);
	if (r == -ENOTSUP)
		l.v->refused = r;
	if (r)
		return r < 0 ? r : 0;
	r = hotspot_gc_read(l.vm, &l.v->objects, t, &l.gc);
	if (r == 0)
		r = find_sets(&l);
	if (r == 0)
		r = draw_bins(&l);
	/* What was read while objects were moved is no error. */
	if (r < 0)
		return r != -ETIME && (r == -ESRCH || check_gc(&l) == 0) ? r : -EBUSY;
	hotspot_walker_begin(&l.v->walker, t, process);
	return look_at_all(&l);
}

const struct runtime_task_ops hotspot_tasks = {
	.kind = TASK_VIRTUAL_THREAD,
	.scan = scan,
	.drop = drop,
};

const char *hotspot_virtual_missing(const struct hotspot_vm *vm, const struct runtime_target *t)
{
	struct hotspot_objects o;
	const char *why;
	int r = hotspot_objects_init(vm, t, &o, &why);

	if (r == -ENOTSUP)
		return why;
	if (r == 0)
		r = hotspot_objects_follow(vm, t, &o, clock_ns(CLOCK_MONOTONIC) + DOCTOR_NS);
	if (r == -ENOTSUP)
		return "virtual threads that wait: the JDK's classes have other fields";
	if (r == 0 && o.classes[JC_COUNTING])
		return "virtual threads that wait, but for those of executors (-Djdk.trackAllThreads=false)";
	return NULL;
}
