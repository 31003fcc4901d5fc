/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "proc/internal.h"

/* From the kernel's include/linux/sched.h. It is ABI, because /proc/PID/stat shows the flags. */
#define PF_KTHREAD 0x00200000u

DEFINE_CLEANUP(closedir, DIR *, closedir)

/* Reads a small file; a longer one is cut. */
static int read_text(const char *name, char *text, size_t cap, size_t *ret_n)
{
	_cleanup_close_ int fd = open(name, O_RDONLY | O_CLOEXEC);
	size_t n = 0;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	while (n < cap) {
		ssize_t got = read(fd, text + n, cap - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	*ret_n = n;
	return 0;
}

int proc_read_text(u32 pid, const char *what, char *text, size_t cap, size_t *ret_n)
{
	char name[96];

	snprintf(name, sizeof(name), "/proc/%u/%s", pid, what);
	return read_text(name, text, cap, ret_n);
}

u32 proc_ticks_per_s(void)
{
	return (u32)sysconf(_SC_CLK_TCK);
}

/*
 * Reads a decimal number, saturated at 64 bits; a leading '-' reads as 0. Advances past the number.
 */
static u64 scan_u64(const char **p, const char *end)
{
	bool negative = *p < end && **p == '-';
	u64 v = 0;

	if (negative)
		(*p)++;
	for (; *p < end && isdigit((unsigned char)**p); (*p)++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (u64)(**p - '0'), &v))
			v = ~0ULL / 10;
	return negative ? 0 : v;
}

/* Field numbers as in proc(5). */
enum stat_field {
	STAT_PPID = 4,
	STAT_FLAGS = 9,
	STAT_UTIME = 14,
	STAT_STIME = 15,
	STAT_NUM_THREADS = 20,
	STAT_STARTTIME = 22,
	STAT_STARTSTACK = 28,
};

static void stat_field(struct proc_stat *s, int field, u64 v)
{
	switch (field) {
	case STAT_PPID:
		s->ppid = (u32)v;
		break;
	case STAT_FLAGS:
		s->kthread = v & PF_KTHREAD;
		break;
	case STAT_UTIME:
	case STAT_STIME:
		s->cpu_ticks += v;
		break;
	case STAT_NUM_THREADS:
		s->n_threads = (u32)v;
		break;
	case STAT_STARTTIME:
		s->start_ticks = v;
		break;
	case STAT_STARTSTACK:
		/* Without the right to ptrace the process the kernel shows 0 or 1. */
		s->start_stack = v > 1 ? v : 0;
		break;
	}
}

int proc_stat_parse(const char *text, size_t n, struct proc_stat *ret)
{
	const char *end = text + n, *p = text;
	const char *open = memchr(text, '(', n), *close = memrchr(text, ')', n);
	struct proc_stat s = {.pid = (u32)scan_u64(&p, end)};
	size_t comm_n;
	int field;

	/* The name may contain blanks and parentheses; the numbers after it cannot. */
	if (!open || !close || close < open || end - close < 4 || p == text)
		return -EINVAL;
	comm_n = MIN((size_t)(close - open - 1), sizeof(s.comm) - 1);
	memcpy(s.comm, open + 1, comm_n);
	s.state = close[2];
	p = close + 3;
	for (field = STAT_PPID; field <= STAT_STARTSTACK; field++) {
		const char *before;

		if (p == end || *p++ != ' ')
			return -EINVAL;
		before = p;
		stat_field(&s, field, scan_u64(&p, end));
		if (p == before)
			return -EINVAL;
	}
	*ret = s;
	return 0;
}

int proc_stat_read(u32 pid, struct proc_stat *ret)
{
	char text[1024];
	size_t n;
	int r = proc_read_text(pid, "stat", text, sizeof(text), &n);

	if (r < 0)
		return r;
	return n ? proc_stat_parse(text, n, ret) : -ESRCH;
}

static bool is_zombie(const struct proc_stat *st)
{
	return st->state == 'Z' || st->state == 'X';
}

int proc_living_thread(u32 pid, u32 *ret_tid)
{
	_cleanup_(closedir) DIR *dir = NULL;
	struct proc_stat st;
	struct dirent *e;
	char name[32];
	int r = proc_stat_read(pid, &st);

	if (r < 0)
		return r;
	if (!is_zombie(&st)) {
		*ret_tid = pid;
		return 0;
	}
	snprintf(name, sizeof(name), "/proc/%u/task", pid);
	dir = opendir(name);
	while (dir && (e = readdir(dir))) {
		u64 tid;

		if (str_to_u64(e->d_name, 10, &tid) == 0 && tid <= UINT32_MAX &&
		    proc_stat_read((u32)tid, &st) == 0 && !is_zombie(&st)) {
			*ret_tid = (u32)tid;
			return 0;
		}
	}
	return -ESRCH;
}

/* The words after `key` at the start of a line; NULL when there is no such line. */
static const char *status_line(const char *text, const char *end, const char *key)
{
	size_t key_n = strlen(key);

	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));

		if ((size_t)(end - text) > key_n && memcmp(text, key, key_n) == 0)
			return text + key_n;
		if (!nl)
			break;
		text = nl + 1;
	}
	return NULL;
}

/* Word number `index` of a line; the last one when there are fewer. */
static bool status_word(const char *p, const char *end, int index, u32 *ret)
{
	bool found = false;

	while (p < end && *p != '\n') {
		if (*p == '\t' || *p == ' ') {
			p++;
			continue;
		}
		if (!isdigit((unsigned char)*p))
			break;
		*ret = (u32)scan_u64(&p, end);
		found = true;
		if (index-- == 0)
			break;
	}
	return found;
}

/* Hexadecimal digits. */
static u64 status_mask(const char *p, const char *end)
{
	u64 mask = 0;

	while (p < end && (*p == '\t' || *p == ' '))
		p++;
	for (; p < end && isxdigit((unsigned char)*p); p++)
		mask = mask << 4 |
		       (isdigit((unsigned char)*p) ? (u64)(*p - '0')
						   : (u64)(tolower((unsigned char)*p) - 'a' + 10));
	return mask;
}

int proc_status_parse(const char *text, size_t n, struct proc_status *ret)
{
	const char *end = text + n, *p;
	struct proc_status s = {};
	u32 peak_kib;

	p = status_line(text, end, "Tgid:");
	if (!p || !status_word(p, end, 0, &s.tgid))
		return -EINVAL;
	p = status_line(text, end, "Uid:");
	if (!p || !status_word(p, end, 0, &s.real_uid) || !status_word(p, end, 1, &s.uid))
		return -EINVAL;
	p = status_line(text, end, "NSpid:");
	if (!p || !status_word(p, end, 64, &s.ns_pid))
		s.ns_pid = s.tgid;
	p = status_line(text, end, "Threads:");
	if (!p || !status_word(p, end, 0, &s.n_threads))
		return -EINVAL;
	p = status_line(text, end, "VmHWM:");
	if (p && status_word(p, end, 0, &peak_kib))
		s.peak_bytes = (u64)peak_kib << 10;
	p = status_line(text, end, "SigCgt:");
	if (p)
		s.caught = status_mask(p, end);
	*ret = s;
	return 0;
}

int proc_status_read(u32 pid, struct proc_status *ret)
{
	char text[8192];
	size_t n;
	int r = proc_read_text(pid, "status", text, sizeof(text), &n);

	if (r < 0)
		return r;
	return n ? proc_status_parse(text, n, ret) : -ESRCH;
}

int proc_schedstat_read(u32 pid, u32 tid, u64 *ret_cpu_ns, u64 *ret_delay_ns)
{
	char name[48], text[128];
	size_t n;
	int r;

	snprintf(name, sizeof(name), "task/%u/schedstat", tid);
	r = proc_read_text(pid, name, text, sizeof(text), &n);
	if (r < 0)
		return r;
	return sscanf(text, "%llu %llu", ret_cpu_ns, ret_delay_ns) == 2 ? 0 : -EINVAL;
}

static bool list_has(const char *list, const char *end, const char *word)
{
	size_t n = strlen(word);

	while (list < end) {
		const char *comma = memchr(list, ',', (size_t)(end - list));
		const char *word_end = comma ? comma : end;

		if ((size_t)(word_end - list) == n && memcmp(list, word, n) == 0)
			return true;
		list = word_end + 1;
	}
	return false;
}

/* Rank of the hierarchy of a line "ID:CONTROLLERS:PATH": higher is better, 0 is unusable. */
static int cgroup_rank(const char *id, const char *list, const char *list_end)
{
	static const char *const v1[] = {"name=systemd", "pids", "memory", "cpu", "perf_event"};

	if (list == list_end)
		return *id == '0' ? (int)ARRAY_SIZE(v1) + 1 : 0;
	for (size_t i = ARRAY_SIZE(v1); i > 0; i--)
		if (list_has(list, list_end, v1[i - 1]))
			return (int)i;
	return 0;
}

#define RANK_OF_CONTAINERS 100

/* A path that names a container or pod comes before all that do not. */
static int path_rank(const char *path, size_t n, struct str *scratch)
{
	struct proc_cgroup_owner o;

	str_clear(scratch);
	if (str_append(scratch, path, n) < 0)
		return 0;
	proc_cgroup_describe(str_get(scratch), &o);
	return o.container_id[0] || o.container_name[0] || o.pod_uid[0] ? RANK_OF_CONTAINERS : 0;
}

int proc_cgroup_parse(const char *text, size_t n, struct str *ret_path)
{
	_cleanup_str_ struct str scratch = {};
	const char *end = text + n, *best = "/";
	size_t best_n = 1;
	int best_rank = 0;

	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		const char *line_end = nl ? nl : end;
		const char *list = memchr(text, ':', (size_t)(line_end - text));
		const char *path =
			list ? memchr(list + 1, ':', (size_t)(line_end - list - 1)) : NULL;

		/* The root of a hierarchy identifies nothing. */
		if (path && line_end - path > 2 && path[1] == '/') {
			int rank = cgroup_rank(text, list + 1, path);

			if (rank)
				rank += path_rank(path + 1, (size_t)(line_end - path - 1),
						  &scratch);
			if (rank > best_rank) {
				best_rank = rank;
				best = path + 1;
				best_n = (size_t)(line_end - path - 1);
			}
		}
		text = line_end + 1;
	}
	str_clear(ret_path);
	return str_append(ret_path, best, best_n);
}

int proc_cgroup_unified_parse(const char *text, size_t n, struct str *ret_path)
{
	const char *end = text + n;

	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		const char *line_end = nl ? nl : end;

		if (line_end - text > 3 && memcmp(text, "0::", 3) == 0) {
			str_clear(ret_path);
			return str_append(ret_path, text + 3, (size_t)(line_end - text - 3));
		}
		text = line_end + 1;
	}
	return -ENOENT;
}

static int read_cgroup(u32 pid, int (*parse)(const char *text, size_t n, struct str *ret_path),
		       struct str *ret_path)
{
	_cleanup_free_ char *text = malloc(64 << 10);
	size_t n;
	int r;

	if (!text)
		return -ENOMEM;
	r = proc_read_text(pid, "cgroup", text, 64 << 10, &n);
	return r < 0 ? r : parse(text, n, ret_path);
}

int proc_cgroup_read(u32 pid, struct str *ret_path)
{
	return read_cgroup(pid, proc_cgroup_parse, ret_path);
}

int proc_cgroup_unified_read(u32 pid, struct str *ret_path)
{
	return read_cgroup(pid, proc_cgroup_unified_parse, ret_path);
}

int proc_namespaces_read(u32 pid, struct proc_namespaces *ret)
{
	static const struct {
		const char *name;
		size_t offset;
	} kinds[] = {
		{"mnt", offsetof(struct proc_namespaces, mnt)},
		{"pid", offsetof(struct proc_namespaces, pid)},
		{"user", offsetof(struct proc_namespaces, user)},
		{"net", offsetof(struct proc_namespaces, net)},
		{"cgroup", offsetof(struct proc_namespaces, cgroup)},
	};
	struct proc_namespaces ns = {};
	bool any = false;
	char name[48];
	int error = ESRCH;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct stat st;

		snprintf(name, sizeof(name), "/proc/%u/ns/%s", pid, kinds[i].name);
		if (stat(name, &st) == 0) {
			*(u64 *)((char *)&ns + kinds[i].offset) = st.st_ino;
			any = true;
		} else if (errno != ENOENT) {
			error = errno;
		}
	}
	if (!any)
		return -error;
	*ret = ns;
	return 0;
}

int proc_list(int (*fn)(void *arg, u32 pid), void *arg)
{
	_cleanup_(closedir) DIR *dir = opendir("/proc");
	struct dirent *e;

	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		u64 pid;
		int r;

		if (str_to_u64(e->d_name, 10, &pid) < 0 || pid == 0 || pid > UINT32_MAX)
			continue;
		r = fn(arg, (u32)pid);
		if (r != 0)
			return r;
	}
	return 0;
}

int proc_cpulist_parse(const char *text, size_t n, u32 max, int (*fn)(void *arg, u32 cpu),
		       void *arg)
{
	const char *p = text, *end = text + n;

	while (end > p && isspace((unsigned char)end[-1]))
		end--;
	while (p < end) {
		const char *before = p;
		u64 first = scan_u64(&p, end), last = first;

		if (p == before || !isdigit((unsigned char)*before))
			return -EINVAL;
		if (p < end && *p == '-') {
			before = ++p;
			last = scan_u64(&p, end);
			if (p == before || !isdigit((unsigned char)*before))
				return -EINVAL;
		}
		if (last < first || last >= max || (p < end && *p++ != ','))
			return -EINVAL;
		for (u64 cpu = first; cpu <= last; cpu++) {
			int r = fn(arg, (u32)cpu);

			if (r != 0)
				return r;
		}
	}
	return 0;
}

int proc_cpus_online(int (*fn)(void *arg, u32 cpu), void *arg)
{
	char text[4096];
	size_t n = 0;
	int r = read_text("/sys/devices/system/cpu/online", text, sizeof(text), &n);

	return r < 0 ? r : proc_cpulist_parse(text, n, 1u << 16, fn, arg);
}
