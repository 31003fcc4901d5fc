/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes scripts of the tracing language as far as asked, and shows what is wrong with each:
 *
 *	trace_check parse|compile|load FILE…
 *
 * `load` lets the kernel verify the programs; nothing is attached. A line "FILE: right" or an error
 * per script, then how many are right. Exit status 1: at least one is wrong.
 * tests/tools/trace_scripts.py runs it over folders and documents.
 */
#include <stdio.h>
#include <string.h>

#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "trace/trace.h"

static int parse(const char *path, const struct str *text, struct diag *d)
{
	_cleanup_trace_script_ struct trace_script *s = NULL;

	return trace_parse(path, str_get(text), text->n, NULL, d, &s);
}

static int compile(const char *path, const struct str *text, bool load, struct diag *d)
{
	struct tracer_session_options o = {
		.file = path, .text = str_get(text), .n = text->n, .out = stdout, .verbose = load};
	struct tracer_session *s = NULL;
	int r = tracer_session_create(&o, d, &s);

	/* Nothing walks stacks without a recording; programs that use stacks load all the same. */
	if (r == 0 && load)
		r = tracer_session_load(s, NULL, d);
	tracer_session_destroy(s);
	return r;
}

static int check(const char *mode, const char *path)
{
	_cleanup_str_ struct str text = {}, shown = {};
	struct diag d = {};
	int r = io_read(path, 1 << 20, &text);

	if (r < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(-r));
		return r;
	}
	if (strcmp(mode, "parse") == 0)
		r = parse(path, &text, &d);
	else
		r = compile(path, &text, strcmp(mode, "load") == 0, &d);
	if (r < 0)
		trace_error_show(path, str_get(&text), text.n, d.text, &shown);
	else
		str_printf(&shown, "%s: right\n", path);
	fputs(str_get(&shown), stdout);
	fflush(stdout);
	return r;
}

int main(int argc, char **argv)
{
	int wrong = 0;

	if (argc < 2 || (strcmp(argv[1], "parse") != 0 && strcmp(argv[1], "compile") != 0 &&
			 strcmp(argv[1], "load") != 0)) {
		fprintf(stderr, "usage: trace_check parse|compile|load FILE...\n");
		return 2;
	}
	for (int i = 2; i < argc; i++)
		wrong += check(argv[1], argv[i]) < 0;
	printf("%d of %d scripts are right\n", argc - 2 - wrong, argc - 2);
	return wrong > 0;
}
