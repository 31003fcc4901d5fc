/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of server/tasks. */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "server/query/query.h"
#include "server/tasks/tasks.h"

#define TASK_WINDOW_MS 300000

struct task_window {
	u64 window; /* the number of the one that classes[0] is of; classes[1]: the one before */
	u64 n[2];
	u32 since; /* requests since the threshold was estimated */
	u32 classes[2][TASK_CLASSES];
};

struct task_entry {
	struct task_info info;
	struct strtab names; /* of endpoints: the id is the index in info.endpoints + 1 */
	struct map agents;   /* hash of host and id → index in info.agents */
	struct regex *regex; /* owned; or NULL */
	vec(struct task_window *) windows; /* owned; by endpoint; NULL: not yet */
	bool changed, urgent; /* the file is behind; by a decision, an outcome or a user */
	u64 saved_ms;
	u64 round; /* of task_files_save(): the last that wrote it */
};

struct tasks {
	pthread_mutex_t save_lock;     /* of the files; taken before `lock` */
	pthread_mutex_t lock;	       /* of everything below */
	char *directory;	       /* owned; or NULL */
	vec(struct task_entry *) list; /* owned; oldest first */
	u64 number;		       /* of the last decision */
	u64 random;		       /* state of a generator */
	u64 round;
	struct task_seen seen;	/* entry spans */
	struct strtab services; /* that spans came from, for a user who misspelt one */
	struct map askers;	/* hash of host and id → when the agent last asked, in ms */
	u64 asked_ms;		/* when any did; 0: none has */
	u64 counts[TASK_COUNT_N], outcomes[TASK_OUTCOME_N], questions; /* since the start */
};

/* ---- kind.c ---- */

/* -EINVAL for what a task of its kind cannot have. */
int task_check_kind(const struct task_spec *s, struct diag *reterr_diag);

/* ---- tasks.c; the caller holds the lock ---- */

int task_entry_create(struct task_entry **ret);
void task_entry_destroy(struct task_entry *e);
DEFINE_CLEANUP(task_entry, struct task_entry *, task_entry_destroy)
#define _cleanup_task_entry_ _cleanup_(task_entry)
struct task_entry *tasks_find(struct tasks *t, const char *id);
u64 tasks_random(struct tasks *t);
void task_log(struct task_entry *e, u64 now_ms, const char *host, const char *fmt, ...)
	CULPRIT_PRINTF(4, 5);
/* Ends what is over, and logs a change of the state. */
void task_update_state(struct task_entry *e, u64 now_ms);
/* Whether agents should still know the task, because its last requests may not have ended. */
bool task_lingers(const struct task_info *i, u64 now_ms);
/* An index in info.agents, added if it is new; or ~0. */
u32 task_agent_index(struct task_entry *e, const char *host, const char *host_id);
u64 task_agent_key(const char *host, const char *host_id);

/* ---- decide.c; the caller holds the lock ---- */

/* Changes the outcome of a request, unless the one that it has is better. */
bool task_settle(struct tasks *t, struct task_entry *e, struct task_request *q, u8 outcome,
		 u64 now_ms);

/* ---- file.c ---- */

/* Writes the files that are behind: those with something urgent, others after a while. */
int task_files_save(struct tasks *t, struct diag *reterr_diag);
/* Without a directory: nothing. */
int task_files_load(struct tasks *t, struct diag *reterr_diag);
/* The caller holds save_lock. */
void task_file_remove(const struct tasks *t, const char *id);
