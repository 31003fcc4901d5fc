/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages are read in one of two ways:
 *
 *	ioctl(PAGEMAP_SCAN)	since Linux 6.7: ranges of present pages; skips what is empty
 *	pread()			of /proc/PID/pagemap: a word for each page, present or not
 *
 * Page frame numbers in the words tell huge pages and the zero page apart; without CAP_SYS_ADMIN
 * they are 0. Then a mapping counts as huge if smaps says so of most of it, and zero pages as
 * memory: the sums are right, the shares of stacks are not exact.
 */
#include "agent/pipeline/resident_look.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "proc/proc.h"

/* include/uapi/linux/fs.h, since Linux 6.7 (commit 52526ca7fdb9). */
struct page_range {
	u64 start, end, categories;
};

struct scan_argument {
	u64 size, flags, start, end, walk_end, vec, vec_len, max_pages;
	u64 category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define SCAN_PAGES _IOWR('f', 16, struct scan_argument)
#define CATEGORY_FILE (1u << 2)
#define CATEGORY_PRESENT (1u << 3)
#define CATEGORY_ZERO (1u << 5)
#define CATEGORY_HUGE (1u << 6)
#define RANGES 512

/* Documentation/admin-guide/mm/pagemap.rst */
#define WORD_PRESENT (1ULL << 63)
#define WORD_FILE (1ULL << 61)
#define WORD_FRAME ((1ULL << 55) - 1)
#define FLAG_ZERO_PAGE (1ULL << 24) /* of /proc/kpageflags */
#define WORDS 4096
/* Of a mapping that is read word by word: 128 MiB of words. */
#define MAX_WORDS (1ULL << 24)

#define MAX_DEVICES 64 /* whose type is remembered during a look */

struct looking {
	struct resident_look *l;
	u32 page_shift;
	int pagemap, flags; /* descriptors */
	bool scans;
	struct {
		u64 device;
		bool is_shared;
	} devices[MAX_DEVICES];
	u32 n_devices;
	u64 zero_frame; /* 0: unknown */
	u64 words[WORDS];
	struct page_range ranges[RANGES];
};

static void add_device(struct looking *k, u64 device, bool shared)
{
	if (k->n_devices == MAX_DEVICES)
		return;
	k->devices[k->n_devices].device = device;
	k->devices[k->n_devices++].is_shared = shared;
}

static u64 device_of(u32 dev_major, u32 dev_minor)
{
	return (u64)dev_major << 32 | dev_minor;
}

/* Files of memfd_create(), System V and shared anonymous memory are on a mount that nobody sees. */
static void find_shared(struct looking *k)
{
	_cleanup_close_ int fd = memfd_create("culprit", MFD_CLOEXEC);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0)
		add_device(k, device_of(major(st.st_dev), minor(st.st_dev)), true);
}

/* Whether files on the device of the mapping are shared memory. Others' have another major. */
static bool is_shared(struct looking *k, const struct proc_memory *m)
{
	u64 device = device_of(m->dev_major, m->dev_minor);
	char type[16];
	bool shared;

	if (m->dev_major || !device)
		return false;
	for (u32 i = 0; i < k->n_devices; i++)
		if (k->devices[i].device == device)
			return k->devices[i].is_shared;
	shared = proc_device_type(k->l->pid, m->dev_major, m->dev_minor, type, sizeof(type)) &&
		 (!strcmp(type, "tmpfs") || !strcmp(type, "devtmpfs"));
	add_device(k, device, shared);
	return shared;
}

/* The frame of the zero page: that of memory of our own that was only read. */
static void find_zero_frame(struct looking *k)
{
	size_t bytes = (size_t)1 << k->page_shift;
	volatile char *at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	_cleanup_close_ int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	u64 word = 0;

	if (at == MAP_FAILED)
		return;
	(void)*at;
	if (fd >= 0 &&
	    pread(fd, &word, sizeof(word), (off_t)((u64)at >> k->page_shift) * 8) == sizeof(word))
		k->zero_frame = word & WORD_PRESENT ? word & WORD_FRAME : 0;
	munmap((void *)at, bytes);
}

static void follow(const struct looking *k, u64 page, u64 n, enum resident_kind kind)
{
	const struct resident_look *l = k->l;

	for (u64 end = page + n; page < end; page++)
		if (l->below >= RESIDENT_ALL || resident_hash(l->seed, page) < l->below)
			l->page(l->arg, page, kind);
}

/* ---- ranges ---- */

/*
 * Before Linux 6.17 the huge zero page is not told from others. Where smaps knows of no huge pages,
 * there are none.
 */
static void take_range(const struct looking *k, const struct proc_memory *m,
		       const struct page_range *r, enum resident_kind of_file)
{
	bool huge = r->categories & CATEGORY_HUGE, file = r->categories & CATEGORY_FILE;
	enum resident_kind kind = file ? of_file : RESIDENT_ANONYMOUS;

	if (r->categories & CATEGORY_ZERO || r->end <= r->start)
		return;
	if (huge && !file && !m->anonymous_huge)
		return;
	follow(k, r->start >> k->page_shift, (r->end - r->start) >> k->page_shift,
	       huge ? RESIDENT_HUGE : kind);
}

/* -ENOTTY: this kernel cannot. */
static int scan_mapping(struct looking *k, const struct proc_memory *m, enum resident_kind of_file)
{
	struct scan_argument a = {
		.size = sizeof(a),
		.start = m->start,
		.end = m->end,
		.vec = (u64)k->ranges,
		.vec_len = RANGES,
		.category_mask = CATEGORY_PRESENT,
		.return_mask = CATEGORY_FILE | CATEGORY_PRESENT | CATEGORY_ZERO | CATEGORY_HUGE,
	};

	while (a.start < a.end) {
		int n = ioctl(k->pagemap, SCAN_PAGES, &a);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		for (int i = 0; i < MIN(n, RANGES); i++)
			take_range(k, m, &k->ranges[i], of_file);
		if (a.walk_end <= a.start)
			break;
		a.start = a.walk_end;
	}
	return 0;
}

/* ---- words ---- */

static u64 frame_of(u64 word)
{
	return word & WORD_PRESENT ? word & WORD_FRAME : 0;
}

/* Whether the words are those of a huge page: frames in a row, the first of which is aligned. */
static bool is_huge_run(const u64 *words, u64 n)
{
	u64 first = frame_of(words[0]);

	if (!first || first % n)
		return false;
	for (u64 i = 1; i < n; i++)
		if (frame_of(words[i]) != first + i)
			return false;
	return true;
}

static bool is_huge_zero(const struct looking *k, u64 frame)
{
	u64 flags = 0;

	return pread(k->flags, &flags, sizeof(flags), (off_t)frame * 8) == sizeof(flags) &&
	       flags & FLAG_ZERO_PAGE;
}

static u64 huge_of(const struct proc_memory *m)
{
	return m->anonymous_huge + m->shared_huge + m->file_huge;
}

static void take_words(const struct looking *k, const struct proc_memory *m, u64 page,
		       const u64 *words, u64 n, u64 per_huge, enum resident_kind of_file)
{
	bool has_frames = false, run = n == per_huge && is_huge_run(words, n);

	if (run && is_huge_zero(k, frame_of(words[0])))
		return;
	for (u64 i = 0; i < n; i++)
		has_frames |= frame_of(words[i]) != 0;
	for (u64 i = 0; i < n; i++) {
		bool file = words[i] & WORD_FILE;
		enum resident_kind kind = file ? of_file : RESIDENT_ANONYMOUS;
		bool huge = has_frames ? run && huge_of(m) : huge_of(m) * 2 > m->rss;

		if (!(words[i] & WORD_PRESENT) ||
		    (!file && k->zero_frame && frame_of(words[i]) == k->zero_frame))
			continue;
		follow(k, page + i, 1, huge ? RESIDENT_HUGE : kind);
	}
}

static int read_mapping(struct looking *k, const struct proc_memory *m, enum resident_kind of_file)
{
	u64 page = m->start >> k->page_shift, end = m->end >> k->page_shift;
	u64 per_huge = 1ULL << (k->page_shift - 3); /* as a table has entries */

	if (end - page > MAX_WORDS)
		return -E2BIG;
	while (page < end) {
		u64 want = MIN(end - page, (u64)WORDS - page % per_huge);
		ssize_t got = pread(k->pagemap, k->words, want * 8, (off_t)page * 8);

		if (got < 8)
			return got < 0 ? -errno : 0;
		want = (u64)got / 8;
		for (u64 i = 0, n; i < want; i += n) {
			n = MIN(want - i, per_huge - (page + i) % per_huge);
			take_words(k, m, page + i, &k->words[i], n, per_huge, of_file);
		}
		page += want;
	}
	return 0;
}

/* ---- mappings ---- */

static u64 less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

static int take_mapping(void *arg, const struct proc_memory *m)
{
	struct looking *k = arg;
	struct resident_look *l = k->l;
	enum resident_kind of_file = is_shared(k, m) ? RESIDENT_SHARED : RESIDENT_FILE;
	u64 *bytes;
	int r;

	if (m->hugetlb) {
		l->hugetlb_bytes += m->end - m->start;
		return 0;
	}
	if (!m->rss)
		return 0;
	r = k->scans ? scan_mapping(k, m, of_file) : -ENOTTY;
	if (r == -ENOTTY || r == -EINVAL) {
		k->scans = false;
		r = read_mapping(k, m, of_file);
	}
	bytes = r == -E2BIG ? l->unseen_bytes : l->bytes;
	bytes[RESIDENT_HUGE] += huge_of(m);
	bytes[RESIDENT_ANONYMOUS] += less(m->anonymous, m->anonymous_huge);
	bytes[of_file] += less(less(m->rss, m->anonymous), m->shared_huge + m->file_huge);
	/* A mapping that is gone by now has no pages. */
	return r == -ENOMEM || r == -EFAULT || r == -E2BIG ? 0 : r;
}

int resident_look(struct resident_look *l)
{
	_cleanup_close_ int pagemap = -1, flags = -1;
	_cleanup_free_ struct looking *k = calloc(1, sizeof(*k));
	char path[48];

	if (!k)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%u/pagemap", l->pid);
	pagemap = open(path, O_RDONLY | O_CLOEXEC);
	if (pagemap < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	flags = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	k->l = l;
	k->page_shift = (u32)__builtin_ctz((u32)getpagesize());
	k->pagemap = pagemap;
	k->flags = flags;
	k->scans = true;
	find_shared(k);
	find_zero_frame(k);
	return proc_memory_read(l->pid, take_mapping, k);
}
