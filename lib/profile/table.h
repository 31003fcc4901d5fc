/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a profile with self and total, and how sure a share is. */
#pragma once

#include "profile/profile.h"
#include "profile/tree.h"

/*
 * A function of one file. A sample counts once in the total of a function, however often it is in
 * its stack. Samples without a frame are a row of their own, so that selfs add up to the total.
 */
struct profile_row {
	u32 name,
		object; /* string ids in the table's own strings; object: name of the file or "" */
	u8 kind;	/* enum frame_kind */
	/*
	 * The line that has the most of its self value, or of its total if it has no self value;
	 * file: string id of the whole path. line 0: no sample has a line.
	 */
	u32 file, line;
	s64 self, total;
	double self_variance, total_variance; /* NAN: unknown; see profile_sum_bound() */
};

struct profile_table {
	struct strtab strings;
	vec(struct profile_row) rows; /* sorted by self, then total, both descending, then name */
	s64 total;
};

/*
 * Counts value type p->default_type. Of the options only those that leave frames out have an
 * effect.
 */
int profile_table_build(const struct profile *p, const struct profile_tree_options *o,
			struct profile_table **ret);
void profile_table_destroy(struct profile_table *t);
DEFINE_CLEANUP(profile_table, struct profile_table *, profile_table_destroy)
#define _cleanup_profile_table_ _cleanup_(profile_table)
/*
 * A bound of a sum, above zero, of what was drawn: a quantile of the gamma distribution with the
 * mean and variance of the sum, `z` standard deviations of the normal distribution above it, or
 * below with z < 0. Few draws have an interval that is longer above than below (Fay and Feuer
 * 1997).
 */
double profile_sum_bound(double sum, double variance, double z);

/* The values of type p->default_type, and the number of samples, by what was waited for. */
struct profile_waits {
	s64 value[WAIT_N];
	s64 samples[WAIT_N]; /* only if the profile has them */
	bool has_samples;
	enum wait order[WAIT_N]; /* largest value first */
};

/* False, and nothing is written, if no sample tells what it waited for. */
bool profile_waits_sum(const struct profile *p, struct profile_waits *ret);

/*
 * The 95 % interval (Wilson's) of a share, 0..1, seen in n samples that are independent. False
 * when n is 0: then nothing is known.
 */
bool profile_share_interval(double share, u64 n, double *ret_low, double *ret_high);
