/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/procman/sideband.h"

#include <errno.h>
#include <linux/perf_event.h>

#include "base/buf.h"

/*
 *	header {u32 type; u16 misc; u16 size} · payload · sample_id {u64 time}
 *
 * Names end in one or more NULs, up to a multiple of 8.
 */
#define HEADER_BYTES sizeof(struct perf_event_header)
#define TIME_BYTES sizeof(u64)

static bool parse_task(struct buf *b, struct sideband *r)
{
	return buf_u32(b, &r->pid) && buf_u32(b, &r->ppid) && buf_u32(b, &r->tid) &&
	       buf_u32(b, &r->ptid);
}

static bool parse_comm(struct buf *b, struct sideband *r)
{
	return buf_u32(b, &r->pid) && buf_u32(b, &r->tid) && buf_cstr(b, &r->name);
}

static bool parse_mmap2(struct buf *b, u16 misc, struct sideband *r)
{
	u32 flags;
	u64 len;

	/* A build-id in place of the inode, which ring.c does not request. */
	if (misc & PERF_RECORD_MISC_MMAP_BUILD_ID)
		return false;
	return buf_u32(b, &r->pid) && buf_u32(b, &r->tid) && buf_u64(b, &r->start) &&
	       buf_u64(b, &len) && buf_u64(b, &r->foff) && buf_u32(b, &r->dev_major) &&
	       buf_u32(b, &r->dev_minor) && buf_u64(b, &r->inode) &&
	       buf_u64(b, &r->inode_generation) && buf_u32(b, &r->prot) && buf_u32(b, &flags) &&
	       buf_cstr(b, &r->name) && len && !__builtin_add_overflow(r->start, len, &r->end);
}

static bool parse_lost(struct buf *b, struct sideband *r)
{
	u64 id;

	return buf_u64(b, &id) && buf_u64(b, &r->lost);
}

static bool parse_payload(struct buf *b, u32 type, u16 misc, struct sideband *r)
{
	switch (type) {
	case PERF_RECORD_FORK:
		r->type = SIDEBAND_FORK;
		return parse_task(b, r);
	case PERF_RECORD_EXIT:
		r->type = SIDEBAND_EXIT;
		return parse_task(b, r);
	case PERF_RECORD_COMM:
		r->type = SIDEBAND_COMM;
		r->exec = misc & PERF_RECORD_MISC_COMM_EXEC;
		return parse_comm(b, r);
	case PERF_RECORD_MMAP2:
		r->type = SIDEBAND_MMAP;
		return parse_mmap2(b, misc, r);
	case PERF_RECORD_LOST:
		r->type = SIDEBAND_LOST;
		return parse_lost(b, r);
	default:
		r->type = SIDEBAND_IGNORED;
		return true;
	}
}

int sideband_parse(const void *bytes, size_t n, struct sideband *ret)
{
	struct buf b = buf_of(bytes, n), payload;
	struct sideband r = {};
	u32 type;
	u16 misc, size;

	if (!buf_u32(&b, &type) || !buf_u16(&b, &misc) || !buf_u16(&b, &size) || size != n ||
	    n < HEADER_BYTES + TIME_BYTES)
		return -EINVAL;
	if (!buf_take(&b, buf_left(&b) - TIME_BYTES, &payload) || !buf_u64(&b, &r.time_ns))
		return -EINVAL;
	if (!parse_payload(&payload, type, misc, &r))
		return -EINVAL;
	*ret = r;
	return 0;
}

bool sideband_next(const u8 *bytes, size_t n, size_t *pos, size_t *ret_n, u64 *ret_time_ns)
{
	struct perf_event_header h;

	if (n - *pos < sizeof(h))
		return false;
	memcpy(&h, bytes + *pos, sizeof(h));
	if (h.size < HEADER_BYTES + TIME_BYTES || h.size > n - *pos)
		return false;
	memcpy(ret_time_ns, bytes + *pos + h.size - TIME_BYTES, TIME_BYTES);
	*ret_n = h.size;
	*pos += h.size;
	return true;
}
