/* SPDX-License-Identifier: Apache-2.0 */
/* Waits in every format: the time in its unit, and what was waited for. */
#include <jansson.h>

#include "base/vocab.h"
#include "profile/table.h"
#include "profile_fixture.h"

/* Of one thread, 2 samples in each stack: a lock, a socket, and the wait `last` or none. */
static struct profile *waits(const char *type, const char *last)
{
	static const struct {
		const char *wait, *function;
		s64 ns;
	} all[] = {{"lock", "futex", 2500000}, {"network", "recv", 1500}, {"lock", "futex", 400}};
	struct profile *p = profile_create();
	u32 main_ = frame(p, "main", NULL, 0, FRAME_NATIVE, 0, 0);

	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	cr_assert_eq(profile_add_type(p, type, "nanoseconds"), 0);
	p->default_type = 1;
	for (size_t i = 0; i <= ARRAY_SIZE(all); i++) {
		const char *wait = i < ARRAY_SIZE(all) ? all[i].wait : last;
		const char *name = i < ARRAY_SIZE(all) ? all[i].function : "work";
		struct profile_label label = {string(p, "wait"), wait ? string(p, wait) : 0};
		struct profile_thread t = {.pid = 1, .tid = 1, .comm = string(p, "app")};
		u32 f = frame(p, name, NULL, 0, FRAME_NATIVE, 0, 0), stack, thread_id;
		s64 values[] = {2, i < ARRAY_SIZE(all) ? all[i].ns : 1000000000};

		cr_assert_eq(profile_add_resource(p, &label, wait ? 1 : 0, &t.attributes), 0);
		cr_assert_eq(profile_add_thread(p, &t, &thread_id), 0);
		cr_assert_eq(profile_add_stack(p, (u32[]){f, main_}, 2, &stack), 0);
		cr_assert_eq(profile_add_sample(p, 0, thread_id, stack, values), 0);
	}
	return p;
}

static const struct profile_write_options none, annotate = {.annotate = true};

Test(waits, folded_counts_microseconds_with_the_category_as_leaf)
{
	_cleanup_profile_ struct profile *p = waits("off_cpu", NULL),
					 *wall = waits("wall", "running");
	_cleanup_profile_ struct profile *cpu = waits("cpu", NULL);
	struct profile_write_options inverted = annotate;

	assert_folded(p, &none, "app;main;futex 2500\napp;main;recv 2\napp;main;work 1000000\n");
	assert_folded(p, &annotate,
		      "app;main;futex;[lock] 2500\napp;main;recv;[network] 2\n"
		      "app;main;work 1000000\n");
	inverted.tree.inverted = true;
	assert_folded(p, &inverted,
		      "[lock];futex;main;app 2500\n[network];recv;main;app 2\n"
		      "work;main;app 1000000\n");
	assert_folded(wall, &annotate,
		      "app;main;futex;[lock] 2500\napp;main;recv;[network] 2\n"
		      "app;main;work;[running] 1000000\n");
	assert_folded(cpu, &none,
		      "app;main;futex 2500400\napp;main;recv 1500\napp;main;work 1000000000\n");
}

Test(waits, what_rounds_to_no_microsecond_is_left_out)
{
	_cleanup_profile_ struct profile *p = profile_create();
	u32 f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0),
	    g = frame(p, "g", NULL, 0, FRAME_NATIVE, 0, 0);

	cr_assert_eq(profile_add_table_type(p, SAMPLE_TYPE_OFF_CPU), 0);
	sample(p, 0, PROFILE_NONE, &f, 1, 499);
	sample(p, 0, PROFILE_NONE, &g, 1, 500);
	assert_folded(p, &none, "g 1\n");
}

Test(waits, folded_leaves_are_read_as_waits)
{
	const char *text = "app;main;futex;[lock] 3\napp;main;work;[mutex] 4\n";
	_cleanup_profile_ struct profile *p = from_folded(text);

	assert_folded(p, NULL, text);
	vec_foreach (&p->frames, f) {
		const char *name = profile_string(p, p->functions.data[f->function].name);

		cr_assert_eq(f->kind, !strcmp(name, "[lock]") ? FRAME_WAIT : FRAME_NATIVE, "%s",
			     name);
	}
	cr_assert_eq(p->quality.frames, 3 * 2 + 4 * 3, "a wait is no frame of code");
}

Test(waits, a_tree_has_them_above_all_frames)
{
	static const u8 drop[FRAME_KIND_N] = {[FRAME_WAIT] = 1};
	struct profile_tree_options o = {.waits = true, .no_process = true}, without = o;
	_cleanup_profile_ struct profile *p = waits("off_cpu", NULL);
	_cleanup_profile_tree_ struct profile_tree *t = NULL, *plain = NULL;
	const struct profile_node *lock;

	cr_assert_eq(profile_tree_build(p, &o, &t), 0);
	cr_assert_eq(t->nodes.n, 7); /* all, main, futex, [lock], recv, [network], work */
	lock = &t->nodes.data[3];
	cr_assert_str_eq(strtab_get(&t->strings, lock->name), "[lock]");
	cr_assert_eq(lock->kind, FRAME_WAIT);
	cr_assert_eq(lock->level, PROFILE_LEVEL_FRAME);
	cr_assert_eq(lock->self, 2500400);
	cr_assert_eq(t->nodes.data[2].self, 0);
	without.drop_kinds = drop;
	cr_assert_eq(profile_tree_build(p, &without, &plain), 0);
	cr_assert_eq(plain->nodes.n, 5);
	cr_assert_eq(plain->nodes.data[2].self, 2500400);
}

Test(waits, sums_are_by_category_largest_first)
{
	_cleanup_profile_ struct profile *p = waits("off_cpu", NULL), *other = full_profile();
	struct profile_waits w;

	cr_assert(profile_waits_sum(p, &w));
	cr_assert(w.has_samples);
	cr_assert_eq(w.order[0], WAIT_NONE);
	cr_assert_eq(w.order[1], WAIT_LOCK);
	cr_assert_eq(w.order[2], WAIT_NETWORK);
	cr_assert_eq(w.value[WAIT_LOCK], 2500400);
	cr_assert_eq(w.samples[WAIT_LOCK], 4);
	cr_assert_eq(w.value[WAIT_NONE], 1000000000);
	cr_assert_not(profile_waits_sum(other, &w));
}

Test(waits, svg_has_time_in_its_unit_and_the_category_in_its_colour)
{
	_cleanup_profile_ struct profile *p = waits("off_cpu", NULL);
	struct profile_write_options diff = {.base = p};
	_cleanup_str_ struct str out = {}, both = {};
	const char *lock;
	char fill[32];
	unsigned int r, g, b;

	cr_assert_eq(svg_write(p, &none, &out, NULL), 0);
	cr_assert(strstr(str_get(&out), "<title>work (1.00 s, 99.75%)</title>"));
	lock = strstr(str_get(&out), "<title>[lock] (2.50 ms, 0.25%)</title>");
	cr_assert_not_null(lock);
	cr_assert_eq(sscanf(vocab_wait(WAIT_LOCK)->colour, "#%2x%2x%2x", &r, &g, &b), 3);
	snprintf(fill, sizeof(fill), "fill=\"rgb(%u,%u,%u)\"", r, g, b);
	cr_assert(str_starts(strstr(lock, "fill="), fill), "%s", fill);
	cr_assert_eq(svg_write(p, &diff, &both, NULL), 0);
	cr_assert(strstr(str_get(&both), "<title>[lock] (2.50 ms, 0.25%; before 2.50 ms, 0.25%)"));
}

Test(waits, speedscope_has_them_as_leaves)
{
	_cleanup_profile_ struct profile *p = waits("off_cpu", NULL), *again = NULL;
	_cleanup_str_ struct str json = {};

	cr_assert_eq(speedscope_write(p, &none, &json, NULL), 0);
	cr_assert(strstr(str_get(&json), "\"unit\":\"nanoseconds\""));
	cr_assert_eq(speedscope_read((u8 *)json.data, json.n, &again, NULL), 0);
	assert_folded(again, NULL,
		      "app;main;futex;[lock] 2500400\napp;main;recv;[network] 1500\n"
		      "app;main;work 1000000000\n");
}

Test(waits, speedscope_has_them_with_one_profile_per_thread_too)
{
	_cleanup_profile_ struct profile *p = waits("off_cpu", NULL), *again = NULL;
	struct profile_write_options threads = {.tree = {.threads = true}};
	_cleanup_str_ struct str json = {};

	cr_assert_eq(speedscope_write(p, &threads, &json, NULL), 0);
	cr_assert_eq(speedscope_read((u8 *)json.data, json.n, &again, NULL), 0);
	assert_folded(again, NULL,
		      "app;main;futex;[lock] 2500400\napp;main;recv;[network] 1500\n"
		      "app;main;work 1000000000\n");
}

Test(waits, firefox_has_them_as_categories)
{
	_cleanup_profile_ struct profile *p = waits("off_cpu", NULL), *cpu = full_profile();
	_cleanup_str_ struct str json = {}, without = {};
	json_t *root, *t, *samples, *categories;
	double lock_ms = 0;

	cr_assert_eq(firefox_write(p, &none, &json, NULL), 0);
	root = json_loads(str_get(&json), 0, NULL);
	cr_assert_not_null(root);
	categories = json_object_get(json_object_get(root, "meta"), "categories");
	t = json_array_get(json_object_get(root, "threads"), 0);
	samples = json_object_get(t, "samples");
	for (size_t i = 0; i < json_array_size(json_object_get(samples, "stack")); i++) {
		json_t *stack = json_array_get(json_object_get(samples, "stack"), i);
		json_t *of = json_array_get(
			json_object_get(json_object_get(t, "stackTable"), "category"),
			(size_t)json_integer_value(stack));
		json_t *c = json_array_get(categories, (size_t)json_integer_value(of));

		if (!strcmp(json_string_value(json_object_get(c, "name")), "lock"))
			lock_ms += json_number_value(
				json_array_get(json_object_get(samples, "weight"), i));
	}
	cr_assert_float_eq(lock_ms, 2.5004, 1e-9);
	cr_assert_str_eq(json_string_value(json_object_get(samples, "weightType")), "tracing-ms");
	json_decref(root);
	cr_assert_eq(firefox_write(cpu, &none, &without, NULL), 0);
	cr_assert_null(strstr(str_get(&without), "\"runnable\""));
}

Test(waits, pprof_keeps_them)
{
	_cleanup_profile_ struct profile *p = waits("off_cpu", NULL), *again = NULL;
	_cleanup_str_ struct str packed = {};
	struct diag d = {};

	cr_assert_eq(pprof_write(p, &none, &packed, NULL), 0);
	cr_assert_eq(
		profile_read_bytes("x", (u8 *)packed.data, packed.n, NULL, 1 << 20, &again, &d), 0,
		"%s", d.text);
	assert_folded(again, &annotate,
		      "app;main;futex;[lock] 2500\napp;main;recv;[network] 2\n"
		      "app;main;work 1000000\n");
}

Test(waits, values_of_time_have_the_unit_that_suits_them)
{
	static const struct {
		s64 v;
		const char *unit, *want;
	} all[] = {
		{0, "nanoseconds", "0 ns"},
		{999, "nanoseconds", "999 ns"},
		{1500, "nanoseconds", "1.50 \xc2\xb5s"},
		{999499, "nanoseconds", "999 \xc2\xb5s"},
		{999500, "nanoseconds", "1.00 ms"},
		{45600000, "nanoseconds", "45.6 ms"},
		{99960000, "nanoseconds", "100 ms"},
		{123, "seconds", "123 s"},
		{7, "milliseconds", "7.00 ms"},
		{-2500000, "nanoseconds", "-2.50 ms"},
		{12345, "bytes", "12,345 bytes"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		_cleanup_str_ struct str out = {};

		text_append_value(&out, all[i].v, all[i].unit);
		cr_assert_str_eq(str_get(&out), all[i].want);
	}
}

Test(waits, names_are_found_with_and_without_brackets)
{
	cr_assert_eq(vocab_wait_by_name("lock", 4), WAIT_LOCK);
	cr_assert_eq(vocab_wait_by_name("locks", 5), WAIT_NONE);
	cr_assert_eq(vocab_wait_by_name("", 0), WAIT_NONE);
	cr_assert_eq(vocab_wait_by_frame("[lock]", 6), WAIT_LOCK);
	cr_assert_eq(vocab_wait_by_frame("[]", 2), WAIT_NONE);
	cr_assert_eq(vocab_wait_by_frame("lock", 4), WAIT_NONE);
	for (enum wait w = WAIT_NONE + 1; w < WAIT_N; w++)
		cr_assert_eq(strlen(vocab_wait(w)->colour), 7, "%s", vocab_wait(w)->name);
}
