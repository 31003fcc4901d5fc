// SPDX-License-Identifier: Apache-2.0
/* Types by BTF: members, sizes, names. Layouts of values are in layout.c. */
#include "trace/types.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/closest.h"

#define MAX_DEPTH 16 /* anonymous structs in structs */

int trace_types_init(struct trace_types *t, const struct btf *kernel, struct arena *a)
{
	*t = (struct trace_types){.kernel = kernel, .arena = a, .max_string = 1024};
	t->all = kernel ? btf__new_empty_split((struct btf *)kernel) : btf__new_empty();
	return t->all ? 0 : -ENOMEM;
}

u32 trace_btf_plain(const struct trace_types *t, u32 id)
{
	for (u32 i = 0; id && i < 32; i++) {
		const struct btf_type *b = btf__type_by_id(t->all, id);

		if (!b)
			return 0;
		if (!btf_is_mod(b) && !btf_is_typedef(b) && btf_kind(b) != BTF_KIND_TYPE_TAG)
			return id;
		id = b->type;
	}
	return 0;
}

u32 trace_btf_bytes(const struct trace_types *t, u32 id)
{
	s64 n = id ? btf__resolve_size(t->all, id) : 1;

	return n < 0 || n > INT32_MAX ? 0 : (u32)n;
}

const char *trace_btf_name(const struct trace_types *t, u32 id)
{
	const struct btf_type *b = btf__type_by_id(t->all, id);
	const char *name = b ? btf__name_by_offset(t->all, b->name_off) : NULL;

	return name && *name ? name : "void";
}

static struct trace_type array_of_btf(const struct trace_types *t, const struct btf_type *b)
{
	const struct btf_array *a = btf_array(b);
	struct trace_type element = trace_type_of_btf(t, a->type);
	struct trace_type *of;

	if (element.kind == TRACE_INT && element.bytes == 1 && a->nelems &&
	    str_same(trace_btf_name(t, trace_btf_plain(t, a->type)), "char"))
		return trace_type_string(a->nelems);
	of = arena_alloc(t->arena, sizeof(*of));
	if (!of)
		return (struct trace_type){};
	*of = element;
	return (struct trace_type){.kind = TRACE_ARRAY, .n = a->nelems, .btf = a->type, .of = of};
}

struct trace_type trace_type_of_btf(const struct trace_types *t, u32 id)
{
	const struct btf_type *b;

	id = trace_btf_plain(t, id);
	b = id ? btf__type_by_id(t->all, id) : NULL;
	if (!b)
		return (struct trace_type){};
	switch (btf_kind(b)) {
	case BTF_KIND_INT:
		return trace_type_int(b->size > 8 ? 8 : b->size,
				      btf_int_encoding(b) & BTF_INT_SIGNED);
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64: {
		struct trace_type e = trace_type_int(b->size, btf_kflag(b));

		e.btf = id;
		return e;
	}
	case BTF_KIND_PTR:
		return (struct trace_type){.kind = TRACE_POINTER, .btf = b->type};
	case BTF_KIND_ARRAY:
		return array_of_btf(t, b);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return (struct trace_type){.kind = TRACE_RECORD, .btf = id};
	case BTF_KIND_FLOAT:
		return trace_type_int(b->size > 8 ? 8 : b->size, false);
	default:
		return (struct trace_type){};
	}
}

static bool find_member(const struct trace_types *t, u32 id, const char *name, u32 depth,
			struct trace_place_in *ret)
{
	const struct btf_type *b;
	const struct btf_member *m;

	id = trace_btf_plain(t, id);
	b = id ? btf__type_by_id(t->all, id) : NULL;
	if (!b || !btf_is_composite(b) || depth > MAX_DEPTH)
		return false;
	m = btf_members(b);
	for (u32 i = 0; i < btf_vlen(b); i++) {
		const char *is = btf__name_by_offset(t->all, m[i].name_off);
		u32 at = btf_member_bit_offset(b, i);

		if (is && *is && strcmp(is, name) == 0) {
			*ret = (struct trace_place_in){m[i].type, at,
						       btf_member_bitfield_size(b, i)};
			return true;
		}
		if (is && !*is && find_member(t, m[i].type, name, depth + 1, ret)) {
			ret->bit_offset += at;
			return true;
		}
	}
	return false;
}

static void list_members(const struct trace_types *t, u32 id, u32 depth, const char **names,
			 size_t cap, size_t *n)
{
	const struct btf_type *b;

	id = trace_btf_plain(t, id);
	b = id ? btf__type_by_id(t->all, id) : NULL;
	for (u32 i = 0; b && btf_is_composite(b) && i < btf_vlen(b) && *n < cap; i++) {
		const struct btf_member *m = btf_members(b) + i;
		const char *is = btf__name_by_offset(t->all, m->name_off);

		if (is && *is)
			names[(*n)++] = is;
		else if (depth < MAX_DEPTH)
			list_members(t, m->type, depth + 1, names, cap, n);
	}
}

int trace_btf_member(const struct trace_types *t, u32 id, const char *name,
		     struct trace_place_in *ret, struct diag *d)
{
	_cleanup_str_ struct str there = {};
	const char *names[256];
	size_t n = 0;

	if (find_member(t, id, name, 0, ret))
		return 0;
	list_members(t, id, 0, names, ARRAY_SIZE(names), &n);
	if (!n)
		return diag_set(d, -ENOENT, "the members of struct %s are not known here",
				trace_btf_name(t, id));
	closest_append(&there, name, names, n, 100);
	return diag_set(d, -ENOENT, "struct %s has no member \"%s\"; it has %s",
			trace_btf_name(t, id), name, str_get(&there));
}

u32 trace_btf_pointer(struct trace_types *t, u32 id)
{
	s32 r = btf__add_ptr(t->all, (s32)id);

	return r < 0 ? 0 : (u32)r;
}

/* The language's names of integers: int8 to int64, uint8 to uint64, char, bool. */
static bool integer_name(const char *name, u32 *ret_bytes, bool *ret_signed)
{
	const char *digits = name + (str_starts(name, "uint") ? 4 : 3);
	static const struct {
		const char *text;
		u32 bytes;
	} sizes[] = {{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}};

	if (str_same(name, "char")) {
		*ret_bytes = 1;
		*ret_signed = true;
		return true;
	}
	if (str_same(name, "bool") || str_same(name, "_Bool")) {
		*ret_bytes = 1;
		*ret_signed = false;
		return true;
	}
	if (!str_starts(name, "uint") && !str_starts(name, "int"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		if (!str_same(digits, sizes[i].text))
			continue;
		*ret_bytes = sizes[i].bytes;
		*ret_signed = name[0] == 'i';
		return true;
	}
	return false;
}

/* A type by name, negative: there is none. The script's own come before those of the kernel. */
static s32 find_type(const struct trace_types *t, const char *name, u32 kind)
{
	u32 own = t->kernel ? btf__type_cnt(t->kernel) : 1, n = btf__type_cnt(t->all);

	for (u32 id = own; id < n; id++) {
		const struct btf_type *b = btf__type_by_id(t->all, id);

		if (btf_kind(b) == kind && str_same(btf__name_by_offset(t->all, b->name_off), name))
			return (s32)id;
	}
	return t->kernel ? btf__find_by_name_kind(t->kernel, name, kind) : -ENOENT;
}

/* An integer of the name in the script's BTF. */
static u32 find_integer(struct trace_types *t, const char *name)
{
	u32 bytes = 0;
	bool is_signed = false;
	s32 id = find_type(t, name, BTF_KIND_INT);

	if (id > 0)
		return (u32)id;
	if (!integer_name(name, &bytes, &is_signed))
		return 0;
	id = btf__add_int(t->all, name, bytes, is_signed ? BTF_INT_SIGNED : 0);
	return id < 0 ? 0 : (u32)id;
}

static u32 find_named(struct trace_types *t, const char *name)
{
	static const struct {
		const char *prefix;
		u32 kind;
	} kinds[] = {
		{"struct ", BTF_KIND_STRUCT}, {"union ", BTF_KIND_UNION}, {"enum ", BTF_KIND_ENUM}};
	s32 id;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!str_starts(name, kinds[i].prefix))
			continue;
		name += strlen(kinds[i].prefix);
		id = find_type(t, name, kinds[i].kind);
		if (id < 0 && kinds[i].kind == BTF_KIND_ENUM)
			id = find_type(t, name, BTF_KIND_ENUM64);
		return id < 0 ? 0 : (u32)id;
	}
	id = find_type(t, name, BTF_KIND_TYPEDEF);
	if (id > 0)
		return (u32)id;
	id = find_type(t, name, BTF_KIND_STRUCT);
	return id > 0 ? (u32)id : find_integer(t, name);
}

/* C's names of integers in more than one word, as tracepoints have them. */
static const char *c_integer(const char *name)
{
	static const struct {
		const char *c, *ours;
	} names[] = {{"unsigned", "uint32"},
		     {"unsigned int", "uint32"},
		     {"int", "int32"},
		     {"short", "int16"},
		     {"unsigned short", "uint16"},
		     {"unsigned char", "uint8"},
		     {"signed char", "int8"},
		     {"long", "int64"},
		     {"unsigned long", "uint64"},
		     {"long long", "int64"},
		     {"unsigned long long", "uint64"}};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_same(name, names[i].c))
			return names[i].ours;
	return name;
}

u32 trace_btf_find(struct trace_types *t, const char *name)
{
	char word[128];
	u32 pointers = 0, id;
	size_t n;

	while (str_starts(name, "const "))
		name += 6;
	n = strlen(name);
	while (n && (name[n - 1] == '*' || name[n - 1] == ' '))
		pointers += name[--n] == '*';
	if (!n || n >= sizeof(word))
		return 0;
	memcpy(word, name, n);
	word[n] = 0;
	id = str_same(word, "void") ? 0 : find_named(t, c_integer(word));
	if (!id && !str_same(word, "void"))
		return 0;
	while (pointers--)
		id = trace_btf_pointer(t, id);
	return id;
}

/* ---- structs that the script defines ---- */

#define MAX_STRUCT (1u << 20) /* bytes */
#define SELF UINT32_MAX	      /* id of a pointer to the struct that is being defined */

struct laid_out {
	u32 id, bytes, align;
};

/*
 * The type of a member, made if need be. A pointer to a struct that nobody knows is a pointer to
 * void, as only its address can be used.
 */
static u32 member_type(struct trace_types *t, const struct trace_struct *s,
		       const struct trace_type_name *n)
{
	u32 pointers = n->pointers, id = 0;
	bool is_void = n->name && str_same(n->name, "void");

	if (n->of)
		id = member_type(t, s, n->of);
	else if (n->name && !is_void)
		id = trace_btf_find(t, n->name);
	if (!id && n->name && str_same(n->name, s->name) && pointers == 1 && !n->is_array)
		return SELF;
	if (!id && (!pointers || !n->name || (!is_void && !strchr(n->name, ' '))))
		return 0;
	while (pointers--)
		id = trace_btf_pointer(t, id);
	if (id && n->is_array) {
		s32 index = (s32)find_integer(t, "uint32");

		id = (u32)MAX(btf__add_array(t->all, index, (s32)id, n->elements), 0);
	}
	return id;
}

static int lay_out_member(struct trace_types *t, const struct trace_struct *s,
			  const struct trace_member *m, struct laid_out *ret, struct diag *d)
{
	u32 id = member_type(t, s, &m->type);
	s64 bytes;

	if (!id)
		return diag_set(d, -EINVAL, "%u:%u: the type of this member is not known%s%s",
				m->at.line, m->at.column, m->type.name ? ": " : "",
				m->type.name ? m->type.name : "");
	bytes = id == SELF ? 8 : btf__resolve_size(t->all, id);
	if (bytes < 0 || bytes > MAX_STRUCT || (m->bits && (u64)bytes * 8 < m->bits))
		return diag_set(d, -EINVAL, "%u:%u: this member cannot be laid out", m->at.line,
				m->at.column);
	*ret = (struct laid_out){.id = id, .bytes = (u32)bytes, .align = 8};
	if (s->is_packed)
		ret->align = 1;
	else if (id != SELF)
		ret->align = (u32)MAX(btf__align_of(t->all, (s32)id), 1);
	return 0;
}

/*
 * Adds a struct with its members at C's alignments. Types of members come before it, because
 * members can only be added to the last type; a pointer to itself comes right behind it.
 */
static int define_struct(struct trace_types *t, const struct trace_struct *s, const char *name,
			 struct diag *d)
{
	_cleanup_free_ struct laid_out *members = calloc(s->members.n + 1, sizeof(*members));
	u64 bits = 0, largest = 0, align = 1;
	bool has_self = false;
	s32 id;

	if (!members)
		return -ENOMEM;
	for (size_t i = 0; i < s->members.n; i++) {
		if (lay_out_member(t, s, &s->members.data[i], &members[i], d) < 0)
			return -EINVAL;
	}
	id = s->is_union ? btf__add_union(t->all, name, 0) : btf__add_struct(t->all, name, 0);
	for (size_t i = 0; i < s->members.n && id > 0; i++) {
		const struct trace_member *m = &s->members.data[i];
		u64 unit = MAX(members[i].align, 1u) * 8ULL, room = members[i].bytes * 8ULL;

		if (s->is_union)
			bits = 0;
		if (!m->bits || !room || (!s->is_packed && bits % room + m->bits > room))
			bits = (bits + unit - 1) / unit * unit;
		has_self |= members[i].id == SELF;
		if (bits / 8 > MAX_STRUCT ||
		    btf__add_field(t->all, m->name,
				   members[i].id == SELF ? id + 1 : (s32)members[i].id, (u32)bits,
				   m->bits) < 0)
			return diag_set(d, -EINVAL, "%u:%u: this member cannot be laid out",
					m->at.line, m->at.column);
		bits += m->bits ? m->bits : room;
		largest = MAX(largest, bits);
		align = MAX(align, (u64)members[i].align);
	}
	if (id < 0 || (has_self && btf__add_ptr(t->all, id) != id + 1))
		return -ENOMEM;
	((struct btf_type *)btf__type_by_id(t->all, (u32)id))->size =
		(u32)((largest + align * 8 - 1) / (align * 8) * align);
	return 0;
}

static int define_enum(struct trace_types *t, const struct trace_struct *s)
{
	const char *name = str_starts(s->name, "enum ") ? s->name + 5 : s->name;
	s32 r = btf__add_enum(t->all, *name ? name : NULL, 4);

	vec_foreach (&s->constants, c)
		if (r >= 0)
			r = btf__add_enum_value(t->all, c->name, c->value);
	return r < 0 ? r : 0;
}

/* The earlier definition of a type by the script; NULL: there is none. */
static const struct trace_struct *defined_before(const struct trace_script *s,
						 const struct trace_struct *x)
{
	for (const struct trace_struct *old = s->structs.data; *x->name && old < x; old++)
		if (str_same(old->name, x->name))
			return old;
	return NULL;
}

int trace_types_define(struct trace_types *t, const struct trace_script *s, struct diag *d)
{
	vec_foreach (&s->structs, x) {
		const struct trace_struct *before = defined_before(s, x);
		const char *name = strchr(x->name, ' ');
		int r;

		if (before)
			return diag_set(d, -EINVAL, "%u:%u: %s is defined twice, first in line %u",
					x->at.line, x->at.column, x->name, before->at.line);
		name = name ? name + 1 : x->name;
		if (x->is_enum) {
			if (define_enum(t, x) < 0)
				return diag_set(d, -EINVAL,
						"%u:%u: this enum has constants that "
						"cannot be kept",
						x->at.line, x->at.column);
			continue;
		}
		r = define_struct(t, x, name, d);
		if (r < 0)
			return r;
	}
	return 0;
}

bool trace_btf_constant(const struct trace_types *t, const char *name, s64 *ret, u32 *ret_enum)
{
	u32 n = btf__type_cnt(t->all);

	for (u32 id = 1; id < n; id++) {
		const struct btf_type *b = btf__type_by_id(t->all, id);

		for (u32 i = 0; btf_is_enum(b) && i < btf_vlen(b); i++) {
			const struct btf_enum *e = btf_enum(b) + i;

			if (!str_same(btf__name_by_offset(t->all, e->name_off), name))
				continue;
			*ret = btf_kflag(b) ? (s64)e->val : (s64)(u32)e->val;
			*ret_enum = id;
			return true;
		}
		for (u32 i = 0; btf_is_enum64(b) && i < btf_vlen(b); i++) {
			const struct btf_enum64 *e = btf_enum64(b) + i;

			if (!str_same(btf__name_by_offset(t->all, e->name_off), name))
				continue;
			*ret = (s64)btf_enum64_value(e);
			*ret_enum = id;
			return true;
		}
	}
	return false;
}

/* Puts `of` around: arrays, and pointers to them. */
static int wrap_name(struct trace_types *t, const struct trace_type_name *n, u32 id,
		     struct trace_type *ret, struct diag *d)
{
	struct trace_type *of;

	for (u32 i = 0; i < n->pointers; i++)
		id = trace_btf_pointer(t, id);
	*ret = trace_type_of_btf(t, id);
	if (n->pointers && !id)
		return -ENOMEM;
	if (!n->is_array)
		return 0;
	if (ret->kind == TRACE_INT && ret->bytes == 1 && n->name && str_same(n->name, "char") &&
	    n->elements) {
		*ret = trace_type_string(n->elements);
		return 0;
	}
	of = arena_alloc(t->arena, sizeof(*of));
	if (!of)
		return -ENOMEM;
	*of = *ret;
	*ret = (struct trace_type){.kind = TRACE_ARRAY, .n = n->elements, .btf = id, .of = of};
	return 0;
}

int trace_type_of_name(struct trace_types *t, const struct trace_type_name *n,
		       struct trace_type *ret, struct diag *d)
{
	struct trace_type inner;
	u32 id;
	int r;

	if (n->of) {
		r = trace_type_of_name(t, n->of, &inner, d);
		if (r < 0)
			return r;
		id = inner.kind == TRACE_POINTER ? trace_btf_pointer(t, inner.btf) : inner.btf;
		if (inner.kind == TRACE_INT && !id)
			id = find_integer(t, trace_type_text(t, &inner));
		if (inner.kind == TRACE_ARRAY)
			id = (u32)MAX(btf__add_array(t->all, (s32)find_integer(t, "uint32"),
						     (s32)inner.btf, inner.n),
				      0);
		return wrap_name(t, n, id, ret, d);
	}
	if (str_same(n->name, "string") && !n->pointers) {
		*ret = trace_type_string(n->elements ? n->elements : t->max_string);
		return 0;
	}
	if (str_same(n->name, "bool") && !n->pointers && !n->is_array) {
		*ret = (struct trace_type){.kind = TRACE_BOOL, .bytes = 1};
		return 0;
	}
	id = n->name ? trace_btf_find(t, n->name) : 0;
	if (!id && !(n->pointers && str_same(n->name, "void")))
		return diag_set(d, -EINVAL, "%u:%u: the type \"%s\" is not known%s", n->at.line,
				n->at.column, n->name ? n->name : "",
				t->kernel ? "" : "; this kernel has no BTF");
	return wrap_name(t, n, id, ret, d);
}
