/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads perf.data, as `perf record` writes it into a file or a pipe (perf.data-file-format.txt in
 * the kernel's tools/perf/Documentation). A record is
 *
 *	u32 type, u16 misc, u16 size of the whole, then what the type and the attributes say
 *
 * The records of different CPUs are not in the order of time: they are found first, then sorted.
 * With -z they are in records of their own, as one zstd stream. The format has no names of
 * functions: frames are offsets in files with a build id, which culprit's commands look up
 * (cli/naming.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/quota.h"
#include "base/text.h"
#include "base/vocab.h"
#include "format/perf_data.h"

#define MAGIC "PERFILE2"
#define PIPE_HEADER_BYTES 16
#define HEADER_BYTES 104 /* up to the bits of the features */
#define MAX_ATTRS 4096
#define BUILD_ID_BYTES 20
#define MISC_BUILD_ID_SIZE (1 << 15)
#define UPDATE_NAME 2
/* What a compressed file may become: perf's records compress by 10 to 30. */
#define PLAIN_PER_BYTE 64

enum feature { FEATURE_BUILD_ID = 2, FEATURE_CMDLINE = 11, FEATURE_EVENT_DESC = 12 };

static void perf_data_deinit(struct perf_data *f)
{
	profile_destroy(f->p);
	str_deinit(&f->plain);
	zstd_stream_destroy(f->zstd);
	vec_deinit(&f->attrs);
	map_deinit(&f->ids);
	map_deinit(&f->build_ids);
	vec_deinit(&f->records);
}

static int bad(const struct perf_data *f, u64 offset, const char *what)
{
	return diag_set_at(f->diag, -EBADMSG, offset, "perf.data: %s", what);
}

/* ---- attributes and features ---- */

static int add_attr(struct perf_data *f, struct buf attr, struct buf ids)
{
	struct perf_attr a;
	u64 id;
	int r;

	if (f->attrs.n == MAX_ATTRS || !perf_attr_read(attr, &a))
		return bad(f, buf_offset(&attr), "an attribute is cut off, or there are too many");
	r = vec_push(&f->attrs, a);
	while (r == 0 && buf_u64(&ids, &id))
		if (id < MAP_GONE_KEY)
			r = map_put(&f->ids, id, f->attrs.n - 1);
	return r;
}

/* A section of the file, as far as the file has it. */
static struct buf section(const struct perf_data *f, u64 offset, u64 size)
{
	struct buf b = buf_of(f->file, f->n);

	if (!buf_skip(&b, offset))
		b.pos = b.end;
	if (size < buf_left(&b))
		b.end = b.pos + size;
	return b;
}

/* How much of a section is not there. */
static u64 missing(const struct perf_data *f, u64 offset, u64 size)
{
	u64 there = offset < f->n ? f->n - offset : 0;

	return size > there ? MIN(size - there, 1ULL << 40) : 0;
}

static int read_attrs(struct perf_data *f, struct buf b, u64 attr_size)
{
	struct buf attr;
	u64 offset = 0, size = 0;
	int r = 0;

	if (attr_size < 80 || attr_size > 4096)
		return bad(f, 16, "its attributes have a size that cannot be");
	while (r == 0 && buf_left(&b) >= attr_size) {
		(void)buf_take(&b, attr_size - 16, &attr);
		(void)buf_u64(&b, &offset);
		(void)buf_u64(&b, &size);
		r = add_attr(f, attr, section(f, offset, size));
	}
	return r;
}

/* u32 length, then as many bytes, of which NULs at the end are none of the text. */
static bool take_text(struct buf *b, struct buf *ret)
{
	u32 n;

	if (!buf_u32(b, &n) || !buf_take(b, n, ret))
		return false;
	ret->end = ret->pos + strnlen((const char *)ret->pos, n);
	return true;
}

static int add_name(struct perf_data *f, struct perf_attr *a, struct buf name)
{
	return profile_add_string(f->p, (const char *)name.pos, buf_left(&name), &a->name);
}

static int read_event_desc(struct perf_data *f, struct buf b)
{
	u32 n, size, n_ids;
	struct buf name;
	int r = 0;

	if (!buf_u32(&b, &n) || !buf_u32(&b, &size))
		return 0;
	for (u32 i = 0; i < n && i < f->attrs.n && r == 0; i++) {
		if (!buf_skip(&b, size) || !buf_u32(&b, &n_ids) || !take_text(&b, &name) ||
		    !buf_skip(&b, 8 * (u64)n_ids))
			break;
		r = add_name(f, &f->attrs.data[i], name);
	}
	return r;
}

static int read_cmdline(struct perf_data *f, struct buf b)
{
	_cleanup_str_ struct str line = {};
	struct buf word;
	u32 n;

	if (!buf_u32(&b, &n))
		return 0;
	for (u32 i = 0; i < n && take_text(&b, &word); i++) {
		str_puts(&line, i ? " " : "");
		str_append(&line, word.pos, buf_left(&word));
	}
	return profile_add_string(f->p, str_get(&line), line.n, &f->p->title);
}

/* s32 pid, the build id in 24 bytes, a path. */
static int add_build_id(struct perf_data *f, struct buf b, u16 misc)
{
	char digits[2 * BUILD_ID_BYTES + 1];
	struct buf id;
	u32 n = BUILD_ID_BYTES, path, hex;
	int r;

	if (!buf_skip(&b, 4) || !buf_take(&b, 24, &id))
		return 0;
	if (misc & MISC_BUILD_ID_SIZE)
		n = MIN(id.pos[BUILD_ID_BYTES], (u8)BUILD_ID_BYTES);
	text_hex(id.pos, n, digits);
	r = profile_add_string(f->p, (const char *)b.pos,
			       strnlen((const char *)b.pos, buf_left(&b)), &path);
	if (r == 0)
		r = profile_add_string(f->p, digits, 2 * (size_t)n, &hex);
	return r < 0 ? r : map_put(&f->build_ids, path, hex);
}

static int read_build_ids(struct perf_data *f, struct buf b)
{
	u16 misc, size;
	struct buf body;
	int r = 0;

	while (r == 0 && buf_skip(&b, 4) && buf_u16(&b, &misc) && buf_u16(&b, &size) && size >= 8 &&
	       buf_take(&b, size - 8u, &body))
		r = add_build_id(f, body, misc);
	return r;
}

static int read_feature(struct perf_data *f, u64 feature, struct buf b)
{
	switch (feature) {
	case FEATURE_BUILD_ID:
		return read_build_ids(f, b);
	case FEATURE_CMDLINE:
		return read_cmdline(f, b);
	case FEATURE_EVENT_DESC:
		return read_event_desc(f, b);
	default:
		return 0;
	}
}

/* A section for each bit stands behind the data. */
static int read_features(struct perf_data *f, struct buf bits, struct buf table)
{
	u64 word, offset, size;
	int r = 0;

	for (u32 i = 0; i < 4 && buf_u64(&bits, &word); i++)
		for (u32 k = 0; k < 64 && r == 0; k++) {
			if (!(word >> k & 1) || !buf_u64(&table, &offset) ||
			    !buf_u64(&table, &size))
				continue;
			f->missing_bytes += missing(f, offset, size);
			r = read_feature(f, 64 * i + k, section(f, offset, size));
		}
	return r;
}

/* ---- records ---- */

struct buf perf_record_body(const struct perf_data *f, u64 offset, u32 *ret_type, u16 *ret_misc)
{
	bool plain = offset & PERF_IN_PLAIN;
	struct buf b = plain ? buf_of(f->plain.data, f->plain.n) : buf_of(f->file, f->n);
	u16 size = 0;

	/* Found by find_records(): it is there. */
	(void)buf_skip(&b, offset & ~PERF_IN_PLAIN);
	(void)buf_u32(&b, ret_type);
	(void)buf_u16(&b, ret_misc);
	(void)buf_u16(&b, &size);
	b.end = b.pos + size - 8;
	return b;
}

static int keep_record(struct perf_data *f, u32 type, struct buf body, u64 offset)
{
	struct perf_record_at at = {.offset = offset};
	struct perf_attr *a;
	struct perf_sample s;

	if (type == PERF_SAMPLE) {
		a = perf_attr_of_sample(f, body);
		if (!a || !perf_sample_read(a, body, &s)) {
			f->left_out++;
			return 0;
		}
		a->samples++;
		at.time_ns = s.time_ns;
	} else {
		at.time_ns = perf_record_time(f, body);
	}
	return vec_push(&f->records, at);
}

static void count_lost(struct perf_data *f, u32 type, struct buf body)
{
	u64 n;

	if ((type == PERF_LOST && !buf_skip(&body, 8)) || !buf_u64(&body, &n))
		return;
	f->lost += MIN(n, 1ULL << 40);
}

/* perf_event_attr, whose size stands in it, then ids. */
static int read_header_attr(struct perf_data *f, struct buf body)
{
	struct buf attr = body;
	u32 size;

	if (!buf_skip(&body, 4) || !buf_u32(&body, &size) || size < 64 ||
	    !buf_skip(&body, size - 8))
		return bad(f, buf_offset(&body), "an attribute is cut off");
	return add_attr(f, attr, body);
}

static int update_event(struct perf_data *f, struct buf body)
{
	u64 kind, id, *attr;

	if (!buf_u64(&body, &kind) || !buf_u64(&body, &id) || kind != UPDATE_NAME ||
	    id >= MAP_GONE_KEY)
		return 0;
	attr = map_get(&f->ids, id);
	body.end = body.pos + strnlen((const char *)body.pos, buf_left(&body));
	return attr ? add_name(f, &f->attrs.data[*attr], body) : 0;
}

static int find_records(struct perf_data *f, struct buf *b, u64 flag);

static int inflate(struct perf_data *f, u32 type, struct buf body)
{
	struct buf all;
	u64 n = buf_left(&body);
	int r = f->zstd ? 0 : zstd_stream_create(&f->zstd);

	if (r == 0 && type == PERF_COMPRESSED2 && (!buf_u64(&body, &n) || n > buf_left(&body)))
		return bad(f, buf_offset(&body), "a compressed record is cut off");
	if (r == 0)
		r = zstd_stream_inflate(f->zstd, body.pos, n,
					(1 << 20) + PLAIN_PER_BYTE * (u64)f->n, &f->plain, f->diag);
	if (r < 0)
		return r;
	all = buf_of(f->plain.data, f->plain.n);
	(void)buf_skip(&all, f->plain_read);
	r = find_records(f, &all, PERF_IN_PLAIN);
	f->plain_read = buf_offset(&all);
	return r;
}

/* What follows a record, and is no record. */
static u64 extra_bytes(u32 type, struct buf body)
{
	u32 n;
	u64 size;

	if (type == PERF_TRACING_DATA && buf_u32(&body, &n))
		return ((u64)n + 7) & ~7ULL;
	return type == PERF_AUXTRACE && buf_u64(&body, &size) ? size : 0;
}

static int read_record(struct perf_data *f, u32 type, u16 misc, struct buf body, u64 offset)
{
	u64 feature;

	switch (type) {
	case PERF_MMAP:
	case PERF_MMAP2:
	case PERF_COMM:
	case PERF_FORK:
	case PERF_SAMPLE:
		return keep_record(f, type, body, offset);
	case PERF_LOST:
	case PERF_LOST_SAMPLES:
		count_lost(f, type, body);
		return 0;
	case PERF_HEADER_ATTR:
		return read_header_attr(f, body);
	case PERF_EVENT_UPDATE:
		return update_event(f, body);
	case PERF_HEADER_BUILD_ID:
		return add_build_id(f, body, misc);
	case PERF_HEADER_FEATURE:
		return buf_u64(&body, &feature) ? read_feature(f, feature, body) : 0;
	case PERF_COMPRESSED:
	case PERF_COMPRESSED2:
		return offset & PERF_IN_PLAIN ? 0 : inflate(f, type, body);
	default:
		return 0;
	}
}

/* Stops before a record that is not there as a whole, or damaged. */
static int find_records(struct perf_data *f, struct buf *b, u64 flag)
{
	int r = 0;

	while (r == 0) {
		struct buf at = *b, body;
		u32 type;
		u16 misc, size;

		if (!buf_u32(&at, &type) || !buf_u16(&at, &misc) || !buf_u16(&at, &size) ||
		    size < 8 || !buf_take(&at, size - 8u, &body) ||
		    !buf_skip(&at, extra_bytes(type, body)))
			break;
		r = quota_check(f->diag);
		if (r == 0)
			r = read_record(f, type, misc, body, buf_offset(b) | flag);
		*b = at;
	}
	return r;
}

static int by_time(const void *a, const void *b)
{
	const struct perf_record_at *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* ---- the file ---- */

static int read_file(struct perf_data *f, struct buf b)
{
	u64 attr_size, at[2], data[2];
	struct buf bits, records;
	int r;

	if (!buf_u64(&b, &attr_size) || !buf_u64(&b, &at[0]) || !buf_u64(&b, &at[1]) ||
	    !buf_u64(&b, &data[0]) || !buf_u64(&b, &data[1]) || !buf_skip(&b, 16) ||
	    !buf_take(&b, 32, &bits))
		return bad(f, f->n, "its header is cut off");
	r = read_attrs(f, section(f, at[0], at[1]), attr_size);
	/* perf writes the size at the end: without it the recording was killed. */
	records = section(f, data[0], data[1] ? data[1] : ~0ULL);
	if (r == 0 && data[1] && data[0] < f->n && data[1] < f->n - data[0])
		r = read_features(f, bits, section(f, data[0] + data[1], ~0ULL));
	if (r == 0)
		r = find_records(f, &records, 0);
	f->missing_bytes += buf_left(&records) + f->plain.n - f->plain_read;
	f->missing_bytes += missing(f, data[0], data[1]);
	return r;
}

static int read_all(struct perf_data *f)
{
	struct buf b = buf_of(f->file, f->n);
	u64 size;

	if (!buf_skip(&b, 8) || !buf_u64(&b, &size))
		return bad(f, f->n, "its header is cut off");
	if (size == PIPE_HEADER_BYTES) {
		int r = find_records(f, &b, 0);

		f->missing_bytes = buf_left(&b) + f->plain.n - f->plain_read;
		return r;
	}
	if (size < HEADER_BYTES)
		return bad(f, 8, "its header has a size that cannot be");
	return read_file(f, b);
}

/*
 * The number of samples of the first event, and the sum of its periods, are the first two types;
 * each further event has the sum of its own.
 */
static int add_types(struct perf_data *f)
{
	int r = profile_add_table_type(f->p, SAMPLE_TYPE_SAMPLES);

	vec_foreach (&f->attrs, a) {
		_cleanup_str_ struct str name = {};
		enum sample_type type;

		if (r < 0 || !a->samples)
			continue;
		if (a->name)
			str_puts(&name, profile_string(f->p, a->name));
		else
			perf_attr_name(a, &name);
		type = vocab_find_event(str_get(&name));
		a->type = f->p->n_types;
		if (f->p->n_types == PROFILE_MAX_TYPES) {
			a->type = PROFILE_NONE;
			f->left_out += a->samples;
		} else if (type < SAMPLE_TYPE_N && profile_find_type(f->p, type) == PROFILE_NONE) {
			r = profile_add_table_type(f->p, type);
		} else {
			r = profile_add_type(f->p, str_get(&name), vocab_unit(UNIT_COUNT));
		}
	}
	f->p->default_type = f->p->n_types > 1;
	return r;
}

static int tell(struct perf_data *f)
{
	_cleanup_str_ struct str text = {};

	if (f->missing_bytes)
		str_printf(&text, "the file is cut off or damaged: %llu bytes are not read",
			   (unsigned long long)f->missing_bytes);
	if (f->left_out)
		str_printf(&text, "%ssamples that cannot be read: %llu", text.n ? "; " : "",
			   (unsigned long long)f->left_out);
	if (f->unwound)
		str_printf(&text,
			   "%s%llu samples have a copy of the stack, which only perf unwinds: use "
			   "perf script | culprit",
			   text.n ? "; " : "", (unsigned long long)f->unwound);
	return text.n ? diag_set(f->diag, 0, "perf.data: %s", str_get(&text)) : 0;
}

static int finish(struct perf_data *f)
{
	if (!f->p->n_samples)
		return diag_set(f->diag, -EBADMSG, "perf.data: no samples in it%s",
				f->missing_bytes ? ": it is cut off or damaged" : "");
	profile_derive_quality(f->p);
	f->p->quality.lost = f->lost;
	f->p->quality.measured = true;
	return tell(f);
}

int perf_data_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(perf_data_deinit))) struct perf_data f = {
		.p = profile_create(), .diag = reterr_diag, .file = data, .n = n};
	int r;

	if (!f.p)
		return -ENOMEM;
	if (n >= 8 && !memcmp(data, "2ELIFREP", 8))
		return diag_set(
			reterr_diag, -ENOTSUP,
			"perf.data: is of a big-endian machine: read it there with perf script");
	r = read_all(&f);
	if (r == 0)
		r = add_types(&f);
	if (r == 0 && f.records.n)
		qsort(f.records.data, f.records.n, sizeof(*f.records.data), by_time);
	if (r == 0)
		r = perf_data_replay(&f);
	if (r == 0)
		r = finish(&f);
	if (r == 0)
		*ret = take_ptr(f.p);
	return r;
}

int perf_data_probe(const u8 *data, size_t n)
{
	return n >= 8 && (!memcmp(data, MAGIC, 8) || !memcmp(data, "2ELIFREP", 8)) ? 100 : 0;
}
