/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes metrics in Prometheus' text format, version 0.0.4: a family once, then each of its
 * samples. Help and label values may be any text: they are escaped.
 *
 *	metrics_family(out, "culprit_files", "Files.");
 *	metrics_sample(out, "culprit_files", METRICS_LABELS({"state", "open"}), n);
 */
#pragma once

#include "base/stat.h"
#include "base/str.h"

struct metrics_label {
	const char *name, *value;
};

/* The labels of one sample, for the call. */
#define METRICS_LABELS(...)                                                                        \
	(const struct metrics_label[])                                                             \
	{                                                                                          \
		__VA_ARGS__,                                                                       \
		{                                                                                  \
		}                                                                                  \
	}

/* # HELP and # TYPE: a counter when the name ends in _total, else a gauge. */
void metrics_family(struct str *out, const char *name, const char *help);
/* `labels` ends with an empty one; NULL: none. Integers are exact below 2^53. */
void metrics_sample(struct str *out, const char *name, const struct metrics_label *labels,
		    double value);
/* A family of one sample without labels. */
void metrics_single(struct str *out, const char *name, const char *help, double value);
/* All fields of a table, with `prefix` and _ before their names; counters end in _total. */
void metrics_stats(struct str *out, const char *prefix, const struct stat_field *fields,
		   const void *stats);
