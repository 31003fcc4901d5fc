/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads objects on V8's heap: strings, names of functions, scripts and their lines.
 *
 * The process runs and collects garbage meanwhile: each object's type is checked before its fields
 * are used, and lengths are bounded.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/v8/v8.h"
#include "base/cleanup.h"

#define MAX_INDIRECT 16 /* cons, thin and sliced strings in a row */
#define MAX_NAME 512
/* A script may have any size. Beyond these bounds its lines are unknown. */
#define MAX_SOURCE (32u << 20)
#define MAX_LINE_ENDS (1u << 20)
#define CACHE_BYTES (16u << 20)
#define CHUNK_BYTES (64u << 10)
/* A ScopeInfo with this many locals lacks their names (kScopeInfoMaxInlinedLocalNamesSize). */
#define MAX_INLINED_LOCALS 75
#define SCOPE_WORDS 16

int v8_field(const struct v8_heap *h, u64 tagged, s32 off, u64 *ret)
{
	bool failed = false;
	u64 v;

	if (!(tagged & 1) || tagged < 4096 || off < 0)
		return -ESTALE;
	v = runtime_u64(h->memory, (tagged & ~3ULL) + (u64)off, &failed);
	if (failed)
		return -EFAULT;
	*ret = v;
	return 0;
}

s32 v8_type(const struct v8_heap *h, u64 tagged)
{
	u64 map;
	u16 type;

	if (!v8_is_pointer(tagged) || v8_field(h, tagged, 0, &map) < 0 || !v8_is_pointer(map) ||
	    runtime_read(h->memory, map - 1 + (u64)h->v->layout.map_instance_type, &type, 2) < 0)
		return -1;
	return type;
}

int v8_array_length(const struct v8_heap *h, u64 tagged, u32 max, u32 *ret)
{
	u64 length;
	int r = v8_field(h, tagged, h->v->layout.array_length, &length);

	if (r < 0)
		return r;
	if (!v8_is_smi(length) || v8_smi(length) < 0 || (u32)v8_smi(length) > max)
		return -ESTALE;
	*ret = (u32)v8_smi(length);
	return 0;
}

/* ---- strings ---- */

/* The place of a string's characters. */
struct chars {
	u64 at;
	u32 n;
	bool one_byte;
};

static bool is_string(const struct v8_layout *l, s32 type)
{
	return type >= 0 && type < l->first_nonstring;
}

/* Follows one step towards a flat string: cons (with an empty second part), thin or sliced. */
static int string_step(const struct v8_heap *h, s32 kind, u64 *tagged, u32 *first)
{
	const struct v8_layout *l = &h->v->layout;
	u64 word;
	u32 n;
	int r;

	if (kind == l->thin)
		return v8_field(h, *tagged, l->thin_actual, tagged);
	if (kind == l->sliced) {
		r = v8_field(h, *tagged, l->sliced_offset, &word);
		if (r < 0 || !v8_is_smi(word) || v8_smi(word) < 0)
			return -ESTALE;
		*first += (u32)v8_smi(word);
		return v8_field(h, *tagged, l->sliced_parent, tagged);
	}
	if (kind != l->cons || v8_field(h, *tagged, l->cons_second, &word) < 0 ||
	    !is_string(l, v8_type(h, word)) ||
	    runtime_read(h->memory, word - 1 + (u64)l->string_length, &n, 4) < 0 || n)
		return -ESTALE;
	return v8_field(h, *tagged, l->cons_first, tagged);
}

static int string_chars(const struct v8_heap *h, u64 tagged, struct chars *ret)
{
	const struct v8_layout *l = &h->v->layout;
	struct chars c = {};
	u32 first = 0, n;
	int r;

	for (u32 i = 0; i < MAX_INDIRECT; i++) {
		s32 type = v8_type(h, tagged), kind = type & l->string_mask;

		if (!is_string(l, type) ||
		    runtime_read(h->memory, tagged - 1 + (u64)l->string_length, &n, 4) < 0)
			return -ESTALE;
		if (!i)
			c.n = n;
		if (kind != 0 && kind != l->external) {
			r = string_step(h, kind, &tagged, &first);
			if (r < 0)
				return r;
			continue;
		}
		c.one_byte = (type & l->string_encoding_mask) == l->one_byte;
		c.at = tagged - 1 + (u64)l->chars;
		if (kind == l->external &&
		    (v8_field(h, tagged, l->external_data, &c.at) < 0 || !c.at))
			return -ESTALE;
		if (first > n || c.n > n - first)
			return -ESTALE;
		c.at += (u64)first << !c.one_byte;
		*ret = c;
		return 0;
	}
	return -ESTALE;
}

static char *put_utf8(char *p, u32 c)
{
	if (c < 0x80) {
		*p++ = (char)c;
	} else if (c < 0x800) {
		*p++ = (char)(0xc0 | c >> 6);
		*p++ = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		*p++ = (char)(0xe0 | c >> 12);
		*p++ = (char)(0x80 | (c >> 6 & 63));
		*p++ = (char)(0x80 | (c & 63));
	} else {
		*p++ = (char)(0xf0 | c >> 18);
		*p++ = (char)(0x80 | (c >> 12 & 63));
		*p++ = (char)(0x80 | (c >> 6 & 63));
		*p++ = (char)(0x80 | (c & 63));
	}
	return p;
}

static u32 unit_at(const u8 *units, u32 i, bool one_byte)
{
	return one_byte ? units[i] : (u32)units[2 * i] | (u32)units[2 * i + 1] << 8;
}

/* Appends the characters of a flat string. */
static int add_units(const struct v8_heap *h, u64 tagged, u32 max, u16 *units, u32 *n)
{
	struct chars c;
	int r = string_chars(h, tagged, &c);

	if (r < 0)
		return r;
	c.n = MIN(c.n, max - *n);
	if (c.n && runtime_read(h->memory, c.at, units + *n, (size_t)c.n << !c.one_byte) < 0)
		return -EFAULT;
	for (u32 i = c.n; c.one_byte && i-- > 0;)
		units[*n + i] = ((const u8 *)(units + *n))[i];
	*n += c.n;
	return 0;
}

/* Names are short, but may be concatenations of several parts. */
static int string_units(const struct v8_heap *h, u64 tagged, u32 max, u16 *units, u32 *ret_n)
{
	const struct v8_layout *l = &h->v->layout;
	u64 todo[MAX_INDIRECT] = {tagged};
	u32 n_todo = 1, n = 0;
	int r = 0;

	for (u32 i = 0; i < 4 * MAX_INDIRECT && n_todo && r == 0 && n < max; i++) {
		u64 s = todo[--n_todo];
		s32 type = v8_type(h, s);

		if (!is_string(l, type) || n_todo + 2 > MAX_INDIRECT)
			return -ESTALE;
		if ((type & l->string_mask) != l->cons) {
			r = add_units(h, s, max, units, &n);
			continue;
		}
		r = v8_field(h, s, l->cons_second, &todo[n_todo]);
		if (r == 0)
			r = v8_field(h, s, l->cons_first, &todo[n_todo + 1]);
		n_todo += 2;
	}
	*ret_n = n;
	return r;
}

int v8_string(const struct v8_heap *h, u64 tagged, u32 max, const char **ret)
{
	_cleanup_free_ u16 *units = malloc(2 * (size_t)max);
	char *text, *p;
	u32 n = 0;
	int r = units ? string_units(h, tagged, max, units, &n) : -ENOMEM;

	if (r < 0)
		return r;
	text = p = arena_alloc(h->arena, 3 * (size_t)n + 1);
	if (!text)
		return -ENOMEM;
	for (u32 i = 0; i < n; i++) {
		u32 u = units[i];

		if (u >= 0xd800 && u < 0xdc00 && i + 1 < n && units[i + 1] >> 10 == 0x37) {
			u = 0x10000 + ((u - 0xd800) << 10) + (units[i + 1] - 0xdc00u);
			i++;
		}
		if ((u >= 0xd800 && u < 0xe000) || !u)
			u = 0xfffd;
		p = put_utf8(p, u);
	}
	*p = '\0';
	*ret = text;
	return 0;
}

/* ---- functions ---- */

/* Reads the words of a ScopeInfo after the names and properties of its locals. */
static int scope_tail(const struct v8_heap *h, u64 scope, u64 words[SCOPE_WORDS], u32 *ret_n)
{
	const struct v8_layout *l = &h->v->layout;
	u64 locals, at;
	u32 n;

	if (v8_field(h, scope, l->scope_header + 8 * l->scope_n_locals, &locals) < 0 ||
	    !v8_is_smi(locals) || v8_smi(locals) < 0 || v8_smi(locals) > 1 << 20)
		return -ESTALE;
	n = (u32)v8_smi(locals);
	at = (u64)(l->scope_header + 8 * l->scope_first_vars) + 8ULL * n;
	at += n < MAX_INLINED_LOCALS || l->scope_header != 8 ? 8ULL * n : 8;
	/* The ScopeInfo may be the last object of its page. */
	for (n = SCOPE_WORDS; n; n /= 2)
		if (runtime_read(h->memory, scope - 1 + at, words, 8 * n) == 0)
			break;
	*ret_n = n;
	return n ? 0 : -EFAULT;
}

/*
 * What follows the locals in a ScopeInfo: a name, an inferred name and a position, each optional.
 */
struct scope_end {
	u64 name, inferred; /* words; 0: missing */
	s32 start;	    /* V8_NO_POSITION: missing */
};

/* On the stack or in the context: bits 7 and 8 in all versions. */
static bool has_receiver(u64 flags)
{
	u64 where = flags >> 7 & 3;

	return where == 1 || where == 2;
}

static int read_scope_end(const struct v8_heap *h, u64 scope, struct scope_end *ret)
{
	const struct v8_layout *l = &h->v->layout;
	struct scope_end e = {.start = V8_NO_POSITION};
	u64 words[SCOPE_WORDS] = {}, flags;
	u32 n, i = 0;
	int r = v8_field(h, scope, l->scope_header, &flags);

	if (r == 0)
		r = scope_tail(h, scope, words, &n);
	if (r < 0)
		return r;
	/* A Smi in old versions, later a u32. */
	if (v8_is_smi(flags))
		flags >>= 32;
	if (l->scope_saved_class >= 0 && flags >> l->scope_saved_class & 1)
		i++;
	/* Old versions store the place of `this` before the first pointer. */
	if (v8_is_smi(words[i]) && has_receiver(flags) && h->v->version < V8_VERSION(11, 0, 0) &&
	    flags >> l->scope_function_variable & 7 && v8_is_pointer(words[i + 1]))
		i++;
	if (flags >> l->scope_function_variable & 3) {
		e.name = words[i];
		i += 2;
	}
	if (flags >> (l->scope_function_variable + 2) & 1)
		e.inferred = words[i++];
	if (l->scope_positions >= 0) {
		if (v8_field(h, scope, l->scope_header + 8 * l->scope_positions, &words[i]) < 0 ||
		    v8_field(h, scope, l->scope_header + 8 * l->scope_positions + 8,
			     &words[i + 1]) < 0)
			return -EFAULT;
	}
	if (v8_is_smi(words[i]) && v8_is_smi(words[i + 1]) && v8_smi(words[i]) >= 0 &&
	    v8_smi(words[i]) < v8_smi(words[i + 1]))
		e.start = v8_smi(words[i]);
	*ret = e;
	return 0;
}

static int scope_name(const struct v8_heap *h, u64 scope, const char **ret)
{
	struct scope_end e;
	int r = read_scope_end(h, scope, &e);

	*ret = "";
	if (r == 0 && is_string(&h->v->layout, v8_type(h, e.name)))
		r = v8_string(h, e.name, MAX_NAME, ret);
	if (r == 0 && !**ret && is_string(&h->v->layout, v8_type(h, e.inferred)))
		r = v8_string(h, e.inferred, MAX_NAME, ret);
	return r;
}

int v8_function_name(const struct v8_heap *h, u64 shared, const char **ret)
{
	const struct v8_layout *l = &h->v->layout;
	const char *name = "";
	u64 word;
	s32 type;
	int r = v8_field(h, shared, l->shared_name, &word);

	if (r < 0)
		return r;
	type = v8_type(h, word);
	if (is_string(l, type))
		r = v8_string(h, word, MAX_NAME, &name);
	else if (type == l->type_scope_info)
		r = scope_name(h, word, &name);
	else if (!v8_is_smi(word))
		r = -ESTALE;
	if (r < 0)
		return r;
	*ret = *name ? name : "(anonymous)";
	return 0;
}

/* The position at which a function starts in its source; V8_NO_POSITION: unknown. */
static s32 start_position(const struct v8_heap *h, u64 shared)
{
	const struct v8_layout *l = &h->v->layout;
	struct scope_end e;
	u64 scope;

	if (v8_field(h, shared, l->shared_name, &scope) < 0 ||
	    v8_type(h, scope) != l->type_scope_info || read_scope_end(h, scope, &e) < 0)
		return V8_NO_POSITION;
	return e.start;
}

/* ---- lines ---- */

/* Finds the ends of lines in a text that arrives in pieces. */
struct line_finder {
	vec(u32) ends;
	u32 at;	 /* position of the next unit */
	bool cr; /* the last unit was a CR; an LF may follow it */
};

static int add_end(struct line_finder *f, u32 at)
{
	return f->ends.n == MAX_LINE_ENDS ? -E2BIG : vec_push(&f->ends, at);
}

static int find_lines(struct line_finder *f, const u8 *units, u32 n, bool one_byte)
{
	int r = 0;

	for (u32 i = 0; i < n && r == 0; i++, f->at++) {
		u32 u = unit_at(units, i, one_byte);

		if (f->cr && u != '\n')
			r = add_end(f, f->at - 1);
		f->cr = u == '\r';
		if (r == 0 && (u == '\n' || u == 0x2028 || u == 0x2029))
			r = add_end(f, f->at);
	}
	return r;
}

static int find_all_lines(const struct v8_heap *h, const struct chars *c, u8 *chunk,
			  struct line_finder *f)
{
	u32 shift = !c->one_byte, max = CHUNK_BYTES >> shift;
	int r = 0;

	while (r == 0 && f->at < c->n) {
		u32 n = MIN(max, c->n - f->at);

		r = runtime_read(h->memory, c->at + ((u64)f->at << shift), chunk,
				 (size_t)n << shift);
		if (r == 0)
			r = find_lines(f, chunk, n, c->one_byte);
	}
	return r == 0 && f->cr ? add_end(f, f->at - 1) : r;
}

static int lines_of_text(const struct v8_heap *h, u64 source, struct v8_lines *ret)
{
	_cleanup_free_ u8 *chunk = NULL;
	struct line_finder f = {};
	struct chars c;
	int r = string_chars(h, source, &c);

	if (r < 0)
		return r;
	if (c.n > MAX_SOURCE)
		return -E2BIG;
	chunk = malloc(CHUNK_BYTES);
	r = chunk ? find_all_lines(h, &c, chunk, &f) : -ENOMEM;
	if (r < 0) {
		vec_deinit(&f.ends);
		return r;
	}
	ret->ends = f.ends.data;
	ret->n = (u32)f.ends.n;
	ret->bytes = f.ends.cap * sizeof(*f.ends.data);
	return 0;
}

void v8_cache_destroy(struct v8_cache *c)
{
	if (!c)
		return;
	vec_foreach (&c->lines, l)
		free(l->ends);
	vec_deinit(&c->lines);
	map_deinit(&c->scripts);
	map_deinit(&c->stream_maps);
	free(c);
}

static void forget_lines(struct v8_cache *c)
{
	vec_foreach (&c->lines, l)
		free(l->ends);
	vec_clear(&c->lines);
	map_clear(&c->scripts);
	c->bytes = 0;
}

void v8_trim(void *learned)
{
	struct v8_learned *v = learned;

	forget_lines(v->cache);
	vec_deinit(&v->cache->lines);
}

/* The lines of a script, read once. The lines of a script that was moved are read again. */
static const struct v8_lines *lines_of(const struct v8_heap *h, u64 script)
{
	struct v8_cache *c = h->v->cache;
	struct v8_lines lines = {};
	u64 key[2] = {h->process, script}, *known;
	int r;

	if (v8_field(h, script, h->v->layout.script_source, &lines.source) < 0)
		return NULL;
	lines.key = hash_bytes(key, sizeof(key)) >> 1;
	known = map_get(&c->scripts, lines.key);
	if (known && c->lines.data[*known].source == lines.source)
		return c->lines.data[*known].too_long ? NULL : &c->lines.data[*known];
	if (c->bytes > CACHE_BYTES)
		forget_lines(c);
	r = lines_of_text(h, lines.source, &lines);
	/* Cache the failure, too, or each frame of the script would read it again. */
	lines.too_long = r == -E2BIG;
	if ((r < 0 && !lines.too_long) || vec_push(&c->lines, lines) < 0) {
		free(lines.ends);
		return NULL;
	}
	c->bytes += lines.bytes + sizeof(lines);
	if (map_put(&c->scripts, lines.key, c->lines.n - 1) < 0 || lines.too_long)
		return NULL;
	return &c->lines.data[c->lines.n - 1];
}

/* Line and column, from 1. `first_column` is the column at which the script starts in its file. */
static u32 line_of(const struct v8_lines *l, u32 position, u32 *ret_column)
{
	u32 lo = 0, hi = l->n;

	while (lo < hi) {
		u32 mid = lo + (hi - lo) / 2;

		if (l->ends[mid] < position)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret_column = position - (lo ? l->ends[lo - 1] + 1 : 0) + 1;
	return lo + 1;
}

static s32 smi_field(const struct v8_heap *h, u64 tagged, s32 off)
{
	u64 word;

	if (v8_field(h, tagged, off, &word) < 0 || !v8_is_smi(word) || v8_smi(word) < 0)
		return 0;
	return v8_smi(word);
}

void v8_place(const struct v8_heap *h, u64 shared, s32 position, struct runtime_frame *ret)
{
	const struct v8_layout *l = &h->v->layout;
	const struct v8_lines *lines;
	u64 script, name;
	u32 column, line0;
	s32 start;

	if (v8_field(h, shared, l->shared_script, &script) < 0)
		return;
	/* Under a debugger this is a DebugInfo, whose second word is the function's script. */
	if (v8_type(h, script) != l->type_script)
		return;
	if (v8_field(h, script, l->script_name, &name) == 0)
		(void)v8_string(h, name, 4096, &ret->file);
	start = start_position(h, shared);
	if (start < 0 && position < 0)
		return;
	lines = lines_of(h, script);
	if (!lines)
		return;
	/* Where the script starts in its file: line_offset and column_offset follow the name. */
	line0 = (u32)smi_field(h, script, l->script_name + 8);
	if (start >= 0)
		ret->start_line = line_of(lines, (u32)start, &column) + line0;
	if (position < 0)
		return;
	ret->line = line_of(lines, (u32)position, &ret->column);
	if (ret->line == 1)
		ret->column += (u32)smi_field(h, script, l->script_name + 16);
	ret->line += line0;
}
