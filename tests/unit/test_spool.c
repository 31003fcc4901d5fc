/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's spool: order, size limit, files for the next run, and damaged files. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/export/spool.h"
#include "base/log.h"
#include "base/types.h"
#include "dir_fixture.h"

#define HEADER_BYTES 40

static char dir[64];

static void make_dir(void)
{
	snprintf(dir, sizeof(dir), "/tmp/culprit-test-spool-XXXXXX");
	cr_assert(mkdtemp(dir));
}

static void remove_own_dir(void)
{
	cr_assert_eq(remove_dir(dir), 0);
}

TestSuite(spool, .init = make_dir, .fini = remove_own_dir);

static void open_spool(struct spool *s, const char *path, u64 max_bytes)
{
	struct diag d = {};

	cr_assert_eq(spool_init(s, path, max_bytes, &d), 0, "%s", d.text);
}

/* Adds an item of n bytes `fill`, with the sample counts fill and fill + 1. */
static int push(struct spool *s, char fill, size_t n)
{
	u8 *data = malloc(n + 1);

	cr_assert(data);
	memset(data, fill, n);
	return spool_push(s, data, n, (u64)fill, (u64)fill + 1);
}

/* Takes and loads the first item, which must have n bytes `fill`. */
static struct spool_item *take(struct spool *s, char fill, size_t n)
{
	struct spool_item *item = spool_take(s);

	cr_assert(item, "nothing left, not even %c", fill);
	cr_assert_eq(spool_load(s, item), 0);
	cr_assert_eq(item->n, n);
	cr_assert_eq(item->samples, (u64)fill);
	cr_assert_eq(item->lost, (u64)fill + 1);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(item->data[i], fill);
	return item;
}

static int files(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	cr_assert(d);
	while ((e = readdir(d)))
		n += strstr(e->d_name, ".spool") != NULL;
	closedir(d);
	return n;
}

static char *path_of(u64 number)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%016llx.spool", dir, (unsigned long long)number);
	return path;
}

static void poke(u64 number, off_t at, u8 value)
{
	int fd = open(path_of(number), O_WRONLY | O_CLOEXEC);

	cr_assert(fd >= 0);
	cr_assert_eq(pwrite(fd, &value, 1, at), 1);
	close(fd);
}

Test(spool, keeps_order_in_memory)
{
	struct spool s;
	struct spool_item *a;

	open_spool(&s, NULL, 100);
	cr_assert_null(spool_take(&s));
	cr_assert_eq(push(&s, 'a', 10), 0);
	cr_assert_eq(push(&s, 'b', 0), 0);
	a = take(&s, 'a', 10);
	cr_assert_eq(s.n_items, 1);
	cr_assert_eq(s.bytes, 10, "an item that is taken still counts");
	spool_put_back(&s, a);
	cr_assert_eq(push(&s, 'c', 20), 0);
	spool_done(&s, take(&s, 'a', 10));
	spool_done(&s, take(&s, 'b', 0));
	spool_done(&s, take(&s, 'c', 20));
	cr_assert_null(spool_take(&s));
	cr_assert_eq(s.bytes, 0);
	cr_assert_eq(s.n_items, 0);
	cr_assert_eq(spool_save(&s), -ENOTDIR);
	spool_deinit(&s);
}

Test(spool, put_back_into_an_empty_spool_and_pushed_behind)
{
	struct spool s;

	open_spool(&s, NULL, 100);
	cr_assert_eq(push(&s, 'a', 1), 0);
	spool_put_back(&s, take(&s, 'a', 1));
	cr_assert_eq(push(&s, 'b', 1), 0);
	spool_done(&s, take(&s, 'a', 1));
	spool_done(&s, take(&s, 'b', 1));
	spool_deinit(&s);
}

Test(spool, tells_when_it_is_over_its_bound)
{
	struct spool s;

	open_spool(&s, NULL, 30);
	cr_assert_eq(push(&s, 'a', 31), -E2BIG);
	cr_assert_eq(s.n_items, 0);
	cr_assert_eq(push(&s, 'a', 30), 0);
	cr_assert_not(spool_is_over(&s));
	cr_assert_eq(push(&s, 'b', 1), 0);
	cr_assert(spool_is_over(&s));
	spool_done(&s, spool_take(&s));
	cr_assert_not(spool_is_over(&s));
	spool_done(&s, take(&s, 'b', 1));
	spool_deinit(&s);
}

Test(spool, the_next_run_finds_what_was_saved)
{
	struct spool s;

	open_spool(&s, dir, 1000);
	cr_assert_eq(push(&s, 'a', 10), 0);
	cr_assert_eq(push(&s, 'b', 0), 0);
	cr_assert_eq(files(), 0);
	cr_assert_eq(spool_save(&s), 0);
	cr_assert_eq(files(), 2);
	cr_assert_eq(push(&s, 'x', 10), 0);
	spool_deinit(&s); /* x was not saved */

	open_spool(&s, dir, 1000);
	cr_assert_eq(s.n_items, 2);
	cr_assert_eq(s.bytes, 10);
	cr_assert_eq(s.n_damaged, 0);
	cr_assert_eq(push(&s, 'c', 5), 0);
	cr_assert_eq(spool_save(&s), 0);
	spool_done(&s, take(&s, 'a', 10));
	cr_assert_eq(files(), 2, "the file goes with its item");
	spool_put_back(&s, take(&s, 'b', 0));
	spool_done(&s, take(&s, 'b', 0));
	spool_done(&s, take(&s, 'c', 5));
	cr_assert_eq(files(), 0);
	spool_deinit(&s);
}

Test(spool, one_process_has_the_directory)
{
	struct diag d = {};
	struct spool s, other;

	open_spool(&s, dir, 1000);
	cr_assert_eq(spool_init(&other, dir, 1000, &d), -EBUSY);
	cr_assert(strstr(d.text, dir), "%s", d.text);
	spool_deinit(&other);
	spool_deinit(&s);
	open_spool(&other, dir, 1000);
	spool_deinit(&other);
}

Test(spool, no_directory_where_a_file_is)
{
	struct diag d = {};
	struct spool s;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert(fd >= 0);
	close(fd);
	cr_assert_eq(spool_init(&s, path, 1000, &d), -ENOTDIR);
	cr_assert(strstr(d.text, path), "%s", d.text);
	spool_deinit(&s);
}

/* Saves three items to files. Tests then damage the middle one. */
static void save_three(void)
{
	struct spool s;

	open_spool(&s, dir, 1000);
	for (int c = 'a'; c <= 'c'; c++)
		cr_assert_eq(push(&s, (char)c, 100), 0);
	cr_assert_eq(spool_save(&s), 0);
	spool_deinit(&s);
}

static void expect_without_the_middle(u64 max_bytes)
{
	struct spool s;

	open_spool(&s, dir, max_bytes);
	cr_assert_eq(s.n_damaged, 1);
	cr_assert_eq(files(), 2);
	spool_done(&s, take(&s, 'a', 100));
	spool_done(&s, take(&s, 'c', 100));
	cr_assert_null(spool_take(&s));
	spool_deinit(&s);
}

Test(spool, a_file_cut_short_is_removed)
{
	save_three();
	cr_assert_eq(truncate(path_of(1), HEADER_BYTES + 99), 0);
	expect_without_the_middle(1000);
}

Test(spool, a_file_without_a_whole_header_is_removed)
{
	save_three();
	cr_assert_eq(truncate(path_of(1), HEADER_BYTES - 1), 0);
	expect_without_the_middle(1000);
}

Test(spool, a_file_of_another_format_is_removed)
{
	save_three();
	poke(1, 0, 'X');
	expect_without_the_middle(1000);
}

Test(spool, damage_is_logged_with_its_place)
{
	struct spool_item item = {.number = 2, .n = 100};
	char want[640], first[128], second[128], third[128];
	struct spool s;

	save_three();
	snprintf(first, sizeof(first), "%s", path_of(0));
	snprintf(second, sizeof(second), "%s", path_of(1));
	snprintf(third, sizeof(third), "%s", path_of(2));
	poke(0, 0, 'X');
	cr_assert_eq(truncate(second, HEADER_BYTES + 99), 0);
	poke(2, HEADER_BYTES, 'X');
	snprintf(want, sizeof(want),
		 "culprit: debug: %s: not a file of a spool at offset 0x0\n"
		 "culprit: debug: %s: data of the wrong size at offset 0x8b\n"
		 "culprit: debug: %s: data with a wrong checksum at offset 0x28\n",
		 first, second, third);
	log_set_level(LOG_LEVEL_DEBUG);
	cr_redirect_stderr();
	open_spool(&s, dir, 1000);
	cr_expect_eq(s.n_damaged, 2);
	cr_expect_eq(spool_load(&s, &item), -EBADMSG);
	fflush(stderr);
	cr_expect_stderr_eq_str(want);
	spool_deinit(&s);
}

Test(spool, a_fifo_is_not_waited_for)
{
	save_three();
	cr_assert_eq(unlink(path_of(1)), 0);
	cr_assert_eq(mkfifo(path_of(1), 0600), 0);
	expect_without_the_middle(1000);
}

Test(spool, a_link_is_not_followed)
{
	save_three();
	cr_assert_eq(unlink(path_of(1)), 0);
	cr_assert_eq(symlink("0000000000000002.spool", path_of(1)), 0);
	expect_without_the_middle(1000);
}

/* Opening the spool checks sizes; loading an item checks its hash. */
static void expect_bad_hash(off_t at, u8 value)
{
	struct spool_item *item;
	struct spool s;

	save_three();
	poke(1, at, value);
	open_spool(&s, dir, 1000);
	cr_assert_eq(s.n_damaged, 0);
	spool_done(&s, take(&s, 'a', 100));
	item = spool_take(&s);
	cr_assert_eq(spool_load(&s, item), -EBADMSG);
	cr_assert_null(item->data);
	spool_done(&s, item);
	spool_done(&s, take(&s, 'c', 100));
	cr_assert_eq(files(), 0);
	spool_deinit(&s);
}

Test(spool, changed_data_is_not_loaded)
{
	expect_bad_hash(HEADER_BYTES + 50, 'x');
}

Test(spool, changed_counts_are_not_loaded)
{
	expect_bad_hash(24, 'x');
}

Test(spool, a_file_that_shrinks_later_is_not_loaded)
{
	struct spool_item *item;
	struct spool s;

	save_three();
	open_spool(&s, dir, 1000);
	cr_assert_eq(truncate(path_of(0), HEADER_BYTES + 10), 0);
	item = spool_take(&s);
	cr_assert_eq(spool_load(&s, item), -EBADMSG);
	spool_put_back(&s, item);
	cr_assert_eq(unlink(path_of(0)), 0);
	item = spool_take(&s);
	cr_assert_eq(spool_load(&s, item), -ENOENT);
	spool_done(&s, item);
	spool_deinit(&s);
}

Test(spool, what_a_write_left_half_done_is_removed)
{
	struct spool s;
	char path[128];
	int fd;

	save_three();
	snprintf(path, sizeof(path), "%s/0000000000000007.part", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	cr_assert(fd >= 0);
	close(fd);
	open_spool(&s, dir, 1000);
	cr_assert_eq(s.n_items, 3);
	cr_assert_eq(access(path, F_OK), -1);
	spool_deinit(&s);
}

Test(spool, numbers_go_on_after_those_of_the_last_run)
{
	struct spool s;
	char last[128];

	save_three();
	snprintf(last, sizeof(last), "%s", path_of(2));
	cr_assert_eq(rename(last, path_of(0xffffff)), 0);
	open_spool(&s, dir, 1000);
	cr_assert_eq(push(&s, 'd', 1), 0);
	cr_assert_eq(spool_save(&s), 0);
	cr_assert_eq(access(path_of(0x1000000), F_OK), 0);
	spool_deinit(&s);
}

Test(spool, a_smaller_bound_drops_what_is_larger)
{
	struct spool s;

	save_three();
	open_spool(&s, dir, 250);
	cr_assert(spool_is_over(&s), "the caller drops the oldest");
	spool_deinit(&s);
	open_spool(&s, dir, 99);
	cr_assert_eq(s.n_damaged, 3);
	cr_assert_eq(files(), 0);
	spool_deinit(&s);
}
