/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between sampler.c and a source: the user half of bpf/prog/NAME.bpf.c is
 * agent/sampler/NAME.c. A source is found by the name of its event. The sampler's thread calls all
 * functions.
 */
#pragma once

#include <bpf/libbpf.h>

#include "abi/sample.h"
#include "agent/sampler/fields.h"
#include "agent/sampler/sampler.h"
#include "base/diag.h"
#include "base/types.h"
#include "base/vec.h"

#define SOURCE_MAX_ENTRIES 3

/* How values are computed: column `value` of abi/tbl/source.tbl. */
enum source_value {
	SOURCE_VALUE_TIME,
	SOURCE_VALUE_PERIOD,
	SOURCE_VALUE_ONE,
	SOURCE_VALUE_DURATION,
	SOURCE_VALUE_SHARE,
	SOURCE_VALUE_STATE,
};

/* Events that are ignored: column `filter`. */
enum source_filter {
	SOURCE_FILTER_IDLE,
	SOURCE_FILTER_KTHREADS,
};

struct source_ops;

/* A program of a source with several perf events on each CPU. */
struct source_entry {
	struct bpf_program *program;
	u64 config;
};

struct source_row {
	const char *name;
	const struct source_ops *ops;
	enum sample_type type;
	enum source_value value;
	enum source_filter filter;
	u32 perf_type;
	u64 perf_config;
	const char *help;
};

/* An attachment on one CPU, or on all (cpu -1). */
struct source_event {
	int cpu;
	int fd; /* of the perf event; owned by the link if there is one */
	struct bpf_link *link;
};

struct source {
	const struct source_row *row;
	struct sampler_source about;
	u64 perf_config;				/* from the row, or parsed from the name */
	struct source_field fields[SAMPLER_MAX_FIELDS]; /* fields that become attributes */
	u32 n_fields;
	bool has_prev_state; /* of struct sampler_config, like the next two */
	bool wakers;
	u32 block;
	u64 code[KERNEL_CODE_N][2]; /* likewise */
	bool has_exact_period;	    /* of a clock: the kernel gets a period, not a rate */
	bool is_started;
	bool is_paused;
	void *skeleton;		       /* owned */
	struct bpf_object *object;     /* the skeleton's, like the next two */
	struct sampler_config *config; /* NULL once the object is loaded */
	struct bpf_program *entry;     /* the program that events are attached to */
	struct source_entry entries[SOURCE_MAX_ENTRIES]; /* instead of `entry` */
	u32 n_entries;
	vec(struct source_event) events;
	const u8 *states; /* mapped: `n_states` times struct scratch of bpf/lib/scratch.h */
	u32 n_states, state_bytes;
};

struct source_ops {
	/* Parses the name of an event. 0: *s is set. -ENOENT: this row has no such event. Other
	 * errors have a diag: the event belongs to this row, but does not exist. NULL: the only
	 * event is the one that the row is named after. */
	int (*parse)(const char *name, struct source *s, struct diag *reterr_diag);
	/* Finds a field of the event by its name. NULL: its events have none. */
	int (*field)(const struct source *s, const char *name, struct source_field *ret,
		     struct diag *reterr_diag);
	int (*open)(struct source *s);
	int (*load)(struct source *s);
	void (*destroy)(struct source *s);
	/* Attaches the programs: events arrive from now on. */
	int (*start)(struct source *s, struct diag *reterr_diag);
	/* Opens a file whose reader makes the programs send what has not ended yet: after the last
	 * event all of it, before what has been going on for long. Returns the descriptor, or a
	 * negative errno. NULL: there is no such thing. */
	int (*tell)(struct source *s);
	/* What it tells then is of threads that sleep (RECORD_ASLEEP). */
	bool tells_sleepers;
	/* What happens during a pause counts, because the source follows a state. */
	bool never_pauses;
	/* These CPUs are online now. NULL: the source does not depend on CPUs. */
	void (*follow_cpus)(struct source *s, const u32 *cpus, u32 n);
	/* Makes attributes of the bytes that its program has gathered for an event; returns their
	 * length in ATTRIBUTES_NAMED. NULL: the bytes are fields. */
	u16 (*attributes)(const struct source *s, const u8 *bytes, u32 n, u8 ret[FIELDS_MAX_BYTES]);
};

/*
 * Finds the source of an event by its name, "block:block_rq_issue", or by its name with fields
 * that become attributes, "block:block_rq_issue/rwbs/bytes". The source is not open yet.
 */
int source_find(const struct sampler_event *e, struct source *ret, struct diag *reterr_diag);
/* Changes what its values are. */
void source_set_type(struct source *s, enum sample_type type);
/* Pauses or continues; events that can be disabled stay open. */
void source_pause(struct source *s, bool pause);
/*
 * These CPUs are online now. Logs a line for each CPU of which samples begin or end, however many
 * sources sample it.
 */
void sources_follow_cpus(struct source *sources, u32 n_sources, const u32 *cpus, u32 n);
/* Detaches everything. */
void source_stop(struct source *s);
/*
 * Whether all objects of a recording share such a map. Sample states, notes of walkers, jump tables
 * and constants belong to one object.
 */
bool source_shares_map(const struct bpf_map *map);
/* Before an object is loaded, replaces its shared maps by those of the first source, which is. */
int source_share_maps(const struct bpf_object *first, struct bpf_object *object);
/* Memory of a map before it is loaded, about as the kernel accounts it. */
u64 source_map_needs(const struct bpf_map *map);
/* The `start` and `follow_cpus` of a source that has perf events on each CPU (perf.c). */
int source_start_perf(struct source *s, struct diag *reterr_diag);
void source_follow_cpus_perf(struct source *s, const u32 *cpus, u32 n);
/* The most samples a second that the kernel allows on a CPU; 0: unknown. */
u64 source_max_rate(void);
/* Changes the rate of a clock, also while it runs. */
void source_set_hz(struct source *s, u64 hz);
/*
 * Stores an attachment on `cpu`, or -1, with a perf event, or -1. Takes ownership of the link,
 * which owns `fd`, unless it fails with -ENOMEM.
 */
int source_attach(struct source *s, int cpu, int fd, struct bpf_link *link);

/* The entries of a source that follows page faults: at their begin, and at their ends. */
void source_follow_faults(struct source *s, struct bpf_program *begin, struct bpf_program *minor,
			  struct bpf_program *major);

/* Of an open source "alloc": its programs and maps. */
int source_alloc_programs(const struct source *s, struct alloc_programs *ret);

/* False: user space reads a state, and BPF has nothing to do. */
static inline bool source_samples(const struct source *s)
{
	return s->row->value != SOURCE_VALUE_STATE;
}

/* The program that walks frames of a runtime and native ones; RUNTIME_NONE: only native ones. */
struct bpf_program *source_walker(const struct source *s, u32 runtime, bool loop);
/*
 * Which programs are loaded with it: walkers of native frames and of runtimes' frames. Of a source
 * that samples nothing only the maps are made.
 */
void source_choose_programs(const struct source *s, bool native, bool runtimes, bool loop);
/* Whether its main program is a kprobe, for want of the tracepoint. */
bool source_is_kprobe(const struct source *s);
/* Attaches the programs of a source that follows the scheduler, in this order; they exist. */
int source_follow_scheduler(struct source *s, const char *const *names, size_t n,
			    struct diag *reterr_diag);

/* Fills `code`: where the kernel's code is that wakes threads. */
void source_find_code(struct source *s);

/* The functions of the skeleton NAME_bpf that bpftool generates. */
#define SOURCE_SKELETON(name)                                                                      \
	static int name##_open(struct source *s)                                                   \
	{                                                                                          \
		struct name##_bpf *skeleton = name##_bpf__open();                                  \
                                                                                                   \
		if (!skeleton)                                                                     \
			return -ENOMEM;                                                            \
		s->skeleton = skeleton;                                                            \
		s->object = skeleton->obj;                                                         \
		s->config = (struct sampler_config *)&skeleton->rodata->config;                    \
		s->entry = skeleton->progs.sample;                                                 \
		return 0;                                                                          \
	}                                                                                          \
                                                                                                   \
	static int name##_load(struct source *s)                                                   \
	{                                                                                          \
		return name##_bpf__load(s->skeleton);                                              \
	}                                                                                          \
                                                                                                   \
	static void name##_destroy(struct source *s)                                               \
	{                                                                                          \
		name##_bpf__destroy(s->skeleton);                                                  \
	}
/* The memory of a map, as the kernel accounts for it. */
u64 source_map_bytes(const struct bpf_map *map);
