/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator of the unwind tables' lines. A chunk is a BPF map; in these tests it is plain
 * memory, and the map of maps is an array, so that the tests need no privilege.
 */
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "agent/tables/lines.h"

#define OUTER 12345
#define CHUNK ((u64)LINES_PER_CHUNK * UNWIND_LINE_BYTES)

static bool in_outer[UNWIND_MAX_CHUNKS];
static int create_error, update_error;

int __wrap_bpf_map_create(enum bpf_map_type type, const char *name, __u32 key_size,
			  __u32 value_size, __u32 max_entries,
			  const struct bpf_map_create_opts *opts);
int __wrap_bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags);
int __wrap_bpf_map_delete_elem(int fd, const void *key);

int __wrap_bpf_map_create(enum bpf_map_type type, const char *name, __u32 key_size,
			  __u32 value_size, __u32 max_entries,
			  const struct bpf_map_create_opts *opts)
{
	int fd;

	cr_assert_eq(type, BPF_MAP_TYPE_ARRAY);
	cr_assert_eq(key_size, 4);
	cr_assert(opts->map_flags & BPF_F_MMAPABLE);
	if (create_error) {
		errno = create_error;
		return -1;
	}
	fd = memfd_create(name, MFD_CLOEXEC);
	cr_assert(fd >= 0);
	cr_assert_eq(ftruncate(fd, (off_t)value_size * max_entries), 0);
	return fd;
}

int __wrap_bpf_map_update_elem(int fd, const void *key, const void *value, __u64 flags)
{
	(void)value;
	(void)flags;
	cr_assert_eq(fd, OUTER);
	if (update_error) {
		errno = update_error;
		return -1;
	}
	in_outer[*(const u32 *)key] = true;
	return 0;
}

int __wrap_bpf_map_delete_elem(int fd, const void *key)
{
	cr_assert_eq(fd, OUTER);
	in_outer[*(const u32 *)key] = false;
	return 0;
}

static struct lines open_lines(u64 bytes)
{
	struct lines a;

	cr_assert_eq(lines_init(&a, OUTER, bytes), 0);
	return a;
}

static u32 get(struct lines *a, u32 n)
{
	u32 line = 0;

	cr_assert_eq(lines_alloc(a, n, &line), 0);
	cr_assert_neq(line, 0);
	return line;
}

static void let_rest(struct lines *a)
{
	const struct timespec t = {.tv_nsec = (long)UNWIND_GRACE_NS * 5 / 4};

	nanosleep(&t, NULL);
	lines_tidy(a);
}

Test(lines, are_zeroed_and_apart)
{
	struct lines a = open_lines(CHUNK);
	u32 x = get(&a, 3), y = get(&a, 1);

	cr_assert(x + 3 <= y || y + 1 <= x);
	memset(lines_at(&a, x), 0xff, 3 * UNWIND_LINE_BYTES);
	memset(lines_at(&a, y), 0xee, UNWIND_LINE_BYTES);
	cr_assert_eq(a.used_lines, 4);
	lines_free(&a, x, 3);
	let_rest(&a);
	cr_assert_eq(get(&a, 3), x, "the first place that is large enough");
	for (u32 i = 0; i < 3 * UNWIND_LINE_BYTES; i++)
		cr_assert_eq(((const u8 *)lines_at(&a, x))[i], 0);
	cr_assert_eq(*(const u8 *)lines_at(&a, y), 0xee);
	lines_deinit(&a);
}

Test(lines, bounds_of_a_run)
{
	struct lines a = open_lines(2 * CHUNK);
	u32 line = 77;

	cr_assert_eq(lines_alloc(&a, 0, &line), -EINVAL);
	cr_assert_eq(lines_alloc(&a, LINES_PER_CHUNK, &line), -E2BIG);
	cr_assert_eq(line, 77);
	/* Chunk 0 has one line less, because line 0 means "none". */
	cr_assert_eq(get(&a, LINES_PER_CHUNK - 1), 1);
	cr_assert_eq(get(&a, LINES_PER_CHUNK - 1), LINES_PER_CHUNK);
	cr_assert_null(lines_at(&a, 0));
	cr_assert_null(lines_at(&a, 2 * LINES_PER_CHUNK));
	cr_assert_null(lines_at(&a, UINT32_MAX));
	lines_deinit(&a);
}

Test(lines, a_used_up_budget)
{
	struct lines a = open_lines(2 * CHUNK + CHUNK / 2);
	u32 line;

	get(&a, LINES_PER_CHUNK / 2 + 1);
	get(&a, LINES_PER_CHUNK / 2 + 1);
	cr_assert_eq(a.n_parts, 2);
	cr_assert(in_outer[0] && in_outer[1] && !in_outer[2]);
	cr_assert_eq(lines_alloc(&a, LINES_PER_CHUNK / 2, &line), -ENOSPC);
	get(&a, LINES_PER_CHUNK / 2 - 2);
	lines_deinit(&a);

	a = open_lines(0);
	get(&a, 1);
	lines_deinit(&a);
}

Test(lines, rest_before_they_are_used_again)
{
	struct lines a = open_lines(CHUNK);
	u32 all = get(&a, LINES_PER_CHUNK - 1), line;

	lines_free(&a, all, LINES_PER_CHUNK - 1);
	cr_assert_eq(a.used_lines, 0);
	lines_tidy(&a);
	cr_assert_eq(lines_alloc(&a, 1, &line), -ENOSPC);
	let_rest(&a);
	cr_assert_eq(get(&a, LINES_PER_CHUNK - 1), all);
	lines_deinit(&a);
}

Test(lines, neighbours_are_joined_in_every_order)
{
	static const u8 orders[][4] = {
		{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}, {2, 0, 3, 1}};

	for (size_t o = 0; o < ARRAY_SIZE(orders); o++) {
		struct lines a = open_lines(CHUNK);
		const u32 quarter = (LINES_PER_CHUNK - 1) / 4,
			  rest = LINES_PER_CHUNK - 1 - 4 * quarter;
		u32 at[4];

		for (u32 i = 0; i < 4; i++)
			at[i] = get(&a, quarter);
		for (u32 i = 0; i < 4; i++)
			lines_free(&a, at[orders[o][i]], quarter);
		let_rest(&a);
		cr_assert_eq(a.parts[0].free.n, 1, "order %zu", o);
		cr_assert_eq(a.parts[0].n_free, 4 * quarter + rest);
		lines_deinit(&a);
	}
}

Test(lines, an_empty_chunk_is_kept_and_a_second_one_given_back)
{
	struct lines a = open_lines(3 * CHUNK);
	u32 at[3];

	for (u32 i = 0; i < 3; i++)
		at[i] = get(&a, LINES_PER_CHUNK - 1);
	for (u32 i = 1; i < 3; i++)
		lines_free(&a, at[i], LINES_PER_CHUNK - 1);
	let_rest(&a);
	cr_assert_eq(a.n_parts, 2);
	cr_assert(in_outer[0] && in_outer[1] && !in_outer[2]);
	cr_assert_null(lines_at(&a, at[2]));
	cr_assert_eq(get(&a, LINES_PER_CHUNK - 1), at[1]);
	cr_assert_eq(get(&a, LINES_PER_CHUNK - 1), at[2]);
	lines_deinit(&a);
}

Test(lines, a_spare_chunk_is_opened_ahead)
{
	struct lines a = open_lines(2 * CHUNK);
	struct lines_spare *s = lines_spare_wanted(&a);

	cr_assert(s, "there is no chunk at all");
	cr_assert_null(lines_spare_wanted(&a), "one at a time");
	lines_spare_open(s);
	lines_spare_done(s);
	cr_assert_null(lines_spare_wanted(&a), "one that is empty is enough");
	get(&a, LINES_PER_CHUNK - 100);
	s = lines_spare_wanted(&a);
	cr_assert(s);
	cr_assert_eq(s->index, 1);
	/* The budget is reserved while the chunk is opened. */
	cr_assert_eq(lines_alloc(&a, 1000, &(u32){0}), -ENOSPC);
	lines_spare_open(s);
	lines_spare_done(s);
	get(&a, 1000);
	cr_assert_null(lines_spare_wanted(&a), "the budget is used up");
	lines_deinit(&a);
}

Test(lines, a_map_that_cannot_be_made_leaves_all_as_it_was)
{
	struct lines a = open_lines(2 * CHUNK);
	struct lines_spare *s;
	u32 line;

	create_error = ENOMEM;
	cr_assert_eq(lines_alloc(&a, 1, &line), -ENOMEM);
	s = lines_spare_wanted(&a);
	cr_assert(s);
	lines_spare_open(s);
	lines_spare_done(s);
	create_error = 0;
	update_error = E2BIG;
	cr_assert_eq(lines_alloc(&a, 1, &line), -E2BIG);
	update_error = 0;
	cr_assert_eq(a.n_parts, 0);
	cr_assert_eq(get(&a, 1), 1);
	lines_deinit(&a);
}
