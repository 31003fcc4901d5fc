/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/sizes.h"

#include <errno.h>
#include <unistd.h>

#include "abi/sample.h"

#define MIB (1ULL << 20)
#define RING_MAX_BYTES (256 * MIB)
#define RING_LEAST_BYTES MIB
#define EVENT_RING_BYTES (256u << 10)
#define EVENT_RING_LEAST_BYTES (32u << 10)
#define COPY_BYTES ((u64)SAMPLE_MAX_COPIES * SAMPLE_COPY_BYTES)
#define COPIES_LEAST 4
/* Rings shrink above one part in GOOD_SHARE of the limit; WORST_SHARE is the most that is taken. */
#define GOOD_SHARE 4
#define WORST_SHARE 2

static u64 power_of_two(u64 least, u64 want, u64 max)
{
	u64 n = least;

	while (n < want && n < max)
		n *= 2;
	return n;
}

/* A quarter second of samples with new stacks of a KiB, and room for stack copies. */
static u64 wanted_ring(const struct sizes_input *in)
{
	u64 want = in->ring_bytes ? in->ring_bytes : in->cpus * in->hz / 4 * 1024 + 6 * MIB;

	return power_of_two(4 * MIB, want, RING_MAX_BYTES);
}

/* A tenth of a second of samples whose stacks are known. */
static u64 least_ring(const struct sizes_input *in)
{
	return power_of_two(RING_LEAST_BYTES, in->cpus * in->hz / 10 * 256, RING_MAX_BYTES);
}

static u32 least_event_ring(void)
{
	return (u32)MAX((u64)EVENT_RING_LEAST_BYTES, (u64)sysconf(_SC_PAGESIZE));
}

/*
 * A CPU sends one copy at a time. The ring holds no more of them than fit it; what is kept beyond
 * is of copies whose end was lost.
 */
static u32 count_copies(const struct sizes_input *in, u64 ring_bytes)
{
	return (u32)MIN((u64)in->cpus, MAX(ring_bytes / COPY_BYTES, (u64)COPIES_LEAST));
}

static u64 event_rings(const struct sizes_input *in, const struct sizes *s)
{
	return in->cpus * (s->event_ring_bytes + (u64)sysconf(_SC_PAGESIZE));
}

static void add_up(const struct sizes_input *in, struct sizes *s)
{
	s->copies = count_copies(in, s->ring_bytes);
	s->fixed_bytes = in->shared_bytes + in->cpus * in->cpu_bytes + event_rings(in, s) +
			 s->ring_bytes + s->copies * COPY_BYTES;
}

/* Halves the larger of what can be halved; false: nothing can. */
static bool halve_largest(const struct sizes_input *in, struct sizes *s)
{
	bool ring = s->ring_bytes > least_ring(in);
	bool events = s->event_ring_bytes > least_event_ring();

	if (ring && (!events || s->ring_bytes >= event_rings(in, s)))
		s->ring_bytes /= 2;
	else if (events)
		s->event_ring_bytes /= 2;
	else
		return false;
	add_up(in, s);
	return true;
}

int sizes_choose(const struct sizes_input *in, struct sizes *ret, struct diag *reterr_diag)
{
	struct sizes s = {.ring_bytes = wanted_ring(in), .event_ring_bytes = EVENT_RING_BYTES};

	add_up(in, &s);
	while (in->limit_bytes && s.fixed_bytes > in->limit_bytes / GOOD_SHARE &&
	       halve_largest(in, &s))
		;
	if (in->limit_bytes && s.fixed_bytes > in->limit_bytes / WORST_SHARE)
		return diag_set(
			reterr_diag, -ENOMEM,
			"--memory-limit %llu is too small: the maps and rings for %u CPUs take "
			"%llu MB, and half of the limit at most; the smallest that works is "
			"%llu",
			in->limit_bytes / MIB, in->cpus, (s.fixed_bytes + MIB - 1) / MIB,
			(s.fixed_bytes * WORST_SHARE + MIB - 1) / MIB);
	*ret = s;
	return 0;
}
