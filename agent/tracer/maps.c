/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tracer/maps.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX_ENTRIES (1u << 24)
#define ALIGN8(n) (((n) + 7) & ~7u)

static u32 value_room(const struct trace_map *m, u32 cpus)
{
	return ALIGN8(m->value_bytes) * (m->per_cpu ? cpus : 1);
}

/*
 * Calls fn with each key. The map may change meanwhile: where the key before has gone, the kernel
 * begins again, so the number of steps is bounded.
 */
static int each_key(int fd, const struct trace_map *m, int (*fn)(void *arg, const u8 *key),
		    void *arg)
{
	u32 bytes = m->is_scalar ? 4 : m->key_bytes;
	_cleanup_free_ u8 *key = calloc(2, MAX(bytes, 4u));
	u8 *next = key ? key + bytes : NULL;
	int r = 0;

	if (!key)
		return -ENOMEM;
	for (u32 i = 0; i < MAX_ENTRIES && r == 0; i++) {
		if (bpf_map_get_next_key(fd, i ? key : NULL, next) < 0)
			return errno == ENOENT ? 0 : -errno;
		r = fn(arg, next);
		memcpy(key, next, bytes);
	}
	return r;
}

struct reading {
	int fd;
	u32 key_bytes, value_bytes; /* of an entry in `keys` and `values` */
	struct tracer_entries *to;
	u32 max;
};

static int read_entry(void *arg, const u8 *key)
{
	struct reading *r = arg;
	struct tracer_entries *to = r->to;
	size_t n = to->n + 1;
	int e;

	/* Keys that came meanwhile are left out. */
	if (n > r->max)
		return 1;
	e = vec_reserve(&to->keys, n * r->key_bytes);
	if (e == 0)
		e = vec_reserve(&to->values, n * r->value_bytes);
	if (e < 0)
		return e;
	if (bpf_map_lookup_elem(r->fd, key, to->values.data + to->n * r->value_bytes) < 0)
		return errno == ENOENT ? 0 : -errno;
	memcpy(to->keys.data + to->n * r->key_bytes, key, r->key_bytes);
	to->n = n;
	return 0;
}

int tracer_entries_read(int fd, const struct trace_map *m, u32 cpus, struct tracer_entries *ret)
{
	struct reading r = {.fd = fd,
			    .key_bytes = m->is_scalar ? 4 : m->key_bytes,
			    .value_bytes = value_room(m, cpus),
			    .to = ret,
			    .max = m->is_scalar ? 1 : m->max_entries};
	int e;

	ret->n = 0;
	e = each_key(fd, m, read_entry, &r);
	return e < 0 ? e : 0;
}

void tracer_entries_deinit(struct tracer_entries *e)
{
	vec_deinit(&e->keys);
	vec_deinit(&e->values);
	e->n = 0;
}

struct zeroing {
	int fd;
	u8 *value;
};

static int zero_entry(void *arg, const u8 *key)
{
	struct zeroing *z = arg;

	if (bpf_map_update_elem(z->fd, key, z->value, BPF_EXIST) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

int tracer_map_zero(int fd, const struct trace_map *m, u32 cpus)
{
	_cleanup_free_ u8 *value = calloc(1, MAX(value_room(m, cpus), 8u));
	struct zeroing z = {fd, value};

	return value ? each_key(fd, m, zero_entry, &z) : -ENOMEM;
}

int tracer_map_clear(int fd, const struct trace_map *m, u32 cpus)
{
	struct tracer_entries e = {};
	int r;

	/* Elements of arrays cannot be deleted. */
	if (m->is_scalar)
		return tracer_map_zero(fd, m, cpus);
	r = tracer_entries_read(fd, m, cpus, &e);
	for (size_t i = 0; i < e.n && r == 0; i++)
		if (bpf_map_delete_elem(fd, e.keys.data + i * m->key_bytes) < 0 && errno != ENOENT)
			r = -errno;
	tracer_entries_deinit(&e);
	return r;
}
