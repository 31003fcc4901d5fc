/* SPDX-License-Identifier: Apache-2.0 */
/* Errors with the line of the source that they are about. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/lex.h"
#include "trace/trace.h"

#define MAX_SHOWN 160 /* bytes of the line */

/* "LINE:COLUMN: " at the front of an error; returns what comes after it. */
static const char *read_place(const char *error, struct trace_at *ret)
{
	unsigned int line, column;
	int used = 0;

	if (sscanf(error, "%9u:%9u: %n", &line, &column, &used) < 2 || !used || !line || !column)
		return error;
	*ret = (struct trace_at){line, column};
	return error + used;
}

/* The line without its end; NULL: the text has fewer. */
static const char *find_line(const char *text, size_t n, u32 line, size_t *ret_n)
{
	const char *end = text + n, *newline;

	for (; line > 1; line--) {
		newline = memchr(text, '\n', (size_t)(end - text));
		if (!newline)
			return NULL;
		text = newline + 1;
	}
	newline = memchr(text, '\n', (size_t)(end - text));
	*ret_n = (size_t)((newline ? newline : end) - text);
	return text;
}

/* A part of the line around the column, with tabs as they are so that the caret stands below. */
static void show_line(const char *line, size_t n, u32 column, struct str *out)
{
	size_t at = column - 1 < n ? column - 1 : n, begin = 0;

	if (at > MAX_SHOWN - 20)
		begin = at - (MAX_SHOWN - 20);
	/* Not in the middle of a character. */
	while (begin && ((u8)line[begin] & 0xc0) == 0x80)
		begin--;
	if (n - begin > MAX_SHOWN)
		n = begin + MAX_SHOWN;
	str_puts(out, "    ");
	for (size_t i = begin; i < n; i++)
		str_putc(out, (u8)line[i] < ' ' && line[i] != '\t' ? '?' : line[i]);
	str_puts(out, "\n    ");
	for (size_t i = begin; i < at; i++) {
		if (((u8)line[i] & 0xc0) != 0x80)
			str_putc(out, line[i] == '\t' ? '\t' : ' ');
	}
	str_puts(out, "^\n");
}

void trace_error_show(const char *file, const char *text, size_t n, const char *error,
		      struct str *out)
{
	struct trace_at at = {};
	const char *what = read_place(error, &at), *line;
	size_t n_line;

	if (!at.line) {
		str_printf(out, "%s%serror: %s\n", file, *file ? ": " : "", what);
		return;
	}
	str_printf(out, "%s:%u:%u: error: %s\n", *file ? file : "-e", at.line, at.column, what);
	line = find_line(text, n, at.line, &n_line);
	if (line)
		show_line(line, n_line, at.column, out);
}

int trace_number(const char *s, u64 *ret)
{
	size_t n = strlen(s), used;
	u64 value;
	int r = trace_number_prefix(s, n, &value, &used);

	if (r < 0)
		return r;
	if (used != n)
		return -EINVAL;
	*ret = value;
	return 0;
}
