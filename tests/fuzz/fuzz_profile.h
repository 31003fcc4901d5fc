/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold for every profile that a reader makes from any input: ids are in range, views add
 * up, every writer can write the profile, and the written file reads back as the same folded text.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/internal.h"
#include "profile/profile.h"
#include "profile/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

typedef int read_fn(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
typedef int write_fn(const struct profile *p, const struct profile_write_options *o,
		     struct str *out, struct diag *reterr_diag);

static inline s64 check_ids(const struct profile *p)
{
	s64 sum = 0;

	MUST(p->n_types >= 1 && p->n_types <= PROFILE_MAX_TYPES && p->default_type < p->n_types);
	for (size_t i = 0; i < p->stack_frames.n; i++)
		MUST(p->stack_frames.data[i] < p->frames.n);
	for (size_t i = 0; i < p->stacks.n; i++)
		MUST((u64)p->stacks.data[i].first + p->stacks.data[i].n <= p->stack_frames.n);
	for (size_t i = 0; i < p->frames.n; i++) {
		const struct profile_frame *f = &p->frames.data[i];

		MUST(f->kind < FRAME_KIND_N);
		MUST(f->mapping == PROFILE_NONE || f->mapping < p->mappings.n);
		MUST(f->function == PROFILE_NONE || f->function < p->functions.n);
	}
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);

		MUST(s->stack < p->stacks.n);
		MUST(s->thread == PROFILE_NONE || s->thread < p->threads.n);
		sum += s->value[p->default_type];
	}
	return sum;
}

static inline void check_views(const struct profile *p, s64 sum)
{
	_cleanup_profile_tree_ struct profile_tree *t = NULL;
	_cleanup_profile_table_ struct profile_table *table = NULL;
	s64 self = 0;

	MUST(profile_tree_build(p, NULL, &t) == 0);
	for (size_t i = 0; i < t->nodes.n; i++)
		self += t->nodes.data[i].self;
	MUST(self == sum && t->nodes.data[0].total == sum);
	MUST(t->nodes.data[0].n_below == t->nodes.n - 1);
	MUST(profile_table_build(p, NULL, &table) == 0);
	self = 0;
	for (size_t i = 0; i < table->rows.n; i++)
		self += table->rows.data[i].self;
	MUST(self == sum && table->total == sum);
}

/*
 * Folded text must be the same before and after. Text formats are compared with `annotate`, because
 * a frame whose own name ends in `_[i]` is read back from them as an inlined frame.
 */
static inline void check_way(const struct profile *p, write_fn *write, read_fn *read, bool annotate)
{
	struct profile_write_options o = {.annotate = annotate};
	_cleanup_str_ struct str out = {}, plain = {}, got = {}, want = {};
	_cleanup_profile_ struct profile *again = NULL;
	const struct str *data = &out;

	MUST(folded_write(p, &o, &want, NULL) == 0);
	MUST(write(p, &o, &out, NULL) == 0);
	if (gzip_is((const u8 *)str_get(&out), out.n)) {
		MUST(gzip_inflate((const u8 *)out.data, out.n, 1ULL << 32, &plain, NULL) == 0);
		data = &plain;
	}
	if (!read || !want.n)
		return;
	MUST(read((const u8 *)str_get(data), data->n, &again, NULL) == 0);
	MUST(folded_write(again, &o, &got, NULL) == 0);
	MUST(got.n == want.n && !memcmp(got.data, want.data, got.n));
}

static inline bool is_wait(const struct profile *p)
{
	enum sample_type type = profile_table_type(p, p->default_type);

	return type == SAMPLE_TYPE_OFF_CPU || type == SAMPLE_TYPE_WALL;
}

static inline void check_reader(read_fn *read, int (*probe)(const u8 *, size_t),
				const uint8_t *data, size_t size)
{
	_cleanup_profile_ struct profile *p = NULL;
	struct diag d = {};
	bool positive = true;
	s64 sum;

	(void)probe(data, size);
	if (read(data, size, &p, &d) < 0) {
		MUST(!p);
		return;
	}
	sum = check_ids(p);
	check_views(p, sum);
	for (size_t i = 0; i < p->n_samples; i++)
		positive &= profile_sample(p, i)->value[p->default_type] >= 0;
	check_way(p, folded_write, folded_read, true);
	check_way(p, pprof_write, pprof_read, false);
	/* It has no negative weights, and no waits, which folded text counts in microseconds. */
	if (positive && !is_wait(p))
		check_way(p, speedscope_write, speedscope_read, true);
	check_way(p, html_write, html_read, false);
	check_way(p, svg_write, NULL, false);
	check_way(p, firefox_write, NULL, false);
}
