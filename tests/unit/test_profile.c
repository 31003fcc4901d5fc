/* SPDX-License-Identifier: Apache-2.0 */
/* The model, the call tree, folded text and files. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

#include "profile/table.h"
#include "profile_fixture.h"

Test(profile, equal_content_has_one_id)
{
	_cleanup_profile_ struct profile *p = profile_create();
	u32 a = frame(p, "f", "/bin/x", 1, FRAME_NATIVE, 0, 0);
	u32 b = frame(p, "g", "/bin/x", 1, FRAME_NATIVE, 0, 0);
	u32 s1, s2, s3, s4;

	cr_assert_eq(frame(p, "f", "/bin/x", 1, FRAME_NATIVE, 0, 0), a);
	cr_assert_neq(a, b);
	cr_assert_eq(p->mappings.n, 1);
	cr_assert_eq(p->functions.n, 2);
	profile_add_stack(p, (u32[]){a, b}, 2, &s1);
	profile_add_stack(p, (u32[]){b, a}, 2, &s2);
	profile_add_stack(p, (u32[]){a, b}, 2, &s3);
	profile_add_stack(p, NULL, 0, &s4);
	cr_assert_eq(s1, s3);
	cr_assert_neq(s1, s2);
	cr_assert_eq(p->stacks.n, 3);
	/* Ids do not change when the indexes grow. */
	for (u32 i = 0; i < 10000; i++)
		frame(p, "h", "/bin/x", i, FRAME_NATIVE, 0, 0);
	cr_assert_eq(frame(p, "f", "/bin/x", 1, FRAME_NATIVE, 0, 0), a);
	cr_assert_eq(p->frames.n, 10002);
}

Test(profile, samples_without_time_add_up_and_timed_ones_stay_apart)
{
	_cleanup_profile_ struct profile *p = profile_create();
	u32 f, t;

	profile_add_type(p, "samples", "count");
	f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	t = thread(p, "x", "x", 1, 1);
	sample(p, 0, t, &f, 1, 2);
	sample(p, 0, t, &f, 1, 3);
	sample(p, 0, PROFILE_NONE, &f, 1, 3);
	sample(p, 77, t, &f, 1, 1);
	sample(p, 77, t, &f, 1, 1);
	cr_assert_eq(p->n_samples, 4);
	cr_assert_eq(profile_sample(p, 0)->value[0], 5);
	assert_folded(p, NULL, "f 3\nx;f 7\n");
	cr_assert_eq(profile_add_type(p, "late", "count"), -EBUSY);
}

Test(profile, values_that_overflow_are_refused_and_leave_nothing)
{
	_cleanup_profile_ struct profile *p = profile_create();
	s64 big = INT64_MAX - 1, one = 1, two = 2;
	u32 f, stack;

	profile_add_type(p, "samples", "count");
	f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	profile_add_stack(p, &f, 1, &stack);
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack, &big), 0);
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack, &two), -ERANGE);
	cr_assert_eq(profile_add_sample(p, 5, PROFILE_NONE, stack, &two), -ERANGE);
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack, &one), 0);
	cr_assert_eq(p->n_samples, 1);
	cr_assert_eq(profile_sample(p, 0)->value[0], INT64_MAX);
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack + 1, &one), -EINVAL);
	cr_assert_eq(profile_add_sample(p, 0, 0, stack, &one), -EINVAL);
}

Test(profile, merge_adds_equal_stacks_and_keeps_the_rest)
{
	_cleanup_profile_ struct profile *p = from_folded("a;f;g 2\na;f 1\n");
	_cleanup_profile_ struct profile *q = from_folded("b;f 4\na;f;g 3\n");
	_cleanup_profile_ struct profile *d = profile_create();
	struct diag diag = {};

	profile_add_type(d, "alloc", "bytes");
	cr_assert_eq(profile_merge(p, q, &diag), 0);
	assert_folded(p, NULL, "a;f 1\na;f;g 5\nb;f 4\n");
	cr_assert_eq(p->quality.samples, 10);
	cr_assert_eq(profile_merge(p, d, &diag), -EINVAL);
	cr_assert_str_eq(diag.text,
			 "values of samples in count and of alloc in bytes do not add up");
}

Test(profile, samples_of_different_spans_stay_apart_and_keep_them_when_merged)
{
	_cleanup_profile_ struct profile *a = profile_create(), *b = profile_create();
	s64 one = 1;
	u32 stack, f;

	profile_add_type(a, "samples", "count");
	f = frame(a, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	profile_add_stack(a, &f, 1, &stack);
	cr_expect_eq(profile_add_link(a, &(struct profile_link){}, &f), 0);
	cr_expect_eq(f, 0);
	for (u32 i = 0; i < 6; i++)
		cr_assert_eq(profile_add_linked_sample(a, 0, PROFILE_NONE, stack,
						       link_of(a, 1, (u8)(i % 3)), &one),
			     0);
	sample(a, 0, PROFILE_NONE, &a->stack_frames.data[0], 1, 5);
	cr_expect_eq(profile_add_linked_sample(a, 0, PROFILE_NONE, stack, 4, &one), -EINVAL);
	cr_assert_eq(a->n_samples, 4);
	link_of(b, 9, 9);
	cr_assert_eq(profile_merge(b, a, NULL), 0);
	cr_assert_eq(profile_merge(b, a, NULL), 0);
	cr_assert_eq(b->n_samples, 4);
	for (u32 i = 0; i < 3; i++) {
		cr_expect_eq(profile_sample(b, i)->link, link_of(b, 1, (u8)i));
		cr_expect_eq(profile_sample(b, i)->value[0], 4);
	}
	cr_expect_eq(profile_sample(b, 3)->link, 0);
	/* Views without spans have the sum over spans. */
	assert_folded(b, NULL, "f 22\n");
}

static u32 string_of(struct profile *p, const char *text)
{
	u32 id;

	cr_assert_eq(profile_add_string(p, text, strlen(text), &id), 0);
	return id;
}

Test(profile, a_resource_is_a_set_of_labels_and_goes_where_its_thread_goes)
{
	_cleanup_profile_ struct profile *a = profile_create(), *b = profile_create();
	struct profile_label l[3] = {{string_of(a, "service.name"), string_of(a, "first")},
				     {string_of(a, "host.name"), string_of(a, "here")},
				     {string_of(a, "service.name"), string_of(a, "shop")}};
	struct profile_label turned[2] = {l[2], l[1]};
	struct profile_thread t = {.pid = 7};
	u32 id, other, none, stack, thread;
	s64 one = 1;

	cr_assert_eq(profile_add_resource(a, NULL, 0, &none), 0);
	cr_expect_eq(none, 0);
	cr_assert_eq(profile_add_resource(a, l, 3, &id), 0);
	cr_assert_eq(profile_add_resource(a, turned, 2, &other), 0);
	cr_expect_eq(id, other);
	cr_expect_eq(a->resources.data[id].n, 2);
	cr_expect_str_eq(profile_label(a, id, "service.name"), "shop");
	cr_expect_null(profile_label(a, id, "container.id"));
	cr_expect_eq(profile_add_resource(a, l, PROFILE_MAX_LABELS + 1, &id), -E2BIG);
	t.resource = other;
	cr_assert_eq(profile_add_thread(a, &t, &thread), 0);
	cr_assert_eq(profile_add_stack(a, NULL, 0, &stack), 0);
	cr_assert_eq(profile_add_type(a, "samples", "count"), 0);
	cr_assert_eq(profile_add_sample(a, 0, thread, stack, &one), 0);
	string_of(b, "so that ids differ");
	cr_assert_eq(profile_merge(b, a, NULL), 0);
	cr_expect_str_eq(profile_label(b, b->threads.data[0].resource, "host.name"), "here");
}

/* A process of the resource that these labels make; NULL ends them. */
static u32 labelled_thread(struct profile *p, const char *comm, u32 pid, const char *const *labels)
{
	struct profile_thread t = {.pid = pid, .tid = pid, .comm = string_of(p, comm)};
	struct profile_label l[8];
	u32 n = 0, id;

	for (; labels[2 * n]; n++)
		l[n] = (struct profile_label){string_of(p, labels[2 * n]),
					      string_of(p, labels[2 * n + 1])};
	cr_assert_eq(profile_add_resource(p, l, n, &t.resource), 0);
	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	return id;
}

#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct profile *profile_of_containers(void)
{
	struct profile *p = profile_create();
	u32 f;

	profile_add_type(p, "samples", "count");
	f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	sample(p, 0,
	       labelled_thread(p, "app", 7,
			       LABELS("k8s.pod.name", "shop-1", "k8s.container.name", "shop",
				      "container.name", "k8s_shop_shop-1")),
	       &f, 1, 1);
	sample(p, 0,
	       labelled_thread(p, "app", 8,
			       LABELS("k8s.pod.uid", "1-2", "container.id", "0123456789abcdef")),
	       &f, 1, 2);
	sample(p, 0,
	       labelled_thread(p, "app", 9,
			       LABELS("container.name", "a;\nb \"c'", "k8s.pod.name", "")),
	       &f, 1, 3);
	sample(p, 0, labelled_thread(p, "", 10, LABELS("host.name", "x")), &f, 1, 4);
	sample(p, 0, labelled_thread(p, "swapper", 0, LABELS(NULL)), &f, 1, 5);
	return p;
}

Test(folded, pods_containers_and_processes_are_roots)
{
	static const struct {
		u32 roots;
		const char *text;
	} cases[] = {
		{PROFILE_ROOT_POD | PROFILE_ROOT_CONTAINER | PROFILE_ROOT_PROCESS,
		 "[10][unknown];f 4\n"
		 "[Con]a: b \"c';[9]app;f 3\n"
		 "[Pod]1-2;[Con]0123456789ab;[8]app;f 2\n"
		 "[Pod]shop-1;[Con]shop;[7]app;f 1\n"
		 "swapper;f 5\n"},
		{PROFILE_ROOT_POD, "[Pod]1-2;app;f 2\n[Pod]shop-1;app;f 1\n[unknown];f 4\n"
				   "app;f 3\nswapper;f 5\n"},
		{PROFILE_ROOT_CONTAINER, "[Con]0123456789ab;app;f 2\n[Con]a: b \"c';app;f 3\n"
					 "[Con]shop;app;f 1\n[unknown];f 4\nswapper;f 5\n"},
	};
	_cleanup_profile_ struct profile *p = profile_of_containers();

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct profile_write_options o = {.tree = {.roots = cases[i].roots}};

		assert_folded(p, &o, cases[i].text);
	}
}

Test(folded, roots_stand_in_the_tree_and_in_inverted_stacks)
{
	_cleanup_profile_ struct profile *p = profile_of_containers();
	struct profile_tree_options o = {.roots = PROFILE_ROOT_POD | PROFILE_ROOT_CONTAINER |
						  PROFILE_ROOT_PROCESS};
	struct profile_write_options w = {.tree = o};
	_cleanup_profile_tree_ struct profile_tree *t = NULL;
	u32 levels[PROFILE_LEVEL_FRAME + 1] = {};

	cr_assert_eq(profile_tree_build(p, &o, &t), 0);
	for (size_t i = 0; i < t->nodes.n; i++)
		levels[t->nodes.data[i].level]++;
	cr_expect_eq(levels[PROFILE_LEVEL_POD], 2);
	cr_expect_eq(levels[PROFILE_LEVEL_CONTAINER], 3);
	cr_expect_eq(levels[PROFILE_LEVEL_PROCESS], 5);
	w.tree.inverted = true;
	assert_folded(p, &w,
		      "f;[10][unknown] 4\n"
		      "f;[7]app;[Con]shop;[Pod]shop-1 1\n"
		      "f;[8]app;[Con]0123456789ab;[Pod]1-2 2\n"
		      "f;[9]app;[Con]a: b \"c' 3\n"
		      "f;swapper 5\n");
}

/* What is written is read again, also in gala-gopher's spelling. */
Test(folded, roots_are_read)
{
	static const char text[] = "[5]java;main;f 1\n"
				   "[Con]web;[6]nginx;main 2\n"
				   "[Pod]p-1;[Con]web;[7]nginx;f 3\n"
				   "[Pod]p-1;[Con]web;f_[k] 4\n"
				   "[Pod]p-1;nginx;f 5\n";
	_cleanup_profile_ struct profile *p = from_folded(text), *gala = NULL, *odd = NULL;
	struct profile_write_options o = {.tree = {.roots = PROFILE_ROOT_POD |
							    PROFILE_ROOT_CONTAINER |
							    PROFILE_ROOT_PROCESS}};

	assert_folded(p, &o, text);
	assert_folded(p, NULL, "f_[k] 4\njava;main;f 1\nnginx;f 8\nnginx;main 2\n");
	gala = from_folded("[Pod]p-1; [Con]web; [7]nginx; main[u]; f[k] 3\n");
	assert_folded(gala, &o, "[Pod]p-1;[Con]web;[7]nginx;main[u];f[k] 3\n");
	odd = from_folded("[Pod];f 1\n[0]x;f 2\n[99999999999]y;f 3\n[1]z;;f 4\n[12];f 5\n");
	assert_folded(odd, &o,
		      "[0]x;f 2\n[12];f 5\n[1]z;[unknown];f 4\n[99999999999]y;f 3\n"
		      "[Pod];f 1\n");
}

Test(profile, roots_are_a_list)
{
	static const char *const bad[] = {"", "pods", "pod,", ",pod", "pod,x", "pod container"};
	u32 roots = 77;
	struct diag d = {};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		d = (struct diag){};
		cr_expect_eq(profile_roots_parse(bad[i], &roots, &d), -EINVAL, "%s", bad[i]);
	}
	cr_expect_eq(roots, 77);
	cr_expect_str_eq(d.text, "--roots takes pod, container and process, separated by commas, "
				 "not 'pod container'");
	cr_assert_eq(profile_roots_parse("process,pod", &roots, &d), 0);
	cr_expect_eq(roots, PROFILE_ROOT_PROCESS | PROFILE_ROOT_POD);
}

Test(folded, writes_kinds_heads_and_names_as_documented)
{
	_cleanup_profile_ struct profile *p = full_profile();
	struct profile_write_options annotate = {.annotate = true};
	struct profile_write_options heads = {.tree = {.threads = true, .pids = true}};
	u8 no_kernel[FRAME_KIND_N] = {[FRAME_KERNEL] = 1};
	struct profile_write_options user = {.tree = {.drop_kinds = no_kernel, .no_inline = true}};
	struct profile_write_options inverted = {.tree = {.inverted = true, .no_process = true}};

	assert_folded(p, NULL,
		      "app;[truncated: stack memory not readable];[unknown];libfoo.so.1+0x1234 1\n"
		      "app;main;LJ:fast 2\n"
		      "app;main;read;vfs_read_[k] 3\n"
		      "app;main;work;tiny 5\n");
	assert_folded(p, &annotate,
		      "app;[truncated: stack memory not readable];[unknown];libfoo.so.1+0x1234 1\n"
		      "app;main;LJ:fast_[j] 2\n"
		      "app;main;read;vfs_read_[k] 3\n"
		      "app;main;work;tiny_[i] 5\n");
	assert_folded(p, &heads,
		      "app-10;app;main;read;vfs_read_[k] 3\n"
		      "app-10;app;main;work;tiny 5\n"
		      "app-10;io pool 7;[truncated: stack memory not "
		      "readable];[unknown];libfoo.so.1+0x1234 1\n"
		      "app-10;io pool 7;main;LJ:fast 2\n");
	assert_folded(p, &user,
		      "app;[truncated: stack memory not readable];[unknown];libfoo.so.1+0x1234 1\n"
		      "app;main;LJ:fast 2\n"
		      "app;main;read 3\n"
		      "app;main;work 5\n");
	assert_folded(p, &inverted,
		      "LJ:fast;main 2\n"
		      "libfoo.so.1+0x1234;[unknown];[truncated: stack memory not readable] 1\n"
		      "tiny;work;main 5\n"
		      "vfs_read_[k];read;main 3\n");
}

Test(folded, hostile_names_stay_on_their_line_and_in_their_frame)
{
	_cleanup_profile_ struct profile *p = profile_create();
	u32 f[2], t;

	profile_add_type(p, "samples", "count");
	f[0] = frame(p, "evil 99", NULL, 0, FRAME_NATIVE, 0, 0);
	f[1] = frame(p, " a;b\n\x1b[31m\x80\xc0\xafz", NULL, 0, FRAME_NATIVE, 0, 0);
	t = thread(p, "x\ty;z", "", 1, 1);
	sample(p, 0, t, f, 2, 1);
	assert_folded(p, NULL, "x y:z;a:b  [31m\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz;evil_99 1\n");
}

/* Found by fuzzing: names that changed when a profile was written and read a second time. */
Test(folded, what_names_hold_is_settled_when_they_are_written)
{
	_cleanup_profile_ struct profile *p = profile_create();
	u32 f[5], t;

	profile_add_type(p, "samples", "count");
	f[0] = frame(p, NULL, "/lib/x\x01.so \x02", 0x10, FRAME_NATIVE, 0, 0);
	f[1] = frame(p, NULL, "/lib/", 0x20, FRAME_NATIVE, 0, 0);
	f[2] = frame(p, NULL, "/lib/\x03", 0x30, FRAME_NATIVE, 0, 0);
	f[3] = frame(p, "a/b+0x10", NULL, 0, FRAME_NATIVE, 0, 0);
	f[4] = frame(p, " \x01 ", NULL, 0, FRAME_NATIVE, 0, 0);
	t = thread(p, "x -5", "", 1, 1);
	sample(p, 0, t, f, 5, 7);
	sample(p, 0, t, NULL, 0, 1);
	f[0] = frame(p, "\x08", "/lib.so", 0x40, FRAME_NATIVE, 0, 0);
	sample(p, 0, thread(p, "\x1b", "", 1, 2), f, 1, 1);
	assert_folded(p, NULL,
		      "[unknown];lib.so+0x40 1\n"
		      "x -5;[unknown];a/b+0x10;[unknown];[unknown];x .so+0x10 7\n"
		      "x_-5 1\n");
}

Test(folded, reads_back_what_it_wrote)
{
	const char *text = "app;[truncated: too many frames];main;f_[i];g 4\n"
			   "app;main;[unknown];libfoo.so.1+0x1234 1\n"
			   "app;main;jitted_[j] 2\n"
			   "app;main;vfs_read_[k];[kernel.kallsyms]+0xffffffff81000000_[k] 3\n"
			   "kworker/0:1 9\n";
	struct profile_write_options annotate = {.annotate = true};
	_cleanup_profile_ struct profile *p = from_folded(text);

	assert_folded(p, &annotate, text);
	cr_assert_eq(p->quality.samples, 19);
	cr_assert_eq(p->quality.truncated, 4);
	cr_assert_eq(p->quality.unknown, 1 + 1 + 3);
	cr_assert_eq(p->quality.frames, 4 * 3 + 3 + 2 * 2 + 3 * 3);
	cr_assert_eq(p->quality.user_stacks, 10);
	cr_assert_eq(p->frames.data[p->stack_frames.data[0]].kind, FRAME_NATIVE);
}

Test(folded, takes_the_dialects_of_others)
{
	_cleanup_profile_ struct profile *p =
		from_folded("# a comment\n\na; b c;d 1.5\r\na;b c;d 1.5\nx 2\n_[k];q_[k] 1");
	_cleanup_profile_ struct profile *two = from_folded("a;b 1 2\na;c 0 3\n");
	_cleanup_profile_ struct profile *kernel = from_folded("entry_[k];read_[k] 7\n");

	assert_folded(p, NULL, "_[k];q_[k] 1\na;b c;d 3\nx 2\n");
	assert_folded(two, NULL, "a;b 2\na;c 3\n");
	cr_assert_eq(two->n_types, 2);
	cr_assert_eq(kernel->threads.n, 0);
	assert_folded(kernel, NULL, "entry_[k];read_[k] 7\n");
}

Test(folded, says_which_line_is_wrong)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"a;b 1\nno count here\n", "line 2 does not end in a space and a count"},
		{"a;b 99999999999999999999\n", "line 1 does not end in a space and a count"},
		{"a;b 1.2.3\n", "line 1 does not end in a space and a count"},
		{"17\n", "line 1 does not end in a space and a count"},
		{"a 9223372036854775807\nb 1\n", "line 2: counts add up to more than 63 bits"},
		{"# nothing\n", "no stacks in it"},
	};
	static const char nul[] = "a;b 1\na;b\0c 2\n";
	struct profile *none = NULL;
	struct diag said = {};

	cr_expect_lt(folded_read((const u8 *)nul, sizeof(nul) - 1, &none, &said), 0);
	cr_expect_str_eq(said.text, "line 2 has a NUL byte in it");

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct profile *p = NULL;
		struct diag d = {};

		cr_expect_lt(folded_read((const u8 *)cases[i].text, strlen(cases[i].text), &p, &d),
			     0);
		cr_expect_str_eq(d.text, cases[i].says);
		cr_expect_null(p);
	}
}

Test(folded, diff_has_two_counts_and_can_be_normalised)
{
	_cleanup_profile_ struct profile *before = from_folded("a;f 10\na;g 30\n");
	_cleanup_profile_ struct profile *after = from_folded("a;f 60\na;h 20\n");
	struct profile_write_options o = {.base = before};

	assert_folded(after, &o, "a;f 10 60\na;g 30 0\na;h 0 20\n");
	o.normalize = true;
	assert_folded(after, &o, "a;f 20 60\na;g 60 0\na;h 0 20\n");
}

/* ---- tree ---- */

/* "name self total" in pre-order, indented by depth. */
static void assert_tree(const struct profile_tree *t, const char *want)
{
	_cleanup_str_ struct str out = {};

	for (size_t i = 0; i < t->nodes.n; i++) {
		const struct profile_node *n = &t->nodes.data[i];

		for (u32 up = n->parent; up != PROFILE_NONE; up = t->nodes.data[up].parent)
			str_putc(&out, ' ');
		str_printf(&out, "%s%s %lld %lld", strtab_get(&t->strings, n->name),
			   n->kind == FRAME_KERNEL ? "_[k]" : "", n->self, n->total);
		if (t->has_base)
			str_printf(&out, " (%lld %lld)", n->base_self, n->base_total);
		str_putc(&out, '\n');
	}
	cr_assert_str_eq(str_get(&out), want);
}

static struct profile_tree *tree(const struct profile *p, const struct profile_tree_options *o)
{
	struct profile_tree *t = NULL;

	cr_assert_eq(profile_tree_build(p, o, &t), 0);
	return t;
}

Test(tree, is_in_preorder_and_sorted_with_sums)
{
	_cleanup_profile_ struct profile *p =
		from_folded("b;m;z 1\nb;m 2\na;x 4\nb;m;y;z 8\nb;m;z_[k] 16\n");
	_cleanup_profile_tree_ struct profile_tree *t = tree(p, NULL);

	assert_tree(t, "all 0 31\n"
		       " a 0 4\n"
		       "  x 4 4\n"
		       " b 0 27\n"
		       "  m 2 27\n"
		       "   y 0 8\n"
		       "    z 8 8\n"
		       "   z 1 1\n"
		       "   z_[k] 16 16\n");
	cr_assert_eq(t->depth, 4);
	cr_assert_eq(t->nodes.data[0].n_below, 8);
	cr_assert_eq(t->nodes.data[3].n_below, 5);
	cr_assert_eq(t->nodes.data[1].level, PROFILE_LEVEL_PROCESS);
	cr_assert_eq(t->nodes.data[1].frame, PROFILE_NONE);
	cr_assert_eq(t->nodes.data[2].level, PROFILE_LEVEL_FRAME);
}

Test(tree, inverted_starts_at_the_leaves)
{
	_cleanup_profile_ struct profile *p = from_folded("a;m;z 1\na;n;z 2\n");
	struct profile_tree_options o = {.inverted = true, .no_process = true};
	_cleanup_profile_tree_ struct profile_tree *t = tree(p, &o);

	assert_tree(t, "all 0 3\n z 0 3\n  m 1 1\n  n 2 2\n");
}

Test(tree, by_line_keeps_lines_apart)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct profile_tree_options o = {.by_line = true};
	_cleanup_profile_tree_ struct profile_tree *lines = NULL, *names = NULL;
	u32 a, b;

	profile_add_type(p, "samples", "count");
	a = frame(p, "f", "/bin/x", 1, FRAME_NATIVE, 0, 20);
	b = frame(p, "f", "/bin/x", 2, FRAME_NATIVE, PROFILE_FRAME_INLINED, 10);
	sample(p, 0, PROFILE_NONE, &a, 1, 1);
	sample(p, 0, PROFILE_NONE, &b, 1, 2);
	lines = tree(p, &o);
	names = tree(p, NULL);
	assert_tree(lines, "all 0 3\n f 2 2\n f 1 1\n");
	cr_assert_eq(lines->nodes.data[1].line, 10);
	cr_assert_eq(lines->nodes.data[1].flags, PROFILE_FRAME_INLINED);
	assert_tree(names, "all 0 3\n f 3 3\n");
	cr_assert_eq(names->nodes.data[1].flags, 0);
}

Test(tree, diff_is_the_union)
{
	_cleanup_profile_ struct profile *p = from_folded("a;f 10\na;g;h 30\n");
	_cleanup_profile_ struct profile *q = from_folded("a;f 60\na;h 20\n");
	_cleanup_profile_tree_ struct profile_tree *before = tree(p, NULL), *after = tree(q, NULL),
						   *diff = NULL;

	cr_assert_eq(profile_tree_diff(before, after, &diff), 0);
	assert_tree(diff, "all 0 80 (0 40)\n"
			  " a 0 80 (0 40)\n"
			  "  f 60 60 (10 10)\n"
			  "  g 0 0 (0 30)\n"
			  "   h 0 0 (30 30)\n"
			  "  h 20 20 (0 0)\n");
}

Test(tree, sums_agree_on_random_profiles)
{
	unsigned int seed = 42;

	for (int round = 0; round < 50; round++) {
		_cleanup_profile_ struct profile *p = profile_create();
		_cleanup_profile_tree_ struct profile_tree *t = NULL;
		struct profile_tree_options o = {.threads = round & 1,
						 .pids = round & 2,
						 .inverted = round & 4,
						 .no_inline = round & 8};
		s64 all = 0, self = 0;

		profile_add_type(p, "samples", "count");
		for (int i = 0; i < 200; i++) {
			u32 ids[12], n = (u32)rand_r(&seed) % 12;
			s64 v = rand_r(&seed) % 100;
			char name[2] = {};

			for (u32 k = 0; k < n; k++) {
				name[0] = (char)('a' + rand_r(&seed) % 6);
				ids[k] = frame(p, name, NULL, 0,
					       rand_r(&seed) % 2 ? FRAME_NATIVE : FRAME_KERNEL,
					       rand_r(&seed) % 2, 0);
			}
			name[0] = (char)('p' + rand_r(&seed) % 3);
			sample(p, (u64)rand_r(&seed) % 3, thread(p, name, "t", 1, 1), ids, n, v);
			all += v;
		}
		t = tree(p, &o);
		for (size_t i = 0; i < t->nodes.n; i++) {
			const struct profile_node *n = &t->nodes.data[i];
			s64 below = n->self;

			self += n->self;
			for (size_t c = i + 1; c <= i + n->n_below;
			     c += t->nodes.data[c].n_below + 1)
				below += t->nodes.data[c].total;
			cr_assert_eq(below, n->total);
		}
		cr_assert_eq(self, all);
		cr_assert_eq(t->nodes.data[0].total, all);
	}
}

Test(tree, a_stack_of_a_million_frames_is_only_deep)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_profile_tree_ struct profile_tree *t = NULL;
	_cleanup_free_ u32 *ids = calloc(1000000, sizeof(u32));
	u32 f;

	profile_add_type(p, "samples", "count");
	f = frame(p, "f", NULL, 0, FRAME_NATIVE, 0, 0);
	for (size_t i = 0; i < 1000000; i++)
		ids[i] = f;
	sample(p, 0, PROFILE_NONE, ids, 1000000, 1);
	t = tree(p, NULL);
	cr_assert_eq(t->depth, 1000000);
	cr_assert_eq(t->nodes.data[0].total, 1);
}

/* ---- text ---- */

Test(text, decodes_utf8_and_nothing_else)
{
	static const char *const bad[] = {"\x80",
					  "\xc0\xaf",
					  "\xe0\x80\xaf",
					  "\xed\xa0\x80",
					  "\xf4\x90\x80\x80",
					  "\xf8\x88\x80\x80\x80",
					  "\xe2\x82",
					  "\xff"};
	u32 c = 0;

	cr_assert_eq(text_decode("\xe2\x82\xac!", 4, &c), 3);
	cr_assert_eq(c, 0x20ac);
	cr_assert_eq(text_decode("\xf0\x9f\x94\xa5", 4, &c), 4);
	cr_assert_eq(c, 0x1f525);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_expect_eq(text_decode(bad[i], strlen(bad[i]), &c), 0, "%zu", i);
}

/* ---- files ---- */

static char dir[] = "/tmp/culprit-test-XXXXXX";

static void enter_dir(void)
{
	cr_assert_not_null(mkdtemp(dir));
	cr_assert_eq(chdir(dir), 0);
}

static void leave_dir(void)
{
	static const char *const names[] = {"a.folded", "b.folded.gz", "link.folded", "x.txt"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)unlink(names[i]);
	/* rmdir() fails if a temporary file is left. */
	cr_assert_eq(rmdir(dir), 0);
}

static void put(const char *path, const char *text, size_t n)
{
	_cleanup_fclose_ FILE *f = fopen(path, "w");

	cr_assert_eq(fwrite(text, 1, n, f), n);
}

Test(file, is_written_whole_and_read_back, .init = enter_dir, .fini = leave_dir)
{
	_cleanup_profile_ struct profile *p = from_folded("a;b 1\n"), *again = NULL;
	const struct profile_format *f = NULL;
	struct diag d = {};
	struct stat st;

	cr_assert_eq(profile_write_check("a.folded", NULL, &f, &d), 0, "%s", d.text);
	cr_assert_str_eq(f->name, "folded");
	cr_assert_lt(access("a.folded", F_OK), 0);
	cr_assert_eq(symlink("a.folded", "link.folded"), 0);
	cr_assert_eq(profile_write_file(p, "link.folded", f, NULL, &d), 0, "%s", d.text);
	cr_assert_eq(lstat("link.folded", &st), 0);
	cr_assert(S_ISLNK(st.st_mode));
	cr_assert_eq(profile_read_file("a.folded", NULL, &again, &d), 0, "%s", d.text);
	assert_folded(again, NULL, "a;b 1\n");
}

Test(file, gzip_is_told_by_ending_and_by_content, .init = enter_dir, .fini = leave_dir)
{
	_cleanup_profile_ struct profile *p = from_folded("a;b 1\n"), *again = NULL;
	const struct profile_format *f = NULL;
	struct diag d = {};
	char head[2] = {};
	_cleanup_fclose_ FILE *raw = NULL;

	cr_assert_eq(profile_write_check("b.folded.gz", NULL, &f, &d), 0, "%s", d.text);
	cr_assert_eq(profile_write_file(p, "b.folded.gz", f, NULL, &d), 0, "%s", d.text);
	raw = fopen("b.folded.gz", "r");
	cr_assert_eq(fread(head, 1, 2, raw), 2);
	cr_assert(!memcmp(head, "\x1f\x8b", 2));
	cr_assert_eq(profile_read_file("b.folded.gz", NULL, &again, &d), 0, "%s", d.text);
	assert_folded(again, NULL, "a;b 1\n");
}

Test(file, what_cannot_be_done_is_said, .init = enter_dir, .fini = leave_dir)
{
	const struct profile_format *f = NULL;
	struct profile *p = NULL;
	struct diag d = {};

	cr_expect_lt(profile_write_check("no/such/a.folded", NULL, &f, &d), 0);
	cr_expect_str_eq(d.text, "cannot write no/such/a.folded: No such file or directory");
	d = (struct diag){};
	cr_expect_lt(profile_write_check("a.what", NULL, &f, &d), 0);
	cr_expect(str_starts(d.text, "a.what: the ending names no format; use --format with one"));
	d = (struct diag){};
	cr_expect_lt(profile_write_check("a.folded", "nonsense", &f, &d), 0);
	cr_expect(str_starts(d.text, "unknown format 'nonsense'; there are: "));
	d = (struct diag){};
	cr_expect_lt(profile_write_check("/tmp", "folded", &f, &d), 0);
	cr_expect_str_eq(d.text, "cannot write /tmp: it is a directory");
	d = (struct diag){};
	cr_expect_eq(profile_read_file("missing", NULL, &p, &d), -ENOENT);
	cr_expect_str_eq(d.text, "missing: cannot open: No such file or directory");
	d = (struct diag){};
	put("x.txt", "", 0);
	cr_expect_lt(profile_read_file("x.txt", NULL, &p, &d), 0);
	cr_expect_str_eq(d.text, "x.txt: is empty");
	d = (struct diag){};
	put("x.txt", "\x1f\x8b\x08zzzz", 7);
	cr_expect_eq(profile_read_file("x.txt", NULL, &p, &d), -EBADMSG);
	d = (struct diag){};
	put("x.txt",
	    "\x7f"
	    "ELF\0\0",
	    6);
	cr_expect_eq(profile_read_file("x.txt", NULL, &p, &d), -EBADMSG);
	cr_expect(str_starts(d.text, "x.txt: not a profile in a known format"));
	cr_expect_null(f);
	cr_expect_null(p);
}

Test(gzip, members_limits_and_damage)
{
	_cleanup_str_ struct str packed = {}, plain = {}, zeros = {}, bomb = {};
	struct diag d = {};
	size_t one;

	cr_assert_eq(gzip_deflate("hello ", 6, &packed), 0);
	one = packed.n;
	cr_assert_eq(gzip_deflate("world", 5, &packed), 0);
	cr_assert_eq(gzip_inflate((u8 *)packed.data, packed.n, 100, &plain, &d), 0, "%s", d.text);
	cr_assert_str_eq(str_get(&plain), "hello world");
	for (size_t n = 0; n < one; n++) {
		str_clear(&plain);
		cr_assert_eq(gzip_inflate((u8 *)packed.data, n, 100, &plain, NULL), -EBADMSG);
	}
	for (int i = 0; i < 1 << 20; i++)
		str_append(&zeros, "\0\0\0\0", 4);
	cr_assert_eq(gzip_deflate(zeros.data, zeros.n, &bomb), 0);
	str_clear(&plain);
	cr_assert_eq(gzip_inflate((u8 *)bomb.data, bomb.n, 1 << 20, &plain, &d), -EFBIG);
	cr_assert_str_eq(d.text, "more than 1 MiB when decompressed");
	cr_assert_leq(plain.n, 1 << 20);
}

/* ---- the hottest line of a function ---- */

static void add_lines(struct profile *p, const u32 *lines, size_t n, s64 value)
{
	u32 ids[4], stack;

	for (size_t i = 0; i < n; i++) {
		struct profile_function fn = {.name = string(p, i ? "main" : "work"),
					      .file = string(p, i ? "/src/main.c" : "/src/work.c")};
		struct profile_frame f = {
			.mapping = PROFILE_NONE, .line = lines[i], .kind = FRAME_NATIVE};

		cr_assert_eq(profile_add_function(p, &fn, &f.function), 0);
		cr_assert_eq(profile_add_frame(p, &f, &ids[i]), 0);
	}
	cr_assert_eq(profile_add_stack(p, ids, n, &stack), 0);
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack, &value), 0);
}

Test(table, a_function_has_its_hottest_line)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_profile_table_ struct profile_table *t = NULL;
	const struct profile_row *rows;

	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	add_lines(p, (u32[]){10, 5}, 2, 3);
	add_lines(p, (u32[]){20, 6}, 2, 2);
	add_lines(p, (u32[]){20, 7}, 2, 2);
	add_lines(p, (u32[]){0, 5}, 2, 9);
	cr_assert_eq(profile_table_build(p, NULL, &t), 0);
	rows = t->rows.data;
	cr_assert_eq(t->rows.n, 2);
	/* Line 20 has 4, and 9 samples have no line. */
	cr_expect_str_eq(strtab_get(&t->strings, rows[0].name), "work");
	cr_expect_str_eq(strtab_get(&t->strings, rows[0].file), "/src/work.c");
	cr_expect_eq(rows[0].line, 20);
	/* It has no self value: the line of its hottest call. */
	cr_expect_eq(rows[1].self, 0);
	cr_expect_eq(rows[1].line, 5);
}
