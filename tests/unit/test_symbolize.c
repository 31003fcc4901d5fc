/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a batch to profiles: names of frames, how often names are read, lost and truncated stacks,
 * and the resource, time and value of samples. The tests make the file, the kernel and the batch.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/pipeline/batch.h"
#include "agent/symbolize/internal.h"
#include "elfwriter.h"

#define FILE_ID 7
#define AT(id, svma) ((u64)(id) << WORD_SVMA_BITS | (svma))
#define KERNEL 0xffffffff81000000
#define JIT 0x7f0000001000

static struct sampler_source sources[] = {
	{.event = "cpu-clock",
	 .type = SAMPLE_TYPE_CPU,
	 .type_name = "cpu",
	 .hz = 100,
	 .period = 10},
	{.event = "page-faults", .type = SAMPLE_TYPE_PAGE_FAULTS, .type_name = "page_faults"},
};

/* ---- what the batch and the symbolizer ask of other parts ---- */

static struct procman_binary file;

const struct sampler_source *__wrap_sampler_source(const struct sampler *s, u32 i);
struct procman_binary *__wrap_procman_binary_of_id(const struct procman *pm, u32 id);
struct procman_binary *__wrap_procman_binary_get(struct procman_binary *b);
void __wrap_procman_binary_put(struct procman_binary *b);
int __real_kernel_names_create(const struct kernel_names_options *o, struct kernel_names **ret);
int __wrap_kernel_names_create(const struct kernel_names_options *o, struct kernel_names **ret);

const struct sampler_source *__wrap_sampler_source(const struct sampler *s, u32 i)
{
	(void)s;
	return i < ARRAY_SIZE(sources) ? &sources[i] : NULL;
}

struct procman_binary *__wrap_procman_binary_of_id(const struct procman *pm, u32 id)
{
	(void)pm;
	return id == FILE_ID ? &file : NULL;
}

struct procman_binary *__wrap_procman_binary_get(struct procman_binary *b)
{
	return b;
}

void __wrap_procman_binary_put(struct procman_binary *b)
{
	(void)b;
}

static int file_with(const char *text)
{
	int fd = memfd_create("text", MFD_CLOEXEC);

	cr_assert_eq(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
	return fd;
}

static int no_programs(u64 *ret_hash)
{
	*ret_hash = 1;
	return 0;
}

int __wrap_kernel_names_create(const struct kernel_names_options *o, struct kernel_names **ret)
{
	static char kallsyms[32], modules[32]; /* borrowed by the kernel names */
	struct kernel_names_options own = {.kallsyms = kallsyms,
					   .modules = modules,
					   .programs = no_programs,
					   .read_always = true};

	(void)o;
	snprintf(kallsyms, sizeof(kallsyms), "/proc/self/fd/%d",
		 file_with("ffffffff81000000 T first\nffffffff81001000 T second\n"
			   "ffffffff81002000 T third\n"));
	snprintf(modules, sizeof(modules), "/proc/self/fd/%d", file_with(""));
	return __real_kernel_names_create(&own, ret);
}

/* Makes a file with two functions at 0x1000 and 0x1100. */
static struct elf_file *make_file(const char *one, const char *two)
{
	static u8 text[0x200];
	Elf64_Sym symbols[3] = {{},
				{.st_name = 1,
				 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				 .st_shndx = 1,
				 .st_value = 0x1000,
				 .st_size = 0x100},
				{.st_name = 33,
				 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				 .st_shndx = 1,
				 .st_value = 0x1100,
				 .st_size = 0x100}};
	char names[64] = "";
	struct elfw w = {.machine = EM_X86_64};
	struct elf_file *elf = NULL;

	snprintf(names + 1, 32, "%s", one);
	snprintf(names + 33, 31, "%s", two);
	elfw_section(&w, ".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0x1000, text,
		     sizeof(text));
	elfw_section(&w, ".symtab", SHT_SYMTAB, 0, 0, symbols, sizeof(symbols));
	elfw_section(&w, ".strtab", SHT_STRTAB, 0, 0, names, sizeof(names));
	w.sections[1].h.sh_link = 3;
	w.sections[1].h.sh_entsize = sizeof(Elf64_Sym);
	elfw_segment(&w, PT_LOAD, PF_R | PF_X, 0x1000, sizeof(text), ".text");
	elfw_finish(&w);
	cr_assert_eq(elf_file_open_memory(w.out.data, w.out.n, NULL, &elf), 0);
	str_deinit(&w.out);
	return elf;
}

/* ---- batches ---- */

static struct pipeline pipeline;
static struct pipeline_batch *batch;
static struct symbolizer *symbolizer;
static struct profile *profiles[SAMPLER_MAX_SOURCES];

static void begin_batch(void)
{
	batch = batch_new(&pipeline);
	cr_assert(batch);
}

static void open_symbolizer(const struct symbolizer_options *o)
{
	cr_assert_eq(symbolizer_create(o, &symbolizer), 0);
}

static void begin(void)
{
	file = (struct procman_binary){
		.file_id = FILE_ID, .path = "/usr/bin/app", .first_seen_ns = 1};
	file.elf = make_file("one", "two");
	begin_batch();
}

static void end(void)
{
	for (u32 i = 0; i < SAMPLER_MAX_SOURCES; i++)
		profile_destroy(profiles[i]);
	pipeline_give_back(&pipeline, batch);
	symbolizer_destroy(symbolizer);
	elf_file_destroy(file.elf);
}

TestSuite(symbolize, .init = begin, .fini = end);

static void add_stack(u64 id, const u64 *frames, u32 n, u32 stop, bool kernel)
{
	cr_assert_eq(batch_add_stack(batch, NULL, id, frames, n, stop, kernel), 0);
}

static u64 image = 1; /* of the next entries */

static u32 add_entry(u64 source, u32 pid, u64 kernel, u64 user, u64 count, s64 value)
{
	struct pipeline_entry e = {.key = {.pid = pid,
					   .tid = pid,
					   .image = image,
					   .comm = "app",
					   .thread_name = "app",
					   .kernel_stack = kernel,
					   .user_stack = user,
					   .source = source},
				   .count = count,
				   .value = value,
				   .first_ns = 5};
	u32 index;

	cr_assert_eq(batch_count(batch, &e, &index), 0);
	batch->counts[source].samples += count;
	return index;
}

static void name_them(void)
{
	for (u32 i = 0; i < SAMPLER_MAX_SOURCES; i++) {
		profile_destroy(profiles[i]);
		profiles[i] = NULL;
	}
	cr_assert_eq(symbolizer_profiles(symbolizer, batch, 0, profiles), 0);
}

/* Returns the frames of a sample, leaf first, as outputs show them. */
static const char *stack_of(const struct profile *p, size_t sample)
{
	static char text[512];
	const struct profile_stack *s = &p->stacks.data[profile_sample(p, sample)->stack];

	text[0] = 0;
	for (u32 i = 0; i < s->n; i++) {
		_cleanup_str_ struct str scratch = {};
		size_t n = strlen(text);

		snprintf(text + n, sizeof(text) - n, "%s%s", n ? " " : "",
			 profile_frame_name(p, p->stack_frames.data[s->first + i], &scratch));
	}
	return text;
}

static void expect_stack(size_t sample, const char *want)
{
	cr_expect_str_eq(stack_of(profiles[0], sample), want);
}

static const u64 both[] = {AT(FILE_ID, 0x1010), AT(FILE_ID, 0x1120)};

/* ---- names ---- */

Test(symbolize, frames_of_a_file)
{
	const struct profile_frame *f;

	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_stack(2, (u64[]){AT(FILE_ID, 0x5000), AT(8, 0x1010)}, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 3, 30);
	add_entry(0, 10, 0, 2, 1, 10);
	name_them();
	cr_assert_eq(profiles[0]->n_samples, 2);
	expect_stack(0, "one two");
	expect_stack(1, "app+0x5000 [unknown]");
	f = &profiles[0]->frames.data[profiles[0]->stack_frames.data[0]];
	cr_expect_eq(f->address, 0x1010);
	cr_expect_eq(f->kind, FRAME_NATIVE);
	cr_expect_str_eq(profile_string(profiles[0], profiles[0]->mappings.data[f->mapping].path),
			 "/usr/bin/app");
	cr_expect_eq(profiles[0]->quality.frames, 3 * 2 + 2);
	cr_expect_eq(profiles[0]->quality.unknown, 2);
}

Test(symbolize, callers_in_the_kernel_are_before_their_return_addresses)
{
	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, (u64[]){KERNEL + 0x1000, KERNEL + 0x1000, KERNEL + 0x2000}, 3, STOP_COMPLETE,
		  true);
	add_stack(2, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 1, 2, 1, 10);
	name_them();
	expect_stack(0, "second first second one two");
}

Test(symbolize, code_made_at_run_time_belongs_to_its_image)
{
	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, (u64[]){WORD_RAW | (JIT + 0x10)}, 1, STOP_COMPLETE, false);
	cr_assert_eq(map_put(&batch->jit_files[JITFILE_MAP], 100,
			     (u64)file_with("7f0000001000 100 fast\n")),
		     0);
	cr_assert_eq(map_put(&batch->jit_files[JITFILE_MAP], 101,
			     (u64)file_with("7f0000001000 100 other\n")),
		     0);
	/* One process has two images, as after an exec. */
	for (image = 100; image < 103; image++)
		add_entry(0, image < 102 ? 10 : 11, 0, 1, 1, 10);
	name_them();
	expect_stack(0, "fast");
	expect_stack(1, "other");
	expect_stack(2, "[unknown]");
}

static void answer(const char *function, u32 line)
{
	struct runtime_answer a = {
		.first = (u32)batch->answers.frames.n, .n = 1, .kind = FRAME_PYTHON};

	cr_assert_eq(vec_push(&batch->answers.frames,
			      ((struct runtime_frame){
				      .function = function, .file = "app.py", .line = line})),
		     0);
	cr_assert_eq(vec_push(&batch->answers.answers, a), 0);
}

Test(symbolize, frames_of_a_runtime_replace_those_of_its_interpreter)
{
	const u64 frames[] = {WORD_RUNTIME | 1ULL << 56 | 0, WORD_RUNTIME, AT(FILE_ID, 0x1010),
			      WORD_RUNTIME | 1ULL << 56 | 1, AT(FILE_ID, 0x1120)};

	open_symbolizer(&(struct symbolizer_options){});
	answer("handle", 3);
	answer("serve", 9);
	add_stack(1, frames, 5, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 1, 10);
	name_them();
	expect_stack(0, "handle serve two");
	symbolizer_destroy(symbolizer);
	open_symbolizer(&(struct symbolizer_options){.runtime_frames = true});
	name_them();
	expect_stack(0, "handle one serve two");
}

/* ---- stacks that are not whole ---- */

Test(symbolize, a_lost_stack_says_so)
{
	open_symbolizer(&(struct symbolizer_options){});
	add_entry(0, 10, 0, 99, 4, 40);
	name_them();
	cr_assert_eq(profiles[0]->n_samples, 1);
	expect_stack(0, "[truncated: stack record lost]");
	cr_expect_eq(profile_sample(profiles[0], 0)->value[0], 4);
}

Test(symbolize, a_cut_stack_says_why)
{
	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, both, 1, STOP_BAD_READ, false);
	add_entry(0, 10, 0, 1, 1, 10);
	name_them();
	expect_stack(0, "one [truncated: stack memory not readable]");
}

/* ---- how often names are read ---- */

static u64 times_read(void)
{
	u64 *slot = map_get(&symbolizer->binaries, FILE_ID);

	cr_assert(slot);
	return symbols_n_read(((struct named_binary *)*slot)->symbols);
}

Test(symbolize, each_address_is_looked_up_once)
{
	u64 once;

	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_stack(2, (u64[]){both[1], both[0], both[1]}, 3, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 3, 30);
	add_entry(0, 10, 0, 2, 3, 30);
	add_entry(1, 10, 0, 1, 1, 1);
	name_them();
	once = times_read();
	cr_expect_eq(once, 2, "%llu lookups of two addresses", once);
	pipeline_give_back(&pipeline, batch);
	begin_batch();
	add_stack(5, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 5, 1, 10);
	name_them();
	expect_stack(0, "one two");
	cr_expect_eq(times_read(), once, "the next batch knows them");
}

Test(symbolize, an_id_that_is_used_again_is_another_file)
{
	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 1, 10);
	name_them();
	expect_stack(0, "one two");
	elf_file_destroy(file.elf);
	file.elf = make_file("uno", "due");
	file.first_seen_ns = 2;
	name_them();
	expect_stack(0, "uno due");
}

Test(symbolize, in_a_hurry_addresses_stay_what_they_are)
{
	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 1, 10);
	symbolizer_hurry(symbolizer);
	name_them();
	expect_stack(0, "app+0x1010 app+0x1120");
}

Test(symbolize, memory_is_given_back_until_nothing_is_left)
{
	u32 n = 0;

	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 1, 10);
	name_them();
	while (symbolizer_shed(symbolizer))
		cr_assert_lt(++n, 10);
	cr_expect_geq(n, 1);
	cr_expect_eq(symbolizer->binaries.n, 0);
	name_them();
	expect_stack(0, "one two");
}

/* ---- samples ---- */

static int resource_of(void *arg, const struct pipeline_entry *e, struct profile *p, u32 *ret)
{
	char text[16];
	struct profile_label l;

	snprintf(text, sizeof(text), "service-%u", e->key.pid);
	if (*(int *)arg < 0)
		return *(int *)arg;
	cr_assert_eq(profile_add_string(p, "service.name", 12, &l.name), 0);
	cr_assert_eq(profile_add_string(p, text, strlen(text), &l.value), 0);
	return profile_add_resource(p, &l, 1, ret);
}

static const char *service_of(size_t sample)
{
	const struct profile_sample *s = profile_sample(profiles[0], sample);

	return profile_label(profiles[0], profiles[0]->threads.data[s->thread].resource,
			     "service.name");
}

Test(symbolize, each_sample_has_the_resource_of_its_process)
{
	int error = 0;

	open_symbolizer(&(struct symbolizer_options){.resource = resource_of, .arg = &error});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 1, 10);
	add_entry(0, 11, 0, 1, 1, 10);
	name_them();
	cr_assert_eq(profiles[0]->n_samples, 2);
	cr_expect_str_eq(service_of(0), "service-10");
	cr_expect_str_eq(service_of(1), "service-11");
	error = -ENOMEM;
	cr_expect_eq(symbolizer_profiles(symbolizer, batch, 0, profiles), -ENOMEM);
	cr_expect(profiles[0], "what there was stays on failure");
}

Test(symbolize, what_a_thread_says_of_its_work_is_its_own)
{
	const struct context_label said[] = {{"route", "/buy"}};
	bool partial;
	struct pipeline_entry e = {
		.key = {.pid = 10, .tid = 10, .user_stack = 1}, .count = 1, .value = 10};
	const struct profile_thread *t;
	u32 index;

	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 1, 10);
	cr_assert_eq(batch_add_attributes(batch, 10, 5, said, 1, false), 0);
	e.key.context.attributes = batch_attributes(batch, 10, 5, &partial);
	cr_assert_eq(batch_count(batch, &e, &index), 0);
	name_them();
	cr_assert_eq(profiles[0]->n_samples, 2);
	t = &profiles[0]->threads.data[profile_sample(profiles[0], 0)->thread];
	cr_expect_eq(t->attributes, 0);
	t = &profiles[0]->threads.data[profile_sample(profiles[0], 1)->thread];
	cr_expect_str_eq(profile_label(profiles[0], t->attributes, "route"), "/buy");
}

/* ---- single events ---- */

/* A wait that ended with a wake-up by this thread. Returns its entry. */
static u32 add_wait(u32 wait, u32 waker_tid)
{
	struct pipeline_waker w = {.comm = "waker", .pid = waker_tid, .tid = waker_tid};
	struct pipeline_entry e = {.key = {.pid = 10, .tid = 10, .user_stack = 1, .wait = wait},
				   .count = 1};
	u32 index;

	cr_assert_eq(vec_push(&batch->wakers, w), 0);
	e.key.waker = batch->wakers.n;
	cr_assert_eq(batch_count(batch, &e, &index), 0);
	return index;
}

static const char *label_of(const struct profile *p, size_t sample, const char *name)
{
	const struct profile_thread *t = &p->threads.data[profile_sample(p, sample)->thread];

	return profile_label(p, t->attributes, name);
}

Test(symbolize, events_of_a_batch_have_their_wakers_as_labels)
{
	struct profile *p = profile_create();
	struct symbolizer_event events[3] = {{.value = 1}, {.value = 2}, {.value = 3}};

	open_symbolizer(&(struct symbolizer_options){.waker_labels = true});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 1, 10); /* in no event */
	events[0].entry = add_wait(WAIT_LOCK, 7);
	events[1].entry = add_wait(WAIT_SLEEP, 0);
	events[2].entry = add_wait(WAIT_NETWORK, 0);
	cr_assert_eq(profile_add_table_type(p, SAMPLE_TYPE_REQUEST_WALL), 0);
	cr_assert_eq(symbolizer_add(symbolizer, batch, events, 3, NULL, 0, p), 0);
	cr_assert_eq(p->n_samples, 3);
	for (size_t i = 0; i < 3; i++) {
		cr_expect_eq(profile_sample(p, i)->value[0], (s64)i + 1);
		cr_expect_str_eq(stack_of(p, i), "one two");
	}
	cr_expect_str_eq(label_of(p, 0, "waker"), "waker");
	cr_expect_str_eq(label_of(p, 0, "waker_pid"), "7");
	cr_expect_str_eq(label_of(p, 0, "waker_tid"), "7");
	cr_expect_str_eq(label_of(p, 1, "waker"), "a timer");
	cr_expect_str_eq(label_of(p, 2, "waker"), "an interrupt");
	cr_expect_null(label_of(p, 2, "waker_tid"));
	profile_destroy(p);
}

/* ---- tasks of a runtime ---- */

/* The category of a wait in two functions, the second of which called the first. */
static const char *category_of(const char *leaf, const char *caller, u16 kind, u32 wait)
{
	struct pipeline_entry e = {.key = {.pid = 10,
					   .user_stack = 1,
					   .wait = wait,
					   .object = {.kind = kind, .address = {23}}},
				   .count = 1,
				   .value = 10};
	const struct profile *p;
	const struct profile_thread *t;
	u32 index;

	elf_file_destroy(file.elf);
	file.elf = make_file(leaf, caller);
	file.first_seen_ns++;
	pipeline_give_back(&pipeline, batch);
	begin_batch();
	add_stack(1, both, 2, STOP_COMPLETE, false);
	cr_assert_eq(batch_count(batch, &e, &index), 0);
	name_them();
	p = profiles[0];
	t = &p->threads.data[profile_sample(p, 0)->thread];
	if (kind == WAIT_OBJECT_TASK)
		cr_expect_str_eq(profile_label(p, t->attributes, "goroutine"), "23");
	cr_expect_eq(strstr(stack_of(p, 0), " [goroutine]") != NULL, kind == WAIT_OBJECT_TASK);
	return profile_label(p, t->attributes, "wait");
}

Test(symbolize, functions_tell_what_a_task_waits_for)
{
	enum { TASK = WAIT_OBJECT_TASK, FUTEX = WAIT_OBJECT_LOCK };

	open_symbolizer(&(struct symbolizer_options){});
	cr_expect_str_eq(category_of("runtime.chanrecv", "main.f", TASK, WAIT_OTHER), "channel");
	cr_expect_str_eq(category_of("runtime.gopark", "time.Sleep", TASK, WAIT_OTHER), "sleep");
	cr_expect_str_eq(category_of("runtime.netpollblock", "net.(*netFD).Read", TASK, WAIT_OTHER),
			 "network");
	cr_expect_str_eq(category_of("runtime.netpollblock", "main.f", TASK, WAIT_OTHER), "poll");
	cr_expect_str_eq(category_of("runtime.semacquire1", "net.(*netFD).Read", TASK, WAIT_OTHER),
			 "lock");
	cr_expect_str_eq(category_of("runtime.gopark", "main.f", TASK, WAIT_OTHER), "other");
	cr_expect_str_eq(category_of("runtime.lock2", "runtime.chanrecv", FUTEX, WAIT_LOCK),
			 "lock");
	cr_expect_str_eq(category_of("read", "time.Sleep", FUTEX, WAIT_DISK), "disk");
}

Test(symbolize, each_source_has_a_profile_of_its_own_type)
{
	const struct profile *p;

	open_symbolizer(&(struct symbolizer_options){});
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_entry(0, 10, 0, 1, 3, 30);
	name_them();
	cr_expect_null(profiles[1], "nothing happened");
	add_entry(1, 10, 0, 1, 2, 700);
	batch->counts[1].lost = 5;
	name_them();
	p = profiles[1];
	cr_assert(p);
	cr_assert_eq(profiles[0]->n_samples, 1);
	cr_assert_eq(p->n_samples, 1);
	cr_expect_str_eq(profile_string(profiles[0], profiles[0]->types[1].name), "cpu");
	cr_expect_eq(profile_sample(profiles[0], 0)->value[1], 30);
	cr_expect_eq(profiles[0]->period, 10);
	cr_expect_eq(profiles[0]->default_type, 0);
	cr_expect_str_eq(profile_string(p, p->types[1].name), "page_faults");
	cr_expect_str_eq(profile_string(p, p->types[1].unit), "count");
	cr_expect_eq(profile_sample(p, 0)->value[0], 2);
	cr_expect_eq(profile_sample(p, 0)->value[1], 700);
	cr_expect_eq(p->default_type, 1);
	cr_expect_eq(p->quality.lost, 5);
	cr_expect_eq(profiles[0]->quality.lost, 0);
	cr_expect(p->quality.measured);
}

Test(symbolize, without_samples_there_is_an_empty_profile)
{
	open_symbolizer(&(struct symbolizer_options){});
	name_them();
	cr_assert(profiles[0]);
	cr_expect_eq(profiles[0]->n_samples, 0);
	cr_expect(profiles[0]->quality.measured);
}

Test(symbolize, times_are_those_of_the_wall_clock)
{
	struct pipeline_event events[2] = {{.time_ns = 1500, .value = 10},
					   {.time_ns = 1700, .value = 20}};

	open_symbolizer(&(struct symbolizer_options){});
	batch->keep_times = true;
	batch->started_ns = 1000;
	batch->ended_ns = 4000;
	batch->started_realtime_ns = 1700000000000001000;
	add_stack(1, both, 2, STOP_COMPLETE, false);
	events[0].entry = events[1].entry = add_entry(0, 10, 0, 1, 2, 30);
	cr_assert_eq(vec_push(&batch->events, events[0]), 0);
	cr_assert_eq(vec_push(&batch->events, events[1]), 0);
	name_them();
	cr_assert_eq(profiles[0]->n_samples, 2);
	cr_expect_eq(profile_sample(profiles[0], 0)->time_ns, 1700000000000001500);
	cr_expect_eq(profile_sample(profiles[0], 1)->time_ns, 1700000000000001700);
	cr_expect_eq(profile_sample(profiles[0], 1)->value[0], 1);
	cr_expect_eq(profile_sample(profiles[0], 1)->value[1], 20);
	cr_expect_eq(profiles[0]->time_ns, 1700000000000001000);
	cr_expect_eq(profiles[0]->duration_ns, 3000);
}

/* Two entries of two samples each; the second sample of the first is in the window. */
Test(symbolize, samples_before_a_window_are_left_out)
{
	struct pipeline_event events[] = {{.time_ns = 1500, .value = 10},
					  {.time_ns = 2500, .value = 20},
					  {.time_ns = 1600, .value = 1},
					  {.time_ns = 1999, .value = 2}};

	open_symbolizer(&(struct symbolizer_options){.no_times = true});
	batch->keep_times = true;
	batch->started_ns = 1000;
	batch->ended_ns = 3000;
	batch->counts[0].lost = 7;
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_stack(2, both, 1, STOP_NO_TABLE, false);
	events[0].entry = events[1].entry = add_entry(0, 10, 0, 2, 2, 30);
	events[2].entry = events[3].entry = add_entry(0, 11, 0, 1, 2, 3);
	for (u32 i = 0; i < ARRAY_SIZE(events); i++)
		cr_assert_eq(vec_push(&batch->events, events[i]), 0);
	cr_assert_eq(symbolizer_profiles(symbolizer, batch, 2000, profiles), 0);
	cr_assert_eq(profiles[0]->n_samples, 1);
	cr_expect_eq(profile_sample(profiles[0], 0)->time_ns, 0);
	cr_expect_eq(profile_sample(profiles[0], 0)->value[0], 1);
	cr_expect_eq(profile_sample(profiles[0], 0)->value[1], 20);
	cr_expect_eq(profiles[0]->quality.samples, 1);
	cr_expect_eq(profiles[0]->quality.user_stacks, 1);
	cr_expect_eq(profiles[0]->quality.truncated, 1);
	cr_expect_eq(profiles[0]->quality.lost, 7, "nobody knows when");
	cr_expect_eq(profiles[0]->time_ns, batch->started_realtime_ns + 1000);
	cr_expect_eq(profiles[0]->duration_ns, 1000);
}

/* Process 10 is culprit itself: two of five samples, one of them truncated. */
static void add_self(void)
{
	add_stack(1, both, 2, STOP_COMPLETE, false);
	add_stack(2, both, 1, STOP_NO_TABLE, false);
	add_entry(0, 10, 0, 1, 1, 10);
	add_entry(0, 10, 0, 2, 1, 10);
	add_entry(0, 11, 0, 1, 3, 30);
	batch->counts[0].user_samples = 5;
	batch->counts[0].truncated = 1;
	batch->counts[0].stops[STOP_NO_TABLE] = 1;
	cr_assert_eq(map_put(&batch->own, 10, 1), 0);
}

Test(symbolize, samples_of_culprit_itself_are_marked)
{
	u32 marked = 0;

	open_symbolizer(&(struct symbolizer_options){});
	add_self();
	name_them();
	cr_assert_eq(profiles[0]->n_samples, 3);
	for (size_t i = 0; i < 3; i++) {
		u32 t = profile_sample(profiles[0], i)->thread;

		cr_expect_eq(profile_is_self(profiles[0], t),
			     profiles[0]->threads.data[t].pid == 10);
		marked += profile_is_self(profiles[0], t);
	}
	cr_expect_eq(marked, 2);
	cr_expect_eq(profiles[0]->quality.self, 0, "they are in it");
	cr_expect_eq(profiles[0]->quality.samples, 5);
}

static void expect_others(const struct profile *p)
{
	cr_assert_eq(p->n_samples, 1);
	cr_expect_eq(profile_sample(p, 0)->value[0], 3);
	cr_expect_eq(p->threads.data[profile_sample(p, 0)->thread].pid, 11);
	cr_expect_eq(p->quality.samples, 3);
	cr_expect_eq(p->quality.self, 2);
	cr_expect_eq(p->quality.user_stacks, 3);
	cr_expect_eq(p->quality.truncated, 0);
}

Test(symbolize, samples_of_culprit_itself_are_left_out)
{
	struct symbolizer_stats stats;

	open_symbolizer(&(struct symbolizer_options){.leave_self = true});
	add_self();
	name_them();
	expect_others(profiles[0]);
	cr_expect_eq(profiles[0]->quality.frames, 6);
	symbolizer_stats(symbolizer, &stats);
	cr_expect_eq(stats.self.samples, 2);
	cr_expect_eq(stats.self.truncated, 1);
	cr_expect_eq(stats.self.stops[STOP_NO_TABLE], 1);
	cr_expect_eq(stats.self_processes, 1);
}

/* With times, each event is a sample. */
Test(symbolize, events_of_culprit_itself_are_left_out)
{
	struct pipeline_event event = {.time_ns = 1500, .value = 10};

	open_symbolizer(&(struct symbolizer_options){.leave_self = true});
	batch->keep_times = true;
	add_stack(1, both, 2, STOP_COMPLETE, false);
	for (u32 pid = 10; pid < 12; pid++) {
		event.entry = add_entry(0, pid, 0, 1, 1, 10);
		cr_assert_eq(vec_push(&batch->events, event), 0);
	}
	cr_assert_eq(map_put(&batch->own, 10, 1), 0);
	name_them();
	cr_assert_eq(profiles[0]->n_samples, 1);
	cr_expect_eq(profiles[0]->threads.data[profile_sample(profiles[0], 0)->thread].pid, 11);
}

Test(symbolize, a_profile_with_marked_samples_loses_them_later)
{
	struct profile *p;

	open_symbolizer(&(struct symbolizer_options){});
	add_self();
	name_them();
	cr_assert_eq(profile_leave_out_self(&profiles[0]), 0);
	expect_others(profiles[0]);
	p = profiles[0];
	cr_assert_eq(profile_leave_out_self(&profiles[0]), 0);
	cr_expect_eq(profiles[0], p, "nothing is left to leave out");
}
