/* SPDX-License-Identifier: Apache-2.0 */
/* Names of calls and types of their arguments, by number. */
#include <asm/unistd.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/syscalls/table.h"
#include "base/cleanup.h"
#include "base/closest.h"

#define CALL(name) [__NR_##name] = #name,
static const char *const names[SYSCALLS_UNKNOWN] = {
#include "syscall_names.h"
};
#undef CALL

enum group {
	OF_FILE = 1,
	OF_DESC = 2,
	OF_NETWORK = 4,
	OF_PROCESS = 8,
	OF_MEMORY = 16,
	OF_SIGNAL = 32,
	OF_IPC = 64,
};
static const struct {
	const char *name;
	u32 bit;
} groups[] = {
	{"file", OF_FILE},     {"desc", OF_DESC},	{"network", OF_NETWORK},
	{"net", OF_NETWORK},   {"process", OF_PROCESS}, {"memory", OF_MEMORY},
	{"signal", OF_SIGNAL}, {"ipc", OF_IPC},
};

static const struct described {
	const char *name;
	u32 groups;
	const char *types;
} described[] = {
#define SYSCALL(name, groups, types) {#name, groups, types},
#include "agent/syscalls/syscalls.tbl"
#undef SYSCALL
};

const char *syscalls_name(u32 slot)
{
	return slot < ARRAY_SIZE(names) ? names[slot] : NULL;
}

static u32 slot_of(const char *name, size_t n)
{
	for (u32 i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i] && strncmp(names[i], name, n) == 0 && !names[i][n])
			return i;
	return SYSCALLS_MAX;
}

static int describe(struct syscalls_entry *e, const struct described *d)
{
	e->groups = d->groups;
	for (const char *word = d->types; *word; word += *word == ' ') {
		size_t n = strcspn(word, " ");
		const struct syscalls_type *t = syscalls_type_find(word, n);

		if (!t || e->n == ARRAY_SIZE(e->types))
			return -EINVAL;
		e->pieces[e->n] = -1;
		if (t->piece.kind && e->plan.n < SYSCALLS_PIECES) {
			e->pieces[e->n] = (s8)e->plan.n;
			e->plan.pieces[e->plan.n] = t->piece;
			e->plan.pieces[e->plan.n++].argument = (u8)e->n;
		}
		e->types[e->n++] = t;
		word += n;
	}
	return 0;
}

static void describe_unknown(struct syscalls_entry *e)
{
	e->n = ARRAY_SIZE(e->types);
	for (u32 i = 0; i < e->n; i++) {
		e->types[i] = syscalls_type_find("hex", 3);
		e->pieces[i] = -1;
	}
}

int syscalls_table_create(struct syscalls_table **ret)
{
	struct syscalls_table *t = calloc(1, sizeof(*t));
	bool known[SYSCALLS_MAX] = {};
	int r = 0;

	if (!t)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(described) && r == 0; i++) {
		u32 slot = slot_of(described[i].name, strlen(described[i].name));

		if (slot == SYSCALLS_MAX)
			continue;
		known[slot] = true;
		r = describe(&t->entries[slot], &described[i]);
	}
	for (u32 i = 0; i < SYSCALLS_MAX; i++)
		if (!known[i])
			describe_unknown(&t->entries[i]);
	if (r < 0) {
		syscalls_table_destroy(t);
		return r;
	}
	*ret = t;
	return 0;
}

void syscalls_table_destroy(struct syscalls_table *t)
{
	free(t);
}

const struct syscalls_plan *syscalls_table_plan(const struct syscalls_table *t, u32 slot)
{
	return &t->entries[slot].plan;
}

/* ---- choosing ---- */

static int no_such_group(const char *word, size_t n, struct diag *d)
{
	return diag_set(d, -EINVAL,
			"no group of system calls '%.*s': %%file, %%desc, %%network, %%process, "
			"%%memory, %%signal, %%ipc",
			(int)n, word);
}

static int choose_group(struct syscalls_table *t, const char *word, size_t n, struct diag *d)
{
	u32 bit = 0;

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (strncmp(groups[i].name, word + 1, n - 1) == 0 && !groups[i].name[n - 1])
			bit = groups[i].bit;
	if (!bit)
		return no_such_group(word, n, d);
	for (u32 i = 0; i < SYSCALLS_MAX; i++)
		if (t->entries[i].groups & bit)
			t->entries[i].plan.wanted = 1;
	return 0;
}

static int no_such_call(const char *word, size_t n, struct diag *d)
{
	_cleanup_str_ struct str like = {}, wanted = {};
	const char *all[ARRAY_SIZE(names)];
	size_t n_all = 0;

	for (u32 i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i])
			all[n_all++] = names[i];
	(void)str_append(&wanted, word, n);
	(void)closest_append(&like, str_get(&wanted), all, n_all, 100);
	return diag_set(d, -EINVAL, "no system call '%s'; there are %s", str_get(&wanted),
			str_get(&like));
}

static int choose_call(struct syscalls_table *t, const char *word, size_t n, struct diag *d)
{
	u32 slot = slot_of(word, n);

	if (slot == SYSCALLS_MAX)
		return no_such_call(word, n, d);
	t->entries[slot].plan.wanted = 1;
	return 0;
}

int syscalls_table_choose(struct syscalls_table *t, const char *only, struct diag *reterr_diag)
{
	int r = 0;

	for (u32 i = 0; i < SYSCALLS_MAX; i++)
		t->entries[i].plan.wanted = !only;
	for (const char *word = only; word && *word && r == 0;) {
		size_t n = strcspn(word, ",");

		if (n && *word == '%')
			r = choose_group(t, word, n, reterr_diag);
		else if (n)
			r = choose_call(t, word, n, reterr_diag);
		word += n + (word[n] == ',');
	}
	return r;
}
