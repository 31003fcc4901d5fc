/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the policies of servers want to hear of processes and of this machine (struct control_watch
 * in lib/control): a thread measures it at the end of each window. Without a watch the thread
 * sleeps, and nothing is read.
 *
 * - CPU time is that of the window, by two readings of the process's counter: not an average since
 *   the process began.
 * - A process is looked at from when the always-on recording has seen it (agent/identity) until it
 *   ends. One that was not there at the last window's end has no CPU time yet.
 * - The load is the kernel's average of one minute divided by the CPUs that are online; what fires
 *   for it is the process of the service that used most CPU time in the window.
 *
 * `server` tells destinations apart, as in agent/capture. Functions may be called from any thread,
 * and return soon.
 */
#pragma once

#include "agent/identity/identity.h"
#include "base/cleanup.h"
#include "base/diag.h"
#include "base/types.h"
#include "control/control.h"

#define WATCH_MAX_SERVERS 18
#define WATCH_MAX_PROCESSES 2048 /* of a watch; WATCH_MAX_ALL of all */
#define WATCH_MAX_ALL 8192

struct watch;

/* `identities` is borrowed until watch_destroy(). -ENOMEM, or an error of starting the thread. */
int watch_create(struct identities *identities, struct diag *reterr_diag, struct watch **ret);
void watch_destroy(struct watch *w);
DEFINE_CLEANUP(watch, struct watch *, watch_destroy)
#define _cleanup_watch_ _cleanup_(watch)

/* These are all watches of the server from now on. One that stays as it is goes on. -ENOMEM. */
int watch_set(struct watch *w, u32 server, const struct control_watch *all, size_t n);
/* Appends what was seen for each watch of the server to ret->watched. -ENOMEM. */
int watch_report(struct watch *w, u32 server, struct control_request *ret);
/* The server has what the last watch_report() told: it is not told again what has fired. */
void watch_answered(struct watch *w, u32 server);
