/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The script of a measurement.
 *
 * A call is known by its thread and its frame: the stack pointer when it begins, which is that when
 * it returns, without the return address. A frame that recursion has below is another one; and the
 * beginning of a call that was left by longjmp() or an exception is overwritten by the next call at
 * its place, so that no return finds the beginning of another call.
 *
 * Of slow calls, some each second are told, and each that is longer than all before.
 *
 * The predicate of the return measures, so that only slow calls come to the action, which may walk
 * the stack. Its printf() names each value: who takes them reads names from the format.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/measure/measure.h"
#include "agent/tracer/tracer.h"
#include "base/cleanup.h"

#define DEFAULT_CALLS_PER_SECOND 20
#define CALLS_IN_FLIGHT 16384

#if defined(__x86_64__)
#define FRAME_AT_RETURN "reg(\"sp\") - 8"
#else
#define FRAME_AT_RETURN "reg(\"sp\")"
#endif

/*
 * Goroutines move between threads, and their stacks move; what is kept is the distance from the top
 * of the stack, the second word of runtime.g. Returns are probed before the return address is taken
 * from the stack.
 */
#if defined(__x86_64__)
#define GO_G "reg(\"r14\")"
#else
#define GO_G "reg(\"r28\")"
#endif
#define GO_KEY "pid, " GO_G ", *(uint64 *)(" GO_G " + 8) - reg(\"sp\")"

/* The words of the script that depend on the function. */
struct words {
	const char *begin, *end;	 /* kinds of probes */
	const char *key, *key_at_return; /* of a call */
	struct str point;		 /* what follows them */
	struct str arguments;		 /* a list of values, each with ", " before it */
	struct str names;		 /* " args.x=%s" for each */
	u32 n;
	char result[TRACER_PARAMETER_BYTES]; /* "": it has none that is known */
};

static void put_quoted(struct str *out, const char *text)
{
	str_putc(out, '"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			str_putc(out, '\\');
		str_putc(out, *text);
	}
	str_putc(out, '"');
}

/* The name itself, if it has characters of patterns, as main.(*T).Method has. */
static void put_exact(struct str *out, const char *name)
{
	const bool like_a_pattern = strpbrk(name, "*?[") != NULL;
	_cleanup_str_ struct str exact = {};

	for (const char *c = name; *c; c++) {
		if (like_a_pattern && strchr("*?[\\", *c))
			str_putc(&exact, '\\');
		str_putc(&exact, *c);
	}
	out->failed |= exact.failed;
	put_quoted(out, str_get(&exact));
}

static void put_argument(struct words *w, const char *name, const char *expression)
{
	str_printf(&w->arguments, ", %s", expression);
	str_printf(&w->names, " " MEASURE_ARGUMENT "%s=%%s", name);
	w->n++;
}

/* Registers, as hexadecimal numbers. */
static void put_plain_arguments(struct words *w)
{
	char name[16], expression[32];

	while (w->n < MEASURE_MAX_ARGUMENTS) {
		snprintf(name, sizeof(name), "arg%u", w->n);
		snprintf(expression, sizeof(expression), "(uint8 *)%s", name);
		put_argument(w, name, expression);
	}
	snprintf(w->result, sizeof(w->result), "(uint8 *)retval");
}

/* A tuple has at least two values. */
static void put_begin(const struct words *w, struct str *out)
{
	str_printf(out,
		   "%s:%s {\n"
		   "\t@calls = count();\n"
		   "\t@begun[%s] = (nsecs(monotonic)%s);\n"
		   "}\n",
		   w->begin, str_get(&w->point), w->key, w->n ? str_get(&w->arguments) : ", 0");
}

static void put_predicate(const struct measure_options *o, const struct words *w, struct str *out)
{
	const char *key = w->key_at_return;

	str_printf(out,
		   "%s:%s /{\n"
		   "\t$begun = (int64)@begun[%s].0;\n"
		   "\t$ns = (int64)nsecs(monotonic) - $begun;\n"
		   "\t$slow = $begun && $ns >= %llu;\n"
		   "\tif ($begun) {\n"
		   "\t\t@latency = hist($ns, %d);\n"
		   "\t\t@time = stats($ns);\n"
		   "\t\t@longest = max($ns);\n"
		   "\t}\n",
		   w->end, str_get(&w->point), key, o->slow_ns, MEASURE_HIST_BITS);
	str_printf(out,
		   "\tif ($slow) {\n"
		   "\t\t@slow = count();\n"
		   "\t\t@ended[%s] = $begun + $ns;\n"
		   "\t} else {\n"
		   "\t\tdelete(@begun, (%s));\n"
		   "\t}\n"
		   "\t$longest = $ns > (int64)@longest_told;\n"
		   "\tif ($slow && $longest) { @longest_told = $ns; }\n"
		   "\t$slow && ($longest || @told++ < %u)\n"
		   "}/",
		   key, key, o->calls_per_second ? o->calls_per_second : DEFAULT_CALLS_PER_SECOND);
}

static void put_slow(const struct measure_options *o, const struct words *w, struct str *out)
{
	const char *key = w->key_at_return;

	str_printf(out,
		   " {\n"
		   "\t$call = @begun[%s];\n"
		   "\t$end = (int64)@ended[%s];\n"
		   "\tdelete(@begun, (%s));\n"
		   "\tdelete(@ended, (%s));\n"
		   "\tprintf(\"end=%%lld ns=%%lld pid=%%d tid=%%d comm=%%s trace=%%s span=%%s%s",
		   key, key, key, key, str_get(&w->names));
	str_printf(out,
		   "%s%s\\n\",\n\t\t$end, $end - (int64)$call.0, pid, tid, comm, traceid, "
		   "spanid",
		   w->result[0] ? " result=%s" : "", o->stacks ? " stack=%s" : "");
	for (u32 i = 0; i < w->n; i++)
		str_printf(out, ", $call.%u", i + 1);
	if (w->result[0])
		str_printf(out, ", %s", w->result);
	if (o->stacks)
		str_printf(out, ", %s", o->path ? "ustack" : "kstack");
	str_puts(out, ");\n");
	if (o->stacks)
		str_printf(out, "\t@slow_stacks[%s] = sum($end - (int64)$call.0);\n",
			   o->path ? "ustack" : "kstack");
	str_puts(out, "}\n");
}

static int put_words(const struct measure_options *o, struct words *w, struct diag *d)
{
	const struct tracer_function_place place = {(char *)o->path, (char *)o->function};
	struct tracer_description known;
	int r = tracer_describe(&place, d, &known);

	if (r < 0)
		return r;
	w->begin = o->path ? "uprobe" : known.is_known ? "fentry" : "kprobe";
	w->end = o->path ? "uretprobe" : known.is_known ? "fexit" : "kretprobe";
	w->key = known.is_go ? GO_KEY : "tid, reg(\"sp\")";
	w->key_at_return = known.is_go ? GO_KEY : "tid, " FRAME_AT_RETURN;
	/* The context of fentry and fexit is in one frame of the kernel's stack. */
	if (!o->path && known.is_known)
		w->key = w->key_at_return = "tid, (uint64)ctx";
	if (o->path) {
		put_exact(&w->point, o->path);
		str_putc(&w->point, ':');
	}
	put_exact(&w->point, o->function);
	for (u32 i = 0; i < known.n; i++)
		put_argument(w, known.parameters[i].name, known.parameters[i].expression);
	if (known.is_known)
		memcpy(w->result, known.result, sizeof(w->result));
	else
		put_plain_arguments(w);
	return 0;
}

int measure_script(const struct measure_options *o, struct str *out, struct diag *reterr_diag)
{
	struct words w = {};
	int r = put_words(o, &w, reterr_diag);

	if (r == 0) {
		str_printf(out,
			   "config = { max_strlen = %d; print_maps_on_exit = false; }\n"
			   "let @begun = lruhash(%u);\n"
			   "let @ended = lruhash(%u);\n\n",
			   MEASURE_TEXT_BYTES, CALLS_IN_FLIGHT, CALLS_IN_FLIGHT);
		put_begin(&w, out);
		put_predicate(o, &w, out);
		put_slow(o, &w, out);
		str_puts(out, "interval:s:1 { @told = 0; }\n");
	}
	if (w.point.failed || w.arguments.failed || w.names.failed || out->failed)
		r = -ENOMEM;
	str_deinit(&w.point);
	str_deinit(&w.arguments);
	str_deinit(&w.names);
	return r;
}
