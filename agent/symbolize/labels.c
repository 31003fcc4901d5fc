/* SPDX-License-Identifier: Apache-2.0 */
/* What samples say besides their stack: the thread, what it waited for, and its attributes. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "agent/symbolize/making.h"
#include "base/vocab.h"

static bool has_label(const struct context_label *labels, u32 n, const char *name)
{
	for (u32 i = 0; i < n; i++)
		if (!strcmp(labels[i].name, name))
			return true;
	return false;
}

#define OWN_LABELS 8 /* the most of a wait, and PROFILE_SELF */

static int add_label(struct profile *p, const char *name, const char *value,
		     struct profile_label *labels, u32 *n)
{
	int r = making_text(p, name, &labels[*n].name);

	return r < 0 ? r : making_text(p, value, &labels[(*n)++].value);
}

static int lock_label(struct profile *p, const char *name, u64 address,
		      struct profile_label *labels, u32 *n)
{
	char text[24];

	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)address);
	return add_label(p, name, text, labels, n);
}

static int number_label(struct profile *p, const char *name, u32 value,
			struct profile_label *labels, u32 *n)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", value);
	return add_label(p, name, text, labels, n);
}

/* What the thread waited for, which one, and who had it. */
static int wait_labels(struct making *m, const struct pipeline_key *key,
		       struct profile_label *labels, u32 *n)
{
	struct profile *p = m->profile;
	const struct wait_object *o = &key->object;
	char address[INET6_ADDRSTRLEN], text[80];
	int r = add_label(p, PROFILE_WAIT, vocab_wait(m->wait)->name, labels, n);

	if (m->wait == WAIT_IDLE)
		return r;
	switch (o->kind) {
	case WAIT_OBJECT_LOCK:
		if (r == 0)
			r = lock_label(p, "lock", o->address[0], labels, n);
		return r < 0 || !o->owner ? r : number_label(p, "owner", o->owner, labels, n);
	case WAIT_OBJECT_TASK:
		snprintf(text, sizeof(text), "%llu", o->address[0]);
		return r < 0 || !o->address[0]
			       ? r
			       : add_label(p, vocab_task(o->port)->label, text, labels, n);
	case WAIT_OBJECT_INET:
		inet_ntop(AF_INET, o->address, address, sizeof(address));
		snprintf(text, sizeof(text), "%s:%u", address, o->port);
		break;
	case WAIT_OBJECT_INET6:
		inet_ntop(AF_INET6, o->address, address, sizeof(address));
		snprintf(text, sizeof(text), "[%s]:%u", address, o->port);
		break;
	default:
		return r;
	}
	return r < 0 ? r : add_label(p, "peer", text, labels, n);
}

/* Who ended the wait: a thread, or else a timer where the thread had asked for one. */
static int waker_labels(struct making *m, const struct pipeline_waker *w,
			struct profile_label *labels, u32 *n)
{
	const char *what = m->wait == WAIT_SLEEP ? WAKER_TIMER : WAKER_INTERRUPT;
	char name[SAMPLE_COMM_BYTES + 1];
	int r;

	snprintf(name, sizeof(name), "%.*s", SAMPLE_COMM_BYTES, w->comm);
	r = add_label(m->profile, "waker", w->tid ? name : what, labels, n);
	if (r < 0 || !w->tid)
		return r;
	r = number_label(m->profile, "waker_pid", w->pid, labels, n);
	return r < 0 ? r : number_label(m->profile, "waker_tid", w->tid, labels, n);
}

/* Makes one resource of the attributes of the event and those of its thread with other names. */
static int entry_attributes(struct making *m, const struct pipeline_entry *e, u32 *ret)
{
	struct context_label said[2 * CONTEXT_MAX_ATTRIBUTES];
	struct profile_label
		labels[2 * CONTEXT_MAX_ATTRIBUTES + OWN_LABELS + SYMBOLIZER_MAX_LABELS];
	u32 n_event = pipeline_attributes(m->batch, (u32)e->key.event_attributes, said);
	u32 n_all = n_event +
		    pipeline_attributes(m->batch, (u32)e->key.context.attributes, said + n_event);
	u32 n = 0;
	int r = 0;

	/* At most OWN_LABELS. */
	if (making_is_self(m, e))
		r = add_label(m->profile, PROFILE_SELF, "true", labels, &n);
	if (m->wait && r == 0)
		r = wait_labels(m, &e->key, labels, &n);
	if (r == 0 && e->key.holds)
		r = lock_label(m->profile, "holds", e->key.holds, labels, &n);
	if (r == 0 && e->key.waker && m->s->options.waker_labels)
		r = waker_labels(m, &m->batch->wakers.data[e->key.waker - 1], labels, &n);
	for (u32 i = 0; i < m->n_labels && r == 0; i++)
		r = add_label(m->profile, m->labels[i].name, m->labels[i].value, labels, &n);
	for (u32 i = 0; i < n_all && r == 0; i++) {
		if (i >= n_event && has_label(said, n_event, said[i].name))
			continue;
		r = making_text(m->profile, said[i].name, &labels[n].name);
		if (r == 0)
			r = making_text(m->profile, said[i].value, &labels[n++].value);
	}
	return r < 0 || !n ? r : profile_add_resource(m->profile, labels, n, ret);
}

int making_thread(struct making *m, const struct pipeline_entry *e, u32 *ret)
{
	struct profile_thread t = {.pid = e->key.pid, .tid = e->key.tid};
	int r = making_text(m->profile, e->key.comm, &t.comm);

	if (r == 0)
		r = making_text(m->profile, e->key.thread_name, &t.thread_name);
	if (r == 0 && m->s->options.resource)
		r = m->s->options.resource(m->s->options.arg, e, m->profile, &t.resource);
	if (r == 0)
		r = entry_attributes(m, e, &t.attributes);
	return r < 0 ? r : profile_add_thread(m->profile, &t, ret);
}
