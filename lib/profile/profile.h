/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model that recorder, readers, writers and views share: interned strings, mappings, functions,
 * frames and stacks, and the samples over them. Everything interned is found by its id, dense from
 * 0, and is never removed; equal content has equal ids.
 *
 * A frame is one line of a flame graph. Code that the compiler inlined is a frame of its own with
 * the address of the function that it was inlined into and FRAME_INLINED set; in a stack the
 * inlined frames of an address stand directly before (leafward of) the frame that holds them.
 *
 * A profile is built by one thread. Memory grows with the number of distinct entries and of
 * samples.
 */
#pragma once

#include "abi/vocab.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"

#define PROFILE_NONE (~0u) /* no such id */
#define PROFILE_MAX_TYPES 24
#define PROFILE_MAX_LABELS 128 /* of one resource */

/* The attribute of a thread's work that tells what it waited for (abi/tbl/wait.tbl). */
#define PROFILE_WAIT "wait"
/*
 * The attribute, with the value "true", of samples of the profiler that recorded the profile: its
 * own process, and those that it has started for itself.
 */
#define PROFILE_SELF "culprit.self"

struct str;

enum profile_frame_flags {
	PROFILE_FRAME_INLINED = 1,
	/* The address seems to be a file offset: debug information does not know it. */
	PROFILE_FRAME_OFFSET = 2,
};

/*
 * OpenTelemetry's stand-in for a build id: the first half of SHA-256 of a file's first and last
 * 4096 bytes and its size.
 */
#define PROFILE_HTLHASH "htlhash-"

/* A file mapped by a process; all strings are string ids. */
struct profile_mapping {
	u64 start; /* avma, 0 when merged over processes */
	u64 limit; /* first address after it, 0 = unknown */
	u64 offset;
	u32 path;
	u32 build_id; /* lower-case hex; for a file without one, PROFILE_HTLHASH and hex */
};

struct profile_function {
	u32 name;	 /* as shown: demangled */
	u32 system_name; /* as in the file; the same id as `name` if it is not mangled */
	u32 file;	 /* source path, "" if unknown */
	u32 start_line;	 /* 0 = not known */
};

struct profile_frame {
	u64 address; /* svma of the instruction, but for PROFILE_FRAME_OFFSET (for callers the call,
			not the return address) */
	u32 mapping; /* or PROFILE_NONE */
	u32 function; /* or PROFILE_NONE: shown as mapping+0xaddress or [unknown] */
	u32 line;     /* 0 = not known */
	u32 column;
	u8 kind;  /* enum frame_kind */
	u8 flags; /* enum profile_frame_flags */
	u16 pad;  /* 0 */
};

struct profile_label {
	u32 name, value; /* string ids: "service.name", "checkout" */
};

/*
 * Attributes of a process, by OpenTelemetry's names; interned. The empty resource is always id 0.
 */
struct profile_resource {
	u32 first; /* index into labels */
	u32 n;	   /* sorted by name, each once */
};

/* Who ran: interned. */
struct profile_thread {
	u32 pid, tid;
	u32 comm;	 /* string id: the process's name */
	u32 thread_name; /* string id */
	u32 resource;	 /* 0 = nothing is known */
	/*
	 * Attributes that the thread published about its work: id of a resource that belongs to no
	 * process. A thread with several sets of them is several entries. 0 = none.
	 */
	u32 attributes;
};

/* The span that a thread worked for, by W3C's ids: interned. None, all zero, is always id 0. */
struct profile_link {
	u8 trace_id[16];
	u8 span_id[8];
};

struct profile_stack {
	u32 first; /* index into stack_frames */
	u32 n;	   /* leaf first; a stack may have 0 frames */
};

struct profile_sample {
	u64 time_ns; /* since the epoch, or 0 when aggregated */
	u32 thread;  /* or PROFILE_NONE */
	u32 stack;
	u32 link;    /* 0 = none */
	u32 draws;   /* how many recorded samples it is the sum of; 0 = unknown */
	s64 value[]; /* n_types of them */
};

struct profile_type {
	u32 name, unit; /* string ids, as in abi/tbl/sample_type.tbl */
	/*
	 * String ids; 0: unknown. What the store's name of the type begins with, where name and
	 * unit do not tell ("block"), and the period of this type, where it is not the profile's.
	 */
	u32 group, period_name, period_unit;
};

/* How complete the samples are. Formats that can hold it carry it with the profile. */
struct profile_quality {
	u64 samples;	 /* recorded samples, without lost ones */
	u64 lost;	 /* dropped on the way */
	u64 truncated;	 /* samples whose user stack is incomplete */
	u64 unknown;	 /* frames without a name, over all samples */
	u64 frames;	 /* frames over all samples */
	u64 user_stacks; /* samples that have a user stack */
	u64 self;	 /* samples of the profiler itself that were left out; in no other count */
	/* The recorder counted lost samples. Otherwise lost = 0 means unknown. */
	bool measured;
	/* A store could not read everything that the query selects. */
	bool damaged;
	/* Frames have one line a function, where not all of its samples need to be. */
	bool one_line;
	u32 limited; /* of enum profile_limited */
};

/*
 * What a server stores samples under that are beyond its limits (doc/design/0013-cardinality.md).
 * An answer with such a service or stack, or that depends on labels that such series lack, is
 * limited.
 */
#define PROFILE_OTHER_SERVICES "(other services)"
#define PROFILE_OTHER_SERIES "(other series)" /* a thread's name */
#define PROFILE_OTHER_STACKS "[other stacks]"
enum profile_limited {
	PROFILE_LIMITED_SERVICES = 1,
	PROFILE_LIMITED_SERIES = 2,
	PROFILE_LIMITED_STACKS = 4
};
/* Their names, in the order of the bits. */
extern const char *const profile_stand_ins[3];

struct profile {
	struct strtab strings;
	vec(struct profile_mapping) mappings;
	vec(struct profile_function) functions;
	vec(struct profile_frame) frames;
	vec(struct profile_stack) stacks;
	vec(u32) stack_frames;
	vec(struct profile_resource) resources;
	vec(struct profile_label) labels;
	vec(struct profile_thread) threads;
	vec(struct profile_link) links;
	struct profile_type types[PROFILE_MAX_TYPES];
	u32 n_types; /* set before the first sample; value[default_type] is what views show */
	u32 default_type;

	u8 *samples; /* owned; n_samples records of profile_sample_size() */
	size_t n_samples, cap_samples;

	u64 time_ns;		      /* start, since the epoch; 0 = unknown */
	u64 duration_ns;	      /* 0 = not known */
	u32 period_name, period_unit; /* string ids */
	s64 period;
	u32 title; /* string id: command line or file name */
	struct profile_quality quality;
	/*
	 * Id of a resource that belongs to no process: the report of the agent that made the
	 * profile (agent/run/about.h); 0 = none. Only OTLP carries it.
	 */
	u32 agent;

	struct profile_index *index; /* owned; for interning */
};

struct profile *profile_create(void);
void profile_destroy(struct profile *p);
DEFINE_CLEANUP(profile, struct profile *, profile_destroy)
#define _cleanup_profile_ _cleanup_(profile)

/* Each returns 0 and the id, or -ENOMEM / -E2BIG. */
int profile_add_string(struct profile *p, const char *s, size_t n, u32 *ret_id);
int profile_add_mapping(struct profile *p, const struct profile_mapping *m, u32 *ret_id);
int profile_add_function(struct profile *p, const struct profile_function *f, u32 *ret_id);
int profile_add_frame(struct profile *p, const struct profile_frame *f, u32 *ret_id);
/* Adds a frame of another profile, with its function and mapping. */
int profile_copy_frame(struct profile *to, const struct profile *from, u32 frame, u32 *ret_id);
/* Adds a frame that is no function but a remark, such as "[truncated: too deep]". */
int profile_add_note(struct profile *p, const char *text, u32 *ret_frame);
int profile_add_thread(struct profile *p, const struct profile_thread *t, u32 *ret_id);
int profile_add_link(struct profile *p, const struct profile_link *l, u32 *ret_id);
/*
 * Labels may be in any order; of two with one name the later wins. -E2BIG beyond
 * PROFILE_MAX_LABELS.
 */
int profile_add_resource(struct profile *p, const struct profile_label *labels, size_t n,
			 u32 *ret_id);
/* A label's value by its name, or NULL. Borrowed. */
const char *profile_label(const struct profile *p, u32 resource, const char *name);
/* Whether the thread is the profiler's own. */
bool profile_is_self(const struct profile *p, u32 thread);
/* What a thread waited for; WAIT_NONE if it did not, or that is not known. */
enum wait profile_wait(const struct profile *p, u32 thread);
/* frames: ids, leaf first; borrowed for the call. */
int profile_add_stack(struct profile *p, const u32 *frames, size_t n, u32 *ret_id);
/* Adds a stack whose only frame is a note, such as "[3 lighter stacks]". */
int profile_add_note_stack(struct profile *p, const char *text, u32 *ret_stack);
/* Appends a value type; -E2BIG after PROFILE_MAX_TYPES, -EBUSY once there are samples. */
int profile_add_type(struct profile *p, const char *name, const char *unit);
int profile_add_table_type(struct profile *p, enum sample_type type);
/*
 * Takes away the value types of which no sample has a value, but for one, and makes the first that
 * is left the default. No sample may be added afterwards.
 */
void profile_drop_empty_types(struct profile *p);
/* The row of value type `t`, SAMPLE_TYPE_N if the table has none. */
enum sample_type profile_table_type(const struct profile *p, u32 t);
/* The value type that is this row, or PROFILE_NONE. */
u32 profile_find_type(const struct profile *p, enum sample_type type);
/* Adds a sample. One with time 0 is merged with a sample of the same thread, stack and link. */
int profile_add_linked_sample(struct profile *p, u64 time_ns, u32 thread, u32 stack, u32 link,
			      const s64 *values);
/* Adds a sample that belongs to no span. */
int profile_add_sample(struct profile *p, u64 time_ns, u32 thread, u32 stack, const s64 *values);
/* Of how many recorded samples the sample that was added last is the sum. */
void profile_set_draws(struct profile *p, u64 draws);

/* Adds to the profile's quality `samples` samples of a stack, judged by its frames alone. */
void profile_count_quality(struct profile *p, u32 stack, u64 samples);
/* Sets p->quality from all samples, for formats that do not carry it. */
void profile_derive_quality(struct profile *p);

/* The last part of a path; names such as "[vdso]" unchanged. */
const char *profile_basename(const char *path);
/*
 * The enum frame_kind of code in a mapping with this path, as far as the path tells: "[python]" and
 * the like, the name of a kind in brackets, stand for code of that kind that has no file.
 */
u8 profile_kind_of_path(const char *path);
bool profile_path_is_kind(const char *path);

size_t profile_sample_size(const struct profile *p);
const struct profile_sample *profile_sample(const struct profile *p, size_t i);
const char *profile_string(const struct profile *p, u32 id);
/*
 * The text of a frame as every output shows it: the function's name, else `libfoo.so.1+0x1234`,
 * else `[unknown]`. Borrowed until the next call with the same `scratch`.
 */
const char *profile_frame_name(const struct profile *p, u32 frame, struct str *scratch);

/* Merges `src` into `dst`: same types required (-EINVAL and a diag otherwise). */
int profile_merge(struct profile *dst, const struct profile *src, struct diag *reterr_diag);
/*
 * The same, without the samples of `src` that keep() refuses. The quality is that of all of them.
 */
typedef bool profile_keep(void *arg, const struct profile *p, const struct profile_sample *s);
int profile_merge_some(struct profile *dst, const struct profile *src, profile_keep *keep,
		       void *arg, struct diag *reterr_diag);

/*
 * Replaces the profile by one without the profiler's own samples, if it has some. Its quality is
 * that of the rest, with `self` of those that are left out. -ENOMEM: it is unchanged.
 */
int profile_leave_out_self(struct profile **p);

/* The number of samples behind the values; 0 if the profile does not have it. */
u64 profile_sample_count(const struct profile *p);
/* "1,234 samples over 10.0 s; 0 lost, 2 truncated (0.2 %), ..." */
void profile_quality_line(const struct profile *p, struct str *out);
