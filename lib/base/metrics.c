/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metrics.h"

#include <stdio.h>

/* Quotes are escaped in the values of labels only. */
static void put_escaped(struct str *out, const char *text, bool quoted)
{
	for (; *text; text++) {
		if (*text == '\n')
			str_puts(out, "\\n");
		else if (*text == '\\' || (quoted && *text == '"'))
			str_printf(out, "\\%c", *text);
		else
			str_putc(out, *text);
	}
}

void metrics_family(struct str *out, const char *name, const char *help)
{
	str_printf(out, "# HELP %s ", name);
	put_escaped(out, help, false);
	str_printf(out, "\n# TYPE %s %s\n", name, str_ends(name, "_total") ? "counter" : "gauge");
}

void metrics_sample(struct str *out, const char *name, const struct metrics_label *labels,
		    double value)
{
	const char *before = "{";

	str_puts(out, name);
	for (; labels && labels->name; labels++) {
		str_printf(out, "%s%s=\"", before, labels->name);
		put_escaped(out, labels->value, true);
		str_putc(out, '"');
		before = ",";
	}
	str_printf(out, "%s %.16g\n", *before == ',' ? "}" : "", value);
}

void metrics_single(struct str *out, const char *name, const char *help, double value)
{
	metrics_family(out, name, help);
	metrics_sample(out, name, NULL, value);
}

void metrics_stats(struct str *out, const char *prefix, const struct stat_field *fields,
		   const void *stats)
{
	for (const struct stat_field *f = fields; f->name; f++) {
		char name[96];

		snprintf(name, sizeof(name), "%s_%s%s", prefix, f->name, f->gauge ? "" : "_total");
		metrics_single(out, name, f->help, (double)stat_value(f, stats));
	}
}
