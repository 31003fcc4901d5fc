/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the profiles of gperftools, of jemalloc's older tools and of /pprof/ handlers in C++, from
 * before pprof's protobuf:
 *
 *	CPU	words of 32 or 64 bits in either byte order: 0 3 0 PERIOD_US 0, then
 *		COUNT N ADDRESS... for each stack, then 0 1 0
 *	heap	heap profile: OBJECTS: BYTES [ALLOCATED: BYTES] @ KIND/RATE, then lines of the
 *		same form with addresses
 *	locks	--- contention...: NAME = VALUE, then CYCLES COUNT @ ADDRESS...
 *
 * All end with the process's /proc/PID/maps. `pprof --raw` puts names before them (--- symbol).
 * Without names a frame is an offset in a file, which culprit's commands look up (cli/naming.c).
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/vocab.h"
#include "format/internal.h"
#include "proc/proc.h"

#define MAX_STACK 65536
#define MAX_MAPPINGS 65536

struct gperf_mapping {
	u64 start, end, offset;
	u32 id; /* in the profile */
};

struct gperf_reader {
	struct profile *p; /* owned */
	struct diag *diag;
	vec(struct gperf_mapping) mappings; /* by address */
	struct map names;		    /* address → string id */
	struct map frames;		    /* address → frame */
	vec(u64) stack;			    /* addresses, leaf first */
	vec(u32) ids;
	u64 period;
	double ns_per_cycle;
	bool sampled; /* a heap profile: an object stands for others */
	bool cut;     /* the file has no end */
	u64 line, damaged, damaged_line;
};

static void reader_deinit(struct gperf_reader *f)
{
	profile_destroy(f->p);
	vec_deinit(&f->mappings);
	map_deinit(&f->names);
	map_deinit(&f->frames);
	vec_deinit(&f->stack);
	vec_deinit(&f->ids);
}

static int bad(const struct gperf_reader *f, const char *what)
{
	return diag_set(f->diag, -EBADMSG, "gperftools: %s", what);
}

static bool starts(const char *s, size_t n, const char *with)
{
	return n >= strlen(with) && !memcmp(s, with, strlen(with));
}

/* ---- mappings and names ---- */

static int compare_mappings(const void *a, const void *b)
{
	const struct gperf_mapping *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static int add_mapping(struct gperf_reader *f, const char *s, size_t n)
{
	_cleanup_free_ char *line = strndup(s, n);
	struct gperf_mapping m;
	struct proc_mapping row;
	struct profile_mapping file = {};
	int r;

	if (!line)
		return -ENOMEM;
	if (proc_maps_parse_line(line, strlen(line), &row) < 0 || !(row.prot & PROT_EXEC))
		return 0;
	if (f->mappings.n == MAX_MAPPINGS)
		return bad(f, "too many mappings in it");
	m = (struct gperf_mapping){.start = row.start, .end = row.end, .offset = row.offset};
	r = profile_add_string(f->p, row.path, strlen(row.path), &file.path);
	if (r == 0)
		r = profile_add_mapping(f->p, &file, &m.id);
	return r < 0 ? r : vec_push(&f->mappings, m);
}

static int read_mappings(struct gperf_reader *f, const char *pos, const char *end)
{
	const char *s;
	size_t n;
	int r = 0;

	while (r == 0 && profile_next_line(&pos, end, &s, &n))
		r = add_mapping(f, s, n);
	if (f->mappings.n)
		qsort(f->mappings.data, f->mappings.n, sizeof(*f->mappings.data), compare_mappings);
	return r;
}

static const struct gperf_mapping *mapping_of(const struct gperf_reader *f, u64 address)
{
	size_t low = 0, high = f->mappings.n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (f->mappings.data[mid].start <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low && address < f->mappings.data[low - 1].end ? &f->mappings.data[low - 1] : NULL;
}

/* "0x401000" and what stands behind it. */
static bool take_hex(const char **s, const char *end, u64 *ret)
{
	u64 v = 0;
	const char *p = *s;

	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	if (end - p < 3 || p[0] != '0' || p[1] != 'x' || !isxdigit((u8)p[2]))
		return false;
	for (p += 2; p < end && isxdigit((u8)*p); p++) {
		if (v >> 60)
			return false;
		v = v << 4 | (u64)(isdigit((u8)*p) ? *p - '0' : tolower(*p) - 'a' + 10);
	}
	*s = p;
	*ret = v;
	return true;
}

/* "0x401000 main"; `pprof --raw` puts "--" between an inlined function and its callers. */
static int add_name(struct gperf_reader *f, const char *s, size_t n)
{
	const char *end = s + n, *dashes;
	u64 address;
	u32 id;
	int r;

	if (!take_hex(&s, end, &address) || address >= MAP_GONE_KEY || s == end)
		return 0;
	while (s < end && *s == ' ')
		s++;
	dashes = memmem(s, (size_t)(end - s), "--", 2);
	end = dashes && dashes > s ? dashes : end;
	r = profile_add_string(f->p, s, (size_t)(end - s), &id);
	return r < 0 ? r : map_put(&f->names, address, id);
}

static int make_frame(struct gperf_reader *f, u64 address, bool call, u32 *ret)
{
	const struct gperf_mapping *m = mapping_of(f, address - call);
	struct profile_frame frame = {.address = address - call,
				      .mapping = PROFILE_NONE,
				      .function = PROFILE_NONE,
				      .kind = FRAME_UNKNOWN};
	u64 *name = address < MAP_GONE_KEY ? map_get(&f->names, address) : NULL;
	struct profile_function fn = {};
	int r = 0;

	if (!name && address - call < MAP_GONE_KEY)
		name = map_get(&f->names, address - call);
	if (m) {
		frame.kind =
			profile_kind_of_path(profile_string(f->p, f->p->mappings.data[m->id].path));
		frame.mapping = m->id;
		frame.flags = PROFILE_FRAME_OFFSET;
		frame.address = address - call - m->start + m->offset;
	}
	if (name) {
		frame.kind = FRAME_NATIVE;
		fn.name = fn.system_name = (u32)*name;
		r = profile_add_function(f->p, &fn, &frame.function);
	}
	return r < 0 ? r : profile_add_frame(f->p, &frame, ret);
}

/* ---- stacks ---- */

/* `leaf_runs`: the first address is of the instruction that ran, and not of one behind a call. */
static int add_sample(struct gperf_reader *f, bool leaf_runs, const s64 *values)
{
	u32 id, stack;
	int r = 0;

	vec_clear(&f->ids);
	for (size_t i = 0; i < f->stack.n && r == 0; i++) {
		bool call = i || !leaf_runs;
		u64 key = (f->stack.data[i] << 1 | call) & INT64_MAX, *known;

		known = map_get(&f->frames, key);
		id = known ? (u32)*known : 0;
		if (!known)
			r = make_frame(f, f->stack.data[i], call, &id);
		if (r == 0 && !known)
			r = map_put(&f->frames, key, id);
		if (r == 0)
			r = vec_push(&f->ids, id);
	}
	if (r == 0)
		r = profile_add_stack(f->p, f->ids.data, f->ids.n, &stack);
	if (r == 0)
		r = profile_add_sample(f->p, 0, PROFILE_NONE, stack, values);
	return r == -ERANGE ? bad(f, "its values add up to more than 63 bits") : r;
}

/* ---- CPU: words ---- */

struct words {
	struct buf b;
	bool wide;
};

static bool word(struct words *w, u64 *ret)
{
	u32 half;

	if (w->wide)
		return buf_u64(&w->b, ret);
	if (!buf_u32(&w->b, &half))
		return false;
	*ret = half;
	return true;
}

/* The header fits one of the four ways to write words. */
static bool is_cpu(const u8 *data, size_t n, struct words *ret, u64 *ret_period)
{
	for (u32 way = 0; way < 4; way++) {
		struct words w = {.b = buf_of(data, n), .wide = way & 2};
		u64 v[5];
		bool all = true;

		w.b.swap = way & 1;
		for (u32 i = 0; i < 5 && all; i++)
			all = word(&w, &v[i]);
		if (!all || v[0] || v[1] != 3 || v[2] || !v[3] || v[3] > 1000000000 || v[4])
			continue;
		*ret = w;
		*ret_period = v[3] * 1000;
		return true;
	}
	return false;
}

/* 1 = a stack, 0 = the end. */
static int next_stack(struct gperf_reader *f, struct words *w, u64 *ret_count)
{
	u64 count, depth, address;

	vec_clear(&f->stack);
	if (!word(w, &count) || !word(w, &depth)) {
		f->cut = true;
		return 0;
	}
	if (depth > MAX_STACK || depth > buf_left(&w->b) / (w->wide ? 8 : 4)) {
		f->cut = true;
		return 0;
	}
	for (u64 i = 0; i < depth; i++) {
		(void)word(w, &address);
		if (vec_push(&f->stack, address) < 0)
			return -ENOMEM;
	}
	if (!count && depth == 1 && !f->stack.data[0])
		return 0;
	if (count > INT32_MAX)
		return bad(f, "a stack has a count that cannot be");
	*ret_count = count;
	return 1;
}

/* Passes over all stacks. */
static int skip_stacks(struct gperf_reader *f, struct words *w)
{
	u64 count;
	int r;

	do
		r = next_stack(f, w, &count);
	while (r > 0);
	return r;
}

/* The address that may be at this depth in most stacks: one that is in more than half is found. */
static u64 candidate_at(struct gperf_reader *f, struct words w, size_t depth)
{
	u64 candidate = 0, count, lead = 0;

	while (next_stack(f, &w, &count) > 0) {
		if (f->stack.n <= depth)
			continue;
		if (!lead)
			candidate = f->stack.data[depth];
		lead = f->stack.data[depth] == candidate ? lead + 1 : lead - 1;
	}
	return candidate;
}

/*
 * The frame above the leaf is the signal's handler if it is in nearly all stacks and its callers
 * differ; if they are the same, it is the program's one hot path.
 */
static u64 handler_of(struct gperf_reader *f, struct words w)
{
	u64 handler = candidate_at(f, w, 1), caller = candidate_at(f, w, 2);
	u64 count, n = 0, have = 0, same = 0;

	while (next_stack(f, &w, &count) > 0) {
		n++;
		have += f->stack.n > 1 && f->stack.data[1] == handler;
		same += f->stack.n > 2 && f->stack.data[2] == caller;
	}
	return have >= n - n / 32 && same <= n / 2 ? handler : 0;
}

static void drop_second(struct gperf_reader *f)
{
	memmove(f->stack.data + 1, f->stack.data + 2, (f->stack.n - 2) * sizeof(u64));
	f->stack.n--;
}

static int read_cpu(struct gperf_reader *f, struct words w)
{
	struct words behind = w;
	u64 count, handler = handler_of(f, w);
	int r = skip_stacks(f, &behind);

	if (r == 0)
		r = profile_add_table_type(f->p, SAMPLE_TYPE_SAMPLES);
	if (r == 0)
		r = profile_add_table_type(f->p, SAMPLE_TYPE_CPU);
	f->p->default_type = 1;
	f->p->period = (s64)f->period;
	f->p->period_name = f->p->types[1].name;
	f->p->period_unit = f->p->types[1].unit;
	if (r == 0)
		r = read_mappings(f, (const char *)behind.b.pos, (const char *)behind.b.end);
	while (r == 0 && (r = next_stack(f, &w, &count)) > 0) {
		s64 values[2] = {(s64)count, (s64)(count * f->period)};

		if (f->stack.n > 1 && handler && f->stack.data[1] == handler)
			drop_second(f);
		if (f->stack.n > 1 && f->stack.data[1] == f->stack.data[0] + 1)
			drop_second(f);
		r = add_sample(f, true, values);
	}
	return r;
}

/* ---- heap and locks: text ---- */

static bool take_number(const char **s, const char *end, s64 *ret)
{
	const char *p = *s;
	s64 v = 0;
	bool minus;

	while (p < end && strchr(" \t:[]@", *p) && *p)
		p++;
	minus = p < end && *p == '-';
	p += minus;
	if (p == end || !isdigit((u8)*p))
		return false;
	for (; p < end && isdigit((u8)*p); p++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p - '0', &v))
			return false;
	*s = p;
	*ret = minus ? -v : v;
	return true;
}

static int read_addresses(struct gperf_reader *f, const char *s, const char *end)
{
	u64 address;
	int r = 0;

	vec_clear(&f->stack);
	while (r == 0 && f->stack.n < MAX_STACK && take_hex(&s, end, &address))
		r = vec_push(&f->stack, address);
	return r;
}

static s64 rounded(double v)
{
	return v > -9e18 && v < 9e18 ? (s64)v : 0;
}

/*
 * An object of `bytes / count` bytes was sampled with the probability 1 - exp(-size / rate): it
 * stands for so many.
 */
static void scale(const struct gperf_reader *f, s64 *count, s64 *bytes)
{
	double factor;

	if (!f->sampled || f->period <= 1 || !*count || !*bytes)
		return;
	factor = 1 / (1 - exp(-((double)*bytes / (double)*count) / (double)f->period));
	*count = rounded((double)*count * factor);
	*bytes = rounded((double)*bytes * factor);
}

static void damaged_line(struct gperf_reader *f)
{
	if (!f->damaged++)
		f->damaged_line = f->line;
}

static int heap_line(struct gperf_reader *f, const char *s, size_t n)
{
	const char *end = s + n, *at = memchr(s, '@', n);
	s64 v[4] = {}, values[4];
	int r;

	for (u32 i = 0; i < 4; i++)
		if (!at || !take_number(&s, at, &v[i])) {
			damaged_line(f);
			return 0;
		}
	scale(f, &v[0], &v[1]);
	scale(f, &v[2], &v[3]);
	for (u32 i = 0; i < 4; i++) /* types in the order of read_heap() */
		values[i] = v[i ^ 1];
	r = read_addresses(f, at + 1, end);
	return r < 0 ? r : add_sample(f, false, values);
}

static int lock_line(struct gperf_reader *f, const char *s, size_t n)
{
	const char *end = s + n, *at = memchr(s, '@', n), *equals = memchr(s, '=', n);
	s64 v[2] = {}, values[2];
	int r;

	if (starts(s, n, "format"))
		return bad(f, "a profile of Java in this old format is not read");
	if (!at && equals) {
		const char *number = equals + 1;

		if (!take_number(&number, end, &v[0]) || v[0] <= 0)
			return 0;
		if (starts(s, n, "cycles/second"))
			f->ns_per_cycle = 1e9 / (double)v[0];
		else if (starts(s, n, "sampling period"))
			f->period = (u64)v[0];
		else if (starts(s, n, "ms since reset") && v[0] < INT64_MAX / 1000000)
			f->p->duration_ns = (u64)v[0] * 1000000;
		return 0;
	}
	if (!at || !take_number(&s, at, &v[0]) || !take_number(&s, at, &v[1])) {
		damaged_line(f);
		return 0;
	}
	values[0] = rounded((double)v[0] * (double)f->period * f->ns_per_cycle);
	values[1] = rounded((double)v[1] * (double)f->period);
	r = read_addresses(f, at + 1, end);
	return r < 0 ? r : add_sample(f, false, values);
}

/* Of Go, with debug=1: "#<tab>0x401000<tab>main.work+0x12<tab>/src/main.go:7". */
static int add_go_name(struct gperf_reader *f, const char *s, size_t n)
{
	const char *end = s + n, *name;
	u64 address;
	u32 id;

	s++;
	if (!take_hex(&s, end, &address) || address >= MAP_GONE_KEY || map_get(&f->names, address))
		return 0;
	while (s < end && *s == '\t')
		s++;
	name = s;
	while (s < end && *s != '\t' && (end - s < 3 || memcmp(s, "+0x", 3) != 0))
		s++;
	if (s == name)
		return 0;
	return profile_add_string(f->p, name, (size_t)(s - name), &id) < 0
		       ? -ENOMEM
		       : map_put(&f->names, address, id);
}

static bool is_map_line(const char *s, size_t n)
{
	return memmem(s, n, "MAPPED_LIBRARIES:", 17) || memmem(s, n, "--- Memory map: ---", 19);
}

static int read_text(struct gperf_reader *f, const char *pos, const char *end,
		     int (*line)(struct gperf_reader *, const char *, size_t))
{
	const char *s, *p = pos;
	size_t n;
	int r = 0;

	f->cut = true;
	while (r == 0 && f->cut && profile_next_line(&p, end, &s, &n)) {
		f->cut = !is_map_line(s, n);
		if (n > 4 && !memcmp(s, "#\t0x", 4))
			r = add_go_name(f, s, n);
	}
	if (!f->cut && r == 0)
		r = read_mappings(f, p, end);
	f->cut = f->cut && !f->names.n; /* Go writes no map */
	while (r == 0 && profile_next_line(&pos, end, &s, &n) && !is_map_line(s, n)) {
		f->line++;
		while (n && isspace((u8)*s))
			s++, n--;
		if (n && *s != '#')
			r = line(f, s, n);
	}
	return r;
}

/* "heap profile:    144:  8498176 [   144:  8498176] @ heapz_v2/524288" */
static int read_heap(struct gperf_reader *f, const char *pos, const char *end)
{
	const char *s = pos, *at;
	s64 v[4] = {}, rate = 0;
	size_t n = 0;
	int r = 0;

	(void)profile_next_line(&pos, end, &s, &n);
	at = memchr(s, '@', n);
	s += strlen("heap profile:");
	for (u32 i = 0; i < 4; i++)
		if (!at || !take_number(&s, at, &v[i]))
			return bad(f, "the first line of the heap profile is damaged");
	while (at < pos && *at != '/' && *at != '\n')
		at++;
	if (at < end && *at == '/')
		at++;
	(void)take_number(&at, end, &rate);
	f->sampled = memmem(s, (size_t)(pos - s), "_v2/", 4) ||
		     memmem(s, (size_t)(pos - s), " heap/", 6);
	/* tcmalloc's own rate is that between samples of twice the mean. */
	f->period = (u64)MAX(rate, (s64)0);
	if (f->sampled && memmem(s, (size_t)(pos - s), " heap/", 6))
		f->period /= 2;
	r = profile_add_table_type(f->p, SAMPLE_TYPE_INUSE_SPACE);
	if (r == 0)
		r = profile_add_table_type(f->p, SAMPLE_TYPE_INUSE_OBJECTS);
	/* The second pair is only a copy where allocations are not counted. */
	if (r == 0 && (v[0] != v[2] || v[1] != v[3]) && (v[2] || v[3]))
		r = profile_add_table_type(f->p, SAMPLE_TYPE_ALLOC_SPACE);
	if (r == 0 && f->p->n_types == 3)
		r = profile_add_table_type(f->p, SAMPLE_TYPE_ALLOC_OBJECTS);
	f->line = 1;
	return r < 0 ? r : read_text(f, pos, end, heap_line);
}

static int read_locks(struct gperf_reader *f, const char *pos, const char *end)
{
	/* Go's profile of blocked goroutines; all others are of mutexes. */
	bool block = starts(pos, (size_t)(end - pos), "--- contention:");
	const char *s;
	size_t n;
	int r = profile_add_table_type(f->p,
				       block ? SAMPLE_TYPE_BLOCK_DELAY : SAMPLE_TYPE_MUTEX_DELAY);

	if (r == 0)
		r = profile_add_table_type(f->p, block ? SAMPLE_TYPE_BLOCK_CONTENTIONS
						       : SAMPLE_TYPE_MUTEX_CONTENTIONS);
	f->period = 1;
	f->ns_per_cycle = 1;
	f->line = 1;
	(void)profile_next_line(&pos, end, &s, &n);
	return r < 0 ? r : read_text(f, pos, end, lock_line);
}

/* ---- the file ---- */

/* Names before the profile, to the line "--- profile" or the like; *pos is behind it. */
static int read_names(struct gperf_reader *f, const char **pos, const char *end)
{
	const char *s;
	size_t n;
	int r = 0;

	if (!starts(*pos, (size_t)(end - *pos), "--- symbol"))
		return 0;
	while (r == 0 && profile_next_line(pos, end, &s, &n)) {
		if (n > 3 && starts(s, n, "--- ") && !starts(s, n, "--- symbol"))
			return 0;
		r = add_name(f, s, n);
	}
	return r < 0 ? r : bad(f, "has names but no profile behind them");
}

static int finish(struct gperf_reader *f)
{
	if (!f->p->n_samples)
		return bad(f, "no stacks in it");
	profile_derive_quality(f->p);
	if (f->damaged > f->p->n_samples)
		return bad(f, "most lines are damaged");
	if (f->damaged)
		return diag_set(f->diag, 0,
				"gperftools: damaged lines left out: %llu, the first is line %llu",
				(unsigned long long)f->damaged,
				(unsigned long long)f->damaged_line);
	if (f->cut)
		return diag_set(f->diag, 0,
				"gperftools: has no map of the process at its end: it may be cut "
				"off, and addresses have no names");
	return 0;
}

int gperftools_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct gperf_reader f = {.p = profile_create(),
									 .diag = reterr_diag};
	const char *pos = (const char *)data, *end = pos + n;
	struct words w;
	int r = f.p ? read_names(&f, &pos, end) : -ENOMEM;

	if (r < 0)
		return r;
	if (starts(pos, (size_t)(end - pos), "heap profile:"))
		r = read_heap(&f, pos, end);
	else if (starts(pos, (size_t)(end - pos), "--- "))
		r = read_locks(&f, pos, end);
	else if (is_cpu((const u8 *)pos, (size_t)(end - pos), &w, &f.period))
		r = read_cpu(&f, w);
	else
		r = bad(&f, "neither a CPU, heap nor contention profile");
	if (r == 0)
		r = finish(&f);
	if (r == 0)
		*ret = take_ptr(f.p);
	return r;
}

int gperftools_probe(const u8 *data, size_t n)
{
	const char *s = (const char *)data;
	struct words w;
	u64 period;

	if (!data)
		return 0;
	if (starts(s, n, "heap profile:") || starts(s, n, "--- symbol") ||
	    starts(s, n, "--- contention") || starts(s, n, "--- mutex:"))
		return 95;
	return is_cpu(data, n, &w, &period) ? 95 : 0;
}
