/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/walkers.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "abi/runtime.h"
#include "base/budget.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/worker.h"

#define THREADS 2
/* What loading takes for a moment: the object, and the kernel's BTF. */
#define LOAD_BYTES (12ULL << 20)

/* The job of a thread: one walker for one source. */
struct load {
	struct worker_job base;
	const struct source *source; /* borrowed */
	u32 runtime;
	int error;
	double ms;
};

struct walkers {
	struct walkers_options options;
	struct worker *workers[THREADS]; /* owned; NULL until needed */
	int epoll;			 /* of the workers' descriptors */
	u32 asked;			 /* bits by enum runtime_id */
	u32 n_jobs;			 /* asked so far */
};

/* ---- the threads ---- */

/* The walker shares all maps of the source, also those that only the source has. */
static int share_maps(const struct source *from, struct bpf_object *object)
{
	struct bpf_map *map;
	int r = 0;

	bpf_object__for_each_map(map, object)
	{
		const struct bpf_map *same =
			bpf_object__find_map_by_name(from->object, bpf_map__name(map));

		if (r == 0)
			r = same ? bpf_map__reuse_fd(map, bpf_map__fd(same)) : -ENOENT;
	}
	return r;
}

/* Loads the walker, and enters it in the map through which programs jump to each other. */
static int load_program(const struct walkers *w, const struct load *job, struct source *copy)
{
	struct bpf_program *p, *walker = source_walker(copy, job->runtime, w->options.loop);
	int fd, r = share_maps(job->source, copy->object);

	bpf_object__for_each_program(p, copy->object) bpf_program__set_autoload(p, p == walker);
	if (r == 0)
		r = bpf_object__load(copy->object);
	if (r < 0)
		return r;
	fd = bpf_program__fd(walker);
	return bpf_map__update_elem(bpf_object__find_map_by_name(copy->object, "walkers"),
				    &job->runtime, sizeof(job->runtime), &fd, sizeof(fd), BPF_ANY);
}

static int load(const struct walkers *w, const struct load *job)
{
	struct source copy = {.row = job->source->row, .about = job->source->about};
	int r;

	if (!budget_begin(w->options.memory, LOAD_BYTES))
		return -ENOBUFS;
	r = copy.row->ops->open(&copy);
	if (r == 0) {
		r = load_program(w, job, &copy);
		copy.row->ops->destroy(&copy);
	}
	budget_end(w->options.memory, LOAD_BYTES);
	return r;
}

static void run_job(void *arg, struct worker_job *base)
{
	struct load *job = container_of(base, struct load, base);
	u64 begin = clock_ns(CLOCK_MONOTONIC);

	job->error = load(arg, job);
	job->ms = (double)(clock_ns(CLOCK_MONOTONIC) - begin) / 1e6;
}

static void drop_job(void *arg, struct worker_job *base, bool ran)
{
	(void)arg;
	(void)ran;
	free(container_of(base, struct load, base));
}

/* ---- the sampler's thread ---- */

int walkers_create(const struct walkers_options *o, struct walkers **ret)
{
	struct walkers *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->options = *o;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0) {
		int r = -errno;

		free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void walkers_destroy(struct walkers *w)
{
	if (!w)
		return;
	for (u32 i = 0; i < THREADS; i++)
		worker_destroy(w->workers[i]);
	close(w->epoll);
	free(w);
}

static int start_worker(struct walkers *w, u32 i)
{
	/* Above most threads, because walks wait; below the reader. */
	const struct worker_options o = {
		.name = "walkers", .nice = -10, .run = run_job, .drop = drop_job, .arg = w};
	struct epoll_event e = {.events = EPOLLIN};
	int r = w->workers[i] ? 0 : worker_create(&o, &w->workers[i]);

	/* EEXIST: it was added before. */
	if (r == 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, worker_fd(w->workers[i]), &e) < 0 &&
	    errno != EEXIST)
		r = -errno;
	return r;
}

static int ask(struct walkers *w, const struct source *s, u32 runtime)
{
	u32 i = w->n_jobs % THREADS;
	int r = start_worker(w, i);
	struct load *job = r < 0 ? NULL : calloc(1, sizeof(*job));

	if (!job)
		return r < 0 ? r : -ENOMEM;
	job->source = s;
	job->runtime = runtime;
	w->n_jobs++;
	worker_ask(w->workers[i], &job->base, 0);
	return 0;
}

void walkers_want(struct walkers *w, u32 runtime)
{
	if (w->asked & 1u << runtime)
		return;
	w->asked |= 1u << runtime;
	for (u32 i = 0; i < w->options.n_sources; i++)
		if (source_samples(&w->options.sources[i]) &&
		    ask(w, &w->options.sources[i], runtime) < 0)
			w->asked &= ~(1u << runtime); /* again at the next request */
}

/* A walker that the kernel refuses is not asked for again; one for which there is no room is. */
static void tell(struct walkers *w, const struct load *job)
{
	const char *name =
		bpf_program__name(source_walker(job->source, job->runtime, w->options.loop));

	if (job->error == -ENOBUFS)
		w->asked &= ~(1u << job->runtime);
	else if (job->error < 0)
		log_warn("frames of a language runtime stay without names: cannot load %s: %s",
			 name, strerror(-job->error));
	else
		log_debug("%s of %s: loaded in %.0f ms", name, job->source->about.event, job->ms);
}

u32 walkers_take(struct walkers *w)
{
	struct worker_job *base;
	u32 n = 0;

	for (u32 i = 0; i < THREADS; i++)
		while (w->workers[i] && (base = worker_take(w->workers[i], false))) {
			tell(w, container_of(base, struct load, base));
			drop_job(w, base, true);
			n++;
		}
	return n;
}

int walkers_fd(const struct walkers *w)
{
	for (u32 i = 0; i < THREADS; i++)
		if (w->workers[i] && worker_busy(w->workers[i]))
			return w->epoll;
	return -1;
}
