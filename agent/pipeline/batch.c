/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/batch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/vocab.h"

/* What of the allocations lives, and what was not freed soon. */
static void add_live_sources(struct pipeline_batch *b, u32 allocations)
{
	static const enum sample_type types[][2] = {
		{SAMPLE_TYPE_INUSE_SPACE, SAMPLE_TYPE_INUSE_OBJECTS},
		{SAMPLE_TYPE_UNFREED_SPACE, SAMPLE_TYPE_SAMPLES},
	};

	for (size_t i = 0; i < ARRAY_SIZE(types) && b->n_sources < SAMPLER_MAX_SOURCES; i++) {
		struct sampler_source *s = &b->sources[b->n_sources++];

		*s = b->sources[allocations];
		s->type = types[i][0];
		s->bytes_type = types[i][1];
		snprintf(s->type_name, sizeof(s->type_name), "%s",
			 vocab_sample_type(s->type)->name);
	}
}

struct pipeline_batch *batch_new(const struct pipeline *p)
{
	struct pipeline_batch *b = calloc(1, sizeof(*b));
	const struct sampler_source *source;

	if (!b)
		return NULL;
	if (strtab_init(&b->attributes) < 0) {
		free(b);
		return NULL;
	}
	for (; (source = sampler_source(p->sampler, b->n_sources)); b->n_sources++)
		b->sources[b->n_sources] = *source;
	b->n_sampled = b->n_sources;
	for (u32 i = 0; i < b->n_sampled; i++)
		if (strcmp(b->sources[i].event, SAMPLER_ALLOC) == 0)
			add_live_sources(b, i);
	b->keep_times = p->keep_times;
	b->max_bytes = p->batch_max;
	b->started_realtime_ns = clock_ns(CLOCK_REALTIME);
	b->started_ns = clock_ns(CLOCK_MONOTONIC);
	return b;
}

void pipeline_give_back(struct pipeline *p, struct pipeline_batch *b)
{
	if (!b)
		return;
	map_foreach (&b->binaries, slot)
		procman_binary_put((struct procman_binary *)slot->value);
	for (u32 i = 0; i < JITFILE_N; i++) {
		map_foreach (&b->jit_files[i], slot)
			if ((s64)slot->value >= 0)
				close((int)slot->value);
		map_deinit(&b->jit_files[i]);
	}
	map_deinit(&b->binaries);
	map_deinit(&b->stack_index);
	map_deinit(&b->entry_index);
	map_deinit(&b->pids);
	map_deinit(&b->own);
	map_deinit(&b->attributes_ids);
	strtab_deinit(&b->attributes);
	runtime_answers_deinit(&b->answers);
	vec_deinit(&b->frames);
	vec_deinit(&b->stacks);
	vec_deinit(&b->entries);
	vec_deinit(&b->events);
	vec_deinit(&b->wakers);
	map_deinit(&b->waker_index);
	free(b);
}

void pipeline_add_counts(struct pipeline_counts *sum, const struct pipeline_counts *c)
{
	sum->samples += c->samples;
	sum->user_samples += c->user_samples;
	sum->truncated += c->truncated;
	sum->unread += c->unread;
	sum->deferred += c->deferred;
	sum->attributes_left_out += c->attributes_left_out;
	sum->lost += c->lost;
	for (u32 stop = 0; stop < STOP_N; stop++)
		sum->stops[stop] += c->stops[stop];
}

static void subtract(u64 *from, u64 part)
{
	*from -= MIN(*from, part);
}

void pipeline_subtract_counts(struct pipeline_counts *sum, const struct pipeline_counts *c)
{
	subtract(&sum->samples, c->samples);
	subtract(&sum->user_samples, c->user_samples);
	subtract(&sum->truncated, c->truncated);
	subtract(&sum->unread, c->unread);
	for (u32 stop = 0; stop < STOP_N; stop++)
		subtract(&sum->stops[stop], c->stops[stop]);
}

struct pipeline_counts pipeline_sum(const struct pipeline_batch *b)
{
	struct pipeline_counts sum = {};

	for (u32 i = 0; i < b->n_sources; i++)
		pipeline_add_counts(&sum, &b->counts[i]);
	return sum;
}

const struct pipeline_stack *pipeline_stack(const struct pipeline_batch *b, u64 id)
{
	const u64 *i = map_get(&b->stack_index, id);

	return i ? &b->stacks.data[*i] : NULL;
}

/* Keeps the binary of a frame open until the frame is symbolized. */
static void hold_binary(struct pipeline_batch *b, struct procman *procman, u32 file_id)
{
	struct procman_binary *binary;

	if (map_get(&b->binaries, file_id))
		return;
	binary = procman_binary_of_id(procman, file_id);
	if (binary && map_put(&b->binaries, file_id, (u64)binary) == 0)
		procman_binary_get(binary);
}

u64 pipeline_batch_bytes(const struct pipeline_batch *b)
{
	return b->frames.cap * sizeof(*b->frames.data) + b->stacks.cap * sizeof(*b->stacks.data) +
	       b->entries.cap * sizeof(*b->entries.data) + b->events.cap * sizeof(*b->events.data) +
	       b->wakers.cap * sizeof(*b->wakers.data) +
	       (b->stack_index.cap + b->entry_index.cap + b->attributes_ids.cap +
		b->waker_index.cap) *
		       sizeof(struct map_slot) +
	       b->attributes.cap_bytes;
}

bool batch_is_full(const struct pipeline_batch *b)
{
	return b->max_bytes && pipeline_batch_bytes(b) > b->max_bytes;
}

int batch_add_stack(struct pipeline_batch *b, struct procman *procman, u64 id, const u64 *frames,
		    u32 n, u32 stop, bool kernel)
{
	struct pipeline_stack s = {
		.first = (u32)b->frames.n, .n = (u16)n, .stop = (u8)stop, .kernel = kernel};
	int r;

	if (map_get(&b->stack_index, id))
		return 0;
	if (b->frames.n + n > ~0u)
		return -E2BIG;
	if (batch_is_full(b))
		return -ENOBUFS;
	r = vec_reserve(&b->frames, b->frames.n + n);
	if (r < 0)
		return r;
	for (u32 i = 0; i < n; i++) {
		b->frames.data[b->frames.n + i] = frames[i];
		if (kernel)
			continue;
		if (frames[i] >= WORD_RUNTIME)
			continue;
		if (frames[i] & WORD_RAW)
			s.raw = true;
		else
			hold_binary(b, procman, (u32)(frames[i] >> WORD_SVMA_BITS));
	}
	r = vec_push(&b->stacks, s);
	if (r == 0)
		r = map_put(&b->stack_index, id, b->stacks.n - 1);
	if (r < 0)
		return r;
	b->frames.n += n;
	return 0;
}

int batch_copy_stack(struct pipeline_batch *to, struct procman *procman,
		     const struct pipeline_batch *from, u64 id)
{
	const struct pipeline_stack *s = NULL;
	const u64 *frames;

	if (id && !pipeline_stack(to, id))
		s = pipeline_stack(from, id);
	if (!s)
		return 0;
	frames = &from->frames.data[s->first];
	for (u32 i = 0; i < s->n && !s->kernel; i++)
		if (frames[i] >= WORD_RUNTIME)
			return 0;
	return batch_add_stack(to, procman, id, frames, s->n, s->stop, s->kernel);
}

/*
 * The pid is part of the key: an id is a hash of what a process wrote, and must not match that of
 * another process.
 */
static u64 attributes_key(u32 pid, u64 id)
{
	return hash_u64(id ^ hash_u64(pid)) >> 1;
}

int batch_add_attributes(struct pipeline_batch *b, u32 pid, u64 id,
			 const struct context_label *labels, u32 n, bool partial)
{
	_cleanup_str_ struct str text = {};
	u32 set = 0;
	int r = 0;

	if (batch_has_attributes(b, pid, id))
		return 0;
	for (u32 i = 0; i < n && r == 0; i++) {
		r = str_append(&text, labels[i].name, strlen(labels[i].name) + 1);
		if (r == 0)
			r = str_append(&text, labels[i].value, strlen(labels[i].value) + 1);
	}
	if (r == 0 && n)
		r = strtab_add(&b->attributes, text.data, text.n, &set);
	return r < 0 ? r
		     : map_put(&b->attributes_ids, attributes_key(pid, id),
			       (u64)set << 1 | partial);
}

bool batch_has_attributes(const struct pipeline_batch *b, u32 pid, u64 id)
{
	return map_get(&b->attributes_ids, attributes_key(pid, id));
}

static int copy_set(struct pipeline_batch *to, const struct pipeline_batch *from, u32 set,
		    u32 *ret_set)
{
	return strtab_add(&to->attributes, strtab_get(&from->attributes, set),
			  from->attributes.lengths[set], ret_set);
}

int batch_copy_attributes(struct pipeline_batch *to, const struct pipeline_batch *from, u32 pid,
			  u64 id)
{
	const u64 *at = map_get(&from->attributes_ids, attributes_key(pid, id));
	u32 set = 0;
	int r;

	if (!at || batch_has_attributes(to, pid, id))
		return 0;
	r = copy_set(to, from, (u32)(*at >> 1), &set);
	return r < 0 ? r
		     : map_put(&to->attributes_ids, attributes_key(pid, id),
			       (u64)set << 1 | (*at & 1));
}

u32 batch_attributes(const struct pipeline_batch *b, u32 pid, u64 id, bool *ret_partial)
{
	const u64 *at = id ? map_get(&b->attributes_ids, attributes_key(pid, id)) : NULL;

	*ret_partial = id && (!at || *at & 1);
	return at ? (u32)(*at >> 1) : 0;
}

/* The format that batch_add_attributes() writes: name, NUL, value, NUL, … */
u32 pipeline_attributes(const struct pipeline_batch *b, u32 set,
			struct context_label ret[CONTEXT_MAX_ATTRIBUTES])
{
	const char *at = strtab_get(&b->attributes, set), *end = at + b->attributes.lengths[set];
	u32 n;

	for (n = 0; at < end && n < CONTEXT_MAX_ATTRIBUTES; n++) {
		ret[n].name = at;
		ret[n].value = at += strlen(at) + 1;
		at += strlen(at) + 1;
	}
	return n;
}

int batch_count(struct pipeline_batch *b, const struct pipeline_entry *e, u32 *ret_index)
{
	u64 h = hash_bytes(&e->key, sizeof(e->key));
	u64 *i;
	int r;

	for (;; h++) {
		i = map_get(&b->entry_index, h);
		if (!i)
			break;
		if (memcmp(&b->entries.data[*i].key, &e->key, sizeof(e->key)) == 0) {
			b->entries.data[*i].count += e->count;
			b->entries.data[*i].value += e->value;
			b->entries.data[*i].bytes += e->bytes;
			*ret_index = (u32)*i;
			return 0;
		}
	}
	if (batch_is_full(b))
		return -ENOBUFS;
	r = vec_push(&b->entries, *e);
	if (r == 0)
		r = map_put(&b->entry_index, h, b->entries.n - 1);
	if (r == 0)
		*ret_index = (u32)b->entries.n - 1;
	return r;
}

u32 batch_attribute(struct pipeline_batch *b, u32 pid, const char *name, const char *value)
{
	struct context_label label = {.name = name, .value = value};
	u64 id = hash_bytes(value, strlen(value));
	bool partial;

	if (batch_add_attributes(b, pid, id, &label, 1, false) < 0)
		log_warn_rarely("out of memory: samples lack their attributes");
	return batch_attributes(b, pid, id, &partial);
}

static void count_stack(struct pipeline_batch *b, const struct pipeline_entry *e)
{
	struct pipeline_counts *c = &b->counts[e->key.source];
	const struct pipeline_stack *user = pipeline_stack(b, e->key.user_stack);

	if (!e->key.user_stack)
		return;
	c->user_samples += e->count;
	c->truncated += !user || user->stop != STOP_COMPLETE ? e->count : 0;
}

bool batch_count_state(struct pipeline *p, struct pipeline_entry *e, const char *comm, u32 sampled)
{
	struct pipeline_batch *b = p->batch;
	u32 index;

	memcpy(e->key.comm, comm, sizeof(e->key.comm));
	memcpy(e->key.thread_name, comm, sizeof(e->key.thread_name));
	if (batch_count(b, e, &index) < 0) {
		b->counts[e->key.source].lost++;
		p->no_room[sampled]++;
		log_warn_rarely("samples are lost: one period has reached its memory limit");
		return false;
	}
	b->counts[e->key.source].samples += e->count;
	count_stack(b, e);
	if (p->keep_times && !batch_is_full(b) &&
	    vec_push(&b->events, (struct pipeline_event){e->first_ns, e->value, e->bytes, index,
							 (u32)MIN(e->count - 1, ~0U)}) < 0)
		log_warn_rarely("out of memory: a sample's time is lost");
	return true;
}

u32 batch_add_waker(struct pipeline_batch *b, const struct pipeline_waker *w)
{
	u64 h = hash_bytes(w, sizeof(*w)) >> 1;
	const u64 *at;

	for (; (at = map_get(&b->waker_index, h)); h++)
		if (memcmp(&b->wakers.data[*at], w, sizeof(*w)) == 0)
			return (u32)*at + 1;
	if (vec_push(&b->wakers, *w) < 0 || map_put(&b->waker_index, h, b->wakers.n - 1) < 0)
		return 0;
	return (u32)b->wakers.n;
}

/* Copies a waker and those that had woken it; returns its number in `to`, 0: it has no room. */
static u32 copy_wakers(struct pipeline_batch *to, struct procman *procman,
		       const struct pipeline_batch *from, u64 number)
{
	struct pipeline_waker w;

	if (!number)
		return 0;
	w = from->wakers.data[number - 1];
	w.next = copy_wakers(to, procman, from, w.next);
	if (batch_copy_stack(to, procman, from, w.kernel_stack) < 0 ||
	    batch_copy_stack(to, procman, from, w.user_stack) < 0)
		return 0;
	return batch_add_waker(to, &w);
}

int batch_copy_entry(struct pipeline_batch *to, struct procman *procman,
		     const struct pipeline_batch *from, const struct pipeline_entry *e,
		     u32 *ret_index)
{
	struct pipeline_entry copy = *e;
	u32 of_thread = 0, of_event = 0;
	int r = batch_copy_stack(to, procman, from, e->key.kernel_stack);

	if (r == 0)
		r = batch_copy_stack(to, procman, from, e->key.user_stack);
	if (r == 0)
		r = copy_set(to, from, (u32)e->key.context.attributes, &of_thread);
	if (r == 0)
		r = copy_set(to, from, (u32)e->key.event_attributes, &of_event);
	copy.key.context.attributes = of_thread;
	copy.key.event_attributes = of_event;
	copy.key.waker = copy_wakers(to, procman, from, e->key.waker);
	return r < 0 ? r : batch_count(to, &copy, ret_index);
}
