/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes speedscope's JSON: one profile with the process as the root frame of every stack; with
 * --threads one profile per thread, in which samples with times stay in their order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/vocab.h"
#include "format/internal.h"

struct item {
	u64 time_ns;
	u32 thread, stack;
	enum wait wait;
	s64 value;
};

struct speedscope_writer {
	const struct profile *p;
	const struct profile_write_options *o;
	struct json_writer json;
	struct profile_tree_options tree; /* o->tree without the thread level */
	struct profile_head head;
	struct str scratch;
	/*
	 * JSON of shared.frames, each once: for speedscope a frame is a function, while a profile
	 * has a frame for each address. Ids begin with 1.
	 */
	struct strtab texts;
	struct str text;
	vec(u32) frames; /* profile frame → index in shared.frames; PROFILE_NONE: none yet */
	vec(struct item) items;
};

static void writer_deinit(struct speedscope_writer *w)
{
	profile_head_deinit(&w->head);
	str_deinit(&w->scratch);
	strtab_deinit(&w->texts);
	str_deinit(&w->text);
	vec_deinit(&w->frames);
	vec_deinit(&w->items);
}

/* speedscope has the same names for units as abi/tbl/unit.tbl, but calls a count "none". */
static const char *unit_name(const struct profile *p)
{
	const char *unit = profile_string(p, p->types[p->default_type].unit);

	return vocab_per_second(unit) || !strcmp(unit, vocab_unit(UNIT_BYTES)) ? unit : "none";
}

/* Returns the frame's index in shared.frames. */
static int add_frame(struct speedscope_writer *w, const char *name, const char *suffix,
		     const struct profile_frame *f, u32 *ret)
{
	struct json_writer j = {.out = &w->text};
	_cleanup_str_ struct str shown = {};
	u32 id;
	int r;

	str_clear(&w->text);
	text_append_clean(&shown, name, 0);
	str_puts(&shown, suffix);
	json_open_object(&j, NULL);
	json_put_exact(&j, "name", str_get(&shown));
	if (f && f->function < w->p->functions.n) {
		const char *file = profile_string(w->p, w->p->functions.data[f->function].file);

		if (*file)
			json_put_text(&j, "file", file);
		if (f->line)
			json_put_u64(&j, "line", f->line);
		if (f->line && f->column)
			json_put_u64(&j, "col", f->column);
	}
	json_close(&j);
	r = shown.failed || w->text.failed ? -ENOMEM
					   : strtab_add(&w->texts, w->text.data, w->text.n, &id);
	if (r == 0)
		*ret = id - 1;
	return r;
}

static int own_frame(struct speedscope_writer *w, u32 id, u32 *ret)
{
	const struct profile_frame *f = &w->p->frames.data[id];
	int r = 0;

	if (w->frames.data[id] == PROFILE_NONE)
		r = add_frame(w, profile_frame_name(w->p, id, &w->scratch),
			      profile_frame_suffix(f, w->o->annotate), f, &w->frames.data[id]);
	*ret = w->frames.data[id];
	return r;
}

static int put_wait(struct speedscope_writer *w, enum wait wait)
{
	_cleanup_str_ struct str name = {};
	u32 id;
	int r;

	if (!wait)
		return 0;
	str_printf(&name, "[%s]", vocab_wait(wait)->name);
	r = add_frame(w, str_get(&name), "", NULL, &id);
	if (r == 0)
		json_put_u64(&w->json, NULL, id);
	return r;
}

/* [process, root, ..., leaf, what it waited for] */
static int put_stack(struct speedscope_writer *w, const struct item *it)
{
	const struct profile_stack *s = &w->p->stacks.data[it->stack];
	int r = 0;
	u32 id;

	json_open_array(&w->json, NULL);
	profile_head_set(&w->head, w->p, it->thread, &w->tree);
	for (size_t i = 0; i < w->head.n && r == 0; i++) {
		r = add_frame(w, str_get(&w->head.name[i]), "", NULL, &id);
		if (r == 0)
			json_put_u64(&w->json, NULL, id);
	}
	for (u32 i = s->n; i > 0 && r == 0; i--) {
		u32 frame = w->p->stack_frames.data[s->first + i - 1];

		if (profile_frame_dropped(&w->p->frames.data[frame], &w->o->tree))
			continue;
		r = own_frame(w, frame, &id);
		if (r == 0)
			json_put_u64(&w->json, NULL, id);
	}
	if (r == 0)
		r = put_wait(w, it->wait);
	json_close(&w->json);
	return r;
}

static int put_profile(struct speedscope_writer *w, const char *name, size_t from, size_t to)
{
	s64 sum = 0;
	int r = 0;

	for (size_t i = from; i < to; i++)
		sum += w->items.data[i].value;
	json_open_object(&w->json, NULL);
	json_put_text(&w->json, "type", "sampled");
	json_put_text(&w->json, "name", name);
	json_put_text(&w->json, "unit", unit_name(w->p));
	json_put_u64(&w->json, "startValue", 0);
	json_put_s64(&w->json, "endValue", sum);
	json_open_array(&w->json, "samples");
	for (size_t i = from; i < to && r == 0; i++)
		r = put_stack(w, &w->items.data[i]);
	json_close(&w->json);
	json_open_array(&w->json, "weights");
	for (size_t i = from; i < to; i++)
		json_put_s64(&w->json, NULL, w->items.data[i].value);
	json_close(&w->json);
	json_close(&w->json);
	return r;
}

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	return x->time_ns != y->time_ns ? (x->time_ns < y->time_ns ? -1 : 1) : 0;
}

static int collect_timed(struct speedscope_writer *w)
{
	_cleanup_free_ u32 *threads = NULL;
	int r = profile_same_threads(w->p, &threads);

	for (size_t i = 0; i < w->p->n_samples && r == 0; i++) {
		const struct profile_sample *s = profile_sample(w->p, i);
		u32 thread = s->thread < w->p->threads.n ? threads[s->thread] : s->thread;
		struct item it = {s->time_ns, thread, s->stack,
				  profile_wait_leaf(w->p, s->thread, &w->tree),
				  s->value[w->p->default_type]};

		r = it.value > 0 ? vec_push(&w->items, it) : 0;
	}
	if (w->items.n)
		qsort(w->items.data, w->items.n, sizeof(*w->items.data), compare_items);
	return r;
}

static int collect_groups(struct speedscope_writer *w)
{
	_cleanup_groups_ struct profile_groups g = {};
	int r = profile_groups_build(w->p, false, &g);

	for (size_t i = 0; i < g.group.n && r == 0; i++) {
		struct item it = {0, g.group.data[i].thread, g.group.data[i].stack,
				  profile_wait_leaf(w->p, g.group.data[i].thread, &w->tree),
				  g.value.data[i * g.n_types + w->p->default_type]};

		r = it.value > 0 ? vec_push(&w->items, it) : 0;
	}
	return r;
}

static void thread_title(const struct profile *p, u32 thread, struct str *out)
{
	const struct profile_thread *t;

	str_clear(out);
	if (thread >= p->threads.n) {
		str_puts(out, "unknown thread");
		return;
	}
	t = &p->threads.data[thread];
	str_puts(out, profile_string(p, t->comm));
	if (t->pid || t->tid)
		str_printf(out, " %u/%u", t->pid, t->tid);
	if (t->thread_name && t->thread_name != t->comm)
		str_printf(out, " %s", profile_string(p, t->thread_name));
}

static int put_profiles(struct speedscope_writer *w)
{
	_cleanup_str_ struct str title = {};
	int r = w->o->tree.threads ? collect_timed(w) : collect_groups(w);
	size_t from = 0;

	if (r == 0 && !w->o->tree.threads)
		return put_profile(w, "all processes", 0, w->items.n);
	for (size_t i = 1; i <= w->items.n && r == 0; i++) {
		if (i < w->items.n && w->items.data[i].thread == w->items.data[from].thread)
			continue;
		thread_title(w->p, w->items.data[from].thread, &title);
		r = put_profile(w, str_get(&title), from, i);
		from = i;
	}
	return r;
}

int speedscope_write(const struct profile *p, const struct profile_write_options *o,
		     struct str *out, struct diag *reterr_diag)
{
	__attribute__((cleanup(writer_deinit))) struct speedscope_writer w = {
		.p = p, .o = o, .json = {.out = out}, .tree = o->tree};
	const char *title = o->title ? o->title : profile_string(p, p->title);
	struct json_writer *j = &w.json;
	int r;

	if (o->base)
		return diag_set(reterr_diag, -ENOTSUP, "speedscope cannot hold a diff");
	if (p->default_type >= p->n_types)
		return diag_set(reterr_diag, -EINVAL, "a profile without values");
	w.tree.threads = false;
	w.tree.waits = true;
	r = strtab_init(&w.texts);
	if (r == 0)
		r = vec_reserve(&w.frames, p->frames.n + 1);
	for (size_t i = 0; i < p->frames.n && r == 0; i++)
		r = vec_push(&w.frames, PROFILE_NONE);
	json_open_object(j, NULL);
	json_put_text(j, "$schema", "https://www.speedscope.app/file-format-schema.json");
	json_put_text(j, "exporter", "culprit@" CULPRIT_VERSION);
	json_put_text(j, "name", *title ? title : "culprit");
	json_put_u64(j, "activeProfileIndex", 0);
	json_open_array(j, "profiles");
	if (r == 0)
		r = put_profiles(&w);
	json_close(j);
	json_open_object(j, "shared");
	json_open_array(j, "frames");
	for (u32 id = 1; r == 0 && id < w.texts.n; id++)
		json_put_written(j, NULL, strtab_get(&w.texts, id));
	json_close(j);
	json_close(j);
	json_close(j);
	str_putc(out, '\n');
	return r < 0 ? r : out->failed ? -ENOMEM : 0;
}
