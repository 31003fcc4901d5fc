/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes answers to disk: one file per binary, doc/format/symbol-cache.md.
 *
 * A file contains a hash of all its bytes; a file with a wrong hash is ignored. The reader still
 * checks every offset, so that a hostile file with a right hash can do no harm.
 */
#include <unistd.h>

#include "base/buf.h"
#include "base/cachedir.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "symbol/answers.h"

#define MAGIC "CULPSYM"
#define VERSION 1
#define HEADER_BYTES 40U
#define FRAME_BYTES 24U
#define ANSWER_BYTES 16U
#define MAX_FILE (32U << 20)
#define MAX_DIR (512ULL << 20)

/* ---- reading ---- */

struct image {
	struct buf strings, frames, answers;
	u32 n_frames, n_answers;
};

static int parse_header(const void *bytes, size_t n, u64 key, struct image *ret)
{
	struct buf b = buf_of(bytes, n);
	u32 version, n_strings;
	u64 hash, file_key;
	struct buf magic;

	if (n < HEADER_BYTES || !buf_take(&b, 8, &magic) || memcmp(magic.pos, MAGIC, 8) != 0 ||
	    !buf_u64(&b, &hash))
		return -EBADMSG;
	if (hash_bytes(b.pos, buf_left(&b)) != hash)
		return -EBADMSG;
	if (!buf_u64(&b, &file_key) || !buf_u32(&b, &version) || !buf_u32(&b, &n_strings) ||
	    !buf_u32(&b, &ret->n_frames) || !buf_u32(&b, &ret->n_answers))
		return -EBADMSG;
	if (version != VERSION || file_key != key)
		return -ENOENT;
	if (!buf_take(&b, n_strings, &ret->strings) ||
	    !buf_take(&b, (u64)ret->n_frames * FRAME_BYTES, &ret->frames) ||
	    !buf_take(&b, (u64)ret->n_answers * ANSWER_BYTES, &ret->answers))
		return -EBADMSG;
	return 0;
}

/* Offsets into the strings count from 1; 0 is no text. */
static bool string_of(const struct image *x, u32 offset, const char **ret)
{
	struct buf b = x->strings;

	*ret = NULL;
	return offset == 0 || (buf_skip(&b, offset - 1) && buf_cstr(&b, ret));
}

static bool parse_frame(const struct image *x, u32 index, struct symbol_frame *ret)
{
	struct buf b = x->frames;
	u32 name, system_name, file, line, start_line;
	u16 column, inlined;

	if (!buf_skip(&b, (u64)index * FRAME_BYTES) || !buf_u32(&b, &name) ||
	    !buf_u32(&b, &system_name) || !buf_u32(&b, &file) || !buf_u32(&b, &line) ||
	    !buf_u32(&b, &start_line) || !buf_u16(&b, &column) || !buf_u16(&b, &inlined))
		return false;
	*ret = (struct symbol_frame){
		.line = line, .column = column, .start_line = start_line, .inlined = inlined & 1};
	return string_of(x, name, &ret->name) && string_of(x, system_name, &ret->system_name) &&
	       string_of(x, file, &ret->file) && ret->name && ret->system_name;
}

static int parse_answer(struct answers *a, const struct image *x, struct buf *b,
			struct symbol_chain *chain)
{
	u32 first, n;
	u64 svma;

	if (!buf_u64(b, &svma) || !buf_u32(b, &first) || !buf_u32(b, &n) || n > SYMBOL_MAX_CHAIN ||
	    first > x->n_frames || n > x->n_frames - first)
		return -EBADMSG;
	for (u32 i = 0; i < n; i++)
		if (!parse_frame(x, first + i, &chain->frames[i]))
			return -EBADMSG;
	chain->n = n;
	if (map_get(&a->by_svma, svma))
		return -EBADMSG;
	return answers_put(a, svma, chain, false);
}

int answers_parse(struct answers *a, const void *bytes, size_t n, u64 key)
{
	_cleanup_free_ struct symbol_chain *chain = malloc(sizeof(*chain));
	struct image x;
	int r = parse_header(bytes, n, key, &x);

	if (!chain)
		return -ENOMEM;
	for (u32 i = 0; r == 0 && i < x.n_answers; i++)
		r = parse_answer(a, &x, &x.answers, chain);
	if (r < 0)
		answers_deinit(a);
	else
		a->n_loaded = a->list.n;
	return r;
}

static int open_cache(const char *dir, struct cachedir **ret)
{
	const struct cachedir_options o = {.path = dir, .suffix = ".sym", .max_bytes = MAX_DIR};

	return cachedir_open(&o, ret);
}

int answers_load(struct answers *a, const char *dir, const char *name, u64 key)
{
	_cleanup_cachedir_ struct cachedir *c = NULL;
	_cleanup_free_ u8 *bytes = NULL;
	_cleanup_close_ int fd = -1;
	u64 size = 0;
	int r = open_cache(dir, &c);
	ssize_t n;

	if (r == 0)
		r = fd = cachedir_find(c, name, &size);
	if (r < 0)
		return r;
	if (size > MAX_FILE || size < HEADER_BYTES)
		return -EBADMSG;
	bytes = malloc(size);
	if (!bytes)
		return -ENOMEM;
	n = pread(fd, bytes, size, 0);
	if (n != (ssize_t)size)
		return n < 0 ? -errno : -EBADMSG;
	return answers_parse(a, bytes, size, key);
}

/* ---- writing ---- */

struct writer {
	const struct answers *a;
	struct str strings, frames, answers;
	struct map offsets; /* id in the pool → offset + 1 */
	u32 n_frames, n_answers;
};

static void writer_deinit(struct writer *w)
{
	str_deinit(&w->strings);
	str_deinit(&w->frames);
	str_deinit(&w->answers);
	map_deinit(&w->offsets);
}

static void put_u16(struct str *s, u16 v)
{
	str_append(s, &v, sizeof(v));
}

static void put_u32(struct str *s, u32 v)
{
	str_append(s, &v, sizeof(v));
}

static void put_u64(struct str *s, u64 v)
{
	str_append(s, &v, sizeof(v));
}

static u32 put_string(struct writer *w, u32 id)
{
	const char *text = strpool_get(&w->a->pool, id);
	const u64 *known = map_get(&w->offsets, id);
	u32 offset;

	if (!text)
		return 0;
	if (known)
		return (u32)*known;
	offset = (u32)w->strings.n + 1;
	str_append(&w->strings, text, strlen(text) + 1);
	if (map_put(&w->offsets, id, offset) < 0)
		w->strings.failed = true;
	return offset;
}

static void put_answer(struct writer *w, const struct answer *x)
{
	put_u64(&w->answers, x->svma);
	put_u32(&w->answers, w->n_frames);
	put_u32(&w->answers, x->n);
	w->n_answers++;
	for (u32 i = 0; i < x->n; i++) {
		const struct answer_frame *f = &w->a->frames.data[x->first + i];

		put_u32(&w->frames, put_string(w, f->name));
		put_u32(&w->frames, put_string(w, f->system_name));
		put_u32(&w->frames, put_string(w, f->file));
		put_u32(&w->frames, f->line);
		put_u32(&w->frames, f->start_line);
		put_u16(&w->frames, f->column);
		put_u16(&w->frames, f->inlined);
		w->n_frames++;
	}
}

static int encode_answers(const struct answers *a, u64 key, struct str *ret)
{
	struct writer w = {.a = a};
	struct str body = {};
	u64 hash;

	/* Newest answers first: if there are too many, the oldest are omitted. */
	for (size_t i = a->list.n; i-- > 0;) {
		if (HEADER_BYTES + w.strings.n + w.frames.n + w.answers.n + 65536 * 4 > MAX_FILE)
			break;
		if (!a->list.data[i].transient)
			put_answer(&w, &a->list.data[i]);
	}
	put_u64(&body, key);
	put_u32(&body, VERSION);
	put_u32(&body, (u32)w.strings.n);
	put_u32(&body, w.n_frames);
	put_u32(&body, w.n_answers);
	str_append(&body, str_get(&w.strings), w.strings.n);
	str_append(&body, str_get(&w.frames), w.frames.n);
	str_append(&body, str_get(&w.answers), w.answers.n);
	hash = hash_bytes(str_get(&body), body.n);
	str_append(ret, MAGIC, 8);
	put_u64(ret, hash);
	str_append(ret, str_get(&body), body.n);
	if (w.strings.failed || w.frames.failed || w.answers.failed || body.failed)
		ret->failed = true;
	str_deinit(&body);
	writer_deinit(&w);
	return ret->failed ? -ENOMEM : 0;
}

int answers_save(const struct answers *a, const char *dir, const char *name, u64 key)
{
	_cleanup_cachedir_ struct cachedir *c = NULL;
	_cleanup_str_ struct str bytes = {};
	int r = encode_answers(a, key, &bytes);

	if (r == 0)
		r = open_cache(dir, &c);
	return r < 0 ? r : cachedir_write(c, name, bytes.data, bytes.n);
}
