/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directives of C: #include, #define, #if and its kin. They are obeyed before the script is read,
 * and become blanks, so that places in the script stay what they are. BPFTRACE_HAVE_BTF is defined:
 * culprit runs only where the kernel has BTF, so types need no headers.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/closest.h"
#include "trace/parse.h"

#define MAX_IFS 32

struct preprocessor {
	struct trace_parser *p;
	char *text, *joined; /* being made */
	size_t n, pos;	     /* of the line */
	u32 line;
	bool in_comment;
	struct {
		struct trace_at at;
		bool is_on, was_on, has_else;
	} ifs[MAX_IFS];
	u32 n_ifs;
};

static bool is_on(const struct preprocessor *pp)
{
	for (u32 i = 0; i < pp->n_ifs; i++) {
		if (!pp->ifs[i].is_on)
			return false;
	}
	return true;
}

/* A word of the directive. */
struct words {
	const char *text;
	size_t pos, end;
};

static void skip_spaces(struct words *w)
{
	while (w->pos < w->end && trace_is_space(w->text[w->pos]))
		w->pos++;
}

static size_t read_word(struct words *w)
{
	size_t begin;

	skip_spaces(w);
	begin = w->pos;
	while (w->pos < w->end && trace_is_name_part(w->text[w->pos]))
		w->pos++;
	return w->pos - begin;
}

static bool is_word(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && memcmp(s, word, n) == 0;
}

struct trace_define *trace_find_define(const struct trace_parser *p, const char *name)
{
	for (size_t i = p->source->defines.n; i-- > 0;) {
		if (strcmp(p->source->defines.data[i].name, name) == 0)
			return &p->source->defines.data[i];
	}
	return NULL;
}

static bool is_defined(const struct preprocessor *pp, const char *name, size_t n)
{
	for (size_t i = 0; i < pp->p->source->defines.n; i++) {
		if (is_word(name, n, pp->p->source->defines.data[i].name))
			return true;
	}
	return is_word(name, n, "BPFTRACE_HAVE_BTF");
}

/* ---- conditions ---- */

static int condition_value(struct preprocessor *pp, struct words *w, bool *ret);

/* [!] defined(X), defined X, ( … ), a number or the name of a #define that is one. */
static int condition_operand(struct preprocessor *pp, struct words *w, bool *ret)
{
	const char *word;
	size_t n;
	bool negate = false, parenthesis;
	u64 number = 0;

	skip_spaces(w);
	for (; w->pos < w->end && w->text[w->pos] == '!'; skip_spaces(w)) {
		negate = !negate;
		w->pos++;
	}
	n = read_word(w);
	word = w->text + w->pos - n;
	if (is_word(word, n, "defined")) {
		skip_spaces(w);
		parenthesis = w->pos < w->end && w->text[w->pos] == '(';
		w->pos += parenthesis;
		n = read_word(w);
		*ret = n && is_defined(pp, w->text + w->pos - n, n);
		skip_spaces(w);
		if (!n || (parenthesis && (w->pos >= w->end || w->text[w->pos++] != ')')))
			return -EINVAL;
	} else if (n && trace_is_digit(*word)) {
		size_t used;

		if (trace_number_prefix(word, n, &number, &used) < 0 || used != n)
			return -EINVAL;
		*ret = number != 0;
	} else if (n) {
		*ret = is_word(word, n, "BPFTRACE_HAVE_BTF");
		for (size_t i = 0; i < pp->p->source->defines.n; i++) {
			const struct trace_define *d = &pp->p->source->defines.data[i];
			size_t used;

			if (is_word(word, n, d->name) &&
			    trace_number_prefix(pp->joined + d->begin, d->end - d->begin, &number,
						&used) == 0)
				*ret = number != 0;
		}
	} else {
		return -EINVAL;
	}
	*ret ^= negate;
	return 0;
}

/* Operands between && and ||, of which && binds closer. */
static int condition_value(struct preprocessor *pp, struct words *w, bool *ret)
{
	bool any = false, all = true, value = false;

	for (;;) {
		char c;

		if (condition_operand(pp, w, &value) < 0)
			return -EINVAL;
		all = all && value;
		skip_spaces(w);
		if (w->pos == w->end)
			break;
		c = w->text[w->pos];
		if ((c != '&' && c != '|') || w->pos + 1 >= w->end || w->text[w->pos + 1] != c)
			return -EINVAL;
		if (c == '|') {
			any = any || all;
			all = true;
		}
		w->pos += 2;
	}
	*ret = any || all;
	return 0;
}

static int condition(struct preprocessor *pp, struct trace_at at, const char *kind, size_t n_kind,
		     struct words *w, bool *ret)
{
	size_t n;

	if (is_word(kind, n_kind, "ifdef") || is_word(kind, n_kind, "ifndef")) {
		n = read_word(w);
		if (!n)
			return trace_error(pp->p->diag, at, -EINVAL,
					   "#%.*s needs the name of a #define", (int)n_kind, kind);
		*ret = is_defined(pp, w->text + w->pos - n, n) == is_word(kind, n_kind, "ifdef");
		return 0;
	}
	if (condition_value(pp, w, ret) < 0)
		return trace_error(pp->p->diag, at, -EINVAL,
				   "#%.*s takes numbers, names, defined(NAME), !, && and ||",
				   (int)n_kind, kind);
	return 0;
}

/* ---- directives ---- */

static int begin_if(struct preprocessor *pp, struct trace_at at, const char *kind, size_t n,
		    struct words *w)
{
	bool value = false;
	int r = is_on(pp) ? condition(pp, at, kind, n, w, &value) : 0;

	if (r < 0)
		return r;
	if (pp->n_ifs == MAX_IFS)
		return trace_error(pp->p->diag, at, -EINVAL, "more than %d #if are nested",
				   MAX_IFS);
	pp->ifs[pp->n_ifs].at = at;
	pp->ifs[pp->n_ifs].is_on = pp->ifs[pp->n_ifs].was_on = value;
	pp->ifs[pp->n_ifs++].has_else = false;
	return 0;
}

static int go_on_if(struct preprocessor *pp, struct trace_at at, const char *kind, size_t n,
		    struct words *w)
{
	u32 last = pp->n_ifs - 1;
	bool value = true;
	int r = 0;

	if (!pp->n_ifs)
		return trace_error(pp->p->diag, at, -EINVAL, "#%.*s without #if", (int)n, kind);
	if (is_word(kind, n, "endif")) {
		pp->n_ifs--;
		return 0;
	}
	if (pp->ifs[last].has_else)
		return trace_error(pp->p->diag, at, -EINVAL, "#%.*s after #else", (int)n, kind);
	if (is_word(kind, n, "elif") && !pp->ifs[last].was_on) {
		r = condition(pp, at, kind, n, w, &value);
		if (r < 0)
			return r;
	}
	pp->ifs[last].has_else = is_word(kind, n, "else");
	pp->ifs[last].is_on = value && !pp->ifs[last].was_on;
	pp->ifs[last].was_on |= value;
	return 0;
}

static int add_define(struct preprocessor *pp, struct trace_at at, struct words *w)
{
	struct trace_define d = {.at = at};
	size_t n = read_word(w);
	int r;

	if (!n)
		return trace_error(pp->p->diag, at, -EINVAL, "#define needs a name");
	r = trace_copy(&pp->p->lexer, at, w->text + w->pos - n, n, &d.name);
	if (r < 0)
		return r;
	d.has_parameters = w->pos < w->end && w->text[w->pos] == '(';
	while (w->pos < w->end && (w->text[w->pos] == ' ' || w->text[w->pos] == '\t'))
		w->pos++;
	d.begin = w->pos;
	d.end = w->end;
	d.at.column = (u32)(w->pos - pp->pos) + 1;
	if (vec_push(&pp->p->source->defines, d) < 0)
		return trace_error(pp->p->diag, at, -ENOMEM, "out of memory");
	return 0;
}

static int undefine(struct preprocessor *pp, struct words *w)
{
	size_t n = read_word(w);

	vec_foreach (&pp->p->source->defines, d) {
		if (is_word(w->text + w->pos - n, n, d->name))
			d->name = "";
	}
	return 0;
}

static int add_header(struct preprocessor *pp, struct trace_at at, struct words *w)
{
	const char *name;
	size_t end = w->end;
	int r;

	skip_spaces(w);
	while (end > w->pos && trace_is_space(w->text[end - 1]))
		end--;
	r = trace_copy(&pp->p->lexer, at, w->text + w->pos, end - w->pos, &name);
	if (r == 0 && vec_push(&pp->p->script->headers, name) < 0)
		r = trace_error(pp->p->diag, at, -ENOMEM, "out of memory");
	return r;
}

static int unknown_directive(struct preprocessor *pp, struct trace_at at, const char *kind,
			     size_t n)
{
	static const char *const names[] = {"include", "define", "undef", "if",	   "ifdef",
					    "ifndef",  "elif",	 "else",  "endif", "pragma"};
	_cleanup_str_ struct str closest = {};
	const char *copy;

	if (trace_copy(&pp->p->lexer, at, kind, n > 40 ? 40 : n, &copy) < 0 ||
	    closest_append(&closest, copy, names, ARRAY_SIZE(names), 80) < 0)
		return -ENOMEM;
	return trace_error(pp->p->diag, at, -EINVAL, "there is no directive #%s; there are %s",
			   copy, str_get(&closest));
}

/* The directive from its # to the end of its (joined) line. */
static int obey(struct preprocessor *pp, size_t hash, size_t end)
{
	struct words w = {pp->joined, hash + 1, end};
	struct trace_at at = {pp->line, (u32)(hash - pp->pos) + 1};
	size_t n = read_word(&w);
	const char *kind = w.text + w.pos - n;

	if (is_word(kind, n, "if") || is_word(kind, n, "ifdef") || is_word(kind, n, "ifndef"))
		return begin_if(pp, at, kind, n, &w);
	if (is_word(kind, n, "elif") || is_word(kind, n, "else") || is_word(kind, n, "endif"))
		return go_on_if(pp, at, kind, n, &w);
	if (!is_on(pp))
		return 0;
	if (is_word(kind, n, "define"))
		return add_define(pp, at, &w);
	if (is_word(kind, n, "undef"))
		return undefine(pp, &w);
	if (is_word(kind, n, "include"))
		return add_header(pp, at, &w);
	if (is_word(kind, n, "error"))
		return trace_error(pp->p->diag, at, -EINVAL, "#error%.*s", (int)(end - w.pos),
				   w.text + w.pos);
	if (!n || is_word(kind, n, "pragma") || is_word(kind, n, "warning"))
		return 0;
	return unknown_directive(pp, at, kind, n);
}

/* ---- lines ---- */

/* Whether a comment that goes over lines is open at the end of the line. */
static void follow_comments(struct preprocessor *pp, size_t end)
{
	const char *s = pp->joined;
	char quote = '\0';

	for (size_t i = pp->pos; i < end; i++) {
		char next = i + 1 < end ? s[i + 1] : '\0';

		if (pp->in_comment) {
			if (s[i] == '*' && next == '/') {
				pp->in_comment = false;
				i++;
			}
		} else if (quote) {
			if (s[i] == '\\')
				i++;
			else if (s[i] == quote)
				quote = '\0';
		} else if (s[i] == '"') {
			quote = s[i];
		} else if (s[i] == '/' && next == '*') {
			pp->in_comment = true;
			i++;
		} else if (s[i] == '/' && next == '/') {
			return;
		}
	}
}

static size_t end_of_line(const struct preprocessor *pp, size_t pos)
{
	const char *newline = memchr(pp->joined + pos, '\n', pp->n - pos);

	return newline ? (size_t)(newline - pp->joined) : pp->n;
}

/* A line that ends with \ goes on in the next: \ and the newline become spaces in `joined`. */
static size_t join_lines(struct preprocessor *pp, size_t end, u32 *lines)
{
	while (end < pp->n && end > pp->pos && pp->joined[end - 1] == '\\') {
		pp->joined[end - 1] = pp->joined[end] = ' ';
		++*lines;
		end = end_of_line(pp, end);
	}
	return end;
}

/* A comment that begins in the line and goes on in the next stays one. */
static void blank(struct preprocessor *pp, size_t end, bool begins_comment)
{
	for (size_t i = pp->pos; i < end; i++) {
		if (pp->text[i] != '\n')
			pp->text[i] = ' ';
	}
	if (begins_comment && end - pp->pos >= 2)
		memcpy(pp->text + end - 2, "/*", 2);
}

/* The comment behind a directive is no part of it. */
static size_t without_comment(const struct preprocessor *pp, size_t end)
{
	for (size_t i = pp->pos; i + 1 < end; i++) {
		if (pp->joined[i] == '"') {
			for (i++; i < end && pp->joined[i] != '"'; i++)
				i += pp->joined[i] == '\\';
		} else if (pp->joined[i] == '/' &&
			   (pp->joined[i + 1] == '/' || pp->joined[i + 1] == '*')) {
			return i;
		}
	}
	return end;
}

static int read_line(struct preprocessor *pp)
{
	size_t end = end_of_line(pp, pp->pos), hash = pp->pos;
	u32 lines = 1;
	int r = 0;

	while (hash < end && (pp->joined[hash] == ' ' || pp->joined[hash] == '\t'))
		hash++;
	if (!pp->in_comment && hash < end && pp->joined[hash] == '#') {
		bool shebang = pp->pos == 0 && hash + 1 < end && pp->joined[hash + 1] == '!';

		if (!shebang) {
			end = join_lines(pp, end, &lines);
			r = obey(pp, hash, without_comment(pp, end));
			follow_comments(pp, end);
		}
		blank(pp, end, pp->in_comment);
	} else if (!is_on(pp)) {
		follow_comments(pp, end);
		blank(pp, end, false);
	} else {
		follow_comments(pp, end);
	}
	pp->pos = end + 1;
	pp->line += lines;
	return r;
}

int trace_preprocess(struct trace_parser *p, const char *text, size_t n)
{
	struct preprocessor pp = {.p = p, .n = n, .line = 1};
	const char *copies[2];
	int r = 0;

	for (int i = 0; i < 2 && r == 0; i++)
		r = trace_copy(&p->lexer, (struct trace_at){1, 1}, text, n, &copies[i]);
	if (r < 0)
		return r;
	pp.text = (char *)copies[0];
	pp.joined = (char *)copies[1];
	p->source->text = pp.text;
	p->source->joined = pp.joined;
	p->source->n = n;
	while (pp.pos < n && r == 0)
		r = read_line(&pp);
	if (r == 0 && pp.n_ifs)
		r = trace_error(p->diag, pp.ifs[pp.n_ifs - 1].at, -EINVAL, "the #if has no #endif");
	return r;
}
