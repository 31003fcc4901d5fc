/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit top: shows where the machine spends its time right now, in the terminal.
 *
 * Every picture covers the samples of one interval (--delay), symbolized, as a table of functions
 * or of processes.
 */
#include <errno.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "base/vocab.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/sampling.h"
#include "cli/signals.h"
#include "profile/profile.h"

struct top_arguments {
	double delay_s;
	u64 rounds;
	bool by_process, by_total;
	bool batch, self;
};

#define A struct top_arguments
static const struct option top_options[] = {
	OPTION_TIME("delay", 'd', A, delay_s, 0.1, 3600, "time between two updates (default 2)"),
	OPTION_U64("rounds", 'n', "N", A, rounds, 1, 1000000000, "end after N updates"),
	OPTION_FLAG("processes", 0, A, by_process,
		    "start with the table of processes instead of functions"),
	OPTION_FLAG("total", 0, A, by_total, "start sorted by total instead of self time"),
	OPTION_FLAG("self", 0, A, self, "show what culprit itself does, too"),
	OPTION_FLAG("batch", 'b', A, batch, "print plain text, one table after the other"),
	{},
};
#undef A

struct line {
	u32 name;  /* string id in `names` */
	u32 where; /* likewise: the binary, or the process id */
	s64 self, total;
	u64 seen; /* number of the last sample that was added to `total` */
};

struct picture {
	struct strtab names;
	vec(struct line) lines;
	struct map index; /* name and where → index in `lines` */
	s64 all;
	s64 value; /* what all samples stand for */
	struct pipeline_stats stats;
	struct profile_quality quality;
	u64 self_processes; /* left out */
	double seconds;
};

struct top {
	struct top_arguments args;
	struct sampling_arguments sampling;
	struct recording *recording;
	struct picture picture;
	bool paused;
};

static void picture_deinit(struct picture *p)
{
	strtab_deinit(&p->names);
	vec_deinit(&p->lines);
	map_deinit(&p->index);
	*p = (struct picture){};
}

static struct line *line_of(struct picture *p, const char *name, const char *where)
{
	struct line line = {};
	u64 key, *known;

	if (strtab_add(&p->names, name, strlen(name), &line.name) < 0 ||
	    strtab_add(&p->names, where, strlen(where), &line.where) < 0)
		return NULL;
	key = (u64)line.name << 32 | line.where;
	known = map_get(&p->index, key);
	if (known)
		return &p->lines.data[*known];
	if (vec_push(&p->lines, line) < 0 || map_put(&p->index, key, p->lines.n - 1) < 0)
		return NULL;
	return &p->lines.data[p->lines.n - 1];
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* Adds a sample to its functions: to each one's total once, even if the stack has it twice. */
static void count_functions(struct picture *pic, const struct profile *p,
			    const struct profile_sample *s, u64 number)
{
	const struct profile_stack *stack = &p->stacks.data[s->stack];
	_cleanup_str_ struct str scratch = {};

	for (u32 i = 0; i < stack->n; i++) {
		u32 id = p->stack_frames.data[stack->first + i];
		const struct profile_frame *f = &p->frames.data[id];
		const char *where = f->mapping == PROFILE_NONE
					    ? ""
					    : profile_string(p, p->mappings.data[f->mapping].path);
		struct line *l;

		if (vocab_frame_kind(f->kind)->class == FRAME_CLASS_NOTE)
			continue;
		l = line_of(pic, profile_frame_name(p, id, &scratch), base_name(where));
		if (!l)
			return;
		if (i == 0)
			l->self += s->value[p->default_type];
		if (l->seen != number)
			l->total += s->value[p->default_type];
		l->seen = number;
	}
}

static void count_process(struct picture *pic, const struct profile *p,
			  const struct profile_sample *s)
{
	const struct profile_thread *t = &p->threads.data[s->thread];
	char where[32];
	struct line *l;

	snprintf(where, sizeof(where), "%u", t->pid);
	l = line_of(pic, profile_string(p, t->comm), where);
	if (!l)
		return;
	l->self += s->value[p->default_type];
	l->total += s->value[p->default_type];
}

static int compare_self(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	if (x->self != y->self)
		return x->self < y->self ? 1 : -1;
	return x->total < y->total ? 1 : x->total > y->total ? -1 : 0;
}

static int compare_total(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	if (x->total != y->total)
		return x->total < y->total ? 1 : -1;
	return x->self < y->self ? 1 : x->self > y->self ? -1 : 0;
}

static int take_picture(struct top *t)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct picture *pic = &t->picture;
	struct symbolizer_stats sym;
	struct pipeline_stats stats;
	int r;

	recording_stats(t->recording, &stats);
	r = recording_profile(t->recording, &p);
	if (r < 0)
		return r;
	picture_deinit(pic);
	r = strtab_init(&pic->names);
	if (r < 0)
		return r;
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);

		pic->all += s->value[p->default_type];
		pic->value += s->value[p->n_types - 1];
		if (t->args.by_process)
			count_process(pic, p, s);
		else
			count_functions(pic, p, s, i + 1);
	}
	if (pic->lines.n)
		qsort(pic->lines.data, pic->lines.n, sizeof(*pic->lines.data),
		      t->args.by_total ? compare_total : compare_self);
	pic->stats = stats;
	pic->quality = p->quality;
	recording_symbol_stats(t->recording, &sym);
	pic->self_processes = sym.self_processes;
	return 0;
}

static double pct(s64 part, s64 whole)
{
	return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Replaces control characters, which could change the state of the terminal. */
static const char *printable(const char *name, struct str *scratch)
{
	str_clear(scratch);
	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		str_putc(scratch, *c < 0x20 || *c == 0x7f ? '?' : (char)*c);
	return str_get(scratch);
}

/* What was seen in a second: "1.9 cores", "1234 faults/s". */
static void rate_text(const struct top *t, char *ret, size_t n)
{
	const struct sampler_source *source = recording_source(t->recording, 0);
	const struct vocab_sample_type *type = vocab_sample_type(source->type);
	u64 per_second = vocab_per_second(type->unit);
	double rate = t->picture.seconds > 0 ? (double)t->picture.value / t->picture.seconds : 0;

	if (per_second)
		snprintf(ret, n, "%.1f %s", rate / (double)per_second, type->rate);
	else
		snprintf(ret, n, "%.0f %s/s", rate, type->rate);
}

static void head_line(const struct top *t, char *ret, size_t n)
{
	const struct picture *p = &t->picture;
	const struct profile_quality *q = &p->quality;
	char rate[64];

	rate_text(t, rate, sizeof(rate));
	snprintf(ret, n, "%llu samples of %llu processes, %s, lost %llu, truncated %.1f %%",
		 q->samples, p->stats.processes - MIN(p->stats.processes, p->self_processes), rate,
		 p->stats.counts.lost, pct((s64)q->truncated, (s64)q->user_stacks));
	if (q->self)
		snprintf(ret + strlen(ret), n - strlen(ret), ", culprit itself %.1f %%: left out",
			 pct((s64)q->self, (s64)(q->samples + q->self)));
}

static void print_batch(const struct top *t)
{
	const struct picture *p = &t->picture;
	_cleanup_str_ struct str scratch = {};
	char head[224];

	head_line(t, head, sizeof(head));
	printf("%s\n  SELF %%  TOTAL %%  %s\n", head, t->args.by_process ? "PROCESS" : "FUNCTION");
	for (size_t i = 0; i < p->lines.n && i < 40; i++) {
		const struct line *l = &p->lines.data[i];

		printf("%8.2f %8.2f  %s", pct(l->self, p->all), pct(l->total, p->all),
		       printable(strtab_get(&p->names, l->name), &scratch));
		printf("  (%s)\n", printable(strtab_get(&p->names, l->where), &scratch));
	}
	putchar('\n');
	fflush(stdout);
}

static void draw_screen(const struct top *t)
{
	const struct picture *p = &t->picture;
	_cleanup_str_ struct str scratch = {};
	char head[224];

	erase();
	head_line(t, head, sizeof(head));
	mvaddnstr(0, 0, head, COLS);
	attron(A_REVERSE);
	mvprintw(1, 0, "%-*.*s", COLS, COLS,
		 t->args.by_process ? "  SELF %  TOTAL %  PROCESS" : "  SELF %  TOTAL %  FUNCTION");
	attroff(A_REVERSE);
	for (int i = 0; i < (int)p->lines.n && i + 3 < LINES; i++) {
		const struct line *l = &p->lines.data[i];
		const char *where = strtab_get(&p->names, l->where);
		int room = COLS - 19 - (int)strlen(where) - 3;

		mvprintw(i + 2, 0, "%8.2f %8.2f", pct(l->self, p->all), pct(l->total, p->all));
		mvaddnstr(i + 2, 19, printable(strtab_get(&p->names, l->name), &scratch),
			  room > 10 ? room : COLS - 19);
		attron(A_DIM);
		if (room > 10)
			printw("  %s", printable(where, &scratch));
		attroff(A_DIM);
	}
	mvprintw(LINES - 1, 0, "q quit   p processes/functions   s self/total   space %s",
		 t->paused ? "continue" : "pause");
	refresh();
}

/* Returns false when the user quits. */
static bool handle_key(struct top *t, int key)
{
	switch (key) {
	case 'q':
	case 3:
		return false;
	case 'p':
		t->args.by_process = !t->args.by_process;
		break;
	case 's':
		t->args.by_total = !t->args.by_total;
		if (t->picture.lines.n)
			qsort(t->picture.lines.data, t->picture.lines.n,
			      sizeof(*t->picture.lines.data),
			      t->args.by_total ? compare_total : compare_self);
		draw_screen(t);
		break;
	case ' ':
		t->paused = !t->paused;
		draw_screen(t);
		break;
	case KEY_RESIZE:
		draw_screen(t);
		break;
	default:
		break;
	}
	return true;
}

static double now_s(void)
{
	return (double)clock_ns(CLOCK_MONOTONIC) / 1e9;
}

static int draw_until_quit(struct top *t)
{
	double since = now_s(), delay = t->args.delay_s > 0 ? t->args.delay_s : 2;
	u64 round = 0;

	while (!signals_ended()) {
		int r = recording_poll(t->recording, 50);
		int key = t->args.batch ? ERR : getch();
		double now = now_s();

		if (r < 0)
			return r;
		if (key != ERR && !handle_key(t, key))
			return 0;
		if (now - since < delay)
			continue;
		if (t->paused) {
			recording_discard(t->recording);
			since = now;
			continue;
		}
		r = take_picture(t);
		if (r < 0)
			return r;
		t->picture.seconds = now - since;
		since = now;
		if (t->args.batch)
			print_batch(t);
		else
			draw_screen(t);
		if (t->args.rounds && ++round >= t->args.rounds)
			return 0;
	}
	return 0;
}

static int run(struct top *t)
{
	struct diag diag = {};
	int r = recording_start(t->recording, &diag);

	if (r < 0)
		return cli_error(1, "%s", diag.text);
	if (!t->args.batch) {
		if (!initscr())
			return cli_error(
				1, "cannot initialize the terminal; use --batch for plain text");
		cbreak();
		noecho();
		nodelay(stdscr, TRUE);
		keypad(stdscr, TRUE);
		curs_set(0);
	}
	r = draw_until_quit(t);
	if (!t->args.batch)
		endwin();
	recording_stop(t->recording);
	return r < 0 ? cli_error(1, "reading events failed: %s", strerror(-r)) : 0;
}

int cmd_top(int argc, char **argv)
{
	struct top t = {};
	const struct option_group groups[] = {
		{NULL, top_options, &t.args}, {"Sampling", sampling_options, &t.sampling}, {}};
	const struct option_usage usage = {
		.command = "top",
		.operands = "",
		.summary = "Shows where the machine spends its time, updated every few seconds.",
		.groups = groups,
		.footer =
			"Keys: q quits, p toggles processes and functions, s toggles self and total, space pauses.",
	};
	struct diag diag = {};
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r)
		return r < 0 ? 2 : 0;
	if (argv[first])
		return cli_error(2, "top: unexpected argument '%s'; see culprit top --help",
				 argv[first]);
	if (!isatty(STDOUT_FILENO))
		t.args.batch = true;
	if (t.sampling.what.attach_java)
		return cli_error(2, "top shows what runs now; record takes --attach-java");
	signals_catch_end();
	sampling_apply(&t.sampling);
	t.sampling.what.leave_self = !t.args.self;
	r = parsers_start(&diag, &t.sampling.what.parsers);
	if (r == 0)
		r = recording_create(&t.sampling.what, &diag, &t.recording);
	if (r < 0) {
		r = cli_fail(r, &diag);
	} else if (vocab_sample_type(recording_source(t.recording, 0)->type)->adds ==
		   SAMPLE_ADDS_AT_MOMENT) {
		r = cli_error(2, "top shows rates; record shows what there is at a moment");
		recording_destroy(t.recording);
	} else {
		r = run(&t);
		picture_deinit(&t.picture);
		recording_destroy(t.recording);
	}
	parsers_stop(t.sampling.what.parsers);
	return r;
}
