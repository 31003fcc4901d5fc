/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A script, and the recording that walks and names the stacks that it asks for. A script without
 * stacks has none.
 */
#include <errno.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "base/cleanup.h"

struct tracing {
	struct tracer_session *session; /* owned, as the next */
	struct recording *recording;	/* or NULL */
	struct parsers *parsers;	/* likewise */
	struct tracer_walk walk;
	vec(struct recording_stack) wanted; /* that will be named soon */
};

static u64 stack_id(void *arg, u64 id)
{
	struct tracing *t = arg;

	return recording_stack_id(t->recording, id);
}

static void want_stack(void *arg, u64 id, u32 pid)
{
	struct tracing *t = arg;

	(void)vec_push(&t->wanted, (struct recording_stack){id, pid});
}

/* The first one that is named is named together with all that are wanted. */
static void name_wanted(struct tracing *t)
{
	_cleanup_free_ u32 *ids = calloc(t->wanted.n + 1, sizeof(*ids));

	if (ids && t->wanted.n)
		(void)recording_name_stacks(t->recording, t->wanted.data, t->wanted.n, ids);
	vec_clear(&t->wanted);
}

static const struct profile *name_stack(void *arg, u64 id, u32 pid, u32 *ret_stack)
{
	struct tracing *t = arg;
	const struct recording_stack s = {id, pid};

	name_wanted(t);
	if (recording_name_stacks(t->recording, &s, 1, ret_stack) < 0)
		return NULL;
	return recording_names(t->recording);
}

/* Opens the recording, and finds where programs of each type ask for stacks. */
static int open_recording(struct tracing *t, u64 types, bool is_command, struct diag *d)
{
	struct recording_options o = {.trace = types,
				      .all_walkers = is_command,
				      .trace_links = tracer_session_links_uprobes(t->session),
				      .kernel_only = !tracer_session_wants_user(t->session)};
	struct sampler_trace at;
	int r = parsers_start(d, &t->parsers);

	t->walk = (struct tracer_walk){.stacks = -1,
				       .links_uprobes = o.trace_links,
				       .arg = t,
				       .stack = name_stack,
				       .stack_id = stack_id,
				       .want = want_stack};
	o.parsers = t->parsers;
	if (r == 0)
		r = recording_create(&o, d, &t->recording);
	for (u32 type = 0; type < 64 && r == 0; type++) {
		if (!(types >> type & 1))
			continue;
		r = recording_trace(t->recording, type, &at);
		if (r == -ENOENT)
			return diag_set(d, -ENOTSUP, "stacks are not taken at this kind of probe");
		if (r == 0) {
			t->walk.stacks = at.stacks_fd;
			r = vec_push(
				&t->walk.entries,
				(struct tracer_walk_entry){(enum bpf_prog_type)type, at.slots_fd});
		}
	}
	return r;
}

int tracing_create(const struct tracer_session_options *o, struct diag *reterr_diag,
		   struct tracing **ret)
{
	struct tracing *t = calloc(1, sizeof(*t));
	u64 types;
	int r;

	if (!t)
		return -ENOMEM;
	r = tracer_session_create(o, reterr_diag, &t->session);
	types = r == 0 ? tracer_session_stack_types(t->session) : 0;
	if (types)
		r = open_recording(t, types, o->is_command, reterr_diag);
	if (r == 0)
		r = tracer_session_load(t->session, types ? &t->walk : NULL, reterr_diag);
	if (r < 0) {
		tracing_destroy(t);
		return r;
	}
	*ret = t;
	return 0;
}

int tracing_start(struct tracing *t, struct diag *reterr_diag)
{
	int r = t->recording ? recording_start(t->recording, reterr_diag) : 0;

	return r < 0 ? r : tracer_session_start(t->session, reterr_diag);
}

u32 tracing_probes(const struct tracing *t)
{
	return tracer_session_probes(t->session);
}

int tracing_poll(struct tracing *t, int wait_ms)
{
	int r = t->recording ? recording_poll(t->recording, 0) : 0;

	return r < 0 ? r : tracer_session_poll(t->session, wait_ms);
}

void tracing_signal(struct tracing *t, int number)
{
	tracer_session_signal(t->session, number);
}

int tracing_end(struct tracing *t)
{
	if (t->recording)
		(void)recording_poll(t->recording, 0);
	return tracer_session_end(t->session);
}

int tracing_profile_check(const struct tracing *t, struct diag *reterr_diag)
{
	u32 map;

	return tracer_session_profile_map(t->session, &map, reterr_diag);
}

int tracing_profile(struct tracing *t, struct profile **ret, struct diag *reterr_diag)
{
	return tracer_session_profile(t->session, ret, reterr_diag);
}

void tracing_losses(const struct tracing *t, u64 ret[TRACE_LOSS_N])
{
	tracer_session_losses(t->session, ret);
	if (t->recording)
		ret[TRACE_LOST_WALK] += recording_lost_stacks(t->recording);
}

struct tracer_session *tracing_session(struct tracing *t)
{
	return t->session;
}

const struct profile *tracing_stack(struct tracing *t, u64 id, u32 pid, u32 *ret_stack)
{
	return t->recording ? name_stack(t, id, pid, ret_stack) : NULL;
}

void tracing_destroy(struct tracing *t)
{
	if (!t)
		return;
	tracer_session_destroy(t->session);
	recording_destroy(t->recording);
	if (t->parsers)
		parsers_stop(t->parsers);
	vec_deinit(&t->walk.entries);
	vec_deinit(&t->wanted);
	free(t);
}
