/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's JSON → configuration → the JSON of an answer. Members are handled in gala-gopher's
 * order, so that the first mistake is told that gala-gopher would tell; after a mistake nothing has
 * changed. Members that a request leaves out keep what they have.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/stackprobe/stackprobe.h"
#include "base/json.h"
#include "base/vec.h"

#define MAX_TYPE_NAME 64
/* What gala-gopher says it would start. */
#define BINARY "/opt/gala-gopher/extend_probes/stackprobe"
#define BAD_REQUEST "Bad request"

static const struct {
	const char *name, *title;
} types[STACKPROBE_N] = {
#define X(id, name, title) {name, title},
	STACKPROBE_TYPES(X)
#undef X
};

const char *stackprobe_type_name(enum stackprobe_type t)
{
	return types[t].name;
}

const char *stackprobe_type_title(enum stackprobe_type t)
{
	return types[t].title;
}

void stackprobe_config_init(struct stackprobe_config *c)
{
	*c = (struct stackprobe_config){};
	stackprobe_params_init(&c->params);
}

void stackprobe_config_deinit(struct stackprobe_config *c)
{
	stackprobe_snoopers_destroy(c->snoopers);
	c->snoopers = NULL;
}

void stackprobe_config_drop(struct stackprobe_config *c, const struct stackprobe_config *other)
{
	if (c->snoopers != other->snoopers)
		stackprobe_snoopers_destroy(c->snoopers);
	c->snoopers = NULL;
}

void stackprobe_blank_comments(char *json, size_t n)
{
	bool in_text = false;

	for (size_t i = 0; i < n; i++) {
		size_t end = i;

		if (in_text || json[i] != '/') {
			in_text ^= json[i] == '"';
			i += in_text && json[i] == '\\';
			continue;
		}
		if (i + 1 < n && json[i + 1] == '/') {
			while (end < n && json[end] != '\n')
				end++;
		} else if (i + 1 < n && json[i + 1] == '*') {
			for (end = i + 2; end + 1 < n && (json[end] != '*' || json[end + 1] != '/');
			     end++)
				;
			/* One without an end stays, which is no JSON. */
			end = end + 1 < n ? end + 2 : i;
		}
		for (size_t k = i; k < end; k++)
			json[k] = json[k] == '\n' ? '\n' : ' ';
		i = end > i ? end - 1 : i;
	}
}

/* ---- reading ---- */

static int say(char *message, const char *text)
{
	snprintf(message, STACKPROBE_MESSAGE_BYTES, "%s", text);
	return -EINVAL;
}

static int check_types(u32 chosen, char *message)
{
	return chosen ? 0 : say(message, "invalid probe ranges: at least one must be set");
}

static int read_type(const json_t *v, u32 lacks, u32 *chosen, char *message)
{
	const char *name = json_string_value(v);
	size_t n;

	if (!name)
		return say(message, "Invalid probe range: must be string.");
	n = strlen(name);
	if (!n || n > MAX_TYPE_NAME) {
		snprintf(message, STACKPROBE_MESSAGE_BYTES,
			 "The lengh of probe name must range from 0 to %d.", MAX_TYPE_NAME);
		return -EINVAL;
	}
	for (u32 t = 0; t < STACKPROBE_N; t++) {
		if (strcasecmp(name, types[t].name) != 0)
			continue;
		if (lacks & 1u << t) {
			snprintf(message, STACKPROBE_MESSAGE_BYTES,
				 "unsupported probe range: %s. culprit cannot record it here",
				 name);
			return -EINVAL;
		}
		*chosen |= 1u << t;
		return 0;
	}
	snprintf(message, STACKPROBE_MESSAGE_BYTES, "unsupported probe range: %s.", name);
	return -EINVAL;
}

static int read_cmd(json_t *cmd, u32 lacks, struct stackprobe_config *c, char *message)
{
	json_t *list = json_object_get(cmd, "probe"), *v;
	u32 chosen = 0;
	size_t i;
	int r = 0;

	if (!list)
		return say(message, BAD_REQUEST);
	json_array_foreach(list, i, v)
	{
		r = read_type(v, lacks, &chosen, message);
		if (r < 0)
			return r;
	}
	c->types = chosen;
	return check_types(chosen, message);
}

static int read_snoopers(json_t *json, bool blacklist, const struct stackprobe_config *old,
			 struct stackprobe_config *c, char *message)
{
	struct stackprobe_snoopers *s = NULL;
	int r;

	/* Of the same request. */
	if (blacklist && c->snoopers != old->snoopers && stackprobe_snoopers_count(c->snoopers))
		return say(message, "snoopers and blacklist are mutually exclusive");
	r = stackprobe_snoopers_read(json, blacklist, &s, message);
	if (r < 0)
		return r;
	stackprobe_config_drop(c, old);
	c->snoopers = s;
	return 0;
}

static int check_snoopers(const struct stackprobe_config *c, char *message)
{
	if (stackprobe_snoopers_count(c->snoopers) || stackprobe_is_blacklist(c->snoopers))
		return 0;
	return say(message, "the snooper for " STACKPROBE_NAME " cannot be empty");
}

static int read_state(const json_t *v, struct stackprobe_config *c, char *message)
{
	const char *text = json_string_value(v);

	if (!text)
		return say(message, "invalid state: must be string");
	if (!strcasecmp(text, "running")) {
		c->state = STACKPROBE_RUNNING;
		return check_types(c->types, message);
	}
	if (strcasecmp(text, "stopped") != 0) {
		snprintf(message, STACKPROBE_MESSAGE_BYTES,
			 "invalid state %s: must be running or stopped", text);
		return -EINVAL;
	}
	if (c->state == STACKPROBE_RUNNING)
		c->state = STACKPROBE_STOPPED;
	return 0;
}

static int read_all(json_t *json, const struct stackprobe_config *old, u32 lacks,
		    struct stackprobe_config *c, char *message)
{
	json_t *cmd = json_object_get(json, "cmd"), *params = json_object_get(json, "params");
	json_t *snoopers = json_object_get(json, "snoopers");
	json_t *blacklist = json_object_get(json, "blacklist");
	json_t *state = json_object_get(json, "state");
	int r = cmd ? read_cmd(cmd, lacks, c, message) : 0;

	if (r == 0 && snoopers)
		r = read_snoopers(snoopers, false, old, c, message);
	if (r == 0 && blacklist)
		r = read_snoopers(blacklist, true, old, c, message);
	if (r == 0)
		r = check_snoopers(c, message);
	if (r == 0 && params)
		r = stackprobe_params_read(params, &c->params, message);
	if (r == 0 && state)
		r = read_state(state, c, message);
	return r;
}

int stackprobe_config_put(const struct stackprobe_config *old, const char *json, size_t n,
			  u32 lacks, struct stackprobe_config *ret, char *ret_message)
{
	_cleanup_free_ char *text = malloc(n + 1);
	struct stackprobe_config c = *old;
	json_t *tree = NULL;
	int r;

	if (!text)
		return -ENOMEM;
	memcpy(text, json, n);
	stackprobe_blank_comments(text, n);
	say(ret_message, BAD_REQUEST);
	r = json_read(text, n, 0, &tree, NULL);
	if (r == -EBADMSG || (r == 0 && !json_is_object(tree)))
		r = say(ret_message, "invalid json format");
	if (r == 0)
		r = read_all(tree, old, lacks, &c, ret_message);
	json_decref(tree);
	if (r < 0) {
		stackprobe_config_drop(&c, old);
		return r;
	}
	c.known = true;
	*ret = c;
	return 0;
}

/* ---- printing ---- */

void stackprobe_config_print(const struct stackprobe_config *c, struct str *out)
{
	static const char *const states[] = {"unknown", "running", "stopped"};
	struct json_writer w = {.out = out};

	json_open_object(&w, NULL);
	if (c->known) {
		if (stackprobe_is_blacklist(c->snoopers))
			stackprobe_snoopers_print(c->snoopers, &w);
		json_open_object(&w, "cmd");
		json_put_text(&w, "bin", BINARY);
		json_open_array(&w, "probe");
		for (u32 t = 0; t < STACKPROBE_N; t++)
			if (c->types & 1u << t)
				json_put_text(&w, NULL, types[t].name);
		json_close(&w);
		json_close(&w);
		stackprobe_params_print(&c->params, &w);
		if (!stackprobe_is_blacklist(c->snoopers))
			stackprobe_snoopers_print(c->snoopers, &w);
		json_put_text(&w, "state", states[c->state]);
	}
	json_close(&w);
	str_putc(out, '\n');
}
