/* SPDX-License-Identifier: Apache-2.0 */
/* What the attributes of events say about records of perf.data (perf_event_open(2)). */
#include <errno.h>

#include "format/perf_data.h"

enum { KIND_HARDWARE, KIND_SOFTWARE, KIND_TRACEPOINT, KIND_HW_CACHE, KIND_RAW };

#define FLAG_FREQ (1ULL << 10)
#define FLAG_SAMPLE_ID_ALL (1ULL << 18)
#define FORMAT_ENABLED 1
#define FORMAT_RUNNING 2
#define FORMAT_ID 4
#define FORMAT_GROUP 8
#define FORMAT_LOST 16

bool perf_attr_read(struct buf b, struct perf_attr *ret)
{
	struct perf_attr a = {.type = PROFILE_NONE};
	u32 size;
	u64 flags;

	if (!buf_u32(&b, &a.kind) || !buf_u32(&b, &size) || !buf_u64(&b, &a.config) ||
	    !buf_u64(&b, &a.period) || !buf_u64(&b, &a.sample_type) ||
	    !buf_u64(&b, &a.read_format) || !buf_u64(&b, &flags))
		return false;
	a.freq = flags & FLAG_FREQ;
	a.sample_id_all = flags & FLAG_SAMPLE_ID_ALL;
	*ret = a;
	return true;
}

void perf_attr_name(const struct perf_attr *a, struct str *out)
{
	static const char *const hardware[] = {"cycles",
					       "instructions",
					       "cache-references",
					       "cache-misses",
					       "branches",
					       "branch-misses",
					       "bus-cycles",
					       "stalled-cycles-frontend",
					       "stalled-cycles-backend",
					       "ref-cycles"};
	static const char *const software[] = {
		"cpu-clock",	    "task-clock",	"page-faults",
		"context-switches", "cpu-migrations",	"minor-faults",
		"major-faults",	    "alignment-faults", "emulation-faults"};

	/* The upper half is the PMU on machines with several kinds of CPUs. */
	if (a->kind == KIND_HARDWARE && (u32)a->config < ARRAY_SIZE(hardware))
		str_puts(out, hardware[(u32)a->config]);
	else if (a->kind == KIND_SOFTWARE && a->config < ARRAY_SIZE(software))
		str_puts(out, software[a->config]);
	else if (a->kind == KIND_TRACEPOINT)
		str_printf(out, "tracepoint:%llu", (unsigned long long)a->config);
	else
		str_printf(out, "raw:0x%llx", (unsigned long long)a->config);
}

static u32 words(u64 bits)
{
	return (u32)__builtin_popcountll(bits);
}

/* Where the id stands: all attributes of a file with several have it at the same place. */
static bool sample_id(u64 bits, struct buf body, u64 *ret)
{
	u64 before = bits & (PERF_HAS_IP | PERF_HAS_TID | PERF_HAS_TIME | PERF_HAS_ADDR);

	if (bits & PERF_HAS_IDENTIFIER)
		return buf_u64(&body, ret);
	return (bits & PERF_HAS_ID) && buf_skip(&body, 8 * words(before)) && buf_u64(&body, ret);
}

struct perf_attr *perf_attr_of_sample(struct perf_data *f, struct buf body)
{
	u64 id, *known;

	if (f->attrs.n < 2)
		return f->attrs.n ? &f->attrs.data[0] : NULL;
	if (!sample_id(f->attrs.data[0].sample_type, body, &id))
		return &f->attrs.data[0];
	known = id < MAP_GONE_KEY ? map_get(&f->ids, id) : NULL;
	return known ? &f->attrs.data[*known] : NULL;
}

static bool skip_read(const struct perf_attr *a, struct buf *b)
{
	u64 each = 1 + words(a->read_format & (FORMAT_ID | FORMAT_LOST)), n = 1;
	u64 times = words(a->read_format & (FORMAT_ENABLED | FORMAT_RUNNING));

	if (!(a->read_format & FORMAT_GROUP))
		return buf_skip(b, 8 * (each + times));
	return buf_u64(b, &n) && n <= buf_left(b) / 8 && buf_skip(b, 8 * times) &&
	       buf_skip(b, 8 * each * n);
}

bool perf_sample_read(const struct perf_attr *a, struct buf body, struct perf_sample *ret)
{
	u64 has = a->sample_type, n;
	struct perf_sample s = {.period = a->freq ? 1 : a->period};
	struct buf *b = &body;

	if (((has & PERF_HAS_IDENTIFIER) && !buf_skip(b, 8)) ||
	    ((has & PERF_HAS_IP) && !buf_u64(b, &s.ip)) ||
	    ((has & PERF_HAS_TID) && (!buf_u32(b, &s.pid) || !buf_u32(b, &s.tid))) ||
	    ((has & PERF_HAS_TIME) && !buf_u64(b, &s.time_ns)) ||
	    ((has & PERF_HAS_ADDR) && !buf_skip(b, 8)) ||
	    ((has & PERF_HAS_ID) && !buf_skip(b, 8)) ||
	    ((has & PERF_HAS_STREAM_ID) && !buf_skip(b, 8)) ||
	    ((has & PERF_HAS_CPU) && !buf_skip(b, 8)) ||
	    ((has & PERF_HAS_PERIOD) && !buf_u64(b, &s.period)) ||
	    ((has & PERF_HAS_READ) && !skip_read(a, b)))
		return false;
	if (has & PERF_HAS_CALLCHAIN)
		if (!buf_u64(b, &n) || n > buf_left(b) / 8 || !buf_take(b, 8 * n, &s.chain))
			return false;
	s.has_stack = has & PERF_HAS_STACK_USER;
	*ret = s;
	return true;
}

size_t perf_trailer_size(const struct perf_data *f)
{
	if (!f->attrs.n || !f->attrs.data[0].sample_id_all)
		return 0;
	return 8 * words(f->attrs.data[0].sample_type &
			 (PERF_HAS_TID | PERF_HAS_TIME | PERF_HAS_ID | PERF_HAS_STREAM_ID |
			  PERF_HAS_CPU | PERF_HAS_IDENTIFIER));
}

u64 perf_record_time(const struct perf_data *f, struct buf body)
{
	size_t trailer = perf_trailer_size(f);
	u64 has = f->attrs.n ? f->attrs.data[0].sample_type : 0, time = 0;

	if (!(has & PERF_HAS_TIME) || !trailer || buf_left(&body) < trailer)
		return 0;
	body.pos = body.end - trailer + (has & PERF_HAS_TID ? 8 : 0);
	(void)buf_u64(&body, &time);
	return time == ~0ULL ? 0 : time;
}
