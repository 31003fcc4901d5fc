/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/capture. */
#pragma once

#include <pthread.h>

#include "agent/capture/capture.h"
#include "base/map.h"
#include "base/vec.h"

/* A task of a server, and what was done about it. */
struct capture_task {
	struct control_task asked;
	u32 server;
	struct control_task_report report; /* its counters are since the task was armed */
};

/* A request to keep, until its profile is made. */
struct capture_wish {
	struct control_keep keep;
	u32 server;
	u64 asked_ns; /* CLOCK_MONOTONIC */
};

struct capture_tasks {
	vec(struct capture_task) list;
};

struct capture {
	struct capture_options options;
	char *cache_dir, *debuginfod_urls; /* owned */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	bool ending;
	u32 revision; /* grows with each change of `tasks` by a server */
	struct capture_tasks tasks;
	vec(struct capture_wish) wishes;
	vec(struct control_kept) kept[CAPTURE_MAX_SERVERS]; /* not answered yet */
	struct map asked; /* hash of a wish → when it was asked (CLOCK_MONOTONIC, ms) */
};

/* The body of capture's thread. */
void *capture_work(void *capture);
