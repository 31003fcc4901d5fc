/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types are read breadth first from the function on, so that those near it come first: beyond
 * MAX_TYPES a pointer leads to void.
 */
#include "symbol/signature.h"

#include <dwarf.h>
#include <errno.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "symbol/dwarf.h"

#define MAX_TYPES 1000
#define MAX_MEMBERS 20000
#define MAX_HOPS 16

struct signatures {
	struct debugfile_place place;
	struct dwarf *dwarf; /* owned */
};

struct reader {
	struct signature *s;
	struct map known; /* offset of a DIE * 2 + (in the dwz file) → index of types */
	vec(struct source {
		struct dw_unit *unit;
		u64 die;
	}) sources; /* of the types, by their index - 2 */
};

static const char *name_of(struct dw_unit *u, const struct dw_die *d)
{
	const char *name = dw_has(d, DW_A_NAME) ? dw_string(u, &d->v[DW_A_NAME]) : NULL;

	return name ? name : "";
}

/* A number, and no reference or expression. */
static bool number_of(const struct dw_die *d, enum dw_slot slot, s64 *ret)
{
	if (!dw_has(d, slot))
		return false;
	switch (d->v[slot].form) {
	case DW_FORM_data1:
	case DW_FORM_data2:
	case DW_FORM_data4:
	case DW_FORM_data8:
	case DW_FORM_udata:
	case DW_FORM_sdata:
	case DW_FORM_implicit_const:
	case DW_FORM_flag:
	case DW_FORM_flag_present:
		*ret = (s64)d->v[slot].u;
		return true;
	default:
		return false;
	}
}

static bool is_alias(u16 tag)
{
	return tag == DW_TAG_typedef || tag == DW_TAG_const_type || tag == DW_TAG_volatile_type ||
	       tag == DW_TAG_restrict_type || tag == DW_TAG_atomic_type;
}

/* The index of the type that an attribute names; it is read later. */
static int type_of(struct reader *r, struct dw_unit *u, const struct dw_die *d, u32 *ret)
{
	struct dw_die at = *d;
	const u64 *known;
	u64 offset, key;
	int e;

	for (u32 hop = 0;; hop++) {
		*ret = hop || !dw_has(&at, DW_A_TYPE) ? SIGNATURE_VOID : SIGNATURE_UNKNOWN;
		if (!dw_has(&at, DW_A_TYPE))
			return 0;
		*ret = SIGNATURE_UNKNOWN;
		u = hop < MAX_HOPS ? dw_follow(u, &at.v[DW_A_TYPE], &offset) : NULL;
		if (!u || !dw_die_read(u, offset, &at))
			return 0;
		if (!is_alias(at.tag))
			break;
	}
	key = offset * 2 + (u->file == u->file->dwarf->alt);
	known = map_get(&r->known, key);
	if (known) {
		*ret = (u32)*known;
		return 0;
	}
	*ret = SIGNATURE_VOID;
	if (r->s->types.n >= MAX_TYPES)
		return 0;
	e = map_put(&r->known, key, r->s->types.n);
	if (e == 0)
		e = vec_push(&r->sources, (struct source){u, offset});
	if (e == 0)
		e = vec_push(&r->s->types, (struct signature_type){.name = ""});
	if (e == 0)
		*ret = (u32)r->s->types.n - 1;
	return e;
}

/* ---- children ---- */

/* Steps to the next child: *offset is d->next of the parent at first. False: there is none. */
static bool next_child(struct dw_unit *u, u64 *offset, struct dw_die *ret)
{
	if (!dw_die_read(u, *offset, ret) || !ret->tag)
		return false;
	(void)dw_skip_children(u, ret, offset);
	return true;
}

static int read_member(struct reader *r, struct dw_unit *u, const struct dw_die *d)
{
	struct signature_member m = {.name = d->tag == DW_TAG_member ? name_of(u, d) : ""};
	s64 at = 0, bits = 0;
	int e;

	/* Static members are no part of it, and expressions are not computed. */
	if (dw_has(d, DW_A_EXTERNAL) || dw_has(d, DW_A_DECLARATION))
		return 0;
	if (number_of(d, DW_A_BIT_SIZE, &bits)) {
		if (!number_of(d, DW_A_DATA_BIT_OFFSET, &at))
			return 0;
	} else if (number_of(d, DW_A_MEMBER_LOCATION, &at)) {
		at *= 8;
	} else if (dw_has(d, DW_A_MEMBER_LOCATION)) {
		return 0;
	}
	if (at < 0 || at > INT32_MAX || bits < 0 || bits > 64 || r->s->members.n >= MAX_MEMBERS)
		return 0;
	m.bit_offset = (u32)at;
	m.bits = (u32)bits;
	e = type_of(r, u, d, &m.type);
	return e < 0 ? e : vec_push(&r->s->members, m);
}

static int read_members(struct reader *r, struct dw_unit *u, const struct dw_die *d,
			struct signature_type *t)
{
	u64 offset = d->next;
	struct dw_die child;
	int e = 0;

	t->first = (u32)r->s->members.n;
	while (d->children && e == 0 && next_child(u, &offset, &child))
		if (child.tag == DW_TAG_member || child.tag == DW_TAG_inheritance)
			e = read_member(r, u, &child);
	t->n = (u32)r->s->members.n - t->first;
	return e;
}

static int read_constants(struct reader *r, struct dw_unit *u, const struct dw_die *d,
			  struct signature_type *t)
{
	u64 offset = d->next;
	struct dw_die child;
	s64 value;
	int e = 0;

	t->first = (u32)r->s->constants.n;
	while (d->children && e == 0 && r->s->constants.n < MAX_MEMBERS &&
	       next_child(u, &offset, &child)) {
		if (child.tag != DW_TAG_enumerator || !number_of(&child, DW_A_CONST_VALUE, &value))
			continue;
		t->is_signed |= child.v[DW_A_CONST_VALUE].form == DW_FORM_sdata && value < 0;
		e = vec_push(&r->s->constants,
			     (struct signature_constant){name_of(u, &child), value});
	}
	t->n = (u32)r->s->constants.n - t->first;
	return e;
}

/* An array of one dimension with a known number of elements. */
static void read_elements(struct dw_unit *u, const struct dw_die *d, struct signature_type *t)
{
	u64 offset = d->next;
	struct dw_die child;
	u32 dimensions = 0;
	s64 n = 0;

	while (d->children && next_child(u, &offset, &child)) {
		if (child.tag != DW_TAG_subrange_type)
			continue;
		dimensions++;
		if (number_of(&child, DW_A_UPPER_BOUND, &n))
			n++;
		else if (!number_of(&child, DW_A_COUNT, &n))
			n = 0;
	}
	t->kind = dimensions == 1 && n >= 0 && n <= INT32_MAX ? SIGNATURE_ARRAY : SIGNATURE_NONE;
	t->n = (u32)n;
}

static void read_base(const struct dw_die *d, struct signature_type *t)
{
	s64 encoding = 0;

	(void)number_of(d, DW_A_ENCODING, &encoding);
	switch (encoding) {
	case DW_ATE_boolean:
		t->kind = SIGNATURE_BOOL;
		break;
	case DW_ATE_signed:
	case DW_ATE_unsigned:
	case DW_ATE_address:
		t->kind = SIGNATURE_INT;
		break;
	case DW_ATE_signed_char:
	case DW_ATE_unsigned_char:
	case DW_ATE_UTF:
		t->kind = t->bytes == 1 ? SIGNATURE_CHAR : SIGNATURE_INT;
		break;
	case DW_ATE_float:
		t->kind = SIGNATURE_FLOAT;
		break;
	default:
		break;
	}
	t->is_signed = encoding == DW_ATE_signed || encoding == DW_ATE_signed_char;
}

static int read_record(struct reader *r, struct dw_unit *u, const struct dw_die *d,
		       struct signature_type *t)
{
	s64 passing = 0;

	t->is_union = d->tag == DW_TAG_union_type;
	t->is_class = u->language != DW_LANG_C && u->language != DW_LANG_C89 &&
		      u->language != DW_LANG_C99 && u->language != DW_LANG_C11 &&
		      u->language != 0x2c /* DW_LANG_C17 */;
	if (dw_has(d, DW_A_DECLARATION))
		return 0;
	if (number_of(d, DW_A_CALLING_CONVENTION, &passing))
		t->passing = (u8)passing;
	t->kind = SIGNATURE_RECORD;
	return read_members(r, u, d, t);
}

static int read_type(struct reader *r, struct source at, u32 index)
{
	struct signature_type t = {.name = ""};
	struct dw_die d;
	s64 bytes = 0;
	int e = 0;

	if (!dw_die_read(at.unit, at.die, &d))
		return 0;
	t.name = name_of(at.unit, &d);
	if (number_of(&d, DW_A_BYTE_SIZE, &bytes) && bytes >= 0 && bytes <= INT32_MAX)
		t.bytes = (u32)bytes;
	switch (d.tag) {
	case DW_TAG_base_type:
		read_base(&d, &t);
		break;
	case DW_TAG_pointer_type:
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
		t.kind = SIGNATURE_POINTER;
		t.bytes = 8;
		e = type_of(r, at.unit, &d, &t.to);
		break;
	case DW_TAG_enumeration_type:
		t.kind = SIGNATURE_ENUM;
		e = read_constants(r, at.unit, &d, &t);
		break;
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
		e = read_record(r, at.unit, &d, &t);
		break;
	case DW_TAG_array_type:
		read_elements(at.unit, &d, &t);
		e = type_of(r, at.unit, &d, &t.to);
		break;
	default:
		break;
	}
	r->s->types.data[index] = t;
	return e;
}

/* ---- the function ---- */

/* The attributes that a DIE has by its origin or its declaration. */
static struct dw_unit *with_origin(struct dw_unit *u, struct dw_die *d, enum dw_slot slot)
{
	for (u32 hop = 0; hop < MAX_HOPS && !dw_has(d, slot); hop++) {
		enum dw_slot next = dw_has(d, DW_A_ORIGIN) ? DW_A_ORIGIN : DW_A_SPECIFICATION;
		struct dw_unit *to;
		u64 offset;

		if (!dw_has(d, next))
			return u;
		to = dw_follow(u, &d->v[next], &offset);
		if (!to || !dw_die_read(to, offset, d))
			return NULL;
		u = to;
	}
	return u;
}

static int read_parameter(struct reader *r, struct dw_unit *u, struct dw_die d)
{
	struct signature_parameter p = {.name = "", .type = SIGNATURE_UNKNOWN};
	s64 is_result = 0;
	struct dw_die named = d;
	struct dw_unit *at = with_origin(u, &named, DW_A_NAME);
	int e = 0;

	(void)number_of(&d, DW_A_VARIABLE_PARAMETER, &is_result);
	p.is_result = is_result != 0;
	if (at)
		p.name = name_of(at, &named);
	at = with_origin(u, &d, DW_A_TYPE);
	if (at)
		e = type_of(r, at, &d, &p.type);
	return e < 0 ? e : vec_push(&r->s->parameters, p);
}

static int read_function(struct reader *r, struct dw_unit *u, const struct dw_die *d)
{
	struct dw_die child, typed = *d;
	struct dw_unit *at;
	u64 offset = d->next;
	s64 convention = 0;
	int e = 0;

	r->s->language = u->language;
	(void)number_of(d, DW_A_CALLING_CONVENTION, &convention);
	r->s->is_changed = convention == DW_CC_nocall;
	while (d->children && e == 0 && next_child(u, &offset, &child))
		if (child.tag == DW_TAG_formal_parameter)
			e = read_parameter(r, u, child);
	at = with_origin(u, &typed, DW_A_TYPE);
	r->s->result = SIGNATURE_UNKNOWN;
	if (e == 0 && at)
		e = type_of(r, at, &typed, &r->s->result);
	/* Go: the first one, which is in the first register. */
	for (size_t i = 0; u->language == DW_LANG_Go && i < r->s->parameters.n; i++)
		if (r->s->parameters.data[i].is_result) {
			r->s->result = r->s->parameters.data[i].type;
			break;
		}
	return e;
}

static int read_all(struct reader *r, struct dwarf *d, u64 svma)
{
	struct dw_unit *u;
	struct dw_die die;
	int e = dwarf_function(d, svma, &u, &die);

	if (e == 0)
		e = vec_push(&r->s->types, (struct signature_type){.name = "void"});
	if (e == 0)
		e = vec_push(&r->s->types, (struct signature_type){.name = ""});
	if (e == 0)
		e = read_function(r, u, &die);
	for (size_t i = 0; i < r->sources.n && e == 0; i++)
		e = read_type(r, r->sources.data[i], (u32)i + 2);
	return e;
}

int signatures_read(struct signatures *s, u64 svma, struct signature *ret)
{
	struct reader r = {.s = ret};
	int e = read_all(&r, s->dwarf, svma);

	vec_deinit(&r.sources);
	map_deinit(&r.known);
	return e;
}

void signature_deinit(struct signature *s)
{
	vec_deinit(&s->types);
	vec_deinit(&s->members);
	vec_deinit(&s->constants);
	vec_deinit(&s->parameters);
}

/* ---- lines ---- */

#define LINE_BUDGET (256ULL << 20)

/*
 * A function, or a copy of an inlined one: what of its code belongs together. A line that calls
 * what is inlined there belongs to the caller.
 */
static u64 block_of(struct dwarf *d, u64 svma, u32 line)
{
	struct dwarf_chain c;
	u32 own = 0;
	u64 key;

	if (dwarf_lookup(d, svma, true, true, &c) < 0 || !c.n)
		return svma;
	for (u32 i = 1; i < c.n; i++)
		if (c.frames[i].line == line)
			own = i;
	key = c.frames[c.n - 1].low * 31 + (c.n - own);
	/* The lines of the calls, from the inlined function outwards. */
	for (u32 i = own + 1; i < c.n; i++)
		key = (key * 1000003 + c.frames[i].line) * 1000003 + c.frames[i].column;
	return key;
}

static int compare_places(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* Keeps the first place of each block. */
static int first_places(struct dwarf *d, u32 line, dw_places *all, signature_places *ret)
{
	struct map seen = {};
	int r = 0;

	qsort(all->data, all->n, sizeof(*all->data), compare_places);
	for (size_t i = 0; i < all->n && r == 0; i++) {
		u64 block = block_of(d, all->data[i], line);

		if (map_get(&seen, block))
			continue;
		r = map_put(&seen, block, 1);
		if (r == 0)
			r = vec_push(ret, all->data[i]);
	}
	map_deinit(&seen);
	return r;
}

int signatures_line(struct signatures *s, const char *file, u32 line, signature_places *ret,
		    u32 *ret_next)
{
	struct dwarf *d = s->dwarf;
	dw_places all = {};
	u32 next = UINT32_MAX;
	int r = dw_units_read(&d->main);

	for (size_t i = 0; i < d->main.units.n && r == 0; i++) {
		struct dw_unit *u;

		d->budget = LINE_BUDGET;
		u = dw_unit_get(&d->main, i);
		if (!u)
			continue;
		r = dw_line_places(u, file, line, &all, &next);
		dw_unit_forget(u);
	}
	*ret_next = next == UINT32_MAX ? 0 : next;
	if (r == 0)
		r = all.n ? first_places(d, line, &all, ret) : -ENOENT;
	vec_deinit(&all);
	return r;
}

/* ---- the file ---- */

static int open_alt(void *arg, struct elf_file *elf, struct elf_file **ret)
{
	const struct signatures *s = arg;

	return debugfile_alt(elf, &s->place, s->place.path, ret);
}

static int open_dwp(void *arg, struct elf_file **ret)
{
	const struct signatures *s = arg;

	return debugfile_dwp(&s->place, s->place.path, ret);
}

static int open_dwo(void *arg, const char *comp_dir, const char *name, struct elf_file **ret)
{
	const struct signatures *s = arg;

	return debugfile_dwo(&s->place, comp_dir, name, ret);
}

int signatures_open(struct elf_file *elf, const struct debugfile_place *place,
		    struct signatures **ret)
{
	struct signatures *s = calloc(1, sizeof(*s));
	const struct dwarf_host host = {
		.arg = s, .open_alt = open_alt, .open_dwp = open_dwp, .open_dwo = open_dwo};
	int r;

	if (!s)
		return -ENOMEM;
	s->place = *place;
	r = dwarf_open(elf, &host, &s->dwarf);
	if (r < 0) {
		free(s);
		return r;
	}
	s->dwarf->with_types = true;
	*ret = s;
	return 0;
}

void signatures_close(struct signatures *s)
{
	if (!s)
		return;
	dwarf_close(s->dwarf);
	free(s);
}
