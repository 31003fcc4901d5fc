/* SPDX-License-Identifier: Apache-2.0 */
/* What `culprit doctor -p` says about the runtimes of a process. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/runtime/internal.h"

/* Prefixes each line about missing features with the runtime's name. */
struct missing_lines {
	const char *name;
	void (*line)(void *arg, const char *text);
	void *arg;
};

static void add_missing(void *arg, const char *text)
{
	const struct missing_lines *m = arg;
	char line[512];

	snprintf(line, sizeof(line), "%s: missing: %s", m->name, text);
	m->line(m->arg, line);
}

static void describe_missing(const struct procman_process *p, const struct procman_mapping *m,
			     const struct known_binary *k, const struct attached *a,
			     void (*line)(void *arg, const char *text), void *arg)
{
	const struct runtime_target t = {
		.memory.pid = p->pid, .process = p, .elf = m->binary->elf, .bias = m->bias};
	struct missing_lines lines = {runtime_table[k->runtime].name, line, arg};
	char text[256];

	if (a && !a->done && a->error != -EAGAIN) {
		snprintf(text, sizeof(text),
			 "all of its frames: its threads' state is not found "
			 "(%s)",
			 strerror(-a->error));
		add_missing(&lines, text);
	}
	if (runtime_table[k->runtime].ops->missing)
		runtime_table[k->runtime].ops->missing(&t, k->learned, add_missing, &lines);
}

static void describe_native(const struct procman_process *p,
			    void (*line)(void *arg, const char *text), void *arg)
{
	const struct procman_binary *last = NULL; /* a binary may be mapped in pieces */
	char text[256], what[320];

	for (u32 i = 0; i < p->n; i++) {
		const struct procman_binary *b = p->mappings[i].binary;

		for (size_t j = 0; b->elf && b != last && native_runtimes[j].ops; j++) {
			const struct native_runtime *n = &native_runtimes[j];

			if (n->ops->describe(b->elf, text, sizeof(text)) < 0)
				continue;
			snprintf(what, sizeof(what), "%s: %s", n->name, text);
			line(arg, what);
		}
		last = b;
	}
}

static void drop_site(void *arg, const struct runtime_heap_look *l, const struct runtime_site *s)
{
	(void)arg;
	(void)l;
	(void)s;
}

static void describe_heap(struct runtimes *r, const struct procman_process *p,
			  void (*line)(void *arg, const char *text), void *arg)
{
	struct runtime_heap_look look = {.until_ns = ~0ULL, .site = drop_site};
	int e = runtimes_heap(r, p, &look);
	char text[256], what[320];

	if (!runtimes_heap_say(r, p, e, &look, text, sizeof(text)))
		return;
	snprintf(what, sizeof(what), "heap: %s", text);
	line(arg, what);
}

void runtimes_describe(struct runtimes *r, const struct procman_process *p,
		       void (*line)(void *arg, const char *text), void *arg)
{
	char text[512], what[320];
	u32 seen = 0; /* one bit per runtime: a binary may be mapped in pieces */

	runtimes_follow(r, p);
	while (runtimes_take(r, true))
		runtimes_follow(r, p);
	for (u32 i = 0; i < p->n; i++) {
		const struct known_binary *k = p->mappings[i].binary->elf
						       ? runtimes_binary(r, p->mappings[i].binary)
						       : NULL;
		const struct attached *a;

		if (!k || !k->claimed || seen & 1u << k->claimed)
			continue;
		seen |= 1u << k->claimed;
		a = k->runtime ? runtimes_attached(r, p->image, k->runtime) : NULL;
		if (!k->runtime)
			snprintf(what, sizeof(what), "not supported: %s", k->why.text);
		else
			runtime_table[k->runtime].ops->describe(k->learned, what, sizeof(what));
		snprintf(text, sizeof(text), "%s: %s%s", runtime_table[k->claimed].name, what,
			 k->runtime && !(a && a->done) ? "; not attached yet" : "");
		line(arg, text);
		if (k->runtime)
			describe_missing(p, &p->mappings[i], k, a, line, arg);
	}
	describe_native(p, line, arg);
	describe_heap(r, p, line, arg);
}
