/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of services and types; names.h says who may read and write them.
 *
 * A sweep holds write_lock from the moment at which it decides what no block has until these names
 * are gone. A writer takes the numbers of its names and adds its blocks within one hold of the same
 * lock, so a sweep sees either the writer's blocks or none of its numbers.
 */
#include "server/store/sqlite/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "server/store/sqlite/sqlite.h"

#define SWEEP_NAMES 5000 /* in one transaction */

struct sq_names *sq_names_create(void)
{
	struct sq_names *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->refs = 1;
	if (strtab_init(&n->texts) < 0 || vec_push(&n->numbers, 0) < 0 ||
	    map_put(&n->ids, 0, 0) < 0) {
		sq_names_put(n);
		return NULL;
	}
	n->next = 1;
	return n;
}

struct sq_names *sq_names_get(struct sq_names *n)
{
	atomic_fetch_add(&n->refs, 1);
	return n;
}

void sq_names_put(struct sq_names *n)
{
	if (!n || atomic_fetch_sub(&n->refs, 1) != 1)
		return;
	strtab_deinit(&n->texts);
	vec_deinit(&n->numbers);
	map_deinit(&n->ids);
	free(n);
}

const char *sq_names_text(const struct sq_names *n, u32 number, size_t *ret_n)
{
	const u64 *id = map_get(&n->ids, number);

	if (ret_n)
		*ret_n = id ? n->texts.lengths[*id] : 0;
	return id ? strtab_get(&n->texts, (u32)*id) : "";
}

bool sq_names_find(const struct sq_names *n, const char *text, u32 *ret)
{
	u32 id;

	if (!strtab_find(&n->texts, text, strlen(text), &id))
		return false;
	*ret = n->numbers.data[id];
	return true;
}

int sq_names_set(struct sq_names *n, u32 number, const char *text, size_t size)
{
	u32 id;
	int r;

	if (number == UINT32_MAX || map_get(&n->ids, number) ||
	    strtab_find(&n->texts, text, size, &id))
		return -EBADMSG;
	/* What fails half-way must leave no name without a number. */
	r = vec_reserve(&n->numbers, n->numbers.n + 1);
	if (r == 0)
		r = map_put(&n->ids, number, n->texts.n);
	if (r == 0)
		r = strtab_add(&n->texts, text, size, &id);
	if (r < 0) {
		map_del(&n->ids, number, NULL);
		return r;
	}
	n->numbers.data[n->numbers.n++] = number;
	n->next = MAX(n->next, number + 1);
	return 0;
}

int sq_names_add(struct sq_names *n, const char *text, size_t size, u32 *ret)
{
	u32 id, number = n->next;
	int r;

	if (strtab_find(&n->texts, text, size, &id)) {
		*ret = n->numbers.data[id];
		return 0;
	}
	if (number == UINT32_MAX)
		return -E2BIG;
	r = sq_names_set(n, number, text, size);
	if (r == 0)
		*ret = number;
	return r;
}

/* ---- sweeping ---- */

static void mark_name(const struct sq_names *n, u32 number, u8 *used)
{
	const u64 *id = map_get(&n->ids, number);

	if (id)
		used[*id] = 1;
}

/* Marks the names that blocks have, then those beyond the first SWEEP_NAMES that no block has. */
static u32 mark_names(const struct sq *s, u8 *used)
{
	u32 n = 0;

	used[0] = 1;
	for (size_t i = 0; i < s->entries.n; i++) {
		mark_name(s->names, s->entries.data[i].service, used);
		mark_name(s->names, s->entries.data[i].type, used);
	}
	for (size_t i = 0; i < s->names->numbers.n; i++) {
		if (!used[i] && n < SWEEP_NAMES)
			n++;
		else
			used[i] = 1;
	}
	return n;
}

static int copy_used(const struct sq_names *from, const u8 *used, struct sq_names *to)
{
	int r = 0;

	for (u32 i = 1; i < from->numbers.n && r == 0; i++)
		if (used[i])
			r = sq_names_set(to, from->numbers.data[i], strtab_get(&from->texts, i),
					 from->texts.lengths[i]);
	to->next = from->next;
	return r;
}

static int delete_unused(struct sq *s, const u8 *used, struct diag *reterr_diag)
{
	_cleanup_sq_change_ struct sq_change none = {};
	int r = sq_begin(s, reterr_diag);

	if (r < 0)
		return r;
	for (u32 i = 1; i < s->names->numbers.n && r == 0; i++) {
		sqlite3_stmt *st = used[i] ? NULL : sq_get(s->writer, SQL_DEL_NAME);

		if (!used[i] &&
		    (!st || sqlite3_bind_int64(st, 1, s->names->numbers.data[i]) != SQLITE_OK ||
		     sqlite3_step(st) != SQLITE_DONE))
			r = sq_error(s->writer, "cannot sweep names", reterr_diag);
	}
	return sq_end(s, r, &none, reterr_diag);
}

static void replace_names(struct sq *s, struct sq_names *new)
{
	struct sq_names *old;

	pthread_rwlock_wrlock(&s->list_lock);
	old = s->names;
	s->names = new;
	pthread_rwlock_unlock(&s->list_lock);
	sq_names_put(old);
}

/* Under write_lock. */
static int sweep_some(struct sq *s, u32 *ret_n, struct diag *reterr_diag)
{
	_cleanup_free_ u8 *used = calloc(s->names->numbers.n, 1);
	struct sq_names *new = sq_names_create();
	int r = used && new ? 0 : -ENOMEM;

	*ret_n = r == 0 ? mark_names(s, used) : 0;
	if (*ret_n)
		r = copy_used(s->names, used, new);
	if (r == 0 && *ret_n)
		r = delete_unused(s, used, reterr_diag);
	if (r == 0 && *ret_n)
		replace_names(s, new);
	else
		sq_names_put(new);
	return r == -ENOMEM ? diag_set(reterr_diag, r, "out of memory") : r;
}

int sq_sweep_names(struct sq *s, struct diag *reterr_diag)
{
	u32 n;
	int r;

	if (!s->names_to_sweep)
		return 0;
	pthread_mutex_lock(&s->write_lock);
	r = sweep_some(s, &n, reterr_diag);
	pthread_mutex_unlock(&s->write_lock);
	/* The rest waits for the next call, so that writers do not wait for long. */
	if (r == 0)
		s->names_to_sweep = n == SWEEP_NAMES;
	return r;
}
