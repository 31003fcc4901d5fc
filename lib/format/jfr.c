/* SPDX-License-Identifier: Apache-2.0 */
/* The layout is that of OpenJDK's writer and parser: src/hotspot/share/jfr/recorder/repository/
 * jfrChunkWriter.cpp, jdk.jfr.internal.MetadataReader, jdk.jfr.internal.consumer. */
#include "format/jfr.h"

#include <errno.h>
#include <string.h>

#define HEADER_BYTES 68
#define FEATURE_COMPRESSED_INTEGERS 1
#define MAX_DEPTH 24
#define MAX_ELEMENTS (1u << 20)
#define MAX_POOLS 4096 /* events in the list of constant pools */
#define EVENT_METADATA 0
#define EVENT_POOL 1

/*
 * Keys are any 64-bit number; jdk.Deoptimization writes -1. A map lacks its two largest: they stand
 * here for two keys that no writer counts up to.
 */
static u64 map_key(u64 key)
{
	return key ^ 1ULL << 63;
}

int jfr_damaged(const struct jfr_chunk *c, const struct buf *at, const char *what)
{
	return diag_set_at(c->diag, -EBADMSG, buf_offset(at), "JFR: %s", what);
}

static bool step(struct jfr_chunk *c)
{
	return c->steps && c->steps--;
}

bool jfr_integer(struct buf *b, u64 *ret)
{
	struct buf at = *b;
	u64 v = 0;
	u8 byte;

	for (u32 i = 0; i < 9; i++) {
		if (!buf_u8(&at, &byte))
			return false;
		v |= (u64)(i < 8 ? byte & 0x7f : byte) << (7 * i);
		if (i == 8 || !(byte & 0x80))
			break;
	}
	*b = at;
	*ret = v;
	return true;
}

struct jfr_class *jfr_class(const struct jfr_chunk *c, u64 id)
{
	u64 *index = id < MAP_GONE_KEY ? map_get(&c->by_id, id) : NULL;

	return index ? &c->classes.data[*index] : NULL;
}

struct jfr_class *jfr_class_by_name(const struct jfr_chunk *c, const char *name)
{
	for (size_t i = 0; i < c->classes.n; i++)
		if (!strcmp(strtab_get(&c->strings, c->classes.data[i].name), name))
			return &c->classes.data[i];
	return NULL;
}

const char *jfr_class_name(const struct jfr_chunk *c, const struct jfr_class *k)
{
	return strtab_get(&c->strings, k->name);
}

const char *jfr_field_name(const struct jfr_chunk *c, const struct jfr_field *f)
{
	return strtab_get(&c->strings, f->name);
}

/* ---- values ---- */

static void append_utf8(struct str *out, u32 ch)
{
	if (ch < 0x80) {
		str_putc(out, (char)ch);
	} else if (ch < 0x800) {
		str_putc(out, (char)(0xc0 | ch >> 6));
		str_putc(out, (char)(0x80 | (ch & 0x3f)));
	} else {
		str_putc(out, (char)(0xe0 | (ch >> 12 & 0xf)));
		str_putc(out, (char)(0x80 | (ch >> 6 & 0x3f)));
		str_putc(out, (char)(0x80 | (ch & 0x3f)));
	}
}

static int string_from_pool(struct jfr_chunk *c, struct buf *b, struct str *ret)
{
	const struct jfr_class *k =
		c->string_class < c->classes.n ? &c->classes.data[c->string_class] : NULL;
	struct buf value;
	u8 encoding;
	u64 key;

	if (!jfr_integer(b, &key))
		return jfr_damaged(c, b, "a string is cut off");
	/* No further reference: a pooled string that refers to a pooled string is a trap. */
	if (!k || !ret || !jfr_pooled(c, k, key, &value) || !buf_u8(&value, &encoding) ||
	    encoding == 2)
		return 0;
	value.pos--;
	return jfr_string(c, &value, ret);
}

/* Of the encodings 3 (UTF-8), 4 (UTF-16 as integers), 5 (Latin-1). */
static int string_in_place(struct jfr_chunk *c, struct buf *b, u8 encoding, struct str *ret)
{
	struct buf bytes;
	u64 n, ch;
	u8 byte;

	if (!jfr_integer(b, &n) || n > buf_left(b))
		return jfr_damaged(c, b, "a string is cut off");
	if (encoding == 4) {
		for (u64 i = 0; i < n; i++) {
			if (!step(c) || !jfr_integer(b, &ch))
				return jfr_damaged(c, b, "a string is cut off");
			if (ret)
				append_utf8(ret, (u32)ch & 0xffff);
		}
		return 0;
	}
	if (!buf_take(b, n, &bytes))
		return jfr_damaged(c, b, "a string is cut off");
	if (ret && encoding == 3)
		str_append(ret, bytes.pos, n);
	while (ret && encoding == 5 && buf_u8(&bytes, &byte))
		append_utf8(ret, byte);
	return 0;
}

int jfr_string(struct jfr_chunk *c, struct buf *b, struct str *ret)
{
	u8 encoding;
	int r = 0;

	if (!step(c) || !buf_u8(b, &encoding))
		return jfr_damaged(c, b, "a string is cut off");
	if (encoding == 2)
		r = string_from_pool(c, b, ret);
	else if (encoding >= 3 && encoding <= 5)
		r = string_in_place(c, b, encoding, ret);
	else if (encoding > 5)
		return jfr_damaged(c, b, "a string in an unknown encoding");
	return r == 0 && ret && ret->failed ? -ENOMEM : r;
}

static int skip_value(struct jfr_chunk *c, struct buf *b, u64 class_id, u32 depth);

static int skip_field(struct jfr_chunk *c, struct buf *b, const struct jfr_field *f, u32 depth)
{
	u64 n = 1, key;
	int r = 0;

	if (f->array && !jfr_integer(b, &n))
		return jfr_damaged(c, b, "an array is cut off");
	for (u64 i = 0; i < n && r == 0; i++) {
		if (!step(c))
			return jfr_damaged(c, b, "more values than its size allows");
		if (!f->pooled)
			r = skip_value(c, b, f->class_id, depth);
		else if (!jfr_integer(b, &key))
			r = jfr_damaged(c, b, "a reference is cut off");
	}
	return r;
}

static int skip_value(struct jfr_chunk *c, struct buf *b, u64 class_id, u32 depth)
{
	const struct jfr_class *k = jfr_class(c, class_id);
	u64 ignored;
	bool ok;
	int r = 0;

	if (!k)
		return jfr_damaged(c, b, "a value of a class that is not described");
	if (depth > MAX_DEPTH)
		return jfr_damaged(c, b, "values are nested too deeply");
	switch (k->primitive) {
	case JFR_BOOLEAN:
		ok = buf_skip(b, 1);
		break;
	case JFR_INTEGER:
		ok = jfr_integer(b, &ignored);
		break;
	case JFR_FLOAT:
		ok = buf_skip(b, 4);
		break;
	case JFR_DOUBLE:
		ok = buf_skip(b, 8);
		break;
	case JFR_STRING:
		return jfr_string(c, b, NULL);
	case JFR_STRUCT:
	default:
		for (size_t i = 0; i < k->fields.n && r == 0; i++)
			r = skip_field(c, b, &k->fields.data[i], depth + 1);
		return r;
	}
	return ok ? 0 : jfr_damaged(c, b, "a value is cut off");
}

int jfr_skip_field(struct jfr_chunk *c, struct buf *b, const struct jfr_field *f)
{
	return skip_field(c, b, f, 0);
}

bool jfr_pooled(const struct jfr_chunk *c, const struct jfr_class *k, u64 key, struct buf *ret)
{
	u64 *offset = map_key(key) < MAP_GONE_KEY ? map_get(&k->values, map_key(key)) : NULL;

	if (!offset)
		return false;
	*ret = c->all;
	return buf_skip(ret, *offset);
}

/* ---- metadata ---- */

struct element {
	u32 name, first_attribute, n_attributes;
};

struct metadata {
	struct jfr_chunk *c;
	vec(u32) strings;    /* of the event → of the chunk */
	vec(u32) attributes; /* key, value, ... */
	u32 n_elements;
	size_t class; /* index of the one at hand, or ~0 */
};

/* The id of an attribute's value; that of "" when it is not there. */
static u32 attribute_id(const struct metadata *m, const struct element *e, const char *key)
{
	for (u32 i = 0; i < e->n_attributes; i++) {
		const u32 *pair = &m->attributes.data[e->first_attribute + 2 * i];

		if (!strcmp(strtab_get(&m->c->strings, pair[0]), key))
			return pair[1];
	}
	return 0;
}

static const char *attribute(const struct metadata *m, const struct element *e, const char *key)
{
	return strtab_get(&m->c->strings, attribute_id(m, e, key));
}

static enum jfr_primitive primitive_of(const char *name)
{
	static const struct {
		const char *name;
		enum jfr_primitive primitive;
	} table[] = {
		{"boolean", JFR_BOOLEAN}, {"byte", JFR_BOOLEAN},  {"short", JFR_INTEGER},
		{"char", JFR_INTEGER},	  {"int", JFR_INTEGER},	  {"long", JFR_INTEGER},
		{"float", JFR_FLOAT},	  {"double", JFR_DOUBLE}, {"java.lang.String", JFR_STRING}};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (!strcmp(table[i].name, name))
			return table[i].primitive;
	return JFR_STRUCT;
}

static int add_class(struct metadata *m, const struct buf *b, const struct element *e)
{
	struct jfr_class k = {.name = attribute_id(m, e, "name")};
	int r;

	k.primitive = primitive_of(strtab_get(&m->c->strings, k.name));
	if (str_to_u64(attribute(m, e, "id"), 10, &k.id) < 0 || k.id >= MAP_GONE_KEY ||
	    jfr_class(m->c, k.id))
		return jfr_damaged(m->c, b, "a class without an id of its own");
	m->class = m->c->classes.n;
	if (k.primitive == JFR_STRING)
		m->c->string_class = m->class;
	r = map_put(&m->c->by_id, k.id, m->class);
	return r < 0 ? r : vec_push(&m->c->classes, k);
}

static int add_field(struct metadata *m, const struct buf *b, const struct element *e)
{
	const char *dimension = attribute(m, e, "dimension");
	struct jfr_field f = {
		.name = attribute_id(m, e, "name"),
		.pooled = !strcmp(attribute(m, e, "constantPool"), "true"),
		.array = *dimension && strcmp(dimension, "0") != 0,
	};

	if (m->class >= m->c->classes.n || str_to_u64(attribute(m, e, "class"), 10, &f.class_id))
		return jfr_damaged(m->c, b, "a field without a class");
	return vec_push(&m->c->classes.data[m->class].fields, f);
}

static int metadata_string(struct metadata *m, struct buf *b, u32 *ret)
{
	u64 index;

	if (!jfr_integer(b, &index) || index >= m->strings.n)
		return jfr_damaged(m->c, b, "metadata: no such string");
	*ret = m->strings.data[index];
	return 0;
}

static int read_element(struct metadata *m, struct buf *b, u32 depth)
{
	struct element e = {.first_attribute = (u32)m->attributes.n};
	const char *name;
	u64 n, children;
	u32 id = 0;
	int r = metadata_string(m, b, &e.name);

	if (r == 0 && (depth > MAX_DEPTH || ++m->n_elements > MAX_ELEMENTS || !step(m->c) ||
		       !jfr_integer(b, &n) || n > buf_left(b) / 2))
		r = jfr_damaged(m->c, b, "metadata: damaged");
	if (r < 0)
		return r;
	e.n_attributes = (u32)n;
	for (u64 i = 0; i < 2 * n && r == 0; i++) {
		r = metadata_string(m, b, &id);
		if (r == 0)
			r = vec_push(&m->attributes, id);
	}
	name = strtab_get(&m->c->strings, e.name);
	if (r == 0 && !strcmp(name, "class"))
		r = add_class(m, b, &e);
	else if (r == 0 && !strcmp(name, "field"))
		r = add_field(m, b, &e);
	if (r == 0 && !jfr_integer(b, &children))
		r = jfr_damaged(m->c, b, "metadata: cut off");
	m->attributes.n = e.first_attribute;
	for (u64 i = 0; r == 0 && i < children; i++)
		r = read_element(m, b, depth + 1);
	return r;
}

static int read_metadata_strings(struct metadata *m, struct buf *b)
{
	_cleanup_str_ struct str s = {};
	u64 n;
	int r = 0;

	if (!jfr_integer(b, &n) || n > buf_left(b))
		return jfr_damaged(m->c, b, "metadata: cut off");
	for (u64 i = 0; i < n && r == 0; i++) {
		u32 id;

		str_clear(&s);
		r = jfr_string(m->c, b, &s);
		if (r == 0)
			r = strtab_add(&m->c->strings, str_get(&s), s.n, &id);
		if (r == 0)
			r = vec_push(&m->strings, id);
	}
	return r;
}

/* The event at an offset: what is behind its size and type, which must be the one. */
static int open_event(struct jfr_chunk *c, u64 offset, u64 want, struct buf *ret)
{
	struct buf b = c->all, size_at;
	u64 size, type;

	if (!buf_skip(&b, offset))
		return jfr_damaged(c, &b, "an offset points behind its chunk");
	size_at = b;
	if (!jfr_integer(&b, &size) || !buf_take(&size_at, size, ret) ||
	    !buf_skip(ret, (u64)(b.pos - ret->pos)) || !jfr_integer(ret, &type) || type != want)
		return jfr_damaged(c, &b, "an offset does not point to its event");
	return 0;
}

static int read_metadata(struct jfr_chunk *c, u64 offset)
{
	struct metadata m = {.c = c, .class = ~(size_t)0};
	struct buf b = {};
	u64 ignored;
	int r = open_event(c, offset, EVENT_METADATA, &b);

	/* start, duration, id */
	if (r == 0 && (!jfr_integer(&b, &ignored) || !jfr_integer(&b, &ignored) ||
		       !jfr_integer(&b, &ignored)))
		r = jfr_damaged(c, &b, "metadata: cut off");
	if (r == 0)
		r = read_metadata_strings(&m, &b);
	if (r == 0)
		r = read_element(&m, &b, 0);
	vec_deinit(&m.strings);
	vec_deinit(&m.attributes);
	return r;
}

/* ---- constant pools ---- */

static int read_pool(struct jfr_chunk *c, struct buf *b)
{
	u64 class_id, n, key;
	struct jfr_class *k;
	int r = 0;

	if (!jfr_integer(b, &class_id) || !jfr_integer(b, &n))
		return jfr_damaged(c, b, "a constant pool is cut off");
	k = jfr_class(c, class_id);
	if (!k)
		return jfr_damaged(c, b, "a constant pool of a class that is not described");
	for (u64 i = 0; i < n && r == 0; i++) {
		u64 offset;

		if (!step(c) || !jfr_integer(b, &key) || map_key(key) >= MAP_GONE_KEY)
			return jfr_damaged(c, b, "a constant pool is cut off");
		offset = (u64)(b->pos - c->all.pos);
		/* The newest, which comes first, counts. */
		if (!map_get(&k->values, map_key(key)))
			r = map_put(&k->values, map_key(key), offset);
		if (r == 0)
			r = skip_value(c, b, class_id, 0);
	}
	return r;
}

static int read_pools(struct jfr_chunk *c, u64 offset)
{
	for (int i = 0; i < MAX_POOLS; i++) {
		u64 ignored, delta, n;
		struct buf b = {};
		u8 flags;
		int r = open_event(c, offset, EVENT_POOL, &b);

		if (r < 0)
			return r;
		if (!jfr_integer(&b, &ignored) || !jfr_integer(&b, &ignored) ||
		    !jfr_integer(&b, &delta) || !buf_u8(&b, &flags) || !jfr_integer(&b, &n))
			return jfr_damaged(c, &b, "a constant pool is cut off");
		for (u64 k = 0; k < n && r == 0; k++)
			r = read_pool(c, &b);
		if (r < 0 || !delta)
			return r;
		/* Back to the one before: the difference is negative. */
		if ((s64)delta > 0 || -delta > offset || !step(c))
			return jfr_damaged(c, &b, "the list of constant pools is damaged");
		offset += delta;
	}
	return jfr_damaged(c, &c->all, "too many constant pools");
}

/* ---- chunks ---- */

static int read_header(struct jfr_chunk *c, struct buf *b, u64 *ret_pool, u64 *ret_metadata)
{
	struct buf h = *b;
	u32 magic, features;
	u16 major, minor;
	u64 size, duration;

	h.swap = true;
	if (!buf_u32(&h, &magic) || magic != 0x464c5200 || !buf_u16(&h, &major) ||
	    !buf_u16(&h, &minor) || !buf_u64(&h, &size) || !buf_u64(&h, ret_pool) ||
	    !buf_u64(&h, ret_metadata) || !buf_u64(&h, &c->start_ns) || !buf_u64(&h, &duration) ||
	    !buf_u64(&h, &c->start_ticks) || !buf_u64(&h, &c->ticks_per_s) ||
	    !buf_u32(&h, &features))
		return jfr_damaged(c, b, "not a chunk of a recording");
	if (major < 1 || major > 2)
		return diag_set(c->diag, -ENOTSUP, "JFR: version %u.%u; 1 and 2 can be read", major,
				minor);
	if (!(features & FEATURE_COMPRESSED_INTEGERS))
		return diag_set(c->diag, -ENOTSUP, "JFR: integers are not compressed");
	if (size < HEADER_BYTES || !*ret_pool || !*ret_metadata || !c->ticks_per_s)
		return jfr_damaged(c, b, "a chunk that was not finished");
	if (!buf_take(b, size, &c->all))
		return jfr_damaged(c, b, "the last chunk is cut off");
	return 0;
}

int jfr_chunk_open(struct buf *b, struct jfr_chunk *ret, struct diag *reterr_diag)
{
	u64 pool = 0, metadata = 0;
	int r;

	*ret = (struct jfr_chunk){.diag = reterr_diag, .string_class = ~(size_t)0};
	r = strtab_init(&ret->strings);
	if (r == 0)
		r = read_header(ret, b, &pool, &metadata);
	if (r < 0)
		return r;
	ret->steps = 64 + 16 * (u64)buf_left(&ret->all);
	r = read_metadata(ret, metadata);
	return r < 0 ? r : read_pools(ret, pool);
}

void jfr_chunk_close(struct jfr_chunk *c)
{
	vec_foreach (&c->classes, k) {
		vec_deinit(&k->fields);
		map_deinit(&k->values);
	}
	vec_deinit(&c->classes);
	map_deinit(&c->by_id);
	strtab_deinit(&c->strings);
}
