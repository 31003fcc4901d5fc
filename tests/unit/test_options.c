/* SPDX-License-Identifier: Apache-2.0 */
/* Includes options.c, which belongs to the executable and not to a library. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.c" /* NOLINT: tests its static functions */

/* Replaces cli_error() of main.c, which cannot be linked because of its main(). */
static char said[512];

int cli_error(int status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
	return status;
}

struct arguments {
	bool all, brief;
	const char *output;
	u64 hz;
	double seconds;
};

static const struct option options[] = {
	OPTION_FLAG("all", 'a', struct arguments, all, "everything"),
	OPTION_FLAG("brief", 'b', struct arguments, brief, "less"),
	OPTION_STRING("output", 'o', "FILE", struct arguments, output, "where to"),
	OPTION_U64("frequency", 'F', "HZ", struct arguments, hz, 1, 10000, "how often\nand more"),
	OPTION_F64("duration", 'd', "SEC", struct arguments, seconds, 0.1, 1e6, "how long"),
	{},
};

static int parse(struct arguments *a, bool stop, int *ret_first, char **argv)
{
	const struct option_group groups[] = {{"Options", options, a}, {}};
	const struct option_usage u = {.command = "try",
				       .operands = "FILE",
				       .summary = "Tries.",
				       .groups = groups,
				       .stop_at_operand = stop};
	int argc = 0;

	while (argv[argc])
		argc++;
	said[0] = '\0';
	return options_parse(&u, argc, argv, ret_first);
}

#define ARGV(...) ((char *[]){(char *)"try", __VA_ARGS__, NULL})
#define W(s) ((char *)(s))

Test(options, every_spelling_is_understood)
{
	struct arguments a = {};
	char **argv = ARGV(W("x"), W("--output=f=1"), W("-F99"), W("y"), W("-abd"), W("1.5"),
			   W("-"), W("--"), W("--all"));
	int first = -1;

	cr_assert_eq(parse(&a, false, &first, argv), 0, "%s", said);
	cr_assert(a.all && a.brief);
	cr_assert_str_eq(a.output, "f=1");
	cr_assert_eq(a.hz, 99);
	cr_assert_float_eq(a.seconds, 1.5, 0);
	cr_assert_str_eq(argv[first], "x");
	cr_assert_str_eq(argv[first + 1], "y");
	cr_assert_str_eq(argv[first + 2], "-");
	cr_assert_str_eq(argv[first + 3], "--all");
	cr_assert_null(argv[first + 4]);
}

Test(options, a_command_keeps_its_own_options)
{
	struct arguments a = {};
	char **argv = ARGV(W("-F"), W("5"), W("prog"), W("-a"), W("--output"));
	int first = -1;

	cr_assert_eq(parse(&a, true, &first, argv), 0, "%s", said);
	cr_assert_eq(first, 3);
	cr_assert_not(a.all);
	argv = ARGV(W("-a"), W("--"), W("-prog"), W("--"));
	cr_assert_eq(parse(&a, true, &first, argv), 0, "%s", said);
	cr_assert_str_eq(argv[first], "-prog");
	cr_assert_str_eq(argv[first + 1], "--");
}

Test(options, mistakes_are_told_in_one_line)
{
	static const struct {
		const char *word, *second, *says;
	} cases[] = {
		{"--nope=1", NULL, "try: unknown option --nope; see culprit try --help"},
		{"-x", NULL, "try: unknown option -x; see culprit try --help"},
		{"--output", NULL, "try: --output requires a value: --output FILE"},
		{"--all=yes", NULL, "try: --all takes no value"},
		{"-F", "0", "try: --frequency takes a whole number from 1 to 10000, not '0'"},
		{"-F", "10001",
		 "try: --frequency takes a whole number from 1 to 10000, not '10001'"},
		{"-F", "-5", "try: --frequency takes a whole number from 1 to 10000, not '-5'"},
		{"-F", "0x10", "try: --frequency takes a whole number from 1 to 10000, not '0x10'"},
		{"-d", "nan", "try: --duration takes a number from 0.1 to 1e+06, not 'nan'"},
		{"-d", "5s", "try: --duration takes a number from 0.1 to 1e+06, not '5s'"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct arguments a = {};
		int first = -1;

		cr_expect_eq(parse(&a, false, &first, ARGV(W(cases[i].word), W(cases[i].second))),
			     -EINVAL);
		cr_expect_str_eq(said, cases[i].says);
		cr_expect_eq(first, -1);
	}
}

Test(options, help_comes_from_the_table, .init = cr_redirect_stdout)
{
	struct arguments a = {};
	int first;

	cr_assert_eq(parse(&a, false, &first, ARGV(W("--help"))), 1);
	fflush(stdout);
	cr_assert_stdout_eq_str("usage: culprit try [OPTIONS] FILE\n"
				"\n"
				"Tries.\n"
				"\n"
				"Options:\n"
				"  -a, --all                 everything\n"
				"  -b, --brief               less\n"
				"  -o, --output FILE         where to\n"
				"  -F, --frequency HZ        how often\n"
				"                            and more\n"
				"  -d, --duration SEC        how long\n"
				"  -h, --help                print this help\n");
}

static int configured(struct arguments *a, const char *file, char **argv)
{
	const struct option_group groups[] = {{"Options", options, a}, {}};
	const struct option_usage u = {.command = "try",
				       .operands = "",
				       .summary = "Tries.",
				       .groups = groups,
				       .configurable = true};
	FILE *f = fopen("try.conf", "w");
	int argc = 0, first;

	cr_assert(f);
	fputs(file, f);
	fclose(f);
	while (argv[argc])
		argc++;
	said[0] = '\0';
	return options_parse(&u, argc, argv, &first);
}

static void in_a_folder(void)
{
	char path[] = "/tmp/options-XXXXXX";

	cr_assert(mkdtemp(path));
	cr_assert_eq(chdir(path), 0);
}

Test(options, file_environment_and_command_line_in_this_order, .init = in_a_folder)
{
	struct arguments a = {};

	setenv("CULPRIT_FREQUENCY", "20", 1);
	setenv("CULPRIT_BRIEF", "yes", 1);
	cr_assert_eq(configured(&a,
				"# what we want\n\n  output = a b.html \nfrequency=10\r\n"
				"duration = 3\nall = on\nbrief = no",
				ARGV(W("--duration"), W("4"), W("--config=try.conf"))),
		     0, "%s", said);
	cr_expect_str_eq(a.output, "a b.html");
	cr_expect_eq(a.hz, 20);
	cr_expect_float_eq(a.seconds, 4, 1e-9);
	cr_expect(a.all && a.brief);
}

Test(options, what_is_wrong_in_a_file_is_said_with_its_line, .init = in_a_folder)
{
	static const struct {
		const char *file, *says;
	} cases[] = {
		{"\nfrequency = fast\n",
		 "try.conf:2: --frequency takes a whole number from 1 to 10000, not 'fast'"},
		{"all = perhaps\n", "try.conf:1: all must be yes or no, not 'perhaps'"},
		{"colour = red\n", "try.conf:1: unknown option colour; see culprit try --help"},
		{"frequency 3\n", "try.conf:1: expected \"name = value\", not 'frequency 3'"},
	};
	struct arguments a = {};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cr_expect_eq(configured(&a, cases[i].file, ARGV(W("--config"), W("try.conf"))),
			     -EINVAL);
		cr_expect_str_eq(said, cases[i].says);
	}
	cr_expect_eq(configured(&a, "", ARGV(W("--config=gone.conf"))), -EINVAL);
	cr_expect_str_eq(said, "cannot read gone.conf: No such file or directory");
}

Test(options, a_long_name_behind_one_dash)
{
	struct arguments a = {};
	int first;

	cr_expect_eq(parse(&a, false, &first, ARGV(W("-output"), W("x"), W("-frequency=7"))), 0);
	cr_expect_str_eq(a.output, "x");
	cr_expect_eq(a.hz, 7);
	cr_expect_eq(parse(&a, false, &first, ARGV(W("-outputs"))), 0);
	cr_expect_str_eq(a.output, "utputs");
}
