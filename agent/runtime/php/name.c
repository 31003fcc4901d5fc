/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the names of a function in a live process. All of this is memory of the process: sizes are
 * bounded, and what forms the cookie must equal what the walker saw, or the memory holds another
 * function. A text whose hash is not the one that it carries is being written, or was freed.
 */
#include <errno.h>
#include <string.h>

#include "agent/runtime/php/php.h"
#include "base/text.h"

#define MAX_TEXT 4096 /* bytes that are read of a text */

/* Zend/zend_string.h: DJBX33A, with the highest bit set. */
static u64 hash_of(const u8 *text, size_t n)
{
	u64 h = 5381;

	for (size_t i = 0; i < n; i++)
		h = h * 33 + text[i];
	return h | 1ULL << 63;
}

/* A zend_string, read whole. */
struct text {
	u64 id; /* php_text_id() */
	u32 n;
	u8 bytes[MAX_TEXT];
};

static int read_text(const struct runtime_memory *m, const struct php_learned *l, u64 at,
		     struct text *ret)
{
	u64 head[PHP_STRING_BYTES / 8], words[PHP_TEXT_WORDS] = {}, hash;
	u32 tail;

	if (runtime_read(m, at, head, sizeof(head)) < 0)
		return -EFAULT;
	hash = head[PHP_STRING_HASH / 8];
	if (head[PHP_STRING_LENGTH / 8] > MAX_TEXT)
		return -EINVAL;
	ret->n = (u32)head[PHP_STRING_LENGTH / 8];
	if (ret->n && runtime_read(m, at + l->string_text, ret->bytes, ret->n) < 0)
		return -EFAULT;
	tail = MIN(ret->n, (u32)sizeof(words));
	memcpy(words, ret->bytes + ret->n - tail, tail);
	ret->id = php_text_id(hash, ret->n, words);
	return hash && hash != hash_of(ret->bytes, ret->n) ? -ESTALE : 0;
}

/*
 * Builds "Class::function" or the name alone. The name of an anonymous class has a NUL and a place
 * after it, which is left out.
 */
static int put_name(struct arena *arena, const struct text *class, const struct text *function,
		    const char **ret)
{
	size_t n = class ? strnlen((const char *)class->bytes, class->n) : 0;
	char *text = arena_alloc(arena, n + 2 + function->n + 1);
	char *to = text;

	if (!text)
		return -ENOMEM;
	if (class) {
		memcpy(to, class->bytes, n);
		memcpy(to + n, "::", 2);
		to += n + 2;
	}
	memcpy(to, function->bytes, function->n);
	to[function->n] = 0;
	text_clean(text);
	*ret = text;
	return 0;
}

static const char *name_of_code(u32 kind)
{
	switch (kind & ~PHP_NO_FILE) {
	case PHP_INCLUDE:
		return "include";
	case PHP_INCLUDE_ONCE:
		return "include_once";
	case PHP_REQUIRE:
		return "require";
	case PHP_REQUIRE_ONCE:
		return "require_once";
	case PHP_EVAL:
		return "eval";
	default:
		return "{main}";
	}
}

static int name_of_function(const struct runtime_memory *m, const struct php_learned *l, u64 scope,
			    const struct text *function, struct arena *arena, const char **ret)
{
	struct text class;
	u64 at;
	int r;

	if (!scope)
		return put_name(arena, NULL, function, ret);
	if (runtime_read(m, scope + l->class_name, &at, sizeof(at)) < 0)
		return -EFAULT;
	r = read_text(m, l, at, &class);
	return r < 0 ? r : put_name(arena, &class, function, ret);
}

/* What the memory of a function says about it. */
struct function {
	u64 words[PHP_FUNCTION_WORDS];
	u64 name, scope, file;
	struct text name_text, file_text;
};

/* A string that the walker could not read is 0 in its cookie. */
static bool is_same(const struct function *f, u32 cookie)
{
	for (u32 i = 0; i < 4; i++)
		if (php_cookie(f->name, f->scope, f->file, i & 1 ? 0 : f->name_text.id,
			       i & 2 ? 0 : f->file_text.id) == cookie)
			return true;
	return false;
}

static int read_function(const struct runtime_memory *m, const struct php_learned *l, u64 address,
			 u32 kind, struct function *ret)
{
	bool whole = !(kind & PHP_NO_FILE);
	int r;

	if (runtime_read(m, address, ret->words, whole ? PHP_FUNCTION_BYTES : PHP_FUNCTION_HEAD) <
	    0)
		return -EFAULT;
	ret->name = ret->words[PHP_FUNCTION_NAME / 8];
	ret->scope = ret->words[PHP_FUNCTION_SCOPE / 8];
	ret->file = whole ? ret->words[l->bpf.filename / 8] : 0;
	ret->name_text.id = ret->file_text.id = 0;
	ret->name_text.n = ret->file_text.n = 0;
	r = ret->name ? read_text(m, l, ret->name, &ret->name_text) : 0;
	if (r == 0 && ret->file)
		r = read_text(m, l, ret->file, &ret->file_text);
	return r;
}

int php_name(const struct runtime_memory *m, const struct php_learned *l, u64 address, u64 where,
	     struct runtime_names *ret)
{
	u32 kind = (u32)where >> PHP_KIND_SHIFT;
	struct runtime_frame frame = {.line = (u32)where & PHP_LINE_MASK};
	struct function f;
	int r = read_function(m, l, address, kind, &f);

	if (r < 0)
		return r;
	if (!is_same(&f, (u32)(where >> 32)))
		return -ESTALE;
	if (f.name && !(kind & ~PHP_NO_FILE))
		r = name_of_function(m, l, f.scope, &f.name_text, ret->arena, &frame.function);
	else
		frame.function = name_of_code(kind);
	if (r == 0 && f.file_text.n)
		r = put_name(ret->arena, NULL, &f.file_text, &frame.file);
	if (r < 0)
		return r;
	if (f.file)
		frame.start_line = (u32)f.words[l->bpf.filename / 8 + 1];
	if (frame.start_line > PHP_LINE_MASK)
		frame.start_line = 0;
	ret->n = 1;
	ret->frames[0] = frame;
	return 0;
}
