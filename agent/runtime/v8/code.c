/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps a place in bytecode or compiled code to a position in the source.
 *
 * A source position table has pairs of differences, {code offset, position << 1 …}, as VLQ numbers.
 * A position is 1 + the offset in the script (30 bits), above an unused bit; the bits above it are
 * 1 + the number of the inlining that the position belongs to.
 *
 * The code object around a pc is found by searching backwards for its header: a word that points to
 * the map of instruction streams, at the start of an object that contains the pc. The code names
 * its SharedFunctionInfo, which must be that of the function.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/v8/v8.h"
#include "base/buf.h"
#include "base/cleanup.h"

#define SCAN_STEP 4096u
#define SCAN_MAX (1u << 20) /* compiled functions are shorter */
#define MAX_TABLE (1u << 20)
#define MAX_BYTECODE (4u << 20)
#define WEAK_MASK 3ULL
/* In BaselineData: the Code, and the bytecode that it was compiled from. */
#define BASELINE_CODE 8
#define BASELINE_DATA 16

struct code {
	u64 object; /* the Code, tagged */
	u64 start;
	u32 size, flags;
};

/* ---- source position tables ---- */

/* VLQ: 7 bits per byte; bit 7: another byte follows; zigzag. */
static bool read_vlq(struct buf *b, s64 *ret)
{
	u64 v = 0;
	u8 byte;

	for (u32 shift = 0; shift < 64; shift += 7) {
		if (!buf_u8(b, &byte))
			return false;
		v |= (u64)(byte & 127) << shift;
		if (!(byte & 128)) {
			*ret = (s64)(v >> 1) ^ -(s64)(v & 1);
			return true;
		}
	}
	return false;
}

/*
 * Decodes the bytes of code between an entry and the previous one. Entries of statements are d,
 * others -(d + 1). Since V8 14 (in 14.1, not in 13.6) it is the opposite, and the lowest bit of d
 * says whether a debugger may stop there.
 */
static s64 code_distance(const struct v8_learned *v, s64 d)
{
	d = d < 0 ? -(d + 1) : d;
	return MIN(v->version >= V8_VERSION(14, 0, 0) ? d >> 1 : d, (s64)SCAN_MAX);
}

/* Returns the last entry at or before an offset; 0: there is none. */
static u64 find_position(const struct v8_learned *v, struct buf table, s64 offset)
{
	s64 at = -1, d_at, d_raw;
	u64 raw = 0, found = 0;

	while (read_vlq(&table, &d_at) && read_vlq(&table, &d_raw)) {
		at += code_distance(v, d_at);
		raw += (u64)d_raw;
		if (at > offset)
			break;
		found = raw;
	}
	return found;
}

static s32 script_offset(u64 raw)
{
	return (s32)(raw >> 1 & 0x3fffffff) - 1;
}

static s32 inlining_id(u64 raw)
{
	return (s32)(raw >> 31 & 0xffff) - 1;
}

/* Copies the bytes of a ByteArray; the caller frees them. */
static int byte_array(const struct v8_heap *h, u64 tagged, u32 max, u8 **ret, u32 *ret_n)
{
	_cleanup_free_ u8 *bytes = NULL;
	u32 n;
	int r = v8_array_length(h, tagged, max, &n);

	if (r < 0)
		return r;
	bytes = malloc((size_t)n + 1);
	if (!bytes)
		return -ENOMEM;
	if (n && runtime_read(h->memory, tagged - 1 + (u64)h->v->layout.array_data, bytes, n) < 0)
		return -EFAULT;
	*ret = take_ptr(bytes);
	*ret_n = n;
	return 0;
}

/* `table` may be another object: V8 stores positions only when they are first needed. */
static u64 position_in(const struct v8_heap *h, u64 table, s64 offset)
{
	_cleanup_free_ u8 *bytes = NULL;
	u32 n;

	if (!v8_is_pointer(table) || byte_array(h, table, MAX_TABLE, &bytes, &n) < 0)
		return 0;
	return find_position(h->v, buf_of(bytes, n), offset);
}

/* ---- bytecode ---- */

/* The tagged BytecodeArray of a function, wherever V8 keeps it. */
static int bytecode_of(const struct v8_heap *h, u64 shared, u64 *ret)
{
	const struct v8_layout *l = &h->v->layout;
	u64 word;
	int r = v8_field(h, shared, l->shared_data, &word);

	/* The function's data: Code (baseline) → InterpreterData → BytecodeArray, or a part of this
	 * chain. */
	for (u32 i = 0; r == 0 && i < 3; i++) {
		s32 type = v8_type(h, word);

		if (type == l->type_bytecode_array) {
			*ret = word;
			return 0;
		}
		if (type == l->type_interpreter_data)
			r = v8_field(h, word, l->interpreter_bytecode, &word);
		else if (type >= 0 && type == l->type_baseline_data)
			r = v8_field(h, word, BASELINE_DATA, &word);
		else if (type == l->type_code)
			r = v8_field(h, word, l->code_deopt, &word);
		else
			return -ESTALE;
	}
	return r < 0 ? r : -ESTALE;
}

static s32 position_of_bytecode(const struct v8_heap *h, u64 array, s64 offset)
{
	const struct v8_layout *l = &h->v->layout;
	u64 table;
	u32 n;

	if (offset < -1 || v8_array_length(h, array, MAX_BYTECODE, &n) < 0 || offset >= (s64)n ||
	    v8_field(h, array, l->bytecode_positions, &table) < 0)
		return V8_NO_POSITION;
	return script_offset(position_in(h, table, offset));
}

s32 v8_bytecode_position(const struct v8_heap *h, u64 shared, s64 offset)
{
	u64 array;

	if (bytecode_of(h, shared, &array) < 0)
		return V8_NO_POSITION;
	return position_of_bytecode(h, array, offset);
}

/* ---- baseline code ---- */

/* The length of the bytecode at `at`, including its prefix; 0: there is none. */
static u32 bytecode_length(const struct v8_learned *v, const u8 *code, u32 n, u32 at)
{
	u32 scale = 0, prefix = 0;

	/* The first four bytecodes are Wide, ExtraWide and their debug variants. */
	if (at < n && code[at] < 4) {
		scale = 1 + (code[at] & 1);
		prefix = 1;
	}
	if (at + prefix >= n || code[at + prefix] >= v->n_bytecodes)
		return 0;
	return prefix + v->bytecode_sizes[scale * v->n_bytecodes + code[at + prefix]];
}

static bool read_unsigned_vlq(struct buf *b, u64 *ret)
{
	return buf_uleb(b, ret);
}

/*
 * Finds the bytecode of baseline code, which has a table: the bytes of code of the prologue, then
 * of each bytecode.
 */
static s64 bytecode_offset_of(const struct v8_learned *v, struct buf table, const u8 *code, u32 n,
			      u64 delta)
{
	s64 offset = -1;
	u64 end, length;
	u32 at = 0;

	if (!read_unsigned_vlq(&table, &end))
		return -1;
	while (delta >= end && at < n && read_unsigned_vlq(&table, &length)) {
		u32 step = bytecode_length(v, code, n, at);

		if (!step)
			return -1;
		offset = at;
		at += step;
		end += length;
	}
	return offset;
}

static s32 baseline_position(const struct v8_heap *h, const struct code *c, u64 array, u64 pc)
{
	const struct v8_layout *l = &h->v->layout;
	_cleanup_free_ u8 *table = NULL, *bytecode = NULL;
	u32 n_table, n;
	u64 word;
	s64 offset;

	if (!h->v->bytecode_sizes || v8_field(h, c->object, l->code_positions, &word) < 0 ||
	    byte_array(h, word, MAX_TABLE, &table, &n_table) < 0 ||
	    v8_array_length(h, array, MAX_BYTECODE, &n) < 0)
		return V8_NO_POSITION;
	bytecode = malloc((size_t)n + 1);
	if (!bytecode ||
	    runtime_read(h->memory, array - 1 + (u64)l->bytecode_data, bytecode, n) < 0)
		return V8_NO_POSITION;
	offset = bytecode_offset_of(h->v, buf_of(table, n_table), bytecode, n, pc - c->start);
	return position_of_bytecode(h, array, offset);
}

/* ---- code objects ---- */

/* Whether the object at `at` is code that contains the pc. The caller has checked its map. */
static int code_at(const struct v8_heap *h, u64 at, u64 pc, struct code *ret)
{
	const struct v8_layout *l = &h->v->layout;
	struct code c = {.object = at + 1};
	bool failed = false;

	if (l->type_stream >= 0) {
		if (v8_field(h, at + 1, l->stream_code, &c.object) < 0 ||
		    v8_type(h, c.object) != l->type_code ||
		    v8_field(h, c.object, l->code_start, &c.start) < 0)
			return -ENOENT;
	} else {
		c.start = at + (u64)l->code_start;
	}
	c.size = runtime_u32(h->memory, c.object - 1 + (u64)l->code_size, &failed);
	c.flags = runtime_u32(h->memory, c.object - 1 + (u64)l->code_flags, &failed);
	if (failed || c.start < at || c.start - at > 4096 || pc < c.start || pc - c.start >= c.size)
		return -ENOENT;
	*ret = c;
	return 0;
}

/* A map is an object whose map is a map, which is its own map. */
static bool is_map(const struct v8_heap *h, u64 tagged)
{
	u64 meta, same;

	return v8_field(h, tagged, 0, &meta) == 0 && v8_is_pointer(meta) &&
	       v8_field(h, meta, 0, &same) == 0 && same == meta;
}

static bool is_code_map(const struct v8_heap *h, u64 word)
{
	const struct v8_layout *l = &h->v->layout;
	s32 want = l->type_stream >= 0 ? l->type_stream : l->type_code;
	u16 type;

	return v8_is_pointer(word) && !(word >> 47) &&
	       runtime_read(h->memory, word - 1 + (u64)l->map_instance_type, &type, 2) == 0 &&
	       type == want && is_map(h, word);
}

/* `map`: the map of the code object; 0: any map of code. */
static int find_code(const struct v8_heap *h, u64 map, u64 pc, struct code *ret)
{
	u64 words[SCAN_STEP / 8], end = (pc & ~7ULL) + 8;

	for (u32 seen = 0; seen < SCAN_MAX; seen += SCAN_STEP) {
		u64 from = (end - 1) & ~(u64)(SCAN_STEP - 1);

		if (runtime_read(h->memory, from, words, end - from) < 0)
			return -ENOENT;
		for (u64 i = (end - from) / 8; i-- > 0;) {
			if (map ? words[i] != map : !is_code_map(h, words[i]))
				continue;
			if (code_at(h, from + i * 8, pc, ret) < 0)
				continue;
			if (!map)
				(void)map_put(&h->v->cache->stream_maps, h->process, words[i]);
			return 0;
		}
		end = from;
	}
	return -ENOENT;
}

static int code_around(const struct v8_heap *h, u64 pc, struct code *ret)
{
	u64 *map = map_get(&h->v->cache->stream_maps, h->process);

	if (map && find_code(h, *map, pc, ret) == 0)
		return 0;
	return find_code(h, 0, pc, ret);
}

/* ---- optimised code ---- */

/* The tagged SharedFunctionInfo that optimised code was compiled for. */
static int deopt_shared(const struct v8_heap *h, u64 deopt, u64 *ret)
{
	const struct v8_layout *l = &h->v->layout;
	s32 index = l->deopt_wrapped >= 0 ? l->deopt_wrapped : l->deopt_shared;
	int r = v8_field(h, deopt, l->array_data + 8 * index, ret);

	if (r == 0 && l->deopt_wrapped >= 0)
		r = v8_field(h, *ret, l->wrapper_shared, ret);
	return r;
}

/* Reads an inlining: {u64 position of the call, i32 index of the function's literal, pad}. */
static int inlining_at(const struct v8_heap *h, u64 table, s32 id, u64 *ret_position,
		       s32 *ret_function)
{
	u64 words[2];
	u32 n;

	if (v8_array_length(h, table, MAX_TABLE, &n) < 0 || (u64)id * 16 + 16 > n ||
	    runtime_read(h->memory, table - 1 + (u64)h->v->layout.array_data + (u64)id * 16, words,
			 16) < 0)
		return -ESTALE;
	*ret_position = words[0];
	*ret_function = (s32)(u32)words[1];
	return 0;
}

static int literal_shared(const struct v8_heap *h, u64 literals, s32 index, u64 *ret)
{
	const struct v8_layout *l = &h->v->layout;
	u64 word;
	u32 n;

	if (v8_array_length(h, literals, 1 << 20, &n) < 0 || index < 0 || (u32)index >= n ||
	    v8_field(h, literals, l->array_data + 8 * index, &word) < 0)
		return -ESTALE;
	word = (word & ~WEAK_MASK) | 1;
	if (v8_type(h, word) != l->type_shared) /* or a wrapper of it */
		return -ESTALE;
	*ret = word;
	return 0;
}

static int optimised_position(const struct v8_heap *h, const struct code *c, u64 deopt, u64 shared,
			      u64 pc, struct v8_inlined *ret, u32 max)
{
	const struct v8_layout *l = &h->v->layout;
	u64 table, raw, inlinings = 0, literals = 0;
	s32 last = INT32_MAX;
	u32 n = 0;

	if (v8_field(h, c->object, l->code_positions, &table) < 0)
		return -ESTALE;
	raw = position_in(h, table, (s64)(pc - c->start));
	if (inlining_id(raw) >= 0 &&
	    (v8_field(h, deopt, l->array_data + 8 * l->deopt_inlining, &inlinings) < 0 ||
	     v8_field(h, deopt, l->array_data + 8 * l->deopt_literals, &literals) < 0))
		return -ESTALE;
	/* Each inlining is called from one with a smaller number. */
	while (inlining_id(raw) >= 0 && inlining_id(raw) < last && n + 1 < max) {
		s32 position = script_offset(raw), function;

		last = inlining_id(raw);
		if (inlining_at(h, inlinings, last, &raw, &function) < 0)
			return -ESTALE;
		if (function >= 0 && literal_shared(h, literals, function, &ret[n].shared) == 0)
			ret[n++].position = position;
	}
	ret[n++] = (struct v8_inlined){shared, script_offset(raw)};
	return (int)n;
}

/* Whether the code is the function's own baseline code. Returns its tagged BytecodeArray. */
static int baseline_array(const struct v8_heap *h, const struct code *c, u64 deopt, u64 shared,
			  u64 *ret)
{
	const struct v8_layout *l = &h->v->layout;
	u64 data, made_of = deopt, array;

	if (l->type_baseline_data >= 0) {
		if (v8_field(h, shared, l->shared_data, &data) < 0 ||
		    v8_type(h, data) != l->type_baseline_data ||
		    v8_field(h, data, BASELINE_CODE, &made_of) < 0 || made_of != c->object)
			return -ENOENT;
		return bytecode_of(h, shared, ret);
	}
	if (v8_type(h, deopt) == l->type_interpreter_data &&
	    v8_field(h, deopt, l->interpreter_bytecode, &made_of) < 0)
		return -ENOENT;
	if (bytecode_of(h, shared, &array) < 0 || array != made_of)
		return -ENOENT;
	*ret = array;
	return 0;
}

int v8_code_position(const struct v8_heap *h, u64 shared, u64 pc, struct v8_inlined *ret, u32 n)
{
	const struct v8_layout *l = &h->v->layout;
	struct code c;
	u64 deopt, owner, array;
	int r = code_around(h, pc, &c);

	if (r < 0 || !n)
		return -ENOENT;
	if (v8_field(h, c.object, l->code_deopt, &deopt) < 0)
		return -ENOENT;
	if (l->kind_baseline >= 0 && (s32)(c.flags & (u32)l->kind_mask) == l->kind_baseline) {
		if (baseline_array(h, &c, deopt, shared, &array) < 0)
			return -ENOENT;
		ret[0] = (struct v8_inlined){shared, baseline_position(h, &c, array, pc)};
		return 1;
	}
	if (deopt_shared(h, deopt, &owner) < 0 || owner != shared)
		return -ENOENT;
	return optimised_position(h, &c, deopt, shared, pc, ret, n);
}
