/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of server/policies. */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "server/policies/policies.h"
#include "server/query/query.h"

/* The requests to an endpoint in the present window. */
struct policy_window {
	u64 number; /* since the epoch, in windows */
	u64 windows;
	u32 n, errors, over; /* the latter: that took at least the threshold */
	u64 sum_ns;
	u64 most_below_ns, least_over_ns; /* durations next to the threshold */
	u64 hits;			  /* a bit for each window, of which bit 0 is the last */
	u32 *classes;			  /* owned; TASK_CLASSES; NULL: not counted */
};

struct policy_entry {
	struct policy_info info;
	struct regex *regex;		   /* owned; or NULL */
	struct strtab names;		   /* service, US, endpoint */
	vec(u32) window_of;		   /* by the id of a name: index in windows + 1; 0: none */
	vec(struct policy_window) windows; /* by index; info.seen has the same */
	bool changed, full_told;
	u64 saved_ms;
};

struct policies {
	struct tasks *tasks; /* borrowed */
	char *directory;     /* owned; or NULL */
	pthread_mutex_t lock;
	vec(struct policy_entry *) list; /* owned; oldest first */
	struct task_seen seen;		 /* entry spans */
	u32 tables;			 /* policy_window.classes of all */
	u64 verdicts[POLICY_VERDICT_N];	 /* since the start */
};

static inline bool policy_is_measured(enum policy_cause c)
{
	return c < (enum policy_cause)CONTROL_QUANTITY_N;
}

/* The caller of what follows holds the lock, within QUOTA_PAUSED. */

/* ---- spec.c ---- */

const char *policy_cause_unit(enum policy_cause c);
enum policy_cause policy_find_cause(const char *name);

/* ---- policies.c ---- */

int policy_entry_create(struct policy_entry **ret);
void policy_entry_destroy(struct policies *p, struct policy_entry *e);
struct policy_entry *policies_find(struct policies *p, const char *id);
void policy_log(struct policy_entry *e, u64 now_ms, const char *host, const char *fmt, ...)
	CULPRIT_PRINTF(4, 5);

/* ---- judge.c ---- */

/* "187 % of a CPU" */
void policy_put_value(struct str *out, enum policy_cause c, double v);
/* Notes what a window or a firing came to; the log has it when that changes. */
void policy_note(struct policies *p, struct policy_entry *e, struct policy_seen *s,
		 enum policy_verdict v, const char *why, u64 now_ms);
/*
 * Adds a task for what fired, if nothing stands against it. `cause` has what was measured, without
 * the text; endpoint "": of all.
 */
void policy_fire(struct policies *p, struct policy_entry *e, struct policy_seen *s,
		 const char *service, struct task_cause *cause, u64 now_ms);
/* Says in the log when the processes of a task publish no context. */
void policy_follow_tasks(struct policies *p, struct policy_entry *e, u64 now_ms);

/* ---- windows.c ---- */

/* Ends the windows that are over. */
void policy_end_windows(struct policies *p, struct policy_entry *e, u64 now_ms);

/* ---- file.c ---- */

/* Replaces the file, if there is a directory. */
int policy_file_save(const struct policies *p, struct policy_entry *e, struct diag *reterr_diag);
void policy_file_remove(const struct policies *p, const char *id);
int policy_files_load(struct policies *p, struct diag *reterr_diag);
