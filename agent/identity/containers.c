/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/identity/containers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/text.h"

/* Longer values are cut: files of a hostile user must not become labels of megabytes. */
#define MAX_VALUE 1024
#define MAX_LABELS 8
#define SECOND_NS 1000000000ULL
/* Between two looks at the files, while they say something. */
#define LOOK_NS (5 * SECOND_NS)
/* While they do not, the time doubles from one second to this. */
#define MAX_WAIT_NS (60 * SECOND_NS)
/* Containers whose files are looked at in one call, because samples wait meanwhile. */
#define MAX_LOOKS 32

struct label {
	const char *name; /* borrowed: constants of container.c */
	char *value;	  /* owned */
};

struct container {
	struct proc_cgroup_owner owner;
	struct label labels[MAX_LABELS];
	u32 n;
	u64 stamp; /* of the files that the labels are from */
	u64 due_ns, wait_ns;
	bool asked, asked_before; /* since the last sweep; since the one before */
};

static void drop_labels(struct container *k)
{
	for (u32 i = 0; i < k->n; i++)
		free(k->labels[i].value);
	k->n = 0;
}

static void forget(struct container *k)
{
	drop_labels(k);
	free(k);
}

static void forget_all(struct containers *c)
{
	map_foreach (&c->by_key, slot)
		forget((struct container *)slot->value);
	map_clear(&c->by_key);
	container_lists_deinit(&c->lists);
}

void containers_deinit(struct containers *c)
{
	forget_all(c);
	map_deinit(&c->by_key);
	free(c->root);
	c->root = NULL;
}

int containers_set_root(struct containers *c, const char *path)
{
	char *copy = path ? strdup(path) : NULL;

	if (path && !copy)
		return -ENOMEM;
	forget_all(c);
	free(c->root);
	c->root = copy;
	return 0;
}

static int keep_label(void *arg, const char *name, const char *value)
{
	struct container *k = arg;
	_cleanup_str_ struct str clean = {};

	for (u32 i = 0; i < k->n; i++)
		if (!strcmp(k->labels[i].name, name))
			return 0;
	if (k->n == MAX_LABELS)
		return 0;
	text_append_clean(&clean, value, 0);
	k->labels[k->n].name = name;
	k->labels[k->n].value = strndup(str_get(&clean), MAX_VALUE);
	if (clean.failed || !k->labels[k->n].value)
		return -ENOMEM;
	k->n++;
	return 0;
}

/* Files that are gone, or cannot be read now, change nothing. */
static void look(struct containers *c, struct container *k, u64 now_ns)
{
	struct container fresh = {};
	u64 stamp = container_stamp(c->root ? c->root : "/", &k->owner);

	if (stamp && stamp != k->stamp && !(k->stamp && stamp == CONTAINER_STAMP_NAME)) {
		int r = container_describe(&c->lists, c->root ? c->root : "/", &k->owner,
					   keep_label, &fresh);

		if (r == 0) {
			drop_labels(k);
			memcpy(k->labels, fresh.labels, sizeof(fresh.labels));
			k->n = fresh.n;
			k->stamp = stamp;
		} else {
			drop_labels(&fresh);
		}
	}
	k->wait_ns = k->n ? LOOK_NS : !k->wait_ns ? SECOND_NS : MIN(2 * k->wait_ns, MAX_WAIT_NS);
	k->due_ns = now_ns + k->wait_ns;
}

/* 0: the owner is in no container. Only what tells of which container its files are. */
static u64 key_of(const struct proc_cgroup_owner *o)
{
	const char *who = o->container_id[0] ? o->container_id : o->container_name;
	u64 key = hash_bytes(who, strlen(who));

	if (!*who)
		return 0;
	key = hash_u64(key ^ ((u64)o->user << 2 | (u64)o->nested << 1 | (o->container_id[0] != 0)));
	return key >> 1 ? key >> 1 : 1;
}

static bool make_room(struct containers *c)
{
	if (c->by_key.n < CONTAINERS_MAX)
		return true;
	map_foreach (&c->by_key, slot) {
		struct container *k = (struct container *)slot->value;

		if (!k->asked) {
			map_del(&c->by_key, slot->key, NULL);
			forget(k);
		}
	}
	return c->by_key.n < CONTAINERS_MAX;
}

u64 containers_see(struct containers *c, const struct proc_cgroup_owner *o)
{
	u64 key = key_of(o), *known = key ? map_get(&c->by_key, key) : NULL;
	struct container *k;

	if (!key)
		return 0;
	if (known) {
		((struct container *)*known)->asked = true;
		return key;
	}
	k = make_room(c) ? calloc(1, sizeof(*k)) : NULL;
	if (!k || map_put(&c->by_key, key, (u64)k) < 0) {
		free(k);
		c->left_out++;
		return 0;
	}
	k->owner = *o;
	k->asked = true;
	look(c, k, clock_ns(CLOCK_MONOTONIC));
	return key;
}

static struct container *find(struct containers *c, u64 key)
{
	const u64 *known = key ? map_get(&c->by_key, key) : NULL;
	struct container *k = known ? (struct container *)*known : NULL;

	if (k)
		k->asked = true;
	return k;
}

int containers_labels(struct containers *c, u64 key, container_label *fn, void *arg)
{
	const struct container *k = find(c, key);
	int r = 0;

	for (u32 i = 0; k && i < k->n && r == 0; i++)
		r = fn(arg, k->labels[i].name, k->labels[i].value);
	return r;
}

const char *containers_label(struct containers *c, u64 key, const char *name)
{
	const struct container *k = find(c, key);

	for (u32 i = 0; k && i < k->n; i++)
		if (!strcmp(k->labels[i].name, name))
			return k->labels[i].value;
	return NULL;
}

void containers_keep(struct containers *c, u64 key)
{
	(void)find(c, key);
}

void containers_follow(struct containers *c, u64 now_ns)
{
	u32 n = 0;

	map_foreach (&c->by_key, slot) {
		struct container *k = (struct container *)slot->value;

		if (now_ns < k->due_ns)
			continue;
		if (n++ == MAX_LOOKS)
			return;
		look(c, k, now_ns);
	}
}

void containers_sweep(struct containers *c)
{
	map_foreach (&c->by_key, slot) {
		struct container *k = (struct container *)slot->value;

		if (k->asked || k->asked_before) {
			k->asked_before = k->asked;
			k->asked = false;
			continue;
		}
		map_del(&c->by_key, slot->key, NULL);
		forget(k);
	}
}
