/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tables/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/vec.h"
#include "symbol/debugfile.h"
#include "unwind/unwind.h"

/* Pages that are not urgent are told of when there are so many, or no more are to come. */
#define TELL_PAGES 16

struct loader_file {
	struct loader *loader; /* borrowed */
	void *user;
	u32 n_jobs;		/* under way; the owner counts */
	bool closed;		/* atomic */
	int fd;			/* owned; -1: `elf` is there, or could not be opened */
	struct elf_file *elf;	/* owned, as the next two */
	struct elf_file *debug; /* NULL: there is none, or it is of no use */
	struct unwind_source *source;
	u32 n_rules; /* given out */
	int error;   /* source could not be made */
	u8 *built;   /* owned: a bit for each page of the source */
};

struct call {
	void (*fn)(void *arg);
	void (*done)(void *arg);
	void *arg;
};

struct job {
	struct loader_file *file; /* NULL: a call */
	u64 page;
	enum loader_urgency urgency;
	struct call call;
};

struct result {
	struct loader_file *file; /* NULL: a call */
	struct loader_page page;
	struct call call;
};

struct results {
	struct result *data; /* owned */
	size_t n, cap;
};

/* First in, first out: [head, n) are waiting. */
struct jobs {
	vec(struct job) list;
	size_t head;
};

struct loader {
	pthread_t thread;
	bool running;
	int event_fd;
	int debug_root; /* borrowed */
	u32 *rows;	/* the worker's: room for a page */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t to_worker, to_owner;
	struct jobs jobs[LOADER_N];
	struct results results;
	bool stop, gentle;

	/* The owner's. */
	struct results taken;
	size_t next; /* of them */
	u32 n_jobs;  /* under way */
};

void loader_page_deinit(struct loader_page *p)
{
	free(p->lines);
	free(p->rules);
	*p = (struct loader_page){};
}

/* ---- the worker ---- */

/* The path is the target's to choose and stays out of it: a build-id is enough. */
static int add_debug_file(struct loader_file *f)
{
	struct debugfile_place place = {.root_fd = f->loader->debug_root};
	u64 n = unwind_source_info(f->source)->n_fdes;
	int r = debugfile_find(f->elf, &place, &f->debug, NULL);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	r = unwind_source_add_debug_file(f->source, f->debug);
	if (r == 0 && unwind_source_info(f->source)->n_fdes == n) {
		elf_file_destroy(f->debug);
		f->debug = NULL;
	}
	return r;
}

static int open_source(struct loader_file *f)
{
	int r = 0;

	if (!f->elf && f->fd >= 0) {
		r = elf_file_open(f->fd, NULL, &f->elf);
		f->fd = -1;
	}
	if (r == 0)
		r = f->elf ? unwind_source_create(f->elf, &f->source) : -ENOEXEC;
	if (r == 0)
		r = add_debug_file(f);
	if (r < 0)
		return r;
	f->built = calloc(unwind_source_info(f->source)->n_pages / 8 + 1, 1);
	return f->built ? 0 : -ENOMEM;
}

/* False: it is built already, and nobody waits for it. */
static bool is_wanted(struct loader_file *f, const struct job *j)
{
	const struct unwind_source_info *info = unwind_source_info(f->source);
	u64 i = j->page - info->first_page;

	return j->urgency == LOADER_NOW || i >= info->n_pages || !(f->built[i / 8] & 1u << i % 8);
}

static void note_built(struct loader_file *f, u64 page)
{
	u64 i = page - unwind_source_info(f->source)->first_page;

	f->built[i / 8] |= (u8)(1u << i % 8);
}

static int build(struct loader *l, const struct job *j, struct loader_page *p)
{
	struct loader_file *f = j->file;
	const struct unwind_rule *rules;
	u32 n_rules;
	int r;

	if (!f->source && !f->error)
		f->error = open_source(f);
	if (f->error)
		return f->error;
	if (!is_wanted(f, j))
		return -EEXIST;
	r = unwind_source_rows(f->source, p->page, l->rows, &p->n_rows);
	if (r < 0)
		return r;
	p->n_lines = unwind_page_n_lines(p->n_rows);
	p->lines = calloc(p->n_lines, UNWIND_LINE_BYTES);
	rules = unwind_source_rules(f->source, &n_rules);
	p->n_rules = n_rules - f->n_rules;
	p->rules = p->n_rules ? reallocarray(NULL, p->n_rules, sizeof(*rules)) : NULL;
	if (!p->lines || (p->n_rules && !p->rules))
		return -ENOMEM;
	unwind_page_pack(l->rows, p->n_rows, p->lines);
	if (p->n_rules)
		memcpy(p->rules, rules + f->n_rules, p->n_rules * sizeof(*rules));
	f->n_rules = n_rules;
	note_built(f, p->page);
	return 0;
}

static void do_job(struct loader *l, const struct job *j, struct result *ret)
{
	struct loader_page p;

	if (!j->file) {
		j->call.fn(j->call.arg);
		*ret = (struct result){.call = j->call};
		return;
	}
	p = (struct loader_page){.user = j->file->user, .page = j->page};

	p.error = __atomic_load_n(&j->file->closed, __ATOMIC_RELAXED) ? -ESTALE : build(l, j, &p);
	if (p.error < 0) {
		free(p.lines);
		free(p.rules);
		p.lines = NULL;
		p.rules = NULL;
		p.n_rows = p.n_lines = p.n_rules = 0;
	}
	*ret = (struct result){.file = j->file, .page = p};
}

static bool jobs_take(struct jobs *q, struct job *ret)
{
	if (q->head == q->list.n)
		return false;
	*ret = q->list.data[q->head++];
	if (q->head == q->list.n)
		q->head = q->list.n = 0;
	return true;
}

static bool any_jobs(const struct loader *l, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (l->jobs[i].head < l->jobs[i].list.n)
			return true;
	return false;
}

/* Room for the result was made when the job was asked for. */
static void give(struct loader *l, const struct result *r, u32 urgency)
{
	u64 one = 1;

	l->results.data[l->results.n++] = *r;
	pthread_cond_signal(&l->to_owner);
	if (urgency == LOADER_NOW || l->results.n % TELL_PAGES == 0 || !any_jobs(l, LOADER_N))
		(void)!write(l->event_fd, &one, sizeof(one));
}

static void rest(struct loader *l, u64 ns)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + ns;
	struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

	while (!l->stop && l->gentle && !any_jobs(l, LOADER_LATER) &&
	       pthread_cond_timedwait(&l->to_worker, &l->lock, &t) != ETIMEDOUT)
		;
}

static void *work(void *arg)
{
	struct loader *l = arg;

	/* Before most others, behind the reader; without the privilege it stays as it is. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), -10);
	pthread_mutex_lock(&l->lock);
	while (!l->stop) {
		u32 urgency = 0;
		struct result r;
		struct job j;
		u64 begin;

		while (urgency < LOADER_N && !jobs_take(&l->jobs[urgency], &j))
			urgency++;
		if (urgency == LOADER_N) {
			pthread_cond_wait(&l->to_worker, &l->lock);
			continue;
		}
		pthread_mutex_unlock(&l->lock);
		begin = clock_ns(CLOCK_MONOTONIC);
		do_job(l, &j, &r);
		pthread_mutex_lock(&l->lock);
		give(l, &r, urgency);
		if (urgency == LOADER_LATER && l->gentle)
			rest(l, (clock_ns(CLOCK_MONOTONIC) - begin) * 3 / 2);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- the owner ---- */

static void file_free(struct loader_file *f)
{
	unwind_source_destroy(f->source);
	elf_file_destroy(f->debug);
	elf_file_destroy(f->elf);
	free(f->built);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

int loader_open(struct loader *l, const struct elf_file *elf, void *user, struct loader_file **ret)
{
	struct loader_file *f = calloc(1, sizeof(*f));
	int r = 0;

	if (!f)
		return -ENOMEM;
	f->loader = l;
	f->user = user;
	f->fd = -1;
	if (elf->fd >= 0) {
		f->fd = fcntl(elf->fd, F_DUPFD_CLOEXEC, 0);
		r = f->fd < 0 ? -errno : 0;
	} else {
		r = elf_file_open_memory(elf->image, elf->size, NULL, &f->elf);
	}
	if (r < 0) {
		file_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

void loader_close(struct loader_file *f)
{
	if (!f)
		return;
	__atomic_store_n(&f->closed, true, __ATOMIC_RELAXED);
	f->user = NULL;
	if (!f->n_jobs)
		file_free(f);
}

int loader_ask(struct loader_file *f, const u64 *pages, u32 n, enum loader_urgency urgency)
{
	struct loader *l = f->loader;
	struct jobs *q = &l->jobs[urgency];
	int r;

	pthread_mutex_lock(&l->lock);
	r = vec_reserve(&l->results, l->n_jobs + n);
	if (r == 0)
		r = vec_reserve(&q->list, q->list.n + n);
	for (u32 i = 0; i < n && r == 0; i++)
		q->list.data[q->list.n++] = (struct job){f, pages[i], urgency, {}};
	pthread_mutex_unlock(&l->lock);
	if (r < 0)
		return r;
	/* Now, as the worker may take our CPU when it wakes, and would then want the lock. */
	pthread_cond_signal(&l->to_worker);
	f->n_jobs += n;
	l->n_jobs += n;
	return 0;
}

int loader_call(struct loader *l, void (*fn)(void *arg), void (*done)(void *arg), void *arg)
{
	struct jobs *q = &l->jobs[LOADER_NOW];
	struct job j = {.urgency = LOADER_NOW, .call = {fn, done, arg}};
	int r;

	pthread_mutex_lock(&l->lock);
	r = vec_reserve(&l->results, l->n_jobs + 1);
	if (r == 0)
		r = vec_push(&q->list, j);
	pthread_mutex_unlock(&l->lock);
	if (r < 0)
		return r;
	pthread_cond_signal(&l->to_worker);
	l->n_jobs++;
	return 0;
}

void loader_set_gentle(struct loader *l, bool gentle)
{
	pthread_mutex_lock(&l->lock);
	l->gentle = gentle;
	pthread_cond_signal(&l->to_worker);
	pthread_mutex_unlock(&l->lock);
}

/* All results at once, so that the lock is held for a few words. */
static void fetch(struct loader *l, bool wait)
{
	struct results empty = {.data = l->taken.data, .cap = l->taken.cap};
	u64 n;

	l->next = 0;
	l->taken = (struct results){};
	(void)!read(l->event_fd, &n, sizeof(n));
	pthread_mutex_lock(&l->lock);
	while (wait && !l->results.n)
		pthread_cond_wait(&l->to_owner, &l->lock);
	/* The other must have room, too, for all that is under way. */
	if (vec_reserve(&empty, l->results.cap) == 0) {
		l->taken = l->results;
		l->results = empty;
		empty = (struct results){};
	}
	pthread_mutex_unlock(&l->lock);
	free(empty.data);
}

/* It is out of the worker's hands; true when somebody still wants it. */
static bool job_done(struct loader *l, struct result *r)
{
	struct loader_file *f = r->file;

	l->n_jobs--;
	if (!f) {
		r->call.done(r->call.arg);
		return false;
	}
	f->n_jobs--;
	if (!f->closed)
		return true;
	loader_page_deinit(&r->page);
	if (!f->n_jobs)
		file_free(f);
	return false;
}

bool loader_take(struct loader *l, bool wait, struct loader_page *ret)
{
	for (;;) {
		if (l->next == l->taken.n)
			fetch(l, wait && l->n_jobs);
		if (l->next == l->taken.n)
			return false;
		if (job_done(l, &l->taken.data[l->next++])) {
			*ret = l->taken.data[l->next - 1].page;
			return true;
		}
	}
}

bool loader_busy(const struct loader *l)
{
	return l->n_jobs;
}

int loader_fd(const struct loader *l)
{
	return l->event_fd;
}

/* ---- life ---- */

/* Signals are for the thread that made us. */
static int start_thread(struct loader *l)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&l->thread, NULL, work, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	l->running = r == 0;
	return -r;
}

int loader_create(int debug_root, struct loader **ret)
{
	struct loader *l = calloc(1, sizeof(*l));
	pthread_condattr_t monotonic;
	int r;

	if (!l)
		return -ENOMEM;
	l->debug_root = debug_root;
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&l->to_worker, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_cond_init(&l->to_owner, NULL);
	l->rows = reallocarray(NULL, UNWIND_PAGE_BYTES, sizeof(*l->rows));
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = l->event_fd < 0 ? -errno : l->rows ? start_thread(l) : -ENOMEM;
	if (r < 0) {
		loader_destroy(l);
		return r;
	}
	*ret = l;
	return 0;
}

/* The worker has ended: what it had not begun, and what nobody has taken. */
static void drop_all(struct loader *l)
{
	struct result r;
	struct job j;

	for (u32 i = 0; i < LOADER_N; i++) {
		while (jobs_take(&l->jobs[i], &j)) {
			r = (struct result){.file = j.file, .call = j.call};
			(void)job_done(l, &r);
		}
		vec_deinit(&l->jobs[i].list);
	}
	while (l->next < l->taken.n)
		if (job_done(l, &l->taken.data[l->next++]))
			loader_page_deinit(&l->taken.data[l->next - 1].page);
	for (size_t i = 0; i < l->results.n; i++)
		if (job_done(l, &l->results.data[i]))
			loader_page_deinit(&l->results.data[i].page);
	free(l->taken.data);
	free(l->results.data);
}

void loader_destroy(struct loader *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stop = true;
	pthread_cond_signal(&l->to_worker);
	pthread_mutex_unlock(&l->lock);
	if (l->running)
		pthread_join(l->thread, NULL);
	drop_all(l);
	pthread_cond_destroy(&l->to_worker);
	pthread_cond_destroy(&l->to_owner);
	pthread_mutex_destroy(&l->lock);
	if (l->event_fd >= 0)
		close(l->event_fd);
	free(l->rows);
	free(l);
}
