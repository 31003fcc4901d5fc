/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of runtime frames: each is read from its process once in a period. Frames that cannot be
 * named become notes.
 */
#include <errno.h>

#include "agent/runtime/internal.h"
#include "base/vec.h"

#define NAMES_LIMIT (256ULL << 20)

u64 runtimes_names_limit(const struct runtimes *r)
{
	u64 limit = budget_limit(r->options.budget);

	return limit ? MIN(NAMES_LIMIT, limit / 8) : NAMES_LIMIT;
}

static int add_note(struct runtime_names *n, const char *text)
{
	n->n = 1;
	n->frames[0] = (struct runtime_frame){.function = text};
	return 0;
}

static u32 runtime_of(u64 word)
{
	return (u32)(word >> WORD_RUNTIME_SHIFT) & 63;
}

/*
 * Finds the next frame of the runtime whose frame is in the first two of n words. The runtime's own
 * frames, each of which follows a mark, do not count.
 */
static void find_caller(const u64 *words, u32 n, struct runtime_names *ret)
{
	u32 runtime = runtime_of(words[0]);
	bool own = false;

	if (runtime >= RUNTIME_N || !runtime_table[runtime].ops ||
	    !runtime_table[runtime].ops->named_by_caller)
		return;
	for (u32 i = 2; i + 1 < n; i++) {
		bool skip = own;

		own = words[i] >= WORD_RUNTIME && !(words[i] & WORD_RUNTIME_ADDRESS);
		if (words[i] < WORD_RUNTIME)
			continue;
		if (!skip && !own && runtime_of(words[i]) == runtime) {
			ret->caller = words[i] & WORD_RUNTIME_ADDRESS;
			ret->caller_where = words[i + 1];
			return;
		}
		i++;
	}
}

static int read_names(struct runtimes *r, const struct procman_process *p, u64 word, u64 where,
		      struct runtime_names *ret)
{
	u32 runtime = runtime_of(word);
	u64 *stale = &r->stats.stale[runtime < RUNTIME_N ? runtime : RUNTIME_NONE];
	const struct attached *a =
		p && runtime < RUNTIME_N ? runtimes_attached(r, p->image, runtime) : NULL;
	struct runtime_target t = {.process = p};
	int e;

	if (!a || !a->done) {
		++*stale;
		return add_note(ret, "[stale]");
	}
	t.memory.pid = p->pid;
	t.bias = a->process.bias;
	e = runtime_table[runtime].ops->name(&t, a->binary->learned, word & WORD_RUNTIME_ADDRESS,
					     where, ret);
	if (e == -ENOMEM)
		return e;
	if (e < 0 || !ret->n) {
		++*stale;
		return add_note(ret, "[stale]");
	}
	return 0;
}

/* Stores an answer by its hash. */
static int keep_answer(struct runtime_answers *a, u64 h, u32 runtime,
		       const struct runtime_names *names_of, u32 *ret_id)
{
	u32 first = (u32)a->frames.n, n = MIN(names_of->n, (u32)RUNTIME_MAX_INLINED);
	int e = 0;

	for (u32 i = 0; i < n && e == 0; i++)
		e = vec_push(&a->frames, names_of->frames[i]);
	if (e == 0)
		e = vec_push(
			&a->answers,
			(struct runtime_answer){first, n, runtime_table[runtime % RUNTIME_N].kind});
	if (e == 0)
		e = map_put(&a->index, h, a->answers.n - 1);
	if (e == 0)
		*ret_id = (u32)a->answers.n - 1;
	return e;
}

/* Returns the answer that all frames of a runtime with this note share. */
static int shared_note(struct runtimes *r, u32 runtime, const char *text, u32 *ret_id)
{
	u64 key[2] = {runtime, (u64)(uintptr_t)text};
	u64 h = hash_bytes(key, sizeof(key)) >> 1;
	const u64 *known = map_get(&r->answers.index, h);
	struct runtime_names answer = {};

	if (known) {
		*ret_id = (u32)*known;
		return 0;
	}
	add_note(&answer, text);
	return keep_answer(&r->answers, h, runtime, &answer, ret_id);
}

/* Whether there is no room for more names until the answers are taken. */
static bool answers_full(const struct runtimes *r)
{
	const struct runtime_answers *a = &r->answers;

	return a->full || a->frames.cap * sizeof(*a->frames.data) +
					  a->answers.cap * sizeof(*a->answers.data) +
					  a->index.cap * sizeof(*a->index.slots) >
				  runtimes_names_limit(r) / 2;
}

static int add_unnamed(struct runtimes *r, u32 runtime, u32 *ret_id)
{
	static const char *const notes[RUNTIME_N] = {
		[RUNTIME_NONE] = "[frame not named: memory limit]",
#define RUNTIME(id, name, ...) [RUNTIME_##id] = "[" #name " frame not named: memory limit]",
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	};
	int e;

	runtime = runtime < RUNTIME_N ? runtime : RUNTIME_NONE;
	r->answers.full = true;
	r->stats.unnamed++;
	e = shared_note(r, runtime, notes[runtime], ret_id);
	return e < 0 ? e : 1;
}

int runtimes_name(struct runtimes *r, const struct procman_process *p, const u64 *words, u32 n,
		  u32 *ret_id)
{
	struct runtime_names answer = {.arena = &r->answers.arena};
	u32 runtime = runtime_of(words[0]);
	const u64 *known;
	int e = answers_full(r) ? -ENOMEM : 0;
	u64 h;

	find_caller(words, n, &answer);
	u64 key[] = {p ? p->image : 0, words[0], words[1], answer.caller, answer.caller_where};

	h = hash_bytes(key, sizeof(key)) >> 1;
	known = map_get(&r->answers.index, h);
	if (known) {
		*ret_id = (u32)*known;
		return 0;
	}
	if (e == 0)
		e = read_names(r, p, words[0], words[1], &answer);
	if (e == 0)
		e = keep_answer(&r->answers, h, runtime, &answer, ret_id);
	return e < 0 ? add_unnamed(r, runtime, ret_id) : 0;
}

int runtimes_note(struct runtimes *r, u32 runtime, u64 *ret_frame)
{
	static const char *const notes[RUNTIME_N] = {
#define RUNTIME(id, name, ...) [RUNTIME_##id] = "[" #name " frames not read]",
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	};
	u32 id;
	int e;

	if (!runtime || runtime >= RUNTIME_N || !runtime_table[runtime].ops->walks_natively)
		return -ENOTSUP;
	e = shared_note(r, runtime, notes[runtime], &id);
	if (e == 0)
		*ret_frame = WORD_RUNTIME | (u64)runtime << WORD_RUNTIME_SHIFT | id;
	return e;
}

const struct runtime_answer *runtime_answers_get(const struct runtime_answers *a, u32 id)
{
	return id < a->answers.n ? &a->answers.data[id] : NULL;
}

struct runtime_answers *runtimes_answers(struct runtimes *r)
{
	return &r->answers;
}

struct runtime_answers runtimes_new_answers(const struct runtimes *r)
{
	return (struct runtime_answers){.arena = ARENA_INIT(runtimes_names_limit(r))};
}

struct runtime_answers runtimes_take_answers(struct runtimes *r)
{
	struct runtime_answers a = r->answers;

	r->answers = runtimes_new_answers(r);
	return a;
}

/* Owned by the arena; NULL stays NULL. False: no room. */
static bool copy_text(struct arena *arena, const char *text, const char **ret)
{
	size_t n = text ? strlen(text) + 1 : 0;
	char *copy = text ? arena_alloc(arena, n) : NULL;

	if (copy)
		memcpy(copy, text, n);
	*ret = copy;
	return !text || copy;
}

/* A hash of what the frames say. Never that of a frame by its words: these have five of them. */
static u64 hash_frames(const struct runtime_frame *frames, u32 n, u8 kind)
{
	u64 h = kind;

	for (u32 i = 0; i < n; i++) {
		const struct runtime_frame *f = &frames[i];
		u64 parts[] = {h,
			       hash_bytes(f->function, strlen(f->function)),
			       f->file ? hash_bytes(f->file, strlen(f->file)) : 0,
			       (u64)f->line << 32 | f->column,
			       f->start_line,
			       n};

		h = hash_bytes(parts, sizeof(parts));
	}
	return h >> 1;
}

int runtime_answers_copy(struct runtime_answers *to, const struct runtime_answers *from, u32 id,
			 u32 *ret_id)
{
	const struct runtime_answer *of = runtime_answers_get(from, id);
	u32 first = (u32)to->frames.n, new_id = (u32)to->answers.n;
	const u64 *known;
	int e = 0;
	u64 h;

	if (!of)
		return -ENOENT;
	h = hash_frames(&from->frames.data[of->first], of->n, of->kind);
	known = map_get(&to->index, h);
	if (known) {
		*ret_id = (u32)*known;
		return 0;
	}
	for (u32 i = 0; i < of->n && e == 0; i++) {
		struct runtime_frame f = from->frames.data[of->first + i];

		if (!copy_text(&to->arena, f.function, &f.function) ||
		    !copy_text(&to->arena, f.file, &f.file))
			return -ENOMEM;
		e = vec_push(&to->frames, f);
	}
	if (e == 0)
		e = vec_push(&to->answers, (struct runtime_answer){first, of->n, of->kind});
	if (e == 0)
		e = map_put(&to->index, h, new_id);
	if (e == 0)
		*ret_id = new_id;
	return e;
}

void runtime_answers_deinit(struct runtime_answers *a)
{
	arena_deinit(&a->arena);
	vec_deinit(&a->frames);
	vec_deinit(&a->answers);
	map_deinit(&a->index);
}
