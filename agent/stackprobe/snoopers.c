/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members `snoopers` and `blacklist`: which processes are observed, or which are not.
 *
 * gala-gopher matches names by POSIX' extended regular expressions with regcomp(), whose time and
 * memory have no bound. Here they become RE2's (lib/regex), which have: see
 * stackprobe_translate_regex() for what differs in the syntax.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "agent/stackprobe/stackprobe.h"
#include "base/json.h"
#include "base/vec.h"
#include "regex/regex.h"

#define MAX_LABELS 10
#define MAX_PROCESS_LABELS 1
#define MAX_ID 64
#define MAX_NAME 256
#define MAX_PID 0x7fffffff

enum kind { PROCESS_ID, PROCESS_NAME, POD_ID, CONTAINER_ID, CONTAINER_NAME };

struct snooper {
	enum kind kind;
	u32 pid;
	char *text;	     /* owned; an id, or a name as it was given */
	char *cmdline;	     /* owned; PROCESS_NAME: a part of it, or "" */
	char *label[2];	     /* owned; PROCESS_NAME: name and value, or NULL */
	struct regex *regex; /* owned; PROCESS_NAME */
};

struct stackprobe_snoopers {
	bool blacklist;
	bool want_cgroups;
	vec(struct snooper) all;
};

static void snooper_deinit(struct snooper *s)
{
	free(s->text);
	free(s->cmdline);
	free(s->label[0]);
	free(s->label[1]);
	regex_destroy(s->regex);
}

void stackprobe_snoopers_destroy(struct stackprobe_snoopers *s)
{
	if (!s)
		return;
	vec_foreach (&s->all, e)
		snooper_deinit(e);
	vec_deinit(&s->all);
	free(s);
}
DEFINE_CLEANUP(snoopers, struct stackprobe_snoopers *, stackprobe_snoopers_destroy)
#define _cleanup_snoopers_ _cleanup_(snoopers)

u32 stackprobe_snoopers_count(const struct stackprobe_snoopers *s)
{
	return s ? (u32)s->all.n : 0;
}

bool stackprobe_is_blacklist(const struct stackprobe_snoopers *s)
{
	return s && s->blacklist;
}

bool stackprobe_snoopers_want_cgroups(const struct stackprobe_snoopers *s)
{
	return s && s->want_cgroups;
}

/* ---- regular expressions ---- */

/* Copies a bracket expression, which begins at `at`; returns where it ends. */
static const char *copy_brackets(const char *at, struct str *out)
{
	const char *p = at + 1;

	p += *p == '^';
	p += *p == ']';
	while (*p && *p != ']') {
		const char *class =
			p[0] == '[' && p[1] && strchr(":.=", p[1]) ? strchr(p + 2, ']') : NULL;

		p = class ? class + 1 : p + 1;
	}
	p += *p == ']';
	for (; at < p; at++) {
		/* It stands for itself there. */
		if (*at == '\\')
			str_putc(out, '\\');
		str_putc(out, *at);
	}
	return p;
}

/*
 * POSIX takes several operators of repetition for one, which RE2 refuses. \< and \> are \b, and a
 * backslash in brackets stands for itself.
 */
void stackprobe_translate_regex(const char *ere, struct str *out)
{
	bool repeated = false;

	while (*ere && !out->failed) {
		bool repeats = strchr("*+?", *ere);

		if (repeats && repeated) {
			/* a+* and a?+ match nothing, too. */
			if (out->data[out->n - 1] != *ere)
				out->data[out->n - 1] = '*';
			ere++;
			continue;
		}
		repeated = repeats;
		if (*ere == '[') {
			ere = copy_brackets(ere, out);
		} else if (*ere == '\\' && (ere[1] == '<' || ere[1] == '>')) {
			str_puts(out, "\\b");
			ere += 2;
		} else {
			if (*ere == '\\' && ere[1])
				str_putc(out, *ere++);
			str_putc(out, *ere++);
		}
	}
}

static int compile(const char *ere, struct regex **ret)
{
	_cleanup_str_ struct str re2 = {};

	stackprobe_translate_regex(ere, &re2);
	return re2.failed ? -ENOMEM : regex_create(str_get(&re2), false, NULL, ret);
}

/* ---- reading ---- */

static bool is_hex(const char *s, size_t n)
{
	return strspn(s, "0123456789abcdefABCDEF") >= n;
}

/* 32 hexadecimal digits, or a UUID. */
static bool is_pod_id(const char *s)
{
	static const u8 parts[] = {8, 4, 4, 4, 12};

	if (strlen(s) == 32)
		return is_hex(s, 32);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (!is_hex(s, parts[i]) || strnlen(s, parts[i]) < parts[i])
			return false;
		s += parts[i];
		if (*s != (i + 1 < ARRAY_SIZE(parts) ? '-' : '\0'))
			return false;
		s++;
	}
	return true;
}

/* What gala-gopher would give to a shell. */
static bool is_unsafe(const char *s)
{
	return strpbrk(s, "|;&$><()?*'`[]\\!\n") || strstr(s, "./") || strstr(s, "/.");
}

static int add(struct stackprobe_snoopers *s, const struct snooper *e)
{
	if (s->all.n >= STACKPROBE_MAX_SNOOPERS)
		return -EINVAL;
	s->want_cgroups |= e->kind >= POD_ID;
	return vec_push(&s->all, *e);
}

static int add_text(struct stackprobe_snoopers *s, enum kind kind, const char *text)
{
	struct snooper e = {.kind = kind, .text = strdup(text)};
	int r = e.text ? add(s, &e) : -ENOMEM;

	if (r < 0)
		snooper_deinit(&e);
	return r;
}

static int read_pid(struct stackprobe_snoopers *s, const json_t *v)
{
	s64 pid = json_integer_value(v);

	if (pid < 1 || pid > MAX_PID)
		return -EINVAL;
	return add(s, &(struct snooper){.kind = PROCESS_ID, .pid = (u32)pid});
}

/* A label of a process: gala-gopher has one, and gives it back. */
static int read_label(json_t *v, struct snooper *e)
{
	const char *name;
	json_t *value;

	if (!v)
		return 0;
	if (!json_is_object(v) || json_object_size(v) > MAX_PROCESS_LABELS)
		return -EINVAL;
	json_object_foreach(v, name, value)
	{
		if (!json_is_string(value))
			return -EINVAL;
		e->label[0] = strdup(name);
		e->label[1] = strdup(json_string_value(value));
		if (!e->label[0] || !e->label[1])
			return -ENOMEM;
	}
	return 0;
}

static int read_name(struct stackprobe_snoopers *s, const json_t *v)
{
	json_t *comm = json_object_get(v, "comm"), *cmdline = json_object_get(v, "cmdline");
	struct snooper e = {.kind = PROCESS_NAME};
	int r;

	if (!json_is_string(comm) || (cmdline && !json_is_string(cmdline)) ||
	    json_string_length(comm) > MAX_NAME)
		return -EINVAL;
	if (!json_string_length(comm))
		return 0;
	e.text = strdup(json_string_value(comm));
	e.cmdline = strdup(cmdline ? json_string_value(cmdline) : "");
	r = e.text && e.cmdline ? read_label(json_object_get(v, "label"), &e) : -ENOMEM;
	if (r == 0)
		r = compile(e.text, &e.regex);
	if (r == 0)
		r = add(s, &e);
	if (r < 0)
		snooper_deinit(&e);
	return r;
}

static int read_pod(struct stackprobe_snoopers *s, const json_t *v)
{
	const char *text = json_string_value(v);

	if (!text || (*text && !is_pod_id(text)))
		return -EINVAL;
	return *text ? add_text(s, POD_ID, text) : 0;
}

static int read_container(struct stackprobe_snoopers *s, const json_t *v)
{
	const char *text = json_string_value(v);

	if (!text || strlen(text) > MAX_ID || !is_hex(text, strlen(text)))
		return -EINVAL;
	return *text ? add_text(s, CONTAINER_ID, text) : 0;
}

static int read_container_name(struct stackprobe_snoopers *s, const json_t *v)
{
	const char *text = json_string_value(v);

	if (!text || strlen(text) > MAX_NAME || is_unsafe(text))
		return -EINVAL;
	return *text ? add_text(s, CONTAINER_NAME, text) : 0;
}

/* Labels of other probes' metrics: gala-gopher takes them for this one, too, and ignores them. */
static int check_labels(const json_t *json)
{
	json_t *custom = json_object_get(json, "custom_labels"), *v;
	const char *name;

	if (!custom)
		return 0;
	if (!json_is_object(custom) || json_object_size(custom) > MAX_LABELS)
		return -EINVAL;
	json_object_foreach(custom, name, v) if (!json_is_string(v)) return -EINVAL;
	return 0;
}

static int check_pod_labels(const json_t *json)
{
	json_t *list = json_object_get(json, "pod_labels"), *v;
	size_t i;

	if (!list)
		return 0;
	if (!json_is_array(list) || json_array_size(list) > MAX_LABELS)
		return -EINVAL;
	json_array_foreach(list, i, v) if (!json_is_string(v)) return -EINVAL;
	return 0;
}

static int read_list(struct stackprobe_snoopers *s, const json_t *json, const char *name,
		     int (*read)(struct stackprobe_snoopers *s, const json_t *v))
{
	json_t *list = json_object_get(json, name), *v;
	size_t i;
	int r = 0;

	if (list && !json_is_array(list))
		return -EINVAL;
	json_array_foreach(list, i, v)
	{
		r = read(s, v);
		if (r < 0)
			break;
	}
	return r;
}

static int wrong(const char *name, int r, char *message)
{
	if (r == -EINVAL)
		snprintf(message, STACKPROBE_MESSAGE_BYTES, "Error occurs when parsing snooper %s",
			 name);
	return r;
}

int stackprobe_snoopers_read(struct json_t *json, bool blacklist, struct stackprobe_snoopers **ret,
			     char *message)
{
	static const struct {
		const char *name;
		int (*read)(struct stackprobe_snoopers *s, const json_t *v);
	} lists[] = {
		{"proc_id", read_pid},
		{"proc_name", read_name},
		{"pod_id", read_pod},
		{"container_id", read_container},
		{"container_name", read_container_name},
	};
	_cleanup_snoopers_ struct stackprobe_snoopers *s = calloc(1, sizeof(*s));
	int r = s ? 0 : -ENOMEM;

	if (r == 0 && !json_is_object(json))
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_SIZE(lists) && r == 0; i++)
		r = wrong(lists[i].name, read_list(s, json, lists[i].name, lists[i].read), message);
	if (r == 0 && !blacklist)
		r = wrong("custom_labels", check_labels(json), message);
	if (r == 0 && !blacklist)
		r = wrong("pod_labels", check_pod_labels(json), message);
	if (r < 0)
		return r;
	s->blacklist = blacklist;
	*ret = take_ptr(s);
	return 0;
}

/* ---- printing ---- */

static void print_texts(const struct stackprobe_snoopers *s, struct json_writer *w,
			const char *name, enum kind kind)
{
	json_open_array(w, name);
	vec_foreach (&s->all, e)
		if (e->kind == kind)
			json_put_exact(w, NULL, e->text);
	json_close(w);
}

static void print_names(const struct stackprobe_snoopers *s, struct json_writer *w)
{
	json_open_array(w, "proc_name");
	vec_foreach (&s->all, e) {
		if (e->kind != PROCESS_NAME)
			continue;
		json_open_object(w, NULL);
		json_put_exact(w, "cmdline", e->cmdline);
		json_put_exact(w, "comm", e->text);
		if (e->label[0]) {
			json_open_object(w, "label");
			json_put_exact(w, e->label[0], e->label[1]);
			json_close(w);
		}
		json_close(w);
	}
	json_close(w);
}

void stackprobe_snoopers_print(const struct stackprobe_snoopers *s, struct json_writer *w)
{
	json_open_object(w, stackprobe_is_blacklist(s) ? "blacklist" : "snoopers");
	if (stackprobe_snoopers_count(s)) {
		print_texts(s, w, "container_id", CONTAINER_ID);
		print_texts(s, w, "container_name", CONTAINER_NAME);
		print_texts(s, w, "pod_id", POD_ID);
		json_open_array(w, "proc_id");
		vec_foreach (&s->all, e)
			if (e->kind == PROCESS_ID)
				json_put_u64(w, NULL, e->pid);
		json_close(w);
		print_names(s, w);
	}
	json_close(w);
}

/* ---- matching ---- */

/* The same digits, with or without dashes. */
static bool same_pod(const char *a, const char *b)
{
	for (;; a++, b++) {
		a += *a == '-';
		b += *b == '-';
		if (!*a || strncasecmp(a, b, 1) != 0)
			return !*a && !*b;
	}
}

/* Engines show the first 12 digits of an id. */
static bool same_container(const char *given, const char *id)
{
	return *id && !strncasecmp(given, id, strlen(given));
}

static bool matches(const struct snooper *e, const struct stackprobe_process *p)
{
	switch (e->kind) {
	case PROCESS_ID:
		return e->pid == p->pid;
	case PROCESS_NAME:
		return !p->is_own && *p->comm && regex_match(e->regex, p->comm, NULL) == 1 &&
		       (!*e->cmdline || strstr(p->cmdline(p->arg), e->cmdline));
	case POD_ID:
		return *p->container(p->arg)->pod_uid &&
		       same_pod(e->text, p->container(p->arg)->pod_uid);
	case CONTAINER_ID:
		return same_container(e->text, p->container(p->arg)->id) ||
		       same_container(e->text, p->container(p->arg)->outer_id);
	case CONTAINER_NAME:
		return strstr(p->container(p->arg)->name, e->text) ||
		       strstr(p->container(p->arg)->pod_name, e->text);
	}
	return false;
}

enum pipeline_choice stackprobe_choose(struct stackprobe_snoopers *s,
				       const struct stackprobe_process *p)
{
	enum pipeline_choice c = PIPELINE_LEAVE;

	if (!s)
		return c;
	for (size_t i = 0; i < s->all.n && c != PIPELINE_SAMPLE; i++) {
		const struct snooper *e = &s->all.data[i];

		if (matches(e, p))
			c = e->kind == PROCESS_ID ? PIPELINE_SAMPLE_ALONE : PIPELINE_SAMPLE;
	}
	if (!s->blacklist)
		return c;
	return c == PIPELINE_LEAVE && !p->is_own ? PIPELINE_SAMPLE : PIPELINE_LEAVE;
}
