/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/symbolize/symbolize.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/resident.h"
#include "agent/symbolize/internal.h"
#include "agent/symbolize/making.h"
#include "base/str.h"
#include "base/vocab.h"

int symbolizer_create(const struct symbolizer_options *o, struct symbolizer **ret)
{
	_cleanup_symbolizer_ struct symbolizer *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->options = *o;
	s->cache_dir = o->cache_dir ? strdup(o->cache_dir) : NULL;
	s->debuginfod_urls = o->debuginfod_urls ? strdup(o->debuginfod_urls) : NULL;
	if ((o->cache_dir && !s->cache_dir) || (o->debuginfod_urls && !s->debuginfod_urls))
		return -ENOMEM;
	*ret = take_ptr(s);
	return 0;
}

void symbolizer_destroy(struct symbolizer *s)
{
	if (!s)
		return;
	binaries_destroy(s);
	kernel_names_destroy(s->kernel);
	free(s->cache_dir);
	free(s->debuginfod_urls);
	free(s);
}

void symbolizer_hurry(struct symbolizer *s)
{
	__atomic_store_n(&s->hurry, true, __ATOMIC_RELAXED);
}

static int add_function(struct profile *p, const struct symbol_frame *f, u32 *ret)
{
	struct profile_function fn = {.start_line = f->start_line};
	int r = making_text(p, f->name, &fn.name);

	if (r == 0)
		r = making_text(p, f->system_name ? f->system_name : f->name, &fn.system_name);
	if (r == 0 && f->file)
		r = making_text(p, f->file, &fn.file);
	return r < 0 ? r : profile_add_function(p, &fn, ret);
}

/* ---- kernel ---- */

static int kernel_mapping(struct making *m, const char *module, u32 *ret)
{
	struct profile_mapping mapping = {};
	char path[80];
	u64 *known;
	u32 id;
	int r;

	if (module[0])
		snprintf(path, sizeof(path), "[%s]", module);
	else
		snprintf(path, sizeof(path), "[kernel]");
	r = making_text(m->profile, path, &id);
	if (r < 0)
		return r;
	known = map_get(&m->modules, id);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	mapping.path = id;
	r = profile_add_mapping(m->profile, &mapping, ret);
	return r < 0 ? r : map_put(&m->modules, id, *ret);
}

static int kernel_frame(struct making *m, u64 address, bool leaf, u32 *ret)
{
	struct profile_frame f = {.kind = FRAME_KERNEL, .function = PROFILE_NONE};
	const char *name = NULL, *module = "";
	u64 key = address * 2 + leaf;
	u64 *known = map_get(&m->kernel, key);
	int r;

	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	/* The address of a caller is a return address: the call is before it. */
	f.address = leaf ? address : address - 1;
	r = m->s->kernel ? kernel_names_lookup(m->s->kernel, f.address, &name, &module) : -ENOENT;
	if (r < 0 && r != -ENOENT)
		return r;
	r = kernel_mapping(m, r == 0 ? module : "", &f.mapping);
	if (r == 0 && name)
		r = add_function(m->profile, &(struct symbol_frame){.name = name}, &f.function);
	if (r == 0)
		r = profile_add_frame(m->profile, &f, ret);
	return r < 0 ? r : map_put(&m->kernel, key, *ret);
}

/* ---- user ---- */

static struct procman_binary *held_binary(struct making *m, u32 file_id)
{
	u64 *b = map_get(&m->batch->binaries, file_id);

	return b ? (struct procman_binary *)*b : NULL;
}

static int add_mapping(struct making *m, const struct procman_binary *b, u32 *ret)
{
	struct profile_mapping mapping = {};
	char hex[ELF_MAX_BUILD_ID * 2 + 1];
	int r = making_text(m->profile, b->path, &mapping.path);

	binary_id(b, hex);
	if (r == 0)
		r = making_text(m->profile, hex, &mapping.build_id);
	return r < 0 ? r : profile_add_mapping(m->profile, &mapping, ret);
}

/* Returns the binary, with a mapping in the profile. */
static struct named_binary *named_binary(struct making *m, const struct procman_binary *b)
{
	struct named_binary *n = binaries_open(m->s, b);

	return n && (n->mapping != PROFILE_NONE || add_mapping(m, b, &n->mapping) == 0) ? n : NULL;
}

/* Appends the frames of one address to `chains`, innermost first. */
static int push_chain(struct making *m, const struct profile_frame *like, u32 n)
{
	int r = vec_push(&m->chains, n ? n : 1);

	for (u32 i = 0; i < (n ? n : 1) && r == 0; i++) {
		const struct symbol_frame *sf = &m->chain.frames[i];
		struct profile_frame f = *like;
		u32 id;

		if (n) {
			f.line = sf->line;
			f.column = sf->column;
			f.flags = sf->inlined ? PROFILE_FRAME_INLINED : 0;
			r = add_function(m->profile, sf, &f.function);
		}
		if (r == 0)
			r = profile_add_frame(m->profile, &f, &id);
		if (r == 0)
			r = vec_push(&m->chains, id);
	}
	return r;
}

/* Names an address of a file. */
static int file_chain(struct making *m, u64 frame)
{
	struct procman_binary *b = held_binary(m, (u32)(frame >> WORD_SVMA_BITS));
	struct profile_frame f = {
		.address = frame & WORD_SVMA_MASK,
		.kind = b ? FRAME_NATIVE : FRAME_UNKNOWN,
		.mapping = PROFILE_NONE,
		.function = PROFILE_NONE,
	};
	struct named_binary *n = b ? named_binary(m, b) : NULL;

	m->chain.n = 0;
	if (n) {
		f.mapping = n->mapping;
		if (binary_name(m->s, n, f.address, &m->chain) < 0)
			m->chain.n = 0;
	}
	return push_chain(m, &f, m->chain.n);
}

/* Returns a duplicate descriptor, because the pipeline keeps its own; negative: there is none. */
static int jit_file(const struct making *m, enum jitfile which, u64 image)
{
	u64 *held = map_get(&m->batch->jit_files[which], image);

	return held && (s64)*held >= 0 ? dup((int)*held) : -1;
}

/*
 * Names of code made at run time are as many as the process likes: a file that has no room in the
 * budget is left out. Short names take up to four times the file in memory, others less than it.
 */
#define JIT_NAMES_MOST 4
#define JIT_NAMES_LEAST_BYTES (1ULL << 20)
#define JIT_NAMES_MAX_BYTES (64ULL << 20)

/* How many bytes of the budget the caller has now; 0: none. */
static u64 room_for_names(struct making *m, int fd)
{
	struct stat st;
	u64 size;

	if (fd < 0 || fstat(fd, &st) < 0)
		return 0;
	size = MIN((u64)st.st_size, JIT_NAMES_MAX_BYTES) + JIT_NAMES_LEAST_BYTES;
	for (u32 share = JIT_NAMES_MOST; share; share /= 2)
		if (symbolizer_find_room(m->s, size * share))
			return size * share;
	m->s->stats.left_out++;
	return 0;
}

static void give_back_room(struct making *m, u64 room, int error)
{
	if (room)
		budget_end(m->s->options.budget, room);
	m->s->stats.left_out += error == -E2BIG;
}

static struct jitdump *jitdump_of(struct making *m, u64 image)
{
	u64 *known = map_get(&m->jitdumps, image);
	_cleanup_close_ int fd = -1;
	struct jitdump *dump = NULL;
	int r = -ENOENT;
	u64 room;

	if (known)
		return (struct jitdump *)*known;
	fd = jit_file(m, JITFILE_DUMP, image);
	room = room_for_names(m, fd);
	if (room)
		r = jitdump_open(take_fd(&fd), room, &dump);
	give_back_room(m, room, r);
	if (map_put(&m->jitdumps, image, (u64)dump) < 0) {
		jitdump_destroy(dump);
		dump = NULL;
	}
	return dump;
}

static struct perf_map *perf_map_of(struct making *m, u64 image)
{
	u64 *known = map_get(&m->perf_maps, image);
	_cleanup_close_ int fd = -1;
	struct perf_map *map = NULL;
	int r = -ENOENT;
	u64 room;

	if (known)
		return (struct perf_map *)*known;
	fd = jit_file(m, JITFILE_MAP, image);
	room = room_for_names(m, fd);
	if (room)
		r = perf_map_open(take_fd(&fd), room, &map);
	give_back_room(m, room, r);
	if (map_put(&m->perf_maps, image, (u64)map) < 0) {
		perf_map_destroy(map);
		map = NULL;
	}
	return map;
}

/* Names an address outside of files: generated code. */
static int raw_chain(struct making *m, u64 frame, u64 image)
{
	struct profile_frame f = {
		.address = frame & ~WORD_RAW,
		.kind = FRAME_UNKNOWN,
		.mapping = PROFILE_NONE,
		.function = PROFILE_NONE,
	};
	struct jitdump *dump = jitdump_of(m, image);
	struct perf_map *map = perf_map_of(m, image);
	const char *name;

	m->chain.n = 0;
	if (dump && jitdump_lookup(dump, f.address, m->time_ns, &m->chain) == 0)
		f.kind = FRAME_JIT;
	else if (map && perf_map_lookup(map, f.address, &name) == 0) {
		f.kind = FRAME_JIT;
		m->chain.frames[0] = (struct symbol_frame){.name = name};
		m->chain.n = 1;
	}
	return push_chain(m, &f, m->chain.n);
}

/* Adds a frame of a language runtime, which the pipeline has named. */
static int runtime_chain(struct making *m, u64 frame)
{
	const struct runtime_answers *answers = m->answers;
	const struct runtime_answer *a = runtime_answers_get(answers, (u32)frame);
	struct profile_frame f = {.mapping = PROFILE_NONE, .kind = a ? a->kind : FRAME_UNKNOWN};

	m->chain.n = a ? MIN(a->n, (u32)ARRAY_SIZE(m->chain.frames)) : 0;
	for (u32 i = 0; i < m->chain.n; i++) {
		const struct runtime_frame *rf = &answers->frames.data[a->first + i];

		m->chain.frames[i] = (struct symbol_frame){
			.name = rf->function,
			.file = rf->file,
			.line = rf->line,
			.column = rf->column,
			.start_line = rf->start_line,
			.inlined = i + 1 < m->chain.n,
		};
	}
	return push_chain(m, &f, m->chain.n);
}

static int user_frame(struct making *m, u64 frame, u64 image)
{
	bool runtime = frame >= WORD_RUNTIME;
	u64 key =
		!runtime && frame & WORD_RAW ? hash_u64(frame ^ hash_u64(image)) | WORD_RAW : frame;
	u64 *known = map_get(&m->frames, key);
	size_t at = known ? *known : m->chains.n;
	const u32 *chain;
	int r = 0;

	if (!known) {
		r = runtime	       ? runtime_chain(m, frame)
		    : frame & WORD_RAW ? raw_chain(m, frame, image)
				       : file_chain(m, frame);
		if (r == 0)
			r = map_put(&m->frames, key, at);
		if (r < 0)
			return r;
	}
	chain = &m->chains.data[at];
	for (u32 i = 1; i <= chain[0] && r == 0; i++) {
		const struct profile_frame *f = &m->profile->frames.data[chain[i]];

		m->unnamed += f->function == PROFILE_NONE;
		r = vec_push(&m->stack, chain[i]);
	}
	return r;
}

/* ---- stacks and samples ---- */

static int append_note(struct making *m, const char *text)
{
	u32 id;
	int r = profile_add_note(m->profile, text, &id);

	return r < 0 ? r : vec_push(&m->stack, id);
}

static int note_frame(struct making *m, u32 stop)
{
	char text[128];

	snprintf(text, sizeof(text), "[truncated: %s]", vocab_stop(stop)->name);
	return append_note(m, text);
}

/*
 * Of the stack of a program that follows a tracepoint: the part that belongs to the tracing. The
 * first frames are the program and a function of it (bpf/lib/known_stack.h), whose names are
 * unknown if it was loaded after the names were read.
 */
#define PROGRAM_FRAMES 2
static bool is_tracing(const struct making *m, u32 frame, bool may_be_program)
{
	static const char *const begins[] = {"bpf_prog_", "bpf_trace_run", "__bpf_trace_",
					     "__traceiter_", "finish_task_switch"};
	const struct profile_frame *f = &m->profile->frames.data[frame];
	const char *name;

	if (f->function == PROFILE_NONE)
		return may_be_program;
	name = profile_string(m->profile, m->profile->functions.data[f->function].name);
	/* A script may follow the last of these itself. */
	for (size_t i = 0; i + m->of_script < ARRAY_SIZE(begins); i++)
		if (!strncmp(name, begins[i], strlen(begins[i])))
			return true;
	return false;
}

int making_append_stack(struct making *m, u64 stack_id, u64 image)
{
	const size_t begin = m->stack.n;
	const struct pipeline_stack *s = pipeline_stack(m->batch, stack_id);
	u32 id;
	int r = 0;

	if (!s)
		return note_frame(m, STOP_STACK_LOST);
	for (u32 i = 0; i < s->n && r == 0; i++) {
		u64 frame = m->batch->frames.data[s->first + i];

		if (!s->kernel && frame == WORD_RUNTIME) {
			i += !m->s->options.runtime_frames;
			continue;
		}
		if (!s->kernel) {
			r = user_frame(m, frame, image);
			continue;
		}
		r = kernel_frame(m, frame, i == 0, &id);
		if (r == 0 && m->is_traced && m->stack.n == begin &&
		    is_tracing(m, id, i < PROGRAM_FRAMES))
			continue;
		if (r == 0) {
			m->unnamed += m->profile->frames.data[id].function == PROFILE_NONE;
			r = vec_push(&m->stack, id);
		}
	}
	if (r == 0 && s->stop != STOP_COMPLETE)
		r = note_frame(m, s->stop);
	return r;
}

/* "": it has none. */
static const char *function_name(const struct making *m, u32 frame)
{
	u32 function = m->profile->frames.data[frame].function;

	return function == PROFILE_NONE
		       ? ""
		       : profile_string(m->profile, m->profile->functions.data[function].name);
}

/* Whether the stack from `from` on is that of a timer's interrupt. */
static bool is_timer(const struct making *m, size_t from)
{
	static const char *const functions[] = {
		"hrtimer_interrupt", "__hrtimer_run_queues", "hrtimer_run_softirq", "call_timer_fn",
		"__run_timers",	     "__run_timer_base",     "run_timer_softirq",
	};

	for (size_t i = from; i < m->stack.n; i++)
		for (size_t k = 0; k < ARRAY_SIZE(functions); k++)
			if (!strcmp(function_name(m, m->stack.data[i]), functions[k]))
				return true;
	return false;
}

/*
 * Appends who ended the wait, and who had woken the waker: outermost first, each stack from its
 * root to its leaf, and then the note that leads from the wait to the waker.
 */
static int append_wakers(struct making *m, u64 number)
{
	const struct pipeline_waker *w = number ? &m->batch->wakers.data[number - 1] : NULL;
	bool timer;
	char text[64];
	size_t from;
	int r;

	if (!w)
		return 0;
	r = append_wakers(m, w->next);
	from = m->stack.n;
	if (r == 0 && w->kernel_stack)
		r = making_append_stack(m, w->kernel_stack, w->image);
	if (r == 0 && w->user_stack)
		r = making_append_stack(m, w->user_stack, w->image);
	if (r < 0)
		return r;
	timer = !w->tid && is_timer(m, from);
	if (timer)
		m->stack.n = from;
	for (size_t i = from, j = m->stack.n; i + 1 < j; i++) {
		u32 swap = m->stack.data[i];

		m->stack.data[i] = m->stack.data[--j];
		m->stack.data[j] = swap;
	}
	if (w->tid)
		snprintf(text, sizeof(text), "[woken by %.*s]", SAMPLE_COMM_BYTES, w->comm);
	else
		snprintf(text, sizeof(text), "[woken by %s]",
			 timer ? WAKER_TIMER : WAKER_INTERRUPT);
	return append_note(m, text);
}

/* WAIT_NONE: the function tells nothing. */
static enum wait wait_of_function(const char *name)
{
	static const struct {
		const char *name;
		enum wait wait;
	} rows[] = {
#define WAITS_IN(name, wait, of) {name, WAIT_##wait},
#include "abi/tbl/wait_function.tbl"
#undef WAITS_IN
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n = strlen(rows[i].name);

		if (!strncmp(name, rows[i].name, n) && (!name[n] || name[n] == '('))
			return rows[i].wait;
	}
	return WAIT_NONE;
}

/*
 * What is waited for by the functions on the stack, which is that from `first` on: the innermost
 * tells. If it polls, a function further out tells what.
 */
static enum wait wait_of_stack(const struct making *m, size_t first, enum wait otherwise)
{
	enum wait wait = WAIT_NONE;

	for (size_t i = first; i < m->stack.n && (!wait || wait == WAIT_POLL); i++) {
		enum wait of = wait_of_function(function_name(m, m->stack.data[i]));

		wait = of ? of : wait;
	}
	return wait ? wait : otherwise;
}

/* Not a thread waited, but a task of a runtime. */
static bool is_task(const struct pipeline_entry *e)
{
	return e->key.object.kind == WAIT_OBJECT_TASK;
}

/* What is known of memory without a stack; NULL: it has one, or it is not memory. */
static const char *resident_note(const struct pipeline_entry *e)
{
	static const char *const notes[RESIDENT_NOTES] = {
		[RESIDENT_UNKNOWN] = "[unknown]",
		[RESIDENT_BEFORE] = "[resident before the recording]",
		[RESIDENT_MOVED] = "[moved by mremap]",
	};
	u32 note = e->key.object.port;

	return e->key.object.kind == WAIT_OBJECT_PAGES && note < RESIDENT_NOTES ? notes[note]
										: NULL;
}

static int entry_stack(struct making *m, const struct pipeline_entry *e, u32 *ret)
{
	size_t first;
	int r;

	vec_clear(&m->stack);
	m->wait = e->key.wait;
	m->unnamed = 0;
	m->time_ns = e->first_ns;
	m->is_traced = e->key.wait > WAIT_RUNNING;
	r = m->s->options.waker_labels ? 0 : append_wakers(m, e->key.waker);
	first = m->stack.n;
	if (r == 0 && e->key.kernel_stack)
		r = making_append_stack(m, e->key.kernel_stack, e->key.image);
	if (r == 0 && e->key.user_stack)
		r = making_append_stack(m, e->key.user_stack, e->key.image);
	if (r < 0)
		return r;
	/* A lock that somebody has is one whatever the functions around it are for. */
	if ((m->wait == WAIT_LOCK && !e->key.object.owner) || m->wait == WAIT_POLL || is_task(e))
		m->wait = wait_of_stack(m, first, m->wait);
	if (is_task(e))
		r = append_note(m, vocab_task(e->key.object.port)->note);
	if (r == 0 && resident_note(e))
		r = append_note(m, resident_note(e));
	if (r < 0)
		return r;
	m->profile->quality.frames += m->stack.n * e->count;
	m->profile->quality.unknown += m->unnamed * e->count;
	return profile_add_stack(m->profile, m->stack.data, m->stack.n, ret);
}

static int compare_frames(const void *pa, const void *pb)
{
	const u64 *a = pa, *b = pb;

	return (*a > *b) - (*a < *b);
}

/* Returns a flag for each stack of the batch: this source's samples use it. NULL: out of memory. */
static bool *used_stacks(const struct making *m)
{
	const struct pipeline_batch *b = m->batch;
	bool *used = calloc(b->stacks.n + 1, sizeof(*used));

	for (size_t i = 0; used && i < m->n_entries; i++) {
		const struct pipeline_key *key = &m->entries[i].key;
		const u64 *at = map_get(&b->stack_index, key->user_stack);

		if ((m->source == ANY_SOURCE || key->source == m->source) && m->entries[i].count &&
		    key->user_stack && at)
			used[*at] = true;
	}
	for (size_t i = 0; used && !m->s->options.waker_labels && i < b->wakers.n; i++) {
		const u64 *at = map_get(&b->stack_index, b->wakers.data[i].user_stack);

		if (at)
			used[*at] = true;
	}
	return used;
}

/*
 * Looks up all addresses of files, one file after the other, so that the debug information of one
 * can be freed before that of the next is read: the first batch has hundreds of files. After that,
 * names come from the answers.
 */
int making_look_up(struct making *m, const bool *used)
{
	_cleanup_free_ u64 *list = calloc(m->batch->frames.n + 1, sizeof(*list));
	size_t n = 0;

	if (!list)
		return -ENOMEM;
	for (size_t j = 0; j < m->batch->stacks.n; j++) {
		const struct pipeline_stack *s = &m->batch->stacks.data[j];
		const u64 *frames = &m->batch->frames.data[s->first];

		for (u32 i = 0; i < s->n && used[j] && !s->kernel; i++)
			if (frames[i] < WORD_RUNTIME && !(frames[i] & WORD_RAW))
				list[n++] = frames[i];
	}
	qsort(list, n, sizeof(*list), compare_frames);
	for (size_t i = 0, end; i < n && !is_in_a_hurry(m->s); i = end) {
		struct procman_binary *b = held_binary(m, (u32)(list[i] >> WORD_SVMA_BITS));
		struct named_binary *named = b ? named_binary(m, b) : NULL;

		end = i + 1;
		while (end < n && list[end] >> WORD_SVMA_BITS == list[i] >> WORD_SVMA_BITS)
			end++;
		if (named)
			binaries_read(m->s, named, &list[i], end - i);
	}
	return 0;
}

static int look_up_files(struct making *m)
{
	_cleanup_free_ bool *used = used_stacks(m);

	return used ? making_look_up(m, used) : -ENOMEM;
}

static bool shows_times(const struct making *m)
{
	return m->batch->keep_times && !m->s->options.no_times;
}

struct placed { /* an entry in the profile */
	u32 thread, stack, link;
};

static int entry_link(struct making *m, const struct pipeline_entry *e, u32 *ret)
{
	struct profile_link l;

	memcpy(l.trace_id, e->key.context.trace_id, sizeof(l.trace_id));
	memcpy(l.span_id, &e->key.context.span_id, sizeof(l.span_id));
	return profile_add_link(m->profile, &l, ret);
}

static int place_entry(struct making *m, const struct pipeline_entry *e, struct placed *ret)
{
	int r = entry_stack(m, e, &ret->stack);

	if (r == 0)
		r = making_thread(m, e, &ret->thread);
	return r < 0 ? r : entry_link(m, e, &ret->link);
}

/* The sum of an entry's events, as one sample. */
static int add_entry(struct making *m, const struct pipeline_entry *e, const struct placed *at)
{
	s64 values[MAKING_VALUES];

	making_values(m, &e->key, (s64)e->count, e->value, e->bytes, values);
	return profile_add_linked_sample(m->profile, 0, at->thread, at->stack, at->link, values);
}

static int add_samples(struct making *m)
{
	const struct pipeline_batch *b = m->batch;
	_cleanup_free_ struct placed *placed = calloc(b->entries.n + 1, sizeof(*placed));
	u64 offset = b->started_realtime_ns - b->started_ns;
	int r = placed ? 0 : -ENOMEM;

	for (size_t i = 0; i < b->entries.n && r == 0; i++)
		if (m->entries[i].key.source == m->source && m->entries[i].count) {
			r = place_entry(m, &m->entries[i], &placed[i]);
			if (r == 0 && !shows_times(m))
				r = add_entry(m, &m->entries[i], &placed[i]);
		}
	for (size_t i = 0; shows_times(m) && i < b->events.n && r == 0; i++) {
		const struct pipeline_event *e = &b->events.data[i];
		const struct placed *at = &placed[e->entry];
		const struct pipeline_key *key = &b->entries.data[e->entry].key;
		s64 values[MAKING_VALUES];

		if (key->source != m->source || e->time_ns < m->from_ns ||
		    !m->entries[e->entry].count)
			continue;
		making_values(m, key, 1 + (s64)e->more, e->value, e->bytes, values);
		r = profile_add_linked_sample(m->profile, e->time_ns + offset, at->thread,
					      at->stack, at->link, values);
	}
	return r;
}

static void fill_head(struct making *m)
{
	const struct pipeline_batch *b = m->batch;
	const struct pipeline_counts *c = &m->counts;
	struct profile *p = m->profile;
	u64 begin = MAX(b->started_ns, m->from_ns);

	p->time_ns = b->started_realtime_ns + (begin - b->started_ns);
	p->duration_ns = b->ended_ns - begin;
	p->quality.samples = c->samples;
	p->quality.lost = c->lost;
	p->quality.truncated = c->truncated;
	p->quality.user_stacks = c->user_samples;
	p->quality.measured = true;
}

void making_end(struct making *m)
{
	map_deinit(&m->frames);
	map_deinit(&m->kernel);
	map_deinit(&m->modules);
	map_foreach (&m->perf_maps, slot)
		perf_map_destroy((struct perf_map *)slot->value);
	map_deinit(&m->perf_maps);
	map_foreach (&m->jitdumps, slot)
		jitdump_destroy((struct jitdump *)slot->value);
	map_deinit(&m->jitdumps);
	vec_deinit(&m->chains);
	vec_deinit(&m->stack);
	free(m->own);
	binaries_forget_mappings(m->s);
}

/*
 * Reads the kernel's symbols at the first profile: a quarter of a second that would delay the
 * start.
 */
static int read_kernel_names(struct symbolizer *s)
{
	static const struct kernel_names_options running = {};
	int r = 0;

	if (!s->kernel && !s->kernel_hidden) {
		r = kernel_names_create(&running, &s->kernel);
		s->kernel_hidden = r < 0;
	}
	if (s->kernel)
		kernel_names_begin(s->kernel);
	return r == -ENOMEM ? r : 0;
}

int making_begin(struct making *m)
{
	binaries_begin(m->s, m->batch);
	return read_kernel_names(m->s);
}

static int make_profile(struct symbolizer *s, const struct pipeline_batch *b, u64 from_ns,
			u32 source, struct profile **ret)
{
	_cleanup_profile_ struct profile *profile = profile_create();
	struct making m = {.s = s,
			   .batch = b,
			   .answers = &b->answers,
			   .source = source,
			   .from_ns = from_ns,
			   .entries = b->entries.data,
			   .n_entries = b->entries.n,
			   .counts = b->counts[source],
			   .profile = profile};
	int r = profile ? making_types(&m) : -ENOMEM;

	if (r == 0 && from_ns > b->started_ns)
		r = making_leave_out_events(&m);
	if (r == 0 && s->options.leave_self)
		r = making_leave_out_self(&m);
	if (r == 0)
		r = look_up_files(&m);
	if (r == 0)
		r = add_samples(&m);
	if (r == 0)
		fill_head(&m);
	making_end(&m);
	if (r < 0)
		return r;
	s->stats.frames += profile->quality.frames;
	s->stats.unnamed += profile->quality.unknown;
	*ret = take_ptr(profile);
	return 0;
}

int symbolizer_profiles(struct symbolizer *s, const struct pipeline_batch *b, u64 from_ns,
			struct profile *ret[SAMPLER_MAX_SOURCES])
{
	struct profile *made[SAMPLER_MAX_SOURCES] = {};
	int r;

	binaries_begin(s, b);
	r = read_kernel_names(s);
	s->stats.frames = s->stats.unnamed = 0;
	s->stats.kernel_hidden = s->kernel_hidden;
	/* The first source gets a profile without samples, too, which reports that there were
	 * none. */
	for (u32 i = 0; i < b->n_sources && r == 0; i++)
		if (i == 0 || b->counts[i].samples || b->counts[i].lost)
			r = make_profile(s, b, from_ns, i, &made[i]);
	binaries_end(s);
	binaries_count_memory(s);
	for (u32 i = 0; i < SAMPLER_MAX_SOURCES; i++) {
		if (r < 0)
			profile_destroy(made[i]);
		else
			ret[i] = made[i];
	}
	return r;
}

/*
 * Sums the events in m->own, which has only the entries of these: a batch has thousands of others.
 * ret_own: entry of the batch → index of m->own.
 */
static int take_events(struct making *m, const struct symbolizer_event *events, size_t n,
		       struct map *ret_own)
{
	m->own = calloc(n + 1, sizeof(*m->own));
	if (!m->own)
		return -ENOMEM;
	m->entries = m->own;
	for (size_t i = 0; i < n; i++) {
		const struct pipeline_entry *of = &m->batch->entries.data[events[i].entry];
		const u64 *at = map_get(ret_own, events[i].entry);

		if (at) {
			m->own[*at].count++;
			continue;
		}
		m->own[m->n_entries] = *of;
		m->own[m->n_entries].count = 1;
		if (map_put(ret_own, events[i].entry, m->n_entries++) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int add_events(struct making *m, const struct symbolizer_event *events, size_t n,
		      const struct map *own)
{
	_cleanup_free_ struct placed *placed = calloc(m->n_entries + 1, sizeof(*placed));
	int r = placed ? 0 : -ENOMEM;

	for (size_t i = 0; i < m->n_entries && r == 0; i++)
		r = place_entry(m, &m->own[i], &placed[i]);
	for (size_t i = 0; i < n && r == 0; i++) {
		const struct placed *at = &placed[*map_get(own, events[i].entry)];

		r = profile_add_linked_sample(m->profile, events[i].time_ns, at->thread, at->stack,
					      at->link, &events[i].value);
	}
	return r;
}

int symbolizer_add(struct symbolizer *s, const struct pipeline_batch *b,
		   const struct symbolizer_event *events, size_t n,
		   const struct context_label *labels, u32 n_labels, struct profile *into)
{
	struct making m = {.s = s,
			   .batch = b,
			   .answers = &b->answers,
			   .source = ANY_SOURCE,
			   .profile = into,
			   .labels = labels,
			   .n_labels = MIN(n_labels, (u32)SYMBOLIZER_MAX_LABELS)};
	struct map own = {};
	int r;

	r = making_begin(&m);
	if (r == 0)
		r = take_events(&m, events, n, &own);
	if (r == 0)
		r = look_up_files(&m);
	if (r == 0)
		r = add_events(&m, events, n, &own);
	map_deinit(&own);
	making_end(&m);
	binaries_end(s);
	return r;
}

void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret)
{
	*ret = s->stats;
}
