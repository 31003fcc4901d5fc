/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `culprit ctl` share: times in options, members of answers, tables. */
#include "cli/ctl.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/duration.h"
#include "base/text.h"
#include "cli/cli.h"

/* ---- times ---- */

int ctl_parse_time(const char *text, double *ret_ns)
{
	double seconds;

	if (duration_parse(text, false, &seconds) < 0)
		return -EINVAL;
	*ret_ns = seconds * 1e9;
	return 0;
}

/* Puts the time of an option in a unit of `unit_ns`, if it is given. */
int ctl_put_time(struct json_writer *w, const char *key, const char *option, const char *text,
		 double unit_ns, u64 from)
{
	double ns;

	if (!text)
		return 0;
	if (ctl_parse_time(text, &ns) < 0)
		return cli_error(2, "ctl: --%s: '%s' is not a time such as 100ms, 1.5s or 5m",
				 option, text);
	json_put_double(w, key, (double)from + ns / unit_ns);
	return 0;
}

void ctl_format_time(s64 ms, char *ret, size_t n)
{
	time_t s = (time_t)(ms / 1000);
	struct tm tm;

	if (!ms || !localtime_r(&s, &tm) || !strftime(ret, n, "%Y-%m-%d %H:%M:%S", &tm))
		snprintf(ret, n, "-");
}

/* ---- answers ---- */

const char *ctl_text(const json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));

	return text ? text : "";
}

s64 ctl_number(const json_t *o, const char *name)
{
	return (s64)json_integer_value(json_object_get(o, name));
}

void ctl_cell(struct ctl_table *t, const char *fmt, ...)
{
	struct str raw = {}, clean = {};
	va_list ap;

	va_start(ap, fmt);
	str_vprintf(&raw, fmt, ap);
	va_end(ap);
	text_append_clean(&clean, str_get(&raw), 0);
	str_deinit(&raw);
	if (vec_push(&t->cells, clean.data) < 0)
		str_deinit(&clean);
}

void ctl_print_table(struct ctl_table *t)
{
	size_t width[CTL_MAX_COLUMNS] = {}, rows = t->cells.n / t->n;

	for (u32 c = 0; c < t->n; c++)
		width[c] = strlen(t->columns[c].head);
	for (size_t i = 0; i < t->cells.n; i++) {
		const char *cell = t->cells.data[i] ? t->cells.data[i] : "";

		width[i % t->n] = MAX(width[i % t->n], text_columns(cell));
	}
	for (size_t row = 0; row <= rows; row++)
		for (u32 c = 0; c < t->n; c++) {
			const char *cell =
				row ? t->cells.data[(row - 1) * t->n + c] : t->columns[c].head;
			int pad;

			cell = cell ? cell : "";
			pad = (int)(width[c] - text_columns(cell));
			if (t->columns[c].right)
				printf("%*s%s", pad, "", cell);
			else
				printf("%s%*s", cell, c + 1 < t->n ? pad : 0, "");
			fputs(c + 1 < t->n ? "  " : "\n", stdout);
		}
	vec_foreach (&t->cells, cell)
		free(*cell);
	vec_deinit(&t->cells);
}
