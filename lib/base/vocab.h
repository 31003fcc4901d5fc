/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of the vocabularies in abi/tbl. Everything is static; an id outside of its table gives a
 * row with the name "?". Callers print these texts and do not repeat them. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "abi/vocab.h"
#include "base/types.h"

struct vocab_frame_kind {
	const char *name, *suffix;
	enum frame_class class;
	const char *otlp; /* value of profile.frame.type */
	int hue, chroma;  /* degrees, percent */
	const char *help;
};

struct vocab_stop {
	const char *name, *help;
};

struct vocab_counter {
	const char *name, *unit;
	enum counter_loss loss;
	const char *help;
};

struct vocab_sample_type {
	const char *name, *unit;
	const char *profile; /* Pyroscope's group */
	const char *label, *rate;
	enum sample_adds adds;
	bool is_cpu;
	const char *help;
};

struct vocab_export_drop {
	const char *name, *help;
};

struct vocab_wait {
	const char *name;
	const char *colour; /* "#rrggbb", on a light background */
	const char *help;
};

struct vocab_task {
	const char *name, *plural;
	const char *note;  /* the name in brackets */
	const char *label; /* of its number */
	enum wait wait;	   /* unless a function tells */
};

const struct vocab_frame_kind *vocab_frame_kind(unsigned int kind);
const struct vocab_wait *vocab_wait(unsigned int wait);
const struct vocab_task *vocab_task(unsigned int task);
/* Of "lock", and of a leaf frame "[lock]"; WAIT_NONE of any other text of n bytes. */
enum wait vocab_wait_by_name(const char *name, size_t n);
enum wait vocab_wait_by_frame(const char *name, size_t n);
const char *vocab_counter_loss(enum counter_loss loss);
const struct vocab_stop *vocab_stop(unsigned int stop);
const struct vocab_counter *vocab_counter(unsigned int counter);
const struct vocab_sample_type *vocab_sample_type(unsigned int type);
const struct vocab_export_drop *vocab_export_drop(unsigned int drop);

/*
 * The type with this name and unit; for types of time any unit of time will do. If there are
 * several: the one of the group `profile`, or with NULL the first in the table. SAMPLE_TYPE_N when
 * the table has none.
 */
enum sample_type vocab_find_sample_type(const char *profile, const char *name, const char *unit);
/* The counter with this name, COUNTER_N when the table has none. */
enum counter vocab_find_counter(const char *name);
/* The reason with this name, EXPORT_DROP_N when the table has none. */
enum export_drop vocab_find_export_drop(const char *name);

/* The type that an event of perf(1) counts ("page-faults:u"); SAMPLE_TYPE_N when the table has none. */
enum sample_type vocab_find_event(const char *event);

const char *vocab_unit(enum unit unit);
/* How many of a unit make a second ("milliseconds": 1000); 0 when it is not a unit of time. */
u64 vocab_per_second(const char *unit);

struct vocab_value_type {
	const char *name, *unit; /* borrowed; name "" = unknown */
};

/*
 * Pyroscope's group of a profile whose period and values have these types: that of the first type
 * in the table, else the name of the first type, else "process_cpu". "samples" says nothing.
 */
const char *vocab_profile_group(const struct vocab_value_type *types, size_t n);
