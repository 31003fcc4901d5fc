/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are kept after they have ended (doc/design/0019-kept-requests.md). While tasks ask
 * for it, the processes of their services are armed: a recording of its own samples their threads
 * that carry a span up to a thousand times a second, and follows each of their waits. It is kept
 * for a minute. When a server decides to keep a request, a profile is made of what belongs to it;
 * of a request that goes on for longer, a part at a time is made before its end:
 *
 *	request:wall	stacks: on a CPU, and waits (label `wait`): all from the floor on, and some
 *			shorter ones, which stand for the others
 *	request:time	no stacks: the exact time of each span and thread by `state`
 *
 * Samples have the labels `task` and `kept` (enum control_reason), and the link of their span.
 *
 * A thread of its own does all this. While no task is armed there is no BPF program, no perf event
 * and no memory for it. Each function may be called by any thread and returns soon: it waits for a
 * lock that is never held over I/O or symbolizing.
 *
 * `server` tells apart the destinations that ask: ids of tasks are theirs, and each gets reports of
 * its own tasks only. It is below CAPTURE_MAX_SERVERS.
 */
#pragma once

#include "agent/identity/identity.h"
#include "agent/parser/parser.h"
#include "base/budget.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/str.h"
#include "base/types.h"
#include "control/control.h"
#include "profile/profile.h"

#define CAPTURE_MAX_SERVERS 18
/* How long samples and intervals are kept if there is room, and in how much room by default. */
#define CAPTURE_WINDOW_NS 60000000000ULL
#define CAPTURE_DEFAULT_BYTES (64ULL << 20)
/* How long after a request's end its last events are waited for. */
#define CAPTURE_SETTLE_NS 500000000ULL

struct capture;

struct capture_options {
	struct parsers *parsers;       /* borrowed until capture_destroy(), as the next two */
	struct identities *identities; /* of the always-on recording, which finds the processes */
	struct budget *budget;	       /* of the process, or NULL */
	u64 max_bytes;		       /* of samples and intervals; 0: the default */
	u64 tables_bytes;	       /* of unwind tables; 0: the default of a recording */
	u64 max_section;	       /* larger sections of files are not read; 0: no limit */
	double budget_percent;	       /* of CPU time, for walks of waits; 0: the default */
	u64 window_ns;		       /* kept before a decision; 0: CAPTURE_WINDOW_NS */
	bool no_inline, no_symbols;    /* as symbolizer_options: inlines, leave_files */
	const char *cache_dir;	       /* as recording_options; NULL: none; copied */
	const char *debuginfod_urls;   /* likewise */
	/* Takes ownership of a profile; called by capture's thread. */
	void (*take)(void *arg, struct profile *p);
	void *arg;
};

/* Starts the thread; nothing is loaded yet. -ENOMEM, or an error of starting the thread. */
int capture_create(const struct capture_options *o, struct diag *reterr_diag, struct capture **ret);
/* Drops what is undecided. Accepts NULL. */
void capture_destroy(struct capture *c);
DEFINE_CLEANUP(capture, struct capture *, capture_destroy)
#define _cleanup_capture_ _cleanup_(capture)

/* These are all tasks of the server from now on: others end. Copied. -ENOMEM: nothing changes. */
int capture_set_tasks(struct capture *c, u32 server, const struct control_task *tasks, size_t n);
/*
 * Keeps these requests, once their last events have arrived. Copied; one that was asked for lately
 * is ignored. -ENOMEM: some are not kept.
 */
int capture_keep(struct capture *c, u32 server, const struct control_keep *keeps, size_t n);
/*
 * Appends the state of each task of the server to ret->tasks, and to ret->kept what became of
 * requests, at most CONTROL_MAX_KEEPS, oldest first: until capture_answered() says that the server
 * has them. -ENOMEM: ret is as it was, or has some.
 */
int capture_report(struct capture *c, u32 server, struct control_request *ret);
/* The server has the first `n` of ret->kept of the last capture_report(). */
void capture_answered(struct capture *c, u32 server, size_t n);
/* The server is no longer a destination: its tasks end. */
void capture_forget_server(struct capture *c, u32 server);
/* Appends metrics as Prometheus text. */
void capture_metrics(struct capture *c, struct str *out);
