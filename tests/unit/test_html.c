/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML writer: reads the page's data back in C, by doc/format/html.md. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/varint.h"
#include "format/html.h"
#include "profile_fixture.h"

#define HOSTILE "</script><script>alert(1)</script><!--"

struct body {
	u8 *data;
	size_t n;
};

static void body_deinit(struct body *b)
{
	free(b->data);
}
#define _cleanup_body_ __attribute__((cleanup(body_deinit)))

static int digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Unpacks the text of the page's last data element. */
static struct body unpack(const struct str *page)
{
	static const char open[] = "<script id=\"culprit-data\" type=\"application/x-culprit\">";
	const char *at = strstr(str_get(page), open), *end;
	struct body out = {.n = 64 << 20};
	uLongf n = out.n;
	size_t packed_n = 0;
	u8 *packed;
	u32 bits = 0, have = 0;

	cr_assert_not_null(at);
	at += strlen(open);
	end = strstr(at, "</script>");
	cr_assert_not_null(end);
	cr_assert_null(strstr(end + 1, "<script"), "nothing follows the data");
	packed = malloc((size_t)(end - at));
	for (; at < end && *at != '='; at++) {
		cr_assert_geq(digit(*at), 0, "only base64 in the element");
		bits = bits << 6 | (u32)digit(*at);
		have += 6;
		if (have >= 8)
			packed[packed_n++] = (u8)(bits >> (have -= 8));
	}
	out.data = malloc(out.n);
	cr_assert_eq(uncompress(out.data, &n, packed, packed_n), Z_OK);
	out.n = n;
	free(packed);
	return out;
}

/* Returns a copy of a section's content with a NUL after it; "" and n = 0 if absent. */
static char *section(const struct body *b, const char *tag, size_t *ret_n)
{
	size_t n;

	cr_assert_eq(memcmp(b->data, "CULPRIT1", 8), 0);
	for (size_t at = 8; at < b->n; at += 8 + n) {
		const u8 *h = b->data + at;

		cr_assert_leq(at + 8, b->n);
		n = h[4] | (size_t)h[5] << 8 | (size_t)h[6] << 16 | (size_t)h[7] << 24;
		cr_assert_leq(at + 8 + n, b->n, "sections fill the body");
		if (!memcmp(h, tag, 4)) {
			char *copy = calloc(1, n + 1);

			cr_assert_not_null(copy);
			memcpy(copy, h + 8, n);
			*ret_n = n;
			return copy;
		}
	}
	*ret_n = 0;
	return strdup("");
}

static bool body_has(const struct body *b, const char *text)
{
	return memmem(b->data, b->n, text, strlen(text)) != NULL;
}

static void write_page(const struct profile *p, const struct profile_write_options *o,
		       struct str *page)
{
	static const struct profile_write_options none = {};
	struct diag d = {};

	cr_assert_eq(html_write(p, o ? o : &none, page, &d), 0, "%s", d.text);
}

Test(html, hostile_names_stay_in_the_payload)
{
	_cleanup_profile_ struct profile *p =
		from_folded("app;" HOSTILE ";\xff\xfe\" onload=x 3\n");
	struct profile_write_options o = {.title = HOSTILE};
	_cleanup_str_ struct str page = {};
	_cleanup_body_ struct body b = {};

	write_page(p, &o, &page);
	cr_assert_null(strstr(str_get(&page), "alert(1)"));
	cr_assert_null(strstr(str_get(&page), "onload=x"));
	cr_assert_eq(strlen(str_get(&page)), page.n, "text, without a NUL");
	b = unpack(&page);
	cr_assert(body_has(&b, HOSTILE));
}

Test(html, page_may_load_nothing)
{
	_cleanup_profile_ struct profile *p = from_folded("app;main 1\n");
	_cleanup_str_ struct str page = {};
	const char *csp;

	write_page(p, NULL, &page);
	csp = strstr(str_get(&page), "Content-Security-Policy");
	cr_assert_not_null(csp);
	cr_assert_eq(
		strncmp(csp,
			"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-",
			72),
		0);
	cr_assert_null(strstr(str_get(&page), "unsafe-inline"));
	cr_assert_null(strstr(str_get(&page), "<script src"));
	cr_assert_null(strstr(str_get(&page), "<link rel=\"stylesheet\""));
}

Test(html, tree_is_preorder_with_self_values)
{
	/* Nodes in pre-order: all app a b c. Frames are numbered by their first use. */
	_cleanup_profile_ struct profile *p = from_folded("app;a;b 300\napp;a 1\napp;c 2\n");
	static const u8 want[] = {5,
				  0,
				  1,
				  2,
				  3,
				  4,
				  /* up */ 0,
				  0,
				  0,
				  0,
				  2,
				  /* zigzag self */ 0,
				  0,
				  2,
				  0xd8,
				  0x04,
				  4};
	_cleanup_str_ struct str page = {};
	_cleanup_body_ struct body b = {};
	_cleanup_free_ char *tree = NULL, *base = NULL;
	size_t n;

	write_page(p, NULL, &page);
	b = unpack(&page);
	tree = section(&b, "TREE", &n);
	cr_assert_eq(n, sizeof(want));
	cr_assert_eq(memcmp(tree, want, n), 0);
	base = section(&b, "BASE", &n);
	cr_assert_eq(n, 0);
}

Test(html, comparison_holds_the_other_side_unscaled)
{
	_cleanup_profile_ struct profile *p = from_folded("app;a 10\n");
	_cleanup_profile_ struct profile *before = from_folded("app;a 3\napp;gone 4\n");
	struct profile_write_options o = {.base = before, .normalize = true};
	static const u8 want[] = {0, 0, 6, 8};
	_cleanup_str_ struct str page = {};
	_cleanup_body_ struct body b = {};
	_cleanup_free_ char *base = NULL, *meta = NULL;
	size_t n;

	write_page(p, &o, &page);
	b = unpack(&page);
	base = section(&b, "BASE", &n);
	cr_assert_eq(n, sizeof(want));
	cr_assert_eq(memcmp(base, want, n), 0);
	meta = section(&b, "META", &n);
	cr_assert_not_null(strstr(meta, "\"normalize\":1"));
	cr_assert_not_null(strstr(meta, "\"base_samples\":7"));
}

/* A wait of 2 µs for a lock, and one of 1 µs for it that ends 3 µs later. */
static struct profile *two_waits(u32 tid)
{
	struct profile *p = profile_create();
	u32 main_ = frame(p, "main", NULL, 0, FRAME_NATIVE, 0, 0), stack, thread_id;
	struct profile_label labels[] = {{string(p, "wait"), string(p, "lock")},
					 {string(p, "lock"), string(p, "0x10")},
					 {string(p, "owner"), string(p, "9")}};
	struct profile_thread t = {
		.pid = 7, .tid = tid, .comm = string(p, "app"), .thread_name = string(p, "w")};

	cr_assert_eq(profile_add_table_type(p, SAMPLE_TYPE_OFF_CPU), 0);
	cr_assert_eq(profile_add_resource(p, labels, ARRAY_SIZE(labels), &t.attributes), 0);
	cr_assert_eq(profile_add_thread(p, &t, &thread_id), 0);
	cr_assert_eq(profile_add_stack(p, &main_, 1, &stack), 0);
	cr_assert_eq(profile_add_sample(p, 5000, thread_id, stack, (s64[]){2000}), 0);
	cr_assert_eq(profile_add_sample(p, 8000, thread_id, stack, (s64[]){1000}), 0);
	return p;
}

Test(html, samples_of_waits_tell_thread_lock_and_time)
{
	_cleanup_profile_ struct profile *p = two_waits(8), *nobody = two_waits(0);
	_cleanup_str_ struct str page = {}, without = {};
	_cleanup_body_ struct body b = {}, c = {};
	_cleanup_free_ char *got = NULL, *none = NULL;
	/* The last node is [lock], below all, app and main; values are zigzag. */
	static const u8 samples[] = {2, 3, 0, 0xa0, 0x1f, 10, 3, 0, 0xd0, 0x0f, 6};
	size_t n;

	write_page(p, NULL, &page);
	b = unpack(&page);
	got = section(&b, "SMPL", &n);
	/* One thread: texts of process, thread; pid, tid; texts of lock, owner, peer. */
	cr_assert_eq(n, 8 + sizeof(samples));
	cr_assert_eq(got[0], 1);
	cr_assert_eq(got[3], 7);
	cr_assert_eq(got[4], 8);
	cr_assert_eq(memcmp(got + 8, samples, sizeof(samples)), 0);
	write_page(nobody, NULL, &without);
	c = unpack(&without);
	none = section(&c, "SMPL", &n);
	cr_assert_eq(n, 0, "without threads the tree tells all");
}

/* A frame of shop.py's `name` in a line; 0: its line is not known. */
static u32 line_of(struct profile *p, const char *name, u32 line)
{
	struct profile_function fn = {
		.name = string(p, name), .file = string(p, "shop.py"), .start_line = 27};
	struct profile_frame f = {.mapping = PROFILE_NONE, .line = line, .kind = FRAME_PYTHON};
	u32 id;

	fn.system_name = fn.name;
	cr_assert_eq(profile_add_function(p, &fn, &f.function), 0);
	cr_assert_eq(profile_add_frame(p, &f, &id), 0);
	return id;
}

static void add_lines(struct profile *p, const u32 *lines, size_t n, s64 value)
{
	u32 frames[8], stack;

	for (size_t i = 0; i < n; i++)
		frames[i] = line_of(p, "check", lines[i]);
	cr_assert_eq(profile_add_stack(p, frames, n, &stack), 0);
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack, &value), 0);
}

/*
 * Line 28 has 5 of 16: in the first stack it stands twice and counts once, and line 30 counts,
 * too; 4 have no line.
 */
Test(html, the_hot_line_of_a_function_has_its_base)
{
	static const u8 want[] = {/* lines of all and check */ 0, 28, /* value */ 10, /* of */ 32};
	_cleanup_profile_ struct profile *p = profile_create(), *again = NULL;
	_cleanup_str_ struct str page = {}, second = {};
	_cleanup_body_ struct body b = {}, c = {};
	_cleanup_free_ char *got = NULL, *none = NULL;
	struct diag d = {};
	size_t n;

	cr_assert_eq(profile_add_table_type(p, SAMPLE_TYPE_SAMPLES), 0);
	add_lines(p, (u32[]){28, 30, 28}, 3, 4);
	add_lines(p, (u32[]){28}, 1, 1);
	add_lines(p, (u32[]){31}, 1, 3);
	add_lines(p, (u32[]){32}, 1, 4);
	add_lines(p, (u32[]){0}, 1, 4);
	write_page(p, NULL, &page);
	b = unpack(&page);
	got = section(&b, "LINE", &n);
	cr_assert_eq(n, sizeof(want));
	cr_assert_eq(memcmp(got, want, n), 0);
	/* A page has one line a function, of which it does not know the share. */
	cr_assert_eq(html_read((const u8 *)page.data, page.n, &again, &d), 0, "%s", d.text);
	write_page(again, NULL, &second);
	c = unpack(&second);
	none = section(&c, "LINE", &n);
	cr_assert_eq(n, 0);
}

/* Where a function starts is not known: the one line that the page has tells no share. */
Test(html, one_of_the_lines_hit_is_no_hot_line)
{
	_cleanup_profile_ struct profile *p = profile_create(), *again = NULL;
	struct profile_function fn = {.name = string(p, "f"), .file = string(p, "a.c")};
	struct profile_frame f = {.mapping = PROFILE_NONE, .line = 5, .kind = FRAME_NATIVE};
	_cleanup_str_ struct str page = {}, second = {};
	_cleanup_free_ char *none = NULL;
	_cleanup_body_ struct body c = {};
	struct diag d = {};
	u32 frame_id, stack;
	size_t n;

	fn.system_name = fn.name;
	cr_assert_eq(profile_add_table_type(p, SAMPLE_TYPE_SAMPLES), 0);
	cr_assert_eq(profile_add_function(p, &fn, &f.function), 0);
	cr_assert_eq(profile_add_frame(p, &f, &frame_id), 0);
	cr_assert_eq(profile_add_stack(p, &frame_id, 1, &stack), 0);
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack, (s64[]){1}), 0);
	write_page(p, NULL, &page);
	cr_assert_eq(html_read((const u8 *)page.data, page.n, &again, &d), 0, "%s", d.text);
	write_page(again, NULL, &second);
	c = unpack(&second);
	none = section(&c, "LINE", &n);
	cr_assert_eq(n, 0);
}

Test(html, zero_lost_is_said_only_when_counted)
{
	_cleanup_profile_ struct profile *p = from_folded("app;main 1\n");
	_cleanup_str_ struct str one = {}, two = {};
	_cleanup_body_ struct body a = {}, b = {};
	_cleanup_free_ char *meta_a = NULL, *meta_b = NULL;
	size_t n;

	write_page(p, NULL, &one);
	p->quality.measured = true;
	write_page(p, NULL, &two);
	a = unpack(&one);
	b = unpack(&two);
	meta_a = section(&a, "META", &n);
	meta_b = section(&b, "META", &n);
	cr_assert_null(strstr(meta_a, "lost"));
	cr_assert_not_null(strstr(meta_b, "\"lost\":0"));
	cr_assert_not_null(strstr(meta_a, "\"samples\":1"));
}

Test(html, files_binaries_and_kinds_are_in_it)
{
	_cleanup_profile_ struct profile *p = full_profile();
	_cleanup_str_ struct str page = {};
	_cleanup_body_ struct body b = {};

	write_page(p, NULL, &page);
	b = unpack(&page);
	cr_assert(body_has(&b, "/usr/bin/app"));
	cr_assert(body_has(&b, "kernel"));
	cr_assert(body_has(&b, "Linux kernel, its modules and BPF programs"));
}

Test(html, empty_profile_is_a_page_too)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_str_ struct str page = {};
	_cleanup_body_ struct body b = {};

	write_page(p, NULL, &page);
	b = unpack(&page);
	cr_assert(body_has(&b, "CULPRIT1"));
}

Test(html, payload_alone_is_the_body_of_the_page)
{
	static const struct profile_write_options none = {};
	_cleanup_profile_ struct profile *p = from_folded("app;main;work 3\napp;main 1\n");
	_cleanup_str_ struct str page = {}, raw = {}, packed = {};
	_cleanup_body_ struct body b = {}, again = {.data = malloc(1 << 20)};
	uLongf n = 1 << 20;
	struct diag d = {};

	write_page(p, NULL, &page);
	b = unpack(&page);
	cr_assert_eq(profile_write_payload(p, &none, false, &raw, &d), 0, "%s", d.text);
	cr_assert_eq(profile_write_payload(p, &none, true, &packed, &d), 0, "%s", d.text);
	cr_assert_eq(raw.n, b.n);
	cr_assert_eq(memcmp(raw.data, b.data, b.n), 0);
	cr_assert_eq(uncompress(again.data, &n, (const Bytef *)packed.data, packed.n), Z_OK);
	cr_assert_eq(n, b.n);
	cr_assert_eq(memcmp(again.data, b.data, b.n), 0);
}

/* ---- reading a page again ---- */

static void assert_read(const char *folded, const struct profile_write_options *o, const char *want)
{
	_cleanup_profile_ struct profile *p = from_folded(folded), *again = NULL;
	_cleanup_str_ struct str page = {};
	struct diag d = {};

	write_page(p, NULL, &page);
	cr_assert_eq(html_probe((const u8 *)page.data, page.n), 90);
	cr_assert_eq(html_read((const u8 *)page.data, page.n, &again, &d), 0, "%s", d.text);
	assert_folded(again, o, want);
	cr_expect_eq(again->quality.samples, p->quality.samples);
}

Test(html, a_page_reads_back)
{
	static const char text[] = "app;[truncated: too many frames];main;f_[i];g 4\n"
				   "app;main;[unknown];libfoo.so.1+0x1234 1\n"
				   "app;main;jitted_[j] 2\n"
				   "app;main;say \"hi\" \\o/;vfs_read_[k] 3\n"
				   "kworker/0:1 9\n";
	struct profile_write_options annotate = {.annotate = true};

	assert_read(text, &annotate, text);
	assert_read("[Pod]shop-1;[Con]shop;[7]java;a;b 2\n", NULL, "java;a;b 2\n");
}

Test(html, names_files_lines_and_types_read_back)
{
	_cleanup_profile_ struct profile *p = profile_create(), *again = NULL;
	struct profile_function fn = {.name = string(p, "pay"),
				      .system_name = string(p, "pay"),
				      .file = string(p, "/src/shop.c"),
				      .start_line = 27};
	struct profile_frame f = {.mapping = PROFILE_NONE, .kind = FRAME_NATIVE};
	_cleanup_str_ struct str page = {};
	u32 id, stack;
	s64 value = 1500;
	struct diag d = {};

	cr_assert_eq(profile_add_type(p, "off_cpu", "nanoseconds"), 0);
	cr_assert_eq(profile_add_function(p, &fn, &f.function), 0);
	cr_assert_eq(profile_add_frame(p, &f, &id), 0);
	cr_assert_eq(profile_add_stack(p, &id, 1, &stack), 0);
	cr_assert_eq(profile_add_sample(p, 0, PROFILE_NONE, stack, &value), 0);
	p->duration_ns = 12;
	p->quality = (struct profile_quality){.samples = 7, .lost = 3, .measured = true};
	write_page(p, NULL, &page);
	cr_assert_eq(html_read((const u8 *)page.data, page.n, &again, &d), 0, "%s", d.text);
	cr_assert_eq(again->n_samples, 1);
	cr_expect_eq(profile_sample(again, 0)->value[0], 1500);
	cr_expect_str_eq(profile_string(again, again->types[0].name), "off_cpu");
	cr_expect_str_eq(profile_string(again, again->types[0].unit), "nanoseconds");
	cr_expect_str_eq(profile_string(again, again->functions.data[0].file), "/src/shop.c");
	cr_expect_eq(again->functions.data[0].start_line, 27);
	cr_expect_eq(again->duration_ns, 12);
	cr_expect_eq(again->quality.samples, 7);
	cr_expect_eq(again->quality.lost, 3);
}

static void assert_refused(const struct str *page, size_t n, const char *says)
{
	struct profile *p = NULL;
	struct diag d = {};

	cr_expect_lt(html_read((const u8 *)page->data, n, &p, &d), 0);
	cr_expect_str_eq(d.text, says);
	cr_expect_null(p);
}

Test(html, what_cannot_be_read_is_told)
{
	_cleanup_profile_ struct profile *p = from_folded("app;a 10\n"),
					 *before = from_folded("app;a 3\n");
	struct profile_write_options o = {.base = before};
	_cleanup_str_ struct str page = {}, other = {}, odd = {};

	write_page(p, &o, &page);
	assert_refused(&page, page.n, "html: it is a comparison: give the two profiles themselves");
	str_puts(&other, "<!DOCTYPE html><p>hello");
	cr_expect_eq(html_probe((const u8 *)other.data, other.n), 0);
	assert_refused(&other, other.n, "html: it has no profile");
	str_puts(&odd, "<html>" HTML_ELEMENT "&&</script>");
	assert_refused(&odd, odd.n, "html: its data is not base64");
}

/* A chain of 20,000 functions, each with a value of its own: 200 million frames, written out. */
Test(html, a_small_tree_of_deep_stacks_is_refused)
{
	_cleanup_str_ struct str body = {}, s = {};
	struct profile *p = NULL;
	struct diag d = {};
	u32 depth = 20000;

#define SECTION(tag)                                                                               \
	do {                                                                                       \
		u32 n_ = (u32)s.n;                                                                 \
		str_puts(&body, tag);                                                              \
		str_append(&body, &n_, 4);                                                         \
		str_append(&body, s.data, s.n);                                                    \
		str_clear(&s);                                                                     \
	} while (0)
	str_puts(&body, HTML_MAGIC);
	str_append(&s,
		   "\x02\x00\x01"
		   "f",
		   4);
	SECTION("STRS");
	str_append(&s, "\x01\x00\x00", 3);
	SECTION("KIND");
	str_append(&s, "\x00", 1);
	SECTION("MAPS");
	str_append(&s, "\x01\x01\x00\x00\x00\x00\x00", 7);
	SECTION("FRAM");
	str_puts(&s, "{}");
	SECTION("META");
	varint_put(&s, depth);
	for (u32 i = 0; i < 2 * depth; i++)
		str_append(&s, "\x00", 1);
	for (u32 i = 0; i < depth; i++)
		str_append(&s, "\x02", 1);
	SECTION("TREE");
	cr_assert_eq(html_read_body((const u8 *)body.data, body.n, &p, &d), -EFBIG, "%s", d.text);
	cr_expect_str_eq(d.text, "html: its stacks are too deep for its size");
	cr_expect_null(p);
}
