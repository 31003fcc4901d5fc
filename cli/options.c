/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/closest.h"
#include "base/duration.h"
#include "base/str.h"
#include "base/vec.h"
#include "cli/cli.h"

#define HELP_COLUMN 28

static void print_option(const struct option *o)
{
	char left[80];
	int n = snprintf(left, sizeof(left), "  %c%c%s --%s%s%s", o->letter ? '-' : ' ',
			 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
			 o->arg ? " " : "", o->arg ? o->arg : "");
	const char *line = o->help;

	printf("%s%*s", left, n < HELP_COLUMN - 1 ? HELP_COLUMN - n : 2, "");
	for (;;) {
		int len = (int)strcspn(line, "\n");

		printf("%.*s\n", len, line);
		if (!line[len])
			break;
		line += len + 1;
		printf("%*s", HELP_COLUMN, "");
	}
}

static const struct option help_option = {.name = "help", .letter = 'h', .help = "print this help"};
static const struct option config_option = {
	.name = "config",
	.arg = "FILE",
	.help = "read options from lines \"name = value\"; see also CULPRIT_NAME variables",
};

void options_print_help(const struct option_usage *u)
{
	printf("usage: culprit %s [OPTIONS]%s%s\n\n%s\n", u->command, *u->operands ? " " : "",
	       u->operands, u->summary);
	for (const struct option_group *g = u->groups; g->options; g++) {
		printf("\n");
		if (g->title)
			printf("%s:\n", g->title);
		for (const struct option *o = g->options; o->name; o++)
			print_option(o);
	}
	if (u->configurable)
		print_option(&config_option);
	print_option(&help_option);
	if (u->footer)
		printf("\n%s\n", u->footer);
	if (u->examples)
		printf("\nExamples:\n%s\n", u->examples);
}

/* A line an option: --NAME, -LETTER or "", the name of the value or "", what it does. */
static void list_option(const struct option *o)
{
	const char letter[] = {'-', o->letter, '\0'};

	printf("--%s\t%s\t%s\t%.*s\n", o->name, o->letter ? letter : "", o->arg ? o->arg : "",
	       (int)strcspn(o->help, "\n"), o->help);
}

static void list_options(const struct option_usage *u)
{
	for (const struct option_group *g = u->groups; g->options; g++)
		for (const struct option *o = g->options; o->name; o++)
			list_option(o);
	if (u->configurable)
		list_option(&config_option);
	list_option(&help_option);
}

static void unknown_option(const struct option_usage *u, const char *name, size_t n)
{
	_cleanup_free_ char *wanted = strndup(name, n);
	vec(const char *) names = {};
	const char *meant = NULL;

	for (const struct option_group *g = u->groups; g->options; g++)
		for (const struct option *o = g->options; o->name; o++)
			(void)vec_push(&names, o->name);
	if (wanted)
		meant = closest_name(wanted, names.data, names.n);
	if (meant)
		(void)cli_error(2, "%s: unknown option --%.*s; did you mean --%s?", u->command,
				(int)n, name, meant);
	else
		(void)cli_error(2, "%s: unknown option --%.*s; see culprit %s --help", u->command,
				(int)n, name, u->command);
	vec_deinit(&names);
}

static const struct option *find_option(const struct option_usage *u, const char *name, size_t n,
					char letter, void **ret_base)
{
	for (const struct option_group *g = u->groups; g->options; g++) {
		for (const struct option *o = g->options; o->name; o++) {
			if (name ? strlen(o->name) != n || memcmp(o->name, name, n) != 0
				 : o->letter != letter)
				continue;
			*ret_base = g->base;
			return o;
		}
	}
	return NULL;
}

/* `where` says where the value was given: "record", "culprit.conf:3". */
static int reject_number(const char *where, const struct option *o, const char *value)
{
	if (o->type == OPTION_TYPE_TIME || o->type == OPTION_TYPE_SECONDS)
		(void)cli_error(
			2, "%s: --%s takes %s from %g to %g, such as 90, 90s or 1.5m, not '%s'",
			where, o->name,
			o->type == OPTION_TYPE_SECONDS ? "whole seconds" : "seconds", o->min,
			o->max, value);
	else if (o->type == OPTION_TYPE_U64)
		(void)cli_error(2, "%s: --%s takes a whole number from %.0f to %.0f, not '%s'",
				where, o->name, o->min, o->max, value);
	else
		(void)cli_error(2, "%s: --%s takes a number from %g to %g, not '%s'", where,
				o->name, o->min, o->max, value);
	return -EINVAL;
}

static int store_value(const char *where, const struct option *o, void *base, const char *value)
{
	void *to = (char *)base + o->offset;
	u64 whole;
	double real;
	char *end;

	switch (o->type) {
	case OPTION_TYPE_FLAG:
		*(bool *)to = true;
		return 0;
	case OPTION_TYPE_STRING:
		*(const char **)to = value;
		return 0;
	case OPTION_TYPE_U64:
		if (str_to_u64(value, 10, &whole) < 0 || (double)whole < o->min ||
		    (double)whole > o->max)
			return reject_number(where, o, value);
		*(u64 *)to = whole;
		return 0;
	case OPTION_TYPE_F64:
		real = strtod(value, &end);
		if (end == value || *end || !isfinite(real) || real < o->min || real > o->max)
			return reject_number(where, o, value);
		*(double *)to = real;
		return 0;
	case OPTION_TYPE_TIME:
	case OPTION_TYPE_SECONDS:
		if (duration_parse(value, true, &real) < 0 || real < o->min || real > o->max ||
		    (o->type == OPTION_TYPE_SECONDS && real != floor(real)))
			return reject_number(where, o, value);
		if (o->type == OPTION_TYPE_TIME)
			*(double *)to = real;
		else
			*(u64 *)to = (u64)real;
		return 0;
	case OPTION_END:
		break;
	}
	return -EINVAL;
}

struct cursor {
	int argc;
	char **argv;
	int i; /* index of the current argument; advanced when a value is taken from the next one */
};

/* The value of an option: in its own word after '=' (`inside`), else the next word. */
static const char *value_of(const struct option_usage *u, const struct option *o, struct cursor *c,
			    const char *inside)
{
	if (inside)
		return inside;
	if (c->i + 1 < c->argc)
		return c->argv[++c->i];
	(void)cli_error(2, "%s: --%s requires a value: --%s %s", u->command, o->name, o->name,
			o->arg);
	return NULL;
}

/* `name` is the argument without its dashes. */
static int parse_long(const struct option_usage *u, struct cursor *c, const char *name)
{
	const char *equals = strchr(name, '='), *value = NULL;
	size_t n = equals ? (size_t)(equals - name) : strlen(name);
	const struct option *o;
	void *base = NULL;

	if (n == 4 && !memcmp(name, "help", 4)) {
		options_print_help(u);
		return 1;
	}
	if (n == 12 && !memcmp(name, "list-options", 12)) {
		list_options(u);
		return 1;
	}
	if (u->configurable && n == 6 && !memcmp(name, "config", 6)) {
		/* configure() has read it. */
		c->i += !equals;
		return 0;
	}
	o = find_option(u, name, n, 0, &base);
	if (!o) {
		unknown_option(u, name, n);
		return -EINVAL;
	}
	if (o->type == OPTION_TYPE_FLAG && equals) {
		(void)cli_error(2, "%s: --%s takes no value", u->command, o->name);
		return -EINVAL;
	}
	if (o->type != OPTION_TYPE_FLAG) {
		value = value_of(u, o, c, equals ? equals + 1 : NULL);
		if (!value)
			return -EINVAL;
	}
	return store_value(u->command, o, base, value);
}

static int parse_short(const struct option_usage *u, struct cursor *c)
{
	const char *letters = c->argv[c->i] + 1;
	size_t n = strcspn(letters, "=");
	void *unused;

	if (n > 2 && find_option(u, letters, n, 0, &unused))
		return parse_long(u, c, letters);
	for (; *letters; letters++) {
		const char *value;
		void *base = NULL;
		const struct option *o = find_option(u, NULL, 0, *letters, &base);
		int r;

		if (!o && *letters == 'h') {
			options_print_help(u);
			return 1;
		}
		if (!o) {
			(void)cli_error(2, "%s: unknown option -%c; see culprit %s --help",
					u->command, *letters, u->command);
			return -EINVAL;
		}
		if (o->type != OPTION_TYPE_FLAG) {
			value = value_of(u, o, c, letters[1] ? letters + 1 : NULL);
			return value ? store_value(u->command, o, base, value) : -EINVAL;
		}
		r = store_value(u->command, o, base, NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Moves the words argv[from..to) before the operands that start at `first`. */
static void move_down(char **argv, int first, int from, int to)
{
	for (; from < to; from++, first++) {
		char *word = argv[from];

		memmove(&argv[first + 1], &argv[first], (size_t)(from - first) * sizeof(*argv));
		argv[first] = word;
	}
}

/* ---- files and the environment ---- */

static int parse_flag(const char *value, bool *ret)
{
	static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false",
										    "off", "0"};

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		if (!strcasecmp(value, yes[i]) || !strcasecmp(value, no[i])) {
			*ret = !strcasecmp(value, yes[i]);
			return 0;
		}
	}
	return -EINVAL;
}

/* Sets an option to a value from a file or the environment. */
static int set_from_text(const char *where, const struct option *o, void *base, const char *value)
{
	if (o->type != OPTION_TYPE_FLAG)
		return store_value(where, o, base, value);
	if (parse_flag(value, (bool *)((char *)base + o->offset)) == 0)
		return 0;
	(void)cli_error(2, "%s: %s must be yes or no, not '%s'", where, o->name, value);
	return -EINVAL;
}

static char *trim_spaces(char *s)
{
	size_t n;

	s += strspn(s, " \t");
	n = strlen(s);
	while (n && strchr(" \t\r\n", s[n - 1]))
		s[--n] = '\0';
	return s;
}

/* Strings stay allocated until the program ends. */
static int read_config_line(const struct option_usage *u, const char *where, char *line)
{
	char *name = trim_spaces(line), *equals = strchr(name, '=');
	const struct option *o;
	char *value;
	void *base;

	if (!*name || *name == '#')
		return 0;
	if (!equals) {
		(void)cli_error(2, "%s: expected \"name = value\", not '%s'", where, name);
		return -EINVAL;
	}
	*equals = '\0';
	name = trim_spaces(name);
	o = find_option(u, name, strlen(name), 0, &base);
	if (!o) {
		(void)cli_error(2, "%s: unknown option %s; see culprit %s --help", where, name,
				u->command);
		return -EINVAL;
	}
	value = trim_spaces(equals + 1);
	if (o->type == OPTION_TYPE_STRING)
		value = strdup(value);
	return value ? set_from_text(where, o, base, value) : -ENOMEM;
}

static int read_config(const struct option_usage *u, const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;
	int number = 0, r = 0;

	if (!f) {
		(void)cli_error(2, "cannot read %s: %s", path, strerror(errno));
		return -EINVAL;
	}
	while (r == 0 && getline(&line, &cap, f) >= 0) {
		char where[300];

		snprintf(where, sizeof(where), "%.256s:%d", path, ++number);
		r = read_config_line(u, where, line);
	}
	return r;
}

static int read_environment(const struct option_usage *u)
{
	for (const struct option_group *g = u->groups; g->options; g++) {
		for (const struct option *o = g->options; o->name; o++) {
			char name[80] = "CULPRIT_";
			size_t n = strlen(name);
			const char *value;
			int r;

			for (const char *c = o->name; *c && n + 1 < sizeof(name); c++)
				name[n++] = (char)(*c == '-' ? '_' : toupper((unsigned char)*c));
			value = getenv(name);
			r = value && *value ? set_from_text(name, o, g->base, value) : 0;
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* Reads the file that --config or CULPRIT_CONFIG names, then the environment. */
static int configure(const struct option_usage *u, int argc, char **argv)
{
	const char *path = getenv("CULPRIT_CONFIG");
	int r = 0;

	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (str_starts(argv[i], "--config="))
			path = argv[i] + strlen("--config=");
		else if (!strcmp(argv[i], "--config") && i + 1 < argc)
			path = argv[i + 1];
	}
	if (path && *path)
		r = read_config(u, path);
	return r < 0 ? r : read_environment(u);
}

int options_parse(const struct option_usage *u, int argc, char **argv, int *ret_first)
{
	struct cursor c = {.argc = argc, .argv = argv, .i = 1};
	int first = 1; /* the operands so far are argv[first..c.i) */

	if (u->configurable && configure(u, argc, argv) < 0)
		return -EINVAL;
	for (; c.i < argc; c.i++) {
		const char *word = argv[c.i];
		int from = c.i, r;

		if (word[0] != '-' || !word[1]) {
			if (u->stop_at_operand)
				break;
			continue;
		}
		if (!strcmp(word, "--")) {
			move_down(argv, first, from, from + 1);
			first++;
			break;
		}
		r = word[1] == '-' ? parse_long(u, &c, word + 2) : parse_short(u, &c);
		if (r != 0)
			return r;
		move_down(argv, first, from, c.i + 1);
		first += c.i + 1 - from;
	}
	*ret_first = first;
	return 0;
}
