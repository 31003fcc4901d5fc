/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded stacks, as doc/format/folded.md has them: one line a stack, root first, a count at the
 * end. Written lines are sorted bytewise, so that equal profiles are equal files.
 */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/vocab.h"
#include "format/internal.h"

/* ---- writing ---- */

struct lines {
	struct strtab text;
	vec(s64) value[2]; /* by string id: after (or the only one), before */
};

static void lines_deinit(struct lines *l)
{
	strtab_deinit(&l->text);
	vec_deinit(&l->value[0]);
	vec_deinit(&l->value[1]);
}

/*
 * Where the last name ends in a space and a number, a reader could take the number for a first
 * count: the space becomes a '_'.
 */
static void mend_count_like_end(struct str *line)
{
	size_t i = line->n;

	while (i > 0 && (isdigit((u8)line->data[i - 1]) || line->data[i - 1] == '.'))
		i--;
	if (i < line->n && i > 0 && line->data[i - 1] == '-')
		i--;
	if (i < line->n && i > 0 && line->data[i - 1] == ' ')
		line->data[i - 1] = '_';
}

static void append_name(struct str *line, const char *separator, const char *name)
{
	size_t begin;

	if (line->n)
		str_puts(line, separator);
	begin = line->n;
	text_append_clean(line, name, ':');
	if (line->n == begin)
		str_puts(line, "[unknown]");
}

struct line_writer {
	struct lines *lines;
	const struct profile_write_options *o;
	struct profile_tree_options tree; /* of `o`, with waits if it annotates */
	struct profile_head head;
	const char *separator; /* of names */
	struct str line, scratch;
};

static void line_writer_deinit(struct line_writer *w)
{
	profile_head_deinit(&w->head);
	str_deinit(&w->line);
	str_deinit(&w->scratch);
}

static void append_head(struct line_writer *w)
{
	for (size_t i = 0; i < w->head.n; i++)
		append_name(&w->line, w->separator, str_get(&w->head.name[i]));
}

/* gala-gopher's tag of a frame. */
static const char *gala_tag(const struct profile_frame *f)
{
	switch (f->kind) {
	case FRAME_KERNEL:
		return "[k]";
	case FRAME_PYTHON:
		return "[p]";
	case FRAME_JAVA:
		return "[j]";
	case FRAME_NOTE:
	case FRAME_WAIT:
		return "";
	default:
		return "[u]";
	}
}

static void append_wait(struct line_writer *w, const struct profile *p, u32 thread)
{
	enum wait wait = profile_wait_leaf(p, thread, &w->tree);

	if (wait)
		str_printf(&w->line, "%s[%s]", w->line.n ? w->separator : "",
			   vocab_wait(wait)->name);
}

static void append_frame(struct line_writer *w, const struct profile *p, u32 id)
{
	const struct profile_frame *f = &p->frames.data[id];

	if (profile_frame_dropped(f, &w->o->tree))
		return;
	append_name(&w->line, w->separator, profile_frame_name(p, id, &w->scratch));
	str_puts(&w->line, w->o->gala ? gala_tag(f) : profile_frame_suffix(f, w->o->annotate));
}

static void make_line(struct line_writer *w, const struct profile *p, const struct profile_group *g)
{
	const struct profile_stack *s = &p->stacks.data[g->stack];
	const u32 *ids = s->n ? p->stack_frames.data + s->first : NULL;

	str_clear(&w->line);
	profile_head_set(&w->head, p, g->thread, &w->o->tree);
	if (!w->o->tree.inverted) {
		append_head(w);
		for (u32 i = s->n; i > 0; i--)
			append_frame(w, p, ids[i - 1]);
		append_wait(w, p, g->thread);
	} else {
		append_wait(w, p, g->thread);
		for (u32 i = 0; i < s->n; i++)
			append_frame(w, p, ids[i]);
		for (size_t i = w->head.n; i > 0; i--)
			append_name(&w->line, w->separator, str_get(&w->head.name[i - 1]));
	}
	if (!w->line.n)
		str_puts(&w->line, "[unknown]");
	if (!w->line.failed)
		mend_count_like_end(&w->line);
}

static int add_lines(struct lines *l, const struct profile *p,
		     const struct profile_write_options *o, int side)
{
	__attribute__((cleanup(line_writer_deinit))) struct line_writer w = {
		.lines = l, .o = o, .tree = o->tree, .separator = o->gala ? "; " : ";"};
	_cleanup_groups_ struct profile_groups g = {};
	u32 type = p->default_type < p->n_types ? p->default_type : 0, id;
	int r = profile_groups_build(p, false, &g);

	w.tree.waits = o->annotate;
	for (size_t i = 0; i < g.group.n && r == 0; i++) {
		make_line(&w, p, &g.group.data[i]);
		if (w.line.failed)
			return -ENOMEM;
		r = strtab_add(&l->text, w.line.data, w.line.n, &id);
		for (int k = 0; k < 2 && r == 0; k++)
			while (l->value[k].n <= id && r == 0)
				r = vec_push(&l->value[k], 0);
		if (r == 0)
			l->value[side].data[id] += g.value.data[i * g.n_types + type];
	}
	return r;
}

/* The time of waits is counted in microseconds, all else as it is; with `gala` all times. */
static double counts_per_value(const struct profile *p, const struct profile_write_options *o)
{
	u32 t = p->default_type < p->n_types ? p->default_type : 0;
	enum sample_type type = profile_table_type(p, t);
	u64 per_second = o->gala || type == SAMPLE_TYPE_OFF_CPU || type == SAMPLE_TYPE_WALL
				 ? vocab_per_second(profile_string(p, p->types[t].unit))
				 : 0;

	return per_second ? 1e6 / (double)per_second : 1;
}

static void scale_lines(struct lines *l, int side, double factor)
{
	if (factor == 1)
		return;
	vec_foreach (&l->value[side], v)
		*v = __builtin_llround((double)*v * factor);
}

static void normalize_before(struct lines *l)
{
	double before = 0, after = 0;

	vec_foreach (&l->value[0], v)
		after += (double)*v;
	vec_foreach (&l->value[1], v)
		before += (double)*v;
	if (before <= 0 || after <= 0)
		return;
	vec_foreach (&l->value[1], v)
		*v = __builtin_llround((double)*v * (after / before));
}

static __thread const struct strtab *sort_text; /* qsort's compare takes no argument */

static int compare_lines(const void *a, const void *b)
{
	return strcmp(strtab_get(sort_text, *(const u32 *)a),
		      strtab_get(sort_text, *(const u32 *)b));
}

static int append_lines(const struct lines *l, bool diff, struct str *out)
{
	_cleanup_free_ u32 *order = calloc(l->text.n, sizeof(u32));
	size_t n = 0;

	if (!order)
		return -ENOMEM;
	for (u32 id = 1; id < l->text.n; id++)
		if (l->value[0].data[id] || l->value[1].data[id])
			order[n++] = id;
	sort_text = &l->text;
	qsort(order, n, sizeof(u32), compare_lines);
	for (size_t i = 0; i < n; i++) {
		str_puts(out, strtab_get(&l->text, order[i]));
		if (diff)
			str_printf(out, " %lld", l->value[1].data[order[i]]);
		str_printf(out, " %lld\n", l->value[0].data[order[i]]);
	}
	return out->failed ? -ENOMEM : 0;
}

int folded_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
		 struct diag *reterr_diag)
{
	__attribute__((cleanup(lines_deinit))) struct lines l = {};
	int r = strtab_init(&l.text);

	if (r == 0)
		r = add_lines(&l, p, o, 0);
	if (r == 0 && o->base)
		r = add_lines(&l, o->base, o, 1);
	scale_lines(&l, 0, counts_per_value(p, o));
	if (o->base)
		scale_lines(&l, 1, counts_per_value(o->base, o));
	if (r == 0 && o->base && o->normalize)
		normalize_before(&l);
	return r < 0 ? r : append_lines(&l, o->base != NULL, out);
}

/* ---- reading ---- */

/*
 * Takes the last space-separated number off the line. A fraction is kept in ret_fraction, in
 * millionths. False, and nothing changed, when the line does not end in a number.
 */
static bool take_count(const char *s, size_t *n, s64 *ret_count, u32 *ret_fraction)
{
	size_t end = *n, i;
	u32 fraction = 0, scale = 1000000;
	bool minus, dot = false;
	s64 v = 0;

	for (i = end; i > 0 && (isdigit((u8)s[i - 1]) || s[i - 1] == '.');)
		i--;
	minus = i > 0 && s[i - 1] == '-';
	if (i == end || s[i] == '.' || i - minus == 0 ||
	    (s[i - minus - 1] != ' ' && s[i - minus - 1] != '\t'))
		return false;
	for (size_t k = i; k < end; k++) {
		if (s[k] == '.') {
			if (dot)
				return false;
			dot = true;
		} else if (dot) {
			scale /= 10;
			fraction += scale * (u32)(s[k] - '0');
		} else if (__builtin_mul_overflow(v, 10, &v) ||
			   __builtin_add_overflow(v, s[k] - '0', &v)) {
			return false;
		}
	}
	*n = i - minus;
	while (*n > 0 && (s[*n - 1] == ' ' || s[*n - 1] == '\t'))
		--*n;
	*ret_count = minus ? -v : v;
	*ret_fraction = fraction;
	return true;
}

struct folded_reader {
	struct profile *p; /* owned */
	struct map frames; /* string id of the text → frame */
	struct map heads;  /* string id of the text → thread */
	vec(u32) ids;
	u64 line;
	u64 carry;    /* millionths not yet counted */
	u32 n_counts; /* a line: 1, or 2 in a diff */
	struct diag *diag;
};

static void folded_reader_deinit(struct folded_reader *f)
{
	profile_destroy(f->p);
	map_deinit(&f->frames);
	map_deinit(&f->heads);
	vec_deinit(&f->ids);
}

/* Looks a text up in one of the maps; `add` makes it when it is new. */
static int cached(struct folded_reader *f, struct map *m, const char *s, size_t n,
		  int (*add)(struct profile *, const char *, size_t, u32 *), u32 *ret)
{
	u32 text, id;
	u64 *known;
	int r = profile_add_string(f->p, s, n, &text);

	if (r < 0)
		return r;
	known = map_get(m, text);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	r = add(f->p, s, n, &id);
	if (r == 0)
		r = map_put(m, text, id);
	if (r == 0)
		*ret = id;
	return r;
}

/* Frames carry suffixes and process names do not: such a line starts with its root frame. */
static bool is_frame_text(const char *s, size_t n)
{
	return n > 4 && s[n - 1] == ']' && s[n - 4] == '_' && s[n - 3] == '[' &&
	       strchr("kij", s[n - 2]);
}

/* The length of the name at s, up to its semicolon. */
static size_t name_length(const char *s, size_t n)
{
	const char *semicolon = memchr(s, ';', n);

	return semicolon ? (size_t)(semicolon - s) : n;
}

/*
 * Finds what stands above the frames: pod and container, if they are named, and the process,
 * unless the next name is a frame's. False: nothing does. *ret_n: without the semicolon behind it.
 */
static bool find_head(const char *s, size_t n, size_t *ret_n)
{
	bool any = false;
	size_t i = 0;

	for (;;) {
		size_t name_n, root_n;

		i += i < n && s[i] == ' ';
		name_n = name_length(s + i, n - i);
		root_n = profile_root_prefix(s + i, name_n);
		if (!root_n && is_frame_text(s + i, name_n))
			return any;
		any = true;
		i += name_n;
		*ret_n = i;
		if (!root_n || i == n)
			return true;
		i++;
	}
}

static int read_stack(struct folded_reader *f, const char *s, size_t n, u32 *ret_thread,
		      u32 *ret_stack)
{
	u32 thread = PROFILE_NONE, id;
	size_t i = 0;
	int r = 0;

	vec_clear(&f->ids);
	if (find_head(s, n, &i))
		r = cached(f, &f->heads, s, i++, profile_add_head_text, &thread);
	while (i <= n && r == 0) {
		size_t name_n;

		i += i < n && s[i] == ' ';
		name_n = name_length(s + i, n - i);
		r = cached(f, &f->frames, s + i, name_n, profile_add_frame_text, &id);
		if (r == 0)
			r = vec_push(&f->ids, id);
		i += name_n + 1;
	}
	if (r < 0)
		return r;
	for (size_t k = 0; k < f->ids.n / 2; k++) {
		id = f->ids.data[k];
		f->ids.data[k] = f->ids.data[f->ids.n - 1 - k];
		f->ids.data[f->ids.n - 1 - k] = id;
	}
	*ret_thread = thread;
	return profile_add_stack(f->p, f->ids.data, f->ids.n, ret_stack);
}

/* Fractions are carried from line to line: the sum is right, each line within one. */
static s64 with_carry(struct folded_reader *f, s64 count, u32 fraction)
{
	f->carry += fraction;
	if (f->carry >= 1000000 && count < INT64_MAX) {
		f->carry -= 1000000;
		count++;
	}
	return count;
}

static int read_line(struct folded_reader *f, const char *s, size_t n)
{
	s64 count[2] = {};
	u32 fraction = 0, thread, stack;
	int r;

	if (memchr(s, '\0', n))
		return diag_set(f->diag, -EBADMSG, "line %llu has a NUL byte in it", f->line);
	for (u32 i = f->n_counts; i > 0; i--)
		if (!take_count(s, &n, &count[i - 1], &fraction))
			return diag_set(f->diag, -EBADMSG,
					"line %llu does not end in a space and a count", f->line);
	if (f->n_counts == 1)
		count[0] = with_carry(f, count[0], fraction);
	r = read_stack(f, s, n, &thread, &stack);
	if (r == 0)
		r = profile_add_sample(f->p, 0, thread, stack, count);
	if (r == -ERANGE)
		return diag_set(f->diag, r, "line %llu: counts add up to more than 63 bits",
				f->line);
	return r;
}

/* Text after a '#', without a count behind it; or a header with a number: "# interval: 100". */
static bool is_comment(const char *s, size_t n)
{
	s64 count;
	u32 fraction;

	return s[0] == '#' && (!take_count(s, &n, &count, &fraction) ||
			       (n > 2 && s[1] == ' ' && s[n - 1] == ':' && !memchr(s, ';', n)));
}

/* Cuts the next line off; false at the end. Empty lines and comments are passed over. */
static bool next_line(const char **pos, const char *end, u64 *line, const char **ret_s,
		      size_t *ret_n)
{
	while (*pos < end) {
		const char *s = *pos, *nl = memchr(s, '\n', (size_t)(end - s));
		size_t n = (size_t)((nl ? nl : end) - s);

		*pos = nl ? nl + 1 : end;
		++*line;
		while (n > 0 && (s[n - 1] == '\r' || s[n - 1] == ' ' || s[n - 1] == '\t'))
			n--;
		*ret_n = n;
		if (!n || is_comment(s, n))
			continue;
		*ret_s = s;
		return true;
	}
	return false;
}

/* 2 when every line has two numbers at its end, as in a diff. */
static u32 counts_per_line(const char *data, size_t n)
{
	const char *pos = data, *s;
	u64 line = 0, lines = 0;
	u32 fraction;
	size_t len;
	s64 count;

	for (; next_line(&pos, data + n, &line, &s, &len); lines++)
		if (!take_count(s, &len, &count, &fraction) ||
		    !take_count(s, &len, &count, &fraction))
			return 1;
	return lines ? 2 : 1;
}

int folded_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(folded_reader_deinit))) struct folded_reader f = {
		.p = profile_create(),
		.n_counts = counts_per_line((const char *)data, n),
		.diag = reterr_diag,
	};
	const char *pos = (const char *)data, *s;
	size_t len;
	int r;

	if (!f.p)
		return -ENOMEM;
	r = profile_add_table_type(f.p, f.n_counts == 2 ? SAMPLE_TYPE_BEFORE : SAMPLE_TYPE_SAMPLES);
	if (r == 0 && f.n_counts == 2) {
		r = profile_add_table_type(f.p, SAMPLE_TYPE_AFTER);
		f.p->default_type = 1;
	}
	while (r == 0 && next_line(&pos, (const char *)data + n, &f.line, &s, &len))
		r = read_line(&f, s, len);
	if (r < 0)
		return r;
	if (!f.p->n_samples)
		return diag_set(reterr_diag, -EBADMSG, "no stacks in it");
	profile_derive_quality(f.p);
	*ret = take_ptr(f.p);
	return 0;
}

int folded_probe(const u8 *data, size_t n)
{
	const char *pos = (const char *)data, *s;
	u64 line = 0;
	u32 fraction;
	size_t len;
	s64 count;
	int good = 0;

	if (memchr(data, '\0', MIN(n, (size_t)4096)))
		return 0;
	while (good < 10 && next_line(&pos, (const char *)data + n, &line, &s, &len)) {
		/* The number alone is no stack. */
		if (!take_count(s, &len, &count, &fraction) || !len)
			return good ? 5 : 0;
		good++;
	}
	return good ? 60 : 0;
}
