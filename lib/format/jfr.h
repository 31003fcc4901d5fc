/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The container of JDK Flight Recorder: chunks that describe themselves. Private to lib/format.
 *
 *	chunk	= header of 68 bytes, then events; two of them are found by offsets in the header:
 *	metadata	what classes there are and what fields they have
 *	constant pool	values that events refer to by class and key; a list, newest first
 *
 * All of it is foreign: positions, counts and depth are checked, and the work done for a chunk is
 * bounded by its size.
 */
#pragma once

#include "base/buf.h"
#include "format/internal.h"

#define JFR_MAX_CHUNKS 4096

enum jfr_primitive {
	JFR_STRUCT,
	JFR_BOOLEAN, /* and byte: one byte */
	JFR_INTEGER, /* short, char, int, long */
	JFR_FLOAT,
	JFR_DOUBLE,
	JFR_STRING,
};

struct jfr_field {
	u32 name; /* string of the chunk's metadata */
	u64 class_id;
	bool pooled, array;
};

struct jfr_class {
	u64 id;
	u32 name;
	enum jfr_primitive primitive;
	vec(struct jfr_field) fields;
	struct map values; /* constant pool: key → offset of the value in the chunk */
};

struct jfr_chunk {
	struct buf all;	       /* the chunk, header included; borrowed */
	struct strtab strings; /* of the metadata */
	vec(struct jfr_class) classes;
	struct map by_id;    /* class id → index */
	size_t string_class; /* index of java.lang.String, or ~0 */
	u64 start_ns, start_ticks, ticks_per_s;
	u64 steps; /* of work that are left */
	struct diag *diag;
};

/* The chunk at the begin of b, which is moved behind it. -EBADMSG and a diag. */
int jfr_chunk_open(struct buf *b, struct jfr_chunk *ret, struct diag *reterr_diag);
void jfr_chunk_close(struct jfr_chunk *c);
#define _cleanup_chunk_ __attribute__((cleanup(jfr_chunk_close)))

/* Sets the diag: what is wrong there. -EBADMSG. */
int jfr_damaged(const struct jfr_chunk *c, const struct buf *at, const char *what);
/* Integers are LEB128 of at most 9 bytes, the last with all its 8 bits. */
bool jfr_integer(struct buf *b, u64 *ret);
struct jfr_class *jfr_class(const struct jfr_chunk *c, u64 id);
struct jfr_class *jfr_class_by_name(const struct jfr_chunk *c, const char *name);
const char *jfr_class_name(const struct jfr_chunk *c, const struct jfr_class *k);
const char *jfr_field_name(const struct jfr_chunk *c, const struct jfr_field *f);
/* Behind a field, or a value of a class. */
int jfr_skip_field(struct jfr_chunk *c, struct buf *b, const struct jfr_field *f);
/* The value of a pooled class; false when there is none. */
bool jfr_pooled(const struct jfr_chunk *c, const struct jfr_class *k, u64 key, struct buf *ret);
/* A string in place; what is no UTF-8 is made so later. NULL through ret is an empty one. */
int jfr_string(struct jfr_chunk *c, struct buf *b, struct str *ret);
