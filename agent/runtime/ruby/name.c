/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names a frame as Ruby's backtraces of the version do (vm_backtrace.c): up to 3.3 by the label of
 * the code, from 3.4 on with the class that owns the method. A method in C has the file and the
 * line of its caller. All of this is memory of the process: sizes are bounded, and what forms the
 * cookie must be what the walker saw, or the memory holds another object.
 *
 * The index of lines (iseq.c, struct succ_index_table) tells how many entries begin at or before a
 * position: for positions up to 53 in words of nine numbers of 7 bits; then in blocks of 512
 * positions with a bit for each position where an entry begins, and sums before the block and
 * before each of its words.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/runtime/ruby/ruby.h"
#include "base/text.h"

#define MAX_TEXT 1024 /* bytes of a label, a class or a path */
#define MAX_LENGTH (1u << 24)
#define MAX_NESTED 64 /* blocks in a method */
#define MAX_ARRAY (1u << 24)

/* Kinds of objects, and flags (include/ruby/internal/value_type.h, fl_type.h) */
#define OBJECT_CLASS 2
#define OBJECT_MODULE 3
#define OBJECT_STRING 5
#define OBJECT_ARRAY 7
#define STRING_OUTSIDE (1u << 13)
#define ARRAY_INSIDE (1u << 13)
#define CLASS_SINGLETON (1u << 13) /* 3.4 */

/*
 * Words of strings and arrays; a short string or array begins where the length or pointer would be.
 */
#define STRING_LENGTH 2
#define STRING_POINTER 3
#define ARRAY_ITEMS 2
#define ARRAY_POINTER 4

/* 3.4: after struct RClass of 32 bytes follows rb_classext_t (internal/class.h). */
#define CLASS_ATTACHED (32 + 96)
#define CLASS_PATH (32 + 120)

/* rb_callable_method_entry_t, rb_method_definition_t (method.h) */
#define METHOD_OWNER 32
#define DEFINITION_NAME 32
#define DEFINITION_KIND_MASK 15
#define DEFINITION_IN_C 1

/* Symbols (symbol.h): ids up to tLAST_OP_ID are their own number; a block has 512 pairs. */
#define SYMBOLS_BLOCKS 16
#define SYMBOLS_IN_BLOCK 512
#define LAST_OPERATOR 1000
#define SCOPE_SHIFT 4

/* enum rb_iseq_type (vm_core.h) */
#define CODE_METHOD 1
#define CODE_BLOCK 2
#define CODE_EVAL 6
#define CODE_PLAIN 8

struct reader {
	const struct runtime_memory *m;
	const struct ruby_learned *l;
	u64 bias;
	struct arena *arena;
};

/* What a frame's words lead to. */
struct objects {
	u64 at; /* of the body */
	u64 body[RUBY_BODY_WORDS];
	u64 definition; /* of the method */
};

static u64 word(const struct reader *r, u64 at, bool *failed)
{
	return at % 8 ? (*failed = true, 0) : runtime_u64(r->m, at, failed);
}

static u32 half(const struct reader *r, u64 at, bool *failed)
{
	return runtime_u32(r->m, at, failed);
}

/* Copies a string, cut at MAX_TEXT - 1 bytes, as one clean line. */
static int read_text(const struct reader *r, u64 object, char *ret)
{
	u64 head[5], n, data;

	if (!object || object % 8 || runtime_read(r->m, object, head, sizeof(head)) < 0)
		return -EFAULT;
	if ((head[0] & RUBY_KIND_MASK) != OBJECT_STRING)
		return -ESTALE;
	n = head[STRING_LENGTH];
	data = object + r->l->layout.string;
	if (head[0] & STRING_OUTSIDE)
		data = head[STRING_POINTER];
	else if (r->l->layout.string == 8 * STRING_LENGTH)
		n = head[0] >> 14 & 31;
	if (n > MAX_LENGTH)
		return -EINVAL;
	n = MIN(n, (u64)MAX_TEXT - 1);
	if (n && runtime_read(r->m, data, ret, n) < 0)
		return -EFAULT;
	ret[n] = 0;
	text_clean(ret);
	return 0;
}

static int keep_text(const struct reader *r, const char *text, const char **ret)
{
	size_t n = strlen(text) + 1;
	char *copy = arena_alloc(r->arena, n);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, n);
	*ret = copy;
	return 0;
}

/* The item of an array; 0: there is none. */
static u64 item(const struct reader *r, u64 array, u64 i, bool *failed)
{
	u64 flags = word(r, array, failed), items = array + 8ULL * ARRAY_ITEMS;

	if (*failed || (flags & RUBY_KIND_MASK) != OBJECT_ARRAY || i > MAX_ARRAY)
		return 0;
	if (!(flags & ARRAY_INSIDE))
		items = word(r, array + 8ULL * ARRAY_POINTER, failed);
	return *failed ? 0 : word(r, items + 8 * i, failed);
}

/* ---- lines ---- */

/* How many entries begin at or before `position`. */
static u32 entries_before(const struct reader *r, u64 index, u32 position, bool *failed)
{
	u32 in_block, rank;
	u64 block, sums, bits;

	if (position < 54)
		return word(r, index + 8 * (position / 9), failed) >> (position % 9 * 7) & 127;
	in_block = (position - 54) % 512;
	block = index + 48 + (u64)(position - 54) / 512 * 80;
	rank = half(r, block, failed);
	sums = word(r, block + 8, failed);
	bits = word(r, block + 16 + 8 * (in_block / 64), failed);
	if (in_block >= 64)
		rank += sums >> (in_block / 64 - 1) * 9 & 511;
	return rank + (u32)__builtin_popcountll(bits << (63 - in_block % 64));
}

/* The line of a position in words; 0: unknown. The code is after the instruction that runs. */
static u32 read_line(const struct reader *r, u64 body, u32 position)
{
	const struct ruby_layout *o = &r->l->layout;
	bool failed = false;
	u32 n = half(r, body + o->n_lines, &failed), entry = 0, line;

	if (failed || !n)
		return 0;
	position -= position > 0;
	if (n > 1)
		entry = entries_before(r, word(r, body + o->line_index, &failed), position,
				       &failed) -
			1;
	if (failed || entry >= n)
		return 0;
	line = half(r, word(r, body + o->lines, &failed) + (u64)entry * o->line_bytes, &failed);
	return failed || line > INT32_MAX ? 0 : line;
}

/* ---- names ---- */

/* Whether a class's path is a constant: other classes have none, or one like "#<Class:0x…>". */
static bool is_constant(const char *path)
{
	return (*path >= 'A' && *path <= 'Z') || *path & 0x80;
}

/* Prefixes a method's name with the class that owns it: "Class#" or, for its singleton, "Class." */
static void add_owner(const struct reader *r, u64 method, const char *name, struct str *out)
{
	bool failed = false;
	u64 owner = word(r, method + METHOD_OWNER, &failed);
	u64 flags = failed ? 0 : word(r, owner, &failed);
	bool singleton = (flags & RUBY_KIND_MASK) == OBJECT_CLASS && flags & CLASS_SINGLETON;
	char path[MAX_TEXT];

	if (singleton) {
		owner = word(r, owner + CLASS_ATTACHED, &failed);
		flags = failed ? 0 : word(r, owner, &failed);
	}
	flags &= RUBY_KIND_MASK;
	if (!failed && (flags == OBJECT_CLASS || flags == OBJECT_MODULE) &&
	    read_text(r, word(r, owner + CLASS_PATH, &failed), path) == 0 && is_constant(path))
		str_printf(out, "%s%c", path, singleton ? '.' : '#');
	str_puts(out, name);
}

static int read_label(const struct reader *r, u64 body, char *ret)
{
	bool failed = false;
	u64 label = word(r, body + 8ULL * RUBY_BODY_LABEL, &failed);

	return failed ? -EFAULT : read_text(r, label, ret);
}

/* The body of an iseq to which a field of another one points; 0: none. */
static u64 linked(const struct reader *r, u64 body, u32 field, bool *failed)
{
	u64 iseq = word(r, body + field, failed);

	return *failed || !iseq ? 0 : word(r, iseq + RUBY_ISEQ_BODY, failed);
}

/*
 * 3.4 on: "block in " for blocks, and the method's name with its owner. Code of rescue, ensure and
 * eval has the name of the code around it.
 */
static int name_with_owner(const struct reader *r, u64 body, u64 method, struct str *out)
{
	char label[MAX_TEXT];
	bool failed = false;
	u32 levels = 0;
	int e;

	for (u32 i = 0; i < MAX_NESTED; i++) {
		u32 kind = half(r, body, &failed);
		u64 outer = linked(r, body, r->l->layout.parent, &failed);
		u64 local = linked(r, body, r->l->layout.local, &failed);

		if (failed)
			return -EFAULT;
		if (kind == CODE_BLOCK || kind == CODE_PLAIN) {
			/* As far as blocks are nested in the same method. */
			for (levels = 0; outer && local != body && levels < MAX_NESTED;) {
				levels += half(r, body, &failed) == CODE_BLOCK;
				body = linked(r, body, r->l->layout.parent, &failed);
				if (failed || !body)
					return -ESTALE;
				i++;
			}
			if (levels <= 1)
				str_puts(out, "block in ");
			else
				str_printf(out, "block (%u levels) in ", levels);
			if (kind == half(r, body, &failed) || failed)
				return -ESTALE;
			continue;
		}
		if ((kind == RUBY_CODE_RESCUE || kind == RUBY_CODE_ENSURE || kind == CODE_EVAL) &&
		    outer) {
			body = outer;
			continue;
		}
		e = read_label(r, body, label);
		if (e < 0)
			return e;
		if (kind == CODE_METHOD && method)
			add_owner(r, method, label, out);
		else
			str_puts(out, label);
		return 0;
	}
	return -ESTALE;
}

/* The text of a symbol. */
static int read_symbol(const struct reader *r, u64 id, char *ret)
{
	u64 number = id > LAST_OPERATOR ? id >> SCOPE_SHIFT : id, blocks, block, text;
	bool failed = false;

	if (!r->l->symbols)
		return -ENOENT;
	blocks = word(r, r->bias + r->l->symbols + SYMBOLS_BLOCKS, &failed);
	block = failed ? 0 : item(r, blocks, number / SYMBOLS_IN_BLOCK, &failed);
	text = failed || !block ? 0 : item(r, block, number % SYMBOLS_IN_BLOCK * 2, &failed);
	return failed ? -EFAULT : read_text(r, text, ret);
}

static int name_in_c(const struct reader *r, u64 method, u64 definition, struct str *out)
{
	char text[MAX_TEXT];
	bool failed = false;
	u64 kind = word(r, definition, &failed) & DEFINITION_KIND_MASK;
	u64 id = word(r, definition + DEFINITION_NAME, &failed);
	int e;

	if (failed || kind != DEFINITION_IN_C)
		return -ESTALE;
	e = read_symbol(r, id, text);
	if (e < 0)
		return e;
	if (r->l->layout.owners)
		add_owner(r, method, text, out);
	else
		str_puts(out, text);
	return 0;
}

static int name_code(const struct reader *r, u64 body, u64 method, struct str *out)
{
	char label[MAX_TEXT];
	int e;

	if (r->l->layout.owners)
		return name_with_owner(r, body, method, out);
	e = read_label(r, body, label);
	if (e == 0)
		str_puts(out, label);
	return e;
}

/* The path as in backtraces: the object is a string, or the array {path, real path}. */
static int read_path(const struct reader *r, u64 object, const char **ret)
{
	char text[MAX_TEXT];
	bool failed = false;
	u64 flags = word(r, object, &failed);
	int e;

	if (!failed && (flags & RUBY_KIND_MASK) == OBJECT_ARRAY)
		object = item(r, object, 0, &failed);
	e = failed ? -EFAULT : read_text(r, object, text);
	return e < 0 ? e : keep_text(r, text, ret);
}

/* The word at an offset in an internal object; 0: the object is none of this kind. */
static u64 word_in(const struct reader *r, u64 object, u32 kind, u32 offset)
{
	bool failed = false;
	u64 flags = word(r, object, &failed), value = word(r, object + offset, &failed);

	return !failed && (flags & RUBY_KIND_MASK) == RUBY_KIND_IMEMO &&
			       (flags >> RUBY_IMEMO_SHIFT & RUBY_IMEMO_MASK) == kind
		       ? value
		       : 0;
}

/*
 * Reads the objects of a frame; an address of 0 has none. Returns the cookie of what was read, or a
 * number that is no cookie: an object is not of its kind any more.
 */
static u64 read_objects(const struct reader *r, u64 iseq, u64 method, bool in_c,
			struct objects *ret)
{
	*ret = (struct objects){};
	if (iseq)
		ret->at = word_in(r, iseq, RUBY_IMEMO_ISEQ, RUBY_ISEQ_BODY);
	if (method)
		ret->definition = word_in(r, method, RUBY_IMEMO_METHOD, RUBY_METHOD_BODY);
	if ((iseq && (!ret->at || ret->at % 8 ||
		      runtime_read(r->m, ret->at, ret->body, sizeof(ret->body)) < 0)) ||
	    (method && !ret->definition))
		return ~0ULL;
	return ruby_cookie(ret->body, in_c ? ret->definition : 0) & RUBY_COOKIE_MASK;
}

int ruby_name(const struct runtime_memory *m, const struct ruby_learned *l, u64 bias, u64 address,
	      u64 where, struct runtime_names *ret)
{
	const struct reader r = {m, l, bias, ret->arena};
	u64 iseq = (address & RUBY_ADDRESS_MASK) << 3, method = (where & RUBY_ADDRESS_MASK) << 3;
	u64 cookie = address >> RUBY_ADDRESS_BITS & RUBY_COOKIE_MASK;
	u64 position = where >> RUBY_ADDRESS_BITS;
	bool in_c = address & RUBY_IN_C;
	_cleanup_str_ struct str name = {};
	struct runtime_frame f = {};
	struct objects o;
	int e;

	if ((in_c ? !method : !iseq) || read_objects(&r, iseq, method, in_c, &o) != cookie)
		return -ESTALE;
	e = in_c ? name_in_c(&r, method, o.definition, &name) : name_code(&r, o.at, method, &name);
	if (e < 0 || name.failed)
		return e < 0 ? e : -ENOMEM;
	e = keep_text(&r, str_get(&name), &f.function);
	if (e < 0)
		return e;
	if (iseq) {
		if (read_path(&r, o.body[RUBY_BODY_PATH], &f.file) < 0)
			f.file = NULL;
		if (!in_c)
			f.start_line = (u32)o.body[RUBY_BODY_FIRST_LINE];
		if (f.start_line > INT32_MAX)
			f.start_line = 0;
		if (position != RUBY_NO_POSITION)
			f.line = read_line(&r, o.at, (u32)position);
	}
	/* They were the same from the first read to the last. */
	if (read_objects(&r, iseq, method, in_c, &o) != cookie)
		return -ESTALE;
	ret->n = 1;
	ret->frames[0] = f;
	return 0;
}
