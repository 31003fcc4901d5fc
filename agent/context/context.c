/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each file is searched once for contexts that its code publishes. A process is attached when it
 * maps such a file; if the loader is not done, attaching is retried. Nothing signals that a process
 * publishes its own attributes, so sampled processes are polled, often at first, then ever less.
 */
#include "agent/context/context.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/context/channel.h"
#include "agent/context/internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"

#define MAX_LABELS 64
#define FIRST_LOOK_NS 50000000ULL
/* The interval while the loader is still busy with a new mapping. */
#define WAITING_LOOK_NS 1000000ULL
#define LONGEST_LOOK_NS 60000000000ULL
/* The interval for processes that publish: reading a page whose address is known is cheap. */
#define KNOWN_LOOK_NS 1000000000ULL
/* The interval at which unknown names of thread attributes are looked for. */
#define NAMES_LOOK_NS 100000000ULL
/* A poll may be early by this share of its interval, so that one wake-up serves many processes. */
#define EARLY_SHARE 8

static const struct context_ops *const readers[CONTEXT_N] = {
#define CONTEXT(id, name, ...) [CONTEXT_##id] = &context_##name,
#include "abi/tbl/context.tbl"
#undef CONTEXT
};

static const char *const names[CONTEXT_N] = {
	[CONTEXT_NONE] = "none",
#define CONTEXT(id, name, ...) [CONTEXT_##id] = #name,
#include "abi/tbl/context.tbl"
#undef CONTEXT
};

struct known_file {
	u32 sources; /* bits by enum context_id */
	struct context_binary of[CONTEXT_N];
};

struct known_process {
	u32 pid;
	u64 image;
	bool seen;   /* a sample of it has arrived */
	u32 waiting; /* bits by enum context_id: attaching is to be retried */
	u32 index;   /* index in BPF's map; 0: none */
	struct context_process bpf;
	struct process_context context;
	struct str said; /* name, NUL, value, NUL, … */
	u32 n_said;
	struct attribute_names names; /* names of the attributes that its threads publish */
	struct attribute_share share;
	u64 asked_ns;	     /* when unknown names were last looked for */
	bool elastic;	     /* `said` came from Elastic's agent */
	u64 due_ns, wait_ns; /* ~0: not polled */
};

struct contexts {
	struct contexts_options options;
	struct map files;     /* file id → struct known_file *, owned; NULL: publishes nothing */
	struct map processes; /* image → struct known_process *, owned */
	u32 n_in_map, last_index;
	bool in_use[CONTEXT_MAX_PROCESSES];
	struct attribute_bounds bounds;
	struct str texts; /* texts returned by contexts_attributes() */
	u64 due_ns;	  /* the earliest due_ns of all processes */
	struct contexts_stats stats;
	struct channels *channels; /* owned; NULL: correlation is off */
};

int contexts_create(const struct contexts_options *o, struct contexts **ret)
{
	struct contexts *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->options = *o;
	c->due_ns = ~0ULL;
	*ret = c;
	return 0;
}

static struct known_process *known_process(const struct contexts *c, u64 image)
{
	const u64 *v = map_get(&c->processes, image);

	return v ? (struct known_process *)*v : NULL;
}

static void known_process_free(struct known_process *k)
{
	str_deinit(&k->said);
	attribute_names_deinit(&k->names);
	free(k);
}

void contexts_destroy(struct contexts *c)
{
	if (!c)
		return;
	map_foreach (&c->files, slot)
		free((struct known_file *)slot->value);
	map_foreach (&c->processes, slot)
		known_process_free((struct known_process *)slot->value);
	map_deinit(&c->files);
	map_deinit(&c->processes);
	attribute_bounds_deinit(&c->bounds);
	str_deinit(&c->texts);
	channels_destroy(c->channels);
	free(c);
}

int contexts_correlate(struct contexts *c, u32 delay_ms, const char *host_id)
{
	return c->channels ? 0 : channels_create(delay_ms, host_id, &c->channels);
}

void contexts_report(struct contexts *c, u32 pid, const struct context_report *r, u64 count)
{
	if (c->channels)
		channels_report(c->channels, pid, r, count);
}

void contexts_late(struct contexts *c, u32 ms)
{
	if (c->channels)
		channels_late(c->channels, ms);
}

/* ---- files ---- */

static const struct known_file *known_file(struct contexts *c, const struct procman_binary *b)
{
	u64 *known = map_get(&c->files, b->file_id);
	struct known_file found = {}, *f = NULL;

	if (known)
		return (struct known_file *)*known;
	if (!b->file_id)
		return NULL;
	for (u32 i = 1; b->elf && i < CONTEXT_N; i++)
		if (readers[i]->find(b, &found.of[i]) == 0)
			found.sources |= 1u << i;
	if (b->elf)
		elf_file_forget(b->elf);
	if (found.sources) {
		f = malloc(sizeof(*f));
		if (!f)
			return NULL;
		*f = found;
	}
	if (map_put(&c->files, b->file_id, (u64)f) < 0) {
		free(f);
		return NULL;
	}
	return f;
}

static void binary_gone(void *arg, struct procman_binary *b)
{
	struct contexts *c = arg;
	u64 v;

	if (map_del(&c->files, b->file_id, &v))
		free((struct known_file *)v);
}

/* ---- BPF's map ---- */

/* Takes the index in the map that has been free for longest; 0: none is free. */
static u32 take_index(struct contexts *c)
{
	for (u32 i = 1; i < CONTEXT_MAX_PROCESSES; i++) {
		u32 index = 1 + (c->last_index + i) % (CONTEXT_MAX_PROCESSES - 1);

		if (c->in_use[index])
			continue;
		c->last_index = index - 1;
		c->in_use[index] = true;
		return index;
	}
	return 0;
}

/* Makes BPF use this index for the process; 0: none. */
static void set_index(struct contexts *c, struct known_process *k, const struct procman_process *p,
		      u32 index)
{
	u32 old = k->index;

	c->n_in_map += !old && index;
	c->n_in_map -= old && !index;
	k->index = index;
	if (c->options.told)
		c->options.told(c->options.arg, p, index, c->n_in_map);
	if (old)
		c->in_use[old] = false;
}

/* Changed data goes to another index, because BPF may be reading the old one. */
static void update_map(struct contexts *c, struct known_process *k, const struct procman_process *p)
{
	u32 index;

	if (c->options.processes_fd < 0 || !k->bpf.sources || !p->alive)
		return;
	index = take_index(c);
	if (!index || bpf_map_update_elem(c->options.processes_fd, &index, &k->bpf, BPF_ANY) < 0) {
		c->stats.no_room++;
		log_warn_rarely("pid %u: BPF's map of processes that publish spans is full: "
				"its samples have no spans until another process exits",
				k->pid);
		c->in_use[index] = false;
		return;
	}
	set_index(c, k, p, index);
}

/* If several files publish in the same way, the first one counts, as for the loader. */
static void attach_file(struct known_process *k, const struct context_target *t,
			const struct known_file *f)
{
	for (u32 i = 1; i < CONTEXT_N; i++) {
		int r;

		if (!(f->sources & 1u << i) || k->bpf.sources & 1u << i)
			continue;
		r = readers[i]->attach(t, &f->of[i], &k->bpf);
		if (r == 0) {
			k->bpf.sources |= 1u << i;
			k->waiting &= ~(1u << i);
			log_debug("pid %u: its trace context is read: %s", k->pid, names[i]);
		} else if (r == -EAGAIN) {
			k->waiting |= 1u << i;
		}
	}
}

static bool maps_publisher(struct contexts *c, const struct procman_process *p)
{
	for (u32 i = 0; i < p->n; i++)
		if (p->mappings[i].binary->elf && known_file(c, p->mappings[i].binary))
			return true;
	return false;
}

static void attach_all(struct contexts *c, struct known_process *k, const struct procman_process *p)
{
	u32 before = k->bpf.sources;

	for (u32 i = 0; i < p->n; i++) {
		struct context_target t = {p, &p->mappings[i]};
		const struct known_file *f =
			p->mappings[i].binary->elf ? known_file(c, p->mappings[i].binary) : NULL;

		if (f)
			attach_file(k, &t, f);
	}
	if (k->bpf.sources == before && (k->index || !before))
		return;
	k->bpf.image = k->image;
	tls_describe_libc(p, &k->bpf);
	update_map(c, k, p);
}

/* ---- attributes of processes ---- */

static int append_attribute(struct known_process *k, const char *name, const char *value)
{
	if (k->n_said == MAX_LABELS)
		return 0;
	k->n_said++;
	return str_append(&k->said, name, strlen(name) + 1) < 0 ||
			       str_append(&k->said, value, strlen(value) + 1) < 0
		       ? -ENOMEM
		       : 0;
}

static int receive_attribute(void *arg, const struct otlp_said *s)
{
	struct known_process *k = arg;

	return s->of == OTLP_SAID_KEY ? attribute_names_add(&k->names, s->value)
				      : append_attribute(k, s->name, s->value);
}

static void report_attributes(struct contexts *c, const struct known_process *k,
			      const struct procman_process *p)
{
	struct context_label labels[MAX_LABELS];
	const char *at = k->said.data;

	if (!k->n_said || k->said.failed || !c->options.said)
		return;
	for (u32 i = 0; i < k->n_said; i++) {
		labels[i].name = at;
		labels[i].value = at += strlen(at) + 1;
		at += strlen(at) + 1;
	}
	c->options.said(c->options.arg, p, labels, k->n_said);
}

static void poll_process_context(struct contexts *c, struct known_process *k,
				 const struct procman_process *p)
{
	struct known_process fresh = {};

	if (process_context_read(k->pid, &k->context, receive_attribute, &fresh) == 1) {
		str_deinit(&k->said);
		attribute_names_deinit(&k->names);
		k->said = fresh.said;
		k->n_said = fresh.n_said;
		k->names = fresh.names;
		log_debug("pid %u: publishes %u attributes", k->pid, k->n_said);
		report_attributes(c, k, p);
	} else {
		str_deinit(&fresh.said);
		attribute_names_deinit(&fresh.names);
	}
}

/* Elastic's agents are polled, because nothing else signals that they have ended. */
static void poll_elastic(struct contexts *c, struct known_process *k,
			 const struct context_target *t, const struct known_file *f)
{
	struct elastic_storage s;
	struct known_process fresh = {};
	int r = elastic_read(t, &f->of[CONTEXT_ELASTIC], &s);

	if (r < 0) {
		if (c->channels)
			channels_close(c->channels, k->pid);
		k->elastic = false;
		return;
	}
	if (c->channels && t->process->alive)
		channels_open(c->channels, k->pid, s.socket);
	/* OpenTelemetry's own process context takes precedence. */
	if (k->elastic || k->context.header)
		return;
	k->elastic = true;
	if (append_attribute(&fresh, "service.name", s.service) == 0 && s.environment[0])
		(void)append_attribute(&fresh, "deployment.environment.name", s.environment);
	str_deinit(&k->said);
	k->said = fresh.said;
	k->n_said = fresh.n_said;
	report_attributes(c, k, t->process);
}

static void poll_attributes(struct contexts *c, struct known_process *k,
			    const struct procman_process *p)
{
	if (k->seen)
		poll_process_context(c, k, p);
	for (u32 i = 0; k->bpf.sources & 1u << CONTEXT_ELASTIC && i < p->n; i++) {
		struct context_target t = {p, &p->mappings[i]};
		const struct known_file *f =
			p->mappings[i].binary->elf ? known_file(c, p->mappings[i].binary) : NULL;

		if (!f || !(f->sources & 1u << CONTEXT_ELASTIC))
			continue;
		poll_elastic(c, k, &t, f);
		break;
	}
}

/* ---- polling ---- */

/* Schedules the next poll: ever later, except for processes that are known to publish. */
static void schedule_poll(struct contexts *c, struct known_process *k, u64 now)
{
	bool elastic = k->bpf.sources & 1u << CONTEXT_ELASTIC;
	u64 least = k->waiting ? WAITING_LOOK_NS : FIRST_LOOK_NS;

	k->wait_ns = k->wait_ns ? MIN(k->wait_ns * 2, LONGEST_LOOK_NS) : least;
	if (k->context.header || k->waiting || elastic)
		k->wait_ns = MIN(k->wait_ns, KNOWN_LOOK_NS);
	k->due_ns = k->seen || k->waiting || elastic ? now + k->wait_ns : ~0ULL;
	c->due_ns = MIN(c->due_ns, k->due_ns);
}

static struct known_process *get_process(struct contexts *c, const struct procman_process *p)
{
	struct known_process *k = known_process(c, p->image);

	if (!k) {
		k = calloc(1, sizeof(*k));
		if (!k || map_put(&c->processes, p->image, (u64)k) < 0) {
			free(k);
			return NULL;
		}
		k->pid = p->pid;
		k->image = p->image;
		k->share.owner = p->image;
	}
	return k;
}

static void poll_process(struct contexts *c, struct known_process *k,
			 const struct procman_process *p)
{
	attach_all(c, k, p);
	poll_attributes(c, k, p);
	schedule_poll(c, k, clock_ns(CLOCK_MONOTONIC));
}

static void process_changed(void *arg, const struct procman_process *p)
{
	struct contexts *c = arg;
	struct known_process *k = known_process(c, p->image);

	if (!procman_can_be_sampled(p) || (!k && !maps_publisher(c, p)))
		return;
	k = get_process(c, p);
	if (!k)
		return;
	attach_all(c, k, p);
	/* The process has mapped a file, and may start to publish now. */
	k->wait_ns = 0;
	schedule_poll(c, k, clock_ns(CLOCK_MONOTONIC));
}

void contexts_see(struct contexts *c, const struct procman_process *p)
{
	struct known_process *k = p->kthread || !p->start_stack ? NULL : get_process(c, p);

	if (!k)
		return;
	if (k->seen) {
		report_attributes(c, k, p);
		return;
	}
	k->seen = true;
	k->wait_ns = 0;
	poll_process(c, k, p);
}

u32 contexts_attributes(struct contexts *c, const struct procman_process *p,
			const struct record_attributes *head, const u8 *bytes,
			struct context_label ret[CONTEXT_MAX_ATTRIBUTES], bool *ret_partial)
{
	struct known_process *k = get_process(c, p);
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (!k) {
		*ret_partial = true;
		return 0;
	}
	attribute_bounds_begin(&c->bounds, now);
	if (now - k->asked_ns > NAMES_LOOK_NS && !attributes_have_names(head, bytes, &k->names)) {
		k->asked_ns = now;
		poll_process_context(c, k, p);
	}
	return attributes_decode(head, bytes, &k->names, &c->bounds, &k->share, &c->texts, ret,
				 ret_partial);
}

u64 contexts_due_ns(const struct contexts *c)
{
	return c->due_ns;
}

void contexts_retry(struct contexts *c, struct procman *pm)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (now < c->due_ns)
		return;
	c->due_ns = ~0ULL;
	map_foreach (&c->processes, slot) {
		struct known_process *k = (struct known_process *)slot->value;
		const struct procman_process *p;

		if (k->due_ns > now && k->due_ns - now > k->wait_ns / EARLY_SHARE) {
			c->due_ns = MIN(c->due_ns, k->due_ns);
			continue;
		}
		p = procman_find(pm, k->pid);
		k->due_ns = ~0ULL;
		if (p && p->alive && p->image == k->image)
			poll_process(c, k, p);
	}
}

/* BPF and the channel have their entries by pid, which may soon be another process's. */
static void end_image(struct contexts *c, const struct procman_process *p, u64 image)
{
	struct known_process *k = known_process(c, image);

	if (k && k->index)
		set_index(c, k, p, 0);
	if (k && c->channels)
		channels_close(c->channels, p->pid);
}

static void forget_image(struct contexts *c, u64 image)
{
	u64 v;

	if (map_del(&c->processes, image, &v))
		known_process_free((struct known_process *)v);
}

static void process_exec(void *arg, const struct procman_process *p, u64 before)
{
	end_image(arg, p, before);
	forget_image(arg, before);
}

static void process_ended(void *arg, const struct procman_process *p)
{
	end_image(arg, p, p->image);
}

static void process_gone(void *arg, const struct procman_process *p)
{
	forget_image(arg, p->image);
}

const struct procman_listener contexts_listener = {
	.process_changed = process_changed,
	.process_exec = process_exec,
	.process_ended = process_ended,
	.process_gone = process_gone,
	.binary_gone = binary_gone,
};

const struct stat_field contexts_stat_fields[] = {
	STAT_GAUGE(struct contexts_stats, in_map, "Processes whose spans are read."),
	STAT_COUNTER(struct contexts_stats, no_room,
		     "Times that a process that publishes spans had no room in BPF's map."),
	{},
};

void contexts_get_stats(const struct contexts *c, struct contexts_stats *ret)
{
	*ret = c->stats;
	ret->in_map = c->n_in_map;
}
