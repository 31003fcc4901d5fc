/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map by stacks as a profile, for flame graphs: @[ustack], @[kstack, ustack, comm] = count(). The
 * kernel's stack is leafward of the user's. Other parts of the key are frames at the root, in the
 * order of the key.
 */
#include <errno.h>
#include <string.h>

#include "base/map.h"
#include "profile/profile.h"
#include "trace/print.h"

struct making {
	const struct trace_printer *p;
	struct profile *to;
	const struct profile *from; /* the names */
	struct map frames;	    /* frame of `from` → frame of `to` */
	vec(u32) stack;
	vec(u32) rest; /* frames at the root */
};

static int copy_frame(struct making *m, u32 id)
{
	const u64 *known = map_get(&m->frames, id);
	u32 to = 0;
	int r;

	if (known)
		return vec_push(&m->stack, (u32)*known);
	r = profile_copy_frame(m->to, m->from, id, &to);
	if (r == 0)
		r = map_put(&m->frames, id, to);
	return r < 0 ? r : vec_push(&m->stack, to);
}

static int add_stack(struct making *m, u64 id, u32 pid)
{
	const struct trace_names *n = &m->p->names;
	const struct profile_stack *s;
	u32 stack;
	int r = 0;

	m->from = id && n->stack ? n->stack(n->arg, id, pid, &stack) : NULL;
	if (!m->from)
		return 0;
	s = &m->from->stacks.data[stack];
	for (u32 i = 0; i < s->n && r == 0; i++)
		r = copy_frame(m, m->from->stack_frames.data[s->first + i]);
	return r;
}

static int add_text(struct making *m, const struct trace_type *t, const u8 *value)
{
	_cleanup_str_ struct str text = {};
	u32 frame = 0;
	int r;

	trace_value_text(m->p, t, value, 1, &text);
	r = profile_add_note(m->to, str_get(&text), &frame);
	return r < 0 ? r : vec_push(&m->rest, frame);
}

/* Adds what is of this kind in a key; TRACE_NONE: what is no stack. */
static int add_parts(struct making *m, const struct trace_type *t, const u8 *key,
		     enum trace_kind kind)
{
	bool is_stack = t->kind == TRACE_KSTACK || t->kind == TRACE_USTACK;
	int r = 0;

	if (t->kind == TRACE_TUPLE) {
		for (u32 i = 0; i < t->n && r == 0; i++) {
			r = add_parts(m, t->fields[i], key, kind);
			key += trace_type_room(t->fields[i]);
		}
		return r;
	}
	if (kind == TRACE_NONE)
		return is_stack ? 0 : add_text(m, t, key);
	if (t->kind != kind)
		return 0;
	return add_stack(m, trace_word(key, 0), kind == TRACE_USTACK ? (u32)trace_word(key, 1) : 0);
}

static u32 count_stacks(const struct trace_type *t)
{
	u32 n = t->kind == TRACE_KSTACK || t->kind == TRACE_USTACK;

	for (u32 i = 0; t->kind == TRACE_TUPLE && i < t->n; i++)
		n += count_stacks(t->fields[i]);
	return n;
}

static bool is_number(const struct trace_type *t)
{
	return t->kind == TRACE_INT || t->kind == TRACE_COUNT || t->kind == TRACE_SUM;
}

static int add_row(struct making *m, const struct trace_map *map, const u8 *key, s64 value)
{
	u32 stack = 0;
	int r;

	vec_clear(&m->stack);
	vec_clear(&m->rest);
	r = add_parts(m, &map->key, key, TRACE_KSTACK);
	if (r == 0)
		r = add_parts(m, &map->key, key, TRACE_USTACK);
	if (r == 0)
		r = add_parts(m, &map->key, key, TRACE_NONE);
	for (size_t i = m->rest.n; i > 0 && r == 0; i--)
		r = vec_push(&m->stack, m->rest.data[i - 1]);
	if (r == 0)
		r = profile_add_stack(m->to, m->stack.data, m->stack.n, &stack);
	if (r == 0 && map->value.kind == TRACE_COUNT && value > 0)
		profile_count_quality(m->to, stack, (u64)value);
	return r < 0 ? r : profile_add_sample(m->to, 0, PROFILE_NONE, stack, &value);
}

bool trace_map_is_profile(const struct trace_map *m)
{
	return count_stacks(&m->key) && is_number(&m->value);
}

int trace_map_profile(const struct trace_printer *p, u32 map, const struct trace_entries *e,
		      struct profile **ret, struct diag *d)
{
	const struct trace_map *of = &p->program->maps.data[map];
	_cleanup_profile_ struct profile *to = NULL;
	struct making m = {.p = p};
	struct trace_rows rows;
	int r;

	if (!trace_map_is_profile(of))
		return diag_set(d, -EINVAL,
				"@%s is no flame graph: its key has no stack, or its value is no "
				"count and no sum",
				of->name);
	to = m.to = profile_create();
	r = to ? trace_rows_init(&rows, p, of, e) : -ENOMEM;
	if (!to)
		return r;
	if (r == 0)
		r = profile_add_table_type(to, SAMPLE_TYPE_RAW_EVENTS);
	for (size_t i = 0; i < rows.n && r == 0; i++)
		r = add_row(&m, of, trace_row_key(&rows, i),
			    (s64)trace_word(trace_row_value(&rows, i), 0));
	trace_rows_deinit(&rows);
	map_deinit(&m.frames);
	vec_deinit(&m.stack);
	vec_deinit(&m.rest);
	if (r == 0)
		*ret = take_ptr(to);
	return r < 0 ? diag_set(d, r, "%s", strerror(-r)) : 0;
}
