/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of Flight Recorder's events under construction, for jfr_read.c, which reads events,
 * and jfr_stack.c, which reads what they refer to. Private to these.
 */
#pragma once

#include "format/jfr.h"

struct jfr_reader {
	struct profile *p; /* owned */
	struct jfr_chunk *c;
	u32 comm;
	/* Of the chunk at hand: key → id in the profile; natives: function and mapping. */
	struct map stacks, threads, functions, natives;
	const struct jfr_class *setting;
	/* What the settings so far tell; 0: nothing. */
	u64 period_ns;		  /* of Flight Recorder's samples */
	u64 interval_ns, wall_ns; /* of async-profiler's clocks */
	bool has_interval, event_is_wall;
	u64 n_read;
	const struct profile_flight *only; /* borrowed; NULL: all events that are read */
	u64 last_ns;			   /* the start of the last chunk */
	/* Of only->tids: first sample in this chunk, in ticks; threads of earlier chunks. */
	struct map firsts, begun;
	struct strtab left_out_names;
	struct map left_out; /* id of the class's name → events that are not read */
	vec(u32) frames;
	struct str text, other;
};

/* A field of a value that is wanted, by its name. */
struct jfr_wanted {
	const char *name;
	enum { WANT_INTEGER, WANT_BYTE, WANT_KEY, WANT_STRING, WANT_AT } what;
	union {
		u64 *number;
		struct str *text;
		struct buf *at; /* of an array: at its count */
	};
	u64 *class_id; /* of the field, or NULL */
};

/* Reads the n wanted fields of a value of class k, of those that it has. -EBADMSG and a diag. */
int jfr_read_fields(struct jfr_reader *f, struct buf *b, const struct jfr_class *k,
		    const struct jfr_wanted *w, size_t n);
/* A jdk.types.Symbol, and anything else that has one string. */
int jfr_read_symbol(struct jfr_reader *f, u64 class_id, u64 key, const char *field,
		    struct str *ret);
/* Adds a stack, or a thread, to the profile: once for each key of a chunk. */
int jfr_read_stack(struct jfr_reader *f, u64 class_id, u64 key, u32 *ret);
int jfr_read_thread(struct jfr_reader *f, u64 class_id, u64 key, u32 *ret);
