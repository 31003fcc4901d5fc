/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of watches and their results are under the lock. What the thread needs to measure, it
 * has for itself (struct measuring), and follows the list between two rounds.
 */
#include "agent/watch/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/thread.h"
#include "base/vec.h"
#include "proc/proc.h"

/* A watch that there was no memory for begins so long after at most. */
#define MAX_SLEEP_NS 1000000000ULL

struct listed {
	struct control_watch asked;
	u32 server;
	u64 serial; /* another one: the measuring begins again */
	struct control_watched seen;
	bool told[CONTROL_MAX_FIRED]; /* of seen.fired: is in the last report */
};

/* A process of a watch. */
struct process {
	u64 image, start_ticks;
	u64 ticks; /* its CPU time at the end of the last window */
	u64 at_ns;
	u64 hits; /* a bit for each window, of which bit 0 is the last: the threshold was reached */
	double value;
	double cpu; /* of the window, in % of a CPU */
	u32 pid, threads;
	bool has_value, has_ticks, stays;
	char comm[16];
	char service[CONTROL_TEXT_BYTES];
};

struct measuring {
	struct control_watch asked;
	u64 serial;
	u64 due_ns;
	u64 windows;
	u64 load_hits;
	vec(struct process) processes;
	struct map by_pid; /* pid → index in processes */
	bool is_listed;
};

struct watch {
	struct identities *identities;
	pthread_t thread;
	bool started;
	vec(struct measuring *) measuring; /* owned; the thread's */

	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	bool ending, changed; /* the latter: there are new watches */
	u64 last_serial;
	vec(struct listed) list;
};

/* ---- what the client's threads do ---- */

static bool is_same(const struct control_watch *a, const struct control_watch *b)
{
	return !strcmp(a->id, b->id) && !strcmp(a->service, b->service) &&
	       a->quantity == b->quantity && a->threshold == b->threshold &&
	       a->window_ms == b->window_ms && a->count == b->count && a->of == b->of;
}

static bool is_among(const struct control_watch *w, const struct control_watch *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_same(w, &all[i]))
			return true;
	return false;
}

static bool is_known(const struct watch *w, u32 server, const struct control_watch *asked)
{
	vec_foreach (&w->list, l)
		if (l->server == server && is_same(&l->asked, asked))
			return true;
	return false;
}

int watch_set(struct watch *w, u32 server, const struct control_watch *all, size_t n)
{
	size_t left = 0;
	int r;

	if (server >= WATCH_MAX_SERVERS)
		return -EINVAL;
	n = MIN(n, (size_t)CONTROL_MAX_WATCHES);
	pthread_mutex_lock(&w->lock);
	r = vec_reserve(&w->list, w->list.n + n);
	if (r == 0) {
		for (size_t i = 0; i < w->list.n; i++)
			if (w->list.data[i].server != server ||
			    is_among(&w->list.data[i].asked, all, n))
				w->list.data[left++] = w->list.data[i];
		w->list.n = left;
		for (size_t i = 0; i < n; i++) {
			struct listed new = {.asked = all[i], .server = server};

			if (is_known(w, server, &all[i]))
				continue;
			new.serial = ++w->last_serial;
			memcpy(new.seen.id, all[i].id, sizeof(new.seen.id));
			(void)vec_push(&w->list, new); /* there is room */
			w->changed = true;
			pthread_cond_broadcast(&w->wake);
		}
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

int watch_report(struct watch *w, u32 server, struct control_request *ret)
{
	int r = 0;

	pthread_mutex_lock(&w->lock);
	vec_foreach (&w->list, l) {
		if (l->server != server || r < 0)
			continue;
		r = vec_push(&ret->watched, l->seen);
		for (u32 i = 0; i < l->seen.n_fired; i++)
			l->told[i] = true;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

void watch_answered(struct watch *w, u32 server)
{
	pthread_mutex_lock(&w->lock);
	vec_foreach (&w->list, l) {
		u32 left = 0;

		for (u32 i = 0; l->server == server && i < l->seen.n_fired; i++)
			if (!l->told[i])
				l->seen.fired[left++] = l->seen.fired[i];
		if (l->server != server)
			continue;
		l->seen.n_fired = left;
		memset(l->told, 0, sizeof(l->told));
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- the processes of a watch ---- */

struct finding {
	struct measuring *m;
	size_t room; /* for more processes, of all watches */
};

static void add_process(void *arg, const struct identity_process *p, const char *service)
{
	struct finding *f = arg;
	struct measuring *m = f->m;
	const bool any = !strcmp(m->asked.service, "*");
	const u64 *at = map_get(&m->by_pid, p->pid);
	struct process new = {.image = p->image, .start_ticks = p->start_ticks, .pid = p->pid};
	struct process *known = at ? &m->processes.data[*at] : NULL;

	if (strlen(service) >= sizeof(new.service) || !*service)
		return;
	/* Numbers of images grow: an older one is what the process ran before. */
	if (known && known->image >= p->image)
		return;
	if (!any && strcmp(service, m->asked.service) != 0) {
		if (known && known->start_ticks == p->start_ticks)
			known->pid = 0; /* it runs another service now */
		return;
	}
	memcpy(new.service, service, strlen(service) + 1);
	if (known) {
		*known = new;
		return;
	}
	if (!f->room || m->processes.n >= WATCH_MAX_PROCESSES ||
	    map_put(&m->by_pid, p->pid, m->processes.n) < 0)
		return;
	if (vec_push(&m->processes, new) < 0)
		(void)map_del(&m->by_pid, p->pid, NULL);
	else
		f->room--;
}

static void find_processes(struct watch *w, struct measuring *m)
{
	struct finding f = {.m = m, .room = WATCH_MAX_ALL};

	vec_foreach (&w->measuring, other)
		f.room -= MIN(f.room, (*other)->processes.n);
	identities_each(w->identities, add_process, &f);
}

/* False: the process has ended. */
static bool measure_process(struct process *p, u64 ticks_per_s)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	struct proc_stat st;

	p->has_value = false;
	if (!p->pid || proc_stat_read(p->pid, &st) < 0 || st.start_ticks != p->start_ticks ||
	    st.state == 'Z' || st.state == 'X' || st.kthread)
		return false;
	memcpy(p->comm, st.comm, sizeof(p->comm));
	p->threads = st.n_threads;
	if (p->has_ticks && now > p->at_ns && st.cpu_ticks >= p->ticks) {
		p->cpu = (double)(st.cpu_ticks - p->ticks) / (double)ticks_per_s * 1e11 /
			 (double)(now - p->at_ns);
		p->has_value = true;
	}
	p->ticks = st.cpu_ticks;
	p->at_ns = now;
	p->has_ticks = true;
	return true;
}

static void drop_ended(struct measuring *m)
{
	size_t left = 0;

	for (size_t i = 0; i < m->processes.n; i++)
		if (m->processes.data[i].stays)
			m->processes.data[left++] = m->processes.data[i];
	if (left == m->processes.n)
		return;
	m->processes.n = left;
	map_clear(&m->by_pid);
	for (size_t i = 0; i < left; i++)
		(void)map_put(&m->by_pid, m->processes.data[i].pid, i);
}

static void measure_processes(struct measuring *m)
{
	const u64 ticks_per_s = MAX(proc_ticks_per_s(), 1u);

	vec_foreach (&m->processes, p) {
		p->stays = measure_process(p, ticks_per_s);
		p->value = p->cpu;
		if (m->asked.quantity != CONTROL_QUANTITY_THREADS)
			continue;
		p->value = p->threads;
		p->has_value = p->stays;
	}
	drop_ended(m);
}

/* ---- comparing ---- */

static int count_cpu(void *arg, u32 cpu)
{
	(void)cpu;
	(*(u32 *)arg)++;
	return 0;
}

static bool read_load(double *ret)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/loadavg", "re");
	u32 cpus = 0;
	double load;

	if (!f || fscanf(f, "%lf", &load) != 1 || proc_cpus_online(count_cpu, &cpus) < 0 || !cpus)
		return false;
	*ret = load / cpus;
	return true;
}

static void note_hit(const struct control_watch *asked, double value, u64 *hits)
{
	*hits = (*hits << 1 | (value >= asked->threshold)) & ((1ULL << asked->of) - 1);
}

static u32 count_hits(u64 hits)
{
	return (u32)__builtin_popcountll(hits);
}

/* Fires only in a window that reached the threshold itself. */
static bool has_fired(const struct control_watch *asked, u64 *hits)
{
	if (!(*hits & 1) || count_hits(*hits) < asked->count)
		return false;
	*hits = 0;
	return true;
}

static struct control_measured measured_of(const struct process *p, double value, u32 over,
					   u64 now_ms)
{
	struct control_measured m = {.at_ms = now_ms, .value = value, .over = over};

	if (!p)
		return m;
	m.pid = p->pid;
	memcpy(m.comm, p->comm, sizeof(m.comm));
	memcpy(m.service, p->service, sizeof(m.service));
	return m;
}

/* Of each service the highest value of the newest window. The place, or -1 if there is none. */
static int add_fired(struct control_watched *seen, const struct control_measured *m)
{
	u32 at = 0;

	while (at < seen->n_fired && strcmp(seen->fired[at].service, m->service) != 0)
		at++;
	if (at == CONTROL_MAX_FIRED || (at < seen->n_fired && seen->fired[at].at_ms == m->at_ms &&
					seen->fired[at].value >= m->value))
		return -1;
	seen->fired[at] = *m;
	seen->n_fired = MAX(seen->n_fired, at + 1);
	return (int)at;
}

static void compare_processes(struct measuring *m, u64 now_ms, struct control_watched *ret)
{
	vec_foreach (&m->processes, p) {
		struct control_measured new;

		if (!p->has_value)
			continue;
		note_hit(&m->asked, p->value, &p->hits);
		new = measured_of(p, p->value, count_hits(p->hits), now_ms);
		if (!ret->last.at_ms || p->value > ret->last.value)
			ret->last = new;
		if (has_fired(&m->asked, &p->hits))
			(void)add_fired(ret, &new);
	}
}

static void compare_load(struct measuring *m, u64 now_ms, struct control_watched *ret)
{
	const struct process *busiest = NULL;
	double load;

	if (!read_load(&load))
		return;
	vec_foreach (&m->processes, p)
		if (p->has_value && p->cpu > (busiest ? busiest->cpu : 0))
			busiest = p;
	note_hit(&m->asked, load, &m->load_hits);
	ret->last = measured_of(busiest, load, count_hits(m->load_hits), now_ms);
	if (busiest && has_fired(&m->asked, &m->load_hits))
		(void)add_fired(ret, &ret->last);
}

/* ---- the thread ---- */

static void measuring_destroy(struct measuring *m)
{
	vec_deinit(&m->processes);
	map_deinit(&m->by_pid);
	free(m);
}

static struct measuring *find_measuring(struct watch *w, u64 serial)
{
	vec_foreach (&w->measuring, m)
		if ((*m)->serial == serial)
			return *m;
	return NULL;
}

static void begin_measuring(struct watch *w, const struct listed *l)
{
	struct measuring *m = calloc(1, sizeof(*m));

	if (!m)
		return; /* in the next round */
	m->asked = l->asked;
	m->serial = l->serial;
	m->is_listed = true;
	if (vec_push(&w->measuring, m) < 0)
		free(m);
}

/* Under the lock. */
static void follow_list(struct watch *w)
{
	size_t left = 0;

	vec_foreach (&w->measuring, m)
		(*m)->is_listed = false;
	vec_foreach (&w->list, l) {
		struct measuring *m = find_measuring(w, l->serial);

		if (m)
			m->is_listed = true;
		else
			begin_measuring(w, l);
	}
	for (size_t i = 0; i < w->measuring.n; i++)
		if (w->measuring.data[i]->is_listed)
			w->measuring.data[left++] = w->measuring.data[i];
		else
			measuring_destroy(w->measuring.data[i]);
	w->measuring.n = left;
}

static void publish(struct watch *w, const struct measuring *m, const struct control_watched *seen)
{
	pthread_mutex_lock(&w->lock);
	vec_foreach (&w->list, l) {
		if (l->serial != m->serial)
			continue;
		l->seen.processes = seen->processes;
		l->seen.windows = seen->windows;
		l->seen.last = seen->last;
		for (u32 i = 0; i < seen->n_fired; i++) {
			int at = add_fired(&l->seen, &seen->fired[i]);

			if (at >= 0)
				l->told[at] = false;
		}
	}
	pthread_mutex_unlock(&w->lock);
}

static void measure(struct watch *w, struct measuring *m, u64 now)
{
	const bool first = !m->due_ns;
	const u64 window_ns = m->asked.window_ms * 1000000ULL;
	struct control_watched seen = {};

	find_processes(w, m);
	measure_processes(m);
	/* A machine that slept does not catch up. */
	m->due_ns = first || now - m->due_ns > window_ns ? now + window_ns : m->due_ns + window_ns;
	if (first)
		return;
	seen.windows = ++m->windows;
	if (m->asked.quantity == CONTROL_QUANTITY_LOAD)
		compare_load(m, clock_epoch_ms(), &seen);
	else
		compare_processes(m, clock_epoch_ms(), &seen);
	seen.processes = (u32)m->processes.n;
	publish(w, m, &seen);
}

/* Measures what is due. When something is due again; ~0: never. */
static u64 measure_due(struct watch *w)
{
	u64 next = ~0ULL;

	vec_foreach (&w->measuring, m) {
		u64 now = clock_ns(CLOCK_MONOTONIC);

		if (now >= (*m)->due_ns)
			measure(w, *m, now);
		next = MIN(next, (*m)->due_ns);
	}
	return next;
}

static void *work(void *arg)
{
	struct watch *w = arg;

	pthread_mutex_lock(&w->lock);
	while (!w->ending) {
		u64 now, next;

		w->changed = false;
		follow_list(w);
		pthread_mutex_unlock(&w->lock);
		next = measure_due(w);
		now = clock_ns(CLOCK_MONOTONIC);
		pthread_mutex_lock(&w->lock);
		if (w->ending || w->changed)
			continue;
		if (!w->list.n && !w->measuring.n)
			pthread_cond_wait(&w->wake, &w->lock);
		else if (next > now)
			(void)thread_wait(&w->wake, &w->lock, MIN(next - now, MAX_SLEEP_NS));
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* ---- life ---- */

int watch_create(struct identities *identities, struct diag *reterr_diag, struct watch **ret)
{
	_cleanup_watch_ struct watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->identities = identities;
	thread_sync_init(&w->lock, &w->wake);
	r = thread_start(&w->thread, "watch", work, w);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot start a thread: %s", strerror(-r));
	w->started = true;
	*ret = take_ptr(w);
	return 0;
}

void watch_destroy(struct watch *w)
{
	if (!w)
		return;
	if (w->started) {
		pthread_mutex_lock(&w->lock);
		w->ending = true;
		pthread_cond_broadcast(&w->wake);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
	}
	vec_foreach (&w->measuring, m)
		measuring_destroy(*m);
	vec_deinit(&w->measuring);
	vec_deinit(&w->list);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
