/* SPDX-License-Identifier: Apache-2.0 */
#include "server/events.h"

void server_events_look(struct server_events *e, const u64 counts[SERVER_N_EVENTS], u64 now_ms)
{
	pthread_mutex_lock(&e->lock);
	for (int i = 0; i < SERVER_N_EVENTS; i++) {
		if (counts[i] <= e->of[i].count)
			continue;
		e->of[i].count = counts[i];
		e->of[i].last_ms = now_ms;
	}
	pthread_mutex_unlock(&e->lock);
}

void server_events_put(struct server_events *e, struct json_writer *w)
{
	static const struct {
		const char *name, *text;
	} known[] = {
#define X(id, name, text) [SERVER_EVENT_##id] = {(name), (text)},
		SERVER_EVENTS(X)
#undef X
	};

	pthread_mutex_lock(&e->lock);
	for (int i = 0; i < SERVER_N_EVENTS; i++) {
		if (!e->of[i].count)
			continue;
		json_open_object(w, NULL);
		json_put_text(w, "name", known[i].name);
		json_put_text(w, "text", known[i].text);
		json_put_u64(w, "count", e->of[i].count);
		json_put_u64(w, "last", e->of[i].last_ms);
		json_close(w);
	}
	pthread_mutex_unlock(&e->lock);
}
