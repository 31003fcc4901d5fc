/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs of bpf/prog/syscalls.bpf.c, attached, and what they tell. Calls are printed in the
 * order in which they return.
 */
#include "agent/syscalls/syscalls.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "agent/syscalls/internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "syscalls.skel.h"

#define MAX_THREADS_OLD 4096 /* where the kernel allocates all entries at once */
#define BY_PROCESS_BYTES (64u << 20)
#define LONG_NS 1000000000ULL /* a call that takes longer is told before it ends */

/* Calls that a line has told before their end. */
struct told {
	u32 tid;
	u64 begin_ns;
};
struct told_calls {
	vec(struct told) v;
};

struct syscalls {
	struct syscalls_options o;
	struct syscalls_table *table; /* owned, as the next two */
	struct syscalls_bpf *bpf;
	struct ring_buffer *ring;
	struct str text; /* not yet written */
	struct told_calls told,
		telling; /* of the last look at all threads, and of the present one */
	u64 looked_ns;	 /* when threads were looked at for long calls */
	u32 cpus;
	int error; /* of writing */
};

/* ---- the programs ---- */

static int print_libbpf(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return level == LIBBPF_DEBUG ? 0 : vfprintf(stderr, fmt, ap);
}

/* Entries are allocated at once: on demand the kernel may have no memory, and lose calls. */
static u32 pairs_by_process(const struct syscalls *s)
{
	u64 n = BY_PROCESS_BYTES / (s->cpus * sizeof(struct syscalls_stats));

	return (u32)MIN(MAX(n, 1024ULL), 16384ULL);
}

/* Sizes the maps: what is not used takes no memory. */
static int size_maps(struct syscalls *s)
{
	struct syscalls_bpf *b = s->bpf;
	bool on_demand = !probe_hash_on_demand();
	int r = 0;

	if (!on_demand) {
		(void)bpf_map__set_map_flags(b->maps.threads, 0);
		r = bpf_map__set_max_entries(b->maps.threads, MAX_THREADS_OLD);
	}
	if (r == 0 && s->o.summary) {
		r = bpf_map__set_max_entries(b->maps.ring, 1 << 16);
	} else if (r == 0) {
		r = bpf_map__set_max_entries(b->maps.totals, 1);
	}
	if (r == 0 && !s->o.by_process)
		r = bpf_map__set_max_entries(b->maps.by_process, 1);
	else if (r == 0)
		r = bpf_map__set_max_entries(b->maps.by_process, pairs_by_process(s));
	if (r == 0 && !s->o.by_process)
		r = bpf_map__set_max_entries(b->maps.names, 1);
	return r;
}

static int write_plans(struct syscalls *s)
{
	int fd = bpf_map__fd(s->bpf->maps.plans), r = 0;

	for (u32 slot = 0; slot < SYSCALLS_MAX && r == 0; slot++)
		r = bpf_map_update_elem(fd, &slot, syscalls_table_plan(s->table, slot), BPF_ANY);
	return r;
}

static int load(struct syscalls *s, struct diag *d)
{
	int r;

	libbpf_set_print(s->o.verbose ? print_libbpf : NULL);
	s->bpf = syscalls_bpf__open();
	if (!s->bpf)
		return -ENOMEM;
	*(struct syscalls_config *)&s->bpf->rodata->config =
		(struct syscalls_config){.own_pid = (u32)getpid(),
					 .all = s->o.all,
					 .summary = s->o.summary,
					 .by_process = s->o.by_process,
					 .errors = s->o.errors,
					 .slower_ns = s->o.slower_ns};
	r = size_maps(s);
	if (r == 0)
		r = syscalls_bpf__load(s->bpf);
	if (r == 0)
		r = write_plans(s);
	if (r == 0)
		r = syscalls_bpf__attach(s->bpf);
	if (r == -EPERM)
		(void)probe_require(d);
	if (r < 0 && !d->text[0])
		return diag_set(d, r, "cannot trace system calls: %s", strerror(-r));
	return r;
}

/* ---- output ---- */

static void print_call(struct syscalls *s, const struct syscalls_call *c)
{
	if (s->o.json)
		syscalls_print_json(s->table, c, &s->text);
	else
		syscalls_print_text(s->table, c, s->o.all, &s->text);
}

static void write_text(struct syscalls *s)
{
	if (s->text.n && !s->error &&
	    (fwrite(s->text.data, 1, s->text.n, s->o.out) != s->text.n || fflush(s->o.out) != 0))
		s->error = errno ? -errno : -EIO;
	str_clear(&s->text);
}

static int take_record(void *arg, void *data, size_t n)
{
	struct syscalls *s = arg;
	struct syscalls_call c = {};

	if (n < SYSCALLS_HEAD_BYTES)
		return 0;
	memcpy(&c, data, MIN(n, sizeof(c)));
	c.n = MIN(c.n, SYSCALLS_PIECES);
	print_call(s, &c);
	if (s->text.n > 1 << 16)
		write_text(s);
	return s->error;
}

int syscalls_create(const struct syscalls_options *o, struct diag *reterr_diag,
		    struct syscalls **ret)
{
	struct syscalls *s = calloc(1, sizeof(*s));
	int n_cpus = libbpf_num_possible_cpus(), r;

	if (!s)
		return -ENOMEM;
	s->o = *o;
	s->cpus = n_cpus > 0 ? (u32)n_cpus : 1;
	s->looked_ns = clock_ns(CLOCK_MONOTONIC);
	r = syscalls_table_create(&s->table);
	if (r == 0)
		r = syscalls_table_choose(s->table, o->only, reterr_diag);
	if (r == 0)
		r = load(s, reterr_diag);
	if (r == 0) {
		s->ring = ring_buffer__new(bpf_map__fd(s->bpf->maps.ring), take_record, s, NULL);
		r = s->ring ? 0 : -errno;
	}
	if (r < 0) {
		syscalls_destroy(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* ---- threads ---- */

static int follow_thread(struct syscalls *s, u32 pid, u32 tid, bool at_exec)
{
	struct syscalls_call c = {
		.flags = at_exec ? SYSCALLS_AT_EXEC : SYSCALLS_NO_BEGIN, .pid = pid, .tid = tid};

	return bpf_map_update_elem(bpf_map__fd(s->bpf->maps.threads), &tid, &c, BPF_NOEXIST);
}

/* Returns how many threads were not followed yet, or a negative errno. */
static int follow_threads(struct syscalls *s, u32 pid, bool at_exec)
{
	struct dirent *e;
	char path[64];
	int n = 0, r = 0;
	DIR *tasks;
	u64 tid;

	snprintf(path, sizeof(path), "/proc/%u/task", pid);
	tasks = opendir(path);
	if (!tasks)
		return -ESRCH;
	while (r == 0 && (e = readdir(tasks))) {
		if (str_to_u64(e->d_name, 10, &tid) < 0)
			continue;
		r = follow_thread(s, pid, (u32)tid, at_exec);
		n += r == 0;
		if (r == -EEXIST)
			r = 0;
	}
	closedir(tasks);
	return r < 0 ? r : n;
}

int syscalls_follow(struct syscalls *s, u32 pid, bool at_exec, struct diag *reterr_diag)
{
	int n;

	/* A thread that was not listed yet may have been started by one that was not followed. */
	do
		n = follow_threads(s, pid, at_exec);
	while (n > 0);
	if (n == -ESRCH)
		return diag_set(reterr_diag, n, "no process has the id %u", pid);
	return n < 0 ? diag_set(reterr_diag, n, "cannot follow process %u: %s", pid, strerror(-n))
		     : 0;
}

static bool follows_none(const struct syscalls *s)
{
	u32 tid;

	return !s->o.all &&
	       bpf_map_get_next_key(bpf_map__fd(s->bpf->maps.threads), NULL, &tid) == -ENOENT;
}

/* ---- calls that are under way ---- */

static int each_thread(struct syscalls *s, void (*fn)(struct syscalls *s, struct syscalls_call *c))
{
	int fd = bpf_map__fd(s->bpf->maps.threads);
	u32 max = bpf_map__max_entries(s->bpf->maps.threads), tid = 0, next;
	struct syscalls_call c;

	for (u32 i = 0; i < max && bpf_map_get_next_key(fd, i ? &tid : NULL, &next) == 0; i++) {
		tid = next;
		if (bpf_map_lookup_elem(fd, &tid, &c) < 0 || c.flags & SYSCALLS_AT_EXEC)
			continue;
		c.n = MIN(c.n, SYSCALLS_PIECES);
		fn(s, &c);
	}
	return 0;
}

/* The call of a thread that has been in it since before it was followed. */
static bool read_call(struct syscalls_call *c)
{
	char path[64], line[256];
	FILE *f;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%u/task/%u/syscall", c->pid, c->tid);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof(line), f))
		n = sscanf(line, "%lld %llx %llx %llx %llx %llx %llx", &c->nr, &c->args[0],
			   &c->args[1], &c->args[2], &c->args[3], &c->args[4], &c->args[5]);
	if (f)
		fclose(f);
	c->n = 0;
	c->slot = (u32)c->nr;
	return n == 7 && c->nr >= 0 && c->nr < SYSCALLS_UNKNOWN;
}

static void print_under_way(struct syscalls *s, struct syscalls_call *c)
{
	c->type = SYSCALLS_CALL;
	c->flags |= SYSCALLS_NO_END;
	c->end_ns = clock_ns(CLOCK_MONOTONIC);
	print_call(s, c);
}

static bool is_under_way(const struct syscalls_call *c)
{
	return c->flags & SYSCALLS_IN_CALL && c->begin_ns;
}

static void tell_long(struct syscalls *s, struct syscalls_call *c)
{
	struct told told = {c->tid, c->begin_ns};
	bool known = false;

	/* `begin_ns` is 0 for a call that began before; that is told once, too. */
	if (!(c->flags & SYSCALLS_NO_BEGIN) &&
	    (!is_under_way(c) || s->looked_ns < c->begin_ns + LONG_NS))
		return;
	vec_foreach (&s->told.v, t)
		known = known || (t->tid == told.tid && t->begin_ns == told.begin_ns);
	if (!known && (!(c->flags & SYSCALLS_NO_BEGIN) || read_call(c)))
		print_under_way(s, c);
	(void)vec_push(&s->telling.v, told);
}

/* Tells calls that take long: what hangs would otherwise never be seen. */
static void tell_long_calls(struct syscalls *s)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	struct told_calls last;

	if (s->o.summary || s->o.all || s->o.errors || s->o.slower_ns ||
	    now < s->looked_ns + LONG_NS)
		return;
	s->looked_ns = now;
	(void)each_thread(s, tell_long);
	last = s->told;
	s->told = s->telling;
	s->telling = last;
	vec_clear(&s->telling.v);
}

static void tell_last(struct syscalls *s, struct syscalls_call *c)
{
	if (c->flags & SYSCALLS_NO_BEGIN ? read_call(c) : is_under_way(c))
		print_under_way(s, c);
}

int syscalls_poll(struct syscalls *s, int wait_ms)
{
	bool last = follows_none(s);
	int r = last ? ring_buffer__consume(s->ring) : ring_buffer__poll(s->ring, wait_ms);

	/* Without a wake-up there may still be records. */
	if (!last && r == 0)
		r = ring_buffer__consume(s->ring);
	tell_long_calls(s);
	write_text(s);
	if (s->error)
		return s->error;
	return r < 0 && r != -EINTR ? r : last;
}

/* ---- statistics ---- */

static int read_stats(const struct syscalls *s, int fd, const void *key, struct syscalls_stats *ret)
{
	_cleanup_free_ struct syscalls_stats *cpus = calloc(s->cpus, sizeof(*cpus));
	int r = cpus ? bpf_map_lookup_elem(fd, key, cpus) : -ENOMEM;

	*ret = (struct syscalls_stats){};
	for (u32 i = 0; i < s->cpus && r == 0; i++)
		syscalls_add_stats(ret, &cpus[i]);
	return r;
}

static int read_totals(struct syscalls *s, struct syscalls_rows *rows)
{
	int fd = bpf_map__fd(s->bpf->maps.totals), r = 0;

	for (u32 slot = 0; slot < SYSCALLS_MAX && r == 0; slot++) {
		struct syscalls_row row = {.slot = slot};

		r = read_stats(s, fd, &slot, &row.stats);
		if (r == 0 && row.stats.calls)
			r = vec_push(&rows->v, row);
	}
	return r;
}

static void read_comm(const struct syscalls *s, struct syscalls_row *row)
{
	char path[64];
	FILE *f;

	if (bpf_map_lookup_elem(bpf_map__fd(s->bpf->maps.names), &row->pid, row->comm) == 0)
		return;
	snprintf(path, sizeof(path), "/proc/%u/comm", row->pid);
	f = fopen(path, "re");
	if (f && fgets(row->comm, sizeof(row->comm), f))
		row->comm[strcspn(row->comm, "\n")] = '\0';
	if (f)
		fclose(f);
}

static int read_processes(struct syscalls *s, struct syscalls_rows *rows)
{
	int fd = bpf_map__fd(s->bpf->maps.by_process), r = 0;
	u32 max = bpf_map__max_entries(s->bpf->maps.by_process);
	struct syscalls_key key, next;

	for (u32 i = 0; i < max && r == 0; i++) {
		struct syscalls_row row;

		if (bpf_map_get_next_key(fd, i ? &key : NULL, &next) < 0)
			break;
		key = next;
		row = (struct syscalls_row){.pid = key.pid, .slot = key.slot};
		r = read_stats(s, fd, &key, &row.stats);
		read_comm(s, &row);
		if (r == 0 && row.stats.calls)
			r = vec_push(&rows->v, row);
	}
	return r;
}

static u64 read_count(const struct syscalls *s, const struct bpf_map *map, u32 i)
{
	_cleanup_free_ u64 *cpus = calloc(s->cpus, sizeof(*cpus));
	u64 n = 0;

	if (!cpus || bpf_map_lookup_elem(bpf_map__fd(map), &i, cpus) < 0)
		return 0;
	for (u32 cpu = 0; cpu < s->cpus; cpu++)
		n += cpus[cpu];
	return n;
}

static void print_unreturned(struct syscalls *s)
{
	const char *separator = "\nNot returned, because the thread ended: ";

	for (u32 slot = 0; slot < SYSCALLS_MAX; slot++) {
		u64 n = read_count(s, s->bpf->maps.unreturned, slot);
		const char *name = syscalls_name(slot);

		if (!n)
			continue;
		str_printf(&s->text, "%s%s %llu", separator, name ? name : "others", n);
		separator = ", ";
	}
	if (*separator == ',')
		str_putc(&s->text, '\n');
}

static int print_summary(struct syscalls *s)
{
	struct syscalls_rows rows = {};
	int r = s->o.by_process ? read_processes(s, &rows) : read_totals(s, &rows);

	syscalls_print_rows(&rows, s->o.json, &s->text);
	vec_deinit(&rows.v);
	if (!s->o.json)
		print_unreturned(s);
	return r;
}

int syscalls_end(struct syscalls *s)
{
	int r = 0;

	syscalls_bpf__detach(s->bpf);
	(void)ring_buffer__consume(s->ring);
	if (s->o.summary)
		r = print_summary(s);
	else if (!s->o.all && !s->o.errors && !s->o.slower_ns)
		(void)each_thread(s, tell_last);
	write_text(s);
	return r < 0 ? r : s->error;
}

void syscalls_print_lost(const struct syscalls *s, struct str *out)
{
	static const char *const texts[SYSCALLS_LOST_N] = {
		[SYSCALLS_LOST_RECORD] =
			"lines were lost, because calls came faster than they were printed: use "
			"--summary, --only, --errors or --slower-than",
		[SYSCALLS_LOST_THREAD] = "threads were not followed, because there are too many",
		[SYSCALLS_LOST_PROCESS] =
			"calls are missing, because there are too many processes: leave out --by",
	};

	for (u32 i = 0; i < SYSCALLS_LOST_N; i++) {
		u64 n = read_count(s, s->bpf->maps.lost, i);

		if (n)
			str_printf(out, "%llu %s\n", n, texts[i]);
	}
}

void syscalls_destroy(struct syscalls *s)
{
	if (!s)
		return;
	ring_buffer__free(s->ring);
	if (s->bpf)
		syscalls_bpf__destroy(s->bpf);
	syscalls_table_destroy(s->table);
	str_deinit(&s->text);
	vec_deinit(&s->told.v);
	vec_deinit(&s->telling.v);
	free(s);
}
