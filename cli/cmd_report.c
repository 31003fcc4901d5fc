/* SPDX-License-Identifier: Apache-2.0 */
/* culprit report: prints a table of functions and a call tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/str.h"
#include "base/text.h"
#include "base/vocab.h"
#include "cli/cli.h"
#include "cli/color.h"
#include "cli/commands.h"
#include "cli/view.h"
#include "profile/table.h"

struct report_arguments {
	const char *format, *type, *sort;
	u64 limit, width;
	double min_pct;
	bool no_tree, no_table, callers, self;
};

static const struct option report_options[] = {
	OPTION_STRING("sort", 's', "KEY", struct report_arguments, sort,
		      "sort the table by self (default), total or name"),
	OPTION_U64("limit", 'n', "N", struct report_arguments, limit, 1, 1e6,
		   "print at most N functions (default 30)"),
	OPTION_F64("min", 'm', "PERCENT", struct report_arguments, min_pct, 0, 100,
		   "hide branches of the tree below this share (default 1)"),
	OPTION_FLAG("callers", 0, struct report_arguments, callers,
		    "invert the tree: hot functions first, with their callers below"),
	OPTION_FLAG("no-table", 0, struct report_arguments, no_table, "do not print the table"),
	OPTION_FLAG("no-tree", 0, struct report_arguments, no_tree, "do not print the tree"),
	OPTION_U64("width", 'w', "COLUMNS", struct report_arguments, width, 40, 100000,
		   "width of the output (default: that of the terminal, else unlimited)"),
	OPTION_FLAG("self", 0, struct report_arguments, self,
		    "show samples of culprit itself, too, as far as the file marks them"),
	OPTION_STRING("format", 0, "NAME", struct report_arguments, format,
		      "input format (default: by the content)"),
	OPTION_STRING("type", 0, "NAME", struct report_arguments, type,
		      "sample type to show, if the input has several"),
	{},
};

struct report {
	const struct profile *p;
	const struct report_arguments *a;
	const struct profile_tree_options *o;
	size_t width; /* 0: no limit */
	u64 samples;  /* number of samples that the values come from; 0 = unknown */
	bool color;
	struct str out;
};

static double pct(s64 part, s64 of)
{
	return of ? 100.0 * (double)part / (double)of : 0;
}

/* Columns left for a name after `used` columns. */
static size_t columns_left(const struct report *r, size_t used)
{
	return r->width ? r->width > used + 10 ? r->width - used : 10 : 0;
}

/* Time in the unit that suits it, all else as a count: the head has the unit. */
static void append_value(const struct report *r, s64 v, struct str *out)
{
	const char *unit = profile_string(r->p, r->p->types[r->p->default_type].unit);

	if (vocab_per_second(unit))
		text_append_value(out, v, unit);
	else
		text_append_count(out, v);
}

/* printf() counts bytes. */
static void print_right(struct str *out, const char *text, size_t columns)
{
	size_t n = text_columns(text);

	str_printf(out, "%*s%s", (int)(columns > n ? columns - n : 0), "", text);
}

static void print_name(struct report *r, const char *name, u8 kind, size_t columns)
{
	bool on = r->color && color_of_kind(kind) < COLOR_N;

	color_begin(&r->out, on, color_of_kind(kind));
	text_append_cut(&r->out, name, columns);
	color_end(&r->out, on);
}

/* ---- the table ---- */

static const struct profile_table *sorted_table; /* qsort's compare takes no argument */

static int by_total(const void *a, const void *b)
{
	const struct profile_row *x = a, *y = b;

	return x->total != y->total ? (x->total > y->total ? -1 : 1)
				    : (x->self < y->self) - (x->self > y->self);
}

static int by_name(const void *a, const void *b)
{
	const struct profile_row *x = a, *y = b;

	return strcmp(strtab_get(&sorted_table->strings, x->name),
		      strtab_get(&sorted_table->strings, y->name));
}

static void sort_table(struct profile_table *t, const char *key)
{
	sorted_table = t;
	if (!strcmp(key, "total"))
		qsort(t->rows.data, t->rows.n, sizeof(*t->rows.data), by_total);
	else if (!strcmp(key, "name"))
		qsort(t->rows.data, t->rows.n, sizeof(*t->rows.data), by_name);
}

/* Where the function is: " [k]", " (libc.so.6)", or nothing. */
static void print_object(struct report *r, u8 kind, const char *object)
{
	if (kind != FRAME_KERNEL && !*object)
		return;
	color_begin(&r->out, r->color, COLOR_DIM);
	if (kind == FRAME_KERNEL) {
		str_puts(&r->out, " [k]");
	} else {
		str_puts(&r->out, " (");
		text_append_cut(&r->out, object, 24);
		str_putc(&r->out, ')');
	}
	color_end(&r->out, r->color);
}

static void print_row(struct report *r, const struct profile_table *t,
		      const struct profile_row *row)
{
	double share = t->total > 0 ? (double)row->self / (double)t->total : 0, low, high;
	const char *object = strtab_get(&t->strings, row->object);
	const char *name = strtab_get(&t->strings, row->name);
	_cleanup_str_ struct str count = {};
	char interval[24] = "";
	const char *file = profile_basename(strtab_get(&t->strings, row->file));
	_cleanup_str_ struct str place = {};
	size_t left, object_n = *object ? MIN(text_columns(object) + 3, (size_t)27) : 0;

	if (profile_share_interval(share, r->samples, &low, &high))
		snprintf(interval, sizeof(interval), "%.1f..%.1f", 100 * low, 100 * high);
	append_value(r, row->self, &count);
	print_right(&r->out, str_get(&count), 14);
	str_printf(&r->out, "  %6.2f %11s %6.2f  ", pct(row->self, t->total), interval,
		   pct(row->total, t->total));
	if (row->line && *file) {
		text_append_clean(&place, file, 0);
		str_printf(&place, ":%u", row->line);
	}
	left = columns_left(r, 42 + object_n + (place.n ? text_columns(place.data) + 1 : 0));
	print_name(r, name, row->kind, left);
	print_object(r, row->kind, object_n && !str_starts(name, object) ? object : "");
	if (place.n) {
		str_putc(&r->out, ' ');
		color_begin(&r->out, r->color, COLOR_BLUE);
		str_append(&r->out, place.data, place.n);
		color_end(&r->out, r->color);
	}
	str_putc(&r->out, '\n');
}

static int print_table(struct report *r)
{
	_cleanup_profile_table_ struct profile_table *t = NULL;
	const struct profile_type *type = &r->p->types[r->p->default_type];
	s64 rest = 0;
	size_t n;

	if (profile_table_build(r->p, r->o, &t) < 0)
		return cli_error(1, "report: out of memory");
	sort_table(t, r->a->sort);
	n = MIN(t->rows.n, (size_t)r->a->limit);
	str_printf(&r->out, "%14s %6s %11s %6s  function (%s in %s)\n", "self", "%", "95 %",
		   "total%", profile_string(r->p, type->name), profile_string(r->p, type->unit));
	for (size_t i = 0; i < n; i++)
		print_row(r, t, &t->rows.data[i]);
	for (size_t i = n; i < t->rows.n; i++)
		rest += t->rows.data[i].self;
	if (n < t->rows.n)
		str_printf(&r->out, "%14s %6.2f %11s %6s  (%zu more functions)\n", "",
			   pct(rest, t->total), "", "", t->rows.n - n);
	return 0;
}

/* ---- waits by what was waited for ---- */

static void print_waits(struct report *r, const struct profile_waits *w)
{
	s64 all = 0;

	for (u32 k = 0; k < WAIT_N; k++)
		all += w->value[k];
	str_printf(&r->out, "%14s %6s %11s  waits for\n", "total", "%", "samples");
	for (u32 i = 0; i < WAIT_N; i++) {
		_cleanup_str_ struct str value = {}, samples = {};
		enum wait k = w->order[i];

		if (!w->value[k])
			continue;
		append_value(r, w->value[k], &value);
		if (w->has_samples)
			text_append_count(&samples, w->samples[k]);
		print_right(&r->out, str_get(&value), 14);
		str_printf(&r->out, " %6.2f %11s  %s: %s\n", pct(w->value[k], all),
			   str_get(&samples), k ? vocab_wait(k)->name : "(not known)",
			   k ? vocab_wait(k)->help : "samples without the attribute " PROFILE_WAIT);
	}
	str_putc(&r->out, '\n');
}

/* ---- the tree ---- */

static const struct profile_tree *sorted_tree; /* qsort's compare takes no argument */

static int by_node_total(const void *a, const void *b)
{
	u32 i = *(const u32 *)a, j = *(const u32 *)b;
	s64 x = sorted_tree->nodes.data[i].total, y = sorted_tree->nodes.data[j].total;

	return x != y ? (x > y ? -1 : 1) : (i > j) - (i < j);
}

struct branch {
	u32 node; /* or PROFILE_NONE: the hidden branches below a node */
	u32 indent;
	bool fork;  /* one of several below its parent */
	u32 hidden; /* number of hidden branches */
	s64 hidden_total;
};

typedef vec(struct branch) branch_vec;

static void print_branch(struct report *r, const struct profile_tree *t, const struct branch *b)
{
	const struct profile_node *n;
	s64 all = t->nodes.data[0].total;

	if (b->node == PROFILE_NONE) {
		str_printf(&r->out, "%7.2f %7s  %*s- (%u more below %g %%)\n",
			   pct(b->hidden_total, all), "", (int)b->indent, "", b->hidden,
			   r->a->min_pct);
		return;
	}
	n = &t->nodes.data[b->node];
	str_printf(&r->out, "%7.2f ", pct(n->total, all));
	if (n->self && !r->a->callers)
		str_printf(&r->out, "%7.2f  ", pct(n->self, all));
	else
		str_printf(&r->out, "%7s  ", "");
	str_printf(&r->out, "%*s%s", (int)b->indent, "", b->fork ? "- " : "  ");
	print_name(r, strtab_get(&t->strings, n->name), n->kind, columns_left(r, 23 + b->indent));
	str_printf(&r->out, "%s\n", n->kind == FRAME_KERNEL ? " [k]" : "");
}

/*
 * Pushes the children to print, largest total on top. Only forks indent further, and each branch of
 * a fork starts with a dash: stacks are deep and terminals are narrow.
 */
static int push_branches(struct report *r, const struct profile_tree *t, const struct branch *of,
			 branch_vec *stack)
{
	const struct profile_node *parent = &t->nodes.data[of->node];
	s64 all = t->nodes.data[0].total;
	struct branch rest = {.node = PROFILE_NONE, .indent = of->indent};
	bool fork;
	vec(u32) shown = {};
	int err = 0;

	for (u32 c = of->node + 1; c <= of->node + parent->n_below && err == 0;
	     c += t->nodes.data[c].n_below + 1) {
		if (pct(t->nodes.data[c].total, all) >= r->a->min_pct) {
			err = vec_push(&shown, c);
			continue;
		}
		rest.hidden++;
		rest.hidden_total += t->nodes.data[c].total;
	}
	sorted_tree = t;
	if (shown.n)
		qsort(shown.data, shown.n, sizeof(u32), by_node_total);
	fork = shown.n + (rest.hidden > 0) > 1;
	if (fork)
		rest.indent = MIN(of->indent + 2, 200u);
	if (rest.hidden && err == 0)
		err = vec_push(stack, rest);
	for (size_t i = shown.n; i > 0 && err == 0; i--) {
		struct branch b = {.node = shown.data[i - 1], .indent = rest.indent, .fork = fork};

		err = vec_push(stack, b);
	}
	vec_deinit(&shown);
	return err;
}

static int print_tree(struct report *r)
{
	struct profile_tree_options o = *r->o;
	_cleanup_profile_tree_ struct profile_tree *t = NULL;
	struct branch at = {};
	branch_vec stack = {};
	int err;

	o.inverted = r->a->callers;
	o.no_process = r->a->callers;
	o.waits = true;
	err = profile_tree_build(r->p, &o, &t);
	if (err == 0)
		err = vec_push(&stack, at);
	str_printf(&r->out, "%7s %7s  %s\n", "total%", "self%",
		   r->a->callers ? "callers" : "call tree");
	while (err == 0 && stack.n) {
		at = stack.data[--stack.n];
		print_branch(r, t, &at);
		if (at.node != PROFILE_NONE)
			err = push_branches(r, t, &at, &stack);
	}
	vec_deinit(&stack);
	return err < 0 ? cli_error(1, "report: out of memory") : 0;
}

/* ---- the command ---- */

static size_t terminal_width(void)
{
	struct winsize w;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0)
		return 0;
	return w.ws_col;
}

static int print_report(const struct profile *p, const struct report_arguments *a,
			const struct profile_tree_options *o)
{
	struct report r = {.p = p,
			   .a = a,
			   .o = o,
			   .color = color_wanted(),
			   .width = a->width ? a->width : terminal_width(),
			   .samples = profile_sample_count(p)};
	struct profile_waits waits;
	int status = 0;

	if (*profile_string(p, p->title)) {
		text_append_clean(&r.out, profile_string(p, p->title), 0);
		str_puts(&r.out, ": ");
	}
	profile_quality_line(p, &r.out);
	str_puts(&r.out, "\n\n");
	if (profile_waits_sum(p, &waits))
		print_waits(&r, &waits);
	if (!a->no_table)
		status = print_table(&r);
	if (!a->no_table && !a->no_tree)
		str_putc(&r.out, '\n');
	if (status == 0 && !a->no_tree)
		status = print_tree(&r);
	if (status == 0 && r.out.failed)
		status = cli_error(1, "report: out of memory");
	if (status == 0 &&
	    (fwrite(str_get(&r.out), 1, r.out.n, stdout) != r.out.n || fflush(stdout) != 0))
		status = cli_error(1, "report: cannot write to standard output");
	str_deinit(&r.out);
	return status;
}

int cmd_report(int argc, char **argv)
{
	struct report_arguments a = {.sort = "self", .limit = 30, .min_pct = 1};
	struct view_arguments v = {};
	struct profile_write_options o = {};
	const struct option_group groups[] = {{NULL, report_options, &a},
					      {"Display", view_look_options, &v},
					      {"Filters", view_filter_options, &v},
					      {}};
	const struct option_usage usage = {
		.command = "report",
		.operands = "FILE...",
		.summary =
			"Shows where the time went: a table of functions, with the 95 % "
			"confidence interval of each\nshare, and the call tree. Several files are summed.",
		.groups = groups,
		.examples = "  culprit report culprit.html\n"
			    "  culprit report --callers -n 10 a.pb.gz",
	};
	_cleanup_profile_ struct profile *p = NULL;
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r != 0)
		return r < 0 ? 2 : 0;
	if (first == argc)
		return cli_error(2, "report: give a file: culprit report FILE");
	if (strcmp(a.sort, "self") && strcmp(a.sort, "total") && strcmp(a.sort, "name"))
		return cli_error(2, "report: --sort takes self, total or name, not '%s'", a.sort);
	if (view_apply(&v, "report", &o) < 0)
		return 2;
	if (view_read("report", argv + first, argc - first, a.format, a.type, &p) < 0)
		return 1;
	if (!a.self && profile_leave_out_self(&p) < 0)
		return cli_error(1, "report: out of memory");
	return print_report(p, &a, &o.tree);
}
