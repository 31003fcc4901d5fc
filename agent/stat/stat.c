/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/stat/stat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "base/vec.h"
#include "proc/proc.h"

#define MAX_EVENTS 64

static const char default_events[] =
	"task-clock,context-switches,cpu-migrations,page-faults,minor-faults,major-faults,"
	"cycles,instructions,branches,branch-misses,cache-references,cache-misses";

struct counter {
	char *name; /* owned */
	struct perf_event_attr attr;
	vec(int) fds; /* owned; none: the machine has no such event */
};

struct stat_counters {
	struct stat_options o;
	int cgroup; /* owned, or -1 */
	vec(struct counter) counters;
	vec(u32) tids; /* of the process */
};

/* ---- opening ---- */

struct opening {
	struct stat_counters *s;
	struct counter *c;
};

static int open_event(struct opening *o, int pid, int cpu)
{
	unsigned long flags = PERF_FLAG_FD_CLOEXEC;
	long fd;

	if (o->s->o.scope == STAT_CGROUP)
		flags |= PERF_FLAG_PID_CGROUP;
	fd = syscall(SYS_perf_event_open, &o->c->attr, pid, cpu, -1, flags);
	if (fd < 0)
		return -errno;
	if (vec_push(&o->c->fds, (int)fd) == 0)
		return 0;
	close((int)fd);
	return -ENOMEM;
}

static int open_on_cpu(void *arg, u32 cpu)
{
	struct opening *o = arg;

	return open_event(o, o->s->o.scope == STAT_CGROUP ? o->s->cgroup : -1, (int)cpu);
}

static int open_on_threads(struct opening *o)
{
	int r = 0;

	vec_foreach (&o->s->tids, tid) {
		r = open_event(o, (int)*tid, -1);
		if (r == -ESRCH) /* it has ended */
			r = 0;
		if (r < 0)
			break;
	}
	return r;
}

static int open_counter(struct stat_counters *s, struct counter *c, struct diag *d)
{
	struct opening o = {.s = s, .c = c};
	int r;

	c->attr.size = sizeof(c->attr);
	c->attr.disabled = 1;
	c->attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	c->attr.inherit = s->o.scope == STAT_PROCESS || s->o.scope == STAT_COMMAND;
	c->attr.enable_on_exec = s->o.scope == STAT_COMMAND;
	r = s->tids.n ? open_on_threads(&o) : proc_cpus_online(open_on_cpu, &o);
	/* The machine, or its virtual one, has no such counter. */
	if (r == -ENOENT || r == -EOPNOTSUPP || r == -ENODEV)
		return 0;
	if (r == -EACCES || r == -EPERM)
		return diag_set(d, r, "counting '%s' needs root, or CAP_PERFMON", c->name);
	return r < 0 ? diag_set(d, r, "cannot count '%s': %s", c->name, strerror(-r)) : 0;
}

static int add_counter(struct stat_counters *s, const char *name, size_t n, struct diag *d)
{
	struct counter c = {.name = strndup(name, n)};
	int r = c.name ? tracer_event_attr(c.name, &c.attr, d) : -ENOMEM;

	if (r == 0 && s->counters.n == MAX_EVENTS)
		r = diag_set(d, -E2BIG, "at most %d events can be counted at a time", MAX_EVENTS);
	if (r == 0)
		r = vec_push(&s->counters, c);
	if (r < 0)
		free(c.name);
	return r < 0 ? r : open_counter(s, &s->counters.data[s->counters.n - 1], d);
}

static int add_counters(struct stat_counters *s, struct diag *d)
{
	const char *events = s->o.events ? s->o.events : default_events;
	int r = 0;

	for (const char *word = events; *word && r == 0;) {
		size_t n = strcspn(word, ",");

		if (n)
			r = add_counter(s, word, n, d);
		word += n + (word[n] == ',');
	}
	if (r == 0 && !s->counters.n)
		r = diag_set(d, -EINVAL, "no event is named");
	return r;
}

static int list_threads(struct stat_counters *s, struct diag *d)
{
	struct dirent *e;
	char path[64];
	DIR *tasks;
	int r = 0;
	u64 tid;

	snprintf(path, sizeof(path), "/proc/%u/task", s->o.pid);
	tasks = opendir(path);
	if (!tasks)
		return diag_set(d, -ESRCH, "no process has the id %u", s->o.pid);
	while (r == 0 && (e = readdir(tasks)))
		if (str_to_u64(e->d_name, 10, &tid) == 0)
			r = vec_push(&s->tids, (u32)tid);
	closedir(tasks);
	return r == 0 && !s->tids.n ? diag_set(d, -ESRCH, "process %u has ended", s->o.pid) : r;
}

static int open_cgroup(struct stat_counters *s, struct diag *d)
{
	static const char *const roots[] = {"", "/sys/fs/cgroup/perf_event/", "/sys/fs/cgroup/"};
	char path[4096];

	for (size_t i = 0; i < ARRAY_SIZE(roots) && s->cgroup < 0; i++) {
		snprintf(path, sizeof(path), "%s%s", roots[i], s->o.cgroup);
		s->cgroup = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (s->cgroup < 0)
		return diag_set(d, -errno, "no cgroup '%s': give its directory, such as %s",
				s->o.cgroup, "/sys/fs/cgroup/system.slice");
	return 0;
}

int stat_create(const struct stat_options *o, struct diag *reterr_diag, struct stat_counters **ret)
{
	struct stat_counters *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->o = *o;
	s->cgroup = -1;
	if (o->scope == STAT_PROCESS || o->scope == STAT_COMMAND)
		r = list_threads(s, reterr_diag);
	else if (o->scope == STAT_CGROUP)
		r = open_cgroup(s, reterr_diag);
	if (r == 0)
		r = add_counters(s, reterr_diag);
	if (r < 0) {
		stat_destroy(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* ---- counting ---- */

int stat_start(struct stat_counters *s)
{
	if (s->o.scope == STAT_COMMAND)
		return 0;
	vec_foreach (&s->counters, c)
		vec_foreach (&c->fds, fd)
			if (ioctl(*fd, PERF_EVENT_IOC_ENABLE, 0) < 0)
				return -errno;
	return 0;
}

u32 stat_count(const struct stat_counters *s)
{
	return (u32)s->counters.n;
}

static bool is_clock(const struct perf_event_attr *a)
{
	return a->type == PERF_TYPE_SOFTWARE &&
	       (a->config == PERF_COUNT_SW_CPU_CLOCK || a->config == PERF_COUNT_SW_TASK_CLOCK);
}

/* Each descriptor is scaled by its own times: CPUs and threads take turns independently. */
static int read_counter(const struct counter *c, struct stat_value *ret)
{
	u64 enabled = 0, running = 0;
	struct {
		u64 value, enabled, running;
	} v;

	*ret = (struct stat_value){
		.name = c->name, .is_supported = c->fds.n > 0, .is_time = is_clock(&c->attr)};
	vec_foreach (&c->fds, fd) {
		if (read(*fd, &v, sizeof(v)) != sizeof(v))
			return -EIO;
		ret->counted += (double)v.value;
		if (v.running)
			ret->scaled += (double)v.value * ((double)v.enabled / (double)v.running);
		enabled += v.enabled;
		running += v.running;
	}
	ret->share = enabled ? (double)running / (double)enabled : 0;
	return 0;
}

int stat_read(struct stat_counters *s, struct stat_value *ret)
{
	int r = 0;

	for (size_t i = 0; i < s->counters.n && r == 0; i++)
		r = read_counter(&s->counters.data[i], &ret[i]);
	return r;
}

void stat_destroy(struct stat_counters *s)
{
	if (!s)
		return;
	vec_foreach (&s->counters, c) {
		vec_foreach (&c->fds, fd)
			close(*fd);
		vec_deinit(&c->fds);
		free(c->name);
	}
	vec_deinit(&s->counters);
	vec_deinit(&s->tids);
	if (s->cgroup >= 0)
		close(s->cgroup);
	free(s);
}
