/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hot lines. A stack counts once for a function and once for each of its lines, however often the
 * function calls itself: no line can have more than its function. Of lines with one value the first
 * of the file is the hot one.
 */
#include "format/hot_lines.h"

#include <errno.h>
#include <stdlib.h>

/* What stacks are added to: a function, or one line of it. */
struct tally {
	u32 row;
	u32 line;
	u32 seen; /* id + 1 of the stack that counted it last */
	s64 value;
};

struct counting {
	const struct profile *p;
	struct profile_hot_lines *out;
	vec(struct tally) tallies;
	struct map of;	   /* row << 32 | line → index of `tallies`; line 0: the function */
	u32 *row_of_frame; /* owned; PROFILE_NONE: no function or no file */
	s64 *values;	   /* owned; by stack */
};

static void counting_deinit(struct counting *c)
{
	vec_deinit(&c->tallies);
	map_deinit(&c->of);
	free(c->row_of_frame);
	free(c->values);
}

void profile_hot_lines_deinit(struct profile_hot_lines *h)
{
	map_deinit(&h->functions);
	vec_deinit(&h->rows);
}

static bool key_of(const struct profile *p, u32 frame, u64 *ret)
{
	const struct profile_function *f;

	if (frame >= p->frames.n || p->frames.data[frame].function >= p->functions.n)
		return false;
	f = &p->functions.data[p->frames.data[frame].function];
	*ret = (u64)f->name << 32 | f->file;
	return *profile_string(p, f->file) != '\0';
}

static int find_row(struct counting *c, u32 frame, u32 *ret)
{
	u64 key, *known;

	*ret = PROFILE_NONE;
	if (!key_of(c->p, frame, &key))
		return 0;
	known = map_get(&c->out->functions, key);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	*ret = (u32)c->out->rows.n;
	if (map_put(&c->out->functions, key, *ret) < 0)
		return -ENOMEM;
	return vec_push(&c->out->rows, (struct profile_hot_line){});
}

static int count(struct counting *c, u32 row, u32 line, u32 stack)
{
	u64 key = (u64)row << 32 | line, *known = map_get(&c->of, key);
	struct tally *t;
	int r = 0;

	if (!known) {
		r = map_put(&c->of, key, c->tallies.n);
		if (r == 0)
			r = vec_push(&c->tallies, (struct tally){.row = row, .line = line});
		if (r < 0)
			return r;
		known = map_get(&c->of, key);
	}
	t = &c->tallies.data[*known];
	if (t->seen != stack + 1 && __builtin_add_overflow(t->value, c->values[stack], &t->value))
		return -ERANGE;
	t->seen = stack + 1;
	return 0;
}

static int count_stack(struct counting *c, u32 stack)
{
	const struct profile_stack *s = &c->p->stacks.data[stack];
	int r = 0;

	for (u32 i = 0; i < s->n && c->values[stack] && r == 0; i++) {
		u32 frame = c->p->stack_frames.data[s->first + i];
		u32 row = c->row_of_frame[frame], line = c->p->frames.data[frame].line;

		if (row == PROFILE_NONE)
			continue;
		r = count(c, row, 0, stack);
		if (r == 0 && line)
			r = count(c, row, line, stack);
	}
	return r;
}

static void choose(struct counting *c)
{
	vec_foreach (&c->tallies, t) {
		struct profile_hot_line *row = &c->out->rows.data[t->row];

		if (!t->line) {
			row->total = t->value;
		} else if (t->value > row->value ||
			   (t->value == row->value && row->line > t->line)) {
			row->value = t->value;
			row->line = t->line;
		}
	}
}

static int sum_stacks(struct counting *c)
{
	const struct profile *p = c->p;
	u32 type = p->default_type < p->n_types ? p->default_type : 0;

	for (size_t i = 0; i < p->n_samples && p->n_types; i++) {
		const struct profile_sample *s = profile_sample(p, i);
		s64 *sum = &c->values[s->stack];

		if (__builtin_add_overflow(*sum, s->value[type], sum))
			return -ERANGE;
	}
	return 0;
}

int profile_hot_lines_build(const struct profile *p, struct profile_hot_lines *ret)
{
	struct profile_hot_lines out = {};
	__attribute__((cleanup(counting_deinit))) struct counting c = {.p = p, .out = &out};
	int r = 0;

	c.row_of_frame = calloc(p->frames.n + 1, sizeof(u32));
	c.values = calloc(p->stacks.n + 1, sizeof(s64));
	if (!c.row_of_frame || !c.values)
		r = -ENOMEM;
	for (u32 i = 0; i < p->frames.n && !p->quality.one_line && r == 0; i++)
		r = find_row(&c, i, &c.row_of_frame[i]);
	if (r == 0)
		r = sum_stacks(&c);
	for (u32 i = 0; i < p->stacks.n && out.rows.n && r == 0; i++)
		r = count_stack(&c, i);
	if (r < 0) {
		profile_hot_lines_deinit(&out);
		return r;
	}
	choose(&c);
	*ret = out;
	return 0;
}

const struct profile_hot_line *profile_hot_lines_of(const struct profile_hot_lines *h,
						    const struct profile *p, u32 frame)
{
	u64 key, *row = key_of(p, frame, &key) ? map_get(&h->functions, key) : NULL;

	return row ? &h->rows.data[*row] : NULL;
}
