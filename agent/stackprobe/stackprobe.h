/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flame graph probe of gala-gopher (doc/stackprobe.md): its configuration, and its files.
 *
 *	config.c    a request's JSON → configuration → JSON
 *	params.c    its member `params`
 *	snoopers.c  its members `snoopers` and `blacklist`, and the processes that they mean
 *	matcher.c   what snoopers ask about processes
 *	part.c      a source's profile → profiles of types
 *	ring.c      a directory of pictures, of which the oldest are removed
 *	output.c    profiles → folded files and pictures
 *
 * agent/stackprobe.c puts them together with a recording. Nothing here has a lock.
 */
#pragma once

#include "agent/identity/identity.h"
#include "agent/pipeline/pipeline.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "profile/profile.h"

/* The name in gala-gopher's API and paths. */
#define STACKPROBE_NAME "flamegraph"

/*
 * What can be recorded: id, name, title of pictures. In the order in which a GET lists them; lock
 * and wall are culprit's own.
 */
#define STACKPROBE_TYPES(X)                                                                        \
	X(ONCPU, "oncpu", "On-CPU Time Flame Graph")                                               \
	X(OFFCPU, "offcpu", "Off-CPU Time Flame Graph")                                            \
	X(MEM, "mem", "Memory by Page Faults Flame Graph")                                         \
	X(MEM_GLIBC, "mem_glibc", "Memory Leak Flame Graph")                                       \
	X(IO, "io", "IO Time Flame Graph")                                                         \
	X(LOCK, "lock", "Lock Wait Time Flame Graph")                                              \
	X(WALL, "wall", "Wall Clock Time Flame Graph")

enum stackprobe_type {
#define X(id, name, title) STACKPROBE_##id,
	STACKPROBE_TYPES(X)
#undef X
		STACKPROBE_N
};

const char *stackprobe_type_name(enum stackprobe_type t);
const char *stackprobe_type_title(enum stackprobe_type t);

/* ---- configuration ---- */

/* Those of gala-gopher's parameters that have a value here; the order is that of params.c. */
enum stackprobe_param {
	STACKPROBE_REPORT_PERIOD,
	STACKPROBE_LATENCY_THR,
	STACKPROBE_OFFLINE_THR,
	STACKPROBE_DROPS_THR,
	STACKPROBE_RES_LOWER_THR,
	STACKPROBE_RES_UPPER_THR,
	STACKPROBE_REPORT_EVENT,
	STACKPROBE_SVG_PERIOD,	  /* s */
	STACKPROBE_SAMPLE_PERIOD, /* ms */
	STACKPROBE_MULTI_INSTANCE,
	STACKPROBE_NATIVE_STACK,
	STACKPROBE_N_PARAMS
};

#define STACKPROBE_PATH_BYTES 256
#define STACKPROBE_SERVER_BYTES 64
#define STACKPROBE_MESSAGE_BYTES 256
#define STACKPROBE_DEFAULT_FLAME_DIR "/var/log/gala-gopher/flamegraph"
#define STACKPROBE_DEFAULT_OUTPUT_DIR "/var/log/gala-gopher/stacktrace"

enum stackprobe_state {
	STACKPROBE_UNKNOWN, /* it was never started */
	STACKPROBE_RUNNING,
	STACKPROBE_STOPPED,
};

struct stackprobe_params {
	s64 value[STACKPROBE_N_PARAMS];
	char pyroscope_server[STACKPROBE_SERVER_BYTES];
	char output_dir[STACKPROBE_PATH_BYTES], flame_dir[STACKPROBE_PATH_BYTES];
};

struct stackprobe_snoopers;

struct stackprobe_config {
	bool known;			      /* a request has created it */
	u32 types;			      /* bits by enum stackprobe_type */
	struct stackprobe_snoopers *snoopers; /* owned; NULL: none */
	struct stackprobe_params params;
	enum stackprobe_state state;
};

void stackprobe_config_init(struct stackprobe_config *c);
void stackprobe_config_deinit(struct stackprobe_config *c);
/*
 * What the configuration is after a PUT of this JSON. `lacks`: bits of types that this build or
 * kernel does not have. `ret_message` has STACKPROBE_MESSAGE_BYTES. 0: *ret is another one, which
 * shares with `old` what the request does not change; the caller drops one of both with
 * stackprobe_config_drop(). -EINVAL: `ret_message` says why; -ENOMEM.
 */
int stackprobe_config_put(const struct stackprobe_config *old, const char *json, size_t n,
			  u32 lacks, struct stackprobe_config *ret, char *ret_message);
/* Frees what `c` has and `other` does not. */
void stackprobe_config_drop(struct stackprobe_config *c, const struct stackprobe_config *other);
/* Appends the answer to a GET, with a newline. */
void stackprobe_config_print(const struct stackprobe_config *c, struct str *out);
/* Replaces comments, which gala-gopher takes, by spaces. */
void stackprobe_blank_comments(char *json, size_t n);

/* params.c */
struct json_t;
struct json_writer;
void stackprobe_params_init(struct stackprobe_params *p);
int stackprobe_params_read(struct json_t *json, struct stackprobe_params *p, char *ret_message);
void stackprobe_params_print(const struct stackprobe_params *p, struct json_writer *w);

/* snoopers.c */
#define STACKPROBE_MAX_SNOOPERS 100
/* -EINVAL and a message; -ENOMEM. */
int stackprobe_snoopers_read(struct json_t *json, bool blacklist, struct stackprobe_snoopers **ret,
			     char *ret_message);
void stackprobe_snoopers_destroy(struct stackprobe_snoopers *s);
u32 stackprobe_snoopers_count(const struct stackprobe_snoopers *s);
bool stackprobe_is_blacklist(const struct stackprobe_snoopers *s);
void stackprobe_snoopers_print(const struct stackprobe_snoopers *s, struct json_writer *w);
/* POSIX' extended regular expression as RE2's. */
void stackprobe_translate_regex(const char *ere, struct str *out);

/* What is known of a process; texts are borrowed. */
struct stackprobe_process {
	u32 pid;
	const char *comm;
	bool is_own; /* culprit, or one of its processes */
	/* Read when they are asked for; borrowed until the next process. */
	const char *(*cmdline)(void *arg);
	const struct identity_container *(*container)(void *arg);
	void *arg;
};

/* Without snoopers nothing is chosen. */
enum pipeline_choice stackprobe_choose(struct stackprobe_snoopers *s,
				       const struct stackprobe_process *p);
/* Whether the cgroup of a process counts, which changes without an event. */
bool stackprobe_snoopers_want_cgroups(const struct stackprobe_snoopers *s);

/* matcher.c: asks the kernel and `identities` about processes. */
struct stackprobe_matcher;

/* -ENOMEM. `identities` is borrowed. */
int stackprobe_matcher_create(struct identities *identities, struct stackprobe_matcher **ret);
void stackprobe_matcher_destroy(struct stackprobe_matcher *m);
enum pipeline_choice stackprobe_matcher_choose(struct stackprobe_matcher *m,
					       struct stackprobe_snoopers *s,
					       const struct procman_process *p);

/* ---- profiles ---- */

/*
 * The part of a source's profile that is of this type, with values of the type's own: NULL and 0 if
 * the source is another one.
 */
int stackprobe_part(const struct profile *p, enum stackprobe_type t, struct profile **ret);
/* Each run of libjvm's frames becomes one note. No stack may be added afterwards. */
int stackprobe_hide_jvm(struct profile *p);

/* ---- files ---- */

/* A directory of pictures below days, in a ring. */
struct stackprobe_ring;

/* Finds the pictures that are there already. The directory need not exist. -ENOMEM. */
int stackprobe_ring_open(const char *dir, struct stackprobe_ring **ret);
void stackprobe_ring_close(struct stackprobe_ring *r);
/*
 * Makes the day's directory, and the path of a picture of this time (since the epoch); `who`: a pid
 * or "all".
 */
int stackprobe_ring_path(struct stackprobe_ring *r, time_t now, const char *who, struct str *ret);
/* The picture is there now: removes the oldest beyond `keep`. */
int stackprobe_ring_add(struct stackprobe_ring *r, const char *path, u32 keep);
u32 stackprobe_ring_count(const struct stackprobe_ring *r);
/* Makes a directory and those above it. */
int stackprobe_make_dirs(const char *path);

struct stackprobe_output;

int stackprobe_output_create(const struct stackprobe_params *p, bool canonical,
			     struct stackprobe_output **ret);
void stackprobe_output_destroy(struct stackprobe_output *o);
/* Other directories, periods and instances from now on; what was added before stays. */
void stackprobe_output_change(struct stackprobe_output *o, const struct stackprobe_params *p);
/* A type begins: removes what an earlier run has left of its folded files. */
void stackprobe_output_begin(struct stackprobe_output *o, enum stackprobe_type t, time_t now);
/* Adds a profile, and writes the folded files; the picture, if it is due. */
void stackprobe_output_add(struct stackprobe_output *o, enum stackprobe_type t,
			   const struct profile *p, time_t now);
/* Writes the picture if it was due so many seconds ago: a source without samples has no profile. */
void stackprobe_output_tick(struct stackprobe_output *o, enum stackprobe_type t, time_t now,
			    time_t late_s);
/* Writes the picture of what is there; the folded files stay. */
void stackprobe_output_end(struct stackprobe_output *o, enum stackprobe_type t, time_t now);
