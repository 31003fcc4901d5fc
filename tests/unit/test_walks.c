/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded walks (tests/host/snapshot.h), walked again without the process: those of
 * tests/unit/walks, or of the directory CULPRIT_WALKS. The frames are the recorded ones; where
 * memory is missing, the walk ends for a reason, and finds no frame that was not there.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static void note_return(unsigned long long pc);
#define HOST_RETURN(pc, cfa) note_return(pc)
#include "tests/host/snapshot.h"

static struct snapshot snapshot;
/* The return addresses that the last walk has found. */
static struct {
	u64 pc[SAMPLE_MAX_FRAMES];
	u32 n;
} returns;

static void note_return(unsigned long long pc)
{
	if (returns.n < SAMPLE_MAX_FRAMES)
		returns.pc[returns.n++] = pc;
}

/* The memory of the process. */

static long host_read(void *to, __u32 n, __u64 avma)
{
	vec_foreach (&snapshot.ranges, r) {
		if (avma - r->start < r->n && n <= r->n - (avma - r->start)) {
			memcpy(to, r->bytes + (avma - r->start), n);
			return 0;
		}
	}
	memset(to, 0, n); /* as the kernel does */
	return -EFAULT;
}

/* ---- the text ---- */

struct reader {
	char again[512], runtime[16];
	u64 layout;
	size_t n_process, n_binary;
	bool ended;
};

static bool word_of(const char *const *words, size_t n, const char *text, u8 *ret)
{
	for (size_t i = 0; i < n; i++) {
		if (!strcmp(words[i], text)) {
			*ret = (u8)i;
			return true;
		}
	}
	return false;
}

/*
 * Appends the bytes of a line to a struct of `size` bytes of which *n are there. Bytes that have no
 * room count, too: the struct was larger when it was recorded.
 */
static bool read_struct(const char *hex, void *to, size_t size, size_t *n)
{
	size_t bytes = strlen(hex) / 2;
	bool good = bytes > size || *n > size - bytes || text_unhex(hex, bytes, (u8 *)to + *n);

	*n += bytes;
	return good;
}

static bool read_memory(const char *text)
{
	struct snapshot_range more = {}, *r;
	char *hex;

	more.start = strtoull(text, &hex, 16);
	more.n = strlen(hex) / 2; /* there is a space */
	more.bytes = malloc(more.n + 1);
	if (*hex != ' ' || !text_unhex(hex + 1, more.n, more.bytes)) {
		free(more.bytes);
		return false;
	}
	r = snapshot.ranges.n ? &snapshot.ranges.data[snapshot.ranges.n - 1] : NULL;
	if (!r || r->start + r->n != more.start)
		return vec_push(&snapshot.ranges, more) == 0;
	/* Exactly as long as the range, so that sanitizers see what is read beyond. */
	r->bytes = realloc(r->bytes, r->n + more.n);
	memcpy(r->bytes + r->n, more.bytes, more.n);
	r->n += more.n;
	free(more.bytes);
	return true;
}

static bool read_register(const char *text)
{
	u32 number;
	u64 value;

	if (sscanf(text, "%u %llx", &number, &value) != 2 || number >= UNWIND_N_REGS)
		return false;
	snapshot.regs.r[number] = value;
	snapshot.regs.full = snapshot.regs.exact = 1;
	return true;
}

static bool read_mapping(const char *text)
{
	struct snapshot_mapping m = {};
	char rows[8], runtime[8];

	if (sscanf(text, "%llx %llx %llx %u %7s %7s", &m.start, &m.end, &m.bias, &m.file, rows,
		   runtime) != 6)
		return false;
	m.rows = !strcmp(rows, "rows");
	m.runtime = !strcmp(runtime, "runtime");
	return vec_push(&snapshot.mappings, m) == 0;
}

static bool read_row(const char *text)
{
	struct snapshot_row row = {};
	struct unwind_rule *r = &row.rule;
	char cfa[16], ra[8], fp[8];

	return sscanf(text, "%u %llx %15s %hhu %d %hd %7s %hd %7s %hd %hd", &row.file, &row.svma,
		      cfa, &r->cfa_reg, &r->cfa_off, &r->cfa_add, ra, &r->ra_off, fp, &r->fp_off,
		      &r->bx_off) == 11 &&
	       word_of(snapshot_cfa, ARRAY_SIZE(snapshot_cfa), cfa, &r->cfa_op) &&
	       word_of(snapshot_ra, ARRAY_SIZE(snapshot_ra), ra, &r->ra_op) &&
	       word_of(snapshot_fp, ARRAY_SIZE(snapshot_fp), fp, &r->fp_op) &&
	       vec_push(&snapshot.rows, row) == 0;
}

static bool read_frame(const char *text)
{
	u64 a, b, *to = &snapshot.frames[snapshot.n_frames];

	if (snapshot.n_frames + 2 > SAMPLE_MAX_FRAMES)
		return false;
	if (sscanf(text, "runtime %llx %llx", &a, &b) == 2) {
		to[0] = WORD_RUNTIME | (u64)snapshot.runtime << WORD_RUNTIME_SHIFT | a;
		to[1] = b;
		snapshot.n_frames += 2;
		return true;
	}
	if (sscanf(text, "native %llu %llx", &a, &b) == 2)
		*to = a << WORD_SVMA_BITS | b;
	else if (sscanf(text, "raw %llx", &a) == 1)
		*to = WORD_RAW | a;
	else
		return false;
	snapshot.n_frames++;
	return true;
}

static bool read_runtime(struct reader *r, const char *text)
{
	static const char *const names[RUNTIME_N] = {
#define RUNTIME(id, name, ...) [RUNTIME_##id] = #name,
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	};

	if (sscanf(text, "%15s", r->runtime) != 1)
		return false;
	for (u32 i = 1; i < RUNTIME_N; i++)
		if (!strcmp(names[i], r->runtime))
			snapshot.runtime = i;
	return snapshot.runtime;
}

static bool read_stop(struct reader *r, const char *text)
{
	r->ended = true;
	for (snapshot.stop = 0; snapshot.stop < STOP_N; snapshot.stop++)
		if (!strcmp(vocab_stop(snapshot.stop)->name, text))
			return true;
	return false;
}

static bool read_line(struct reader *r, const char *item, const char *text)
{
	if (!strcmp(item, "again")) {
		snprintf(r->again, sizeof(r->again), "%s", text);
		return true;
	}
	if (!strcmp(item, "runtime"))
		return read_runtime(r, text);
	if (!strcmp(item, "layout"))
		return str_to_u64(text, 16, &r->layout) == 0;
	if (!strcmp(item, "process"))
		return read_struct(text, &snapshot.process, sizeof(snapshot.process),
				   &r->n_process);
	if (!strcmp(item, "binary"))
		return read_struct(text, &snapshot.binary, sizeof(snapshot.binary), &r->n_binary);
	if (!strcmp(item, "regs"))
		return sscanf(text, "%llx %llx %llx %llx", &snapshot.regs.pc, &snapshot.regs.sp,
			      &snapshot.regs.fp, &snapshot.regs.tls) == 4;
	if (!strcmp(item, "r"))
		return read_register(text);
	if (!strcmp(item, "mapping"))
		return read_mapping(text);
	if (!strcmp(item, "row"))
		return read_row(text);
	if (!strcmp(item, "memory"))
		return read_memory(text);
	if (!strcmp(item, "frame"))
		return read_frame(text);
	return !strcmp(item, "stop") && read_stop(r, text);
}

/* False, and a failed test, if the structs are no longer those of the recording. */
static bool is_current(const struct reader *r, const char *path)
{
	const char *top = getenv("CULPRIT_SOURCE");
	u64 layout;

	cr_assert(top && snapshot_layout(top, r->runtime, &layout) == 0, "CULPRIT_SOURCE");
	if (r->layout == layout && r->n_process == sizeof(snapshot.process) &&
	    r->n_binary == sizeof(snapshot.binary))
		return true;
	cr_expect_fail("%s: abi/runtime.h, runtime_common.h or runtime_%s.h has changed; "
		       "record this snapshot again with: %s",
		       path, r->runtime, r->again);
	return false;
}

/* Reads the snapshot; false: it has to be recorded again. */
static bool load(const char *path)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	char line[1024], architecture[16];
	struct reader r = {};
	int version;
	bool current;

	cr_assert(f, "%s: %s", path, strerror(errno));
	memset(&snapshot, 0, sizeof(snapshot));
	cr_assert(fgets(line, sizeof(line), f) &&
			  sscanf(line, "walk %d %15s", &version, architecture) == 2,
		  "%s:1: no snapshot", path);
	cr_assert_eq(version, SNAPSHOT_VERSION, "%s: record this snapshot again", path);
	for (u32 n = 2; fgets(line, sizeof(line), f); n++) {
		char *text = line;

		line[strcspn(line, "\n")] = 0;
		(void)strsep(&text, " ");
		cr_assert(!r.ended && text && read_line(&r, line, text), "%s:%u: wrong line", path,
			  n);
	}
	cr_assert(r.ended && *r.again && *r.runtime, "%s: is cut off", path);
	current = !strcmp(architecture, SNAPSHOT_ARCHITECTURE) && is_current(&r, path);
	if (current)
		snapshot_make_tables(&snapshot);
	return current;
}

static void forget(void)
{
	vec_foreach (&snapshot.ranges, r)
		free(r->bytes);
	vec_deinit(&snapshot.mappings);
	vec_deinit(&snapshot.rows);
	vec_deinit(&snapshot.ranges);
	vec_deinit(&snapshot.arena);
}

/* ---- the walk ---- */

static bool is_runtime(u64 word)
{
	return (word & WORD_RUNTIME) == WORD_RUNTIME;
}

static void print_frames(struct str *out, const u64 *frames, u32 n)
{
	for (u32 i = 0; i < n; i++)
		str_printf(out, is_runtime(frames[i]) ? " %llx:" : " %llx", frames[i]);
}

static u32 walk(void)
{
	returns.n = 0;
	return snapshot_walk(&snapshot, NULL);
}

static void expect_same(const char *path)
{
	const u64 *got = host_scratch.user.frames, *want = snapshot.frames;
	_cleanup_str_ struct str text = {};
	u32 stop = walk(), n = host_scratch.walk.n, i, same = 0;

	for (i = 0; i < n && i < snapshot.n_frames; i += 1 + is_runtime(want[i]), same++)
		if (got[i] != want[i] || (is_runtime(want[i]) && got[i + 1] != want[i + 1]))
			break;
	print_frames(&text, got + i, n - i);
	cr_expect(i == n && n == snapshot.n_frames && stop == snapshot.stop,
		  "%s: after %u right frames the walk finds%s and ends with: %s", path, same,
		  text.n ? str_get(&text) : " nothing", vocab_stop(stop)->name);
}

/* Whether a frame is the address of a frame whose runtime or file could not be told. */
static bool is_known_address(u64 frame, const u64 *pcs, u32 n)
{
	bool known = frame == (WORD_RAW | snapshot.regs.pc);

	for (u32 i = 0; i < n; i++)
		known |= frame == (WORD_RAW | (pcs[i] - 1));
	return known;
}

/*
 * Whether all frames of the walk are frames of the recording, in its order. Of a runtime frame only
 * the address counts: without the object's memory its position and its cookie are not known, and
 * user space names it "[stale]". The last may be an address alone: one of the `n` return addresses.
 * A walk that says it is complete has reached the outermost frame.
 */
static bool has_only_recorded(u32 stop, const u64 *pcs, u32 n)
{
	const u64 *got = host_scratch.user.frames;
	u32 k = 0;

	for (u32 i = 0; i < host_scratch.walk.n; i += 1 + is_runtime(got[i])) {
		while (k < snapshot.n_frames && snapshot.frames[k] != got[i])
			k += 1 + is_runtime(snapshot.frames[k]);
		if (k >= snapshot.n_frames)
			return i + 1 == host_scratch.walk.n && is_known_address(got[i], pcs, n);
		k += 1 + is_runtime(got[i]);
	}
	return stop != STOP_COMPLETE || k == snapshot.n_frames;
}

/* Walks with the first bytes of each range only: none of them, then 8 more each time. */
static void cut_ranges(const char *path)
{
	u64 pcs[SAMPLE_MAX_FRAMES], n, left;
	u32 stop = walk(), n_pcs = returns.n;

	memcpy(pcs, returns.pc, sizeof(pcs));
	vec_foreach (&snapshot.ranges, r) {
		_cleanup_str_ struct str got = {};
		bool good = true;

		n = r->n;
		for (left = 0; left < n && good; left += 8) {
			r->n = left;
			stop = walk();
			good = stop < STOP_N && has_only_recorded(stop, pcs, n_pcs);
		}
		r->n = n;
		print_frames(&got, host_scratch.user.frames, host_scratch.walk.n);
		cr_expect(good, "%s: %llu of %llu bytes at %llx: %s:%s", path, left - 8, n,
			  r->start, vocab_stop(stop)->name, str_get(&got));
	}
}

Test(walks, find_the_recorded_frames_and_without_some_memory_no_other)
{
	const char *directory = getenv("CULPRIT_WALKS");
	char path[4096];
	struct dirent *e;
	u32 n = 0;
	DIR *d;

	if (directory)
		snprintf(path, sizeof(path), "%s", directory);
	else
		snprintf(path, sizeof(path), "%s/tests/unit/walks", getenv("CULPRIT_SOURCE"));
	d = opendir(path);
	cr_assert(d, "%s: %s", path, strerror(errno));
	for (size_t at = strlen(path); (e = readdir(d)); path[at] = 0) {
		if (!str_ends(e->d_name, ".walk"))
			continue;
		snprintf(path + at, sizeof(path) - at, "/%s", e->d_name);
		if (load(path)) {
			expect_same(path);
			cut_ranges(path);
		}
		forget();
		n++;
	}
	closedir(d);
	cr_assert(n, "%s: no snapshots", path);
}
