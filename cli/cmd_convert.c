/* SPDX-License-Identifier: Apache-2.0 */
/* culprit convert: reads any readable format and writes any writable one; sums several inputs. */
#include "base/str.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/view.h"
#include "format/format.h"

struct convert_arguments {
	bool force;
	const char *format, *input_format, *type;
};

static const struct option convert_options[] = {
	OPTION_STRING("format", 0, "NAME", struct convert_arguments, format,
		      "output format (default: by the extension)"),
	OPTION_STRING("input-format", 0, "NAME", struct convert_arguments, input_format,
		      "input format (default: by the content)"),
	OPTION_STRING("type", 0, "NAME", struct convert_arguments, type,
		      "sample type to show, if the input has several"),
	OPTION_FLAG("force", 0, struct convert_arguments, force, "replace OUTPUT if it exists"),
	{},
};

/* Appended to --help. */
void cli_formats_text(struct str *out)
{
	const struct profile_format *f;

	str_puts(out, "Formats:\n");
	for (size_t i = 0; (f = profile_format_at(i)); i++)
		str_printf(out, "  %-12s %-5s %-5s %s%s%s%s\n", f->name, f->read ? "read" : "",
			   f->write ? "write" : "", f->help, *f->endings ? " (" : "", f->endings,
			   *f->endings ? ")" : "");
	str_puts(
		out,
		"\nFILE may be - for standard input or output. Input may be gzipped; output is if its name\nends in .gz.");
}

int cmd_convert(int argc, char **argv)
{
	struct convert_arguments a = {};
	struct view_arguments v = {};
	struct profile_write_options o = {};
	const struct option_group groups[] = {{NULL, convert_options, &a},
					      {"Display", view_look_options, &v},
					      {"Filters", view_filter_options, &v},
					      {}};
	_cleanup_str_ struct str formats = {};
	const struct option_usage usage = {
		.command = "convert",
		.operands = "INPUT... OUTPUT",
		.summary = "Converts a profile to another format. Several inputs are summed.",
		.groups = groups,
		.footer = (cli_formats_text(&formats), str_get(&formats)),
		.examples = "  culprit convert culprit.html x.pb.gz\n"
			    "  perf script | culprit convert - x.svg",
	};
	_cleanup_profile_ struct profile *p = NULL;
	const struct profile_format *format;
	struct diag d = {};
	int first, r = options_parse(&usage, argc, argv, &first);

	if (r != 0)
		return r < 0 ? 2 : 0;
	if (argc - first < 2)
		return cli_error(2, "convert: give an input and an output: culprit convert INPUT "
				    "OUTPUT");
	if (view_apply(&v, "convert", &o) < 0)
		return 2;
	if (view_check_output(argv[argc - 1], a.format, a.force, &format, &d) < 0)
		return cli_error(1, "convert: %s", d.text);
	if (view_read("convert", argv + first, argc - first - 1, a.input_format, a.type, &p) < 0)
		return 1;
	if (profile_write_file(p, argv[argc - 1], format, &o, &d) < 0)
		return cli_error(1, "convert: %s", d.text);
	return 0;
}
