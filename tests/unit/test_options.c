/* SPDX-License-Identifier: Apache-2.0 */
/* options.c belongs to the executable, not to the library: it is compiled in here. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.c"

/* main.c's, which has a main() of its own. */
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
		{"--nope=1", NULL, "try: no option --nope; culprit try --help lists them"},
		{"-x", NULL, "try: no option -x; culprit try --help lists them"},
		{"--output", NULL, "try: --output needs a value: --output FILE"},
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
				"  -h, --help                this text\n");
}
