/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf.data, in three files: perf_data_read.c reads the file's header, attributes and features and
 * finds the records; perf_data_attr.c knows what a record of an attribute has; perf_data_sample.c
 * follows processes and makes samples of the records in the order of time.
 */
#pragma once

#include "base/buf.h"
#include "base/vec.h"
#include "format/internal.h"

/* Types of records (include/uapi/linux/perf_event.h, tools/perf/util/event.h). */
enum perf_record {
	PERF_MMAP = 1,
	PERF_LOST = 2,
	PERF_COMM = 3,
	PERF_FORK = 7,
	PERF_SAMPLE = 9,
	PERF_MMAP2 = 10,
	PERF_LOST_SAMPLES = 13,
	PERF_HEADER_ATTR = 64,
	PERF_TRACING_DATA = 66,
	PERF_HEADER_BUILD_ID = 67,
	PERF_AUXTRACE = 71,
	PERF_EVENT_UPDATE = 78,
	PERF_HEADER_FEATURE = 80,
	PERF_COMPRESSED = 81,
	PERF_COMPRESSED2 = 83,
};

/* Bits of perf_event_attr.sample_type. */
enum perf_sample_bits {
	PERF_HAS_IP = 1 << 0,
	PERF_HAS_TID = 1 << 1,
	PERF_HAS_TIME = 1 << 2,
	PERF_HAS_ADDR = 1 << 3,
	PERF_HAS_READ = 1 << 4,
	PERF_HAS_CALLCHAIN = 1 << 5,
	PERF_HAS_ID = 1 << 6,
	PERF_HAS_CPU = 1 << 7,
	PERF_HAS_PERIOD = 1 << 8,
	PERF_HAS_STREAM_ID = 1 << 9,
	PERF_HAS_STACK_USER = 1 << 13,
	PERF_HAS_IDENTIFIER = 1 << 16,
};

struct perf_attr {
	u32 kind; /* perf_event_attr.type */
	u64 config, period, sample_type, read_format;
	bool freq, sample_id_all;
	u32 name;    /* string id; 0 = not told */
	u64 samples; /* that the file has */
	u32 type;    /* index of its value type; PROFILE_NONE: left out */
};

struct perf_record_at {
	u64 time_ns;
	u64 offset; /* in the file; with the highest bit: in what was decompressed */
};

struct perf_data {
	struct profile *p; /* owned */
	struct diag *diag;
	const u8 *file; /* borrowed */
	size_t n;
	struct str plain; /* decompressed records */
	size_t plain_read;
	struct zstd_stream *zstd; /* owned; NULL: no record is compressed */
	vec(struct perf_attr) attrs;
	struct map ids;	      /* id of an event → index in attrs */
	struct map build_ids; /* string id of a path → string id of hex digits */
	vec(struct perf_record_at) records;
	u64 lost, left_out, unwound; /* samples; unwound: whose stack only perf could unwind */
	u64 missing_bytes;
};

#define PERF_IN_PLAIN (1ULL << 63)

/* ---- perf_data_attr.c ---- */

/* perf_event_attr; `size` is what the file says, larger ones have more at their end. */
bool perf_attr_read(struct buf b, struct perf_attr *ret);
/* What a record of an event without a name is called: "cycles", "raw:0x1b7". */
void perf_attr_name(const struct perf_attr *a, struct str *out);

struct perf_sample {
	u64 ip, time_ns, period;
	u32 pid, tid;
	struct buf chain; /* u64 each; may be empty */
	bool has_stack;	  /* a copy of the user's stack, to be unwound */
};
/* The attribute of a sample by its id, or the only one; NULL: unknown. */
struct perf_attr *perf_attr_of_sample(struct perf_data *f, struct buf body);
bool perf_sample_read(const struct perf_attr *a, struct buf body, struct perf_sample *ret);
/* The time of a record that is no sample; 0 if it has none. */
u64 perf_record_time(const struct perf_data *f, struct buf body);
/* The bytes behind a record's own fields, which all records of a file have. */
size_t perf_trailer_size(const struct perf_data *f);

/* ---- perf_data_sample.c ---- */

/* Goes through f->records, which are in the order of time. */
int perf_data_replay(struct perf_data *f);
/* A record: the header's fields, and the bytes behind it. */
struct buf perf_record_body(const struct perf_data *f, u64 offset, u32 *ret_type, u16 *ret_misc);
