/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tracer/owners.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/identity/identity.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/map.h"
#include "proc/proc.h"
#include "profile/profile.h"

/* How often it is checked whether a pid belongs to another process now. */
#define CHECK_NS 1000000000ULL
#define MAX_PROCESSES 100000

struct known_process {
	u64 checked_ns;
	u64 start_ticks, start_stack; /* differ when the pid is reused, and after an exec */
	u32 names[TRACE_OWNER_N];     /* in `texts`; 0: "" */
};

struct tracer_owners {
	struct identities *identities; /* owned */
	struct strtab texts;
	struct map processes;		 /* pid → struct known_process *, owned */
	struct map first[TRACE_OWNER_N]; /* id of a name → pid */
};

int tracer_owners_create(struct tracer_owners **ret)
{
	struct tracer_owners *o = calloc(1, sizeof(*o));
	int r = o ? strtab_init(&o->texts) : -ENOMEM;

	if (r == 0)
		r = identities_create(&o->identities);
	if (r < 0) {
		tracer_owners_destroy(o);
		return r;
	}
	*ret = o;
	return 0;
}

void tracer_owners_destroy(struct tracer_owners *o)
{
	if (!o)
		return;
	map_foreach (&o->processes, slot)
		free((struct known_process *)slot->value);
	map_deinit(&o->processes);
	for (u32 i = 0; i < TRACE_OWNER_N; i++)
		map_deinit(&o->first[i]);
	identities_destroy(o->identities);
	strtab_deinit(&o->texts);
	free(o);
}

static void set_name(struct tracer_owners *o, struct known_process *k, enum trace_owner what,
		     const char *name)
{
	if (name && strtab_add(&o->texts, name, strlen(name), &k->names[what]) < 0)
		k->names[what] = 0;
}

/* Finds out what the process belongs to now. */
static void identify(struct tracer_owners *o, struct known_process *k, u32 pid, const char *comm)
{
	_cleanup_profile_ struct profile *into = profile_create();
	struct procman_process p = {.pid = pid,
				    .image = hash_u64(k->start_ticks ^ hash_u64(k->start_stack)),
				    .start_ticks = k->start_ticks,
				    .alive = true};
	const char *container;
	u32 r;

	snprintf(p.comm, sizeof(p.comm), "%s", comm);
	identities_say(o->identities, &p, NULL, 0);
	if (!into || identities_resource(o->identities, p.image, comm, into, &r) < 0)
		return;
	container = profile_label(into, r, "container.name");
	set_name(o, k, TRACE_OWNER_SERVICE, profile_label(into, r, "service.name"));
	set_name(o, k, TRACE_OWNER_CONTAINER,
		 container ? container : profile_label(into, r, "container.id"));
	set_name(o, k, TRACE_OWNER_POD, profile_label(into, r, "k8s.pod.name"));
}

static struct known_process *add(struct tracer_owners *o, u32 pid)
{
	struct known_process *k = o->processes.n < MAX_PROCESSES ? calloc(1, sizeof(*k)) : NULL;

	if (k && map_put(&o->processes, pid, (u64)k) < 0) {
		free(k);
		return NULL;
	}
	return k;
}

/* A process that has ended before it was looked at. */
static void assume(struct tracer_owners *o, struct known_process *k, const char *comm)
{
	set_name(o, k, TRACE_OWNER_SERVICE, comm);
	set_name(o, k, TRACE_OWNER_CONTAINER, "[unknown]");
	set_name(o, k, TRACE_OWNER_POD, "[unknown]");
}

static struct known_process *know(struct tracer_owners *o, u32 pid, const char *comm)
{
	const u64 *slot = map_get(&o->processes, pid);
	struct known_process *k = slot ? (struct known_process *)*slot : NULL;
	u64 now = clock_ns(CLOCK_MONOTONIC);
	struct proc_stat st;
	bool lives;

	if (k && (now - k->checked_ns < CHECK_NS || !comm[0]))
		return k;
	lives = proc_stat_read(pid, &st) == 0;
	if (!k)
		k = add(o, pid);
	else if (!lives || (k->start_ticks == st.start_ticks && k->start_stack == st.start_stack))
		comm = NULL;
	if (!k)
		return NULL;
	k->checked_ns = now;
	if (!comm)
		return k;
	if (!lives) {
		assume(o, k, comm);
		return k;
	}
	*k = (struct known_process){
		.checked_ns = now, .start_ticks = st.start_ticks, .start_stack = st.start_stack};
	identify(o, k, pid, st.comm);
	return k;
}

bool tracer_owners_name(struct tracer_owners *o, enum trace_owner what, u32 pid, const char *comm,
			struct str *out)
{
	const struct known_process *k = know(o, pid, comm);

	return k && str_puts(out, strtab_get(&o->texts, k->names[what])) == 0;
}

u32 tracer_owners_id(struct tracer_owners *o, enum trace_owner what, u32 pid, const char *comm)
{
	const struct known_process *k = know(o, pid, comm);
	const u64 *first = k ? map_get(&o->first[what], k->names[what] + 1) : NULL;

	if (!k || first)
		return first ? (u32)*first : pid;
	(void)map_put(&o->first[what], k->names[what] + 1, pid);
	return pid;
}
