/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records one walk of a live thread as a snapshot (tests/host/snapshot.h): stops the process, walks
 * the thread's stack with the walkers of bpf/unwind, compiled for the host, and writes what they
 * read and found. tests/unit/test_walks.c walks the snapshot again.
 *
 * usage: record_walk PID [TID [AGAIN]]	> tests/unit/walks/NAME.walk
 *	AGAIN	the command that records the snapshot anew; it is what the snapshot's reader is told
 *		when structs have changed
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "tests/host/snapshot.h"

#include "base/text.h"
#include "tests/host/live.h"

#define BYTES_PER_LINE 48u
#define MAX_ROUNDS 10000

static struct live_process live;
static struct snapshot snapshot;

/* ---- the process ---- */

/* Adds bytes that the walk has read. The snapshot's ranges stay sorted, apart, and not adjacent. */
static void note_read(u64 start, const u8 *bytes, u64 n)
{
	struct snapshot_range all = {start, n, NULL};
	size_t i = 0, to = 0;

	while (i < snapshot.ranges.n &&
	       snapshot.ranges.data[i].start + snapshot.ranges.data[i].n < start)
		i++;
	for (to = i; to < snapshot.ranges.n && snapshot.ranges.data[to].start <= start + n; to++) {
		const struct snapshot_range *r = &snapshot.ranges.data[to];
		u64 end = MAX(all.start + all.n, r->start + r->n);

		all.start = MIN(all.start, r->start);
		all.n = end - all.start;
	}
	all.bytes = calloc(1, all.n);
	if (!all.bytes || vec_push(&snapshot.ranges, all) < 0)
		abort();
	for (size_t k = i; k < to; k++) {
		const struct snapshot_range *r = &snapshot.ranges.data[k];

		memcpy(all.bytes + (r->start - all.start), r->bytes, r->n);
		free(r->bytes);
	}
	memcpy(all.bytes + (start - all.start), bytes, n);
	memmove(&snapshot.ranges.data[i + 1], &snapshot.ranges.data[to],
		(snapshot.ranges.n - 1 - to) * sizeof(all));
	snapshot.ranges.n -= to - i;
	snapshot.ranges.data[i] = all;
}

static long host_read(void *to, __u32 n, __u64 avma)
{
	struct iovec local = {to, n}, remote = {(void *)(uintptr_t)avma, n};

	if (process_vm_readv((pid_t)live.process->pid, &local, 1, &remote, 1, 0) != (ssize_t)n) {
		memset(to, 0, n); /* as the kernel does */
		return -EFAULT;
	}
	if (n)
		note_read(avma, to, n);
	return 0;
}

struct stopped {
	pid_t tid;
	int signal;
};
static vec(struct stopped) threads;

/* Stops all threads, because a thread that runs would change what has been read. */
static int stop_threads(u32 pid)
{
	char path[64];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%u/task", pid);
	d = opendir(path);
	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		struct stopped t = {.tid = (pid_t)strtol(e->d_name, NULL, 10)};
		int status;

		if (!t.tid)
			continue;
		/* A thread may end meanwhile. */
		if (ptrace(PTRACE_SEIZE, t.tid, 0, 0) < 0 ||
		    ptrace(PTRACE_INTERRUPT, t.tid, 0, 0) < 0 ||
		    waitpid(t.tid, &status, __WALL) != t.tid || !WIFSTOPPED(status))
			continue;
		t.signal = live_signal(status);
		if (vec_push(&threads, t) < 0)
			abort();
	}
	closedir(d);
	return threads.n ? 0 : -EPERM;
}

static void resume_threads(void)
{
	vec_foreach (&threads, t)
		ptrace(PTRACE_DETACH, t->tid, 0, (void *)(intptr_t)t->signal);
}

/* ---- the unwind tables ---- */

static void add_mappings(void)
{
	const struct procman_process *p = live.process;

	for (u32 i = 0; i < p->n; i++) {
		const struct procman_mapping *m = &p->mappings[i];
		bool jit = procman_binary_is_jit(m->binary);

		if (vec_push(&snapshot.mappings,
			     (struct snapshot_mapping){
				     .start = m->start,
				     .end = m->end,
				     .bias = m->bias,
				     .file = jit ? 0 : m->binary->file_id,
				     .rows = m->binary->elf,
				     .runtime = runtimes_of_mapping(live.runtimes, p, m) ==
						live.runtime,
				     .path = m->binary->path,
			     }) < 0)
			abort();
	}
}

static struct unwind_source *source_of(const struct procman_binary *b)
{
	static struct {
		u32 file;
		struct unwind_source *source;
	} all[64];

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (!all[i].file) {
			all[i].file = b->file_id;
			if (unwind_source_create(b->elf, &all[i].source) < 0)
				return NULL;
		}
		if (all[i].file == b->file_id)
			return all[i].source;
	}
	return NULL;
}

static bool find_rule(struct unwind_source *source, u64 svma, struct unwind_rule *ret)
{
	static u32 rows[UNWIND_PAGE_BYTES];
	const struct unwind_rule *rules;
	u32 n, n_rules, i = 0, off = svma & (UNWIND_PAGE_BYTES - 1);

	if (unwind_source_rows(source, svma >> UNWIND_PAGE_SHIFT, rows, &n) < 0 || !n)
		return false;
	rules = unwind_source_rules(source, &n_rules);
	while (i + 1 < n && rows[i + 1] >> 16 <= off)
		i++;
	*ret = rules[rows[i] & 0xffff];
	return true;
}

/* Adds the row for an address of the process; false: it is there, or the file has none. */
static bool add_row(u64 pc)
{
	const struct procman_mapping *m = procman_process_find(live.process, pc);
	struct unwind_source *source = m && m->binary->elf ? source_of(m->binary) : NULL;
	struct snapshot_row row = {};
	size_t i;

	if (!source)
		return false;
	row.file = m->binary->file_id;
	row.svma = pc - m->bias;
	for (i = 0; i < snapshot.rows.n; i++) {
		const struct snapshot_row *r = &snapshot.rows.data[i];

		if (r->file == row.file && r->svma == row.svma)
			return false;
		if (r->file > row.file || (r->file == row.file && r->svma > row.svma))
			break;
	}
	if (!find_rule(source, row.svma, &row.rule))
		return false;
	if (vec_push(&snapshot.rows, row) < 0)
		abort();
	memmove(&snapshot.rows.data[i + 1], &snapshot.rows.data[i],
		(snapshot.rows.n - 1 - i) * sizeof(row));
	snapshot.rows.data[i] = row;
	return true;
}

static void note_mapping(const struct walk *w)
{
	vec_foreach (&snapshot.mappings, m)
		m->used |= w->have_mapping && m->start == w->mapping.start;
}

/* Walks again and again: each walk tells one more row that the next one needs. */
static void walk(void)
{
	/* The walker of a leaf asks for its row only if the page is there. */
	(void)add_row(snapshot.regs.pc);
	for (u32 i = 0; i < MAX_ROUNDS; i++) {
		const struct walk *w = &host_scratch.walk;

		snapshot_make_tables(&snapshot);
		snapshot.stop = snapshot_walk(&snapshot, note_mapping);
		if ((snapshot.stop != STOP_NOT_LOADED && snapshot.stop != STOP_NO_TABLE) ||
		    !add_row(walk_pc(&w->regs)))
			break;
	}
	snapshot.n_frames = host_scratch.walk.n;
	memcpy(snapshot.frames, host_scratch.user.frames, snapshot.n_frames * sizeof(u64));
}

/* ---- the text ---- */

static void print_bytes(const char *what, u64 address, const void *bytes, u64 n)
{
	char hex[2 * BYTES_PER_LINE + 1];

	for (u64 i = 0; i < n; i += BYTES_PER_LINE) {
		text_hex((const u8 *)bytes + i, MIN(n - i, (u64)BYTES_PER_LINE), hex);
		printf("%s ", what);
		if (address)
			printf("%llx ", address + i);
		puts(hex);
	}
}

static void print_head(const char *again, u64 layout)
{
	char text[512];

	live.ops->describe(live.learned, text, sizeof(text));
	printf("walk %d %s # Apache-2.0, as all of culprit\n", SNAPSHOT_VERSION,
	       SNAPSHOT_ARCHITECTURE);
	printf("again %s\n", again);
	printf("runtime %s %s\n", runtime_table[live.runtime].name, text);
	printf("layout %llx\n", layout);
	print_bytes("process", 0, &snapshot.process, sizeof(snapshot.process));
	print_bytes("binary", 0, &snapshot.binary, sizeof(snapshot.binary));
	printf("regs %llx %llx %llx %llx\n", snapshot.regs.pc, snapshot.regs.sp, snapshot.regs.fp,
	       snapshot.regs.tls);
	for (u32 i = 0; i < UNWIND_N_REGS; i++)
		printf("r %u %llx\n", i, snapshot.regs.r[i]);
}

static void print_tables(void)
{
	vec_foreach (&snapshot.mappings, m)
		if (m->used)
			printf("mapping %llx %llx %llx %u %s %s %s\n", m->start, m->end, m->bias,
			       m->file, m->rows ? "rows" : "fp", m->runtime ? "runtime" : "-",
			       m->path);
	vec_foreach (&snapshot.rows, row) {
		const struct unwind_rule *r = &row->rule;

		printf("row %u %llx %s %u %d %d %s %d %s %d %d\n", row->file, row->svma,
		       snapshot_cfa[r->cfa_op], r->cfa_reg, r->cfa_off, r->cfa_add,
		       snapshot_ra[r->ra_op], r->ra_off, snapshot_fp[r->fp_op], r->fp_off,
		       r->bx_off);
	}
	vec_foreach (&snapshot.ranges, r)
		print_bytes("memory", r->start, r->bytes, r->n);
}

/* Prints the names of the frame in the first two of n words. */
static void print_names(const u64 *words, u32 n)
{
	const struct runtime_answer *a;
	u32 id;

	if (!(words[0] & WORD_RUNTIME_ADDRESS)) {
		puts(" # the next frame is the runtime's own");
		return;
	}
	if (runtimes_name(live.runtimes, live.process, words, n, &id) < 0)
		abort();
	a = runtime_answers_get(&live.runtimes->answers, id);
	for (u32 i = 0; i < a->n; i++) {
		const struct runtime_frame *f = &live.runtimes->answers.frames.data[a->first + i];
		_cleanup_str_ struct str name = {};

		text_append_clean(&name, f->function, 0);
		printf(" # %s", str_get(&name));
		if (f->file)
			printf(" %s:%u", f->file, f->line);
	}
	puts("");
}

static void print_frames(void)
{
	for (u32 i = 0; i < snapshot.n_frames; i++) {
		u64 word = snapshot.frames[i];
		const char *path = "";

		if ((word & WORD_RUNTIME) == WORD_RUNTIME) {
			printf("frame runtime %llx %llx", word & WORD_RUNTIME_ADDRESS,
			       snapshot.frames[i + 1]);
			print_names(&snapshot.frames[i], snapshot.n_frames - i);
			i++;
			continue;
		}
		if (word & WORD_RAW) {
			printf("frame raw %llx\n", word & ~WORD_RAW);
			continue;
		}
		vec_foreach (&snapshot.mappings, m)
			path = m->file == word >> WORD_SVMA_BITS ? m->path : path;
		printf("frame native %llu %llx # %s\n", word >> WORD_SVMA_BITS,
		       word & WORD_SVMA_MASK, path);
	}
	printf("stop %s\n", vocab_stop(snapshot.stop)->name);
}

static int fail(const char *why)
{
	fprintf(stderr, "record_walk: %s\n", why);
	return 1;
}

int main(int argc, char **argv)
{
	struct user_regs_struct r;
	struct diag why = {};
	u64 pid, tid, layout = 0;
	int e;

	if (argc < 2 || argc > 4 || str_to_u64(argv[1], 10, &pid) < 0 ||
	    str_to_u64(argv[argc > 2 ? 2 : 1], 10, &tid) < 0)
		return fail("usage: record_walk PID [TID [AGAIN]]");
	if (live_attach((u32)pid, &live, &why) < 0)
		return fail(why.text);
	if (snapshot_layout(SOURCE_ROOT, runtime_table[live.runtime].name, &layout) < 0)
		return fail("cannot read " SOURCE_ROOT "/abi/runtime_NAME.h: build again");
	e = stop_threads((u32)pid);
	if (e == 0 && ptrace(PTRACE_GETREGS, (pid_t)tid, 0, &r) < 0)
		e = -errno;
	if (e < 0) {
		fprintf(stderr, "record_walk: thread %llu cannot be stopped: %s\n", tid,
			strerror(-e));
		return 1;
	}
	snapshot.runtime = live.runtime;
	snapshot.process = host_process;
	snapshot.binary = host_binary;
	snapshot.regs = live_regs(&r);
	add_mappings();
	walk();
	print_head(argc > 3 ? argv[3] : "tests/tools/record_walk PID TID", layout);
	print_tables();
	print_frames();
	resume_threads();
	return 0;
}
