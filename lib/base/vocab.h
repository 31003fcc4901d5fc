/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of the vocabularies in abi/tbl. Everything is static; an id outside of its table gives a
 * row with the name "?". Callers print these texts and do not repeat them. Any thread.
 */
#pragma once

#include <stdbool.h>

#include "abi/vocab.h"

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

const struct vocab_frame_kind *vocab_frame_kind(unsigned int kind);
const struct vocab_stop *vocab_stop(unsigned int stop);
const struct vocab_counter *vocab_counter(unsigned int counter);
const struct vocab_sample_type *vocab_sample_type(unsigned int type);
const struct vocab_export_drop *vocab_export_drop(unsigned int drop);

/*
 * The type with this name and unit. If there are several: the one of the group `profile`, or with
 * NULL the first in the table. SAMPLE_TYPE_N when the table has none.
 */
enum sample_type vocab_find_sample_type(const char *profile, const char *name, const char *unit);
