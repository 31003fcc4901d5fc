/* SPDX-License-Identifier: Apache-2.0 */
/* culprit diff: compares two profiles, as a coloured flame graph, folded text or a table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/str.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/color.h"
#include "cli/commands.h"
#include "cli/view.h"
#include "format/format.h"
#include "profile/table.h"

struct diff_arguments {
	const char *output, *format, *input_format, *type;
	bool normalize, force;
	u64 limit;
};

static const struct option diff_options[] = {
	OPTION_STRING("output", 'o', "FILE", struct diff_arguments, output,
		      "output file (default: print a table of changes)"),
	OPTION_STRING("format", 0, "NAME", struct diff_arguments, format,
		      "output format (default: by the extension)"),
	OPTION_FLAG("force", 0, struct diff_arguments, force,
		    "replace the output file if it exists"),
	OPTION_FLAG("normalize", 0, struct diff_arguments, normalize,
		    "compare shares: BEFORE is scaled to the total of AFTER"),
	OPTION_U64("limit", 'n', "N", struct diff_arguments, limit, 1, 1e6,
		   "print at most N functions (default 30)"),
	OPTION_STRING("input-format", 0, "NAME", struct diff_arguments, input_format,
		      "format of both inputs (default: by the content)"),
	OPTION_STRING("type", 0, "NAME", struct diff_arguments, type,
		      "sample type to compare, if the inputs have several"),
	{},
};

/* ---- the table: it compares shares of self time, because the totals of two runs differ ---- */

struct change {
	const char *name;   /* borrowed from a table */
	const char *object; /* borrowed from a table */
	const char *file;   /* likewise: of its hottest line, after if it is there */
	u32 line;
	u8 kind;	      /* enum frame_kind */
	double before, after; /* shares, 0..1 */
	double margin;	      /* half the 95 % interval of the difference, or NAN */
};

typedef vec(struct change) change_vec;

static double margin_of(double before, u64 n_before, double after, u64 n_after)
{
	if (!n_before || !n_after)
		return NAN;
	return 1.96 * sqrt(before * (1 - before) / (double)n_before +
			   after * (1 - after) / (double)n_after);
}

static int compare_keys(const void *a, const void *b)
{
	const struct change *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	if (r == 0)
		r = strcmp(x->object, y->object);
	return r ? r : (x->kind == FRAME_KERNEL) - (y->kind == FRAME_KERNEL);
}

static int compare_changes(const void *a, const void *b)
{
	const struct change *x = a, *y = b;
	double i = fabs(x->after - x->before), j = fabs(y->after - y->before);

	return i != j ? (i > j ? -1 : 1) : compare_keys(a, b);
}

static int add_rows(change_vec *all, const struct profile_table *t, bool after)
{
	int r = 0;

	for (size_t i = 0; i < t->rows.n && r == 0; i++) {
		const struct profile_row *row = &t->rows.data[i];
		double share = t->total > 0 ? (double)row->self / (double)t->total : 0;
		struct change c = {
			.name = strtab_get(&t->strings, row->name),
			.object = strtab_get(&t->strings, row->object),
			.file = strtab_get(&t->strings, row->file),
			.line = row->line,
			.kind = row->kind,
			.before = after ? 0 : share,
			.after = after ? share : 0,
		};

		r = vec_push(all, c);
	}
	return r;
}

/* Merges the rows of one function. */
static void fold_rows(change_vec *all)
{
	size_t n = 0;

	if (!all->n)
		return;
	qsort(all->data, all->n, sizeof(*all->data), compare_keys);
	for (size_t i = 1; i < all->n; i++) {
		if (compare_keys(&all->data[n], &all->data[i]) == 0) {
			all->data[n].before += all->data[i].before;
			all->data[n].after += all->data[i].after;
			if (all->data[i].after > 0) {
				all->data[n].file = all->data[i].file;
				all->data[n].line = all->data[i].line;
			}
		} else {
			all->data[++n] = all->data[i];
		}
	}
	all->n = n + 1;
}

static void print_change(const struct change *c, bool color)
{
	bool sure = !isnan(c->margin) && fabs(c->after - c->before) > c->margin;
	const char *file = profile_basename(c->file);
	_cleanup_str_ struct str line = {};
	char margin[16] = "";

	if (!isnan(c->margin))
		snprintf(margin, sizeof(margin), "%.2f", 100 * c->margin);
	str_printf(&line, "%8.2f %8.2f ", 100 * c->before, 100 * c->after);
	color_begin(&line, color && sure, c->after > c->before ? COLOR_RED : COLOR_GREEN);
	str_printf(&line, "%+8.2f", 100 * (c->after - c->before));
	color_end(&line, color && sure);
	str_printf(&line, " %8s%s ", margin, sure ? "*" : " ");
	text_append_clean(&line, c->name, 0);
	color_begin(&line, color, COLOR_DIM);
	str_puts(&line, c->kind == FRAME_KERNEL ? " [k]" : "");
	color_end(&line, color);
	color_begin(&line, color, COLOR_BLUE);
	if (c->line && *file) {
		str_putc(&line, ' ');
		text_append_clean(&line, file, 0);
		str_printf(&line, ":%u", c->line);
	}
	color_end(&line, color);
	puts(str_get(&line));
}

static void print_changes(const change_vec *all, u64 limit)
{
	bool color = color_wanted();

	printf("%8s %8s %8s %8s  function, self time in %% of its profile\n", "before", "after",
	       "change", "+-95 %");
	for (size_t i = 0; i < all->n && i < limit; i++) {
		if (all->data[i].after == all->data[i].before)
			break;
		print_change(&all->data[i], color);
	}
	printf("\n* the change is larger than its 95 %% margin\n");
}

static int diff_table(const struct profile *before, const struct profile *after,
		      const struct diff_arguments *a, const struct profile_tree_options *o)
{
	_cleanup_profile_table_ struct profile_table *t0 = NULL, *t1 = NULL;
	u64 n0 = profile_sample_count(before), n1 = profile_sample_count(after);
	_cleanup_str_ struct str q0 = {}, q1 = {};
	change_vec all = {};
	int r = profile_table_build(before, o, &t0);

	if (r == 0)
		r = profile_table_build(after, o, &t1);
	if (r == 0)
		r = add_rows(&all, t0, false);
	if (r == 0)
		r = add_rows(&all, t1, true);
	if (r < 0) {
		vec_deinit(&all);
		return cli_error(1, "diff: out of memory");
	}
	fold_rows(&all);
	vec_foreach (&all, c)
		c->margin = margin_of(c->before, n0, c->after, n1);
	qsort(all.data, all.n, sizeof(*all.data), compare_changes);
	profile_quality_line(before, &q0);
	profile_quality_line(after, &q1);
	printf("before: %s\nafter:  %s\n\n", str_get(&q0), str_get(&q1));
	print_changes(&all, a->limit);
	vec_deinit(&all);
	return fflush(stdout) ? cli_error(1, "diff: cannot write to standard output") : 0;
}

/* ---- the command ---- */

static const struct profile_type *shown_type(const struct profile *p)
{
	return &p->types[p->default_type];
}

/* Values in different units cannot be compared. */
static int check_types(const struct profile *before, const struct profile *after)
{
	const struct profile_type *x = shown_type(before), *y = shown_type(after);

	if (!strcmp(profile_string(before, x->unit), profile_string(after, y->unit)))
		return 0;
	return cli_error(
		-1,
		"diff: BEFORE has %s in %s, AFTER has %s in %s; select a type of both with --type",
		profile_string(before, x->name), profile_string(before, x->unit),
		profile_string(after, y->name), profile_string(after, y->unit));
}

static int run_diff(const struct diff_arguments *a, struct profile_write_options *o, char **paths)
{
	_cleanup_profile_ struct profile *before = NULL, *after = NULL;
	const struct profile_format *format;
	struct diag d = {};

	if (a->output && view_check_output(a->output, a->format, a->force, &format, &d) < 0)
		return cli_error(1, "diff: %s", d.text);
	if (view_read("diff", paths, 1, a->input_format, a->type, &before) < 0 ||
	    view_read("diff", paths + 1, 1, a->input_format, a->type, &after) < 0)
		return 1;
	if (check_types(before, after) < 0)
		return 1;
	if (!a->output)
		return diff_table(before, after, a, &o->tree);
	o->base = before;
	o->normalize = a->normalize;
	if (profile_write_file(after, a->output, format, o, &d) < 0)
		return cli_error(1, "diff: %s", d.text);
	return 0;
}

int cmd_diff(int argc, char **argv)
{
	struct diff_arguments a = {.limit = 30};
	struct view_arguments v = {};
	struct profile_write_options o = {};
	const struct option_group groups[] = {{NULL, diff_options, &a},
					      {"Display", view_look_options, &v},
					      {"Filters", view_filter_options, &v},
					      {}};
	const struct option_usage usage = {
		.command = "diff",
		.operands = "BEFORE AFTER",
		.summary =
			"Compares two profiles. A flame graph (.svg, .html) shows AFTER, red where "
			"it grew and\nblue where it shrank; .folded has both counts on each line.",
		.groups = groups,
		.examples = "  culprit diff before.html after.html\n"
			    "  culprit diff --normalize -o change.svg before.pb.gz after.pb.gz",
	};
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r != 0)
		return r < 0 ? 2 : 0;
	if (argc - first != 2)
		return cli_error(2, "diff: give two files: culprit diff BEFORE AFTER [-o FILE]");
	if (a.format && !a.output)
		return cli_error(2, "diff: --format requires --output FILE");
	if (view_apply(&v, "diff", &o) < 0)
		return 2;
	return run_diff(&a, &o, argv + first);
}
