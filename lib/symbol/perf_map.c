/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /tmp/perf-PID.map: `START SIZE NAME` lines that a JIT appends.
 *
 * A JIT reuses memory, so lines overlap, and the later one is right. Lookups use two arrays of
 * disjoint ranges: first `recent`, which has the lines read since `base` was built, then `base`.
 * When recent outgrows a quarter of base, both are merged; a long run costs O(n log n) in all.
 *
 * The file belongs to the target: names are cut at MAX_NAME. Unused names are dropped from time to
 * time. If more than MAX_RANGES live ranges or MAX_POOL bytes of live names remain, reading ends
 * with -E2BIG, because unread lines could replace those that were read. A line without its newline
 * is still being written, and is read by the next refresh. A file that shrank was restarted.
 */
#include "symbol/symbol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"

#define MAX_NAME 4096U
#define MAX_RANGES (1U << 20)
#define MAX_POOL (64U << 20)
#define READ_BYTES (64U << 10)

struct range {
	u64 start;
	u64 end;
	u32 name;
	u32 seq; /* later is larger */
};
typedef vec(struct range) range_vec;

struct perf_map {
	int fd;	       /* owned */
	u64 max_bytes; /* 0: any */
	u64 offset;
	bool in_long_line; /* the rest of a line that was cut */
	u32 line;	   /* number of the line that is read */
	bool told;	   /* of the first line that was skipped */
	u32 seq;
	struct strtab names;
	range_vec base;	  /* disjoint, sorted */
	range_vec recent; /* likewise, when not dirty */
	bool dirty;
	bool full;
	size_t compact_at; /* bytes of names above which unused ones are dropped */
};

DEFINE_CLEANUP(perf_map, struct perf_map *, perf_map_destroy)
#define _cleanup_perf_map_ _cleanup_(perf_map)

void perf_map_destroy(struct perf_map *m)
{
	if (!m)
		return;
	cleanup_close(&m->fd);
	strtab_deinit(&m->names);
	vec_deinit(&m->base);
	vec_deinit(&m->recent);
	free(m);
}

/* ---- overlapping ranges → disjoint ones, the largest seq wins ---- */

static int compare_ranges(const void *pa, const void *pb)
{
	const struct range *a = pa, *b = pb;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->seq < b->seq ? 1 : -1;
}

/* A binary heap of ranges, the largest seq on top. */
static int heap_push(range_vec *h, struct range r)
{
	size_t i = h->n;

	if (vec_push(h, r) < 0)
		return -ENOMEM;
	for (; i && h->data[(i - 1) / 2].seq < r.seq; i = (i - 1) / 2)
		h->data[i] = h->data[(i - 1) / 2];
	h->data[i] = r;
	return 0;
}

static void heap_pop(range_vec *h)
{
	struct range last = h->data[--h->n];
	size_t i = 0;

	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= h->n)
			break;
		if (c + 1 < h->n && h->data[c + 1].seq > h->data[c].seq)
			c++;
		if (h->data[c].seq <= last.seq)
			break;
		h->data[i] = h->data[c];
		i = c;
	}
	if (h->n)
		h->data[i] = last;
}

/* Emits the topmost range over [from, to), and the ranges below it where it has ended. */
static int emit_until(range_vec *heap, u64 from, u64 to, range_vec *out)
{
	while (heap->n && from < to) {
		struct range top = heap->data[0];
		struct range *last = out->n ? &out->data[out->n - 1] : NULL;

		if (top.end <= from) {
			heap_pop(heap);
			continue;
		}
		if (last && last->seq == top.seq && last->end == from)
			last->end = MIN(top.end, to);
		else if (vec_push(out, (struct range){from, MIN(top.end, to), top.name, top.seq}) <
			 0)
			return -ENOMEM;
		from = MIN(top.end, to);
	}
	return 0;
}

static int flatten_ranges(range_vec *ranges)
{
	range_vec heap = {}, out = {};
	int r = 0;

	if (!ranges->n)
		return 0;
	qsort(ranges->data, ranges->n, sizeof(*ranges->data), compare_ranges);
	for (size_t i = 0; i < ranges->n && r == 0; i++) {
		u64 next = i + 1 < ranges->n ? ranges->data[i + 1].start : ~0ULL;

		r = heap_push(&heap, ranges->data[i]);
		if (r == 0)
			r = emit_until(&heap, ranges->data[i].start, next, &out);
	}
	vec_deinit(&heap);
	if (r < 0) {
		vec_deinit(&out);
		return r;
	}
	vec_deinit(ranges);
	*ranges = out;
	return 0;
}

static int build_ranges(struct perf_map *m)
{
	int r = 0;

	if (!m->dirty)
		return 0;
	if (m->recent.n > m->base.n / 4 + 64) {
		if (vec_reserve(&m->base, m->base.n + m->recent.n) < 0)
			return -ENOMEM;
		memcpy(m->base.data + m->base.n, m->recent.data,
		       m->recent.n * sizeof(*m->recent.data));
		m->base.n += m->recent.n;
		vec_clear(&m->recent);
		r = flatten_ranges(&m->base);
	} else {
		r = flatten_ranges(&m->recent);
	}
	if (r == 0)
		m->dirty = false;
	return r;
}

/* ---- reading ---- */

static const char *read_hex(const char *p, const char *end, u64 *ret)
{
	const char *start;
	u64 v = 0;

	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	if (end - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
		p += 2;
	for (start = p; p < end; p++) {
		unsigned int c = (unsigned char)*p, d;

		if (c >= '0' && c <= '9')
			d = c - '0';
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			d = (c | 32) - 'a' + 10;
		else
			break;
		if (v >> 60)
			return NULL;
		v = v << 4 | d;
	}
	if (p == start || p == end || (*p != ' ' && *p != '\t'))
		return NULL;
	*ret = v;
	return p;
}

/* A malformed line is skipped. Returns 0. */
static int skip_line(struct perf_map *m)
{
	char text[64];

	if (!m->told) {
		snprintf(text, sizeof(text), "line %u is not START SIZE NAME", m->line);
		log_damage(m->fd, text);
	}
	m->told = true;
	return 0;
}

static int take_line(struct perf_map *m, const char *p, const char *end)
{
	struct range r = {};
	u64 size;
	int e;

	m->line++;
	p = read_hex(p, end, &r.start);
	if (p)
		p = read_hex(p, end, &size);
	if (!p || r.start + size < r.start)
		return skip_line(m);
	if (!size)
		return 0;
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	while (end > p && (end[-1] == '\r' || end[-1] == ' '))
		end--;
	if (p == end || memchr(p, 0, (size_t)(end - p)))
		return skip_line(m);
	e = strtab_add(&m->names, p, MIN((size_t)(end - p), (size_t)MAX_NAME), &r.name);
	if (e < 0)
		return e;
	r.end = r.start + size;
	r.seq = m->seq++;
	m->dirty = true;
	return vec_push(&m->recent, r);
}

static int move_names(const struct strtab *from, struct strtab *to, range_vec *ranges)
{
	vec_foreach (ranges, r) {
		const char *name = strtab_get(from, r->name);
		int e = strtab_add(to, name, strlen(name), &r->name);

		if (e < 0)
			return e;
	}
	return 0;
}

/* Drops the names of ranges that were overwritten. */
static int compact_names(struct perf_map *m)
{
	struct strtab names;
	int r = build_ranges(m);

	if (r < 0)
		return r;
	r = strtab_init(&names);
	if (r == 0)
		r = move_names(&m->names, &names, &m->base);
	if (r == 0)
		r = move_names(&m->names, &names, &m->recent);
	if (r < 0) {
		strtab_deinit(&names);
		m->full = true; /* some ranges point into the new table */
		return r;
	}
	strtab_deinit(&m->names);
	m->names = names;
	m->compact_at = MAX(names.n_bytes * 2, (size_t)1 << 20);
	return 0;
}

/* Ranges count twice: flattening makes others of them. */
static u64 memory(const struct perf_map *m)
{
	return m->names.cap_bytes + 8 * m->names.cap + 4 * m->names.index_cap +
	       2 * (m->base.cap + m->recent.cap) * sizeof(struct range);
}

static int keep_bounds(struct perf_map *m)
{
	int r = 0;

	if (m->recent.n > MAX_RANGES / 4 || m->base.n + m->recent.n > MAX_RANGES)
		r = build_ranges(m);
	if (r == 0 && m->names.n_bytes > m->compact_at)
		r = compact_names(m);
	if (m->base.n + m->recent.n > MAX_RANGES || m->names.n_bytes > MAX_POOL ||
	    (m->max_bytes && memory(m) > m->max_bytes))
		m->full = true;
	return r;
}

static int start_anew(struct perf_map *m)
{
	strtab_deinit(&m->names);
	vec_clear(&m->base);
	vec_clear(&m->recent);
	m->offset = 0;
	m->seq = m->line = 0;
	m->in_long_line = m->dirty = m->full = false;
	m->compact_at = 1U << 20;
	return strtab_init(&m->names);
}

/* Reads the complete lines of a block. Returns the number of bytes that were used, or an error. */
static ssize_t take_block(struct perf_map *m, const char *block, size_t n)
{
	const char *p = block, *end = block + n;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		int r = 0;

		if (!nl)
			break;
		if (!m->in_long_line)
			r = take_line(m, p, nl);
		if (r < 0)
			return r;
		m->in_long_line = false;
		p = nl + 1;
	}
	/* A line longer than a block is cut, and the rest of it skipped. */
	if (p == block && n == READ_BYTES) {
		int r = m->in_long_line ? 0 : take_line(m, p, end);

		if (r < 0)
			return r;
		m->in_long_line = true;
		p = end;
	}
	return p - block;
}

int perf_map_refresh(struct perf_map *m)
{
	_cleanup_free_ char *block = malloc(READ_BYTES);
	struct stat st;

	if (!block)
		return -ENOMEM;
	if (fstat(m->fd, &st) < 0)
		return -errno;
	if ((u64)st.st_size < m->offset) {
		int r = start_anew(m);

		if (r < 0)
			return r;
	}
	while (!m->full) {
		ssize_t n = pread(m->fd, block, READ_BYTES, (off_t)m->offset);
		int r;

		if (n < 0)
			return -errno;
		n = take_block(m, block, (size_t)n);
		if (n <= 0)
			return n < 0 ? (int)n : build_ranges(m);
		m->offset += (u64)n;
		r = keep_bounds(m);
		if (r < 0)
			return r;
	}
	return -E2BIG;
}

int perf_map_open(int fd, u64 max_bytes, struct perf_map **ret)
{
	_cleanup_perf_map_ struct perf_map *m = calloc(1, sizeof(*m));
	struct stat st;
	int r;

	if (!m) {
		close(fd);
		return -ENOMEM;
	}
	m->fd = fd;
	m->max_bytes = max_bytes;
	if (fstat(fd, &st) < 0)
		return -errno;
	/* A FIFO would block; other types are no perf maps. */
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	r = start_anew(m);
	if (r == 0)
		r = perf_map_refresh(m);
	if (r < 0)
		return r;
	*ret = take_ptr(m);
	return 0;
}

static const struct range *find_range(const range_vec *v, u64 address)
{
	size_t lo = 0, hi = v->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (v->data[mid].start <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && address < v->data[lo - 1].end ? &v->data[lo - 1] : NULL;
}

int perf_map_lookup(struct perf_map *m, u64 address, const char **ret_name)
{
	const struct range *r;
	int e = build_ranges(m); /* after a refresh that ran out of memory */

	if (e < 0)
		return e;
	if (m->full)
		return -E2BIG;
	r = find_range(&m->recent, address);
	if (!r)
		r = find_range(&m->base, address);
	if (!r)
		return -ENOENT;
	*ret_name = strtab_get(&m->names, r->name);
	return 0;
}
