/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names HotSpot's frames.
 *
 *	Method → ConstMethod → ConstantPool → holder's Klass → Symbol		class
 *			     │		   └→ Symbol			method, source
 *			     └ bytecodes, then pairs of (bci, line) deltas	line
 *
 *	nmethod: PcDesc[] by pc → scope in its debug information: (sender, method, bci), innermost
 *	first; the methods are indices into the nmethod's metadata.
 *
 * Numbers in debug information are UNSIGNED5: up to five bytes of six bits each; a byte below 192
 * is the last one. From 20 on, 1 is added to each byte, so that none is 0.
 */
#include "agent/runtime/hotspot/hotspot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

#define MAX_NAME 512
#define MAX_METHOD_BYTES (512u << 10)
#define MAX_DEBUG_BYTES (8u << 20)
/* Bounds of the search for the next PcDesc: bytes of code, and jumps. */
#define MAX_CODE_BYTES 1024
#define MAX_JUMPS 4
#define MAX_WAYS 8
#define UNSIGNED5_LAST 192
#define NO_BCI 0xffffffffu
#define HAS_LINES 1 /* ConstMethod::_has_linenumber_table */

struct reader {
	const struct hotspot_vm *vm;
	const struct hotspot_offsets *o;
	const struct runtime_target *t;
	struct runtime_names *names;
};

static int read_word(const struct reader *r, u64 address, u64 *ret)
{
	return runtime_read(&r->t->memory, address, ret, sizeof(*ret));
}

/* Reads a field of an object that was read; 0 if the field is outside of the bytes. */
static u64 read_field(const void *object, size_t n, u32 off, u32 width)
{
	u64 v = 0;

	if (off <= n && width <= n - off)
		memcpy(&v, (const u8 *)object + off, width);
	return v;
}

bool hotspot_unsigned5(struct buf *b, u32 exclude, u32 *ret)
{
	u32 sum = 0;

	for (u32 i = 0; i < 5; i++) {
		u8 byte;

		if (!buf_u8(b, &byte) || byte < exclude)
			return false;
		sum += (byte - exclude) << (6 * i);
		if (byte < UNSIGNED5_LAST)
			break;
	}
	*ret = sum;
	return true;
}

/* ---- texts ---- */

static int keep_text(const struct reader *r, const char *text, const char **ret)
{
	size_t n = strlen(text) + 1;
	char *copy = arena_alloc(r->names->arena, n);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, n);
	*ret = copy;
	return 0;
}

/* Copies a symbol as a string; longer ones are cut at MAX_NAME. */
static int read_symbol(const struct reader *r, u64 symbol, char *ret)
{
	u16 n;
	int e = runtime_read(&r->t->memory, symbol + r->o->of[HF_SYMBOL_LENGTH], &n, sizeof(n));

	if (e < 0)
		return e;
	n = MIN(n, MAX_NAME - 1);
	e = runtime_read(&r->t->memory, symbol + r->o->of[HF_SYMBOL_BODY], ret, n);
	if (e < 0)
		return e;
	ret[n] = 0;
	return 0;
}

static u64 constant_at(const struct reader *r, u64 pool, u32 index)
{
	return pool + r->vm->sizes[HZ_CONSTANT_POOL] + 8ULL * index;
}

static int pool_symbol(const struct reader *r, u64 pool, u32 index, char *ret)
{
	u64 symbol;
	int e = read_word(r, constant_at(r, pool, index), &symbol);

	return e < 0 ? e : read_symbol(r, symbol & ~1ULL, ret);
}

/*
 * java/lang/Thread → java.lang.Thread; removes the address of a hidden class, which means nothing.
 */
static void external_name(char *name)
{
	for (char *p = name; *p; p++) {
		if ((*p == '+' || *p == '/') && p[1] == '0' && p[2] == 'x') {
			*p = 0;
			break;
		}
		if (*p == '/')
			*p = '.';
	}
}

/* ---- methods ---- */

struct method {
	u64 address, constants;
	u8 head[512]; /* of the ConstMethod */
	u32 n_head;
	u64 const_method;
};

static int read_method(const struct reader *r, u64 address, struct method *ret)
{
	int e = read_word(r, address + r->o->of[HF_METHOD_CONST], &ret->const_method);

	if (e < 0)
		return e;
	ret->address = address;
	ret->n_head = MIN(r->vm->sizes[HZ_CONST_METHOD], (u32)sizeof(ret->head));
	e = runtime_read(&r->t->memory, ret->const_method, ret->head, ret->n_head);
	ret->constants = read_field(ret->head, ret->n_head, r->o->of[HF_CONST_CONSTANTS], 8);
	return e;
}

static int name_method(const struct reader *r, const struct method *m, struct runtime_frame *f)
{
	char class[MAX_NAME], name[MAX_NAME];
	_cleanup_str_ struct str text = {};
	u64 holder, symbol;
	int e = read_word(r, m->constants + r->o->of[HF_POOL_HOLDER], &holder);

	if (e == 0)
		e = read_word(r, holder + r->o->of[HF_CLASS_NAME], &symbol);
	if (e == 0)
		e = read_symbol(r, symbol, class);
	if (e == 0)
		e = pool_symbol(r, m->constants,
				(u32)read_field(m->head, m->n_head, r->o->of[HF_CONST_NAME], 2),
				name);
	if (e < 0)
		return e;
	if (!*class || !*name)
		return -EINVAL;
	external_name(class);
	text_append_clean(&text, class, 0);
	str_putc(&text, '.');
	text_append_clean(&text, name, 0);
	return text.failed ? -ENOMEM : keep_text(r, str_get(&text), &f->function);
}

static int source_of(const struct reader *r, const struct method *m, struct runtime_frame *f)
{
	_cleanup_str_ struct str text = {};
	char name[MAX_NAME];
	u64 holder;
	u16 index;
	int e;

	if (hotspot_has(r->o, HF_POOL_SOURCE)) {
		e = runtime_read(&r->t->memory, m->constants + r->o->of[HF_POOL_SOURCE], &index, 2);
	} else if (hotspot_has(r->o, HF_CLASS_SOURCE)) {
		e = read_word(r, m->constants + r->o->of[HF_POOL_HOLDER], &holder);
		if (e == 0)
			e = runtime_read(&r->t->memory, holder + r->o->of[HF_CLASS_SOURCE], &index,
					 2);
	} else {
		return 0;
	}
	if (e < 0 || !index)
		return e;
	e = pool_symbol(r, m->constants, index, name);
	if (e < 0)
		return e;
	text_append_clean(&text, name, 0);
	return text.failed ? -ENOMEM : keep_text(r, str_get(&text), &f->file);
}

/*
 * Finds the line of a bytecode: that of the nearest entry at or before it. Entries are not sorted.
 */
static void find_line(struct buf b, u32 exclude, u32 bci, u32 *ret_line, u32 *ret_first)
{
	u32 at = 0, line = 0, best = 0, first = 0;
	bool found = false;
	u8 byte;

	while (buf_u8(&b, &byte) && byte) {
		if (byte == 0xff) {
			u32 x, y;

			if (!hotspot_unsigned5(&b, exclude, &x) ||
			    !hotspot_unsigned5(&b, exclude, &y))
				break;
			at += (x >> 1) ^ (0 - (x & 1));
			line += (y >> 1) ^ (0 - (y & 1));
		} else {
			at += byte >> 3;
			line += byte & 7;
		}
		if (!first || line < first)
			first = line;
		if (at <= bci && (!found || at >= best)) {
			found = true;
			best = at;
			*ret_line = line;
		}
	}
	*ret_first = first;
}

static int read_lines(const struct reader *r, const struct method *m, u32 bci,
		      struct runtime_frame *f)
{
	u64 code = read_field(m->head, m->n_head, r->o->of[HF_CONST_CODE_SIZE], 2);
	u64 all = 8 * read_field(m->head, m->n_head, r->o->of[HF_CONST_SIZE], 4);
	u64 flags = read_field(m->head, m->n_head, r->o->of[HF_CONST_FLAGS], 2);
	u64 before = r->vm->sizes[HZ_CONST_METHOD] + code, n;
	_cleanup_free_ u8 *bytes = NULL;
	u32 line = 0;
	int e;

	if (!(flags & HAS_LINES) || all <= before || all > MAX_METHOD_BYTES)
		return 0;
	n = all - before;
	bytes = malloc(n);
	if (!bytes)
		return -ENOMEM;
	e = runtime_read(&r->t->memory, m->const_method + before, bytes, n);
	if (e < 0)
		return e;
	find_line(buf_of(bytes, n), r->o->exclude, bci == NO_BCI ? 0 : bci, &line, &f->start_line);
	if (bci != NO_BCI)
		f->line = line;
	return 0;
}

static int add_method(const struct reader *r, const struct method *m, u32 bci)
{
	struct runtime_frame f = {};
	int e;

	if (r->names->n == RUNTIME_MAX_INLINED)
		return -E2BIG;
	e = name_method(r, m, &f);
	if (e == 0)
		e = source_of(r, m, &f);
	if (e == 0)
		e = read_lines(r, m, bci, &f);
	if (e == 0)
		r->names->frames[r->names->n++] = f;
	return e;
}

static int add_method_at(const struct reader *r, u64 address, u32 bci)
{
	struct method m;
	int e = read_method(r, address, &m);

	return e < 0 ? e : add_method(r, &m, bci);
}

/*
 * Adds the Symbol that a pointer refers to to the hash. A Symbol without references is being freed.
 */
static int mix_symbol(const struct reader *r, u64 at, u64 *hash)
{
	u32 count = r->o->of[HF_SYMBOL_REFCOUNT];
	u64 symbol, word;
	int e = read_word(r, at, &symbol);

	symbol &= ~1ULL;
	if (e == 0)
		e = read_word(r, symbol, &word);
	if (e < 0)
		return e;
	if (!read_field(&word, sizeof(word), count, 2))
		return -ESTALE;
	*hash = hotspot_mix_symbol(*hash, symbol, word, count);
	return 0;
}

/*
 * 0: it is the method that the walker saw. `cookie` includes how many of its names the walker read.
 */
static int check_method(const struct reader *r, const struct method *m, u32 cookie)
{
	u32 n = cookie & HOTSPOT_COOKIE_SYMBOLS;
	u64 names = read_field(m->head, m->n_head, r->o->of[HF_CONST_NAME], 8);
	u64 hash = hotspot_mix(hotspot_mix(0, m->const_method), names), holder;
	int e = 0;

	if (n >= 1)
		e = read_word(r, m->constants + r->o->of[HF_POOL_HOLDER], &holder);
	if (n >= 1 && e == 0)
		e = mix_symbol(r, holder + r->o->of[HF_CLASS_NAME], &hash);
	if (n >= 2 && e == 0)
		e = mix_symbol(r, constant_at(r, m->constants, (u32)names & 0xffff), &hash);
	/* An unreadable method has been freed. */
	return e == 0 && hotspot_cookie(hash, n) == cookie ? 0 : -ESTALE;
}

static int name_interpreted(const struct reader *r, u64 address, u32 position, u32 cookie)
{
	struct method m, after;
	int e = read_method(r, address, &m);

	if (e == 0)
		e = check_method(r, &m, cookie);
	if (e == 0)
		e = add_method(r, &m, position == HOTSPOT_NO_POSITION ? NO_BCI : position);
	/* The method may have been freed while it was read. */
	if (e == 0 && (read_method(r, address, &after) < 0 || check_method(r, &after, cookie) < 0))
		e = -ESTALE;
	return e;
}

/* ---- compiled methods ---- */

struct compiled {
	u8 head[HOTSPOT_HEADER_BYTES];
	u64 address, method;
	u64 code, n_code;
	u64 metadata, pcs, scopes;
	u64 n_pcs, n_scopes; /* bytes */
	bool freed;
};

static u64 read_head32(const struct reader *r, const struct compiled *c, enum hotspot_field f)
{
	return read_field(c->head, sizeof(c->head), r->o->of[f], 4);
}

static u64 read_head64(const struct reader *r, const struct compiled *c, enum hotspot_field f)
{
	return read_field(c->head, sizeof(c->head), r->o->of[f], 8);
}

static void find_metadata(const struct reader *r, struct compiled *c)
{
	if (!hotspot_has(r->o, HF_NM_METADATA)) /* from 25 */
		c->metadata = read_head64(r, c, HF_BLOB_MUTABLE_DATA) +
			      read_head32(r, c, HF_BLOB_RELOCATION_SIZE);
	else if (hotspot_has(r->o, HF_NM_IMMUTABLE)) /* 23, 24: in the blob's data */
		c->metadata = c->address + read_head32(r, c, HF_BLOB_DATA_OFFSET) +
			      (read_head32(r, c, HF_NM_METADATA) & 0xffff);
	else
		c->metadata = c->address + read_head32(r, c, HF_NM_METADATA);
}

/* Since 21 freeing a method overwrites only what precedes its content. Checks for that. */
static int read_freed(const struct reader *r, u64 address, bool *ret)
{
	u64 block = address - r->vm->sizes[HZ_HEAP_BLOCK];
	u8 used = 1;
	int e = 0;

	if (hotspot_has(r->o, HF_BLOCK_USED))
		e = runtime_read(&r->t->memory, block + r->o->of[HF_BLOCK_USED], &used, 1);
	*ret = !used;
	return e;
}

static int read_compiled(const struct reader *r, u64 address, struct compiled *ret)
{
	u64 base, end;
	int e = runtime_read(&r->t->memory, address, ret->head, sizeof(ret->head));

	if (e == 0)
		e = read_freed(r, address, &ret->freed);
	if (e < 0)
		return e;
	ret->address = address;
	ret->method = read_head64(r, ret, HF_NM_METHOD);
	if (hotspot_has(r->o, HF_BLOB_CODE_BEGIN)) {
		ret->code = read_head64(r, ret, HF_BLOB_CODE_BEGIN);
		ret->n_code = read_head64(r, ret, HF_BLOB_CODE_END) - ret->code;
	} else {
		ret->code = address + read_head32(r, ret, HF_BLOB_CODE_OFFSET);
		ret->n_code = address + read_head32(r, ret, HF_BLOB_DATA_OFFSET) - ret->code;
	}
	find_metadata(r, ret);
	if (hotspot_has(r->o, HF_NM_IMMUTABLE)) {
		base = read_head64(r, ret, HF_NM_IMMUTABLE);
		ret->pcs = base + read_head32(r, ret, HF_NM_SCOPES_PCS);
		ret->scopes = base + read_head32(r, ret, HF_NM_SCOPES_DATA);
		ret->n_pcs = ret->scopes - ret->pcs;
		end = base + read_head32(r, ret, HF_NM_IMMUTABLE_SIZE);
		ret->n_scopes = end - ret->scopes;
	} else {
		ret->pcs = address + read_head32(r, ret, HF_NM_SCOPES_PCS);
		ret->n_pcs = address + read_head32(r, ret, HF_NM_DEPENDENCIES) - ret->pcs;
		ret->scopes = hotspot_has(r->o, HF_NM_SCOPES_BEGIN)
				      ? read_head64(r, ret, HF_NM_SCOPES_BEGIN)
				      : address + read_head32(r, ret, HF_NM_SCOPES_DATA);
		ret->n_scopes = ret->pcs - ret->scopes;
	}
	if (ret->n_pcs > MAX_DEBUG_BYTES || ret->n_scopes > MAX_DEBUG_BYTES)
		return -EINVAL;
	return 0;
}

/* The PcDescs around a position. The first and the last of the table are sentinels. */
struct descs {
	s64 at_before, at_after; /* -1: none */
	u32 before, after;	 /* offsets of their scopes */
};

static struct descs descs_around(const struct reader *r, const u8 *pcs, u64 n, u32 position)
{
	struct descs d = {.at_before = -1, .at_after = -1};
	u32 size = r->vm->sizes[HZ_PCDESC];

	for (u64 at = size; size && at + 2 * (u64)size <= n; at += size) {
		s32 pc = (s32)read_field(pcs + at, size, r->o->of[HF_PCDESC_PC], 4);
		u32 scope = (u32)read_field(pcs + at, size, r->o->of[HF_PCDESC_SCOPE], 4);

		if (pc >= (s64)position && (d.at_after < 0 || pc < d.at_after)) {
			d.at_after = pc;
			d.after = scope;
		} else if (pc < (s64)position && pc > d.at_before) {
			d.at_before = pc;
			d.before = scope;
		}
	}
	return d;
}

#define LEADS_NOWHERE (-1)
#define LEADS_OUT (-2) /* the method returns, or has left its frame for a stub that returns */

/* Branches on the way, other than straight on. */
struct ways {
	u32 n;
	u32 to[MAX_WAYS];
};

/*
 * Follows the code from a position until it reaches `end`. Returns another position, if a jump or
 * the end of a loop comes first; `end`; or LEADS_…. Branches on the way to beyond the end are added
 * to `ways`.
 */
static s64 leads_to(const struct reader *r, const struct compiled *c, u32 position, u32 end,
		    struct ways *ways)
{
	u8 code[MAX_CODE_BYTES];
	u32 n = MIN(end - position, (u32)sizeof(code)), at = 0;
	struct disasm_insn insn;

	if (runtime_read(&r->t->memory, c->code + position, code, n) < 0)
		return LEADS_NOWHERE;
	while (at < n &&
	       disasm_one(r->vm->disasm, buf_of(code + at, n - at), position + at, &insn)) {
		if (insn.flow == DISASM_JUMP)
			return insn.target < c->n_code ? (s64)insn.target : LEADS_OUT;
		if (insn.flow == DISASM_BRANCH && insn.target <= position)
			return (s64)insn.target;
		if (insn.flow == DISASM_RETURN)
			return LEADS_OUT;
		if (insn.flow != DISASM_NEXT && insn.flow != DISASM_CALL &&
		    insn.flow != DISASM_BRANCH)
			return LEADS_NOWHERE;
		if (insn.flow == DISASM_BRANCH && insn.target > end && insn.target < c->n_code &&
		    ways->n < MAX_WAYS)
			ways->to[ways->n++] = (u32)insn.target;
		at += insn.length;
	}
	return end;
}

/* Whether code at `from` leads back to a position at or before `to`: both are then in one loop. */
static bool leads_back(const struct reader *r, const struct compiled *c, u32 from, u32 to)
{
	u8 code[MAX_CODE_BYTES];
	u32 n = (u32)MIN(c->n_code - from, (u64)sizeof(code)), at = 0;
	struct disasm_insn insn;

	if (runtime_read(&r->t->memory, c->code + from, code, n) < 0)
		return false;
	while (at < n && disasm_one(r->vm->disasm, buf_of(code + at, n - at), from + at, &insn)) {
		if ((insn.flow == DISASM_JUMP || insn.flow == DISASM_BRANCH) && insn.target <= to)
			return true;
		if (insn.flow == DISASM_JUMP || insn.flow == DISASM_RETURN)
			return false;
		at += insn.length;
	}
	return false;
}

/* Offset in the code at which the frame is complete; since 23 only 16 bits of it are stored. */
static s64 frame_complete(const struct reader *r, const struct compiled *c)
{
	return hotspot_has(r->o, HF_NM_IMMUTABLE) ? (s16)read_head32(r, c, HF_BLOB_FRAME_COMPLETE)
						  : (s32)read_head32(r, c, HF_BLOB_FRAME_COMPLETE);
}

/*
 * Whether the position is after all that is described: in the slow path of the entry barrier, which
 * calls a stub and returns to where the frame is complete. As a caller it is at the last byte of
 * that call.
 */
static bool is_entry_barrier(const struct reader *r, const struct compiled *c, u32 position)
{
	struct ways unused = {};
	s64 complete = frame_complete(r, c);

	for (u32 i = 0; complete >= 0 && i < 2 && position + i < c->n_code; i++)
		if (leads_to(r, c, position + i, (u32)c->n_code, &unused) == complete)
			return true;
	return false;
}

/*
 * The scope of a position, and how many of its methods certainly run there, counted from the
 * outermost.
 */
struct place {
	u32 scope; /* 0: none; the position is at the method's entry */
	u32 sure;
};

/*
 * Determines the scope of a position. A PcDesc describes what ends at its pc: the call that returns
 * there, or the code that leads to that instruction. So the next PcDesc counts, in the order in
 * which the code runs: at the end of a loop it is that of the loop and not of the code that follows
 * in memory. If the method returns first, several paths may have joined, and only the outermost
 * method is certain.
 */
static struct place place_of(const struct reader *r, const struct compiled *c, const u8 *pcs,
			     u32 position, struct ways *ways)
{
	struct descs first, d = descs_around(r, pcs, c->n_pcs, position);
	struct place out = {.sure = RUNTIME_MAX_INLINED};
	u32 began = position;

	first = d;
	if (d.at_after < 0 && position < c->n_code && is_entry_barrier(r, c, position))
		return (struct place){};
	for (u32 i = 0; i < MAX_JUMPS && d.at_after != (s64)position; i++) {
		/* Slow paths of returns are at the end of the code. */
		u64 end = MIN((u64)d.at_after, c->n_code);
		s64 to = end > position ? leads_to(r, c, position, (u32)end, ways) : LEADS_NOWHERE;

		if (to == LEADS_OUT)
			out.sure = 1;
		if (to < 0 && d.before && (i == 0 || to == LEADS_OUT))
			d.after = d.before;
		if (to < 0 || (u64)to == end)
			break;
		position = (u32)to;
		d = descs_around(r, pcs, c->n_pcs, position);
	}
	/* Code after a loop says nothing about the position inside the loop. */
	if (position < began || (d.at_after >= 0 && leads_back(r, c, (u32)d.at_after, began)))
		ways->n = 0;
	out.scope = d.after ? d.after : first.before;
	return out;
}

/* ---- scopes ---- */

struct scopes {
	u32 n;
	struct {
		u32 method, bci;   /* both + 1; an index into the metadata */
	} of[RUNTIME_MAX_INLINED]; /* innermost first */
};

static int decode_scopes(const struct reader *r, struct buf all, u32 scope, struct scopes *ret)
{
	ret->n = 0;
	while (scope) {
		struct buf b = all;
		u32 sender, method, bci;

		if (ret->n == RUNTIME_MAX_INLINED)
			return -E2BIG;
		if (!buf_skip(&b, scope) || !hotspot_unsigned5(&b, r->o->exclude, &sender) ||
		    !hotspot_unsigned5(&b, r->o->exclude, &method) ||
		    !hotspot_unsigned5(&b, r->o->exclude, &bci) || !method || sender >= scope)
			return -EINVAL;
		ret->of[ret->n].method = method;
		ret->of[ret->n++].bci = bci;
		scope = sender;
	}
	return 0;
}

/* Counts the methods that two scopes share by the same calls, from the outermost on. */
static u32 in_common(const struct scopes *a, const struct scopes *b)
{
	u32 n = 0;

	while (n < a->n && n < b->n) {
		u32 i = a->n - 1 - n, k = b->n - 1 - n;

		if (a->of[i].method != b->of[k].method)
			break;
		n++;
		if (a->of[i].bci != b->of[k].bci)
			break;
	}
	return n;
}

/*
 * Finds the methods that a position is in: those of the next PcDesc that are also on all other
 * paths from here, because the position may precede the branch to inlined code.
 */
static int find_scopes(const struct reader *r, const struct compiled *c, u32 position,
		       struct scopes *ret, u32 *ret_sure)
{
	_cleanup_free_ u8 *pcs = malloc(c->n_pcs + 1), *data = malloc(c->n_scopes + 1);
	struct ways ways = {};
	struct scopes other;
	struct place p;
	int e;

	if (!pcs || !data)
		return -ENOMEM;
	e = runtime_read(&r->t->memory, c->pcs, pcs, c->n_pcs);
	if (e == 0)
		e = runtime_read(&r->t->memory, c->scopes, data, c->n_scopes);
	if (e < 0)
		return e;
	p = place_of(r, c, pcs, position, &ways);
	e = decode_scopes(r, buf_of(data, c->n_scopes), p.scope, ret);
	for (u32 i = 0; e == 0 && i < ways.n; i++) {
		struct ways unused = {};
		struct place o = place_of(r, c, pcs, ways.to[i], &unused);

		if (!o.scope || decode_scopes(r, buf_of(data, c->n_scopes), o.scope, &other) < 0)
			continue;
		p.sure = MIN(p.sure, o.sure);
		p.sure = MIN(p.sure, in_common(ret, &other));
	}
	*ret_sure = MAX(p.sure, 1u);
	return e;
}

static int add_scopes(const struct reader *r, const struct compiled *c, const struct scopes *scopes,
		      u32 sure)
{
	int e = 0;

	for (u32 i = scopes->n - MIN(sure, scopes->n); e == 0 && i < scopes->n; i++) {
		u32 bci = scopes->of[i].bci;
		u64 method;

		e = read_word(r, c->metadata + 8ULL * (scopes->of[i].method - 1), &method);
		if (e == 0) /* -1: at the entry */
			e = add_method_at(r, method, bci ? bci - 1 : 0);
	}
	return e;
}

/*
 * Checks that the nmethod is still the one that the walker saw. Its methods live as long as it
 * does. When one of them is unloaded, the nmethod is freed or loses its method, and its metadata
 * dangles; only after that their memory is reused.
 */
static int check_compiled(const struct reader *r, const struct compiled *c, u32 cookie)
{
	return !c->freed && c->method && (u32)read_head32(r, c, HF_NM_COMPILE_ID) == cookie
		       ? 0
		       : -ESTALE;
}

static int name_compiled(const struct reader *r, u64 address, u32 position, u32 cookie)
{
	struct compiled c, after;
	struct scopes scopes = {};
	u32 sure = 0;
	int e = read_compiled(r, address, &c);

	if (e == 0)
		e = check_compiled(r, &c, cookie);
	if (e < 0)
		return e;
	if (position != HOTSPOT_NO_POSITION && c.n_pcs)
		e = find_scopes(r, &c, position, &scopes, &sure);
	if (e == 0 && scopes.n)
		e = add_scopes(r, &c, &scopes, sure);
	else if (e == 0) /* a prologue, or the wrapper of a native method */
		e = add_method_at(r, c.method, NO_BCI);
	if (e == 0 &&
	    (read_compiled(r, address, &after) < 0 || check_compiled(r, &after, cookie) < 0))
		e = -ESTALE;
	return e;
}

/* ---- stubs ---- */

/* Returns the last stub routine that begins at or before pc; NULL: there is none in this blob. */
static const char *stub_routine(const struct reader *r, u64 blob, u64 pc)
{
	const char *best = NULL;
	u64 best_at = blob;

	for (u32 i = 0; i < r->vm->n_stubs; i++) {
		bool failed = false;
		u64 at = runtime_u64(&r->t->memory, r->vm->stubs[i].svma + r->t->bias, &failed);

		if (!failed && at <= pc && at > best_at) {
			best_at = at;
			best = r->vm->stubs[i].name;
		}
	}
	return best;
}

static int name_stub(const struct reader *r, u64 address, u32 cookie)
{
	char name[64] = {}, text[160];
	const char *routine = NULL;
	u64 at, pc = (address & ~0xffffffffULL) | cookie;
	int e = read_word(r, address + r->o->of[HF_BLOB_NAME], &at);

	for (size_t i = 0; e == 0 && i + 1 < sizeof(name) && (!i || name[i - 1]); i++)
		e = runtime_read(&r->t->memory, at + i, &name[i], 1);
	if (e < 0)
		return e;
	if (pc < address) /* the blob crosses 4 GiB */
		pc += 1ULL << 32;
	if (str_starts(name, "StubRoutines"))
		routine = stub_routine(r, address, pc);
	if (routine)
		snprintf(text, sizeof(text), "StubRoutines::%s", routine);
	else
		snprintf(text, sizeof(text), "[%s]", *name ? name : "stub");
	r->names->n = 1;
	r->names->frames[0] = (struct runtime_frame){};
	return keep_text(r, text, &r->names->frames[0].function);
}

int hotspot_name(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
		 const struct runtime_target *t, u64 address, u64 where, struct runtime_names *ret)
{
	struct reader r = {.vm = vm, .o = o, .t = t, .names = ret};
	u32 position = where >> HOTSPOT_POSITION_SHIFT & HOTSPOT_NO_POSITION, cookie = (u32)where;

	switch (where >> HOTSPOT_KIND_SHIFT) {
	case HOTSPOT_INTERPRETED:
		return name_interpreted(&r, address, position, cookie);
	case HOTSPOT_COMPILED:
		return name_compiled(&r, address, position, cookie);
	case HOTSPOT_STUB:
		return name_stub(&r, address, cookie);
	default:
		return -EINVAL;
	}
}
