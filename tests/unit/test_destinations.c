/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How each kind of destination exports a profile: names of files and which files stay, and requests
 * to Pyroscope and by OTLP, which an HTTP server on the loopback interface keeps.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

#include "compress/compress.h"
#include "dir_fixture.h"
#include "exporter_fixture.h"
#include "format/format.h"
#include "format/pyroscope.pb-c.h"
#include "http_sink.h"
#include "otlp/otlp.h"

/* ---- files ---- */

static char dir[64];

static void open_dir(void)
{
	snprintf(dir, sizeof(dir), "/tmp/culprit-test-destinations-XXXXXX");
	cr_assert(mkdtemp(dir));
	setenv("TZ", "UTC", 1);
	tzset();
}

static void remove_own_dir(void)
{
	cr_assert_eq(remove_dir(dir), 0);
}

TestSuite(files, .init = open_dir, .fini = remove_own_dir);

static struct exporters *file_exporter(const char *pattern, u32 keep)
{
	char url[128];
	struct export_options o = {.url = url, .keep_files = keep};

	snprintf(url, sizeof(url), "file:%s/%s", dir, pattern);
	return start_exporters(&o, 1);
}

/* Exports a profile that begins `seconds` after 2023-11-14 22:13:20 UTC. */
static void export_at(struct exporters *e, u64 seconds, u64 samples)
{
	struct profile *p = counted_profile(samples, 0);
	u64 before = stats_of(e, 0).sent;
	struct export_stats s;

	p->time_ns += seconds * 1000000000;
	cr_assert_eq(exporters_send(e, p, false), 0);
	wait_until(e, s, s.sent == before + 1);
	cr_assert_eq(s.dropped, 0);
}

static bool is_there(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static u32 n_files(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	u32 n = 0;

	cr_assert(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void assert_samples(const char *name, u64 samples)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct diag d = {};
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	cr_assert_eq(profile_read_file(path, NULL, &p, &d), 0, "%s", d.text);
	cr_assert_eq(p->n_samples, 1);
	cr_assert_eq(profile_sample(p, 0)->value[0], (s64)samples, "%s", name);
}

Test(files, have_the_time_of_the_profile_in_their_names)
{
	struct exporters *e = file_exporter("app-%Y%m%d-%H%M%S.pb.gz", 0);

	export_at(e, 0, 1);
	export_at(e, 60, 2);
	export_at(e, 60, 3);
	export_at(e, 60, 4);
	exporters_destroy(e, 0);
	cr_expect_eq(n_files(), 4);
	assert_samples("app-20231114-221320.pb.gz", 1);
	assert_samples("app-20231114-221420.pb.gz", 2);
	assert_samples("app-20231114-221420-1.pb.gz", 3);
	assert_samples("app-20231114-221420-2.pb.gz", 4);
}

Test(files, only_the_newest_of_the_pattern_stay)
{
	static const char *const others[] = {"app-1.folded.old", "app-x.folded", "b-1.folded"};
	struct exporters *e = file_exporter("app-%s.folded", 2);

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/%s", dir, others[i]);
		cr_assert_geq(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	}
	for (u64 i = 0; i < 5; i++)
		export_at(e, i, i + 1);
	exporters_destroy(e, 0);
	cr_expect_eq(n_files(), 2 + ARRAY_SIZE(others));
	assert_samples("app-1700000003.folded", 4);
	assert_samples("app-1700000004.folded", 5);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		cr_expect(is_there(others[i]), "%s is not of the pattern", others[i]);
}

Test(files, a_name_without_a_time_is_replaced_as_a_whole)
{
	struct exporters *e = file_exporter("now.folded", 2);
	char path[128], text[64] = "";
	int reader;

	export_at(e, 0, 1);
	snprintf(path, sizeof(path), "%s/now.folded", dir);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(reader, 0);
	export_at(e, 60, 2);
	exporters_destroy(e, 0);
	cr_expect_eq(n_files(), 1);
	assert_samples("now.folded", 2);
	/* A reader that opened the file before still reads the complete old file. */
	cr_assert_gt(read(reader, text, sizeof(text) - 1), 0);
	cr_expect_str_eq(text, "app;main 1\n");
	close(reader);
}

Test(files, roots_stand_above_stacks)
{
	char url[96], text[256] = "";
	struct export_options o = {.url = url, .roots = PROFILE_ROOT_PROCESS};
	struct exporters *e;
	FILE *f;

	snprintf(url, sizeof(url), "file:/tmp/culprit-test-roots-%d.folded", getpid());
	e = start_exporters(&o, 1);
	cr_assert_eq(exporters_send(e, counted_profile(3, 0), false), 0);
	exporters_destroy(e, WAIT_NS / 1000000);
	f = fopen(url + 5, "re");
	cr_assert(f);
	cr_assert(fgets(text, sizeof(text), f));
	fclose(f);
	unlink(url + 5);
	cr_expect_str_eq(text, "[10]app;main 3\n");
}

Test(files, the_folder_cannot_have_a_time)
{
	struct export_options o = {.url = "file:/tmp/%Y/app.folded"};
	struct exporters *e = NULL;
	struct diag d = {};

	cr_assert_eq(exporters_create(&o, 1, &d, &e), -EINVAL);
	cr_expect(strstr(d.text, "only the file name may contain a time"), "%s", d.text);
}

/* ---- requests ---- */

static struct sink sink;

static void open_sink(void)
{
	sink_init(&sink);
	sink_start(&sink);
}

static void close_sink(void)
{
	sink_stop(&sink);
}

TestSuite(pyroscope, .init = open_sink, .fini = close_sink);
TestSuite(otlp, .init = open_sink, .fini = close_sink);

/* Sends the profile, and returns when the server has all of it. */
static void send_with(const struct export_options *with, const char *scheme, struct profile *p)
{
	struct export_options o = *with;
	struct exporters *e;
	char url[64];

	snprintf(url, sizeof(url), "%s://127.0.0.1:%u", scheme, sink.port);
	o.url = url;
	e = start_exporters(&o, 1);
	cr_assert_eq(exporters_send(e, p, false), 0);
	exporters_destroy(e, WAIT_NS / 1000000);
}

static void send_to_sink(const char *scheme, struct profile *p)
{
	send_with(&(struct export_options){}, scheme, p);
}

static bool starts_with(const struct sink_request *r, const char *line)
{
	return !strncmp(str_get(&r->head), line, strlen(line));
}

/* Makes a profile of two services with one stack each, and a thread without a resource. */
static struct profile *profile_of_services(const char *type, const char *unit)
{
	struct profile *p = profile_create();
	struct profile_thread t = {.pid = 7, .tid = 7};
	const char *names[] = {"cart", "checkout"};
	u32 main_, id;

	cr_assert(p);
	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	cr_assert_eq(profile_add_type(p, type, unit), 0);
	main_ = frame(p, "main", "/usr/bin/app", 0x2000, FRAME_NATIVE, 0, 0);
	cr_assert_eq(profile_add_stack(p, &main_, 1, &main_), 0);
	for (u32 i = 0; i < 3; i++) {
		struct profile_label labels[] = {
			{string(p, "service.name"), string(p, i < 2 ? names[i] : "")},
			{string(p, "k8s.pod-name"), string(p, "pod-7")}};

		t.pid = t.tid = 7 + i;
		t.resource = 0;
		if (i < 2)
			cr_assert_eq(profile_add_resource(p, labels, 2, &t.resource), 0);
		cr_assert_eq(profile_add_thread(p, &t, &id), 0);
		cr_assert_eq(profile_add_sample(p, 0, id, main_, (s64[]){1, 10 + i}), 0);
	}
	p->time_ns = 1700000000000000000;
	return p;
}

static Pyroscope__PushRequest *pushed(size_t request)
{
	const struct sink_request *r = &sink.requests[request];
	Pyroscope__PushRequest *got;

	cr_assert_gt(sink.n, request);
	cr_expect(starts_with(r, "POST /push.v1.PusherService/Push HTTP/1.1\r\n"), "%s",
		  str_get(&r->head));
	cr_expect_str_eq(sink_header(r, "Content-Type"), "application/proto");
	got = pyroscope__push_request__unpack(NULL, r->body.n, (const u8 *)str_get(&r->body));
	cr_assert(got);
	return got;
}

static const char *label(const Pyroscope__RawProfileSeries *s, const char *name)
{
	for (size_t i = 0; i < s->n_labels; i++)
		if (!strcmp(s->labels[i]->name, name))
			return s->labels[i]->value;
	return "";
}

/* Returns the second value of the only sample. */
static s64 value_of(const Pyroscope__RawProfileSeries *s)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct diag d = {};

	cr_assert_eq(s->n_samples, 1);
	cr_assert_eq(profile_read_bytes("series", s->samples[0]->raw_profile.data,
					s->samples[0]->raw_profile.len, "pprof", 1 << 20, &p, &d),
		     0, "%s", d.text);
	cr_assert_eq(p->n_samples, 1);
	return profile_sample(p, 0)->value[1];
}

Test(pyroscope, a_request_has_a_series_for_each_service)
{
	static const char *const services[] = {"unknown_service", "cart", "checkout"};
	static const s64 values[] = {12, 10, 11};
	Pyroscope__PushRequest *got;

	send_to_sink("pyroscope", profile_of_services("cpu", "nanoseconds"));
	cr_assert_eq(sink.n, 1);
	got = pushed(0);
	cr_assert_eq(got->n_series, ARRAY_SIZE(services));
	for (size_t i = 0; i < got->n_series; i++) {
		const Pyroscope__RawProfileSeries *s = got->series[i];

		cr_expect_str_eq(label(s, "__name__"), "process_cpu");
		cr_expect_str_eq(label(s, "service_name"), services[i]);
		cr_expect_str_eq(label(s, "k8s_pod_name"), i ? "pod-7" : "");
		cr_expect_eq(value_of(s), values[i]);
	}
	pyroscope__push_request__free_unpacked(got, NULL);
}

Test(pyroscope, profiles_are_named_by_their_type)
{
	static const struct {
		const char *type, *unit, *name;
	} cases[] = {
		{"cpu", "nanoseconds", "process_cpu"},
		{"page_faults", "count", "page_faults"},
		{"cache_misses", "count", "cache_misses"},
		{"of_the_users_own", "count", "of_the_users_own"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		Pyroscope__PushRequest *got;

		send_to_sink("pyroscope", profile_of_services(cases[i].type, cases[i].unit));
		cr_assert_eq(sink.n, i + 1, "one request a profile");
		got = pushed(i);
		cr_assert_geq(got->n_series, 1);
		cr_expect_str_eq(label(got->series[0], "__name__"), cases[i].name);
		pyroscope__push_request__free_unpacked(got, NULL);
	}
}

/* ---- Pyroscope's older API ---- */

TestSuite(ingest, .init = open_sink, .fini = close_sink);

static struct profile *ingested(const struct sink_request *r)
{
	struct profile *p = NULL;
	struct diag d = {};

	cr_assert_eq(profile_read_bytes("ingest", (const u8 *)str_get(&r->body), r->body.n, "pprof",
					1 << 20, &p, &d),
		     0, "%s", d.text);
	return p;
}

Test(ingest, a_service_is_a_request_with_its_name_labels_and_times)
{
	static const char *const lines[] = {
		"POST /ingest?name=unknown_service%7B%7D&from=1700000000&until=1700000001&format=pprof"
		"&spyName=culprit&units=samples&aggregationType=sum HTTP/1.1\r\n",
		"POST /ingest?name=cart%7Bk8s_pod_name%3Dpod-7%7D&from=1700000000&until=1700000001"
		"&format=pprof&spyName=culprit&units=samples&aggregationType=sum HTTP/1.1\r\n",
		"POST /ingest?name=checkout%7Bk8s_pod_name%3Dpod-7%7D&from=1700000000"
		"&until=1700000001&format=pprof&spyName=culprit&units=samples&aggregationType=sum "
		"HTTP/1.1\r\n",
	};
	static const s64 values[] = {12, 10, 11};

	send_to_sink("pyroscope+ingest", profile_of_services("cpu", "nanoseconds"));
	cr_assert_eq(sink.n, ARRAY_SIZE(lines));
	for (size_t i = 0; i < sink.n; i++) {
		_cleanup_profile_ struct profile *p = ingested(&sink.requests[i]);

		cr_expect(starts_with(&sink.requests[i], lines[i]), "%s",
			  str_get(&sink.requests[i].head));
		cr_assert_eq(p->n_samples, 1);
		cr_expect_eq(profile_sample(p, 0)->value[1], values[i]);
		cr_expect_str_eq(profile_string(p, p->types[1].name), "cpu");
	}
}

/* "off_cpu" has "cpu" in it, by which servers know the time on a CPU. */
Test(ingest, types_that_servers_would_misunderstand_have_other_names)
{
	static const char *const types[][2] = {{"off_cpu", "waits"},
					       {"cpu_migrations", "migrations"},
					       {"block_io_time", "disk_time"},
					       {"alloc_space", "alloc_space"},
					       {"wall", "wall"}};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		_cleanup_profile_ struct profile *p = NULL;

		send_to_sink("pyroscope+ingest", profile_of_services(types[i][0], "bytes"));
		cr_assert_eq(sink.n, 3 * (i + 1));
		p = ingested(&sink.requests[3 * i]);
		cr_expect_str_eq(profile_string(p, p->types[1].name), types[i][1]);
	}
}

Test(ingest, names_and_labels_keep_to_what_servers_read)
{
	struct profile *p = profile_create();
	struct profile_label l[] = {
		{string(p, "service.name"), string(p, "shop; a=b")},
		{string(p, "x y"), string(p, "1,2}{\"3\"=4 \xc3\xa9&?")},
		{string(p, "0"), string(p, "")},
	};
	struct profile_thread t = {.pid = 7};
	u32 f, id;

	profile_add_type(p, "samples", "count");
	f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	cr_assert_eq(profile_add_resource(p, l, ARRAY_SIZE(l), &t.resource), 0);
	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	sample(p, 0, id, &f, 1, 1);
	p->period_unit = string(p, "nanoseconds");
	p->period = 10101010;
	p->time_ns = 1700000000900000000;
	p->duration_ns = 5000000000;
	send_to_sink("pyroscope+ingest", p);
	cr_assert_eq(sink.n, 1);
	cr_expect(starts_with(&sink.requests[0],
			      "POST /ingest?name=shop__a_b%7Bservice_name%3Dshop%3B%20a_b%2C_%3D%2C"
			      "x_y%3D1_2___3__4%20%C3%A9%26%3F%7D&from=1700000000&until=1700000005"
			      "&format=pprof&spyName=culprit&sampleRate=99&units=samples"
			      "&aggregationType=sum HTTP/1.1\r\n"),
		  "%s", str_get(&sink.requests[0].head));
}

Test(ingest, labels_that_have_no_room_are_left_out)
{
	struct profile *p = profile_create();
	struct profile_label l[12];
	struct profile_thread t = {.pid = 7};
	char name[16], value[2000] = "";
	const char *end;
	u32 f, id;

	memset(value, '%', sizeof(value) - 1);
	for (u32 i = 0; i < ARRAY_SIZE(l); i++) {
		snprintf(name, sizeof(name), "label%02u", i);
		l[i] = (struct profile_label){string(p, name), string(p, i == 9 ? "short" : value)};
	}
	profile_add_type(p, "samples", "count");
	f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	cr_assert_eq(profile_add_resource(p, l, ARRAY_SIZE(l), &t.resource), 0);
	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	sample(p, 0, id, &f, 1, 1);
	send_to_sink("pyroscope+ingest", p);
	cr_assert_eq(sink.n, 1);
	end = strstr(str_get(&sink.requests[0].head), "\r\n");
	cr_expect_lt(end - str_get(&sink.requests[0].head), 8192);
	cr_expect(strstr(str_get(&sink.requests[0].head), "%2Clabel09%3Dshort%7D&"), "%s",
		  str_get(&sink.requests[0].head));
	cr_expect_null(strstr(str_get(&sink.requests[0].head), "label08"));
}

/* A request that has to wait is sent once, and the others are not sent again. */
Test(ingest, a_busy_server_gets_each_request_once)
{
	sink.answers[0] = (struct sink_answer){.status = 200};
	sink.answers[1] = (struct sink_answer){.status = 429};
	sink.answers[2] = (struct sink_answer){.status = 408};
	sink.n_answers = 3;
	send_with(&(struct export_options){.retry_ms = 1, .user = "me:secret"}, "pyroscope+ingest",
		  profile_of_services("cpu", "nanoseconds"));
	cr_assert_eq(sink.n, 5);
	for (size_t i = 0; i < sink.n; i++) {
		static const char *const names[] = {"unknown_service", "cart", "cart", "cart",
						    "checkout"};
		char line[64];

		snprintf(line, sizeof(line), "POST /ingest?name=%s%%7B", names[i]);
		cr_expect(starts_with(&sink.requests[i], line), "%zu: %s", i,
			  str_get(&sink.requests[i].head));
		cr_expect_str_eq(sink_header(&sink.requests[i], "Authorization"),
				 "Basic bWU6c2VjcmV0");
	}
}

Test(ingest, a_large_profile_is_split)
{
	struct profile *p = profile_create();
	u32 t;
	s64 sum = 0;

	profile_add_type(p, "samples", "count");
	t = thread(p, "app", "app", 1, 1);
	for (u32 i = 0; i < 40000; i++) {
		u32 f = frame(p, "f", "/bin/x", i, FRAME_NATIVE, 0, 0);

		sample(p, 0, t, &f, 1, 1);
	}
	send_to_sink("pyroscope+ingest", p);
	cr_expect_eq(sink.n, 4);
	for (size_t i = 0; i < sink.n; i++) {
		_cleanup_profile_ struct profile *part = NULL;
		struct diag d = {};

		cr_assert_eq(
			profile_read_bytes("ingest", (const u8 *)str_get(&sink.requests[i].body),
					   sink.requests[i].body.n, "pprof", 64 << 20, &part, &d),
			0, "%s", d.text);
		cr_expect_leq(part->n_samples, 16000);
		for (size_t k = 0; k < part->n_samples; k++)
			sum += profile_sample(part, k)->value[0];
	}
	cr_expect_eq(sum, 40000);
}

#define MANY 40000
#define OTLP_MAX_BYTES ((size_t)4 << 20) /* what gRPC servers accept by default */

/* Makes a profile of some 7 MB in OTLP: each sample has a function of its own. */
static struct profile *large_profile(void)
{
	struct profile *p = counted_profile(1, 5);
	u32 t = thread(p, "app", "app", 10, 10);

	for (u32 i = 1; i < MANY; i++) {
		char name[96];
		u32 f;

		snprintf(name, sizeof(name),
			 "a_function_with_a_name_that_is_as_long_as_names_in_c_plus_plus_%u", i);
		f = frame(p, name, "/usr/bin/app", 0x2000 + i, FRAME_NATIVE, 0, 0);
		sample(p, 0, t, &f, 1, 1);
	}
	p->quality.samples = MANY;
	return p;
}

Test(otlp, a_large_profile_is_several_requests)
{
	u64 samples = 0;

	send_to_sink("otlp+http", large_profile());
	cr_assert_gt(sink.n, 1);
	for (size_t i = 0; i < sink.n; i++) {
		const struct sink_request *r = &sink.requests[i];
		_cleanup_str_ struct str plain = {};
		struct otlp_profiles got = {};
		struct diag d = {};

		cr_expect(starts_with(r, "POST /v1development/profiles HTTP/1.1\r\n"), "%s",
			  str_get(&r->head));
		cr_expect_str_eq(sink_header(r, "Content-Type"), "application/x-protobuf");
		cr_expect_str_eq(sink_header(r, "Content-Encoding"), "gzip");
		cr_assert_eq(
			gzip_inflate((const u8 *)str_get(&r->body), r->body.n, 1 << 26, &plain, &d),
			0, "%s", d.text);
		cr_expect_lt(plain.n, OTLP_MAX_BYTES);
		cr_assert_eq(otlp_profiles_decode((const u8 *)str_get(&plain), plain.n, 1 << 28,
						  &got, &d),
			     0, "%s", d.text);
		cr_assert_eq(got.profiles.n, 1);
		samples += got.profiles.data[0]->n_samples;
		cr_expect_eq(got.profiles.data[0]->quality.lost, i ? 0 : 5,
			     "the first part reports the losses");
		otlp_profiles_deinit(&got);
	}
	cr_expect_eq(samples, MANY);
}
