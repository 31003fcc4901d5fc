/* SPDX-License-Identifier: Apache-2.0 */
/* Functions with self and total, the uncertainty of a share, and the line about quality. */
#include "profile/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/quota.h"
#include "base/text.h"
#include "profile/writer.h"

struct frame_values {
	s64 self, total;
};

struct table_builder {
	struct profile_table *t; /* owned */
	struct map ids[2];	 /* by kernel: name << 32 | object → row */
	vec(u64) seen;		 /* indexed by row: number of the group that counted it last */
	u32 *frame_rows;	 /* owned; indexed by frame, PROFILE_NONE = not made yet */
	struct frame_values *of; /* owned; indexed by frame */
	struct str scratch;
};

static void table_builder_deinit(struct table_builder *b)
{
	profile_table_destroy(b->t);
	map_deinit(&b->ids[0]);
	map_deinit(&b->ids[1]);
	vec_deinit(&b->seen);
	free(b->frame_rows);
	free(b->of);
	str_deinit(&b->scratch);
}

void profile_table_destroy(struct profile_table *t)
{
	if (!t)
		return;
	strtab_deinit(&t->strings);
	vec_deinit(&t->rows);
	free(t);
}

static int row_for(struct table_builder *b, const char *name, const char *object, u8 kind, u32 *ret)
{
	struct profile_row row = {.kind = kind};
	struct map *ids = &b->ids[kind == FRAME_KERNEL];
	u64 key, *known;
	int r = strtab_add(&b->t->strings, name, strlen(name), &row.name);

	if (r == 0)
		r = strtab_add(&b->t->strings, object, strlen(object), &row.object);
	if (r < 0)
		return r;
	key = (u64)row.name << 32 | row.object;
	known = map_get(ids, key);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	if (b->t->rows.n >= PROFILE_NONE - 1)
		return -E2BIG;
	if (map_put(ids, key, b->t->rows.n) < 0 || vec_push(&b->t->rows, row) < 0 ||
	    vec_push(&b->seen, 0) < 0)
		return -ENOMEM;
	*ret = (u32)b->t->rows.n - 1;
	return 0;
}

static int row_of_frame(struct table_builder *b, const struct profile *p, u32 id, u32 *ret)
{
	const struct profile_frame *f = &p->frames.data[id];
	const char *object = "";
	int r;

	if (b->frame_rows[id] == PROFILE_NONE) {
		if (f->mapping < p->mappings.n)
			object = profile_basename(
				profile_string(p, p->mappings.data[f->mapping].path));
		r = row_for(b, profile_frame_name(p, id, &b->scratch), object, f->kind,
			    &b->frame_rows[id]);
		if (r < 0)
			return r;
	}
	*ret = b->frame_rows[id];
	return 0;
}

static void add_self(struct profile_row *row, s64 value, double variance)
{
	row->self += value;
	row->self_variance += variance;
}

static void add_total(struct profile_row *row, s64 value, double variance)
{
	row->total += value;
	row->total_variance += variance;
}

static int count_group(struct table_builder *b, const struct profile *p,
		       const struct profile_tree_options *o, u32 stack, u64 group, s64 value,
		       double variance)
{
	const struct profile_stack *s = &p->stacks.data[stack];
	bool leaf = true;
	u32 row;
	int r;

	for (u32 i = 0; i < s->n; i++) {
		u32 id = p->stack_frames.data[s->first + i];

		if (profile_frame_dropped(&p->frames.data[id], o))
			continue;
		r = row_of_frame(b, p, id, &row);
		if (r < 0)
			return r;
		if (leaf) {
			add_self(&b->t->rows.data[row], value, variance);
			b->of[id].self += value;
		}
		leaf = false;
		b->of[id].total += value;
		if (b->seen.data[row] == group)
			continue;
		b->seen.data[row] = group;
		add_total(&b->t->rows.data[row], value, variance);
	}
	if (!leaf)
		return 0;
	r = row_for(b, s->n ? "[other frames]" : "[no stack]", "", FRAME_NOTE, &row);
	if (r < 0)
		return r;
	add_self(&b->t->rows.data[row], value, variance);
	add_total(&b->t->rows.data[row], value, variance);
	return 0;
}

/* ---- the hottest line of each function ---- */

struct line_values {
	u32 row, file, line; /* file: of the profile's strings */
	struct frame_values v;
};

static int compare_lines(const void *a, const void *b)
{
	const struct line_values *x = a, *y = b;

	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->line > y->line) - (x->line < y->line);
}

static bool is_hotter(const struct line_values *x, const struct line_values *than)
{
	return x->v.self != than->v.self ? x->v.self > than->v.self : x->v.total > than->v.total;
}

/* The lines are those of one function. */
static int set_line(struct table_builder *b, const struct profile *p, struct line_values *lines,
		    size_t n)
{
	struct profile_row *row = &b->t->rows.data[lines->row];
	struct line_values *best = lines;
	const char *file;

	for (size_t i = 1, at = 0; i < n; i++) {
		if (compare_lines(&lines[i], &lines[at]) == 0) {
			lines[at].v.self += lines[i].v.self;
			lines[at].v.total += lines[i].v.total;
		} else {
			at = i;
		}
		if (is_hotter(&lines[at], best))
			best = &lines[at];
	}
	file = profile_string(p, best->file);
	row->line = best->line;
	return strtab_add(&b->t->strings, file, strlen(file), &row->file);
}

static int find_lines(struct table_builder *b, const struct profile *p)
{
	vec(struct line_values) lines = {};
	int r = 0;

	for (u32 i = 0; i < p->frames.n && r == 0; i++) {
		const struct profile_frame *f = &p->frames.data[i];
		struct line_values l = {.row = b->frame_rows[i], .line = f->line, .v = b->of[i]};

		if (!f->line || !l.v.total || f->function >= p->functions.n)
			continue;
		l.file = p->functions.data[f->function].file;
		r = vec_push(&lines, l);
	}
	if (lines.n)
		qsort(lines.data, lines.n, sizeof(*lines.data), compare_lines);
	for (size_t i = 0, n; i < lines.n && r == 0; i += n) {
		for (n = 1; i + n < lines.n && lines.data[i + n].row == lines.data[i].row; n++)
			;
		r = set_line(b, p, &lines.data[i], n);
	}
	vec_deinit(&lines);
	return r;
}

static __thread const struct strtab *sort_strings; /* qsort's compare takes no argument */

static int compare_rows(const void *a, const void *b)
{
	const struct profile_row *x = a, *y = b;

	if (x->self != y->self)
		return x->self > y->self ? -1 : 1;
	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return strcmp(strtab_get(sort_strings, x->name), strtab_get(sort_strings, y->name));
}

int profile_table_build(const struct profile *p, const struct profile_tree_options *o,
			struct profile_table **ret)
{
	static const struct profile_tree_options none = {};
	__attribute__((cleanup(table_builder_deinit))) struct table_builder b = {};
	_cleanup_groups_ struct profile_groups g = {};
	u32 type = p->default_type < p->n_types ? p->default_type : 0;
	int r;

	b.t = calloc(1, sizeof(*b.t));
	b.frame_rows = reallocarray(NULL, p->frames.n + 1, sizeof(u32));
	b.of = calloc(p->frames.n + 1, sizeof(*b.of));
	if (!b.t || !b.frame_rows || !b.of)
		return -ENOMEM;
	memset(b.frame_rows, 0xff, (p->frames.n + 1) * sizeof(u32));
	r = strtab_init(&b.t->strings);
	if (r == 0)
		r = profile_groups_build(p, false, &g);
	for (size_t i = 0; i < g.group.n && r == 0; i++) {
		s64 value = g.value.data[i * g.n_types + type];

		b.t->total += value;
		r = quota_check(NULL);
		if (r == 0)
			r = count_group(&b, p, o ? o : &none, g.group.data[i].stack, i + 1, value,
					g.variance.data[i]);
	}
	if (r == 0)
		r = find_lines(&b, p);
	if (r < 0)
		return r;
	sort_strings = &b.t->strings;
	if (b.t->rows.n)
		qsort(b.t->rows.data, b.t->rows.n, sizeof(*b.t->rows.data), compare_rows);
	*ret = take_ptr(b.t);
	return 0;
}

static __thread const s64 *sort_values; /* qsort's compare takes no argument */

static int compare_waits(const void *a, const void *b)
{
	enum wait x = *(const enum wait *)a, y = *(const enum wait *)b;

	if (sort_values[x] != sort_values[y])
		return sort_values[x] > sort_values[y] ? -1 : 1;
	return x < y ? -1 : x > y;
}

bool profile_waits_sum(const struct profile *p, struct profile_waits *ret)
{
	u32 count = profile_find_type(p, SAMPLE_TYPE_SAMPLES);
	struct profile_waits w = {.has_samples = count != PROFILE_NONE};

	if (p->default_type >= p->n_types || !profile_has_waits(p))
		return false;
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);
		enum wait wait = profile_wait(p, s->thread);

		w.value[wait] += s->value[p->default_type];
		w.samples[wait] += w.has_samples ? s->value[count] : 0;
	}
	for (enum wait k = 0; k < WAIT_N; k++)
		w.order[k] = k;
	sort_values = w.value;
	qsort(w.order, WAIT_N, sizeof(*w.order), compare_waits);
	*ret = w;
	return true;
}

u64 profile_sample_count(const struct profile *p)
{
	u32 t = profile_find_type(p, SAMPLE_TYPE_SAMPLES);
	s64 sum = 0;

	if (t == PROFILE_NONE)
		t = profile_find_type(p, SAMPLE_TYPE_AFTER);
	if (t == PROFILE_NONE)
		return p->quality.samples;
	for (size_t i = 0; i < p->n_samples; i++)
		sum += profile_sample(p, i)->value[t];
	return sum > 0 ? (u64)sum : 0;
}

bool profile_share_interval(double share, u64 n, double *ret_low, double *ret_high)
{
	const double z = 1.959963985; /* of the normal distribution, both tails 2.5 % */
	double count = (double)n, denominator, center, half;

	if (!n || !(share >= 0) || !(share <= 1))
		return false;
	denominator = 1 + z * z / count;
	center = (share + z * z / (2 * count)) / denominator;
	half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / denominator;
	*ret_low = MAX(center - half, 0.0);
	*ret_high = MIN(center + half, 1.0);
	return true;
}

double profile_sum_bound(double sum, double variance, double z)
{
	double draws = sum * sum / variance, shape = z > 0 ? draws + 1 : draws;
	/* Wilson and Hilferty 1931. */
	double root = 1 - 1 / (9 * shape) + z / (3 * sqrt(shape));

	return root > 0 ? sum * shape * root * root * root / draws : 0;
}

static void append_part(struct str *out, const char *what, u64 part, u64 of)
{
	str_puts(out, ", ");
	text_append_count(out, (s64)part);
	str_printf(out, " %s", what);
	if (of)
		str_printf(out, " (%.1f %%)", 100.0 * (double)part / (double)of);
}

void profile_quality_line(const struct profile *p, struct str *out)
{
	const struct profile_quality *q = &p->quality;
	u64 samples = profile_sample_count(p);

	if (!samples && !q->self) {
		str_puts(out, "number of samples not known");
		return;
	}
	text_append_count(out, (s64)samples);
	str_puts(out, samples == 1 ? " sample" : " samples");
	if (p->duration_ns)
		str_printf(out, " over %.1f s", (double)p->duration_ns / 1e9);
	if (q->measured || q->lost)
		append_part(out, "lost", q->lost, q->samples + q->lost);
	else
		str_puts(out, ", losses not known");
	append_part(out, "truncated", q->truncated, q->samples);
	append_part(out, "frames without a name", q->unknown, q->frames);
	if (q->self)
		append_part(out, "left out: culprit itself", q->self, q->samples + q->self);
}
