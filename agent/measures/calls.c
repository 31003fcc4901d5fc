/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slow calls: as messages for the server, and as a profile with their stacks. A call of the profile
 * has the labels `function` and `measurement`, and `argument.NAME` for its arguments as long as
 * these are few: each set of labels is a series of the store.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/measures/internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/vocab.h"

#define GROUP "function"
#define MAX_LABELLED 100 /* calls of a measurement */
#define MAX_FRAMES 512
#define AT_ONCE 16

/* ---- the message ---- */

static void copy_text(char *to, size_t n, const char *from)
{
	snprintf(to, n, "%.*s", (int)n - 1, from);
	text_clean(to);
}

static bool is_set(const u8 *id, size_t n)
{
	u8 any = 0;

	while (n)
		any |= id[--n];
	return any;
}

/* The names of the callers by line, as many as there is room for. */
static void put_stack(const struct profile *p, u32 stack, char ret[CONTROL_STACK_BYTES])
{
	const struct profile_stack *s = &p->stacks.data[stack];
	_cleanup_str_ struct str scratch = {};
	size_t used = 0;

	for (u32 i = 0; i < s->n; i++) {
		const char *name =
			profile_frame_name(p, p->stack_frames.data[s->first + i], &scratch);
		char line[CONTROL_TEXT_BYTES];
		size_t n;

		copy_text(line, sizeof(line), name);
		n = strlen(line);
		if (used + n + 2 > CONTROL_STACK_BYTES)
			break;
		if (used)
			ret[used++] = '\n';
		memcpy(ret + used, line, n);
		used += n;
	}
	ret[used] = '\0';
}

static void make_call(const struct measures *m, const struct measures_work *w,
		      const struct measure_call *c, struct control_call *ret)
{
	*ret = (struct control_call){.end_ns = c->end_ns + (u64)m->epoch_ns,
				     .ns = c->ns,
				     .pid = c->pid,
				     .tid = c->tid,
				     .has_trace = is_set(c->trace_id, sizeof(c->trace_id)) &&
						  is_set(c->span_id, sizeof(c->span_id)),
				     .n_arguments =
					     MIN(c->n_arguments, (u32)CONTROL_MAX_ARGUMENTS)};
	memcpy(ret->measure, w->asked.id, sizeof(ret->measure));
	memcpy(ret->trace_id, c->trace_id, sizeof(ret->trace_id));
	memcpy(ret->span_id, c->span_id, sizeof(ret->span_id));
	copy_text(ret->comm, sizeof(ret->comm), c->comm);
	copy_text(ret->result, sizeof(ret->result), c->result);
	for (u32 i = 0; i < ret->n_arguments; i++) {
		copy_text(ret->arguments[i].name, sizeof(ret->arguments[i].name),
			  c->arguments[i].name);
		copy_text(ret->arguments[i].value, sizeof(ret->arguments[i].value),
			  c->arguments[i].value);
	}
}

/* ---- the profile ---- */

static int add_text(struct profile *p, const char *text, u32 *ret)
{
	return profile_add_string(p, text, strlen(text), ret);
}

static int begin_profile(struct measures_work *w)
{
	struct profile *p = w->profile = profile_create();
	int r = p ? profile_add_table_type(p, SAMPLE_TYPE_FUNCTION_LATENCY) : -ENOMEM;

	if (r == 0)
		r = add_text(p, GROUP, &p->period_name);
	if (r == 0)
		r = add_text(p, vocab_sample_type(SAMPLE_TYPE_FUNCTION_LATENCY)->unit,
			     &p->period_unit);
	w->profile_ns = clock_ns(CLOCK_MONOTONIC);
	return r;
}

static int add_label(struct profile *p, const char *name, const char *value,
		     struct profile_label *labels, u32 *n)
{
	struct profile_label *l = &labels[*n];
	int r = add_text(p, name, &l->name);

	if (r == 0)
		r = add_text(p, value, &l->value);
	*n += r == 0;
	return r;
}

static int add_labels(struct measures_work *w, const struct control_call *c, u32 *ret)
{
	struct profile_label labels[2 + CONTROL_MAX_ARGUMENTS];
	struct profile *p = w->profile;
	u32 n = 0;
	int r = add_label(p, "function", w->asked.function, labels, &n);

	if (r == 0)
		r = add_label(p, "measurement", w->asked.id, labels, &n);
	for (u32 i = 0; i < c->n_arguments && w->labelled < MAX_LABELLED && r == 0; i++) {
		char name[CONTROL_VALUE_BYTES + 16];

		snprintf(name, sizeof(name), "argument.%s", c->arguments[i].name);
		r = add_label(p, name, c->arguments[i].value, labels, &n);
	}
	w->labelled++;
	return r < 0 ? r : profile_add_resource(p, labels, n, ret);
}

static int add_thread(struct measures *m, struct measures_work *w, const struct control_call *c,
		      u32 *ret)
{
	struct profile_thread t = {.pid = c->pid, .tid = c->tid};
	struct profile *p = w->profile;
	u64 image = 0;
	int r;

	vec_foreach (&w->processes, known)
		if (known->pid == c->pid)
			image = known->image;
	r = identities_resource(m->options.identities, image, c->comm, p, &t.resource);
	if (r == 0)
		r = add_labels(w, c, &t.attributes);
	if (r == 0)
		r = add_text(p, c->comm, &t.comm);
	t.thread_name = t.comm;
	return r < 0 ? r : profile_add_thread(p, &t, ret);
}

/* The function itself is the leaf, if the stack begins with its caller. */
static int add_stack(struct measures_work *w, const struct profile *from, u32 stack, u32 *ret)
{
	const struct profile_stack *s = &from->stacks.data[stack];
	u32 frames[MAX_FRAMES], n = MIN(s->n, (u32)MAX_FRAMES);
	int r = 0;

	for (u32 i = 0; i < n && r == 0; i++)
		r = profile_copy_frame(w->profile, from, from->stack_frames.data[s->first + i],
				       &frames[i]);
	return r < 0 ? r : profile_add_stack(w->profile, frames, n, ret);
}

static int add_sample(struct measures *m, struct measures_work *w, const struct control_call *c,
		      const struct profile *from, u32 from_stack)
{
	u32 thread, stack, link_id = 0;
	struct profile_link link = {};
	s64 value = (s64)c->ns;
	int r = w->profile ? 0 : begin_profile(w);

	if (r == 0)
		r = add_thread(m, w, c, &thread);
	if (r == 0)
		r = add_stack(w, from, from_stack, &stack);
	memcpy(link.trace_id, c->trace_id, sizeof(link.trace_id));
	memcpy(link.span_id, c->span_id, sizeof(link.span_id));
	if (r == 0 && c->has_trace)
		r = profile_add_link(w->profile, &link, &link_id);
	return r < 0 ? r
		     : profile_add_linked_sample(w->profile, c->end_ns - c->ns, thread, stack,
						 link_id, &value);
}

void measures_flush(struct measures *m, struct measures_work *w)
{
	struct profile *p = take_ptr(w->profile);
	u64 begin = ~0ULL, end = 0;

	if (!p)
		return;
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);

		begin = MIN(begin, s->time_ns);
		end = MAX(end, s->time_ns + (u64)s->value[0]);
	}
	p->time_ns = begin;
	p->duration_ns = end > begin ? end - begin : 0;
	profile_derive_quality(p);
	if (p->n_samples && m->options.take)
		m->options.take(m->options.arg, p);
	else
		profile_destroy(p);
}

/* ---- calls ---- */

/* Those of other services that run the same binary are not told. */
static bool is_own(const struct measures_work *w, u32 pid)
{
	if (!strcmp(w->asked.service, "*"))
		return true;
	vec_foreach (&w->processes, p)
		if (p->pid == pid)
			return true;
	return false;
}

static int take_call(struct measures *m, struct measures_work *w, struct measures_binary *b,
		     const struct measure_call *c, struct control_request *to)
{
	const struct profile *from;
	struct control_call call;
	u32 stack;
	int r;

	if (!is_own(w, c->pid))
		return 0;
	make_call(m, w, c, &call);
	from = measure_stack(b->measure, c, &stack);
	if (from)
		put_stack(from, stack, call.stack);
	r = vec_push(&to->calls, call);
	if (r == 0 && from && m->options.take)
		r = add_sample(m, w, &call, from, stack);
	return r;
}

int measures_take_calls(struct measures *m, struct measures_work *w, struct measures_binary *b,
			struct control_request *to)
{
	struct measure_call calls[AT_ONCE];
	u32 n;
	int r = 0;

	while (r == 0 && to->calls.n < MEASURES_MAX_PENDING &&
	       (n = measure_take(b->measure, calls, AT_ONCE)))
		for (u32 i = 0; i < n && r == 0; i++)
			r = take_call(m, w, b, &calls[i], to);
	return r;
}
