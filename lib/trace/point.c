/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attach points: PROVIDER:PART:PART, which are no expressions. A point ends at a space, a comma or
 * { outside of quotes, and where no path may stand at /.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/closest.h"
#include "trace/parse.h"

static const struct provider {
	const char *name, *alias, *old; /* old: the name before bpftrace 0.21 */
	u8 least, most;			/* parts after the name */
	bool has_path;
	const char *form;
} providers[] = {
	{"BEGIN", "begin", NULL, 0, 0, false, "BEGIN"},
	{"END", "end", NULL, 0, 0, false, "END"},
	{"kprobe", "k", NULL, 1, 2, false, "kprobe:FUNCTION"},
	{"kretprobe", "kr", NULL, 1, 2, false, "kretprobe:FUNCTION"},
	{"fentry", "f", "kfunc", 1, 3, false, "fentry:FUNCTION"},
	{"fexit", "fr", "kretfunc", 1, 3, false, "fexit:FUNCTION"},
	{"uprobe", "u", NULL, 1, 3, true, "uprobe:FILE:FUNCTION"},
	{"uretprobe", "ur", NULL, 1, 3, true, "uretprobe:FILE:FUNCTION"},
	{"usdt", "U", NULL, 2, 3, true, "usdt:FILE:PROVIDER:NAME"},
	{"tracepoint", "t", NULL, 2, 2, false, "tracepoint:CATEGORY:EVENT"},
	{"rawtracepoint", "rt", NULL, 1, 2, false, "rawtracepoint:EVENT"},
	{"profile", "p", NULL, 1, 2, false, "profile:hz:99"},
	{"interval", "i", NULL, 1, 2, false, "interval:s:1"},
	{"software", "s", NULL, 1, 2, false, "software:EVENT:COUNT"},
	{"hardware", "h", NULL, 1, 2, false, "hardware:EVENT:COUNT"},
	{"watchpoint", "w", NULL, 3, 4, true, "watchpoint:ADDRESS:BYTES:MODE"},
	{"iter", "it", NULL, 1, 2, true, "iter:task"},
	{"self", NULL, NULL, 2, 2, false, "self:signal:SIGUSR1"},
};

static const struct provider *find_provider(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		const char *const names[] = {providers[i].name, providers[i].alias,
					     providers[i].old};

		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			if (names[k] && strlen(names[k]) == n && memcmp(names[k], name, n) == 0)
				return &providers[i];
		}
	}
	return NULL;
}

static int unknown_provider(struct trace_parser *p, struct trace_at at, const char *name, size_t n)
{
	static const char *const words[] = {"macro", "config", "let", "struct", "union", "enum"};
	const char *names[ARRAY_SIZE(providers) + ARRAY_SIZE(words)];
	_cleanup_str_ struct str closest = {};
	const char *copy;

	for (size_t i = 0; i < ARRAY_SIZE(providers); i++)
		names[i] = providers[i].name;
	memcpy(names + ARRAY_SIZE(providers), words, sizeof(words));
	if (trace_copy(&p->lexer, at, name, n > 40 ? 40 : n, &copy) < 0)
		return -ENOMEM;
	if (closest_append(&closest, copy, names, ARRAY_SIZE(names), 60) < 0)
		return trace_error(p->diag, at, -ENOMEM, "out of memory");
	if (strcmp(copy, "test") == 0 || strcmp(copy, "bench") == 0)
		return trace_error(p->diag, at, -EINVAL,
				   "%s probes are for bpftrace's own tests; use BEGIN", copy);
	if (!n && p->lexer.pos < p->lexer.n)
		return trace_error(
			p->diag, at, -EINVAL,
			"expected a probe, such as kprobe:vfs_read or interval:s:1, not %c",
			p->lexer.text[p->lexer.pos]);
	if (!n)
		return trace_error(p->diag, at, -EINVAL,
				   "expected a probe, such as kprobe:vfs_read or interval:s:1");
	return trace_error(p->diag, at, -EINVAL, "nothing begins with %s here; there are %s", copy,
			   str_get(&closest));
}

/* ---- the text of a point ---- */

/* The value of $N as text; the digits are passed. */
static int append_parameter(struct trace_parser *p, struct str *out)
{
	struct trace_lexer *l = &p->lexer;
	u64 number = 0;

	for (l->pos++; l->pos < l->n && trace_is_digit(l->text[l->pos]) && number < 100000;
	     l->pos++)
		number = number * 10 + (u64)(l->text[l->pos] - '0');
	if (p->parameters && number >= 1 && number <= p->parameters->n)
		return str_puts(out, p->parameters->values[number - 1]);
	return 0;
}

static bool ends_point(const struct trace_lexer *l, bool has_path)
{
	char c = l->text[l->pos];

	return trace_is_space(c) || c == '{' || c == '}' || c == ',' || c == ';' ||
	       (c == '/' && !has_path);
}

/* Whether / belongs to the point: only behind the name of a provider that has paths. */
static bool may_have_path(const struct str *text)
{
	const char *colon = text->n ? memchr(text->data, ':', text->n) : NULL;
	const struct provider *provider;

	if (!colon)
		return false;
	provider = find_provider(text->data, (size_t)(colon - text->data));
	return provider && provider->has_path;
}

/* What stands between " ", without them; the first is not read yet. */
static int append_quoted(struct trace_parser *p, struct str *out)
{
	struct trace_lexer *l = &p->lexer;
	struct trace_at at = trace_lexer_at(l);

	for (l->pos++; l->pos < l->n && l->text[l->pos] != '"'; trace_lexer_step(l)) {
		if (l->text[l->pos] == '\n')
			break;
		if (l->text[l->pos] == '\\' && l->pos + 1 < l->n && l->text[l->pos + 1] != '\n')
			l->pos++;
		if (str_putc(out, l->text[l->pos]) < 0)
			return trace_error(p->diag, at, -ENOMEM, "out of memory");
	}
	if (l->pos >= l->n || l->text[l->pos] != '"')
		return trace_error(p->diag, at, -EINVAL,
				   "the text has no end on its line: \" is missing");
	l->pos++;
	return 0;
}

/* Ends a part: what `part` has becomes one of the point. */
static int end_part(struct trace_parser *p, struct trace_point *point, struct str *part)
{
	int r;

	if (point->n_parts == TRACE_POINT_PARTS)
		return trace_error(p->diag, point->at, -EINVAL,
				   "the probe has more than %d parts after its name; a part with : "
				   "stands in quotes",
				   TRACE_POINT_PARTS);
	r = trace_copy(&p->lexer, point->at, str_get(part), part->n, &point->parts[point->n_parts]);
	point->n_parts += r == 0;
	str_clear(part);
	return r;
}

static int split_point(struct trace_parser *p, struct trace_point *point,
		       const struct provider **ret)
{
	_cleanup_str_ struct str part = {};
	struct trace_lexer *l = &p->lexer;
	size_t begin = l->pos;
	bool has_path = false, is_name = true;
	int r = 0;

	for (; r == 0 && l->pos < l->n && !ends_point(l, has_path);) {
		char c = l->text[l->pos];

		if (c == '"' && !is_name) {
			r = append_quoted(p, &part);
		} else if (c == '$' && l->pos + 1 < l->n && trace_is_digit(l->text[l->pos + 1])) {
			r = append_parameter(p, &part);
		} else if (c == ':' && is_name) {
			*ret = find_provider(str_get(&part), part.n);
			if (!*ret)
				break;
			str_putc(&part, ':');
			has_path = may_have_path(&part);
			is_name = false;
			str_clear(&part);
			l->pos++;
		} else if (c == ':') {
			r = end_part(p, point, &part);
			l->pos++;
		} else {
			r = str_putc(&part, c);
			l->pos++;
		}
	}
	if (r == 0 && part.failed)
		r = trace_error(p->diag, point->at, -ENOMEM, "out of memory");
	if (r < 0)
		return r;
	if (is_name) {
		*ret = find_provider(str_get(&part), part.n);
		if (!*ret)
			return unknown_provider(p, point->at, str_get(&part), part.n);
	} else {
		r = end_part(p, point, &part);
	}
	return r < 0 ? r : trace_copy(l, point->at, l->text + begin, l->pos - begin, &point->text);
}

static int check_point(struct trace_parser *p, const struct trace_point *point,
		       const struct provider *provider)
{
	u32 n = point->n_parts;

	/* hardware:cache-misses: has an empty part, which is as good as none. */
	while (n && !*point->parts[n - 1])
		n--;
	if (n < provider->least || n > provider->most)
		return trace_error(p->diag, point->at, -EINVAL,
				   n < provider->least ? "%s lacks a part: write %s"
						       : "%s has a part too many: write %s",
				   point->text, provider->form);
	return 0;
}

/* name=, which bpftrace keeps for later. */
static int skip_probe_name(struct trace_parser *p)
{
	struct trace_lexer ahead = p->lexer;

	while (ahead.pos < ahead.n && trace_is_name_part(ahead.text[ahead.pos]))
		ahead.pos++;
	if (ahead.pos > p->lexer.pos && ahead.pos < ahead.n && ahead.text[ahead.pos] == '=') {
		ahead.pos++;
		p->lexer = ahead;
	}
	return 0;
}

static int parse_point(struct trace_parser *p, struct trace_probe *probe)
{
	const struct provider *provider = NULL;
	struct trace_point point = {};
	int r = trace_lexer_skip(&p->lexer);

	if (r == 0)
		r = skip_probe_name(p);
	if (r < 0)
		return r;
	point.at = trace_lexer_at(&p->lexer);
	r = split_point(p, &point, &provider);
	if (r < 0)
		return r;
	point.provider = provider->name;
	r = check_point(p, &point, provider);
	if (r < 0)
		return r;
	while (point.n_parts && !*point.parts[point.n_parts - 1])
		point.n_parts--;
	if (vec_push(&probe->points, point) < 0)
		return trace_error(p->diag, point.at, -ENOMEM, "out of memory");
	return trace_lexer_skip(&p->lexer);
}

int trace_parse_points(struct trace_parser *p, struct trace_probe *probe)
{
	struct trace_lexer *l = &p->lexer;
	int r;

	for (;;) {
		r = parse_point(p, probe);
		if (r < 0)
			return r;
		if (l->pos >= l->n || l->text[l->pos] != ',')
			break;
		l->pos++;
	}
	return trace_advance(p);
}
