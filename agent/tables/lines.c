/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tables/lines.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define CHUNK_BYTES ((size_t)LINES_PER_CHUNK * UNWIND_LINE_BYTES)
/* Another chunk is opened when so few lines are free: half a MiB, which is 100 pages. */
#define SPARE_LINES (LINES_PER_CHUNK / 8)

int lines_init(struct lines *a, int outer_fd, u64 budget_bytes)
{
	u64 max = budget_bytes / CHUNK_BYTES;

	*a = (struct lines){.outer_fd = outer_fd, .opening = UNWIND_MAX_CHUNKS};
	a->max_parts = (u32)MIN(MAX(max, 1ULL), (u64)UNWIND_MAX_CHUNKS);
	a->parts = calloc(UNWIND_MAX_CHUNKS, sizeof(*a->parts));
	if (!a->parts)
		return -ENOMEM;
	for (u32 i = 0; i < UNWIND_MAX_CHUNKS; i++)
		a->parts[i].fd = -1;
	return 0;
}

static void part_close(struct lines_part *p)
{
	if (p->lines)
		munmap(p->lines, CHUNK_BYTES);
	if (p->fd >= 0)
		close(p->fd);
	vec_deinit(&p->free);
	*p = (struct lines_part){.fd = -1};
}

void lines_deinit(struct lines *a)
{
	for (u32 i = 0; a->parts && i < UNWIND_MAX_CHUNKS; i++)
		part_close(&a->parts[i]);
	free(a->parts);
	vec_deinit(&a->resting);
	*a = (struct lines){};
}

/* Opens chunk number `i`. Line 0 of chunk 0 is never allocated: 0 means "none". */
static int part_open(int outer_fd, u32 i, struct lines_part *p)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
	struct lines_run all = {.first = i == 0, .n = LINES_PER_CHUNK - (i == 0)};
	int r;

	*p = (struct lines_part){};
	p->fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "culprit_arena", sizeof(u32), UNWIND_LINE_BYTES,
			       LINES_PER_CHUNK, &opts);
	if (p->fd < 0)
		return -errno;
	p->lines = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
	if (p->lines == MAP_FAILED) {
		r = -errno;
		p->lines = NULL;
		part_close(p);
		return r;
	}
	r = vec_push(&p->free, all);
	if (r == 0 && bpf_map_update_elem(outer_fd, &i, &p->fd, BPF_ANY) < 0)
		r = -errno;
	if (r < 0) {
		part_close(p);
		return r;
	}
	p->n_free = all.n;
	return 0;
}

static bool part_alloc(struct lines_part *p, u32 n, u32 *ret_index)
{
	if (p->n_free < n)
		return false;
	for (size_t i = 0; i < p->free.n; i++) {
		struct lines_run *run = &p->free.data[i];

		if (run->n < n)
			continue;
		*ret_index = run->first;
		run->first += n;
		run->n -= n;
		p->n_free -= n;
		if (!run->n) {
			memmove(run, run + 1, (p->free.n - i - 1) * sizeof(*run));
			p->free.n--;
		}
		return true;
	}
	return false;
}

/* Frees a run and joins it to its neighbours. */
static void part_free(struct lines_part *p, u32 first, u32 n)
{
	size_t i = 0, hi = p->free.n;
	struct lines_run *runs;

	while (i < hi) {
		size_t mid = (i + hi) / 2;

		if (p->free.data[mid].first < first)
			i = mid + 1;
		else
			hi = mid;
	}
	if (vec_push(&p->free, (struct lines_run){}) < 0)
		return; /* out of memory: the lines are unusable until the chunk is closed */
	runs = p->free.data;
	memmove(&runs[i + 1], &runs[i], (p->free.n - 1 - i) * sizeof(*runs));
	runs[i] = (struct lines_run){first, n};
	p->n_free += n;
	if (i + 1 < p->free.n && runs[i + 1].first == first + n) {
		runs[i].n += runs[i + 1].n;
		memmove(&runs[i + 1], &runs[i + 2], (p->free.n - i - 2) * sizeof(*runs));
		p->free.n--;
	}
	if (i > 0 && runs[i - 1].first + runs[i - 1].n == first) {
		runs[i - 1].n += runs[i].n;
		memmove(&runs[i], &runs[i + 1], (p->free.n - i - 1) * sizeof(*runs));
		p->free.n--;
	}
}

int lines_alloc(struct lines *a, u32 n, u32 *ret_line)
{
	u32 index, spare = UNWIND_MAX_CHUNKS;
	int r;

	if (!n || n >= LINES_PER_CHUNK)
		return n ? -E2BIG : -EINVAL;
	for (u32 i = 0; i < UNWIND_MAX_CHUNKS; i++) {
		struct lines_part *p = &a->parts[i];

		if (p->fd < 0) {
			spare = MIN(spare, i == a->opening ? UNWIND_MAX_CHUNKS : i);
			if (i >= a->n_parts + 2)
				break;
			continue;
		}
		if (!part_alloc(p, n, &index))
			continue;
		*ret_line = i << LINES_PER_CHUNK_SHIFT | index;
		goto found;
	}
	if (a->n_parts + (a->opening != UNWIND_MAX_CHUNKS) >= a->max_parts ||
	    spare == UNWIND_MAX_CHUNKS)
		return -ENOSPC;
	r = part_open(a->outer_fd, spare, &a->parts[spare]);
	if (r < 0)
		return r;
	a->n_parts++;
	if (!part_alloc(&a->parts[spare], n, &index))
		return -E2BIG; /* chunk 0 has one line less */
	*ret_line = spare << LINES_PER_CHUNK_SHIFT | index;
found:
	a->used_lines += n;
	memset(lines_at(a, *ret_line), 0, (size_t)n * UNWIND_LINE_BYTES);
	return 0;
}

struct lines_spare *lines_spare_wanted(struct lines *a)
{
	struct lines_spare *s;
	u64 n_free = 0;
	u32 index = UNWIND_MAX_CHUNKS;

	if (a->opening != UNWIND_MAX_CHUNKS || a->n_parts >= a->max_parts)
		return NULL;
	for (u32 i = 0; i < UNWIND_MAX_CHUNKS && i < a->n_parts + 2; i++) {
		n_free += a->parts[i].n_free;
		if (a->parts[i].fd < 0)
			index = MIN(index, i);
	}
	if (n_free > SPARE_LINES || index == UNWIND_MAX_CHUNKS)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = (struct lines_spare){.a = a, .index = index, .part.fd = -1, .error = -ECANCELED};
	a->opening = index;
	return s;
}

void lines_spare_open(struct lines_spare *s)
{
	s->error = part_open(s->a->outer_fd, s->index, &s->part);
}

void lines_spare_done(struct lines_spare *s)
{
	s->a->opening = UNWIND_MAX_CHUNKS;
	if (s->error == 0) {
		s->a->parts[s->index] = s->part;
		s->a->n_parts++;
	}
	free(s);
}

void lines_free(struct lines *a, u32 line, u32 n)
{
	struct lines_resting rest = {.line = line, .n = n, .since_ns = clock_ns(CLOCK_MONOTONIC)};

	if (!line || !n)
		return;
	a->used_lines -= n;
	if (vec_push(&a->resting, rest) < 0)
		log_debug("arena: out of memory, %u lines stay unused", n);
}

void lines_tidy(struct lines *a)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	size_t done = 0;

	while (done < a->resting.n && now - a->resting.data[done].since_ns > UNWIND_GRACE_NS) {
		struct lines_resting *r = &a->resting.data[done++];

		part_free(&a->parts[r->line >> LINES_PER_CHUNK_SHIFT],
			  r->line & (LINES_PER_CHUNK - 1), r->n);
	}
	if (!done)
		return;
	a->resting.n -= done;
	memmove(a->resting.data, a->resting.data + done, a->resting.n * sizeof(*a->resting.data));
	/* One empty chunk is kept, because it would soon be opened again. */
	for (u32 i = 1, n_empty = 0; i < UNWIND_MAX_CHUNKS; i++) {
		if (a->parts[i].fd < 0 || a->parts[i].n_free != LINES_PER_CHUNK || !n_empty++)
			continue;
		bpf_map_delete_elem(a->outer_fd, &i);
		part_close(&a->parts[i]);
		a->n_parts--;
	}
}

void *lines_at(const struct lines *a, u32 line)
{
	u32 chunk = line >> LINES_PER_CHUNK_SHIFT;

	if (!line || chunk >= UNWIND_MAX_CHUNKS || !a->parts[chunk].lines)
		return NULL;
	return a->parts[chunk].lines + (size_t)(line & (LINES_PER_CHUNK - 1)) * UNWIND_LINE_BYTES;
}
