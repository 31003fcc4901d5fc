/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/latency.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "base/vocab.h"

#define BAR 40

static const struct {
	const char *name;
	u32 per_mille;
} quantiles[] = {{"p50", 500}, {"p90", 900}, {"p99", 990}, {"p99.9", 999}};

static void groups_deinit(latency_groups *groups)
{
	vec_foreach (groups, g) {
		free(g->name);
		vec_deinit(&g->buckets);
	}
	vec_deinit(groups);
}

void latency_deinit(struct latency *l)
{
	groups_deinit(&l->groups);
	groups_deinit(&l->processes);
}

/* ---- reading ---- */

static u64 number(const json_t *value)
{
	s64 n = json_integer_value(value);

	return n > 0 ? (u64)n : 0;
}

/* "254,0,read" is "vda read"; the number stays if the device is gone. */
static void put_device(const char *key, struct str *out)
{
	u32 major, minor;
	int used = 0;
	char path[64], target[PATH_MAX];
	ssize_t n;

	if (sscanf(key, "%u,%u,%n", &major, &minor, &used) != 2 || !used) {
		str_puts(out, key);
		return;
	}
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major, minor);
	n = readlink(path, target, sizeof(target) - 1);
	target[MAX(n, 0)] = '\0';
	if (n > 0 && strrchr(target, '/'))
		str_printf(out, "%s %s", strrchr(target, '/') + 1, key + used);
	else
		str_printf(out, "%u:%u %s", major, minor, key + used);
}

static char *group_name(const struct latency *l, const char *key)
{
	_cleanup_str_ struct str name = {};

	if (l->has_devices)
		put_device(key, &name);
	else
		str_puts(&name, key);
	for (char *at = name.n ? strchr(name.data, ',') : NULL; at; at = strchr(at, ','))
		*at = ' ';
	return strdup(str_get(&name));
}

/* The group of a key, which is added if it is new. NULL: out of memory. */
static struct latency_group *find(latency_groups *groups, u32 pid, const char *name)
{
	vec_foreach (groups, g)
		if (g->pid == pid && strcmp(g->name, name) == 0)
			return g;
	_cleanup_free_ char *copy = strdup(name);

	if (!copy || vec_push(groups, (struct latency_group){.name = copy, .pid = pid}) < 0)
		return NULL;
	take_ptr(copy);
	return &groups->data[groups->n - 1];
}

static struct latency_group *find_group(struct latency *l, const char *key)
{
	_cleanup_free_ char *name = group_name(l, key);

	return name ? find(&l->groups, 0, name) : NULL;
}

/* "PID,COMM", of which COMM may contain anything. */
static struct latency_group *find_process(struct latency *l, const char *key)
{
	char *comm;
	unsigned long pid = strtoul(key, &comm, 10);

	return find(&l->processes, (u32)pid, *comm == ',' ? comm + 1 : comm);
}

static int read_buckets(struct latency_group *g, const json_t *list)
{
	size_t i;
	const json_t *b;

	json_array_foreach(list, i, b)
	{
		const struct latency_bucket bucket = {.low_ns = number(json_object_get(b, "min")),
						      .high_ns = number(json_object_get(b, "max")),
						      .count = number(json_object_get(b, "count"))};

		if (vec_push(&g->buckets, bucket) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int read_entry(struct latency *l, const char *map, const char *key, const json_t *value)
{
	bool is_process = strcmp(map, "@by") == 0 || strcmp(map, "@longest") == 0;
	struct latency_group *g = is_process ? find_process(l, key) : find_group(l, key);

	if (!g)
		return -ENOMEM;
	if (json_is_array(value))
		return read_buckets(g, value);
	if (json_is_object(value)) {
		g->count = number(json_object_get(value, "count"));
		g->total_ns = number(json_object_get(value, "total"));
	} else {
		g->most_ns = number(value);
	}
	return 0;
}

static void read_open(struct latency *l, const json_t *map, u64 end_ns)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)map, key, value)
	{
		u64 began = number(value);

		if (began >= end_ns)
			continue;
		l->open++;
		l->oldest_ns = MAX(l->oldest_ns, end_ns - began);
	}
}

static int read_map(struct latency *l, const char *name, const json_t *map, u64 end_ns)
{
	const char *key;
	json_t *value;
	int r = 0;

	if (strcmp(name, "@began") == 0)
		read_open(l, map, end_ns);
	else
		json_object_foreach((json_t *)map, key, value) if (r == 0) r =
			read_entry(l, name, key, value);
	return r;
}

static int read_line(struct latency *l, const char *line, size_t n, u64 end_ns)
{
	json_t *root = json_loadb(line, n, 0, NULL), *data = json_object_get(root, "data"), *value;
	const char *type = json_string_value(json_object_get(root, "type")), *name;
	int r = data && type ? 0 : -EINVAL;

	if (r == 0 && strcmp(type, "attached_probes") != 0)
		json_object_foreach(data, name, value) if (r == 0 && name[0] == '@') r =
			read_map(l, name, value, end_ns);
	json_decref(root);
	return r;
}

static int by_total(const void *a, const void *b)
{
	const struct latency_group *x = a, *y = b;

	return x->total_ns < y->total_ns ? 1 : x->total_ns > y->total_ns ? -1 : 0;
}

static void sort(latency_groups *groups)
{
	if (groups->n)
		qsort(groups->data, groups->n, sizeof(groups->data[0]), by_total);
}

int latency_read(struct latency *l, const char *lines, u64 end_ns)
{
	int r = 0;

	while (*lines && r == 0) {
		size_t n = strcspn(lines, "\n");

		r = n ? read_line(l, lines, n, end_ns) : 0;
		lines += n + (lines[n] == '\n');
	}
	sort(&l->groups);
	sort(&l->processes);
	return r;
}

/* ---- showing ---- */

u64 latency_quantile(const struct latency_group *g, u32 per_mille)
{
	u64 all = 0, below = 0, want;

	vec_foreach (&g->buckets, b)
		all += b->count;
	want = (all * per_mille + 999) / 1000;
	vec_foreach (&g->buckets, b) {
		below += b->count;
		if (b->count && below >= want)
			return MIN(b->low_ns + (b->high_ns - b->low_ns) / 2,
				   g->most_ns ? g->most_ns : ~0ULL);
	}
	return 0;
}

static void put_time(struct str *out, u64 ns)
{
	text_append_value(out, (s64)MIN(ns, ~0ULL >> 1), vocab_unit(UNIT_NANOSECONDS));
}

/* The text of a time, in a column of its own. */
static void put_column(struct str *out, u64 ns, int width)
{
	_cleanup_str_ struct str text = {};

	put_time(&text, ns);
	str_printf(out, "%*s", width, str_get(&text));
}

/* One row for each power of two. */
static u32 add_up(const struct latency_group *g, u64 ret[64], u32 *ret_first)
{
	u32 first = 64, last = 0;

	memset(ret, 0, 64 * sizeof(*ret));
	vec_foreach (&g->buckets, b) {
		u32 power = b->low_ns ? 63 - (u32)__builtin_clzll(b->low_ns) : 0;

		if (!b->count)
			continue;
		ret[power] += b->count;
		first = MIN(first, power);
		last = MAX(last, power);
	}
	*ret_first = first;
	return first == 64 ? 0 : last + 1;
}

static void put_histogram(struct str *out, const struct latency_group *g)
{
	u64 rows[64], most = 1;
	u32 first, end = add_up(g, rows, &first);

	for (u32 i = first; i < end; i++)
		most = MAX(most, rows[i]);
	for (u32 i = first; i < end; i++) {
		put_column(out, i ? 1ULL << i : 0, 12);
		str_puts(out, " to");
		put_column(out, 1ULL << MIN(i + 1, 62u), 10);
		str_printf(out, " %10llu  ", rows[i]);
		for (u64 k = rows[i] * BAR / most; k; k--)
			str_putc(out, '#');
		str_putc(out, '\n');
	}
}

static void put_group(struct str *out, const struct latency_group *g)
{
	text_append_clean(out, g->name, ';');
	str_printf(out, ": %llu in ", g->count);
	put_time(out, g->total_ns);
	str_puts(out, " altogether\n");
	put_histogram(out, g);
	str_puts(out, "  average ");
	put_time(out, g->count ? g->total_ns / g->count : 0);
	for (size_t i = 0; i < ARRAY_SIZE(quantiles); i++) {
		str_printf(out, ", %s ", quantiles[i].name);
		put_time(out, latency_quantile(g, quantiles[i].per_mille));
	}
	str_puts(out, ", longest ");
	put_time(out, g->most_ns);
	str_puts(out, "\n\n");
}

static void put_processes(const struct latency *l, u32 top, struct str *out)
{
	if (!l->processes.n)
		return;
	str_printf(out, "%8s  %-16s %10s %12s %12s %12s\n", "PID", "process", "count", "total",
		   "average", "longest");
	for (size_t i = 0; i < l->processes.n && i < top; i++) {
		const struct latency_group *g = &l->processes.data[i];
		_cleanup_str_ struct str name = {};

		text_append_clean(&name, g->name, ';');
		str_printf(out, "%8u  %-16s %10llu ", g->pid, str_get(&name), g->count);
		put_column(out, g->total_ns, 12);
		put_column(out, g->count ? g->total_ns / g->count : 0, 13);
		put_column(out, g->most_ns, 13);
		str_putc(out, '\n');
	}
}

void latency_text(const struct latency *l, u32 top, struct str *out)
{
	if (!l->groups.n)
		str_puts(out, "Nothing was measured.\n");
	vec_foreach (&l->groups, g)
		put_group(out, g);
	put_processes(l, top, out);
	if (l->open) {
		str_printf(out, "%llu had not ended and are not counted; the first began ",
			   l->open);
		put_time(out, l->oldest_ns);
		str_puts(out, " earlier.\n");
	}
	if (l->lost)
		str_printf(out, "%llu were lost: too many at once.\n", l->lost);
}

/* Only the non-empty buckets. */
static void buckets_json(const struct latency_group *g, struct json_writer *w)
{
	json_open_object(w, "quantiles_ns");
	for (size_t i = 0; i < ARRAY_SIZE(quantiles); i++)
		json_put_u64(w, quantiles[i].name, latency_quantile(g, quantiles[i].per_mille));
	json_close(w);
	json_open_array(w, "buckets");
	vec_foreach (&g->buckets, b) {
		if (!b->count)
			continue;
		json_open_object(w, NULL);
		json_put_u64(w, "min_ns", b->low_ns);
		json_put_u64(w, "max_ns", b->high_ns);
		json_put_u64(w, "count", b->count);
		json_close(w);
	}
	json_close(w);
}

static void group_json(const struct latency_group *g, struct json_writer *w, bool is_process)
{
	json_open_object(w, NULL);
	json_put_text(w, is_process ? "comm" : "group", g->name);
	if (is_process)
		json_put_u64(w, "pid", g->pid);
	json_put_u64(w, "count", g->count);
	json_put_u64(w, "total_ns", g->total_ns);
	json_put_u64(w, "max_ns", g->most_ns);
	if (!is_process)
		buckets_json(g, w);
	json_close(w);
}

void latency_json(const struct latency *l, const char *kind, u64 seconds, struct str *out)
{
	struct json_writer w = {.out = out};

	json_open_object(&w, NULL);
	json_put_text(&w, "kind", kind);
	json_put_u64(&w, "seconds", seconds);
	json_open_array(&w, "groups");
	vec_foreach (&l->groups, g)
		group_json(g, &w, false);
	json_close(&w);
	json_open_array(&w, "processes");
	vec_foreach (&l->processes, g)
		group_json(g, &w, true);
	json_close(&w);
	json_put_u64(&w, "open", l->open);
	json_put_u64(&w, "oldest_open_ns", l->oldest_ns);
	json_put_u64(&w, "lost", l->lost);
	json_close(&w);
	str_putc(out, '\n');
}
