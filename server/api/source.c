/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source file with the values of its lines. Values come from the store, the text from this
 * machine, where it can be had: only what every user of it may read, because whoever asks here is
 * not whom the server runs as.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "server/api/internal.h"

#define MAX_FILE_BYTES (4 << 20)
#define MAX_LINE 1000000 /* beyond it is no line of a source */

/* ---- values ---- */

struct line {
	s64 self, total;
	u64 seen; /* the sample that counted it last, from 1 on */
};

struct lines {
	vec(struct line) all; /* by line, from 0 (not known) on */
	s64 self, total;      /* of the file; a sample counts once */
};

static struct line *line_at(struct lines *l, u32 line)
{
	while (l->all.n <= line)
		if (vec_push(&l->all, (struct line){}) < 0)
			return NULL;
	return &l->all.data[line];
}

static int count_sample(struct lines *l, const struct profile *p, const u8 *mine, size_t i)
{
	const struct profile_sample *s = profile_sample(p, i);
	const struct profile_stack *stack = &p->stacks.data[s->stack];
	s64 value = s->value[p->default_type];
	bool any = false;

	for (u32 k = 0; k < stack->n; k++) {
		const struct profile_frame *f =
			&p->frames.data[p->stack_frames.data[stack->first + k]];
		struct line *line;

		if (f->function >= p->functions.n || !mine[f->function] || f->line > MAX_LINE)
			continue;
		line = line_at(l, f->line);
		if (!line)
			return -ENOMEM;
		any = true;
		if (k == 0) {
			line->self += value;
			l->self += value;
		}
		if (line->seen != i + 1)
			line->total += value;
		line->seen = i + 1;
	}
	l->total += any ? value : 0;
	return 0;
}

static int count_lines(const struct profile *p, const char *file, struct lines *l)
{
	_cleanup_free_ u8 *mine = calloc(p->functions.n + 1, 1);
	int r = mine ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < p->functions.n; i++)
		mine[i] = !strcmp(profile_string(p, p->functions.data[i].file), file);
	for (size_t i = 0; r == 0 && i < p->n_samples; i++)
		r = count_sample(l, p, mine, i);
	return r;
}

/* ---- text ---- */

static int read_public(const char *file, struct str *out)
{
	_cleanup_close_ int fd = -1;
	char bytes[65536];
	ssize_t n;
	int r = api_open_public(file, &fd);

	if (r < 0)
		return r;
	while ((n = read(fd, bytes, sizeof(bytes))) > 0) {
		if (out->n + (size_t)n > MAX_FILE_BYTES)
			return -EFBIG;
		if (str_append(out, bytes, (size_t)n) < 0)
			return -ENOMEM;
	}
	if (n < 0)
		return -EACCES;
	/* What is not text is no source. */
	return out->n && memchr(out->data, '\0', out->n) ? -EINVAL : 0;
}

static const char *why_not(int r)
{
	switch (r) {
	case 0:
		return "";
	case -ENOENT:
	case -EACCES:
		return api_not_public(r);
	case -EFBIG:
		return "The file is larger than 4 MiB.";
	default:
		return "The file is no text.";
	}
}

/* ---- the answer ---- */

/* Tabs as spaces: control characters do not get through, nor do spaces at the beginning. */
static void put_text_line(struct str *out, const char *s, size_t n)
{
	_cleanup_str_ struct str line = {}, json = {};
	size_t indent;

	for (size_t i = 0; i < n; i++)
		if (s[i] == '\t')
			str_append(&line, "        ", 8 - line.n % 8);
		else
			str_putc(&line, s[i]);
	indent = strspn(str_get(&line), " ");
	text_append_json(&json, str_get(&line));
	str_putc(out, '"');
	str_append(out, str_get(&line), indent);
	str_puts(out, str_get(&json) + 1);
}

static void put_text(struct str *out, const struct str *text)
{
	const char *at = text->n ? text->data : "", *end = at + text->n;
	bool first = true;

	str_puts(out, ",\"text\":[");
	while (at < end) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));

		if (!first)
			str_putc(out, ',');
		first = false;
		put_text_line(out, at, (size_t)((nl ? nl : end) - at));
		at = nl ? nl + 1 : end;
	}
	str_putc(out, ']');
}

static void put_lines(struct str *out, const struct lines *l)
{
	bool first = true;

	str_puts(out, ",\"lines\":[");
	for (size_t i = 0; i < l->all.n; i++) {
		const struct line *e = &l->all.data[i];

		if (!e->seen)
			continue;
		str_printf(out, "%s[%zu,%lld,%lld]", first ? "" : ",", i, e->self, e->total);
		first = false;
	}
	str_putc(out, ']');
}

static int source(struct api_call *c)
{
	const char *file = net_parameter(c->r, "file");
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_query_ struct query q = {};
	_cleanup_str_ struct str text = {};
	struct lines l = {};
	s64 all = 0;
	int r = api_query(c, "", &q), why;

	if (r == 0 && (!file || !*file || strlen(file) >= PATH_MAX))
		r = diag_set(&c->d, -EINVAL, "which file? ?file=/usr/src/app/main.c");
	if (r == 0)
		r = api_spans(c, "", &q);
	if (r == 0)
		r = query_profile(c->a->o.store, &q, API_MAX_STACKS, &p, &c->d);
	if (r == 0)
		r = count_lines(p, file, &l);
	if (r < 0) {
		vec_deinit(&l.all);
		return r;
	}
	for (size_t i = 0; i < p->n_samples; i++)
		all += profile_sample(p, i)->value[p->default_type];
	/* Only of what was sampled: this is no way to read files. */
	why = l.all.n ? read_public(file, &text) : -ENOENT;
	str_printf(c->out, "{\"from\":%llu,\"to\":%llu,", q.from_ms, q.to_ms);
	api_put_text(c->out, "file", file);
	str_putc(c->out, ',');
	api_put_text(c->out, "type", profile_string(p, p->types[p->default_type].name));
	str_putc(c->out, ',');
	api_put_text(c->out, "unit", profile_string(p, p->types[p->default_type].unit));
	str_printf(c->out, ",\"all\":%lld,\"self\":%lld,\"total\":%lld,\"why\":", all, l.self,
		   l.total);
	text_append_json(c->out, why_not(why));
	if (why < 0)
		str_clear(&text);
	put_lines(c->out, &l);
	put_text(c->out, &text);
	str_putc(c->out, '}');
	vec_deinit(&l.all);
	return 0;
}

const struct api_route api_source_routes[] = {
	{"GET", "/api/v1/source", NET_ROLE_READ, API_STYLE_JSON, source},
	{},
};
