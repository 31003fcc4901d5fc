/* SPDX-License-Identifier: Apache-2.0 */
/* speedscope, Firefox, SVG and perf script. */
#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>

#include "profile/table.h"
#include "profile_fixture.h"

static const struct profile_write_options none;

static struct profile *read_text(int (*read)(const u8 *, size_t, struct profile **, struct diag *),
				 const char *text)
{
	struct profile *p = NULL;
	struct diag d = {};

	cr_assert_eq(read((const u8 *)text, strlen(text), &p, &d), 0, "%s", d.text);
	return p;
}

static void assert_says(int (*read)(const u8 *, size_t, struct profile **, struct diag *),
			const char *text, const char *says)
{
	struct profile *p = NULL;
	struct diag d = {};

	cr_expect_lt(read((const u8 *)text, strlen(text), &p, &d), 0);
	cr_expect_str_eq(d.text, says);
	cr_expect_null(p);
}

/* ---- speedscope ---- */

Test(speedscope, folded_text_survives_the_way_through)
{
	const char *text = "app;[truncated: too many frames];main;f_[i];g 4\n"
			   "app;main;[unknown];libfoo.so.1+0x1234 1\n"
			   "app;main;jitted_[j] 2\n"
			   "app;main;say \"hi\" \\o/;vfs_read_[k] 3\n"
			   "kworker/0:1 9\n";
	struct profile_write_options annotate = {.annotate = true};
	_cleanup_profile_ struct profile *p = from_folded(text), *again = NULL;
	_cleanup_str_ struct str json = {};

	cr_assert_eq(speedscope_write(p, &annotate, &json, NULL), 0);
	cr_assert_eq(speedscope_probe((u8 *)json.data, json.n), 90);
	cr_assert_eq(folded_probe((u8 *)json.data, json.n), 0);
	again = read_text(speedscope_read, json.data);
	assert_folded(again, &annotate, text);
	cr_assert_eq(again->quality.samples, 19);
}

Test(speedscope, threads_are_profiles_of_their_own_in_the_order_of_time)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct profile_write_options o = {.tree = {.threads = true}};
	_cleanup_str_ struct str json = {};
	u32 a, b, t1, t2;
	json_t *root, *profiles;

	profile_add_type(p, "samples", "count");
	a = frame(p, "a", NULL, 0, FRAME_NATIVE, 0, 0);
	b = frame(p, "b", NULL, 0, FRAME_NATIVE, 0, 0);
	t1 = thread(p, "app", "app", 1, 1);
	t2 = thread(p, "app", "io", 1, 2);
	sample(p, 30, t1, &a, 1, 1);
	sample(p, 10, t1, &b, 1, 1);
	sample(p, 20, t2, &b, 1, 1);
	cr_assert_eq(speedscope_write(p, &o, &json, NULL), 0);
	root = json_loads(json.data, 0, NULL);
	profiles = json_object_get(root, "profiles");
	cr_assert_eq(json_array_size(profiles), 2);
	cr_assert_str_eq(json_string_value(json_object_get(json_array_get(profiles, 1), "name")),
			 "app 1/2 io");
	/* [process, b], then [process, a] */
	cr_assert_str_eq(
		json_string_value(json_object_get(
			json_array_get(
				json_object_get(json_object_get(root, "shared"), "frames"),
				(size_t)json_integer_value(json_array_get(
					json_array_get(json_object_get(json_array_get(profiles, 0),
								       "samples"),
						       0),
					1))),
			"name")),
		"b");
	json_decref(root);
}

#define SHARED "\"shared\":{\"frames\":[{\"name\":\"a\"},{\"name\":\"b\"}]}"

Test(speedscope, evented_profiles_count_the_time_between_events)
{
	_cleanup_profile_ struct profile *p = read_text(
		speedscope_read,
		"{" SHARED ",\"profiles\":[{\"type\":\"evented\",\"name\":\"t\",\"unit\":"
		"\"milliseconds\",\"startValue\":0,\"endValue\":9,\"events\":["
		"{\"type\":\"O\",\"frame\":0,\"at\":1},{\"type\":\"O\",\"frame\":1,\"at\":2.5},"
		"{\"type\":\"C\",\"frame\":1,\"at\":4},{\"type\":\"C\",\"frame\":0,\"at\":9}]}]}");

	assert_folded(p, NULL, "t;a 6500000\nt;a;b 1500000\n");
	cr_assert_str_eq(profile_string(p, p->types[0].unit), "nanoseconds");
}

Test(speedscope, damage_is_told)
{
#define SAMPLED(samples, weights)                                                                  \
	"{" SHARED ",\"profiles\":[{\"type\":\"sampled\",\"name\":\"t\",\"unit\":\"none\","        \
	"\"samples\":" samples ",\"weights\":" weights "}]}"
	assert_says(speedscope_read, "{",
		    "not JSON: line 1: string or '}' expected near end of file at offset 0x1");
	assert_says(speedscope_read, "{}", "speedscope: has no shared.frames or no profiles");
	assert_says(speedscope_read, SAMPLED("[[0,2]]", "[1]"),
		    "speedscope: a stack names a frame that is not there");
	assert_says(speedscope_read, SAMPLED("[[0,-1]]", "[1]"),
		    "speedscope: a stack names a frame that is not there");
	assert_says(speedscope_read, SAMPLED("[[0]]", "[]"),
		    "speedscope: samples and weights are not equally many");
	assert_says(speedscope_read, SAMPLED("[[0]]", "[1e300]"),
		    "speedscope: a weight is not a number that can be");
	assert_says(speedscope_read, SAMPLED("[[0],[1]]", "[9e18,9e18]"),
		    "speedscope: a weight is not a number that can be");
	assert_says(speedscope_read, SAMPLED("[[0],[1]]", "[8e18,8e18]"),
		    "speedscope: weights add up to more than 63 bits");
	assert_says(
		speedscope_read,
		"{" SHARED ",\"profiles\":[{\"type\":\"evented\",\"unit\":\"none\",\"events\":["
		"{\"type\":\"O\",\"frame\":0,\"at\":1},{\"type\":\"C\",\"frame\":1,\"at\":2}]}]}",
		"speedscope: a frame is closed that is not the innermost one");
	assert_says(speedscope_read,
		    "{" SHARED ",\"profiles\":[{\"type\":\"evented\",\"unit\":\"none\",\"events\":["
		    "{\"type\":\"O\",\"frame\":0,\"at\":1}]}]}",
		    "speedscope: a frame is never closed");
}

/* ---- Firefox ---- */

static size_t column(const json_t *table, const char *name)
{
	const json_t *c = json_object_get(table, name);

	cr_assert(json_is_array(c), "%s", name);
	return json_array_size(c);
}

static json_int_t cell(const json_t *table, const char *name, size_t i)
{
	const json_t *v = json_array_get(json_object_get(table, name), i);

	return json_is_integer(v) ? json_integer_value(v) : -1;
}

static const char *func_name(const json_t *thread_json, json_int_t stack)
{
	json_int_t f = cell(json_object_get(thread_json, "stackTable"), "frame", (size_t)stack);
	json_int_t fn = cell(json_object_get(thread_json, "frameTable"), "func", (size_t)f);
	json_int_t s = cell(json_object_get(thread_json, "funcTable"), "name", (size_t)fn);

	return json_string_value(
		json_array_get(json_object_get(thread_json, "stringArray"), (size_t)s));
}

Test(firefox, tables_hold_the_stacks_root_to_leaf)
{
	_cleanup_profile_ struct profile *p = full_profile();
	_cleanup_str_ struct str json = {}, path = {};
	json_t *root, *thread_json, *samples, *stacks;

	cr_assert_eq(firefox_write(p, &none, &json, NULL), 0);
	root = json_loads(str_get(&json), 0, NULL);
	cr_assert_not_null(root);
	cr_assert_eq(json_array_size(json_object_get(root, "threads")), 2);
	thread_json = json_array_get(json_object_get(root, "threads"), 0);
	samples = json_object_get(thread_json, "samples");
	stacks = json_object_get(thread_json, "stackTable");
	cr_assert_eq(json_integer_value(json_object_get(samples, "length")), 2);
	cr_assert_eq(column(samples, "stack"), 2);
	cr_assert_eq(cell(samples, "weight", 0), 5);
	for (json_int_t s = cell(samples, "stack", 0); s >= 0;
	     s = cell(stacks, "prefix", (size_t)s))
		str_printf(&path, "%s ", func_name(thread_json, s));
	cr_assert_str_eq(str_get(&path), "tiny work main ");
	json_decref(root);
}

/* ---- reading Firefox's ---- */

Test(firefox_read, folded_text_survives_the_way_through)
{
	const char *text = "app;[truncated: too many frames];main;f_[i];g 4\n"
			   "app;main;[unknown];libfoo.so.1+0x1234 1\n"
			   "app;main;jitted_[j] 2\n"
			   "app;main;say \"hi\" \\o/;vfs_read_[k] 3\n"
			   "app;main;wait [lock] 5\n"
			   "kworker/0:1 9\n";
	struct profile_write_options annotate = {.annotate = true};
	_cleanup_profile_ struct profile *p = from_folded(text), *again = NULL;
	_cleanup_str_ struct str json = {};

	cr_assert_eq(firefox_write(p, &annotate, &json, NULL), 0);
	cr_assert_eq(firefox_probe((u8 *)json.data, json.n), 85);
	cr_assert_eq(speedscope_probe((u8 *)json.data, json.n), 0);
	again = read_text(firefox_read, json.data);
	assert_folded(again, &annotate, text);
	cr_assert_eq(again->quality.samples, p->quality.samples);
}

/* clang-format off */
#define FIREFOX(samples) \
	"{\"meta\":{\"product\":\"Firefox\"," \
	"\"categories\":[{\"name\":\"Other\"},{\"name\":\"Kernel\"}]}," \
	"\"libs\":[],\"shared\":{\"stringArray\":[\"main\",\"read\",\"a.js\"]," \
	"\"stackTable\":{\"prefix\":[null,0],\"frame\":[0,1]}," \
	"\"frameTable\":{\"func\":[0,1],\"category\":[0,1],\"line\":[7,null]}," \
	"\"funcTable\":{\"name\":[0,1],\"isJS\":[true,false],\"fileName\":[2,null]}}," \
	"\"threads\":[{\"name\":\"GeckoMain\",\"processName\":\"Web\",\"pid\":\"12\"," \
	"\"tid\":13,\"samples\":" samples "}]}"
/* clang-format on */

Test(firefox_read, tables_of_newer_versions_are_shared_by_threads)
{
	_cleanup_profile_ struct profile *p =
		read_text(firefox_read,
			  FIREFOX("{\"stack\":[1,null,0,1],\"weight\":null,\"time\":[1,2,3,4]}"));
	struct profile_write_options annotate = {.annotate = true};

	assert_folded(p, &annotate, "Web;main_[j] 1\nWeb;main_[j];read_[k] 2\n");
	cr_expect_eq(p->threads.data[0].pid, 12);
	cr_expect_eq(p->threads.data[0].tid, 13);
	cr_expect_str_eq(profile_string(p, p->threads.data[0].thread_name), "GeckoMain");
	cr_expect_str_eq(profile_string(p, p->title), "Firefox");
	cr_expect_str_eq(profile_string(p, p->functions.data[1].file), "a.js");
}

Test(firefox_read, milliseconds_are_nanoseconds_and_sums_stay_right)
{
	_cleanup_profile_ struct profile *p = read_text(
		firefox_read, FIREFOX("{\"stack\":[0,0,0],\"weight\":[0.0000005,0.0000005,1.5],"
				      "\"weightType\":\"tracing-ms\"}"));

	cr_assert_eq(p->n_samples, 1);
	cr_expect_eq(profile_sample(p, 0)->value[0], 1500001);
	cr_expect_str_eq(profile_string(p, p->types[0].unit), "nanoseconds");
}

Test(firefox_read, damage_is_told)
{
	assert_says(firefox_read, "{}", "firefox: has no threads or no meta");
	assert_says(firefox_read,
		    "{\"meta\":{},\"threads\":[{\"samples\":{\"schema\":{},\"data\":[]}}]}",
		    "firefox: is not in the processed format: open it at profiler.firefox.com and "
		    "save it from there");
	assert_says(firefox_read, FIREFOX("{\"stack\":[0],\"weight\":[1e30]}"),
		    "firefox: a weight is not a number that can be");
}

/* ---- SVG ---- */

Test(svg, widths_are_the_shares_and_what_is_not_drawn_is_said)
{
	_cleanup_profile_ struct profile *p = from_folded("a;f 30000\na;g 69999\nb;h 1\n");
	_cleanup_str_ struct str out = {};

	cr_assert_eq(svg_write(p, &none, &out, NULL), 0);
	cr_assert(strstr(out.data, "<title>a (99,999 samples, 100.00%)</title>"));
	cr_assert(strstr(out.data, "<title>f (30,000 samples, 30.00%)</title>"
				   "<rect x=\"10.00\" y=\"60\" width=\"354.00\""));
	cr_assert(strstr(out.data, "data-s=\"30000\" data-t=\"69999\""));
	cr_assert_null(strstr(out.data, "<title>h"));
	cr_assert(strstr(out.data, "not drawn: 2 frames narrower than 0.1 px"));
}

Test(svg, names_cannot_break_out)
{
	_cleanup_profile_ struct profile *p =
		from_folded("x;</title><script>alert(1)</script>&\"'\x01\x1b\xff]]> 5\n");
	_cleanup_str_ struct str out = {};

	cr_assert_eq(svg_write(p, &none, &out, NULL), 0);
	cr_assert(strstr(out.data, "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;"
				   "&#39;  \xef\xbf\xbd]]&gt;"));
	cr_assert_null(strstr(out.data, "<script>alert"));
}

Test(svg, diff_is_red_where_it_grew_and_blue_where_it_shrank)
{
	_cleanup_profile_ struct profile *p = from_folded("a;f 10\na;g 30\na;s 5\n");
	_cleanup_profile_ struct profile *q = from_folded("a;f 30\na;g 10\na;s 5\n");
	struct profile_write_options o = {.base = p};
	_cleanup_str_ struct str out = {};
	const char *f, *g, *s;

	cr_assert_eq(svg_write(q, &o, &out, NULL), 0);
	f = strstr(out.data, "<title>f (30 samples, 66.67%; before 10, 22.22%)</title>");
	g = strstr(out.data, "<title>g (10 samples, 22.22%; before 30, 66.67%)</title>");
	s = strstr(out.data, "<title>s (5 samples, 11.11%; before 5, 11.11%)</title>");
	cr_assert(f && g && s);
	cr_assert(str_starts(strstr(f, "fill="), "fill=\"rgb(255,80,80)\""));
	cr_assert(str_starts(strstr(g, "fill="), "fill=\"rgb(80,80,255)\""));
	cr_assert(str_starts(strstr(s, "fill="), "fill=\"rgb(250,250,250)\""));
}

/* ---- types of values ---- */

/* Writes a profile with one sample of this type, of value 1500. */
static void write_one(int (*write)(const struct profile *, const struct profile_write_options *,
				   struct str *, struct diag *),
		      const char *type, const char *unit, struct str *out)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct profile_write_options o = {};
	u32 f;

	cr_assert_eq(profile_add_type(p, type, unit), 0);
	f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	sample(p, 0, thread(p, "app", "app", 1, 1), &f, 1, 1500);
	str_clear(out);
	cr_assert_eq(write(p, &o, out, NULL), 0);
	str_putc(out, '\0');
}

Test(types, each_format_names_them_by_the_table)
{
	static const struct {
		int (*write)(const struct profile *, const struct profile_write_options *,
			     struct str *, struct diag *);
		const char *type, *unit, *wanted;
	} all[] = {
		{svg_write, "page_faults", "count", "(1,500 faults, 100.00%)"},
		{svg_write, "widgets", "count", "(1,500 widgets, 100.00%)"},
		{svg_write, "inuse_space", "bytes", "(1,500 bytes, 100.00%)"},
		{speedscope_write, "page_faults", "count", "\"unit\":\"none\""},
		{speedscope_write, "inuse_space", "bytes", "\"unit\":\"bytes\""},
		{speedscope_write, "cpu", "microseconds", "\"unit\":\"microseconds\""},
		{firefox_write, "page_faults", "count",
		 "\"weight\":[1500],\"weightType\":\"samples\""},
		{firefox_write, "inuse_space", "bytes",
		 "\"weight\":[1500],\"weightType\":\"bytes\""},
		{firefox_write, "cpu", "microseconds",
		 "\"weight\":[1.500000],\"weightType\":\"tracing-ms\""},
	};
	_cleanup_str_ struct str out = {};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		write_one(all[i].write, all[i].type, all[i].unit, &out);
		cr_assert(strstr(out.data, all[i].wanted), "%s of %s: no %s", all[i].type,
			  all[i].unit, all[i].wanted);
	}
}

/* ---- perf script ---- */

Test(perf_script, is_read_as_perf_prints_it)
{
	_cleanup_profile_ struct profile *p =
		read_text(perf_script_read,
			  "# ========\n# captured on: x\n#\n"
			  "my app 2 10/11 [003]  2698.488640:    2000000 cpu-clock:uhpppH: \n"
			  "\tffffffff8157cf30 vfs_read+0x10 ([kernel.kallsyms])\n"
			  "\tffffffffc0000010 xfs_read+0x3 ([xfs])\n"
			  "\t           1bbcf ns::f(int, char)+0x45f (/usr/lib/libfoo.so.1)\n"
			  "\t           20000 tiny (inlined)\n"
			  "\t           20000 main+0x1 (/usr/bin/app (deleted))\n"
			  "\t    7f5708d5b8a8 [unknown] ([unknown])\n"
			  "\n"
			  "my app 2 10/11 [003]  2698.498640:    1000000 cpu-clock:uhpppH: \n"
			  "\t           137d1 [unknown] (/usr/lib/libfoo.so.1)\n"
			  "\t    7f5708d5b8a8 [unknown] (/usr/lib/libbar.so)\n"
			  "\t    7f0000000010 LFoo/Bar;::run+0x1 (/tmp/perf-10.map)\n"
			  "\n"
			  "       other     7 [000]  2700.488640:    500000 cpu-clock:uhpppH: \n"
			  "\t           10 operator()+0x1 (/usr/bin/app)\n"
			  "\t           11 (anonymous namespace)::g(int)+0x1 (/usr/bin/app)\n"
			  "\t           12 main.(*T).Run+0x1 (/usr/bin/app)\n"
			  "\n"
			  "other     7 [000]  2700.488641:    3 page-faults: \n"
			  "\t           10 nope+0x1 (/usr/bin/app)\n");
	struct profile_write_options annotate = {.annotate = true};

	assert_folded(p, &annotate,
		      "my app 2;LFoo/Bar:::run_[j];[libbar.so];libfoo.so.1+0x137d1 1000000\n"
		      "my app 2;[unknown];main;tiny_[i];ns::f;xfs_read_[k];vfs_read_[k] 2000000\n"
		      "other;main.(*T).Run;(anonymous namespace)::g;operator() 500000\n");
	cr_assert_str_eq(profile_string(p, p->title),
			 "cpu-clock:uhpppH (1 samples of other events left out)");
	cr_assert_eq(p->threads.data[0].pid, 10);
	cr_assert_eq(p->threads.data[0].tid, 11);
	cr_assert_eq(p->threads.data[1].pid, 0);
	cr_assert_eq(p->threads.data[1].tid, 7);
	cr_assert_eq(p->quality.samples, 3);
	cr_assert_eq(profile_table_type(p, 1), SAMPLE_TYPE_CPU);
	p->default_type = 0;
	assert_folded(p, &annotate,
		      "my app 2;LFoo/Bar:::run_[j];[libbar.so];libfoo.so.1+0x137d1 1\n"
		      "my app 2;[unknown];main;tiny_[i];ns::f;xfs_read_[k];vfs_read_[k] 1\n"
		      "other;main.(*T).Run;(anonymous namespace)::g;operator() 1\n");
}

Test(perf_script, without_stacks_the_frame_stands_on_the_line)
{
	_cleanup_profile_ struct profile *p =
		read_text(perf_script_read, "swapper     0 [001] 12.345678: cycles:  ffffffff81 "
					    "native_halt+0x6 ([kernel.kallsyms])\n"
					    "a  5 12.345679: cycles: 44 f+0x1 (/bin/a)\n");

	assert_folded(p, NULL, "a;f 1\nswapper;native_halt_[k] 1\n");
	cr_assert_eq(p->n_types, 1);
}

Test(perf_script, damage_is_told)
{
	assert_says(perf_script_read, "a 5 [0] 1.5: 1 cycles:\n\tzz f (x)\n",
		    "perf script: line 2 is no stack frame");
	assert_says(perf_script_read, "a 5 [0] 1.5: 1 cycles:\n\t12\n",
		    "perf script: line 2 is no stack frame");
	assert_says(perf_script_read, "hello world\n",
		    "perf script: line 1 is no sample: comm pid [cpu] time: event:");
	assert_says(perf_script_read, "# only\n# comments\n", "perf script: no samples in it");
}

/* perf prints what -F asks for. */
Test(perf_script, fields_come_and_go)
{
	_cleanup_profile_ struct profile *p = read_text(
		perf_script_read,
		"a 5/6 [000] K  1.5: sched:sched_switch: prev_comm=a prev_pid=5 ==> next_pid=7\n"
		"\tffffffff81000000 schedule+0x1 ([kernel.kallsyms])\n"
		"  [kernel.kallsyms][ffffffff81000000]\n"
		"\t12 f+0x1 (/bin/a)\n  a.c:12\n\n"
		"b 7 sched:sched_switch: prev_comm=b (x)\n"
		"\t13 g+0x3\n\t14 main\n\n");

	assert_folded(p, NULL, "a;f;schedule_[k] 1\nb;main;g 1\n");
}

Test(perf_script, records_are_no_samples)
{
	_cleanup_profile_ struct profile *p = read_text(
		perf_script_read,
		"swapper 0 [000] 0.000000: PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x1000) @ 0]: x "
		"[kernel.kallsyms]_text\n"
		"a 5/5 [000] 1.0: PERF_RECORD_MMAP2 5/5: [0x400000(0x1000) @ 0 08:01 1 1]: r-xp /bin/a\n"
		"a 5/5 [000] 1.1: 250000 cycles:\n\t12 f+0x1 (/bin/a)\n\n"
		"a 5/5 [000] 1.2: PERF_RECORD_COMM: b:5/5\n"
		"a 5/5 [000] 1.3: 250000 cycles:\n\t13 g+0x1 (/bin/a)\n\n");

	assert_folded(p, NULL, "a;f 250000\na;g 250000\n");
	cr_assert_str_empty(profile_string(p, p->title));
}

Test(perf_script, the_rest_is_read)
{
	const char *text = "a 5 [0] 1.5: cycles:\n\t12 f+0x1 (/bin/a)\n\t13 main+0x1 (/bin/a)\n\n"
			   "a 5 [0] 1.6: cycles:\n\t12 f+0x1 (/bin/a)\n\t13 main+0x1 (/bin/a)\n\n"
			   "a 5 [0] 1.7: cycles:\n\t12 f+0x1 (/bin/a)\n\t13 main+0x1 (/bin/a)\n\n"
			   "a 5 [0] 1.8: cycles:\n\t12 f+0x1 (/bin/a)\n\t13";
	_cleanup_profile_ struct profile *p = NULL;
	struct diag d = {};

	cr_assert_eq(perf_script_read((const u8 *)text, strlen(text), &p, &d), 0);
	cr_assert_str_eq(d.text,
			 "perf script: line 15 is no stack frame; damaged lines left out: 1");
	assert_folded(p, NULL, "a;[truncated: a damaged line of perf script];f 1\na;main;f 3\n");
}

/* FlameGraph's test/perf-java-stacks-02.txt, and the names of perf-map-agent with unfoldall. */
Test(perf_script, frames_may_be_bare_and_java_names_chains)
{
	struct profile_write_options annotate = {.annotate = true};
	_cleanup_profile_ struct profile *p =
		read_text(perf_script_read,
			  "java 5 cycles:\nffffffff81000000 x86_pmu_enable ([kernel.kallsyms])\n"
			  "7f01 La/B;::f->La/C;::g->La/D;::h (/tmp/perf-5.map)\n\n");

	assert_folded(p, &annotate,
		      "java;La/B:::f_[j];La/C:::g_[i];La/D:::h_[i];x86_pmu_enable_[k] 1\n");
}

Test(perf_script, is_told_from_folded)
{
	const char *text = "a 5 [0] 1.5: 1 cycles:\n\t12 f (x)\n";

	cr_assert_eq(perf_script_probe((const u8 *)text, strlen(text)), 80);
	cr_assert_eq(folded_probe((const u8 *)text, strlen(text)), 0);
	cr_assert_eq(perf_script_probe((const u8 *)"a;b 5\n", 6), 0);
}

/* ---- what a table and an interval say ---- */

Test(table, recursion_counts_once_and_selfs_add_up)
{
	_cleanup_profile_ struct profile *p = from_folded("a;f;g;f 3\na;g 4\na 5\n");
	_cleanup_profile_table_ struct profile_table *t = NULL;
	static const struct {
		const char *name;
		s64 self, total;
	} want[] = {{"[no stack]", 5, 5}, {"g", 4, 7}, {"f", 3, 3}};

	cr_assert_eq(profile_table_build(p, NULL, &t), 0);
	cr_assert_eq(t->total, 12);
	cr_assert_eq(t->rows.n, 3);
	for (size_t i = 0; i < 3; i++) {
		cr_expect_str_eq(strtab_get(&t->strings, t->rows.data[i].name), want[i].name);
		cr_expect_eq(t->rows.data[i].self, want[i].self);
		cr_expect_eq(t->rows.data[i].total, want[i].total);
	}
}

Test(table, the_interval_is_wilsons)
{
	double low = 0, high = 0;

	/* 7 of 10: computed by hand from the formula in Wilson (1927). */
	cr_assert(profile_share_interval(0.7, 10, &low, &high));
	cr_assert_float_eq(low, 0.3968, 0.0001);
	cr_assert_float_eq(high, 0.8922, 0.0001);
	cr_assert(profile_share_interval(0, 100, &low, &high));
	cr_assert_float_eq(low, 0, 1e-12);
	cr_assert_float_eq(high, 0.0370, 0.0001);
	cr_assert_not(profile_share_interval(0.5, 0, &low, &high));
}
