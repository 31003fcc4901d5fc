/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/source: a source file with the values of its lines. Values come from the store. The
 * text comes from this machine, if the file is there and every user may read it, because a client
 * does not have the rights of the server's user.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "server/api/internal.h"

#define MAX_FILE_BYTES (4 << 20)
#define MAX_VERSIONS 8
#define MAX_LINE 1000000 /* no source file has more lines */

/* ---- values ---- */

struct line {
	s64 self, total;
	u64 seen; /* number of the sample that counted it last, from 1 */
};

struct lines {
	vec(struct line) all; /* indexed by line; 0 = unknown */
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

static int read_public(const char *file, const char *roots, struct str *out)
{
	_cleanup_close_ int fd = -1;
	char bytes[65536];
	ssize_t n;
	int r = api_open_public(file, roots, &fd);

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
	/* A file with a NUL byte is no source file. */
	return out->n && memchr(out->data, '\0', out->n) ? -EINVAL : 0;
}

static const char *why_not(int r)
{
	switch (r) {
	case 0:
		return "";
	case -ENOENT:
	case -EACCES:
	case -EPERM:
		return api_not_public(r);
	case -EFBIG:
		return "The file is larger than 4 MiB.";
	default:
		return "The file is no text.";
	}
}

/* ---- the answer ---- */

/* Tabs become spaces, the indentation stays, and the rest of the line is clean text. */
static void put_text_line(struct json_writer *w, const char *s, size_t n)
{
	_cleanup_str_ struct str line = {}, clean = {};
	size_t indent;

	for (size_t i = 0; i < n; i++)
		if (s[i] == '\t')
			str_append(&line, "        ", 8 - line.n % 8);
		else
			str_putc(&line, s[i]);
	indent = strspn(str_get(&line), " ");
	str_append(&clean, str_get(&line), indent);
	text_append_clean(&clean, str_get(&line) + indent, 0);
	w->out->failed |= line.failed || clean.failed;
	json_put_exact(w, NULL, str_get(&clean));
}

static void put_text(struct json_writer *w, const struct str *text)
{
	const char *at = text->n ? text->data : "", *end = at + text->n;

	json_open_array(w, "text");
	while (at < end) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));

		put_text_line(w, at, (size_t)((nl ? nl : end) - at));
		at = nl ? nl + 1 : end;
	}
	json_close(w);
}

static void put_lines(struct json_writer *w, const struct lines *l)
{
	json_open_array(w, "lines");
	for (size_t i = 0; i < l->all.n; i++) {
		const struct line *e = &l->all.data[i];

		if (!e->seen)
			continue;
		json_open_array(w, NULL);
		json_put_u64(w, NULL, i);
		json_put_s64(w, NULL, e->self);
		json_put_s64(w, NULL, e->total);
		json_close(w);
	}
	json_close(w);
}

/* A link for each version that the selected samples have; one without if none is known. */
static int put_links(struct api_call *c, const struct query *q, const char *file)
{
	__attribute__((cleanup(query_names_deinit))) struct query_names versions = {};
	struct query of = *q;
	int r = 0;

	of.strict = false;
	json_open_array(&c->json, "links");
	if (c->a->o.source_links)
		r = query_label_values(c->a->o.store, &of, "service.version", &versions, &c->d);
	for (size_t i = 0; i <= versions.names.n && i < MAX_VERSIONS && r == 0; i++) {
		const char *version = i < versions.names.n ? versions.names.data[i].name : "";
		_cleanup_str_ struct str url = {};

		/* Without a version only if there is none. */
		if ((!*version && versions.names.n) ||
		    !api_source_link(c->a->o.source_links, file, version, &url))
			continue;
		json_open_object(&c->json, NULL);
		json_put_text(&c->json, "version", version);
		json_put_text(&c->json, "url", str_get(&url));
		json_close(&c->json);
	}
	json_close(&c->json);
	return r;
}

static int put_answer(struct api_call *c, const struct query *q, const char *file,
		      const struct profile *p, const struct lines *l)
{
	struct json_writer *w = &c->json;
	_cleanup_str_ struct str text = {};
	/* Only for a file that samples name, so that the API does not disclose arbitrary files. */
	int why = l->all.n ? read_public(file, c->a->o.source_roots, &text) : -ENOENT;
	s64 all = 0;

	for (size_t i = 0; i < p->n_samples; i++)
		all += profile_sample(p, i)->value[p->default_type];
	if (why < 0)
		str_clear(&text);
	json_open_object(w, NULL);
	json_put_u64(w, "from", q->from_ms);
	json_put_u64(w, "to", q->to_ms);
	json_put_text(w, "file", file);
	json_put_text(w, "type", profile_string(p, p->types[p->default_type].name));
	json_put_text(w, "unit", profile_string(p, p->types[p->default_type].unit));
	json_put_s64(w, "all", all);
	json_put_s64(w, "self", l->self);
	json_put_s64(w, "total", l->total);
	json_put_text(w, "why", why_not(why));
	why = put_links(c, q, file);
	put_lines(w, l);
	put_text(w, &text);
	json_close(w);
	return why;
}

static int source(struct api_call *c)
{
	const char *file = net_parameter(c->r, "file");
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_query_ struct query q = {};
	struct lines l = {};
	int r = api_query(c, "", &q);

	if (r == 0 && (!file || !*file || strlen(file) >= PATH_MAX))
		r = diag_set(&c->d, -EINVAL, "which file? ?file=/usr/src/app/main.c");
	if (r == 0)
		r = api_spans(c, "", &q);
	if (r == 0)
		r = query_profile(c->a->o.store, &q, API_MAX_STACKS, &p, &c->d);
	if (r == 0)
		r = count_lines(p, file, &l);
	if (r == 0)
		r = put_answer(c, &q, file, p, &l);
	vec_deinit(&l.all);
	return r;
}

const struct api_route api_source_routes[] = {
	{"GET", "/api/v1/source", NET_ROLE_READ, API_STYLE_JSON, source},
	{},
};
