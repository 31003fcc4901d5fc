/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/kallsyms: lines `ADDRESS TYPE NAME [MODULE]`, in no order that one may rely on.
 *
 * A symbol takes 8 bytes and its name: addresses are 32-bit offsets from the start of a segment,
 * and a segment is a run of symbols of one module without a gap of 4 GiB. Invariants:
 * 1. segments are sorted and do not overlap; entries within one are sorted, one per address,
 * 2. an entry without a name ends the one before it: data that follows code.
 *
 * The file has no sizes. A symbol reaches to the next one; the last of a segment reaches to the
 * next segment, but no further than MAX_TAIL.
 */
#include "symbol/symbol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"

#define MAX_SYMBOLS (8U << 20)
#define MAX_TAIL (64U << 10)

struct entry {
	u32 offset; /* from the segment's base */
	u32 name;   /* in the pool; 0 = no code */
};

struct segment {
	u64 base;
	u64 end;
	u32 first;
	u32 n;
	u32 module; /* in the pool */
};

struct kallsyms {
	struct strtab pool;
	vec(struct segment) segments;
	vec(struct entry) entries;
};

/* As read, before sorting. */
struct line {
	u64 address;
	u32 name;
	u32 module;
	char type;
};
typedef vec(struct line) line_vec;

/* Symbols that are being read. */
struct part {
	struct kallsyms *k;
	line_vec lines;
};

DEFINE_CLEANUP(kallsyms, struct kallsyms *, kallsyms_destroy)
#define _cleanup_kallsyms_ _cleanup_(kallsyms)

void kallsyms_destroy(struct kallsyms *k)
{
	if (!k)
		return;
	strtab_deinit(&k->pool);
	vec_deinit(&k->segments);
	vec_deinit(&k->entries);
	free(k);
}

size_t kallsyms_memory(const struct kallsyms *k)
{
	return k ? k->entries.cap * sizeof(*k->entries.data) + k->pool.cap_bytes +
			       k->pool.cap * sizeof(*k->pool.offsets)
		 : 0;
}

static bool is_text(char type)
{
	return type == 't' || type == 'T' || type == 'w' || type == 'W';
}

/* Names that the linker script places at the edges of sections do not describe the code there. */
static bool is_marker(const char *name)
{
	static const char *const whole[] = {"_text",	  "_stext",	"_etext",
					    "_sinittext", "_einittext", "startup_64_end"};

	for (size_t i = 0; i < ARRAY_SIZE(whole); i++)
		if (strcmp(name, whole[i]) == 0)
			return true;
	return str_starts(name, "__") && (str_ends(name, "_start") || str_ends(name, "_end")) &&
	       strstr(name, "text");
}

/* The name with the smallest cost is the one that people use for the code. */
static u32 name_cost(const char *name, char type)
{
	u32 cost = (u32)strnlen(name, 0xffff);

	for (const char *p = name; *p == '_' || *p == '.'; p++)
		cost += 100;
	if (str_starts(name, "__pfx_") || str_starts(name, "__cfi_"))
		cost += 1 << 20;
	if (is_marker(name))
		cost += 1 << 21;
	if (type == 't' || type == 'w')
		cost += 1 << 17;
	if (type == 'w' || type == 'W')
		cost += 1 << 16;
	return cost;
}

/* Lines of modules and BPF programs end in [MODULE]. */
static bool is_loaded(const char *text, size_t n)
{
	while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	return n && text[n - 1] == ']';
}

/* 1 = a line, 0 = not one that counts, -EBADMSG = not one of this format. */
static int parse_line(struct kallsyms *k, char *text, struct line *ret)
{
	char *save = NULL;
	char *address = strtok_r(text, " \t\n", &save);
	char *type = strtok_r(NULL, " \t\n", &save);
	char *name = strtok_r(NULL, " \t\n", &save);
	char *module = strtok_r(NULL, " \t\n", &save);
	struct line l = {};
	int r;

	if (!name || type[1] || str_to_u64(address, 16, &l.address) < 0)
		return -EBADMSG;
	l.type = type[0];
	/* Absolute and per-CPU symbols are offsets, not addresses. */
	if (l.type == 'A' || l.type == 'a')
		return 0;
	if (module && module[0] == '[' && str_ends(module, "]")) {
		r = strtab_add(&k->pool, module + 1, strlen(module) - 2, &l.module);
		if (r < 0)
			return r;
	}
	if (is_text(l.type)) {
		r = strtab_add(&k->pool, name, strlen(name), &l.name);
		if (r < 0)
			return r;
	}
	*ret = l;
	return 1;
}

/* The line is skipped. */
static void log_line(FILE *f, u32 number)
{
	char text[64];

	snprintf(text, sizeof(text), "line %u is not ADDRESS TYPE NAME", number);
	log_damage(fileno(f), text);
}

/* Reads the lines of the kernel into `kernel`, and those of loaded code into `loaded`. */
static int read_lines(FILE *f, struct part *kernel, struct part *loaded)
{
	_cleanup_free_ char *text = NULL;
	bool any = false, address = false, told = false;
	u32 number = 0;
	size_t cap = 0;
	ssize_t n;

	while (number < MAX_SYMBOLS && (n = getline(&text, &cap, f)) >= 0) {
		struct part *to = is_loaded(text, (size_t)n) ? loaded : kernel;
		struct line l;
		int r;

		number++;
		if (!to)
			continue;
		r = parse_line(to->k, text, &l);
		if (r == -EBADMSG) {
			if (!told)
				log_line(f, number);
			told = true;
			continue;
		}
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		any = true;
		address |= l.address != 0;
		if (l.address && vec_push(&to->lines, l) < 0)
			return -ENOMEM;
	}
	if (ferror(f))
		return -EIO;
	/* kptr_restrict, or a reader without CAP_SYSLOG: every address reads 0. */
	if (any && !address)
		return -EPERM;
	return any || !kernel ? 0 : -ENODATA;
}

static int compare_lines(const void *pa, const void *pb)
{
	const struct line *a = pa, *b = pb;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	/* Code before data, so that the best name is found in one pass. */
	if (is_text(a->type) != is_text(b->type))
		return is_text(a->type) ? -1 : 1;
	return 0;
}

static struct segment *segment_for(struct kallsyms *k, const struct line *l)
{
	struct segment *s = k->segments.n ? &k->segments.data[k->segments.n - 1] : NULL;

	if (s && s->module == l->module && l->address - s->base <= 0xffffffff)
		return s;
	if (vec_push(&k->segments, (struct segment){.base = l->address,
						    .first = (u32)k->entries.n,
						    .module = l->module}) < 0)
		return NULL;
	return &k->segments.data[k->segments.n - 1];
}

/* Chooses the best name of one address, which the lines [i, ret) share. */
static size_t choose_name(const struct kallsyms *k, const line_vec *lines, size_t i,
			  struct line *ret)
{
	struct line best = lines->data[i];
	u32 best_cost = ~0U;

	for (; i < lines->n && lines->data[i].address == best.address; i++) {
		const struct line *l = &lines->data[i];
		u32 cost = l->name ? name_cost(strtab_get(&k->pool, l->name), l->type) : ~0U;

		if (cost < best_cost) {
			best = *l;
			best_cost = cost;
		}
	}
	*ret = best;
	return i;
}

static u64 segment_end(u64 last, u64 next)
{
	return next - last < MAX_TAIL ? next : last + MAX_TAIL;
}

static int build_segments(struct kallsyms *k, line_vec *lines)
{
	size_t i = 0;

	if (lines->n)
		qsort(lines->data, lines->n, sizeof(*lines->data), compare_lines);
	while (i < lines->n) {
		struct segment *s;
		struct line l;

		i = choose_name(k, lines, i, &l);
		/* A data symbol is kept only if it ends code. */
		if (!l.name && (!k->entries.n || !k->entries.data[k->entries.n - 1].name))
			continue;
		s = segment_for(k, &l);
		if (!s ||
		    vec_push(&k->entries, (struct entry){(u32)(l.address - s->base), l.name}) < 0)
			return -ENOMEM;
		s->n++;
		s->end = segment_end(l.address, i < lines->n ? lines->data[i].address : ~0ULL);
	}
	return 0;
}

/* It is only looked up from now on, for as long as the process runs. */
static void seal(struct kallsyms *k)
{
	struct entry *entries =
		k->entries.n ? reallocarray(k->entries.data, k->entries.n, sizeof(*entries)) : NULL;

	strtab_seal(&k->pool);
	if (entries) {
		k->entries.data = entries;
		k->entries.cap = k->entries.n;
	}
}

static int part_init(struct part *p)
{
	p->k = calloc(1, sizeof(*p->k));
	return p->k ? strtab_init(&p->k->pool) : -ENOMEM;
}

static void part_deinit(struct part *p)
{
	kallsyms_destroy(p->k);
	vec_deinit(&p->lines);
}
#define _cleanup_part_ __attribute__((cleanup(part_deinit)))

int kallsyms_open_parts(const char *path, struct kallsyms **ret_kernel,
			struct kallsyms **ret_loaded)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_part_ struct part kernel = {}, loaded = {};
	int r;

	if (!f)
		return -errno;
	if ((ret_kernel && part_init(&kernel) < 0) || part_init(&loaded) < 0)
		return -ENOMEM;
	r = read_lines(f, ret_kernel ? &kernel : NULL, &loaded);
	if (r == 0 && ret_kernel)
		r = build_segments(kernel.k, &kernel.lines);
	if (r == 0)
		r = build_segments(loaded.k, &loaded.lines);
	if (r < 0)
		return r;
	if (ret_kernel) {
		seal(kernel.k);
		*ret_kernel = take_ptr(kernel.k);
	}
	seal(loaded.k);
	*ret_loaded = take_ptr(loaded.k);
	return 0;
}

int kallsyms_open(const char *path, struct kallsyms **ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	_cleanup_part_ struct part all = {};
	int r;

	if (!f)
		return -errno;
	if (part_init(&all) < 0)
		return -ENOMEM;
	r = read_lines(f, &all, &all);
	if (r == 0)
		r = build_segments(all.k, &all.lines);
	if (r < 0)
		return r;
	*ret = take_ptr(all.k);
	return 0;
}

int kallsyms_lookup(const struct kallsyms *k, u64 address, const char **ret_name,
		    const char **ret_module)
{
	size_t lo = 0, hi = k->segments.n;
	const struct segment *s;
	const struct entry *e;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (k->segments.data[mid].base <= address)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return -ENOENT;
	s = &k->segments.data[lo - 1];
	if (address >= s->end)
		return -ENOENT;
	e = &k->entries.data[s->first];
	for (lo = 0, hi = s->n; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;

		if (e[mid].offset <= address - s->base)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo || !e[lo - 1].name)
		return -ENOENT;
	*ret_name = strtab_get(&k->pool, e[lo - 1].name);
	*ret_module = strtab_get(&k->pool, s->module);
	return 0;
}
