/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests of a task a call is about (kept.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/kept.h"

#define PATH "/api/v1/tasks/"
#define MARGIN_MS 60000 /* around a request, for clocks that differ */

void kept_list_deinit(struct kept_list *l)
{
	task_info_deinit(&l->task);
	vec_deinit(&l->of);
}

const struct task_request *kept_list_at(const struct kept_list *l, size_t k)
{
	return &l->task.requests.data[l->of.data[k]];
}

enum kept_group kept_group_of(const struct task_request *q)
{
	return q->reason == CONTROL_REASON_CONTROL ? KEPT_CONTROL : KEPT_SLOW;
}

bool kept_is_delivered(const struct task_request *q)
{
	return q->outcome == CONTROL_OUTCOME_KEPT || q->outcome == CONTROL_OUTCOME_PARTLY;
}

static const char *endpoint_of(const struct task_info *t, const struct task_request *q)
{
	return q->endpoint < t->endpoints.n ? t->endpoints.data[q->endpoint].name : "";
}

static int choose(struct kept_list *l, const u8 *trace, const char *endpoint, u64 limit)
{
	const struct task_info *t = &l->task;
	int r = 0;

	for (size_t i = t->requests.n; i-- && l->of.n < limit && r == 0;) {
		const struct task_request *q = &t->requests.data[i];

		if ((trace && memcmp(q->trace_id, trace, 16) != 0) ||
		    (endpoint && strcmp(endpoint_of(t, q), endpoint) != 0))
			continue;
		l->from_ms =
			l->of.n ? MIN(l->from_ms, q->start_ns / 1000000) : q->start_ns / 1000000;
		l->to_ms = MAX(l->to_ms, (q->start_ns + q->duration_ns) / 1000000);
		r = vec_push(&l->of, (u32)i);
	}
	if (l->of.n) {
		l->from_ms -= MIN(l->from_ms, (u64)MARGIN_MS);
		l->to_ms += MARGIN_MS;
	}
	return r;
}

int kept_list_read(struct api_call *c, u64 limit, struct kept_list *ret)
{
	const char *path = c->r->path + strlen(PATH), *text = net_parameter(c->r, "trace");
	const char *endpoint = net_parameter(c->r, "endpoint");
	char id[CONTROL_ID_BYTES];
	u8 trace[16];
	int r = 0;

	snprintf(id, sizeof(id), "%.*s", (int)strcspn(path, "/"), path);
	ret->of_trace = text && *text;
	if (ret->of_trace && !span_parse_id(text, trace, sizeof(trace)))
		r = diag_set(&c->d, -EINVAL, "trace: a trace id has 32 hex digits");
	if (r == 0)
		r = tasks_get(c->a->o.tasks, id, &ret->task, &c->d);
	if (r == 0)
		r = choose(ret, ret->of_trace ? trace : NULL,
			   endpoint && *endpoint ? endpoint : NULL, limit);
	if (r == 0 && ret->of_trace && !ret->of.n)
		r = diag_set(&c->d, -ENOENT,
			     "the task has no request of this trace, or not any more");
	return r;
}

void kept_list_put_endpoints(struct json_writer *w, const struct kept_list *l)
{
	const struct task_info *t = &l->task;

	json_open_array(w, "endpoints");
	for (u32 e = 0; e < t->endpoints.n; e++) {
		u64 n[KEPT_GROUPS] = {};

		vec_foreach (&t->requests, q)
			n[kept_group_of(q)] += q->endpoint == e;
		if (!n[KEPT_SLOW] && !n[KEPT_CONTROL])
			continue;
		json_open_object(w, NULL);
		json_put_text(w, "name", t->endpoints.data[e].name);
		for (u32 g = 0; g < KEPT_GROUPS; g++)
			json_put_u64(w, kept_group_names[g], n[g]);
		json_close(w);
	}
	json_close(w);
}
