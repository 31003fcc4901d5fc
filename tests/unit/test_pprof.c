/* SPDX-License-Identifier: Apache-2.0 */
/* pprof: written profiles read back the same; wrong files are refused. */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/arena.h"
#include "base/vocab.h"
#include "format/pprof.pb-c.h"
#include "profile_fixture.h"

static struct profile *through_pprof(const struct profile *p, const struct profile_write_options *o)
{
	static const struct profile_write_options none = {};
	_cleanup_str_ struct str packed = {}, plain = {};
	struct profile *again = NULL;
	struct diag d = {};

	cr_assert_eq(pprof_write(p, o ? o : &none, &packed, &d), 0, "%s", d.text);
	cr_assert_eq(gzip_inflate((u8 *)packed.data, packed.n, 1 << 30, &plain, &d), 0);
	cr_assert_eq(pprof_probe((u8 *)plain.data, plain.n), 70);
	cr_assert_eq(folded_probe((u8 *)plain.data, plain.n), 0);
	cr_assert_eq(pprof_read((u8 *)plain.data, plain.n, &again, &d), 0, "%s", d.text);
	return again;
}

Test(pprof, folded_text_survives_the_way_through)
{
	const char *text = "app;[truncated: too many frames];main;f_[i];g 4\n"
			   "app;main;[unknown];libfoo.so.1+0x1234 1\n"
			   "app;main;a_[i];b_[i];c 5\n"
			   "app;main;jitted_[j] 2\n"
			   "app;main;last_[i] 2\n"
			   "app;main;vfs_read_[k];[kernel.kallsyms]+0xffffffff81000000_[k] 3\n"
			   "kworker/0:1 9\n";
	struct profile_write_options annotate = {.annotate = true};
	_cleanup_profile_ struct profile *p = from_folded(text), *again = through_pprof(p, NULL);

	cr_assert_eq(again->quality.samples, p->quality.samples);
	cr_assert_eq(again->quality.truncated, 4);
	assert_folded(again, &annotate, text);
}

static int find_kind(const struct profile *p, const char *want)
{
	_cleanup_str_ struct str s = {};

	for (size_t i = 0; i < p->frames.n; i++)
		if (!strcmp(profile_frame_name(p, (u32)i, &s), want))
			return p->frames.data[i].kind;
	return -1;
}

Test(pprof, everything_of_the_model_survives)
{
	_cleanup_profile_ struct profile *p = full_profile(), *again = NULL;
	struct profile_write_options all = {.annotate = true,
					    .tree = {.threads = true, .pids = true}};
	_cleanup_str_ struct str one = {}, two = {};
	const struct profile_frame *tiny = NULL, *work = NULL;
	struct profile_mapping *m;
	u32 odd;

	odd = frame(p, "odd", "/usr/bin/app", 0x9000, FRAME_JIT, 0, 0);
	sample(p, 0, PROFILE_NONE, &odd, 1, 1);
	p->time_ns = 1700000000000000000;
	p->duration_ns = 10000000000;
	p->period_name = string(p, "cpu");
	p->period_unit = string(p, "nanoseconds");
	p->period = 10101010;
	p->title = string(p, "./app --fast");
	p->quality = (struct profile_quality){11, 1, 1, 2, 20, 9, 3, true};
	again = through_pprof(p, NULL);
	cr_assert_eq(folded_write(p, &all, &one, NULL), 0);
	cr_assert_eq(folded_write(again, &all, &two, NULL), 0);
	cr_assert_str_eq(str_get(&one), str_get(&two));
	cr_assert_eq(again->time_ns, p->time_ns);
	cr_assert_eq(again->duration_ns, p->duration_ns);
	cr_assert_str_eq(profile_string(again, again->period_name), "cpu");
	cr_assert_eq(again->period, p->period);
	cr_assert_str_eq(profile_string(again, again->title), "./app --fast");
	cr_assert_eq(again->quality.samples, p->quality.samples);
	cr_assert_eq(again->quality.lost, p->quality.lost);
	cr_assert_eq(again->quality.truncated, p->quality.truncated);
	cr_assert_eq(again->quality.unknown, p->quality.unknown);
	cr_assert_eq(again->quality.frames, p->quality.frames);
	cr_assert_eq(again->quality.user_stacks, p->quality.user_stacks);
	cr_assert_eq(again->quality.self, 3);
	cr_assert_eq(again->quality.measured, p->quality.measured);
	cr_assert_eq(again->quality.damaged, p->quality.damaged);
	for (size_t i = 0; i < again->frames.n; i++) {
		const struct profile_frame *f = &again->frames.data[i];
		_cleanup_str_ struct str s = {};
		const char *name = profile_frame_name(again, (u32)i, &s);

		tiny = !strcmp(name, "tiny") ? f : tiny;
		work = !strcmp(name, "work") ? f : work;
	}
	cr_assert(tiny && work);
	cr_assert_eq(tiny->flags, PROFILE_FRAME_INLINED);
	cr_assert_eq(tiny->line, 3);
	cr_assert_eq(tiny->address, 0x1000);
	cr_assert_eq(work->flags, 0);
	cr_assert_eq(work->line, 12);
	/* A frame kind that does not follow from the path is stored separately. */
	cr_assert_eq(find_kind(again, "odd"), FRAME_JIT);
	m = &again->mappings.data[work->mapping];
	cr_assert_str_eq(profile_string(again, m->path), "/usr/bin/app");
}

Test(pprof, code_without_a_file_keeps_its_kind_and_gets_no_file)
{
	static const u8 kinds[] = {FRAME_PYTHON, FRAME_JAVA, FRAME_JIT, FRAME_NOTE};
	_cleanup_profile_ struct profile *p = profile_create(), *again = NULL;
	s64 value = 1;

	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		u32 f = frame(p, vocab_frame_kind(kinds[i])->name, NULL, 0, kinds[i], 0, 0), stack;

		cr_assert_eq(profile_add_stack(p, &f, 1, &stack), 0);
		cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack, &value), 0);
	}
	again = through_pprof(p, NULL);
	cr_assert_eq(again->frames.n, ARRAY_SIZE(kinds));
	vec_foreach (&again->frames, f) {
		const char *name = profile_string(again, again->functions.data[f->function].name);

		cr_expect_str_eq(vocab_frame_kind(f->kind)->name, name);
		cr_expect_eq(f->mapping, PROFILE_NONE, "%s", name);
	}
}

Test(pprof, spans_are_labels_there_and_back)
{
	_cleanup_profile_ struct profile *p = full_profile(), *again = NULL;
	u32 links[2] = {link_of(p, 1, 2), link_of(p, 1, 3)}, n = 0;
	s64 one = 1;

	for (u32 i = 0; i < 6; i++)
		cr_assert_eq(profile_add_linked_sample(p, i / 4, 0, 0, links[i % 2], &one), 0);
	again = through_pprof(p, NULL);
	/* pprof has no times, so samples of one span add up. */
	cr_assert_eq(again->n_samples, 6);
	for (size_t i = 0; i < again->n_samples; i++) {
		const struct profile_sample *s = profile_sample(again, i);

		if (!s->link)
			continue;
		cr_expect_eq(s->link, link_of(again, 1, (u8)(2 + n++ % 2)));
		cr_expect_eq(s->value[0], 3);
	}
	cr_expect_eq(n, 2);
}

Test(pprof, what_threads_say_of_their_work_is_labels_there_and_back)
{
	_cleanup_profile_ struct profile *p = full_profile(), *again = NULL;
	struct profile_label labels[] = {{string(p, "http.route"), string(p, "/pay")},
					 {string(p, "pid"), string(p, "not so")}};
	struct profile_thread t = p->threads.data[0];
	u32 id, n = 0;
	s64 one = 1;

	cr_assert_eq(profile_add_resource(p, labels, 2, &t.attributes), 0);
	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	cr_assert_eq(profile_add_sample(p, 0, id, 0, &one), 0);
	again = through_pprof(p, NULL);
	for (size_t i = 0; i < again->threads.n; i++) {
		const struct profile_thread *got = &again->threads.data[i];
		const char *route = profile_label(again, got->attributes, "http.route");

		cr_expect_eq(got->attributes == 0, route == NULL);
		if (!route)
			continue;
		n++;
		cr_expect_str_eq(route, "/pay");
		cr_expect_eq(got->pid, t.pid);
		cr_expect_null(profile_label(again, got->attributes, "pid"));
	}
	cr_expect_eq(n, 1);
}

Test(pprof, left_out_frames_are_left_out)
{
	_cleanup_profile_ struct profile *p = full_profile(), *again = NULL;
	u8 no_kernel[FRAME_KIND_N] = {[FRAME_KERNEL] = 1};
	struct profile_write_options o = {.tree = {.drop_kinds = no_kernel, .no_inline = true}};

	again = through_pprof(p, &o);
	assert_folded(again, NULL,
		      "app;[truncated: stack memory not readable];[unknown];libfoo.so.1+0x1234 1\n"
		      "app;main;LJ:fast 2\n"
		      "app;main;read 3\n"
		      "app;main;work 5\n");
	for (size_t i = 0; i < again->mappings.n; i++)
		cr_assert_str_neq(profile_string(again, again->mappings.data[i].path),
				  "[kernel.kallsyms]");
}

/* ---- files of others, made message by message ---- */

struct foreign {
	Pprof__Profile profile;
	Pprof__ValueType type[2];
	Pprof__ValueType *types[2];
	Pprof__Sample sample;
	Pprof__Sample *samples[1];
	Pprof__Mapping mapping;
	Pprof__Mapping *mappings[1];
	Pprof__Location location[2];
	Pprof__Location *locations[2];
	Pprof__Function function;
	Pprof__Function *functions[1];
	Pprof__Line line;
	Pprof__Line *lines[1];
	uint64_t location_ids[2];
	int64_t values[2];
};

static const char *const foreign_strings[] = {"",	   "samples", "count", "cpu", "nanoseconds",
					      "main.work", "/opt/go", "abcd"};

static void make_foreign(struct foreign *f)
{
	*f = (struct foreign){
		.profile = PPROF__PROFILE__INIT,
		.type = {PPROF__VALUE_TYPE__INIT, PPROF__VALUE_TYPE__INIT},
		.sample = PPROF__SAMPLE__INIT,
		.mapping = PPROF__MAPPING__INIT,
		.location = {PPROF__LOCATION__INIT, PPROF__LOCATION__INIT},
		.function = PPROF__FUNCTION__INIT,
		.line = PPROF__LINE__INIT,
		.location_ids = {7, 9},
		.values = {2, 20},
	};
	f->type[0].type = 1, f->type[0].unit = 2;
	f->type[1].type = 3, f->type[1].unit = 4;
	f->types[0] = &f->type[0], f->types[1] = &f->type[1];
	f->samples[0] = &f->sample;
	f->sample.n_location_id = 2, f->sample.location_id = f->location_ids;
	f->sample.n_value = 2, f->sample.value = f->values;
	f->mappings[0] = &f->mapping;
	f->mapping.id = 3, f->mapping.filename = 6, f->mapping.build_id = 7;
	f->mapping.memory_start = 0x400000, f->mapping.memory_limit = 0x500000;
	f->mapping.file_offset = 0x1000;
	f->locations[0] = &f->location[0], f->locations[1] = &f->location[1];
	f->location[0].id = 7, f->location[0].mapping_id = 3, f->location[0].address = 0x400020;
	f->location[1].id = 9, f->location[1].mapping_id = 3, f->location[1].address = 0x400040;
	f->location[1].n_line = 1, f->location[1].line = f->lines;
	f->lines[0] = &f->line;
	f->line.function_id = 5, f->line.line = 77;
	f->functions[0] = &f->function;
	f->function.id = 5, f->function.name = 5;
	f->profile.n_sample_type = 2, f->profile.sample_type = f->types;
	f->profile.n_sample = 1, f->profile.sample = f->samples;
	f->profile.n_mapping = 1, f->profile.mapping = f->mappings;
	f->profile.n_location = 2, f->profile.location = f->locations;
	f->profile.n_function = 1, f->profile.function = f->functions;
	f->profile.n_string_table = ARRAY_SIZE(foreign_strings);
	f->profile.string_table = (char **)foreign_strings;
}

static int read_foreign(struct foreign *f, struct profile **ret, struct diag *d)
{
	u8 bytes[1024];
	size_t n = pprof__profile__pack(&f->profile, bytes);

	*d = (struct diag){};
	return pprof_read(bytes, n, ret, d);
}

Test(pprof, a_go_profile_shows_its_last_type_and_addresses_in_the_file)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct foreign f;
	struct diag d;

	make_foreign(&f);
	cr_assert_eq(read_foreign(&f, &p, &d), 0, "%s", d.text);
	cr_assert_eq(p->default_type, 1);
	assert_folded(p, NULL, "main.work;go+0x1020 20\n");
	cr_assert_eq(p->frames.data[0].flags, PROFILE_FRAME_OFFSET);
	cr_assert_eq(p->quality.samples, 2);
	cr_assert_eq(p->quality.unknown, 2);
}

#define EXPECT_REFUSED(change, says)                                                               \
	do {                                                                                       \
		make_foreign(&f);                                                                  \
		change;                                                                            \
		cr_expect_lt(read_foreign(&f, &p, &d), 0, "%s", #change);                          \
		cr_expect_str_eq(d.text, says);                                                    \
		cr_expect_null(p);                                                                 \
	} while (0)

Test(pprof, bad_references_are_refused_by_name)
{
	struct profile *p = NULL;
	struct foreign f;
	struct diag d;

	EXPECT_REFUSED(f.function.name = 8, "pprof: no string 8; there are 8");
	EXPECT_REFUSED(f.function.name = -1, "pprof: no string -1; there are 8");
	EXPECT_REFUSED(f.function.id = 0, "pprof: function has the id 0");
	EXPECT_REFUSED(f.location[1].id = 7, "pprof: two locations have the id 7");
	EXPECT_REFUSED(f.location_ids[1] = 8, "pprof: no location has the id 8");
	EXPECT_REFUSED(f.line.function_id = 8, "pprof: no function has the id 8");
	EXPECT_REFUSED(f.location[0].mapping_id = 8, "pprof: no mapping has the id 8");
	EXPECT_REFUSED(f.sample.n_value = 1, "pprof: a sample has 1 values for 2 types");
	EXPECT_REFUSED(f.profile.n_sample_type = 0, "pprof: has no sample type");
	EXPECT_REFUSED(f.mapping.id = ~0ULL, "pprof: mapping has the id 18446744073709551615");
}

Test(pprof, a_file_cut_anywhere_is_refused_or_smaller_but_never_a_crash)
{
	_cleanup_profile_ struct profile *p = full_profile();
	struct profile_write_options o = {};
	_cleanup_str_ struct str packed = {}, plain = {};

	cr_assert_eq(pprof_write(p, &o, &packed, NULL), 0);
	cr_assert_eq(gzip_inflate((u8 *)packed.data, packed.n, 1 << 30, &plain, NULL), 0);
	for (size_t n = 0; n < plain.n; n++) {
		struct profile *q = NULL;
		_cleanup_free_ u8 *copy = malloc(n ? n : 1);

		memcpy(copy, plain.data, n);
		if (pprof_read(copy, n, &q, NULL) == 0)
			profile_destroy(q);
	}
}

Test(arena, keeps_to_its_limit)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(1 << 20);
	size_t got = 0;
	u8 *p;

	cr_assert_not_null(arena_alloc(&a, 0));
	while ((p = arena_alloc(&a, 1000))) {
		memset(p, 0xaa, 1000);
		cr_assert_eq((uintptr_t)p % 16, 0);
		got += 1000;
	}
	cr_assert_gt(got, 900 << 10);
	cr_assert_leq(a.used, 1 << 20);
	cr_assert_null(arena_alloc(&a, ~(size_t)0));
	cr_assert_null(arena_calloc(&a, ~(size_t)0 / 2, 4));
}
