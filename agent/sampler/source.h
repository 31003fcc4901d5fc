/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sampler.c asks of a source: the user half of a file bpf/prog/NAME.bpf.c, in
 * agent/sampler/NAME.c. A source is found by the name of its event, and belongs to the sampler's
 * thread.
 */
#pragma once

#include <bpf/libbpf.h>

#include "abi/sample.h"
#include "agent/sampler/fields.h"
#include "agent/sampler/sampler.h"
#include "base/diag.h"
#include "base/types.h"
#include "base/vec.h"

/* How a value comes about: column `value` of abi/tbl/source.tbl. */
enum source_value {
	SOURCE_VALUE_TIME,
	SOURCE_VALUE_PERIOD,
	SOURCE_VALUE_ONE,
};

/* Whose events are left out: column `filter`. */
enum source_filter {
	SOURCE_FILTER_IDLE,
	SOURCE_FILTER_KTHREADS,
};

struct source_ops;

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

/* An event on one CPU, or on all (cpu -1). */
struct source_event {
	int cpu;
	int fd; /* of the perf event, owned by the link once there is one */
	struct bpf_link *link;
};

struct source {
	const struct source_row *row;
	struct sampler_source about;
	u64 perf_config;				/* the row's, or what the name says */
	struct source_field fields[SAMPLER_MAX_FIELDS]; /* that become attributes */
	u32 n_fields;
	bool is_started;
	bool is_paused;
	void *skeleton;		       /* owned */
	struct bpf_object *object;     /* the skeleton's, as are the next two */
	struct sampler_config *config; /* until it is loaded */
	struct bpf_program *entry;     /* the program that events are attached to */
	vec(struct source_event) events;
	const u8 *states; /* mapped: struct scratch of bpf/lib/scratch.h, `n_states` of them */
	u32 n_states, state_bytes;
};

struct source_ops {
	/*
	 * Is the name one of the row's events? 0: what it says is in *s now. -ENOENT: it is not.
	 * Another error with a diag: it is, but there is no such event.
	 */
	int (*parse)(const char *name, struct source *s, struct diag *reterr_diag);
	/* Finds a field of the event by its name. NULL: its events have none. */
	int (*field)(const struct source *s, const char *name, struct source_field *ret,
		     struct diag *reterr_diag);
	int (*open)(struct source *s);
	int (*load)(struct source *s);
	void (*destroy)(struct source *s);
	/* Events come from now on. */
	int (*start)(struct source *s, struct diag *reterr_diag);
	/* These are the CPUs that are online now; NULL: it makes no difference. */
	void (*follow_cpus)(struct source *s, const u32 *cpus, u32 n);
};

/*
 * The source of an event by its name, "block:block_rq_issue", or with fields that become
 * attributes, "block:block_rq_issue/rwbs/bytes". Nothing is open in it yet.
 */
int source_find(const struct sampler_event *e, struct source *ret, struct diag *reterr_diag);
/* Stops, but for a moment, or lets go on: events that can be switched off are. */
void source_pause(struct source *s, bool pause);
/* No more events. */
void source_stop(struct source *s);
/*
 * Keeps an attachment: on `cpu`, or -1; with a perf event, or -1. Takes the link over, which owns
 * `fd`, unless it fails with -ENOMEM.
 */
int source_attach(struct source *s, int cpu, int fd, struct bpf_link *link);

/* Functions over the skeleton NAME_bpf that bpftool makes. */
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
