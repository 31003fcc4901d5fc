/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /api/v1/assembly: the instructions of a function with the value of each. Values come from the
 * store. Code comes from the binary, if it is on this machine, every user may read it, and it is
 * the binary that was sampled.
 *
 * 	places	addresses in the function that samples have, ascending, each once
 * 	ranges	begin and end of the functions around them, from the binary, ascending
 *
 * A place without a range is in the answer without its instruction, so that no sample is missing.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "base/vocab.h"
#include "disasm/disasm.h"
#include "dwarf/cfi.h"
#include "server/api/internal.h"
#include "symbol/symbol.h"
#include "symbol/symtab.h"

#define MAX_CODE (1 << 20) /* bytes that one answer decodes */
#define MAX_INSTRUCTIONS 20000
#define WHOLE 16384 /* larger functions are shown near samples only */
#define NEAR 256
#define MAX_SECTIONS (256ULL << 20) /* bytes of a file that are read to find functions */

struct place {
	u64 svma;
	s64 self, total;
	u64 seen;  /* number of the sample that counted it last, from 1 */
	u32 frame; /* the innermost frame at this address */
};

struct code_range {
	u64 start, end;
};

struct assembly {
	const struct profile *p;
	const char *file, *function;
	const char *roots;    /* of api_options */
	const char *build_id; /* NULL: the build-id of the first frame of the function */
	vec(struct place) places;
	u32 *place_of;	 /* owned; indexed by frame: place + 1, 0 = not in the function */
	s64 self, total; /* of the function; a sample counts once */
	vec(struct code_range) ranges;
	struct elf_file *elf; /* owned, as what follows */
	struct symtab symbols;
	struct disasm *decoder;
	struct disasm_text *text;
};

static void assembly_deinit(struct assembly *a)
{
	vec_deinit(&a->places);
	vec_deinit(&a->ranges);
	free(a->place_of);
	disasm_destroy(a->decoder);
	disasm_text_destroy(a->text);
	symtab_deinit(&a->symbols);
	elf_file_destroy(a->elf);
}

/* ---- values ---- */

/* Whether `file` stands for code of this kind that has no file, such as "[jit]". */
static bool is_of_kind(const char *file, u8 kind)
{
	const char *name = vocab_frame_kind(kind)->name;
	size_t n = strlen(name);

	return file[0] == '[' && !strncmp(file + 1, name, n) && !strcmp(file + 1 + n, "]");
}

static bool is_mine(struct assembly *a, const struct profile_frame *f)
{
	const struct profile_mapping *m;
	const char *build_id;

	if (f->function == PROFILE_NONE || (f->flags & PROFILE_FRAME_OFFSET) ||
	    strcmp(profile_string(a->p, a->p->functions.data[f->function].name), a->function) != 0)
		return false;
	if (f->mapping == PROFILE_NONE)
		return is_of_kind(a->file, f->kind);
	m = &a->p->mappings.data[f->mapping];
	if (strcmp(profile_string(a->p, m->path), a->file) != 0)
		return false;
	build_id = profile_string(a->p, m->build_id);
	if (!a->build_id)
		a->build_id = build_id;
	return !strcmp(build_id, a->build_id);
}

static int compare_places(const void *x, const void *y)
{
	const struct place *a = x, *b = y;

	return a->svma < b->svma ? -1 : a->svma > b->svma;
}

/* The index of the place at an address, or of the first place after it. */
static size_t place_from(const struct assembly *a, u64 svma)
{
	size_t lo = 0, hi = a->places.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (a->places.data[mid].svma < svma)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int find_places(struct assembly *a)
{
	size_t n = 0;

	a->place_of = calloc(a->p->frames.n + 1, sizeof(*a->place_of));
	if (!a->place_of)
		return -ENOMEM;
	for (size_t i = 0; i < a->p->frames.n; i++) {
		const struct profile_frame *f = &a->p->frames.data[i];

		if (!is_mine(a, f))
			continue;
		a->place_of[i] = 1;
		if (vec_push(&a->places, (struct place){.svma = f->address, .frame = (u32)i}) < 0)
			return -ENOMEM;
	}
	if (!a->places.n)
		return 0;
	qsort(a->places.data, a->places.n, sizeof(*a->places.data), compare_places);
	for (size_t i = 0; i < a->places.n; i++)
		if (!n || a->places.data[n - 1].svma != a->places.data[i].svma)
			a->places.data[n++] = a->places.data[i];
	a->places.n = n;
	for (size_t i = 0; i < a->p->frames.n; i++)
		if (a->place_of[i])
			a->place_of[i] = (u32)place_from(a, a->p->frames.data[i].address) + 1;
	return 0;
}

static void count_sample(struct assembly *a, size_t i)
{
	const struct profile_sample *s = profile_sample(a->p, i);
	const struct profile_stack *stack = &a->p->stacks.data[s->stack];
	const u32 *frames = &a->p->stack_frames.data[stack->first];
	s64 value = s->value[a->p->default_type];
	bool leaf = true, any = false;
	u32 inner = 0; /* the first of the inlined frames of one machine frame */

	for (u32 k = 0; k < stack->n; k++) {
		struct place *place;

		if (k && !(a->p->frames.data[frames[k - 1]].flags & PROFILE_FRAME_INLINED)) {
			leaf = false;
			inner = k;
		}
		if (!a->place_of[frames[k]])
			continue;
		place = &a->places.data[a->place_of[frames[k]] - 1];
		if (place->seen == i + 1)
			continue;
		place->seen = i + 1;
		place->frame = frames[inner];
		place->total += value;
		place->self += leaf ? value : 0;
		a->total += any ? 0 : value;
		a->self += leaf && !any ? value : 0;
		any = true;
	}
}

/* ---- the binary ---- */

static bool same_build(const struct elf_file *f, const char *build_id)
{
	char hex[2 * ELF_MAX_BUILD_ID + 1] = "";

	text_hex(f->build_id, f->build_id_n, hex);
	return !strcmp(hex, build_id);
}

/* A binary without a build-id is the sampled one if it is older than the samples. */
static int check_build(const struct assembly *a, const struct stat *st, u64 from_ms)
{
	bool named = *a->build_id && !str_starts(a->build_id, PROFILE_HTLHASH);

	if (named)
		return same_build(a->elf, a->build_id) ? 0 : -ESTALE;
	return (u64)st->st_mtim.tv_sec * 1000 < from_ms && (u64)st->st_ctim.tv_sec * 1000 < from_ms
		       ? 0
		       : -ESTALE;
}

static int open_elf(struct assembly *a, int fd, u64 from_ms)
{
	struct diag d = {};
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0) {
		close(fd);
		return -EACCES;
	}
	r = elf_file_open(fd, &d, &a->elf);
	if (r < 0)
		return r == -ENOMEM ? r : -ENOEXEC;
	a->elf->max_memory = MAX_SECTIONS;
	return check_build(a, &st, from_ms);
}

static int try_mapped(void *arg, int fd)
{
	struct assembly *a = arg;
	/* 0: its times say nothing about what other processes have mapped. Only a build-id does. */
	int r = open_elf(a, fd, 0);

	if (r == 0)
		return 1;
	elf_file_destroy(a->elf);
	a->elf = NULL;
	return r == -ENOMEM ? r : 0;
}

static int open_binary(const struct api_options *o, struct assembly *a, u64 from_ms)
{
	int fd = -1, r = api_open_public(a->file, a->roots, &fd), other;

	if (r == 0)
		r = open_elf(a, fd, from_ms);
	if (r < 0 && r != -ENOMEM && a->file[0] == '/' && o->find_mapped) {
		elf_file_destroy(a->elf);
		a->elf = NULL;
		other = o->find_mapped(o->userdata, a->file, try_mapped, a);
		r = other == -ENOENT ? r : other;
	}
	if (r == 0)
		r = disasm_create(a->elf->machine, &a->decoder);
	if (r == 0)
		r = disasm_text_create(a->elf->machine, &a->text);
	return r;
}

static int add_range(struct assembly *a, u64 start, u64 end)
{
	struct code_range *last = a->ranges.n ? &a->ranges.data[a->ranges.n - 1] : NULL;

	if (end <= start || (last && start < last->end))
		return 0;
	return vec_push(&a->ranges, (struct code_range){start, end});
}

static int compare_ranges(const void *x, const void *y)
{
	const struct code_range *a = x, *b = y;

	return a->start < b->start ? -1 : a->start > b->start;
}

/* Functions without symbols: the unwind tables know where they begin and end. */
static int add_unnamed_ranges(struct assembly *a)
{
	struct elf_section section;
	struct cfi_table t;
	struct cfi_fde fde;
	struct buf bytes;
	u64 at = 0, offset;
	int r = 0;

	if (elf_file_section(a->elf, ".eh_frame", &section, &bytes) < 0 ||
	    cfi_table_init(&t, bytes, section.svma, true, a->elf->machine) < 0)
		return 0;
	while (r == 0 && cfi_next(&t, &at, &offset)) {
		size_t i;

		if (cfi_fde_at(&t, offset, &fde) < 0)
			continue;
		i = place_from(a, fde.start);
		if (i < a->places.n && a->places.data[i].svma < fde.end &&
		    !symtab_find(&a->symbols, a->places.data[i].svma))
			r = vec_push(&a->ranges, (struct code_range){fde.start, fde.end});
	}
	return r;
}

static int find_ranges(struct assembly *a)
{
	size_t n = 0;
	int r = symtab_add(&a->symbols, a->elf, false), e = symtab_add(&a->symbols, a->elf, true);

	if (r == -ENOMEM || e == -ENOMEM)
		return -ENOMEM;
	r = symtab_finish(&a->symbols);
	for (size_t i = 0; i < a->places.n && r == 0; i++) {
		const struct symtab_entry *s = symtab_find(&a->symbols, a->places.data[i].svma);

		if (s)
			r = add_range(a, s->start, s->end);
	}
	if (r == 0)
		r = add_unnamed_ranges(a);
	if (r < 0 || !a->ranges.n)
		return r;
	qsort(a->ranges.data, a->ranges.n, sizeof(*a->ranges.data), compare_ranges);
	for (size_t i = 0; i < a->ranges.n; i++)
		if (!n || a->ranges.data[n - 1].end <= a->ranges.data[i].start)
			a->ranges.data[n++] = a->ranges.data[i];
	a->ranges.n = n;
	return 0;
}

/* ---- the answer ---- */

struct put {
	struct api_call *c;
	struct assembly *a;
	size_t next; /* place */
	u32 n;
};

static void put_one(struct put *o, u64 svma, u32 length, const struct place *place,
		    const char *text)
{
	const struct profile_frame *f = place ? &o->a->p->frames.data[place->frame] : NULL;
	struct json_writer *w = &o->c->json;

	o->n++;
	json_open_array(w, NULL);
	json_put_u64(w, NULL, svma);
	json_put_u64(w, NULL, length);
	json_put_s64(w, NULL, place ? place->self : 0);
	json_put_s64(w, NULL, place ? place->total : 0);
	json_put_text(w, NULL, text);
	json_put_text(w, NULL,
		      f && f->function != PROFILE_NONE
			      ? profile_string(o->a->p, o->a->p->functions.data[f->function].file)
			      : "");
	json_put_u64(w, NULL, f ? f->line : 0);
	json_close(w);
}

static void put_places_before(struct put *o, u64 svma)
{
	for (; o->next < o->a->places.n && o->a->places.data[o->next].svma < svma; o->next++)
		put_one(o, o->a->places.data[o->next].svma, 0, &o->a->places.data[o->next], "");
}

static bool is_near(const struct put *o, u64 svma)
{
	size_t i = place_from(o->a, svma > NEAR ? svma - NEAR : 0);

	return i < o->a->places.n && o->a->places.data[i].svma < svma + NEAR;
}

/* Appends " <puts>" to a call or jump to the beginning of another function. */
static void put_target(struct put *o, const struct code_range *range, struct buf code, u64 svma,
		       struct str *text)
{
	const struct symtab_entry *s;
	_cleanup_free_ char *name = NULL;
	struct disasm_insn insn;

	if (!disasm_one(o->a->decoder, code, svma, &insn) || insn.target == ~0ULL ||
	    (insn.target >= range->start && insn.target < range->end))
		return;
	s = symtab_find(&o->a->symbols, insn.target);
	if (!s || s->start != insn.target || symtab_plt_name(o->a->elf, insn.target, &name) == 0) {
		if (name)
			str_printf(text, " <%s>", name);
		return;
	}
	name = symbol_demangle(s->name);
	str_printf(text, " <%s>", name ? name : s->name);
}

static int put_range(struct put *o, const struct code_range *range, u64 *budget)
{
	size_t n = (size_t)MIN(range->end - range->start, *budget);
	_cleanup_free_ u8 *bytes = malloc(n + 1);
	_cleanup_str_ struct str line = {};
	ssize_t got = bytes ? elf_file_copy(o->a->elf, range->start, n, bytes) : -ENOMEM;
	struct buf code;
	char text[192];

	if (got < 0)
		return got == -ENOMEM ? -ENOMEM : 0;
	*budget -= n;
	code = buf_of(bytes, (size_t)got);
	put_places_before(o, range->start);
	while (buf_left(&code) && o->n < MAX_INSTRUCTIONS) {
		u64 svma = range->start + (u64)(code.pos - bytes);
		u32 length = disasm_text_one(o->a->text, code, svma, text, sizeof(text));
		struct place sum = {.frame = PROFILE_NONE};

		for (; o->next < o->a->places.n && o->a->places.data[o->next].svma < svma + length;
		     o->next++) {
			sum.self += o->a->places.data[o->next].self;
			sum.total += o->a->places.data[o->next].total;
			sum.frame = o->a->places.data[o->next].frame;
		}
		if (n <= WHOLE || is_near(o, svma)) {
			str_clear(&line);
			str_puts(&line, text);
			put_target(o, range, code, svma, &line);
			put_one(o, svma, length, sum.frame != PROFILE_NONE ? &sum : NULL,
				str_get(&line));
		}
		buf_skip(&code, length);
	}
	return 0;
}

static int put_instructions(struct api_call *c, struct assembly *a)
{
	struct put o = {.c = c, .a = a};
	u64 budget = MAX_CODE;
	int r = 0;

	json_open_array(&c->json, "instructions");
	for (size_t i = 0; i < a->ranges.n && r == 0; i++)
		r = put_range(&o, &a->ranges.data[i], &budget);
	/* Interpreted code has no addresses. */
	if (a->file[0] == '/' || (a->places.n && a->places.data[0].svma > 0))
		put_places_before(&o, ~0ULL);
	json_close(&c->json);
	return r;
}

static const char *why_not(const struct assembly *a, int r)
{
	u8 kind = a->p->frames.data[a->places.data[0].frame].kind;

	if (kind == FRAME_KERNEL)
		return "The kernel's code is not read: what runs was changed at boot, is in no "
		       "file, and is root's alone to see. Of its samples the function is kept.";
	if (a->file[0] != '/')
		return kind == FRAME_NATIVE
			       ? "This code is in no file."
			       : "Its runtime made this code in memory, or reads it as data; what "
				 "was there is not kept. Source lines say more.";
	switch (r) {
	case 0:
		return a->ranges.n ? "" : "The file does not say where its functions begin.";
	case -ENOENT:
	case -EACCES:
	case -EPERM:
		return api_not_public(r);
	case -ESTALE:
		return "The file on the server's machine is not the one that was sampled.";
	default:
		return "The file is no program of x86-64 or arm64.";
	}
}

static void put_head(struct json_writer *w, const struct assembly *a, const struct query *q)
{
	const struct profile_type *type = &a->p->types[a->p->default_type];
	s64 all = 0;

	for (size_t i = 0; i < a->p->n_samples; i++)
		all += profile_sample(a->p, i)->value[a->p->default_type];
	json_put_u64(w, "from", q->from_ms);
	json_put_u64(w, "to", q->to_ms);
	json_put_text(w, "file", a->file);
	json_put_text(w, "build_id", a->build_id ? a->build_id : "");
	json_put_text(w, "function", a->function);
	json_put_text(w, "type", profile_string(a->p, type->name));
	json_put_text(w, "unit", profile_string(a->p, type->unit));
	json_put_s64(w, "all", all);
	json_put_s64(w, "self", a->self);
	json_put_s64(w, "total", a->total);
}

static int answer_assembly(struct api_call *c, struct assembly *a, const struct query *q)
{
	int r = find_places(a), why;

	for (size_t i = 0; i < a->p->n_samples && a->places.n && r == 0; i++)
		count_sample(a, i);
	if (r < 0)
		return r;
	/*
	 * Only for a function that has samples, so that the API does not disclose arbitrary files.
	 */
	why = a->places.n ? open_binary(&c->a->o, a, q->from_ms) : -ENOENT;
	if (why == 0)
		why = find_ranges(a);
	if (why == -ENOMEM)
		return why;
	json_open_object(&c->json, NULL);
	put_head(&c->json, a, q);
	json_put_text(&c->json, "why",
		      a->places.n ? why_not(a, why) : "No sample has this function.");
	r = put_instructions(c, a);
	json_close(&c->json);
	return r;
}

static int assembly(struct api_call *c)
{
	const char *file = net_parameter(c->r, "file");
	const char *function = net_parameter(c->r, "function");
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_query_ struct query q = {};
	struct assembly a = {.file = file,
			     .function = function,
			     .roots = c->a->o.source_roots,
			     .build_id = net_parameter(c->r, "build_id")};
	int r = api_query(c, "", &q);

	if (r == 0 && (!file || !*file || strlen(file) >= PATH_MAX || !function))
		r = diag_set(&c->d, -EINVAL,
			     "which function of which file? ?file=/usr/bin/app&function=main");
	if (r == 0)
		r = api_spans(c, "", &q);
	if (r == 0)
		r = query_profile(c->a->o.store, &q, API_MAX_STACKS, &p, &c->d);
	a.p = p;
	if (r == 0)
		r = answer_assembly(c, &a, &q);
	assembly_deinit(&a);
	return r;
}

const struct api_route api_assembly_routes[] = {
	{"GET", "/api/v1/assembly", NET_ROLE_READ, API_STYLE_JSON, assembly},
	{},
};
