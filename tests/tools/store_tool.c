/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes to a store and verifies it, for torture tests (tests/server/test_store*.py).
 *
 *	store_tool write DIR FROM TO [NAME=VALUE...]	writes batches FROM..TO-1 while another
 *		thread maintains the store. Prints "ack K" when batch K is written. After
 *		"error K TEXT" it waits for a line on stdin and tries K again.
 *	store_tool verify DIR WRITTEN [NAME=VALUE...]	compares the store with the acknowledged
 *		batches 0..WRITTEN-1; the store may have batch WRITTEN as a whole or not at all.
 *		Exit status 1 when the store has data that was not written, or when data is missing
 *		for another reason than its age or damage that the store reports.
 *
 *	die=N		SIGKILL at the N-th system call that changes a file; a write is cut in half
 *	max_mb, age_h	limits of the store: size and age
 *	damaged=1	samples may be missing because of damage
 *	whole_from=K	with damaged=1: batch K and later ones must be complete
 *	maintain=0	no maintenance
 *	spans=1		each batch also has SPANS spans of one trace, and links of a service to them
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "tests/tools/store_tool.h"

struct store_tool_options options = {.maintain = 1, .whole_from = ~0ULL};

/* ---- dying ---- */

static u64 n_calls;
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);

static void die(int fd, const char *call)
{
	char link[64], path[256] = "", line[400];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[MAX(n, 0)] = '\0';
	n = snprintf(line, sizeof(line), "died %s %s\n", call, path);
	if (write(STDOUT_FILENO, line, (size_t)n) == n)
		kill(getpid(), SIGKILL);
}

static ssize_t dying_pwrite(int fd, const void *data, size_t n, off_t at)
{
	if (__atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED) == options.die) {
		ssize_t done = real_pwrite(fd, data, n / 2, at);

		die(fd, done < 0 ? "before a write" : "in a write");
	}
	return real_pwrite(fd, data, n, at);
}

static int dying_ftruncate(int fd, off_t size)
{
	if (__atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED) == options.die)
		die(fd, "before a cut");
	return real_ftruncate(fd, size);
}

/* Replaces system calls of SQLite, which lets its own tests do so. */
static void arm(void)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	const char *name = vfs->xGetSystemCall(vfs, "pwrite64") ? "pwrite64" : "pwrite";

	*(sqlite3_syscall_ptr *)&real_pwrite = vfs->xGetSystemCall(vfs, name);
	*(sqlite3_syscall_ptr *)&real_ftruncate = vfs->xGetSystemCall(vfs, "ftruncate");
	vfs->xSetSystemCall(vfs, name, (sqlite3_syscall_ptr)dying_pwrite);
	vfs->xSetSystemCall(vfs, "ftruncate", (sqlite3_syscall_ptr)dying_ftruncate);
}

/* ---- writing ---- */

static struct store *open_or_exit(const char *dir)
{
	static const struct store_tier tiers[] = {
		{2 * 3600, 60000}, {6 * 3600, HOUR_MS}, {DAYS_AFTER_MS / 1000, DAY_MS}, {0, 0}};
	struct store_options o = {.tiers = tiers,
				  .max_age_s = (options.age_h ? options.age_h : 100000) * 3600,
				  .max_bytes = options.max_mb << 20};
	struct store *s = NULL;
	struct diag d = {};
	int r = store_open(dir, &o, &d, &s);

	if (r < 0) {
		printf("cannot open: %s\n", d.text);
		exit(r == -ENOSPC ? 5 : 4);
	}
	return s;
}

static int write_batch(struct store *s, u32 k, struct diag *d)
{
	_cleanup_profile_ struct profile *p = make_batch(k);
	_cleanup_store_batch_ struct store_batch b = {};
	u8 token[16] = {};
	int r = store_batch_init(&b, p, NULL, d);

	memcpy(token, &k, sizeof(k));
	if (r == 0 && options.spans) {
		_cleanup_spans_ struct spans spans = {};

		make_spans(k, &spans);
		token[15] = 1;
		r = store_write_spans(s, &spans, token, d);
		token[15] = 0;
	}
	return r < 0 ? r : store_write(s, &b, token, d);
}

static void say(const char *text, u32 k, const char *more)
{
	char line[400];
	int n = snprintf(line, sizeof(line), "%s %u%s%s\n", text, k, *more ? " " : "", more);

	if (write(STDOUT_FILENO, line, (size_t)n) != n)
		exit(3);
}

struct keeping {
	struct store *s;
	_Atomic u32 at, stop;
};

static void *keep(void *arg)
{
	struct keeping *m = arg;

	while (!m->stop) {
		struct diag d = {};

		if (store_maintain(m->s, begin_of(m->at), &d) < 0)
			say("maintain", m->at, d.text);
		usleep(500);
	}
	return NULL;
}

static u64 dir_bytes(const char *dir)
{
	static const char *const names[] = {"profiles.db", "profiles.db-wal", "profiles.db-shm"};
	u64 bytes = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_str_ struct str path = {};
		struct stat st;

		str_printf(&path, "%s/%s", dir, names[i]);
		if (!stat(str_get(&path), &st))
			bytes += (u64)st.st_size;
	}
	return bytes;
}

static int write_batches(const char *dir, u32 from, u32 to)
{
	struct keeping m = {.s = open_or_exit(dir), .at = from};
	pthread_t thread;
	u64 largest = 0;

	if (options.maintain)
		pthread_create(&thread, NULL, keep, &m);
	for (u32 k = from; k < to; k++) {
		struct diag d = {};

		m.at = k;
		while (write_batch(m.s, k, &d) < 0) {
			say("error", k, d.text);
			if (getchar() == EOF)
				return 5;
			d = (struct diag){};
		}
		say("ack", k, "");
		largest = MAX(largest, dir_bytes(dir));
	}
	m.stop = 1;
	if (options.maintain)
		pthread_join(thread, NULL);
	largest = MAX(largest, dir_bytes(dir));
	store_close(m.s);
	printf("largest %llu\n", largest);
	return 0;
}

static int verify_dir(const char *dir, u32 written)
{
	struct store *s = open_or_exit(dir);
	int r = verify(s, written);

	store_close(s);
	return r;
}

static bool read_options(char **args)
{
	const struct {
		const char *name;
		u64 *value;
	} known[] = {{"die", &options.die},	      {"max_mb", &options.max_mb},
		     {"age_h", &options.age_h},	      {"damaged", &options.damaged},
		     {"maintain", &options.maintain}, {"whole_from", &options.whole_from},
		     {"spans", &options.spans}};

	for (; *args; args++) {
		size_t i, n = strcspn(*args, "=");

		for (i = 0; i < ARRAY_SIZE(known); i++)
			if (strlen(known[i].name) == n && !strncmp(known[i].name, *args, n))
				break;
		if (i == ARRAY_SIZE(known) || !(*args)[n])
			return false;
		*known[i].value = strtoull(*args + n + 1, NULL, 10);
	}
	return true;
}

int main(int argc, char **argv)
{
	bool writes = argc > 4 && !strcmp(argv[1], "write");
	bool verifies = argc > 3 && !strcmp(argv[1], "verify");

	signal(SIGXFSZ, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if ((!writes && !verifies) || !read_options(argv + (writes ? 5 : 4))) {
		fprintf(stderr, "usage: store_tool write DIR FROM TO [NAME=VALUE...]\n"
				"       store_tool verify DIR WRITTEN [NAME=VALUE...]\n");
		return 2;
	}
	if (options.die)
		arm();
	if (verifies)
		return verify_dir(argv[2], (u32)strtoul(argv[3], NULL, 10));
	return write_batches(argv[2], (u32)strtoul(argv[3], NULL, 10),
			     (u32)strtoul(argv[4], NULL, 10));
}
