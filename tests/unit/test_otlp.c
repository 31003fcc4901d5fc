/* SPDX-License-Identifier: Apache-2.0 */
/* OTLP: written profiles follow the rules and read back the same; wrong requests are refused. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include "base/vocab.h"
#include "otlp/otlp.h"
#include "otlp_rules.h"
#include "profile_fixture.h"

#define MIB ((size_t)1 << 20)
static const u8 some_id[16] = "0123456789abcdef";

static void encode(const struct profile *p, struct str *out)
{
	struct diag d = {};
	const char *wrong;

	cr_assert_eq(otlp_profiles_encode(p, some_id, out, &d), 0, "%s", d.text);
	wrong = otlp_rules((const u8 *)out->data, out->n);
	cr_assert(!wrong, "%s", wrong);
}

static struct otlp_profiles decode(const struct str *s)
{
	struct otlp_profiles out = {};
	struct diag d = {};

	cr_assert_eq(otlp_profiles_decode((u8 *)s->data, s->n, 64 * MIB, &out, &d), 0, "%s",
		     d.text);
	cr_assert_eq(out.rejected, 0, "%s", out.why.text);
	return out;
}

static u32 resource(struct profile *p, const char *const *names_and_values, size_t n)
{
	struct profile_label labels[8];
	u32 id;

	for (size_t i = 0; i < n; i++)
		labels[i] = (struct profile_label){string(p, names_and_values[2 * i]),
						   string(p, names_and_values[2 * i + 1])};
	cr_assert_eq(profile_add_resource(p, labels, n, &id), 0);
	return id;
}

static u32 thread_of(struct profile *p, const char *comm, const char *name, u32 pid, u32 tid,
		     u32 res)
{
	struct profile_thread t = {.pid = pid,
				   .tid = tid,
				   .comm = string(p, comm),
				   .thread_name = string(p, name),
				   .resource = res};
	u32 id;

	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	return id;
}

/* Adds the same thread with these attributes. */
static u32 thread_doing(struct profile *p, u32 thread, u32 attributes)
{
	struct profile_thread t = p->threads.data[thread];
	u32 id;

	t.attributes = attributes;
	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	return id;
}

/* Prints all data of one type of a profile as sorted lines, so that order does not matter. */
static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void describe_thread(const struct profile *p, u32 thread, struct str *out)
{
	const struct profile_thread *t;

	if (thread == PROFILE_NONE)
		return;
	t = &p->threads.data[thread];
	str_printf(out, "%u/%u %s/%s {", t->pid, t->tid, profile_string(p, t->comm),
		   profile_string(p, t->thread_name));
	for (u32 i = 0; i < (t->attributes ? 2 : 1); i++) {
		const struct profile_resource *r =
			&p->resources.data[i ? t->attributes : t->resource];

		str_puts(out, i ? "} {" : "");
		for (u32 j = 0; j < r->n; j++) {
			const struct profile_label *l = &p->labels.data[r->first + j];

			str_printf(out, "%s=%s ", profile_string(p, l->name),
				   profile_string(p, l->value));
		}
	}
	str_puts(out, "}");
}

static void describe_frame(const struct profile *p, u32 id, struct str *out)
{
	const struct profile_frame *f = &p->frames.data[id];

	str_printf(out, " |%s%s 0x%llx", vocab_frame_kind(f->kind)->name,
		   f->flags & PROFILE_FRAME_INLINED ? " inlined" : "", f->address);
	if (f->mapping != PROFILE_NONE)
		str_printf(out, " in %s (%s)", profile_string(p, p->mappings.data[f->mapping].path),
			   profile_string(p, p->mappings.data[f->mapping].build_id));
	if (f->function != PROFILE_NONE) {
		const struct profile_function *fn = &p->functions.data[f->function];

		str_printf(out, " %s %s %s:%u line %u:%u", profile_string(p, fn->name),
			   profile_string(p, fn->system_name), profile_string(p, fn->file),
			   fn->start_line, f->line, f->column);
	}
}

static void describe(const struct profile *p, u32 type, struct str *out)
{
	char **lines = calloc(p->n_samples + 1, sizeof(*lines));
	size_t n = 0;

	str_printf(out, "%s %s, each %lld %s %s, at %llu for %llu\n",
		   profile_string(p, p->types[type].name), profile_string(p, p->types[type].unit),
		   p->period, profile_string(p, p->period_name), profile_string(p, p->period_unit),
		   p->time_ns, p->duration_ns);
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);
		const struct profile_stack *st = &p->stacks.data[s->stack];
		struct str line = {};

		if (!s->value[type])
			continue;
		str_printf(&line, "%lld at %llu by ", s->value[type], s->time_ns);
		describe_thread(p, s->thread, &line);
		for (size_t k = 0; s->link && k < sizeof(struct profile_link); k++)
			str_printf(&line, "%02x", ((u8 *)&p->links.data[s->link])[k]);
		for (u32 k = 0; k < st->n; k++)
			describe_frame(p, p->stack_frames.data[st->first + k], &line);
		lines[n++] = line.data;
	}
	qsort(lines, n, sizeof(*lines), by_text);
	for (size_t i = 0; i < n; i++) {
		str_printf(out, "%s\n", lines[i]);
		free(lines[i]);
	}
	free(lines);
}

static void assert_same(const struct profile *want, u32 type, const struct profile *got)
{
	_cleanup_str_ struct str a = {}, b = {};

	cr_assert_eq(got->n_types, 1);
	describe(want, type, &a);
	describe(got, 0, &b);
	cr_assert_str_eq(str_get(&b), str_get(&a));
}

/* Makes a profile of two services, several processes and threads, two types, some times. */
static struct profile *fleet(void)
{
	static const char *const shop[] = {"service.name", "shop",	"container.id",
					   "abc",	   "host.name", "h1"};
	static const char *const db[] = {"service.name", "db", "process.executable.name",
					 "postgres-with-a-long-name"};
	static const char *const work_of[] = {"http.route", "/pay", "tenant", "7"};
	struct profile *p = profile_create();
	u32 tiny, work, main_, vfs, raw, py, note, stack[3];
	u32 t[4], links[3] = {0, link_of(p, 1, 2), link_of(p, 1, 3)};

	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	cr_assert_eq(profile_add_type(p, "cpu", "nanoseconds"), 0);
	work = frame(p, "work", "/usr/bin/app", 0x1000, FRAME_NATIVE, 0, 12);
	tiny = frame(p, "tiny", "/usr/bin/app", 0x1000, FRAME_NATIVE, PROFILE_FRAME_INLINED, 3);
	main_ = frame(p, "main", "/usr/bin/app", 0x2000, FRAME_NATIVE, 0, 40);
	vfs = frame(p, "vfs_read", "[kernel.kallsyms]", 0xffffffff81000000, FRAME_KERNEL, 0, 0);
	raw = frame(p, NULL, "/lib/libfoo.so.1", 0x1234, FRAME_NATIVE, 0, 0);
	py = frame(p, "handle", NULL, 0, FRAME_PYTHON, 0, 77);
	note = frame(p, "[truncated: too deep]", NULL, 0, FRAME_NOTE, 0, 0);
	p->mappings.data[0].build_id = string(p, "00ff17");
	p->functions.data[0].system_name = string(p, "_Z4workv");
	p->functions.data[0].file = string(p, "/src/work.c");
	p->functions.data[0].start_line = 9;
	cr_assert_eq(profile_add_stack(p, (u32[]){tiny, work, main_}, 3, &stack[0]), 0);
	cr_assert_eq(profile_add_stack(p, (u32[]){vfs, raw, note}, 3, &stack[1]), 0);
	cr_assert_eq(profile_add_stack(p, (u32[]){py}, 1, &stack[2]), 0);
	t[0] = thread_of(p, "shop", "shop", 10, 10, resource(p, shop, 3));
	t[1] = thread_of(p, "shop", "worker 7", 10, 12, resource(p, shop, 3));
	t[2] = thread_of(p, "postgres", "bgwriter", 20, 20, resource(p, db, 2));
	t[3] = thread_of(p, "nobody", "", 30, 0, 0);
	t[1] = thread_doing(p, t[1], resource(p, work_of, 2));
	t[3] = thread_doing(p, t[3], resource(p, work_of, 1));
	for (u32 i = 0; i < 12; i++) {
		s64 values[2] = {1, 50000000};

		cr_assert_eq(profile_add_linked_sample(p, i % 5 ? 1000000000ULL + i : 0, t[i % 4],
						       stack[i % 3], links[i / 4], values),
			     0);
	}
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack[0], (s64[]){3, 0}), 0);
	p->time_ns = 1000000000;
	p->duration_ns = 10000000000;
	p->period = 50000000;
	p->period_name = string(p, "cpu");
	p->period_unit = string(p, "nanoseconds");
	p->title = string(p, "a fleet");
	p->quality = (struct profile_quality){.samples = 15,
					      .lost = 7,
					      .truncated = 4,
					      .unknown = 3,
					      .frames = 40,
					      .user_stacks = 11,
					      .measured = true};
	return p;
}

static void assert_same_quality(const struct profile_quality *a, const struct profile_quality *b)
{
	cr_assert_eq(a->samples, b->samples);
	cr_assert_eq(a->lost, b->lost);
	cr_assert_eq(a->truncated, b->truncated);
	cr_assert_eq(a->unknown, b->unknown);
	cr_assert_eq(a->frames, b->frames);
	cr_assert_eq(a->user_stacks, b->user_stacks);
	cr_assert_eq(a->measured, b->measured);
}

Test(otlp, everything_of_the_model_survives)
{
	_cleanup_profile_ struct profile *p = fleet();
	_cleanup_str_ struct str out = {};
	struct otlp_profiles got;

	encode(p, &out);
	got = decode(&out);
	cr_assert_eq(got.profiles.n, 2);
	for (u32 i = 0; i < 2; i++) {
		const struct profile *again = got.profiles.data[i];

		assert_same(p, i, again);
		cr_assert_str_eq(profile_string(again, again->title), "a fleet");
		assert_same_quality(&again->quality, &p->quality);
	}
	otlp_profiles_deinit(&got);
}

Test(otlp, what_the_agent_says_of_itself_goes_once)
{
	_cleanup_profile_ struct profile *p = fleet();
	_cleanup_str_ struct str out = {};
	struct profile_label labels[2];
	struct otlp_profiles got;
	u32 told = 0;

	for (u32 i = 0; i < 2; i++) {
		const char *name = i ? "culprit.agent.error" : "host.name";

		cr_assert_eq(profile_add_string(p, name, strlen(name), &labels[i].name), 0);
		cr_assert_eq(profile_add_string(p, "\"x\"", 3, &labels[i].value), 0);
	}
	cr_assert_eq(profile_add_resource(p, labels, 2, &p->agent), 0);
	encode(p, &out);
	got = decode(&out);
	for (size_t i = 0; i < got.profiles.n; i++) {
		const struct profile *q = got.profiles.data[i];

		told += q->agent != 0;
		if (!q->agent)
			continue;
		cr_assert_str_eq(profile_label(q, q->agent, "culprit.agent.error"), "\"x\"");
		/* No thread has the agent's resource. */
		for (size_t t = 0; t < q->threads.n; t++)
			cr_assert_neq(q->threads.data[t].resource, q->agent);
	}
	cr_assert_eq(told, 1);
	otlp_profiles_deinit(&got);
}

Test(otlp, what_was_read_is_written_again_the_same)
{
	_cleanup_profile_ struct profile *p = full_profile();
	_cleanup_str_ struct str one = {}, two = {};
	struct otlp_profiles got;

	encode(p, &one);
	got = decode(&one);
	cr_assert_eq(got.profiles.n, 1);
	assert_same(p, 0, got.profiles.data[0]);
	cr_assert_eq(got.profiles.data[0]->quality.samples, 11);
	encode(got.profiles.data[0], &two);
	otlp_profiles_deinit(&got);
	got = decode(&two);
	assert_same(p, 0, got.profiles.data[0]);
	otlp_profiles_deinit(&got);
}

Test(otlp, a_profile_without_samples_tells_what_was_lost)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_str_ struct str out = {};
	struct otlp_profiles got;

	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	p->quality.lost = 99;
	p->quality.measured = true;
	encode(p, &out);
	got = decode(&out);
	cr_assert_eq(got.profiles.n, 1);
	cr_assert_eq(got.profiles.data[0]->n_samples, 0);
	cr_assert_eq(got.profiles.data[0]->quality.lost, 99);
	otlp_profiles_deinit(&got);
}

Test(otlp, a_label_is_not_taken_for_the_name_of_a_process)
{
	static const char *const labels[] = {"process.executable.name", "server"};
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_str_ struct str out = {};
	struct otlp_profiles got;
	u32 f;

	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	sample(p, 0, thread_of(p, "", "", 7, 7, resource(p, labels, 1)), &f, 1, 2);
	sample(p, 0, thread_of(p, "server", "", 8, 8, 0), &f, 1, 3);
	encode(p, &out);
	got = decode(&out);
	assert_same(p, 0, got.profiles.data[0]);
	otlp_profiles_deinit(&got);
}

Test(otlp, names_that_cleaning_makes_equal_are_one)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_str_ struct str out = {};
	struct otlp_profiles got;
	u32 a, b, ta, tb;

	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	a = frame(p, "f\x01g", NULL, 0, FRAME_NATIVE, 0, 0);
	b = frame(p, "f\x02g", NULL, 0, FRAME_NATIVE, 0, 0);
	ta = thread(p, "x", "n\x01m", 1, 1);
	tb = thread(p, "x", "n\x02m", 1, 1);
	sample(p, 0, ta, &a, 1, 2);
	sample(p, 0, tb, &b, 1, 3);
	encode(p, &out);
	got = decode(&out);
	cr_assert_eq(got.profiles.data[0]->n_samples, 1);
	cr_assert_eq(profile_sample(got.profiles.data[0], 0)->value[0], 5);
	otlp_profiles_deinit(&got);
}

/* ---- requests of others, made by hand ---- */

struct request {
	Otlp__ExportProfilesServiceRequest in;
	Otlp__ResourceProfiles rp, *rps[1];
	Otlp__ScopeProfiles sp, *sps[1];
	Otlp__Profile profile[3], *profiles[3];
	Otlp__Sample sample[3], *samples[3][1];
	Otlp__ValueType type;
	Otlp__ProfilesDictionary d;
	char *strings[4];
	Otlp__Stack stack[2], *stacks[2];
	Otlp__Location location[2], *locations[2];
	s32 index;
	int64_t value[3];
};

/* Makes three profiles of one type with one sample each, whose stack is one empty location. */
static void request_init(struct request *r)
{
	memset(r, 0, sizeof(*r));
	otlp__export_profiles_service_request__init(&r->in);
	otlp__resource_profiles__init(&r->rp);
	otlp__scope_profiles__init(&r->sp);
	otlp__profiles_dictionary__init(&r->d);
	otlp__value_type__init(&r->type);
	r->in.n_resource_profiles = r->rp.n_scope_profiles = 1;
	r->in.resource_profiles = r->rps;
	r->rps[0] = &r->rp;
	r->rp.scope_profiles = r->sps;
	r->sps[0] = &r->sp;
	r->sp.n_profiles = 3;
	r->sp.profiles = r->profiles;
	r->in.dictionary = &r->d;
	r->type.type_strindex = 1;
	r->type.unit_strindex = 2;
	for (u32 i = 0; i < 3; i++) {
		otlp__profile__init(&r->profile[i]);
		otlp__sample__init(&r->sample[i]);
		r->profiles[i] = &r->profile[i];
		r->samples[i][0] = &r->sample[i];
		r->profile[i].sample_type = &r->type;
		r->profile[i].n_samples = 1;
		r->profile[i].samples = r->samples[i];
		r->profile[i].time_unix_nano = 5000;
		r->value[i] = 10 + i;
		r->sample[i].n_values = 1;
		r->sample[i].values = &r->value[i];
		r->sample[i].stack_index = 1;
	}
	for (u32 i = 0; i < 2; i++) {
		otlp__stack__init(&r->stack[i]);
		otlp__location__init(&r->location[i]);
		r->stacks[i] = &r->stack[i];
		r->locations[i] = &r->location[i];
	}
	r->strings[0] = (char *)"";
	r->strings[1] = (char *)"samples";
	r->strings[2] = (char *)"count";
	r->strings[3] = (char *)"x";
	r->d.n_string_table = 4;
	r->d.string_table = r->strings;
	r->d.n_stack_table = r->d.n_location_table = 2;
	r->d.stack_table = r->stacks;
	r->d.location_table = r->locations;
	r->index = 1;
	r->stack[1].n_location_indices = 1;
	r->stack[1].location_indices = &r->index;
}

static int decode_request(const struct request *r, size_t max, struct otlp_profiles *ret,
			  struct diag *d)
{
	size_t n = otlp__export_profiles_service_request__get_packed_size(&r->in);
	_cleanup_free_ u8 *bytes = malloc(n + 1);

	otlp__export_profiles_service_request__pack(&r->in, bytes);
	return otlp_profiles_decode(bytes, n, max, ret, d);
}

static void assert_rejected(const struct request *r, u64 rejected, s64 sum, const char *why)
{
	struct otlp_profiles got = {};
	struct diag d = {};
	s64 have = 0;

	cr_assert_eq(decode_request(r, MIB, &got, &d), 0, "%s", d.text);
	vec_foreach (&got.profiles, p)
		for (size_t i = 0; i < (*p)->n_samples; i++)
			have += profile_sample(*p, i)->value[0];
	cr_assert_eq(got.rejected, rejected, "%llu: %s", got.rejected, got.why.text);
	cr_assert_eq(have, sum, "%lld", have);
	cr_assert(strstr(got.why.text, why), "%s", got.why.text);
	otlp_profiles_deinit(&got);
}

static struct profile_frame decoded_frame(struct request *r, u64 address)
{
	struct otlp_profiles got = {};
	struct profile_frame f;
	struct diag d = {};

	r->location[1].address = address;
	cr_assert_eq(decode_request(r, MIB, &got, &d), 0, "%s", d.text);
	f = got.profiles.data[0]->frames.data[0];
	otlp_profiles_deinit(&got);
	return f;
}

Test(otlp, addresses_are_those_of_the_file)
{
	Otlp__Mapping mapping[2] = {OTLP__MAPPING__INIT, OTLP__MAPPING__INIT};
	Otlp__Mapping *mappings[2] = {&mapping[0], &mapping[1]};
	struct profile_frame f;
	struct request r;

	request_init(&r);
	r.d.n_mapping_table = 2;
	r.d.mapping_table = mappings;
	r.location[1].mapping_index = 1;
	mapping[1].filename_strindex = 3;
	/* A program at fixed addresses, whose mappings begin at the addresses in the file. */
	mapping[1].memory_start = 0x401000;
	mapping[1].memory_limit = 0x500000;
	mapping[1].file_offset = 0x1000;
	f = decoded_frame(&r, 0x401234);
	cr_assert_eq(f.address, 0x401234);
	cr_assert_eq(f.flags, 0);
	/* An address in the process: the mapping gives the offset in the file. */
	mapping[1].memory_start = 0x7f0000400000;
	mapping[1].memory_limit = 0x7f0000500000;
	f = decoded_frame(&r, 0x7f0000400234);
	cr_assert_eq(f.address, 0x1234);
	cr_assert_eq(f.flags, PROFILE_FRAME_OFFSET);
	/* An address in the file, regardless of the mapping. */
	f = decoded_frame(&r, 0x1234);
	cr_assert_eq(f.address, 0x1234);
	cr_assert_eq(f.flags, 0);
}

Test(otlp, one_wrong_profile_is_rejected_and_the_others_are_not)
{
	struct request r;
	int64_t two[2] = {1, 2};

	request_init(&r);
	assert_rejected(&r, 0, 33, "");
	r.sample[1].stack_index = 2;
	assert_rejected(&r, 1, 22, "there is no stack 2; there are 2");
	r.sample[1].stack_index = -1;
	assert_rejected(&r, 1, 22, "there is no stack -1");
	request_init(&r);
	r.index = 7;
	assert_rejected(&r, 3, 0, "there is no location 7");
	request_init(&r);
	r.sample[2].n_values = 0;
	assert_rejected(&r, 1, 21, "neither values nor times");
	r.sample[2].n_values = 2;
	r.sample[2].values = two;
	assert_rejected(&r, 1, 21, "2 values and no times");
	r.sample[2].n_timestamps_unix_nano = 1;
	r.sample[2].timestamps_unix_nano = (uint64_t[]){5001};
	assert_rejected(&r, 1, 21, "2 values for 1 times");
	request_init(&r);
	r.value[0] = INT64_MAX;
	assert_rejected(&r, 2, INT64_MAX, "63 bits");
	request_init(&r);
	r.profile[1].sample_type = NULL;
	assert_rejected(&r, 1, 22, "no sample type");
	request_init(&r);
	r.location[1].mapping_index = 1;
	assert_rejected(&r, 3, 0, "there is no mapping 1; there are 0");
	request_init(&r);
	r.sample[0].link_index = 4;
	assert_rejected(&r, 1, 23, "there is no link 4");
}

Test(otlp, ids_of_a_link_are_whole_or_left_out_and_entry_0_is_none)
{
	u8 ids[17] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
	Otlp__Link link[3] = {OTLP__LINK__INIT, OTLP__LINK__INIT, OTLP__LINK__INIT};
	Otlp__Link *links[3] = {&link[0], &link[1], &link[2]};
	struct otlp_profiles got = {};
	const struct profile *p;
	struct request r;

	request_init(&r);
	r.d.n_link_table = 3;
	r.d.link_table = links;
	link[0].trace_id = link[1].trace_id = (ProtobufCBinaryData){16, ids};
	link[1].span_id = link[2].span_id = (ProtobufCBinaryData){8, ids + 4};
	for (s32 i = 0; i < 3; i++)
		r.sample[i].link_index = i;
	cr_assert_eq(decode_request(&r, MIB, &got, NULL), 0);
	p = got.profiles.data[0];
	cr_assert_eq(p->n_samples, 3);
	cr_expect_eq(profile_sample(p, 0)->link, 0);
	cr_expect_eq(memcmp(p->links.data[profile_sample(p, 1)->link].trace_id, ids, 16), 0);
	cr_expect_eq(memcmp(p->links.data[profile_sample(p, 1)->link].span_id, ids + 4, 8), 0);
	cr_expect_eq(p->links.data[profile_sample(p, 2)->link].trace_id[0], 0);
	cr_expect_eq(memcmp(p->links.data[profile_sample(p, 2)->link].span_id, ids + 4, 8), 0);
	otlp_profiles_deinit(&got);
	link[2].span_id.len = 7;
	assert_rejected(&r, 1, 21, "link 2 has ids of 0 and 7 bytes");
	link[1].trace_id.len = 17;
	assert_rejected(&r, 2, 10, "link 1 has ids of 17 and 8 bytes");
}

Test(otlp, profiles_of_several_times_keep_them)
{
	struct otlp_profiles got = {};
	struct request r;

	request_init(&r);
	cr_assert_eq(decode_request(&r, MIB, &got, NULL), 0);
	cr_assert_eq(got.profiles.data[0]->n_samples, 1);
	cr_assert_eq(profile_sample(got.profiles.data[0], 0)->time_ns, 0);
	cr_assert_eq(got.profiles.data[0]->time_ns, 5000);
	otlp_profiles_deinit(&got);
	r.profile[2].time_unix_nano = 7000;
	r.profile[2].duration_nano = 1000;
	cr_assert_eq(decode_request(&r, MIB, &got, NULL), 0);
	cr_assert_eq(got.profiles.data[0]->n_samples, 3);
	cr_assert_eq(profile_sample(got.profiles.data[0], 2)->time_ns, 7000);
	cr_assert_eq(got.profiles.data[0]->time_ns, 5000);
	cr_assert_eq(got.profiles.data[0]->duration_ns, 3000);
	otlp_profiles_deinit(&got);
}

Test(otlp, memory_is_bounded)
{
	enum { N = 5000 };
	static Otlp__Stack stacks[N], *stack_table[N];
	static s32 indices[N];
	Otlp__Line lines[100], *line_table[100];
	struct otlp_profiles got = {};
	struct diag d = {};
	struct request r;

	/* 5000 stacks of a growing number of indices of one location with 100 lines: 12 M indices
	 * of one byte each would be 1.2 G frames. */
	request_init(&r);
	for (u32 i = 0; i < 100; i++) {
		otlp__line__init(&lines[i]);
		line_table[i] = &lines[i];
	}
	r.location[1].n_lines = 100;
	r.location[1].lines = line_table;
	for (u32 i = 0; i < N; i++) {
		indices[i] = 1;
		otlp__stack__init(&stacks[i]);
		stacks[i].n_location_indices = i;
		stacks[i].location_indices = indices;
		stack_table[i] = &stacks[i];
	}
	r.d.n_stack_table = N;
	r.d.stack_table = stack_table;
	r.sample[0].stack_index = N - 1;
	cr_assert_eq(decode_request(&r, 128 * MIB, &got, &d), 0, "%s", d.text);
	otlp_profiles_deinit(&got);
	for (u32 i = 0; i < N; i++)
		stacks[i].n_location_indices = MIN(i, 50u);
	stacks[N - 1].n_location_indices = N;
	cr_assert_eq(decode_request(&r, 4 * MIB, &got, &d), -E2BIG);
	cr_assert(strstr(d.text, "more than 4194304 bytes"), "%s", d.text);
}

Test(otlp, what_is_no_request_is_told)
{
	struct otlp_profiles got = {};
	struct diag d = {};

	cr_assert_eq(otlp_profiles_decode((const u8 *)"\xff\xff\xff", 3, MIB, &got, &d), -EBADMSG);
	cr_assert(strstr(d.text, "not an OTLP profiles request"), "%s", d.text);
	cr_assert_eq(otlp_profiles_decode((const u8 *)"", 0, MIB, &got, &d), 0);
	cr_assert_eq(got.profiles.n, 0);
	otlp_profiles_deinit(&got);
}

Test(otlp, responses_are_what_the_protocol_says)
{
	_cleanup_str_ struct str out = {};

	cr_assert_eq(otlp_profiles_response(0, NULL, &out), 0);
	cr_assert_eq(out.n, 0);
	cr_assert_eq(otlp_profiles_response(3, "no", &out), 0);
	cr_assert_eq(out.n, 8);
	cr_assert_eq(memcmp(out.data, "\x0a\x06\x08\x03\x12\x02no", 8), 0);
}

/* ---- JSON ---- */

#define JSON_HEAD                                                                                  \
	"{\"resourceProfiles\":[{\"resource\":{\"attributes\":["                                   \
	"{\"key\":\"service.name\",\"value\":{\"stringValue\":\"shop\"}},"                         \
	"{\"key\":\"process.pid\",\"value\":{\"intValue\":\"42\"}},"                               \
	"{\"key\":\"up\",\"value\":{\"boolValue\":true}},"                                         \
	"{\"key\":\"load\",\"value\":{\"doubleValue\":0.5}},"                                      \
	"{\"key\":\"args\",\"value\":{\"arrayValue\":{\"values\":[{\"stringValue\":\"a\"},"        \
	"{\"kvlistValue\":{\"values\":[{\"key\":\"k\",\"value\":{\"intValue\":7}}]}}]}}},"         \
	"{\"key\":\"raw\",\"value\":{\"bytesValue\":\"AP8=\"}}"                                    \
	"]},\"scopeProfiles\":[{\"profiles\":[{\"sampleType\":{\"typeStrindex\":1,"                \
	"\"unitStrindex\":2},\"timeUnixNano\":\"1000\",\"durationNano\":50,\"profileId\":"         \
	"\"000102030405060708090a0b0c0d0e0f\",\"samples\":[{\"stackIndex\":1,"
#define JSON_TAIL                                                                                  \
	"}]}]}]}],\"dictionary\":{\"stringTable\":[\"\",\"samples\",\"count\",\"main\"],"          \
	"\"functionTable\":[{},{\"nameStrindex\":3}],\"locationTable\":[{},{\"lines\":["           \
	"{\"functionIndex\":1,\"line\":\"12\"}]}],\"stackTable\":[{},{\"locationIndices\":"        \
	"[1]}],\"unknownField\":[1,{\"x\":null}]}}"

Test(otlp, json_is_read)
{
	static const char text[] =
		JSON_HEAD "\"values\":[\"5\"],\"timestampsUnixNano\":[\"1001\"]" JSON_TAIL;
	struct otlp_profiles got = {};
	struct diag d = {};
	_cleanup_str_ struct str s = {};

	cr_assert_eq(otlp_profiles_decode_json(text, strlen(text), MIB, &got, &d), 0, "%s", d.text);
	cr_assert_eq(got.rejected, 0, "%s", got.why.text);
	cr_assert_eq(got.profiles.n, 1);
	describe(got.profiles.data[0], 0, &s);
	cr_assert_str_eq(str_get(&s),
			 "samples count, each 0  , at 1000 for 50\n"
			 "5 at 1001 by 42/0 / {args=[\"a\",{\"k\":7}] load=0.5 raw=00ff "
			 "service.name=shop up=true } |native 0x0 main main :0 line 12:0\n");
	otlp_profiles_deinit(&got);
}

static void assert_bad_json(const char *text, const char *why)
{
	struct otlp_profiles got = {};
	struct diag d = {};

	cr_assert_eq(otlp_profiles_decode_json(text, strlen(text), MIB, &got, &d), -EBADMSG, "%s",
		     text);
	cr_assert(strstr(d.text, why), "%s", d.text);
}

Test(otlp, wrong_json_is_told)
{
	_cleanup_str_ struct str deep = {}, tail = {};
	struct otlp_profiles got = {};
	struct diag d = {};

	assert_bad_json("{", "not JSON");
	assert_bad_json("[]", "ExportProfilesServiceRequest is not an object");
	assert_bad_json("{\"resourceProfiles\":{}}", "resource_profiles is not an array");
	assert_bad_json(JSON_HEAD "\"values\":[\"5x\"]" JSON_TAIL, "values is not a number");
	assert_bad_json(JSON_HEAD "\"values\":[{}]" JSON_TAIL, "values is not a number");
	assert_bad_json(JSON_HEAD "\"linkIndex\":4294967296" JSON_TAIL,
			"link_index is not a 32-bit number");
	str_puts(&deep, "{\"resourceProfiles\":[{\"resource\":{\"attributes\":[{\"value\":");
	for (int i = 0; i < 20; i++) {
		str_puts(&deep, "{\"arrayValue\":{\"values\":[");
		str_puts(&tail, "]}}");
	}
	str_printf(&deep, "%s}]}}]}", str_get(&tail));
	assert_bad_json(str_get(&deep), "more than 8 deep");
	str_clear(&deep);
	str_puts(&deep, "{\"x\":[");
	for (int i = 0; i < 10000; i++)
		str_puts(&deep, "[],");
	str_puts(&deep, "1]}");
	cr_assert_eq(otlp_profiles_decode_json(deep.data, deep.n, MIB, &got, &d), -E2BIG);
	cr_assert(strstr(d.text, "memory"), "%s", d.text);
}
