/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/procman/ring.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

#ifndef PERF_FORMAT_LOST
#define PERF_FORMAT_LOST (1U << 4) /* Linux 6.0 */
#endif

/* What read() returns: perf_event_open(2), "Reading results". */
struct ring_event {
	u64 value, enabled_ns;
	u64 lost; /* if the ring counts_lost */
};

static int event_open(u32 cpu, u32 wakeup_bytes, bool counts_lost)
{
	/* `mmap` without `mmap_data`: executable mappings only. `mmap2` adds device and inode,
	 * `comm_exec` distinguishes an exec from a change of name, `task` is fork and exit. */
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_TIME,
		.read_format =
			PERF_FORMAT_TOTAL_TIME_ENABLED | (counts_lost ? PERF_FORMAT_LOST : 0),
		.exclude_kernel = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.sample_id_all = 1,
		.watermark = 1,
		.wakeup_watermark = wakeup_bytes,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
	int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static size_t mapped_bytes(const struct ring *ring)
{
	return (size_t)ring->size + (size_t)sysconf(_SC_PAGESIZE);
}

int ring_open(u32 cpu, u32 size, u32 wakeup_bytes, struct ring *ret)
{
	struct ring ring = {.cpu = cpu, .size = size, .counts_lost = true};
	_cleanup_close_ int fd = event_open(cpu, wakeup_bytes, true);
	void *p;

	if (fd == -EINVAL) {
		ring.counts_lost = false;
		fd = event_open(cpu, wakeup_bytes, false);
	}
	if (fd < 0)
		return fd;
	p = mmap(NULL, mapped_bytes(&ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	ring.page = p;
	ring.fd = take_fd(&fd);
	*ret = ring;
	return 0;
}

void ring_close(struct ring *ring)
{
	munmap(ring->page, mapped_bytes(ring));
	close(ring->fd);
}

static bool read_event(const struct ring *ring, struct ring_event *ret)
{
	size_t n = ring->counts_lost ? sizeof(*ret) : offsetof(struct ring_event, lost);

	return read(ring->fd, ret, n) == (ssize_t)n;
}

bool ring_is_dead(struct ring *ring)
{
	u64 before = ring->enabled_ns;
	struct ring_event e;

	if (!read_event(ring, &e))
		return true;
	ring->enabled_ns = e.enabled_ns;
	return before && e.enabled_ns == before;
}

/*
 * The kernel reports dropped events with the next event that fits, which may take long. So a ring
 * that was nearly full is asked for its losses.
 */
static void read_lost(struct ring *ring, u64 *lost)
{
	struct ring_event e;

	if (!ring->counts_lost || !read_event(ring, &e))
		return;
	if (e.lost > ring->lost) {
		*lost += e.lost - ring->lost;
		ring->lost = e.lost;
	}
}

void ring_note_lost(struct ring *ring, u64 n, u64 *lost)
{
	if (ring->counts_lost) {
		read_lost(ring, lost);
	} else {
		ring->lost += n;
		*lost += n;
	}
}

int ring_take(struct ring *ring, ring_bytes *bytes, u64 *lost)
{
	u64 head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
	u64 tail = ring->page->data_tail, n = head - tail, at = tail & (ring->size - 1), first;
	const u8 *data = (const u8 *)ring->page + sysconf(_SC_PAGESIZE);
	int r;

	if (n == 0)
		return 0;
	if (n > ring->size) {
		__atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
		return -EIO;
	}
	/* Without memory the events stay in the ring. */
	r = vec_reserve(bytes, bytes->n + n);
	if (r < 0)
		return r;
	first = MIN(n, ring->size - at);
	memcpy(bytes->data + bytes->n, data + at, first);
	memcpy(bytes->data + bytes->n + first, data, n - first);
	bytes->n += n;
	__atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
	if (n > ring->size / 2)
		read_lost(ring, lost);
	return 0;
}
