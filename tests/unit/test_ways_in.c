/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of other profilers that can be read only: Chrome, Austin, gperftools, perf.data. */
#include <criterion/criterion.h>
#include <errno.h>
#include <zstd.h>

#include "profile_fixture.h"

typedef int read_fn(const u8 *, size_t, struct profile **, struct diag *);

static struct profile *read_bytes(read_fn *read, const void *data, size_t n, const char *says)
{
	struct profile *p = NULL;
	struct diag d = {};

	cr_assert_eq(read(data, n, &p, &d), 0, "%s", d.text);
	cr_expect_str_eq(d.text, says);
	return p;
}

static struct profile *read_text(read_fn *read, const char *text)
{
	return read_bytes(read, text, strlen(text), "");
}

static void assert_refused(read_fn *read, const void *data, size_t n, const char *says)
{
	struct profile *p = NULL;
	struct diag d = {};

	cr_expect_lt(read(data, n, &p, &d), 0);
	cr_expect_str_eq(d.text, says);
	cr_expect_null(p);
}

static void select_type(struct profile *p, const char *name)
{
	for (u32 t = 0; t < p->n_types; t++)
		if (!strcmp(profile_string(p, p->types[t].name), name)) {
			p->default_type = t;
			return;
		}
	cr_assert_fail("no type %s", name);
}

/* ---- Chrome ---- */

#define NODE(id, name, url, line, more)                                                            \
	"{\"id\":" #id ",\"callFrame\":{\"functionName\":\"" name "\",\"url\":\"" url              \
	"\",\"lineNumber\":" #line "}" more "}"
#define NODES                                                                                      \
	"\"nodes\":[" NODE(1, "(root)", "", -1, ",\"children\":[2,3,4,5]") "," NODE(               \
		2, "main", "a.js", 4,                                                              \
		",\"children\":[6]") "," NODE(3, "(idle)", "", -1,                                 \
					      "") "," NODE(4, "(garbage collector)", "", -1,       \
							   "") "," NODE(5, "(program)", "", -1,    \
									"") "," NODE(6, "",        \
										     "/x/b.js", 9, \
										     "") "]"

/* A sample lasts until the next one; what is idle is not in the sum, but told. */
Test(chrome, samples_last_until_the_next)
{
	_cleanup_profile_ struct profile *p = read_text(
		chrome_read, "{" NODES ",\"startTime\":1000,\"endTime\":1100,"
			     "\"samples\":[2,6,4,3,5,2],\"timeDeltas\":[10,10,20,5,30,7]}");

	assert_folded(p, NULL,
		      "(program) 7000\n"
		      "main 28000\n"
		      "main;(anonymous b.js:10) 20000\n"
		      "main;(anonymous b.js:10);(garbage collector) 5000\n");
	cr_assert_str_eq(profile_string(p, p->title), "idle left out: 30.0 µs");
	p->default_type = 0;
	assert_folded(p, NULL,
		      "(program) 1\nmain 2\nmain;(anonymous b.js:10) 1\n"
		      "main;(anonymous b.js:10);(garbage collector) 1\n");
	cr_assert_eq(p->functions.data[1].start_line, 5);
}

Test(chrome, a_trace_has_a_profile_in_parts)
{
	_cleanup_profile_ struct profile *p = read_text(
		chrome_read,
		"{\"traceEvents\":["
		"{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":7,\"tid\":9,\"args\":{\"name\":\"Main\"}},"
		/* The parts are not in the order of time. */
		"{\"name\":\"ProfileChunk\",\"ph\":\"P\",\"pid\":7,\"tid\":11,\"id\":\"0x1\",\"ts\":30,"
		"\"args\":{\"data\":{\"cpuProfile\":{\"samples\":[2,2],\"endTime\":0},"
		"\"timeDeltas\":[10,10],\"endTime\":1100}}},"
		"{\"name\":\"ProfileChunk\",\"ph\":\"P\",\"pid\":7,\"tid\":11,\"id\":\"0x1\",\"ts\":20,"
		"\"args\":{\"data\":{\"cpuProfile\":{" NODES
		",\"samples\":[6]},\"timeDeltas\":[50]}}},"
		"{\"name\":\"Profile\",\"ph\":\"P\",\"pid\":7,\"tid\":9,\"id\":\"0x1\",\"ts\":10,"
		"\"args\":{\"data\":{\"startTime\":1000}}}]}");

	assert_folded(p, NULL, "Main;main 40000\nMain;main;(anonymous b.js:10) 10000\n");
	cr_assert_eq(p->threads.data[0].pid, 7);
	cr_assert_eq(p->threads.data[0].tid, 9);
}

Test(chrome, old_files_have_a_tree)
{
	_cleanup_profile_ struct profile *p = read_text(
		chrome_read,
		"{\"head\":{\"functionName\":\"(root)\",\"url\":\"\",\"id\":1,\"hitCount\":0,"
		"\"children\":[{\"functionName\":\"f\",\"url\":\"a.js\",\"lineNumber\":0,\"id\":2,"
		"\"hitCount\":3,\"children\":[{\"functionName\":\"g\",\"url\":\"a.js\",\"id\":3,"
		"\"hitCount\":4}]}]}}");

	assert_folded(p, NULL, "f 3\nf;g 4\n");
	cr_assert_eq(p->n_types, 1);
}

Test(chrome, damage_is_told)
{
#define REFUSED(text, says) assert_refused(chrome_read, text, strlen(text), says)
	REFUSED("{\"traceEvents\":[]}",
		"CPU profile of Chrome: the trace has none: record it with the category "
		"disabled-by-default-v8.cpu_profiler");
	REFUSED("{}", "CPU profile of Chrome: has no nodes");
	REFUSED("{\"nodes\":[" NODE(1, "a", "", 0, "") "," NODE(1, "b", "", 0, "") "]}",
		"CPU profile of Chrome: a node has no id, or that of another node");
	REFUSED("{\"nodes\":[" NODE(1, "a", "", 0, ",\"children\":[2]") "," NODE(
			2, "b", "", 0, ",\"children\":[1]") "],\"samples\":[1],\"timeDeltas\":[1]}",
		"CPU profile of Chrome: a node is its own caller");
	REFUSED("{" NODES ",\"samples\":[2],\"timeDeltas\":[1e300]}",
		"CPU profile of Chrome: a time is not a number that can be");
#undef REFUSED
	profile_destroy(
		read_bytes(chrome_read, "{" NODES ",\"samples\":[2,77],\"timeDeltas\":[0,5]}",
			   strlen("{" NODES ",\"samples\":[2,77],\"timeDeltas\":[0,5]}"),
			   "CPU profile of Chrome: samples left out, whose node is missing: 1"));
}

/* ---- Austin ---- */

Test(austin, text_is_time_of_threads)
{
	const char *text = "# austin: 3.7.0\n# interval: 100\n# mode: wall\n\n"
			   "P7;T0:9;/a/main.py:main:12;/a/b.py:C.work:3 104\n"
			   "P7;T0:9;/a/main.py:main:13;/a/b.py:C.work:3 100\n"
			   "P7;T9;C:\\x.py:f:3;:GC: 5\n";
	_cleanup_profile_ struct profile *p = read_text(austin_read, text);

	assert_folded(p, NULL, "python;f;:GC: 5\npython;main;C.work 204\n"); /* in µs */
	cr_assert_eq(profile_table_type(p, p->default_type), SAMPLE_TYPE_WALL);
	cr_assert_eq(p->threads.data[0].pid, 7);
	cr_assert_eq(p->threads.data[0].tid, 9);
	cr_assert_eq(p->frames.data[0].line, 12);
	cr_assert_eq(p->frames.data[0].kind, FRAME_PYTHON);
	cr_assert_str_eq(profile_string(p, p->functions.data[0].file), "/a/main.py");
	cr_assert_eq(austin_probe((const u8 *)text, strlen(text)), 95);
	cr_assert_gt(austin_probe((const u8 *)text + 44, strlen(text) - 44),
		     folded_probe((const u8 *)text + 44, strlen(text) - 44));
}

Test(austin, full_mode_has_three_values)
{
	_cleanup_profile_ struct profile *p =
		read_text(austin_read, "# mode: full\nP7;T9;a.py:f:1 100,0,4096\n"
				       "P7;T9;a.py:f:1 50,1,-96\n");

	assert_folded(p, NULL, "python;f 150\n");
	select_type(p, "cpu");
	assert_folded(p, NULL, "python;f 100000\n");
	select_type(p, "memory");
	assert_folded(p, NULL, "python;f 4000\n");
	select_type(p, "samples");
	assert_folded(p, NULL, "python;f 2\n");
}

Test(austin, damaged_lines_are_told)
{
	const char *text = "# mode: cpu\nP7;T9;a.py:f:1 100\nP7;T9;a.py:f:1\n";
	_cleanup_profile_ struct profile *p =
		read_bytes(austin_read, text, strlen(text),
			   "Austin: damaged lines left out: 1, the first is line 3");

	assert_folded(p, NULL, "python;f 100000\n");
	assert_refused(austin_read, "# mode: cpu\nx\n", 14,
		       "Austin: line 2 is not P1;T1;file:function:line... and a number");
	assert_refused(austin_read, "# mode: cpu\n", 12, "Austin: no samples in it");
}

/* Version 3, mode wall; frames and strings by key. */
static const char mojo[] = "MOJ\x03"
			   "\x01mode\0wall\0"
			   "\x02\x07\x00"
			   "9\0"		  /* stack: pid 7, interpreter 0, thread 9 */
			   "\x0b\x05/a/main.py\0" /* string 5 */
			   "\x0b\x06main\0"	  /* string 6 */
			   "\x03\x81\x01\x05\x06\x0c\0\0\0" /* frame 65: strings 5 and 6, line 12 */
			   "\x05\x81\x01"		    /* frame 65 */
			   "\x07"			    /* garbage collector */
			   "\x09\xa8\x01"		    /* 104 µs: 0x28 | 1 << 6 */
			   "\x02\x07\x00"
			   "9\0"
			   "\x05\x81\x01"
			   "\x09\x05";

Test(austin, mojo_is_the_same_in_binary)
{
	_cleanup_profile_ struct profile *p = read_bytes(austin_read, mojo, sizeof(mojo) - 1, "");

	assert_folded(p, NULL, "python;main 5\npython;main;:GC: 104\n");
	cr_assert_eq(p->frames.data[0].line, 12);
	cr_assert_str_eq(profile_string(p, p->functions.data[0].file), "/a/main.py");
	cr_assert_eq(austin_probe((const u8 *)mojo, sizeof(mojo) - 1), 95);
}

Test(austin, mojo_is_read_up_to_where_it_is_cut)
{
	_cleanup_profile_ struct profile *p =
		read_bytes(austin_read, mojo, sizeof(mojo) - 2,
			   "Austin: is cut off; what stands before it is read at offset 0x40");

	assert_folded(p, NULL, "python;main;:GC: 104\n");
	assert_refused(austin_read, "MOJ\x09", 4,
		       "Austin: version 9 of MOJO is not read: convert the file with mojo2austin");
}

/* ---- gperftools ---- */

#define MAPS                                                                                       \
	"00400000-00500000 r-xp 00001000 08:01 1 /bin/app\n"                                       \
	"00600000-00700000 rw-p 00000000 08:01 1 /bin/app\n"

Test(gperftools, cpu_stacks_are_addresses_with_the_process_map)
{
	u64 words[] = {0, 3, 0, 10000, 0,
		       /* The second frame is the signal's handler, then the leaf again. */
		       2, 3, 0x400010, 0x400fff, 0x400021, 1, 4, 0x400030, 0x400fff, 0x400031,
		       0x400021, 0, 1, 0};
	char file[sizeof(words) + sizeof(MAPS)];
	_cleanup_profile_ struct profile *p = NULL;

	memcpy(file, words, sizeof(words));
	memcpy(file + sizeof(words), MAPS, sizeof(MAPS));
	p = read_bytes(gperftools_read, file, sizeof(file) - 1, "");
	assert_folded(p, NULL, "app+0x1020;app+0x1010 20000000\napp+0x1020;app+0x1030 10000000\n");
	cr_assert_eq(p->frames.data[0].flags, PROFILE_FRAME_OFFSET);
	cr_assert_eq(p->period, 10000000);
	cr_assert_eq(gperftools_probe((u8 *)file, sizeof(file)), 95);
	profile_destroy(take_ptr(p));
	p = read_bytes(gperftools_read, file, sizeof(words) - 8 * 4,
		       "gperftools: has no map of the process at its end: it may be cut off, and "
		       "addresses have no names");
	cr_assert_eq(p->quality.samples, 2);
}

/* A frame in all stacks that is always called from the same place is no handler. */
Test(gperftools, the_hot_path_stays_whole)
{
	static const u32 words[] = {0,	  3, 0, 1000, 0,    1,	  3, 0x10, 0x21,
				    0x31, 1, 3, 0x14, 0x21, 0x31, 0, 1,	   0};
	_cleanup_profile_ struct profile *p = read_bytes(gperftools_read, words, sizeof(words), "");

	cr_assert_eq(p->stacks.data[0].n, 3);
	cr_assert_eq(p->stacks.data[1].n, 3);
}

Test(gperftools, names_may_come_first)
{
	static const u32 words[] = {0, 3, 0, 1000, 0, 1, 3, 0x400010, 0x400021, 0x400041, 0, 1, 0};
	static const char names[] = "--- symbol\nbinary=/bin/app\n0x00400010 work()\n"
				    "0x00400021 main--start\n0x00400041 _start\n---\n--- profile\n";
	char file[sizeof(names) - 1 + sizeof(words)];
	_cleanup_profile_ struct profile *p = NULL;

	memcpy(file, names, sizeof(names) - 1);
	memcpy(file + sizeof(names) - 1, words, sizeof(words));
	p = read_bytes(gperftools_read, file, sizeof(file), "");
	assert_folded(p, NULL, "_start;main;work() 1000000\n");
}

/* An object of 512 KiB, sampled each 512 KiB on average, stands for 1 / (1 - 1/e) of them. */
Test(gperftools, heap_samples_stand_for_others)
{
	_cleanup_profile_ struct profile *p = read_text(
		gperftools_read, "heap profile:  1: 524288 [ 3: 1572864] @ heapz_v2/524288\n"
				 "  1: 524288 [ 3: 1572864] @ 0x400011 0x400021\n"
				 "\nMAPPED_LIBRARIES:\n" MAPS);

	assert_folded(p, NULL, "app+0x1020;app+0x1010 829411\n");
	cr_assert_eq(profile_table_type(p, 0), SAMPLE_TYPE_INUSE_SPACE);
	select_type(p, "alloc_objects");
	assert_folded(p, NULL, "app+0x1020;app+0x1010 4\n");
}

Test(gperftools, heap_without_allocations_has_no_such_type)
{
	_cleanup_profile_ struct profile *p =
		read_text(gperftools_read, "heap profile:  1: 10 [ 1: 10] @ heapprofile\n"
					   "  1: 10 [ 1: 10] @ 0x400011\n"
					   "MAPPED_LIBRARIES:\n" MAPS);

	assert_folded(p, NULL, "app+0x1010 10\n");
	cr_assert_eq(p->n_types, 2);
}

Test(gperftools, locks_are_scaled_by_clock_and_period)
{
	const char *text = "--- contentionz 1 ---\ncycles/second = 2000000000\n"
			   "sampling period = 100\nms since reset = 1000\n"
			   "  40 2 @ 0x400011 0x400021\nx @ 0x1\n--- Memory map: ---\n" MAPS;
	_cleanup_profile_ struct profile *p =
		read_bytes(gperftools_read, text, strlen(text),
			   "gperftools: damaged lines left out: 1, the first is line 6");

	assert_folded(p, NULL, "app+0x1020;app+0x1010 2000\n");
	cr_assert_eq(profile_table_type(p, 0), SAMPLE_TYPE_MUTEX_DELAY);
	select_type(p, "contentions");
	assert_folded(p, NULL, "app+0x1020;app+0x1010 200\n");
	cr_assert_eq(p->duration_ns, 1000000000);
}

Test(gperftools, go_has_names_in_remarks)
{
	_cleanup_profile_ struct profile *p =
		read_text(gperftools_read,
			  "heap profile: 1: 10 [2: 30] @ heap/1\n1: 10 [2: 30] @ 0x11 0x21\n"
			  "#\t0x10\tmain.work+0x1\t/a.go:1\n#\t0x20\tmain.main+0x2\t/a.go:2\n"
			  "\n# runtime.MemStats\n# Alloc = 1\n");

	assert_folded(p, NULL, "main.main;main.work 10\n");
}

/* ---- perf.data ---- */

#define HAS_IP_TID_TIME_ID_PERIOD_CHAIN (1 << 0 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 8 | 1 << 16)

struct file {
	struct str s;
	size_t record; /* where the last begins */
};

static void put(struct file *f, u64 v, size_t n)
{
	cr_assert_eq(str_append(&f->s, &v, n), 0);
}

static void begin(struct file *f, u32 type, u16 misc)
{
	f->record = f->s.n;
	put(f, type, 4);
	put(f, misc, 2);
	put(f, 0, 2);
}

static void end(struct file *f)
{
	u16 size = (u16)(f->s.n - f->record);

	memcpy(f->s.data + f->record + 6, &size, 2);
}

/* What stands behind all records but samples: pid, tid, time, id. */
static void end_at(struct file *f, u64 time)
{
	put(f, 0, 8);
	put(f, time, 8);
	put(f, 1, 8);
	end(f);
}

static void put_text(struct file *f, const char *text, size_t n)
{
	char bytes[64] = {};

	memcpy(bytes, text, strlen(text));
	cr_assert_eq(str_append(&f->s, bytes, n), 0);
}

static void put_attr(struct file *f, u32 kind, u64 config, u64 period)
{
	put(f, kind, 4);
	put(f, 64, 4);
	put(f, config, 8);
	put(f, period, 8);
	put(f, HAS_IP_TID_TIME_ID_PERIOD_CHAIN, 8);
	put(f, 0, 8);
	put(f, 1 << 18, 8); /* sample_id_all */
	put(f, 0, 8);
	put(f, 0, 8);
}

static void put_mmap(struct file *f, u32 pid, u64 start, u64 n, u64 offset, const char *path,
		     u64 time)
{
	begin(f, 10, 2 | 1 << 14);
	put(f, pid, 4);
	put(f, pid, 4);
	put(f, start, 8);
	put(f, n, 8);
	put(f, offset, 8);
	put(f, 20, 4);
	for (u32 i = 0; i < 20; i++)
		put(f, 0xab, 1);
	put(f, 4, 4); /* PROT_EXEC */
	put(f, 0, 4);
	put_text(f, path, 16);
	end_at(f, time);
}

static void put_comm(struct file *f, u32 pid, const char *name, u16 misc, u64 time)
{
	begin(f, 3, misc);
	put(f, pid, 4);
	put(f, pid, 4);
	put_text(f, name, 16);
	end_at(f, time);
}

static void put_sample(struct file *f, u64 id, u32 pid, u64 time, u64 period, const u64 *chain,
		       u64 n)
{
	begin(f, 9, 2);
	put(f, id, 8);
	put(f, chain[n - 1], 8);
	put(f, pid, 4);
	put(f, pid, 4);
	put(f, time, 8);
	put(f, period, 8);
	put(f, n, 8);
	for (u64 i = 0; i < n; i++)
		put(f, chain[i], 8);
	end(f);
}

/* As `perf record -o -` writes: attributes are records. */
static void begin_pipe(struct file *f)
{
	put_text(f, "PERFILE2", 8);
	put(f, 16, 8);
	begin(f, 64, 0);
	put_attr(f, 0, 0, 0);
	put(f, 1, 8); /* its id */
	end(f);
	begin(f, 64, 0);
	put_attr(f, 1, 2, 0);
	put(f, 2, 8);
	end(f);
}

static const u64 chain[] = {(u64)-128, 0xffffffff81000010, 0xffffffff81000021,
			    (u64)-512, 0x400010,	   0x400021};

static void put_records(struct file *f)
{
	/* Not in the order of time: those of a CPU come together. */
	put_sample(f, 1, 7, 50, 1000, chain, 6);
	put_sample(f, 1, 8, 70, 500, chain + 3, 3);
	put_sample(f, 2, 7, 60, 3, chain + 3, 2);
	put_mmap(f, 7, 0x400000, 0x1000, 0x1000, "/bin/app", 10);
	put_comm(f, 7, "app", 0, 20);
	begin(f, 7, 0); /* fork: 8 is a child of 7 */
	put(f, 8, 4);
	put(f, 7, 4);
	put(f, 8, 4);
	put(f, 7, 4);
	put(f, 55, 8);
	end_at(f, 55);
	put_comm(f, 8, "child", 0, 56);
	begin(f, 2, 0); /* lost */
	put(f, 1, 8);
	put(f, 33, 8);
	end_at(f, 90);
}

#define KERNEL_FOLDED                                                                              \
	"[kernel.kallsyms]+0xffffffff81000020_[k];[kernel.kallsyms]+0xffffffff81000010_[k]"
#define PIPE_FOLDED                                                                                \
	"app;app+0x1020;app+0x1010;" KERNEL_FOLDED " 1000\n"                                       \
	"child;app+0x1020;app+0x1010 500\n"

Test(perf_data, records_are_taken_in_the_order_of_time)
{
	struct file f = {};
	_cleanup_profile_ struct profile *p = NULL;

	begin_pipe(&f);
	put_records(&f);
	p = read_bytes(perf_data_read, f.s.data, f.s.n, "");
	assert_folded(p, NULL, PIPE_FOLDED);
	cr_assert_eq(p->frames.data[2].flags, PROFILE_FRAME_OFFSET);
	cr_assert_str_eq(profile_string(p, p->mappings.data[0].build_id),
			 "abababababababababababababababababababab");
	cr_assert_eq(p->quality.lost, 33);
	cr_assert_eq(profile_table_type(p, 1), SAMPLE_TYPE_CYCLES);
	select_type(p, "page_faults");
	assert_folded(p, NULL, "app;app+0x1010 3\n");
	select_type(p, "samples"); /* of the first event alone */
	assert_folded(
		p, NULL,
		"app;app+0x1020;app+0x1010;[kernel.kallsyms]+0xffffffff81000020_[k];[kernel.kallsyms]+0xffffffff81000010_[k] 1\n"
		"child;app+0x1020;app+0x1010 1\n");
	cr_assert_eq(perf_data_probe((u8 *)f.s.data, f.s.n), 100);
	str_deinit(&f.s);
}

Test(perf_data, exec_replaces_the_mappings)
{
	struct file f = {};
	_cleanup_profile_ struct profile *p = NULL;

	begin_pipe(&f);
	put_mmap(&f, 7, 0x400000, 0x1000, 0, "/bin/old", 10);
	put_comm(&f, 7, "new", 1 << 13, 20);
	put_sample(&f, 1, 7, 30, 1, chain + 3, 2);
	put_mmap(&f, 7, 0x400000, 0x1000, 0, "/bin/new", 40);
	put_mmap(&f, 7, 0x400000, 0x1000, 0, "//anon", 60);
	put_sample(&f, 1, 7, 50, 2, chain + 3, 2);
	put_sample(&f, 1, 7, 70, 4, chain + 3, 2);
	p = read_bytes(perf_data_read, f.s.data, f.s.n, "");
	assert_folded(p, NULL, "new;new+0x10 2\nnew;old+0x10 1\nnew;perf-7.map+0x400010 4\n");
	str_deinit(&f.s);
}

Test(perf_data, compressed_records_are_one_stream)
{
	struct file f = {}, plain = {};
	_cleanup_profile_ struct profile *p = NULL;
	ZSTD_CCtx *z = ZSTD_createCCtx();
	char out[4096];

	put_records(&plain);
	begin_pipe(&f);
	/* In two parts, of which the first ends within a record. */
	for (u32 i = 0; i < 2; i++) {
		size_t half = plain.s.n / 2;
		ZSTD_inBuffer in = {plain.s.data + (i ? half : 0), i ? plain.s.n - half : half, 0};
		ZSTD_outBuffer to = {out, sizeof(out), 0};

		cr_assert_eq(ZSTD_compressStream2(z, &to, &in, ZSTD_e_flush), 0);
		begin(&f, 81, 0);
		cr_assert_eq(str_append(&f.s, out, to.pos), 0);
		end(&f);
	}
	p = read_bytes(perf_data_read, f.s.data, f.s.n, "");
	assert_folded(p, NULL, PIPE_FOLDED);
	ZSTD_freeCCtx(z);
	str_deinit(&plain.s);
	str_deinit(&f.s);
}

/* The header of a file: where attributes, data and the sections behind them are. */
Test(perf_data, a_file_has_names_of_events_behind_its_data)
{
	struct file f = {}, data = {};
	_cleanup_profile_ struct profile *p = NULL;

	put_records(&data);
	put_text(&f, "PERFILE2", 8);
	put(&f, 104, 8);
	put(&f, 80, 8);	 /* size of an attribute and of the place of its ids */
	put(&f, 104, 8); /* attributes: at, size */
	put(&f, 160, 8);
	put(&f, 280, 8); /* data: at, size */
	put(&f, data.s.n, 8);
	put(&f, 0, 8);
	put(&f, 0, 8);
	put(&f, 1 << 12, 8); /* feature: descriptions of events */
	for (u32 i = 0; i < 3; i++)
		put(&f, 0, 8);
	for (u32 i = 0; i < 2; i++) {
		put_attr(&f, 0, 0, 0);
		put(&f, 264 + 8 * i, 8); /* ids: at, size */
		put(&f, 8, 8);
	}
	put(&f, 1, 8);
	put(&f, 2, 8);
	cr_assert_eq(f.s.n, 280);
	cr_assert_eq(str_append(&f.s, data.s.data, data.s.n), 0);
	put(&f, f.s.n + 16, 8);
	put(&f, 56, 8);
	put(&f, 2, 4);
	put(&f, 8, 4);
	for (u32 i = 0; i < 2; i++) {
		put(&f, 0, 8);
		put(&f, 0, 4);
		put(&f, 8, 4);
		put_text(&f, i ? "two:u" : "one:u", 8);
	}
	p = read_bytes(perf_data_read, f.s.data, f.s.n, "");
	assert_folded(p, NULL, PIPE_FOLDED);
	cr_assert_str_eq(profile_string(p, p->types[1].name), "one:u");
	cr_assert_str_eq(profile_string(p, p->types[2].name), "two:u");
	profile_destroy(take_ptr(p));
	/* Cut off within the data: the first sample is whole. */
	p = read_bytes(perf_data_read, f.s.data, 280 + 150,
		       "perf.data: the file is cut off or damaged: 480 bytes are not read");
	cr_assert_eq(p->quality.samples, 1);
	str_deinit(&data.s);
	str_deinit(&f.s);
}

Test(perf_data, damage_is_told)
{
	struct file f = {};

	begin_pipe(&f);
	assert_refused(perf_data_read, f.s.data, f.s.n, "perf.data: no samples in it");
	assert_refused(perf_data_read, "PERFILE2", 8,
		       "perf.data: its header is cut off at offset 0x8");
	assert_refused(perf_data_read, "2ELIFREP", 8,
		       "perf.data: is of a big-endian machine: read it there with perf script");
	str_deinit(&f.s);
}
