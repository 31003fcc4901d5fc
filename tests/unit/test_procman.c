/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of procman that need no kernel: mapping sets, records. tests/live has the rest. */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/procman/binary.h"
#include "agent/procman/mapping.h"
#include "agent/procman/sideband.h"

#define N_PAGES 64
#define N_BINARIES 5
#define PAGE 4096ULL

static u64 random_state = 88172645463325252ULL;

static u32 random_below(u32 n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (u32)(random_state >> 33) % n;
}

/* Binaries without a table: only their references matter. */
static struct binary binaries[N_BINARIES];

static void binaries_reset(void)
{
	for (u32 i = 0; i < N_BINARIES; i++) {
		binaries[i] = (struct binary){.fd = -1, .refs = 1};
		binaries[i].pub.file_id = i + 1;
	}
	/* Offsets in anonymous memory are its addresses. */
	binaries[0].pub.kind = PROCMAN_ANON;
}

static struct procman_mapping random_mapping(void)
{
	u32 first = random_below(N_PAGES), n = 1 + random_below(N_PAGES - first);
	u32 b = random_below(N_BINARIES), shift = random_below(3);
	struct procman_mapping m = {.start = first * PAGE, .binary = &binaries[b].pub};

	if (random_below(2))
		n = 1 + random_below(MIN(n, 3u));
	m.end = m.start + n * PAGE;
	/* Three file offsets for each address, so that neighbours often fit together. */
	m.foff = m.start + (b ? shift * 16 * PAGE : 0);
	m.bias = m.start - m.foff;
	procman_binary_get(m.binary);
	return m;
}

/* The model for comparison: the mapping of each page of the address space. */
struct page {
	struct procman_binary *binary;
	u64 foff;
};

static void model_map(struct page *model, const struct procman_mapping *m)
{
	for (u64 a = m->start; a < m->end; a += PAGE)
		model[a / PAGE] = (struct page){m->binary, m->foff + (a - m->start)};
}

static void check_set(const struct mapping_set *s, const struct page *model)
{
	const struct procman_mapping *before = NULL;
	u32 n = s ? (u32)s->m.n : 0, n_model = 0;

	for (u32 i = 0; i < n; i++) {
		const struct procman_mapping *m = &s->m.data[i];

		cr_assert_lt(m->start, m->end);
		cr_assert(!before || before->end <= m->start);
		cr_assert_eq(m->bias, m->start - m->foff);
		before = m;
	}
	for (u32 page = 0; page < N_PAGES; page++) {
		const struct procman_mapping *m =
			mapping_find(s ? s->m.data : NULL, n, page * PAGE + random_below(PAGE));
		const struct page *is = &model[page], *was = page ? is - 1 : NULL;

		cr_assert_eq(m ? m->binary : NULL, is->binary, "page %u", page);
		if (m)
			cr_assert_eq(m->foff + (page * PAGE - m->start), is->foff, "page %u", page);
		if (is->binary &&
		    !(was && was->binary == is->binary && was->foff + PAGE == is->foff))
			n_model++;
	}
	/* The set has as few mappings as possible: neighbours that fit are merged. */
	cr_assert_eq(n, n_model);
}

static u32 references(const struct mapping_set *s, u32 binary)
{
	u32 n = 0;

	for (u32 i = 0; s && i < s->m.n; i++)
		n += s->m.data[i].binary == &binaries[binary].pub;
	return n;
}

Test(mappings, agree_with_a_page_by_page_model)
{
	u32 n_in_place = 0;

	for (u32 run = 0; run < 200; run++) {
		struct page model[N_PAGES] = {};
		struct mapping_set *set = NULL;
		overlay changes = {};
		u64 dropped = 0;

		binaries_reset();
		for (u32 batch = 0; batch < 50; batch++) {
			struct mapping_set *next;
			u32 k = random_below(8);

			for (u32 i = 0; i < k; i++) {
				struct procman_mapping m = random_mapping();

				model_map(model, &m);
				cr_assert_eq(overlay_add(&changes, m), 0);
			}
			/* Half of the time, apply the changes in place if possible. */
			if (random_below(2) ||
			    !mapping_set_change(set, &changes, batch + 1, 1000)) {
				cr_assert_eq(mapping_set_apply(set, &changes, batch + 1, 1000,
							       &next, &dropped),
					     0);
				mapping_set_put(set);
				set = next;
			} else {
				n_in_place++;
			}
			overlay_clear(&changes);
			check_set(set, model);
			for (u32 b = 0; b < N_BINARIES; b++)
				cr_assert_eq(binaries[b].refs, 1 + references(set, b));
		}
		cr_assert_eq(dropped, 0);
		mapping_set_put(set);
		overlay_deinit(&changes);
		for (u32 b = 0; b < N_BINARIES; b++)
			cr_assert_eq(binaries[b].refs, 1);
	}
	cr_assert_gt(n_in_place, 1000);
}

static struct procman_mapping mapping(u64 first, u64 n, u32 b)
{
	struct procman_mapping m = {.start = first * PAGE,
				    .end = (first + n) * PAGE,
				    .foff = first * PAGE,
				    .binary = procman_binary_get(&binaries[b].pub)};
	return m;
}

Test(mappings, that_change_nothing_give_the_same_set)
{
	struct mapping_set *set, *again;
	overlay changes = {};
	u64 dropped = 0;

	binaries_reset();
	overlay_add(&changes, mapping(0, 4, 1));
	overlay_add(&changes, mapping(8, 4, 2));
	cr_assert_eq(mapping_set_apply(NULL, &changes, 1, 10, &set, &dropped), 0);
	overlay_clear(&changes);
	/* The kernel's report of an mprotect() of a part. */
	overlay_add(&changes, mapping(9, 1, 2));
	cr_assert_eq(mapping_set_apply(set, &changes, 2, 10, &again, &dropped), 0);
	cr_assert_eq(again, set);
	cr_assert_eq(set->id, 1);
	cr_assert_eq(set->refs, 2);
	mapping_set_put(again);
	cr_assert(mapping_set_change(set, &changes, 3, 10));
	cr_assert_eq(set->id, 1);
	overlay_deinit(&changes);
	mapping_set_put(set);
	cr_assert_eq(binaries[1].refs, 1);
}

Test(mappings, beyond_the_limit_are_dropped_and_counted)
{
	struct mapping_set *set;
	overlay changes = {};
	u64 dropped = 0;

	binaries_reset();
	for (u64 i = 0; i < 10; i++)
		overlay_add(&changes, mapping(i * 2, 1, 1));
	cr_assert_eq(mapping_set_apply(NULL, &changes, 1, 7, &set, &dropped), 0);
	cr_assert_eq(set->m.n, 7);
	cr_assert_eq(dropped, 3);
	cr_assert_eq(set->m.data[6].start, 12 * PAGE);
	overlay_deinit(&changes);
	mapping_set_put(set);
	cr_assert_eq(binaries[1].refs, 1);
}

Test(mappings, of_private_code_become_the_childs_own)
{
	struct mapping_set *set, *own;
	overlay changes = {};
	u64 dropped = 0;

	binaries_reset();
	overlay_add(&changes, mapping(0, 1, 0));
	overlay_add(&changes, mapping(2, 1, 1));
	mapping_set_apply(NULL, &changes, 1, 7, &set, &dropped);
	overlay_deinit(&changes);
	cr_assert_eq(mapping_set_replace_anon(set, &binaries[4].pub, 2, &own), 0);
	cr_assert_eq(own->m.data[0].binary, &binaries[4].pub);
	cr_assert_eq(own->m.data[1].binary, &binaries[1].pub);
	cr_assert_eq(binaries[0].refs, 2);
	cr_assert_eq(binaries[1].refs, 3);
	cr_assert_eq(binaries[4].refs, 2);
	mapping_set_put(set);
	mapping_set_put(own);
	cr_assert_eq(binaries[4].refs, 1);
}

/* ---- file ids ---- */

/* Looks up a file that does not exist any more. */
static struct procman_binary *find_file(struct binaries *t, u64 inode)
{
	struct proc_mapping m = {.start = 0x1000,
				 .end = 0x2000,
				 .dev_major = 250,
				 .inode = inode,
				 .path = "/nonexistent/file"};
	struct procman_binary *b = NULL;

	cr_assert_eq(binaries_find(t, (u32)getpid(), &m, 0, &b), 0);
	return b;
}

static void expect_found_by_id(const struct binaries *t, const struct procman_binary *b)
{
	const u64 *at = map_get(&t->by_id, b->file_id);

	cr_assert_not_null(at);
	cr_assert_eq((const struct binary *)*at, (const struct binary *)b);
}

Test(binaries, ids_go_round_past_those_in_use)
{
	struct procman_stats stats = {};
	struct procman_binary *held;
	struct binaries t;
	u64 used = 0;
	u32 id;

	binaries_init(&t, 16, &stats);
	held = find_file(&t, 1000);
	for (u64 i = 0; i < 100; i++) {
		struct procman_binary *b = find_file(&t, 2000 + i);

		cr_assert_neq(b->file_id, 0, "id %llu", i);
		cr_assert_lt(b->file_id, 16);
		cr_assert_neq(b->file_id, held->file_id);
		expect_found_by_id(&t, b);
		id = b->file_id;
		used |= 1ULL << id;
		procman_binary_put(b);
		binaries_expire(&t, ~0ULL, NULL, NULL);
		cr_assert_null(map_get(&t.by_id, id));
	}
	expect_found_by_id(&t, held);
	cr_expect_eq(__builtin_popcountll(used), t.vdso ? 13 : 14, "as late as can be");
	cr_expect_eq(stats.file_ids_out, 0);
	procman_binary_put(held);
	binaries_deinit(&t, NULL, NULL);
}

Test(binaries, without_an_id_when_all_are_in_use)
{
	struct procman_binary *files[20], *late;
	struct procman_stats stats = {};
	struct binaries t;
	u32 n_without = 0;

	binaries_init(&t, 16, &stats);
	for (u32 i = 0; i < ARRAY_SIZE(files); i++) {
		files[i] = find_file(&t, 3000 + i);
		n_without += !files[i]->file_id;
	}
	cr_expect_eq(n_without, t.vdso ? 6 : 5);
	cr_expect_eq(stats.file_ids_out, n_without);
	for (u32 i = 0; i < ARRAY_SIZE(files); i++)
		procman_binary_put(files[i]);
	binaries_expire(&t, ~0ULL, NULL, NULL);
	late = find_file(&t, 4000);
	cr_expect_neq(late->file_id, 0, "there are again");
	procman_binary_put(late);
	binaries_deinit(&t, NULL, NULL);
}

/* A JIT maps code, and forks, any number of times. */
Test(binaries, private_code_needs_no_id)
{
	struct procman_stats stats = {};
	struct procman_binary *b;
	struct binaries t;
	u64 before;

	binaries_init(&t, 16, &stats);
	before = stats.file_ids;
	for (u32 i = 0; i < 100; i++) {
		cr_assert_eq(binaries_add_anon(&t, 1, &b), 0);
		cr_expect_eq(b->file_id, 0);
		procman_binary_put(b);
	}
	cr_expect_eq(stats.file_ids, before);
	b = find_file(&t, 5000);
	cr_expect_neq(b->file_id, 0);
	procman_binary_put(b);
	binaries_deinit(&t, NULL, NULL);
}

/* ---- records ---- */

struct bytes {
	u8 data[512];
	size_t n;
};

static void put(struct bytes *b, const void *p, size_t n)
{
	memcpy(b->data + b->n, p, n);
	b->n += n;
}

#define PUT(b, type, value) put(b, &(type){value}, sizeof(type))

static void begin(struct bytes *b, u32 type, u16 misc)
{
	b->n = 0;
	PUT(b, u32, type);
	PUT(b, u16, misc);
	PUT(b, u16, 0);
}

static void put_name(struct bytes *b, const char *name)
{
	size_t n = strlen(name) + 1;

	put(b, name, n);
	for (; n % 8; n++)
		PUT(b, u8, 0);
}

static void finish(struct bytes *b, u64 time_ns)
{
	PUT(b, u64, time_ns);
	memcpy(b->data + 6, &(u16){(u16)b->n}, 2);
}

static void put_mmap2(struct bytes *b, u64 len, const char *name)
{
	begin(b, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER);
	PUT(b, u32, 7);
	PUT(b, u32, 8);
	PUT(b, u64, 0x7f0000001000);
	PUT(b, u64, len);
	PUT(b, u64, 0x3000);
	PUT(b, u32, 253);
	PUT(b, u32, 1);
	PUT(b, u64, 4711);
	PUT(b, u64, 99);
	PUT(b, u32, 5);
	PUT(b, u32, 2);
	put_name(b, name);
	finish(b, 123456789);
}

Test(records, mmap2)
{
	struct sideband r = {};
	struct bytes b;

	put_mmap2(&b, 0x2000, "/usr/lib/libx.so (deleted)");
	cr_assert_eq(sideband_parse(b.data, b.n, &r), 0);
	cr_assert_eq(r.type, SIDEBAND_MMAP);
	cr_assert_eq(r.time_ns, 123456789);
	cr_assert_eq(r.pid, 7);
	cr_assert_eq(r.tid, 8);
	cr_assert_eq(r.start, 0x7f0000001000);
	cr_assert_eq(r.end, 0x7f0000003000);
	cr_assert_eq(r.foff, 0x3000);
	cr_assert_eq(r.dev_major, 253);
	cr_assert_eq(r.dev_minor, 1);
	cr_assert_eq(r.inode, 4711);
	cr_assert_eq(r.inode_generation, 99);
	cr_assert_eq(r.prot, 5);
	cr_assert_str_eq(r.name, "/usr/lib/libx.so (deleted)");
}

Test(records, fork_exit_comm_lost)
{
	struct sideband r = {};
	struct bytes b;

	begin(&b, PERF_RECORD_FORK, 0);
	PUT(&b, u32, 10);
	PUT(&b, u32, 9);
	PUT(&b, u32, 11);
	PUT(&b, u32, 12);
	PUT(&b, u64, 1);
	finish(&b, 2);
	cr_assert_eq(sideband_parse(b.data, b.n, &r), 0);
	cr_assert(r.type == SIDEBAND_FORK && r.pid == 10 && r.ppid == 9 && r.tid == 11 &&
		  r.ptid == 12 && r.time_ns == 2);

	begin(&b, PERF_RECORD_COMM, PERF_RECORD_MISC_USER | PERF_RECORD_MISC_COMM_EXEC);
	PUT(&b, u32, 10);
	PUT(&b, u32, 10);
	put_name(&b, "a b");
	finish(&b, 3);
	cr_assert_eq(sideband_parse(b.data, b.n, &r), 0);
	cr_assert(r.type == SIDEBAND_COMM && r.exec && r.pid == 10 && r.tid == 10);
	cr_assert_str_eq(r.name, "a b");

	begin(&b, PERF_RECORD_LOST, 0);
	PUT(&b, u64, 77);
	PUT(&b, u64, 5);
	finish(&b, 4);
	cr_assert_eq(sideband_parse(b.data, b.n, &r), 0);
	cr_assert(r.type == SIDEBAND_LOST && r.lost == 5);

	/* A record type of a later kernel. */
	begin(&b, 4000, 0);
	finish(&b, 5);
	cr_assert_eq(sideband_parse(b.data, b.n, &r), 0);
	cr_assert_eq(r.type, SIDEBAND_IGNORED);
}

Test(records, damage_is_refused)
{
	struct sideband r = {.pid = 42};
	struct bytes b;

	put_mmap2(&b, 0, "/empty");
	cr_assert_eq(sideband_parse(b.data, b.n, &r), -EINVAL);
	put_mmap2(&b, ~0ULL, "/wraps");
	cr_assert_eq(sideband_parse(b.data, b.n, &r), -EINVAL);
	put_mmap2(&b, 0x1000, "/x");
	for (size_t n = 0; n < b.n; n++)
		cr_assert_eq(sideband_parse(b.data, n, &r), -EINVAL, "%zu bytes", n);
	/* A name without a NUL: the time after it is not part of the name. */
	begin(&b, PERF_RECORD_COMM, 0);
	PUT(&b, u32, 1);
	PUT(&b, u32, 1);
	PUT(&b, u64, 0x4141414141414141);
	finish(&b, 0x41);
	cr_assert_eq(sideband_parse(b.data, b.n, &r), -EINVAL);
	cr_assert_eq(r.pid, 42);
}

Test(records, are_cut_off_one_by_one)
{
	struct bytes a, b;
	u8 both[1024];
	size_t pos = 0, n = 0;
	u64 time_ns = 0;

	put_mmap2(&a, 0x1000, "/x");
	begin(&b, 4000, 0);
	finish(&b, 5);
	memcpy(both, a.data, a.n);
	memcpy(both + a.n, b.data, b.n);
	cr_assert(sideband_next(both, a.n + b.n, &pos, &n, &time_ns));
	cr_assert(n == a.n && pos == a.n && time_ns == 123456789);
	cr_assert(sideband_next(both, a.n + b.n, &pos, &n, &time_ns));
	cr_assert(n == b.n && pos == a.n + b.n && time_ns == 5);
	cr_assert_not(sideband_next(both, a.n + b.n, &pos, &n, &time_ns));
	pos = a.n;
	cr_assert_not(sideband_next(both, a.n + b.n - 1, &pos, &n, &time_ns));
	cr_assert_eq(pos, a.n);
}
