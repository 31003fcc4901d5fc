/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gala-gopher's flame graph probe: each of its messages by a request that provokes it, what a GET
 * gives back, which processes snoopers mean, and files that stay within their retention.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/stackprobe/stackprobe.h"
#include "profile_fixture.h"

#define EMPTY "the snooper for flamegraph cannot be empty"
#define SNOOPERS "\"snoopers\":{\"proc_id\":[7]}"
#define RANGE(name, v, min, max)                                                                   \
	"params." name " invalid value " v ", must be in [" min ", " max "]"
#define PARAMS(text) "{" SNOOPERS ",\"params\":{" text "}}"

static const char *put_into(struct stackprobe_config *c, const char *json, u32 lacks)
{
	static char message[STACKPROBE_MESSAGE_BYTES];
	struct stackprobe_config next, old = *c;
	int r = stackprobe_config_put(c, json, strlen(json), lacks, &next, message);

	if (r < 0) {
		cr_assert_eq(r, -EINVAL);
		return message;
	}
	*c = next;
	stackprobe_config_drop(&old, c);
	return "";
}

static void assert_config(const struct stackprobe_config *c, const char *want)
{
	_cleanup_str_ struct str out = {};

	stackprobe_config_print(c, &out);
	cr_assert_str_eq(str_get(&out), want);
}

/* ---- messages ---- */

Test(stackprobe, messages)
{
	static const struct {
		const char *json, *message;
	} cases[] = {
		{"", "invalid json format"},
		{"{", "invalid json format"},
		{"5", "invalid json format"},
		{"[]", "invalid json format"},
		/* gala-gopher's guide has such an example. */
		{"{\"snoopers\":{\"proc_name\":[{\"comm\":\"app1\"},]}}", "invalid json format"},
		{"{}", EMPTY},
		{"{\"state\":\"running\"}", EMPTY},
		{"{\"cmd\":{\"probe\":[\"oncpu\",\"offcpu\"]}}", EMPTY},
		{"{\"snoopers\":{}}", EMPTY},
		{"{\"cmd\":{}," SNOOPERS "}", "Bad request"},
		{"{\"cmd\":{\"probe\":[]}}", "invalid probe ranges: at least one must be set"},
		{"{\"cmd\":{\"probe\":[5]}}", "Invalid probe range: must be string."},
		{"{\"cmd\":{\"probe\":[\"\"]}}",
		 "The lengh of probe name must range from 0 to 64."},
		{"{\"cmd\":{\"probe\":[\"oncpu\",\"cache\"]}}", "unsupported probe range: cache."},
		{"{" SNOOPERS ",\"state\":\"running\"}",
		 "invalid probe ranges: at least one must be set"},
		{"{" SNOOPERS ",\"state\":1}", "invalid state: must be string"},
		{"{" SNOOPERS ",\"state\":\"paused\"}",
		 "invalid state paused: must be running or stopped"},
		{"{\"snoopers\":{\"proc_id\":[\"7\"]}}",
		 "Error occurs when parsing snooper proc_id"},
		{"{\"snoopers\":{\"proc_id\":[-1]}}", "Error occurs when parsing snooper proc_id"},
		{"{\"snoopers\":{\"proc_name\":[\"app\"]}}",
		 "Error occurs when parsing snooper proc_name"},
		{"{\"snoopers\":{\"proc_name\":[{\"cmdline\":\"x\"}]}}",
		 "Error occurs when parsing snooper proc_name"},
		{"{\"snoopers\":{\"proc_name\":[{\"comm\":\"a(\"}]}}",
		 "Error occurs when parsing snooper proc_name"},
		{"{\"snoopers\":{\"proc_name\":[{\"comm\":\"*java\"}]}}",
		 "Error occurs when parsing snooper proc_name"},
		{"{\"snoopers\":{\"proc_name\":[{\"comm\":\"a\",\"label\":{\"a\":\"1\",\"b\":\"2\"}"
		 "}]}}",
		 "Error occurs when parsing snooper proc_name"},
		{"{\"snoopers\":{\"pod_id\":[\"pod1\"]}}",
		 "Error occurs when parsing snooper pod_id"},
		{"{\"snoopers\":{\"container_id\":[\"container1\"]}}",
		 "Error occurs when parsing snooper container_id"},
		{"{\"snoopers\":{\"container_name\":[\"a;b\"]}}",
		 "Error occurs when parsing snooper container_name"},
		{"{\"snoopers\":{\"custom_labels\":[]}}",
		 "Error occurs when parsing snooper custom_labels"},
		{"{\"snoopers\":{\"pod_labels\":{}}}",
		 "Error occurs when parsing snooper pod_labels"},
		{"{" SNOOPERS ",\"blacklist\":{\"proc_id\":[8]}}",
		 "snoopers and blacklist are mutually exclusive"},
		{PARAMS("\"svg_period\":\"180\""), "params.svg_period invalid data type"},
		{PARAMS("\"output_dir\":5"), "params.output_dir invalid data type"},
		{PARAMS("\"l7_protocol\":\"http\""), "params.l7_protocol invalid data type"},
		{PARAMS("\"svg_period\":29"), RANGE("svg_period", "29", "30", "600")},
		{PARAMS("\"svg_period\":601"), RANGE("svg_period", "601", "30", "600")},
		{PARAMS("\"perf_sample_period\":9"),
		 RANGE("perf_sample_period", "9", "10", "1000")},
		{PARAMS("\"perf_sample_period\":-10"),
		 RANGE("perf_sample_period", "-10", "10", "1000")},
		{PARAMS("\"multi_instance\":2"), RANGE("multi_instance", "2", "0", "1")},
		{PARAMS("\"native_stack\":-1"), RANGE("native_stack", "-1", "0", "1")},
		{PARAMS("\"report_period\":4"), RANGE("report_period", "4", "5", "600")},
		{PARAMS("\"kafka_port\":0"), RANGE("kafka_port", "0", "1", "65535")},
		{PARAMS("\"pyroscope_server\":\"0123456789012345678901234567890123456789012345678901"
			"23456789:123\""),
		 "params.pyroscope_server value is too long, len must be less than 64"},
		{PARAMS("\"pyroscope_server\":\"file:///etc/cron.d/x\""),
		 "params.pyroscope_server must be HOST:PORT, pyroscope://HOST:PORT or "
		 "pyroscope+ingest://HOST:PORT"},
		{PARAMS("\"flame_dir\":\"/tmp;reboot\""),
		 "params.flame_dir contains unsafe characters"},
		{PARAMS("\"flame_dir\":\"/tmp/../etc\""),
		 "params.flame_dir contains unsafe characters"},
		{PARAMS("\"output_dir\":\"/no/such/place\""), "Bad request"},
		/* Others may write there. */
		{PARAMS("\"flame_dir\":\"/tmp\""), "Bad request"},
		{PARAMS("\"flame_dir\":\"/etc/passwd\""), "Bad request"},
	};
	struct stackprobe_config c;

	stackprobe_config_init(&c);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cr_expect_str_eq(put_into(&c, cases[i].json, 0), cases[i].message, "%s: %s",
				 cases[i].json, put_into(&c, cases[i].json, 0));
		/* Nothing has changed. */
		assert_config(&c, "{}\n");
	}
}

Test(stackprobe, types_that_are_missing)
{
	struct stackprobe_config c;

	stackprobe_config_init(&c);
	cr_assert_str_eq(put_into(&c, "{\"cmd\":{\"probe\":[\"mem_glibc\"]}," SNOOPERS "}",
				  1u << STACKPROBE_MEM_GLIBC),
			 "unsupported probe range: mem_glibc. culprit cannot record it here");
}

#define DEFAULTS                                                                                   \
	"\"params\":{\"flame_dir\":\"/var/log/gala-gopher/flamegraph\",\"multi_instance\":0,"      \
	"\"native_stack\":0,\"output_dir\":\"\",\"perf_sample_period\":10,"                        \
	"\"pyroscope_server\":\"localhost:4040\",\"report_event\":0,\"report_period\":60,"         \
	"\"res_lower_thr\":0,\"res_upper_thr\":0,\"svg_period\":180}"
#define CMD(types)                                                                                 \
	"\"cmd\":{\"bin\":\"/opt/gala-gopher/extend_probes/stackprobe\",\"probe\":[" types "]}"

Test(stackprobe, answers)
{
	struct stackprobe_config c;

	stackprobe_config_init(&c);
	assert_config(&c, "{}\n");
	cr_assert_str_eq(put_into(&c,
				  "{\"cmd\":{\"probe\":[\"OffCPU\",\"oncpu\"]},\"snoopers\":{"
				  "\"proc_name\":[{\"comm\":\"cadvisor\",\"debugging_dir\":\"\"},"
				  "{\"comm\":\"\"}]},\"state\":\"Running\"} /* as a comment */",
				  0),
			 "");
	assert_config(
		&c,
		"{" CMD("\"oncpu\",\"offcpu\"") "," DEFAULTS
						",\"snoopers\":{\"container_id\":[],\"container_name\":[],\"pod_id\":[],"
						"\"proc_id\":[],\"proc_name\":[{\"cmdline\":\"\",\"comm\":\"cadvisor\"}]"
						"},\"state\":\"running\"}\n");
	/* What a request leaves out stays. */
	cr_assert_str_eq(put_into(&c, "{\"state\":\"stopped\"}", 0), "");
	cr_assert_eq(c.state, STACKPROBE_STOPPED);
	cr_assert_eq(stackprobe_snoopers_count(c.snoopers), 1);
	/* After a mistake in a later member the earlier ones have not changed. */
	cr_assert_str_eq(put_into(&c, "{" SNOOPERS ",\"params\":{\"svg_period\":1}}", 0),
			 RANGE("svg_period", "1", "30", "600"));
	assert_config(
		&c,
		"{" CMD("\"oncpu\",\"offcpu\"") "," DEFAULTS
						",\"snoopers\":{\"container_id\":[],\"container_name\":[],\"pod_id\":[],"
						"\"proc_id\":[],\"proc_name\":[{\"cmdline\":\"\",\"comm\":\"cadvisor\"}]"
						"},\"state\":\"stopped\"}\n");
	/* A blacklist replaces the snoopers; 0 is the default of two parameters. */
	cr_assert_str_eq(put_into(&c,
				  "{\"blacklist\":{\"container_id\":[\"abc\"]},\"params\":{"
				  "\"svg_period\":0,\"perf_sample_period\":0,\"unknown\":[]}}",
				  0),
			 "");
	assert_config(&c, "{\"blacklist\":{\"container_id\":[\"abc\"],\"container_name\":[],"
			  "\"pod_id\":[],\"proc_id\":[],\"proc_name\":[]}," CMD(
				  "\"oncpu\",\"offcpu\"") "," DEFAULTS ",\"state\":\"stopped\"}\n");
	stackprobe_config_deinit(&c);
}

Test(stackprobe, at_most_100_snoopers)
{
	_cleanup_str_ struct str json = {};
	struct stackprobe_config c;

	stackprobe_config_init(&c);
	str_puts(&json, "{\"snoopers\":{\"proc_id\":[1");
	for (int i = 2; i <= STACKPROBE_MAX_SNOOPERS; i++)
		str_printf(&json, ",%d", i);
	str_puts(&json, "]}}");
	cr_assert_str_eq(put_into(&c, str_get(&json), 0), "");
	cr_assert_eq(stackprobe_snoopers_count(c.snoopers), 100);
	json.n -= 3;
	str_puts(&json, ",101]}}");
	cr_assert_str_eq(put_into(&c, str_get(&json), 0),
			 "Error occurs when parsing snooper proc_id");
	stackprobe_config_deinit(&c);
}

Test(stackprobe, comments)
{
	static const char *const cases[][2] = {
		{"{}// x", "{}    "},
		{"{/*a\nb*/}", "{   \n   }"},
		{"{\"a\":\"/*no*/\\\"//\"}/**/", "{\"a\":\"/*no*/\\\"//\"}    "},
		{"/*", "/*"},
		{"/**", "/**"},
		{"/", "/"},
		{"\"\\", "\"\\"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[64];

		snprintf(text, sizeof(text), "%s", cases[i][0]);
		stackprobe_blank_comments(text, strlen(text));
		cr_expect_str_eq(text, cases[i][1]);
	}
}

/* ---- snoopers ---- */

static struct identity_container container;
static const char *cmdline = "";

static const char *give_cmdline(void *arg)
{
	return cmdline;
}

static const struct identity_container *give_container(void *arg)
{
	return &container;
}

static enum pipeline_choice choose(const char *list, const char *snoopers, u32 pid,
				   const char *comm, bool is_own)
{
	const struct stackprobe_process p = {.pid = pid,
					     .comm = comm,
					     .is_own = is_own,
					     .cmdline = give_cmdline,
					     .container = give_container};
	_cleanup_str_ struct str json = {};
	struct stackprobe_config c;
	enum pipeline_choice choice;

	str_printf(&json, "{\"%s\":{%s}}", list, snoopers);
	stackprobe_config_init(&c);
	cr_assert_str_eq(put_into(&c, str_get(&json), 0), "");
	choice = stackprobe_choose(c.snoopers, &p);
	stackprobe_config_deinit(&c);
	return choice;
}

#define CHOICE(snoopers, pid, comm) choose("snoopers", snoopers, pid, comm, false)
#define NAME(comm) "\"proc_name\":[{\"comm\":\"" comm "\"}]"

Test(stackprobe, snoopers)
{
	cr_expect_eq(stackprobe_choose(NULL, NULL), PIPELINE_LEAVE);
	cr_expect_eq(CHOICE("\"proc_id\":[5,7]", 7, "app"), PIPELINE_SAMPLE_ALONE);
	cr_expect_eq(CHOICE("\"proc_id\":[5,7]", 6, "app"), PIPELINE_LEAVE);
	cr_expect_eq(CHOICE("\"proc_id\":[7]," NAME("app"), 7, "app"), PIPELINE_SAMPLE);
	cr_expect_eq(CHOICE(NAME("^app[0-9]$"), 7, "app1"), PIPELINE_SAMPLE);
	cr_expect_eq(CHOICE(NAME("^app[0-9]$"), 7, "app10"), PIPELINE_LEAVE);
	cr_expect_eq(CHOICE(NAME("p+p*?"), 7, "app1"), PIPELINE_SAMPLE, "not anchored");
	/* Culprit is not observed by its name, but by its pid. */
	cr_expect_eq(choose("snoopers", NAME("."), 7, "app", true), PIPELINE_LEAVE);
	cr_expect_eq(choose("snoopers", "\"proc_id\":[7]", 7, "app", true), PIPELINE_SAMPLE_ALONE);
	cmdline = "/usr/bin/java -jar shop.jar ";
	cr_expect_eq(
		CHOICE("\"proc_name\":[{\"comm\":\"java\",\"cmdline\":\"shop.jar\"}]", 7, "java"),
		PIPELINE_SAMPLE);
	cr_expect_eq(
		CHOICE("\"proc_name\":[{\"comm\":\"java\",\"cmdline\":\"cart.jar\"}]", 7, "java"),
		PIPELINE_LEAVE);
}

#define POD "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"

Test(stackprobe, containers)
{
	container = (struct identity_container){};
	cr_expect_eq(CHOICE("\"container_id\":[\"0123\"]", 7, "app"), PIPELINE_LEAVE);
	cr_expect_eq(CHOICE("\"pod_id\":[\"" POD "\"]", 7, "app"), PIPELINE_LEAVE);
	cr_expect_eq(CHOICE("\"container_name\":[\"shop\"]", 7, "app"), PIPELINE_LEAVE);
	container = (struct identity_container){.id = "0123456789abcdef0123456789abcdef",
						.outer_id = "fedcba9876543210",
						.pod_uid = POD,
						.name = "k8s_shop_1",
						.pod_name = "shop"};
	cr_expect_eq(CHOICE("\"container_id\":[\"0123456789AB\"]", 7, "app"), PIPELINE_SAMPLE);
	cr_expect_eq(CHOICE("\"container_id\":[\"0123456789abcdef0123456789abcdef\"]", 7, "app"),
		     PIPELINE_SAMPLE, "the whole id");
	cr_expect_eq(CHOICE("\"container_id\":[\"fedcba98\"]", 7, "app"), PIPELINE_SAMPLE);
	cr_expect_eq(CHOICE("\"container_id\":[\"123456789abc\"]", 7, "app"), PIPELINE_LEAVE);
	cr_expect_eq(CHOICE("\"pod_id\":[\"" POD "\"]", 7, "app"), PIPELINE_SAMPLE);
	cr_expect_eq(CHOICE("\"pod_id\":[\"0A1B2C3D0A1B0A1B0A1B0A1B2C3D4E5F\"]", 7, "app"),
		     PIPELINE_SAMPLE, "without dashes");
	cr_expect_eq(CHOICE("\"pod_id\":[\"0A1B2C3D0A1B0A1B0A1B0A1B2C3D4E50\"]", 7, "app"),
		     PIPELINE_LEAVE);
	cr_expect_eq(CHOICE("\"container_name\":[\"shop\"]", 7, "app"), PIPELINE_SAMPLE);
	cr_expect_eq(CHOICE("\"container_name\":[\"k8s_shop\"]", 7, "app"), PIPELINE_SAMPLE);
	cr_expect_eq(CHOICE("\"container_name\":[\"cart\"]", 7, "app"), PIPELINE_LEAVE);
}

Test(stackprobe, blacklist)
{
	cr_expect_eq(choose("blacklist", "\"proc_id\":[7]", 7, "app", false), PIPELINE_LEAVE);
	cr_expect_eq(choose("blacklist", "\"proc_id\":[7]", 8, "app", false), PIPELINE_SAMPLE);
	cr_expect_eq(choose("blacklist", "\"proc_id\":[7]", 8, "culprit", true), PIPELINE_LEAVE);
	cr_expect_eq(choose("blacklist", NAME("app"), 8, "app", false), PIPELINE_LEAVE);
	cr_expect_eq(choose("blacklist", "", 8, "app", false), PIPELINE_SAMPLE);
}

/* Names that glibc and RE2 must judge alike. */
Test(stackprobe, regular_expressions)
{
	static const char *const patterns[] = {
		"java", "^java$",      "a.?v",	"a|x",	"(a|b)+",   "a**",     "a+?x",	"a?+",
		"a+*",	"[[:digit:]]", "[^]a]", "[]a]", "[a\\]x",   "\\<ja",   "va\\>", "a\\.b",
		"a.b",	"(a|b)c",      "a{2}",	"^a*",	"[a-c-]+$", "\\(a\\)",
	};
	static const char *const names[] = {"java",  "a",   "aa",  "b",	 "bc",	 "a.b",
					    "axb",   "x",   "]",   "1",	 "a\\x", "ajav",
					    "ja-va", "(a)", "aax", "c-", "^a"};

	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
		_cleanup_str_ struct str json = {}, escaped = {};
		regex_t posix;

		for (const char *c = patterns[i]; *c; c++)
			str_printf(&escaped, "%s%c", *c == '\\' ? "\\" : "", *c);
		str_printf(&json, NAME("%s"), str_get(&escaped));
		cr_assert_eq(regcomp(&posix, patterns[i], REG_EXTENDED | REG_NOSUB), 0, "%s",
			     patterns[i]);
		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			bool want = regexec(&posix, names[k], 0, NULL, 0) == 0;

			cr_expect_eq(CHOICE(str_get(&json), 7, names[k]) == PIPELINE_SAMPLE, want,
				     "%s against %s", patterns[i], names[k]);
		}
		regfree(&posix);
	}
}

/* A pattern for which glibc takes gigabytes, and one that has many states. */
Test(stackprobe, regular_expressions_are_bounded, .timeout = 10)
{
	struct stackprobe_config c;

	stackprobe_config_init(&c);
	cr_expect_str_eq(put_into(&c, "{\"snoopers\":{" NAME("((a{255}){255}){255}") "}}", 0),
			 "Error occurs when parsing snooper proc_name");
	cr_expect_eq(CHOICE(NAME(".*e.{50}x"), 7, "eeeeeeeeeeeeeee"), PIPELINE_LEAVE);
}

/* ---- files ---- */

static char top[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	return remove(path);
}

static void make_top(void)
{
	snprintf(top, sizeof(top), "/tmp/culprit-test-stackprobe-XXXXXX");
	cr_assert(mkdtemp(top));
	setenv("TZ", "UTC", 1);
	tzset();
}

static void remove_top(void)
{
	(void)nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static u32 n_files, n_dirs;
static char last[512];

static int count_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	n_files += type == FTW_F;
	n_dirs += type == FTW_D;
	if (type == FTW_F)
		snprintf(last, sizeof(last), "%s", path + strlen(top));
	return 0;
}

static void count_files(void)
{
	n_files = n_dirs = 0;
	cr_assert_eq(nftw(top, count_one, 16, FTW_PHYS), 0);
}

static void add_picture(struct stackprobe_ring *r, time_t now, u32 keep)
{
	_cleanup_str_ struct str path = {};
	FILE *f;

	cr_assert_eq(stackprobe_ring_path(r, now, "all", &path), 0);
	f = fopen(str_get(&path), "we");
	cr_assert(f);
	fclose(f);
	cr_assert_eq(stackprobe_ring_add(r, str_get(&path), keep), 0);
}

#define T0 1790000000 /* 2026-09-21 14:13:20 */

Test(stackprobe, ring, .init = make_top, .fini = remove_top)
{
	struct stackprobe_ring *r;
	char foreign[128];

	cr_assert_eq(stackprobe_ring_open(top, &r), 0);
	/* Ten days with a picture each hour, of which three days are kept. */
	for (int h = 0; h < 240; h++)
		add_picture(r, T0 + h * 3600, 72);
	cr_assert_eq(stackprobe_ring_count(r), 72);
	count_files();
	cr_assert_eq(n_files, 72);
	cr_assert_leq(n_dirs, 1 + 4, "directories of other days are gone");
	stackprobe_ring_close(r);
	/* It survives a restart, and leaves other files alone. */
	snprintf(foreign, sizeof(foreign), "%s/2026-09-21", top);
	(void)mkdir(foreign, 0755);
	snprintf(foreign, sizeof(foreign), "%s/2026-09-21/notes.svg", top);
	fclose(fopen(foreign, "we"));
	cr_assert_eq(stackprobe_ring_open(top, &r), 0);
	cr_assert_eq(stackprobe_ring_count(r), 72);
	add_picture(r, T0 + 240 * 3600, 10);
	cr_assert_eq(stackprobe_ring_count(r), 10);
	count_files();
	cr_assert_eq(n_files, 11);
	cr_assert_eq(access(foreign, F_OK), 0);
	stackprobe_ring_close(r);
}

static struct profile *cpu_profile(void)
{
	struct profile *p = profile_create();
	u32 work, t1, t2;

	cr_assert_eq(profile_add_table_type(p, SAMPLE_TYPE_CPU), 0);
	work = frame(p, "work", "/usr/bin/app", 0x1000, FRAME_NATIVE, 0, 12);
	t1 = thread(p, "app", "app", 10, 10);
	t2 = thread(p, "other", "other", 11, 11);
	sample(p, 0, t1, &work, 1, 5000000);
	sample(p, 0, t2, &work, 1, 3000000);
	return p;
}

static void read_text(const char *name, char *ret, size_t n)
{
	char path[512];
	FILE *f;
	size_t k;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	f = fopen(path, "re");
	cr_assert(f, "%s", path);
	k = fread(ret, 1, n - 1, f);
	ret[k] = '\0';
	fclose(f);
}

static struct stackprobe_output *output(bool multi, s64 svg_period)
{
	struct stackprobe_output *o = NULL;
	struct stackprobe_params p;

	stackprobe_params_init(&p);
	snprintf(p.flame_dir, sizeof(p.flame_dir), "%s/folded", top);
	snprintf(p.output_dir, sizeof(p.output_dir), "%s/svg", top);
	p.value[STACKPROBE_MULTI_INSTANCE] = multi;
	p.value[STACKPROBE_SVG_PERIOD] = svg_period;
	cr_assert_eq(stackprobe_output_create(&p, false, &o), 0);
	return o;
}

Test(stackprobe, folded_files, .init = make_top, .fini = remove_top)
{
	_cleanup_profile_ struct profile *p = cpu_profile();
	struct stackprobe_output *o = output(true, 180);
	char text[1024];

	stackprobe_output_begin(o, STACKPROBE_ONCPU, T0);
	stackprobe_output_add(o, STACKPROBE_ONCPU, p, T0 + 20);
	stackprobe_output_add(o, STACKPROBE_ONCPU, p, T0 + 40);
	read_text("folded/oncpu/tmp_10", text, sizeof(text));
	cr_assert(strstr(text, "work[u] 10000\n"), "%s", text);
	read_text("folded/oncpu/tmp_11", text, sizeof(text));
	cr_assert(strstr(text, "work[u] 6000\n"), "%s", text);
	count_files();
	cr_assert_eq(n_files, 2);
	/* The picture takes their place. */
	stackprobe_output_add(o, STACKPROBE_ONCPU, p, T0 + 180);
	count_files();
	cr_assert_eq(n_files, 2);
	read_text("svg/oncpu/2026-09-21/2026-09-21-14-16-20-10.svg", text, sizeof(text));
	cr_assert(strstr(text, "On-CPU Time Flame Graph"), "%s", text);
	/* The next one begins with nothing; at the end the folded files stay. */
	stackprobe_output_add(o, STACKPROBE_ONCPU, p, T0 + 200);
	read_text("folded/oncpu/tmp_10", text, sizeof(text));
	cr_assert(strstr(text, "work[u] 5000\n"), "%s", text);
	stackprobe_output_end(o, STACKPROBE_ONCPU, T0 + 210);
	count_files();
	cr_assert_eq(n_files, 6);
	/* Another start removes them. */
	stackprobe_output_begin(o, STACKPROBE_ONCPU, T0 + 300);
	count_files();
	cr_assert_eq(n_files, 4);
	stackprobe_output_destroy(o);
}

/* Without new samples a picture comes a little later, and of nothing there is none. */
Test(stackprobe, pictures_without_samples, .init = make_top, .fini = remove_top)
{
	_cleanup_profile_ struct profile *p = cpu_profile();
	struct stackprobe_output *o = output(false, 180);

	stackprobe_output_begin(o, STACKPROBE_ONCPU, T0);
	stackprobe_output_add(o, STACKPROBE_ONCPU, p, T0 + 20);
	stackprobe_output_tick(o, STACKPROBE_ONCPU, T0 + 200, 21);
	count_files();
	cr_assert_eq(n_files, 1, "the folded file");
	stackprobe_output_tick(o, STACKPROBE_ONCPU, T0 + 201, 21);
	count_files();
	cr_assert_eq(n_files, 1, "the picture");
	cr_assert(strstr(last, ".svg"), "%s", last);
	for (int i = 2; i < 100; i++)
		stackprobe_output_tick(o, STACKPROBE_ONCPU, T0 + 100 * i, 21);
	count_files();
	cr_assert_eq(n_files, 1);
	stackprobe_output_destroy(o);
}

Test(stackprobe, all_processes_in_one, .init = make_top, .fini = remove_top)
{
	_cleanup_profile_ struct profile *p = cpu_profile();
	struct stackprobe_output *o = output(false, 180);
	char text[1024];

	stackprobe_output_begin(o, STACKPROBE_ONCPU, T0);
	stackprobe_output_add(o, STACKPROBE_ONCPU, p, T0 + 20);
	read_text("folded/oncpu/tmp_all", text, sizeof(text));
	cr_assert(strstr(text, "work[u] 5000\n") && strstr(text, "work[u] 3000\n"), "%s", text);
	stackprobe_output_end(o, STACKPROBE_ONCPU, T0 + 30);
	read_text("svg/oncpu/2026-09-21/2026-09-21-14-13-50-all.svg", text, sizeof(text));
	stackprobe_output_destroy(o);
}

/* Memory that is live still is not counted twice. */
Test(stackprobe, live_memory, .init = make_top, .fini = remove_top)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct stackprobe_output *o = output(false, 180);
	char text[1024];
	u32 work;

	cr_assert_eq(profile_add_table_type(p, SAMPLE_TYPE_INUSE_SPACE), 0);
	work = frame(p, "work", "/usr/bin/app", 0x1000, FRAME_NATIVE, 0, 12);
	sample(p, 0, thread(p, "app", "app", 10, 10), &work, 1, 4096);
	stackprobe_output_begin(o, STACKPROBE_MEM_GLIBC, T0);
	stackprobe_output_add(o, STACKPROBE_MEM_GLIBC, p, T0 + 20);
	stackprobe_output_add(o, STACKPROBE_MEM_GLIBC, p, T0 + 40);
	read_text("folded/mem_glibc/tmp_all", text, sizeof(text));
	cr_assert_str_eq(text, "[10]app; work[u] 4096\n");
	stackprobe_output_destroy(o);
}

/* Ten days of pictures: seven days stay, across restarts; folded files never add up. */
Test(stackprobe, retention, .init = make_top, .fini = remove_top)
{
	_cleanup_profile_ struct profile *p = cpu_profile();
	struct stackprobe_output *o = NULL;
	time_t now = T0;

	for (int day = 0; day < 10; day++) {
		stackprobe_output_destroy(o);
		o = output(false, 600);
		stackprobe_output_begin(o, STACKPROBE_ONCPU, now);
		for (int i = 0; i < 24 * 6; i++)
			stackprobe_output_add(o, STACKPROBE_ONCPU, p, now += 600);
		count_files();
		cr_assert_eq(n_files, (u32)MIN((day + 1) * 144, 7 * 144), "day %d: %u files", day,
			     n_files);
	}
	cr_assert_leq(n_dirs, 5u + 8);
	stackprobe_output_destroy(o);
}

/* ---- parts ---- */

static u32 waiting_thread(struct profile *p, u32 tid, const char *wait)
{
	struct profile_label l = {string(p, "wait"), string(p, wait)};
	struct profile_thread t = {.pid = 10, .tid = tid, .comm = string(p, "app")};
	u32 id;

	cr_assert_eq(profile_add_resource(p, &l, 1, &t.attributes), 0);
	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	return id;
}

static s64 sum_of(const struct profile *p)
{
	s64 sum = 0;

	for (size_t i = 0; p && i < p->n_samples; i++)
		sum += profile_sample(p, i)->value[p->default_type];
	return sum;
}

static s64 part_of(const struct profile *p, enum stackprobe_type t, enum sample_type want)
{
	_cleanup_profile_ struct profile *part = NULL;

	cr_assert_eq(stackprobe_part(p, t, &part), 0);
	if (part)
		cr_assert_neq(profile_find_type(part, want), PROFILE_NONE);
	return part ? sum_of(part) : -1;
}

Test(stackprobe, parts)
{
	_cleanup_profile_ struct profile *wall = profile_create(), *cpu = cpu_profile();
	u32 work;

	cr_assert_eq(profile_add_table_type(wall, SAMPLE_TYPE_WALL), 0);
	work = frame(wall, "work", "/usr/bin/app", 0x1000, FRAME_NATIVE, 0, 12);
	sample(wall, 0, waiting_thread(wall, 1, "running"), &work, 1, 1);
	sample(wall, 0, waiting_thread(wall, 2, "lock"), &work, 1, 10);
	sample(wall, 0, waiting_thread(wall, 3, "sleep"), &work, 1, 100);
	cr_expect_eq(part_of(wall, STACKPROBE_WALL, SAMPLE_TYPE_WALL), 111);
	cr_expect_eq(part_of(wall, STACKPROBE_ONCPU, SAMPLE_TYPE_CPU), 1);
	cr_expect_eq(part_of(wall, STACKPROBE_OFFCPU, SAMPLE_TYPE_OFF_CPU), 110);
	cr_expect_eq(part_of(wall, STACKPROBE_LOCK, SAMPLE_TYPE_MUTEX_DELAY), 10);
	cr_expect_eq(part_of(wall, STACKPROBE_MEM, SAMPLE_TYPE_FAULT_BYTES), -1);
	cr_expect_eq(part_of(cpu, STACKPROBE_ONCPU, SAMPLE_TYPE_CPU), 8000000);
	cr_expect_eq(part_of(cpu, STACKPROBE_OFFCPU, SAMPLE_TYPE_OFF_CPU), -1);
}

Test(stackprobe, jvm_frames)
{
	static const struct profile_write_options gala = {.gala = true};
	_cleanup_profile_ struct profile *p = profile_create(), *q = profile_create();
	u32 java, jvm1, jvm2, start, t;

	cr_assert_eq(profile_add_table_type(p, SAMPLE_TYPE_CPU), 0);
	java = frame(p, "Shop.sell", NULL, 1, FRAME_JAVA, 0, 0);
	jvm1 = frame(p, "JavaCalls::call", "/jdk/lib/server/libjvm.so", 2, FRAME_NATIVE, 0, 0);
	jvm2 = frame(p, "thread_entry", "/jdk/lib/server/libjvm.so", 3, FRAME_NATIVE, 0, 0);
	start = frame(p, "start_thread", "/lib/libc.so.6", 4, FRAME_NATIVE, 0, 0);
	t = thread(p, "java", "java", 10, 10);
	sample(p, 0, t, (u32[]){java, jvm1, jvm2, start}, 4, 1000);
	sample(p, 0, t, (u32[]){jvm1, start}, 2, 2000);
	cr_assert_eq(stackprobe_hide_jvm(p), 0);
	cr_assert_eq(profile_merge(q, p, NULL), 0);
	assert_folded(q, &gala,
		      "java; start_thread[u]; [JVM] 2\njava; start_thread[u]; [JVM]; "
		      "Shop.sell[j] 1\n");
}
