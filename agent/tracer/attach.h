/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of a compiled script, attached. */
#pragma once

#include "agent/tracer/internal.h"
#include "agent/tracer/load.h"

/* A probe that user space runs. */
struct tracer_run {
	u32 probe;
	int program;   /* borrowed */
	u64 period_ns; /* 0: BEGIN, END and self: when asked */
};

struct tracer_attached {
	vec(struct tracer_place_of {
		int fd;	       /* owned: of an event or a link; -1: detached */
		int program;   /* borrowed */
		u32 probe;     /* one of those that it is for */
		u32 n_probes;  /* how many; 0: another place has told them already */
		u32 n_stepped; /* of them: the first instruction is not emulated */
	}) places;	       /* closed from the last to the first */
	vec(struct tracer_run) begins, ends, timers;
	vec(int) iterators; /* borrowed from `places`: links that read() of their files runs */
	vec(struct tracer_signal {
		int number;
		struct tracer_run run;
	}) signals;			   /* self:signal:NAME */
	const struct trace_script *script; /* borrowed: which points are of one action */
	bool tells_places;		   /* as in struct tracer_session_options */
	vec(u32) missing; /* that could not be attached, and a line on stderr said so */
};

/* Loads the probes that user space runs: BEGIN, END, interval, self. */
int tracer_attach_own(struct tracer_machine *m, struct tracer_loaded *l, struct tracer_attached *a,
		      struct diag *reterr_diag);
/*
 * Loads and attaches all others. What cannot be attached is an error, unless the script's setting
 * missing_probes says otherwise. Undone by tracer_detach(), also after a failure.
 */
int tracer_attach(struct tracer_machine *m, struct tracer_loaded *l, struct tracer_attached *a,
		  struct diag *reterr_diag);
/* Detaches what runs this program. */
void tracer_detach_program(struct tracer_attached *a, int program);
/* Returns when no probe is hit any more. The programs that user space runs stay. */
void tracer_detach(struct tracer_attached *a);
/* Whether nothing but what has run already is attached. */
bool tracer_attached_only_iterators(const struct tracer_attached *a, const struct trace_program *p);
void tracer_attached_deinit(struct tracer_attached *a);

/* ---- perf events (events.c) ---- */

/* Opens the events of hardware, software, profile, watchpoint; one for each CPU or thread. */
int tracer_open_events(const struct tracer_machine *m, const struct trace_point *p, int *ret_fds,
		       u32 max, u32 *ret_n, struct diag *d);
/* The period of interval:s:1. -EINVAL */
int tracer_period_ns(const struct trace_point *p, u64 *ret, struct diag *d);
