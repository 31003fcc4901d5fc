/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of the control channel (lib/control): asks each destination for tasks, tells it
 * what became of those that it has given, and hands its answers to agent/capture; what policies of
 * the server measure, to agent/watch; functions that it wants measured, to agent/measures.
 *
 *	destination's thread (agent/export) ─→ question: capture_report() ─→ the server
 *	                                    ←─ answer: capture_set_tasks(), capture_keep()
 *
 * - The server says when it is asked next. A destination that does not know the question (a
 *   Collector, Pyroscope, an older server) is asked again ten minutes later. After other failures
 *   the intervals grow up to 30 s.
 * - A server that has not answered for ten minutes can decide about no request any more: its tasks
 *   end in this agent, and begin again when it answers.
 * - What a server sets about the always-on sampling is kept here until the agent asks for it.
 * - A failure is logged when it begins and when it ends, and counted.
 *
 * All functions may be called from any thread.
 */
#pragma once

#include "agent/capture/capture.h"
#include "agent/export/export.h"
#include "agent/measures/measures.h"
#include "agent/watch/watch.h"
#include "base/str.h"
#include "base/types.h"

struct control_client;

/* -ENOMEM. Nobody is asked before control_client_begin(). */
int control_client_create(struct control_client **ret);
/* After the destinations that it asks. Accepts NULL. */
void control_client_destroy(struct control_client *c);
/* For export_options. Borrowed until control_client_destroy(). */
const struct export_asking *control_client_asking(const struct control_client *c);
/*
 * Who asks, and for whom; all three are borrowed until control_client_end(). Again when
 * the host's name changes.
 */
void control_client_begin(struct control_client *c, struct capture *capture, struct watch *watch,
			  struct measures *measures, const char *host, const char *host_id);
/* From now on nobody is asked, and answers that come are dropped. NULL is fine. */
void control_client_end(struct control_client *c);
/* From now on these URLs are asked at most: the tasks of others end. */
void control_client_keep_only(struct control_client *c, const char *const *urls, size_t n);
/*
 * What servers set about how the agent samples always. If several do, the one counts that was asked
 * first; a server that has been away for ten minutes sets nothing.
 */
struct control_settings control_client_settings(struct control_client *c);
/* What servers are told: how it samples, whether it does what they set, and why not as they did. */
void control_client_in_force(struct control_client *c, const struct control_settings *s,
			     bool takes_settings, const char *reason);
/* Appends in Prometheus' text format. */
void control_client_metrics(struct control_client *c, struct str *out);
